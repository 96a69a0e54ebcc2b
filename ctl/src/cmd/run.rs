//! `agentvfs run`: a command in a sandbox, which shows a branch at the project's own path.
//!
//! The steps, of which each can fail only before the command runs: find or start the workspace; make or join the
//! branch; plan what the sandbox shows; commit what is there; build the sandbox (`agentvfs-sandbox`); say so. After
//! the command: commit again, count what changed, say how to go on. Invariant: this process holds the branch's
//! directory open for as long as the run lasts, so that nobody deletes the branch or stops the workspace unseen.

mod again;
mod home;
pub mod kept;
mod nested;
mod others;
mod plan;
pub mod reach;
mod relay;
mod report;
mod session;
mod ssh;
mod then;
mod user;
mod words;
mod work;

use super::Context;
use crate::cli::RunArgs;
use crate::output::warn;
use again::Again;
use agentvfs_client::failure::{FAILED, Failure, USAGE};
use agentvfs_client::home::SOCKET_VARIABLE;
use agentvfs_client::protocol::*;
use agentvfs_sandbox::copies::Outside;
use agentvfs_sandbox::{Ended, Error, Plan, Standing};
use home::Allowed;
use reach::Reach;
use relay::{Bound, Relay};
use report::{Facts, Report};
use std::path::Path;
use std::time::{Duration, Instant};
use then::Done;
use work::Work;

/// agentvfs failed, not the command.
const NOT_RUN: u8 = 125;
/// The command cannot be executed.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;
/// Bytes of the command that its commits keep.
const COMMAND_BYTES_MAX: usize = 256;

/// Runs the command and gives its exit status.
pub fn run(args: &RunArgs, context: &mut Context) -> Result<u8, Failure> {
    others::check(args)?;
    if args.list || args.stop.is_some() || args.discard.is_some() {
        refuse_inside(context)?;
    }
    if args.list {
        return others::list(args.nul, context);
    }
    if let Some(name) = &args.stop {
        return others::stop(name, args.force, context);
    }
    if let Some(name) = &args.discard {
        return others::discard(name, context);
    }
    let checked = plan::check(args, context).and_then(|()| Report::check(args));
    let done = checked.and_then(|report| in_branch(args, report.as_ref(), context));
    done.map_err(|failure| match failure.exit {
        USAGE | CANNOT_RUN | NOT_FOUND => failure,
        _ => Failure {
            exit: NOT_RUN,
            ..failure
        },
    })
}

/// Runs of others are not seen in a sandbox.
fn refuse_inside(context: &Context) -> Result<(), Failure> {
    match context.home().socket_of_run() {
        None => Ok(()),
        Some(_) => Err(Failure::new(
            "cannot look for runs",
            "a command in a sandbox may not do that",
        )
        .kind("in-sandbox")
        .hint("run it outside of agentvfs run")),
    }
}

fn in_branch(
    args: &RunArgs,
    report: Option<&Report>,
    context: &mut Context,
) -> Result<u8, Failure> {
    let mut work = work::begin(args, context)?;
    let started = start(args, &mut work, context);
    let (standing, plan, mut allowed, beside) = match started {
        Ok(started) => started,
        Err(failure) => {
            work::unmark(&mut work, context);
            work::forget_new(&mut work, context);
            return Err(failure);
        }
    };
    begun(args, &work, (&plan, &allowed), &standing, context);
    let layers = (standing.layers(), standing.lacking().to_vec());
    // The daemon ends connections that are silent for long.
    context.forget_client();
    let (started, since) = (work::now(), Instant::now());
    let mut copies = allowed.copies.take();
    let mut tick = || copies.iter_mut().for_each(|copies| copies.tick());
    let ended = standing
        .go(args.time, &mut tick)
        .map_err(|e| not_run(args, e));
    let took = since.elapsed();
    // Before anything is looked at: what the command asked for may still be worked on.
    let asked_for_nothing = beside.end(&mut work);
    let outside = copies.map(|copies| copies.end()).unwrap_or_default();
    words::outside_failures(&outside);
    let run = Ran {
        ended: &ended,
        outside: &outside,
        took,
        asked_for_nothing,
    };
    let after = after(args, &mut work, &run, context);
    let written = report.map_or(Ok(()), |report| {
        report.write(&Facts {
            args,
            work: &work,
            plan: &plan,
            layers,
            started,
            took,
            ended: ended.as_ref(),
            outside: &outside,
            after: after.as_ref(),
        })
    });
    let told = match (after.and_then(|after| after.done), written) {
        (Err(failure), Err(more)) => {
            warn(&format!("{}: {}", more.what, more.why));
            Err(failure)
        }
        (done, written) => done.and(written),
    };
    match (ended, told) {
        (Ok(ended), Ok(())) => Ok(ended.status()),
        (Err(failure), _) => Err(failure),
        (Ok(ended), Err(failure)) if ended.status() != 0 => {
            warn(&format!("{}: {}", failure.what, failure.why));
            Ok(ended.status())
        }
        (Ok(_), Err(failure)) => Err(failure),
    }
}

