//! The workspace and branch of a run.

use super::super::log::pages::each_page;
use super::super::start::{mounted, project_here, started_on};
use super::super::{Context, check_name};
use super::kept;
use super::nested::{Around, BRANCHES};
use crate::cli::{RunArgs, ThenArg};
use crate::output::warn;
use agentvfs_client::connection::Client;
use agentvfs_client::failure::Failure;
use agentvfs_client::infer::branch_meant;
use agentvfs_client::launch;
use agentvfs_client::protocol::*;
use agentvfs_client::quote::shown;
use agentvfs_client::runs::{self, Registered, RunRecord};
use agentvfs_client::when::rfc3339;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often another name is tried for a new branch.
const NAMES_MAX: u32 = 32;

/// What a run works on.
pub struct Work {
    /// The workspace.
    pub info: Info,
    /// The directory from which the workspace was started for this run, if so.
    pub started_from: Option<PathBuf>,
    /// The branch.
    pub branch: String,
    /// Where the branch is in the mount.
    pub view: PathBuf,
    /// When the branch was made.
    pub created: Moment,
    /// The branch was made for this run alone.
    pub is_generated: bool,
    /// The branch was made by this run.
    pub is_new: bool,
    /// Names the run.
    pub run: String,
    /// The branch of which the branch was made, if a run made it.
    pub made_of: Option<String>,
    /// The sandbox that this run is in itself.
    pub around: Option<Around>,
    /// The directory that has branches beside this one.
    pub branches: PathBuf,
    /// Shows the run to others.
    pub registered: Option<Registered>,
    /// What the branch shows is marked as written by a command in a sandbox.
    is_marked: bool,
    /// The branch's directory: whoever has it open uses the branch.
    held: Option<OwnedFd>,
}

/// Finds or starts the workspace, makes or joins the branch.
pub fn begin(args: &RunArgs, context: &mut Context) -> Result<Work, Failure> {
    let (info, started_from) = workspace(args, context)?;
    let run = new_id();
    let named = args.session.clone().or(context.options().branch.clone());
    let (row, is_new) = match (&named, &args.session) {
        (Some(name), session) => join(&info, name, session.is_some(), context)?,
        (None, _) => (generate(&info, &run, context)?, true),
    };
    let around = Around::look(context)?;
    let branches = match &around {
        Some(around) => around.branches(),
        None => info.mount.to_path().join(BRANCHES),
    };
    let view = match &around {
        Some(_) => branches.join(&row.name),
        None => row.path.to_path(),
    };
    let held = hold(&info, &view);
    let work = |held| Work {
        branch: row.name.clone(),
        view,
        created: row.created,
        made_of: is_new.then(|| parent(context)),
        around,
        branches,
        registered: None,
        is_marked: false,
        is_generated: named.is_none(),
        is_new,
        run: row
            .name
            .strip_prefix("run-")
            .filter(|_| named.is_none())
            .unwrap_or(&run)
            .to_owned(),
        held: Some(held),
        started_from,
        info: info.clone(),
    };
    match held {
        Ok(held) => Ok(work(held)),
        Err(failure) => {
            if is_new && let Err(more) = forget(&info.name, &row.name, context) {
                warn(&format!("{}: {}", more.what, more.why));
            }
            Err(failure)
        }
    }
}

impl Work {
    /// Whose sandbox the command is in.
    pub fn sandbox(&self) -> SandboxOf {
        SandboxOf {
            workspace: self.info.name.clone(),
            branch: self.branch.clone(),
            created: self.created,
            process: None,
            at: None,
        }
    }

    /// Where requests of the command go.
    pub fn socket(&self, context: &Context) -> PathBuf {
        match &self.around {
            Some(around) => around.socket.clone(),
            None => context.home().socket(),
        }
    }

    /// Names of the branches that were made in the sandbox of the branch.
    pub fn made_inside(&self, context: &Context) -> Result<Vec<String>, Failure> {
        made_inside(&self.socket(context), self.sandbox())
    }

    /// The branch's directory, as it was opened when the run began.
    pub fn held(&self) -> Option<&OwnedFd> {
        self.held.as_ref()
    }

    /// Holds the branch by another descriptor: the daemon that knew of the one before is gone.
    pub fn hold_by(&mut self, held: OwnedFd) {
        self.held = Some(held);
    }

    /// A key of the run's commits. Inside another run it is one that no run outside looks for.
    pub fn key(&self, key: &str) -> String {
        match self.around {
            None => key.to_owned(),
            Some(_) => format!("nested-{key}"),
        }
    }
}

/// Names of the branches that were made in a sandbox.
pub fn made_inside(socket: &Path, sandbox: SandboxOf) -> Result<Vec<String>, Failure> {
    let what = "cannot list the branches";
    let failed = |error| launch::failed(what, error);
    let call = Call::BranchList(BranchList {
        workspace: sandbox.workspace.clone(),
        standing: false,
    });
    let own = sandbox.branch.clone();
    let mut client = Client::connect_in(socket, sandbox).map_err(failed)?;
    let answer: BranchListAnswer = client.call(&call).map_err(failed)?;
    let names = answer.branches.into_iter().map(|row| row.name);
    Ok(names.filter(|name| *name != own).collect())
}

/// The workspace that is meant, running; and the directory that it was started from for this run.
fn workspace(args: &RunArgs, context: &mut Context) -> Result<(Info, Option<PathBuf>), Failure> {
    if let Some(from) = &args.from {
        let from = context.absolute(from)?;
        return Ok((started_on(&from, context)?, Some(from)));
    }
    let name = match context.surroundings().named(None)? {
        Some(name) => Some(name),
        None => context.workspace_here()?,
    };
    let Some(name) = name else {
        let here = project_here(context, "agentvfs run --from DIR")?;
        return Ok((started_on(&here, context)?, Some(here)));
    };
    let what = format!("cannot run in {name}");
    match context.info(&name)? {
        Some(info) if info.status == WorkspaceStatus::Started && !info.unmounted => {
            Ok((info, None))
        }
        _ => {
            let call = Call::Start(Start {
                workspace: name,
                base: None,
                named: false,
                mount: None,
                options: mounted(),
            });
            let answer: StartAnswer = context.ask(&what, &call)?;
            answer.warnings.iter().for_each(|warning| warn(warning));
            Ok((answer.info, None))
        }
    }
}

/// The branch of this name; with `create` it is made where it is missing. True where it was.
fn join(
    info: &Info,
    name: &str,
    create: bool,
    context: &mut Context,
) -> Result<(BranchRow, bool), Failure> {
    if let Some(row) = find(info, name, context)? {
        return Ok((row, false));
    }
    if !create {
        let why = format!("{} has no branch {name}", info.name);
        return Err(Failure::new("cannot run", why)
            .kind("no-such-branch")
            .hint(format!("agentvfs run --session {name} creates it")));
    }
    match make(info, name, context)? {
        Ok(row) => Ok((row, true)),
        // Another run made it meanwhile.
        Err(fault) if fault.kind == "branch-exists" => match find(info, name, context)? {
            Some(row) => Ok((row, false)),
            None => Err(Failure::from_fault("cannot run", fault)),
        },
        Err(fault) => Err(Failure::from_fault(
            format!("cannot create branch {name}"),
            fault,
        )),
    }
}

fn find(info: &Info, name: &str, context: &mut Context) -> Result<Option<BranchRow>, Failure> {
    let call = Call::BranchList(BranchList {
        workspace: info.name.clone(),
        standing: false,
    });
    let answer: BranchListAnswer = context.ask("cannot list the branches", &call)?;
    Ok(answer.branches.into_iter().find(|row| row.name == name))
}

/// The branch of which a new one is made: the one that is meant otherwise.
fn parent(context: &Context) -> String {
    let variable = std::env::var("AGENTVFS_BRANCH").ok();
    let cwd = context.surroundings().cwd.as_deref();
    branch_meant(None, variable.as_deref(), cwd)
}

/// Shows the run to others, and has what the branch shows from now on marked as written by a command in a sandbox: in
/// this order, so that who sees no run here finds the mark.
pub fn mark(
    work: &mut Work,
    (command, shares): (&[OsString], bool),
    context: &mut Context,
) -> Result<(), Failure> {
    let unseen = |e: std::io::Error| {
        Failure::new(
            "cannot record the run",
            format!("{}: {e}", context.home().runs().display()),
        )
    };
    let record = RunRecord {
        run: work.run.clone(),
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        pid_namespace: runs::pid_namespace().map_err(unseen)?,
        started: now(),
        shares,
        command: command
            .iter()
            .map(|word| Bytes(word.as_bytes().to_vec()))
            .collect(),
    };
    if work.around.is_none() {
        work.registered = Some(Registered::new(context.home(), &record).map_err(unseen)?);
    }
    let call = Call::RunBegin(RunBegin {
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        run: work.run.clone(),
        made_of: work.made_of.clone(),
    });
    let what = format!("cannot run in branch {} of {}", work.branch, work.info.name);
    let answer: RunBeginAnswer = context.ask(&what, &call)?;
    work.made_of = answer.made_of;
    work.is_marked = true;
    Ok(())
}