/// What goes on beside the command.
struct Beside {
    relay: Option<Relay>,
    again: Option<Again>,
}

impl Beside {
    /// Ends it. True if the command asked for nothing that may have changed something.
    fn end(self, work: &mut Work) -> bool {
        let asked_for_nothing = self.relay.is_none_or(Relay::end);
        if let Some(held) = self.again.and_then(Again::end) {
            work.hold_by(held);
        }
        asked_for_nothing
    }
}

/// Says what runs where, once the sandbox stands.
fn begun(
    args: &RunArgs,
    work: &Work,
    (plan, allowed): (&Plan, &Allowed),
    standing: &Standing,
    context: &Context,
) {
    if args.quiet {
        return;
    }
    words::begun(args, work, (plan, allowed), standing, context);
    if plan::needs_trust(args, context) {
        warn("codex runs hooks only after you have trusted them: type /hooks in it");
    }
}

/// Plans and builds the sandbox, after a commit of what is there.
fn start(
    args: &RunArgs,
    work: &mut Work,
    context: &mut Context,
) -> Result<(Standing, Plan, Allowed, Beside), Failure> {
    let (plan, mut allowed) = plan::plan(args, work, context)?;
    words::left(&allowed.left);
    let shares = plan::shares(&plan);
    work::mark(work, (&plan::command(args), shares), context)?;
    then::check(args, work)?;
    commit(args, work, (Vec::new(), false), context)?;
    let no_socket = |e: std::io::Error| Failure::new("cannot offer a socket", e.to_string());
    let bound = plan::socket_in(&plan.places).map(|(path, _)| Bound::at(path));
    let bound = bound.transpose().map_err(no_socket)?;
    let turn = session::turn(context.home());
    let session = match turn {
        Some(_) => session::standing(&plan, work, context.home()),
        None => None,
    };
    let standing = agentvfs_sandbox::start(&plan, session.as_ref()).map_err(|e| not_run(args, e));
    drop(turn);
    let standing = standing?;
    register(args, work, &standing, context);
    let beside = beside(bound, (&standing, &plan), work, context).map_err(no_socket)?;
    if let Some(copies) = &mut allowed.copies {
        let failed = |e: std::io::Error| Failure::new("cannot keep copies", e.to_string());
        copies.wait().map_err(failed)?;
    }
    Ok((standing, plan, allowed, beside))
}

/// Has `.agentvfs/view` in the workspace's mount lead to the run's branch, for a command that sees the mount: one without
/// a sandbox. The registration ends with the control group.
fn register(args: &RunArgs, work: &Work, standing: &Standing, context: &mut Context) {
    let Some(group) = standing.group().filter(|_| args.no_sandbox) else {
        return;
    };
    let call = Call::SessionRegister(SessionRegister {
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        cgroup: Bytes::from(group),
    });
    let what = format!(
        "cannot register {} for branch {}",
        group.display(),
        work.branch
    );
    let done: Result<SessionRegisterAnswer, Failure> = context.ask(&what, &call);
    if let Err(failure) = done {
        warn(&format!("{}: {}", failure.what, failure.why));
    }
}

/// Begins what goes on beside the command.
fn beside(
    bound: Option<Bound>,
    (standing, plan): (&Standing, &Plan),
    work: &Work,
    context: &Context,
) -> std::io::Result<Beside> {
    let maps = plan.nested.as_ref().and_then(|of| of.maps.clone());
    let at = plan::branches_in(&plan.places);
    let reach = |at: &Path| {
        let new = |namespaces| {
            let from = work.branches.clone();
            Reach::new(namespaces, (from, at.to_owned()), maps.clone())
        };
        standing.namespaces().map(new).transpose()
    };
    let reach_again = reach(at.unwrap_or(Path::new("")))?;
    let again = Again::begin(work, plan, reach_again, context)?;
    let reach = at.map(reach).transpose()?.flatten();
    let socket = work.socket(context);
    let sandbox = SandboxOf {
        at: plan::view_in(&plan.places, work).map(Bytes::from),
        ..work.sandbox()
    };
    let relay = bound.map(|bound| Relay::begin(bound, socket, sandbox, reach));
    let relay = relay.transpose()?;
    Ok(Beside { relay, again })
}

/// Makes an automatic commit that names the run; with `wait` its id is known then.
fn commit(
    args: &RunArgs,
    work: &Work,
    (more, wait): (Vec<(String, String)>, bool),
    context: &mut Context,
) -> Result<(), Failure> {
    // Two keys, so that `rollback --meta run=ID` goes back to before the run.
    let key = if more.is_empty() { "run" } else { "run-end" };
    let mut meta = vec![
        (work.key(key), work.run.clone()),
        (work.key("command"), told_command(args)),
    ];
    meta.extend(more);
    let what = format!("cannot commit branch {} of {}", work.branch, work.info.name);
    let call = Call::Checkpoint(Checkpoint {
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        label: None,
        message: String::new(),
        meta,
        wait,
        automatic: true,
        unlike: None,
        joins: None,
        progress: false,
    });
    let _: CheckpointAnswer = context.ask(&what, &call)?;
    Ok(())
}