/// The moment that it is.
pub fn now() -> Moment {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment {
        sec: now.as_secs().try_into().unwrap_or(i64::MAX),
        nsec: now.subsec_nanos(),
    }
}

/// The commits of the run from before its command and after it, as far as they have ids.
pub fn commits(
    work: &Work,
    context: &mut Context,
) -> Result<(Option<String>, Option<String>), Failure> {
    let ask = Log {
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        all: true,
        limit: None,
        after: None,
        digits: false,
        count: false,
    };
    let keys = (work.key("run"), work.key("run-end"));
    let (mut before, mut after) = (None, None);
    // The later one comes first. All that is read is what the command committed between them.
    each_page(&ask, context, &mut |rows, _| {
        for row in rows {
            let has = |key: &str| row.meta.iter().any(|(k, v)| k == key && *v == work.run);
            if after.is_none() && has(&keys.1) {
                after = Some(row.commit.clone());
            }
            if before.is_none() && has(&keys.0) {
                before = Some(row.commit);
            }
        }
        Ok(before.is_none())
    })?;
    Ok((before.flatten(), after.flatten()))
}

/// Takes the mark back: the command did not begin, or the branch shows what it showed before. A mark that stays costs
/// the user a question.
pub fn unmark(work: &mut Work, context: &mut Context) {
    // Who is in a sandbox may not say what in it is to be trusted.
    if !std::mem::take(&mut work.is_marked) || work.around.is_some() {
        return;
    }
    let call = Call::RunWroteNothing(RunWroteNothing {
        workspace: work.info.name.clone(),
        branch: work.branch.clone(),
        run: work.run.clone(),
    });
    let what = format!("cannot note that nothing changed in branch {}", work.branch);
    let done: Result<Nothing, Failure> = context.ask(&what, &call);
    if let Err(failure) = done {
        warn(&format!("{}: {}", failure.what, failure.why));
    }
}

/// Makes a branch of the one that is meant otherwise.
fn make(
    info: &Info,
    name: &str,
    context: &mut Context,
) -> Result<Result<BranchRow, Fault>, Failure> {
    let call = Call::BranchCreate(BranchCreate {
        workspace: info.name.clone(),
        branch: parent(context),
        name: name.to_owned(),
        from: None,
    });
    context.try_ask(&format!("cannot create branch {name}"), &call)
}

/// A new branch with a name of its own.
fn generate(info: &Info, run: &str, context: &mut Context) -> Result<BranchRow, Failure> {
    let mut id = run.to_owned();
    for _ in 0..NAMES_MAX {
        match make(info, &format!("run-{id}"), context)? {
            Ok(row) => return Ok(row),
            Err(fault) if fault.kind == "branch-exists" => id = new_id(),
            Err(fault) => return Err(Failure::from_fault("cannot create a branch", fault)),
        }
    }
    Err(
        Failure::new("cannot create a branch", "every name that was tried exists")
            .hint("name it: agentvfs run --session NAME"),
    )
}

/// Checks the name of a branch before anything is asked.
pub fn check_names(args: &RunArgs, context: &Context) -> Result<(), Failure> {
    let branch = &context.options().branch;
    if let (Some(session), Some(branch)) = (&args.session, branch)
        && session != branch
    {
        return Err(Failure::usage(format!(
            "two branches are named: {session} and {branch}"
        )));
    }
    let is_main = args
        .session
        .as_ref()
        .or(branch.as_ref())
        .is_some_and(|name| name == MAIN);
    if is_main && matches!(args.then, ThenArg::Merge | ThenArg::Discard) {
        return Err(Failure::usage(format!(
            "{MAIN} can be neither merged nor deleted after a run"
        ))
        .hint("use --session NAME"));
    }
    match &args.session {
        Some(name) if name == MAIN => Ok(()),
        Some(name) => check_name(engine::names::check_branch_name(name)),
        None => Ok(()),
    }
}

/// Characters of an id that are there by chance: ids of a busy minute must not repeat, since commits are found by them.
const CHANCE_LETTERS: u32 = 6;

/// `MMDD-HHMM-xxxxxx`: when, in UTC, and characters by chance.
fn new_id() -> String {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = rfc3339(Moment {
        sec: now.map_or(0, |now| now.as_secs() as i64),
        nsec: 0,
    });
    let part = |from: usize, to: usize| now.get(from..to).unwrap_or("00");
    // Of processes that begin at once each hashes by keys of its own.
    let chance = RandomState::new().hash_one((&now, std::process::id()));
    let letter = |n: u32| {
        let at = chance / (LETTERS.len() as u64).pow(n) % LETTERS.len() as u64;
        LETTERS[at as usize] as char
    };
    let letters: String = (0..CHANCE_LETTERS).map(letter).collect();
    format!(
        "{}{}-{}{}-{letters}",
        part(5, 7),
        part(8, 10),
        part(11, 13),
        part(14, 16),
    )
}

/// Opens the branch's directory, where it is what the daemon serves.
pub fn hold(info: &Info, view: &Path) -> Result<OwnedFd, Failure> {
    let what = format!("cannot enter the mount of {}", info.name);
    let failed = |why: String| {
        Failure::new(what.clone(), why).hint(format!("agentvfs workspace status {}", info.name))
    };
    let place = || shown(view.as_os_str().as_encoded_bytes());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(view, flags, Mode::empty())
        .map_err(|errno| failed(format!("{}: {errno}", place())))?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(&held, c"", flags, StatxFlags::empty())
        .map_err(|errno| failed(format!("{}: {errno}", place())))?;
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    match info.device {
        Some(device) if device != (Device { major, minor }) => Err(failed(format!(
            "{} is not the mount that the daemon serves",
            place()
        ))),
        _ => Ok(held),
    }
}

/// What differs from where the run began; `is_head_same` if the command cannot have made a commit.
pub fn changes(
    work: &Work,
    is_head_same: bool,
    context: &mut Context,
) -> Result<Vec<Changed>, Failure> {
    let what = format!("cannot compare branch {}", work.branch);
    let (workspace, branch) = (work.info.name.clone(), work.branch.clone());
    if work.is_generated && is_head_same {
        // A new branch's head is what it was made of.
        let call = Call::Diff(Diff {
            workspace,
            branch,
            from: Side::Ref("@".to_owned()),
            to: Side::Live,
            paths: Vec::new(),
            stat: false,
        });
        let answer: DiffAnswer = context.ask(&what, &call)?;
        return Ok(answer.changes);
    }
    // The commit from before the run may have no id yet, but it can be gone back to.
    let call = Call::RollbackPlan(Rollback {
        workspace,
        branch,
        target: Target::Meta(work.key("run"), work.run.clone()),
        paths: Vec::new(),
        keep_kv: true,
    });
    let answer: PlanAnswer = context.ask(&what, &call)?;
    let forwards = |change: Changed| match (change.status, change.old_path) {
        ('A', old_path) => Changed {
            status: 'D',
            old_path,
            ..change
        },
        ('D', old_path) => Changed {
            status: 'A',
            old_path,
            ..change
        },
        (_, Some(path)) => Changed {
            old_path: Some(change.path),
            path,
            ..change
        },
        (_, None) => Changed {
            old_path: None,
            ..change
        },
    };
    Ok(answer.changes.into_iter().map(forwards).collect())
}

/// Deletes the branch if this run made it: nothing was changed in it. False where it stays.
pub fn forget_new(work: &mut Work, context: &mut Context) -> bool {
    if !work.is_new {
        return false;
    }
    match delete(work, context) {
        Ok(()) => true,
        // Another run has joined it.
        Err(failure) if failure.kind == "branch-in-use" => false,
        Err(failure) => {
            warn(&format!("{}: {}", failure.what, failure.why));
            false
        }
    }
}

/// Deletes the branch, which this run does not use any more.
pub fn delete(work: &mut Work, context: &mut Context) -> Result<(), Failure> {
    work.held = None;
    forget(&work.info.name, &work.branch, context)?;
    if work.around.is_none() {
        kept::forget(context.home(), &work.info.name, &work.branch, true);
    }
    Ok(())
}

fn forget(workspace: &str, branch: &str, context: &mut Context) -> Result<(), Failure> {
    let call = Call::BranchDelete(OnBranch {
        workspace: workspace.to_owned(),
        branch: branch.to_owned(),
    });
    let what = format!("cannot delete branch {branch}");
    let _: BranchDeleteAnswer = context.ask(&what, &call)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::new_id;

    #[test]
    fn ids_are_short_and_allowed_in_names_of_branches() {
        let id = new_id();
        assert_eq!(id.len(), "1122-0457-x7k2m9".len(), "{id}");
        engine::names::check_branch_name(&format!("run-{id}")).unwrap();
    }

    #[test]
    fn ids_of_a_busy_minute_do_not_repeat() {
        let ids: std::collections::BTreeSet<String> = (0..2000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 2000);
    }
}