/// The command as its commits keep it.
fn told_command(args: &RunArgs) -> String {
    let words = plan::command(args);
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into()).collect();
    let mut text = words.join(" ");
    let mut end = text.len().min(COMMAND_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// What is known once the command has ended.
struct Ran<'a> {
    ended: &'a Result<Ended, Failure>,
    outside: &'a Outside,
    took: Duration,
    /// It asked for nothing through its socket that may have changed something.
    asked_for_nothing: bool,
}

/// What there is to tell once the command has ended.
struct After {
    /// What it changed.
    changes: Vec<Changed>,
    /// Commits from before the command and after it, if somebody wants to know.
    commits: (Option<String>, Option<String>),
    /// What became of the branch.
    done: Result<Done, Failure>,
}

/// What is done once the command has ended: a branch that was made for it goes if nothing changed in it; else a
/// commit is made, and then what `--then` says.
fn after(
    args: &RunArgs,
    work: &mut Work,
    ran: &Ran<'_>,
    context: &mut Context,
) -> Result<After, Failure> {
    let Ran {
        ended,
        outside,
        took,
        asked_for_nothing,
    } = *ran;
    let changes = work::changes(work, asked_for_nothing, context)?;
    let status = ended.as_ref().map_or(NOT_RUN, |ended| ended.status());
    let facts = vec![
        (work.key("exit"), status.to_string()),
        (work.key("duration"), format!("{:.3}", took.as_secs_f64())),
    ];
    let mut commits = (None, None);
    if args.report.is_some() {
        commit_with_id(args, work, &facts, context)?;
        commits = work::commits(work, context)?;
    }
    // What it asked for (labels, keys, calls) is no change of a file.
    let is_empty = work.is_generated && changes.is_empty() && asked_for_nothing;
    let is_kept = !(is_empty && work::forget_new(work, context));
    if changes.is_empty() && is_kept && asked_for_nothing {
        work::unmark(work, context);
    }
    if is_kept && args.report.is_none() {
        commit(args, work, (facts, false), context)?;
    }
    let mut done = Ok(Done::Kept);
    if let Ok(ended) = ended {
        if !args.quiet {
            words::ended(args, work, *ended, took, &changes, is_kept);
        }
        if is_kept {
            done = then::then(args, work, *ended, context);
        }
        if !args.quiet {
            tell(work, &changes, &done, context);
            words::outside(outside);
        }
    }
    Ok(After {
        changes,
        commits,
        done,
    })
}

/// A commit whose id is known, unless the project is not imported and cannot be.
fn commit_with_id(
    args: &RunArgs,
    work: &Work,
    facts: &[(String, String)],
    context: &mut Context,
) -> Result<(), Failure> {
    match commit(args, work, (facts.to_vec(), true), context) {
        Err(failure) if failure.kind == "import-paused" => {
            commit(args, work, (facts.to_vec(), false), context)
        }
        done => done,
    }
}

/// Says how to go on, and what was done.
fn tell(work: &Work, changes: &[Changed], done: &Result<Done, Failure>, context: &Context) {
    if !changes.is_empty() && !matches!(done, Ok(Done::Discarded)) {
        words::next(work, context);
    }
    if let Ok(done) = done {
        then::tell(done, work);
    }
}

/// Whether this process is in the sandbox of a run.
fn is_inside() -> bool {
    std::env::var_os(SOCKET_VARIABLE).is_some()
}

/// Why the command was not run, with the exit status that says so.
fn not_run(args: &RunArgs, error: Error) -> Failure {
    let name = plan::command(args).swap_remove(0);
    let what = format!("cannot run {}", name.to_string_lossy());
    let failure = Failure::new(what, error.to_string());
    let (exit, hint) = match &error {
        Error::NotFound => (
            NOT_FOUND,
            "check the name and $PATH; files below /tmp and /run do not exist in the sandbox",
        ),
        Error::NotExecutable(_) => (CANNOT_RUN, "check the file's mode and its first line"),
        Error::Namespaces(_) if is_inside() => {
            (FAILED, "a run with --strict lets no other one run inside")
        }
        Error::Namespaces(_) => (
            FAILED,
            "agentvfs doctor says what keeps this user from creating namespaces",
        ),
        Error::Limits(_) => (
            FAILED,
            "start it by systemd-run --user --scope, which delegates a cgroup to this user; it needs version 2",
        ),
        Error::Lacking(_) => (
            FAILED,
            "agentvfs run --best-effort runs without what this kernel lacks",
        ),
        _ => (
            FAILED,
            "agentvfs doctor checks what a sandbox needs of this machine",
        ),
    };
    Failure { exit, ..failure }.kind("not-run").hint(hint)
}
