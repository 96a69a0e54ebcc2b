//! What `--then` asks for once a command has ended well: the branch is applied, merged or deleted, or it stays as it is.

use super::super::Context;
use super::words;
use super::work::{self, Work};
use crate::cli::{RunArgs, ThenArg};
use crate::output::Bar;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::*;
use agentvfs_client::quote::{shown, some_paths};
use agentvfs_client::render::count;
use agentvfs_client::runs;
use agentvfs_sandbox::Ended;

/// What became of the branch.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// It is as the command left it, as was asked for.
    Kept,
    /// It is so because of this.
    KeptFor(String),
    /// It was applied; so many files of the project changed.
    Applied(u64),
    /// It was merged into this one.
    Merged(String),
    /// It was deleted.
    Discarded,
}

/// Finds what cannot be done with a branch before the command runs.
pub fn check(args: &RunArgs, work: &Work) -> Result<(), Failure> {
    let branch = &work.branch;
    match args.then {
        ThenArg::Merge if work.made_of.is_none() => {
            let why = format!("it is not known of which branch {branch} was made");
            Err(
                Failure::new("cannot merge after the run", why).hint(format!(
                    "run without --then, then agentvfs branch merge {branch} --into BRANCH"
                )),
            )
        }
        _ => Ok(()),
    }
}

/// Does it. On error the branch is kept, and nothing else was changed.
pub fn then(
    args: &RunArgs,
    work: &mut Work,
    ended: Ended,
    context: &mut Context,
) -> Result<Done, Failure> {
    if args.then == ThenArg::Keep {
        return Ok(Done::Kept);
    }
    if ended.status() != 0 {
        return Ok(Done::KeptFor("the command failed".to_owned()));
    }
    // Of two that end together at least the second one finds itself alone.
    work.registered = None;
    if let Some(other) = other_run(work, context)? {
        return Ok(Done::KeptFor(format!("run {other} has not ended")));
    }
    match (args.then, work.made_of.clone()) {
        (ThenArg::Apply, _) => apply(work, context),
        (ThenArg::Merge, Some(into)) => merge(work, into, context),
        (ThenArg::Discard, _) => {
            work::delete(work, context)?;
            Ok(Done::Discarded)
        }
        (ThenArg::Keep | ThenArg::Merge, _) => Ok(Done::Kept),
    }
}

/// A run that is alive in the same branch.
fn other_run(work: &Work, context: &Context) -> Result<Option<String>, Failure> {
    let alive = runs::alive(context.home())
        .map_err(|e| Failure::new("cannot look for other runs", e.to_string()))?;
    let mut others = alive.into_iter();
    let is_here =
        |run: &runs::RunRecord| run.workspace == work.info.name && run.branch == work.branch;
    Ok(others.find(is_here).map(|other| other.run))
}

fn apply(work: &Work, context: &mut Context) -> Result<Done, Failure> {
    let (workspace, branch) = (&work.info.name, &work.branch);
    let what = format!("cannot apply {branch} of {workspace}");
    let call = Call::Apply(Apply {
        workspace: workspace.clone(),
        branch: branch.clone(),
        dry_run: false,
        privileged: false,
        trust: false,
        progress: Bar::is_wanted(),
    });
    let answer: Result<ApplyAnswer, Failure> =
        context.ask_cancellable(&what, &call, "applying", &mut |_| {});
    let answer = answer.map_err(|failure| match failure.kind.as_str() {
        "needs-trust" => {
            let hint = format!(
                "agentvfs workspace diff -w {workspace} --branch {branch} --base --patch shows them, \
                 agentvfs workspace apply -w {workspace} --branch {branch} --trust applies them"
            );
            Failure {
                why: format!("{}; nothing was applied, the branch is kept", failure.why),
                ..failure
            }
            .hint(hint)
        }
        _ => failure,
    })?;
    let hint = format!(
        "agentvfs workspace update -w {workspace} --branch {branch} --conflicts keep merges the \
         project into the branch, where agentvfs branch resolve resolves them"
    );
    refuse_conflicts(&what, &answer.conflicts, hint)?;
    Ok(Done::Applied(answer.changes.len() as u64))
}

fn merge(work: &Work, into: String, context: &mut Context) -> Result<Done, Failure> {
    let (workspace, branch) = (&work.info.name, &work.branch);
    let what = format!("cannot merge {branch} into {into}");
    let call = Call::BranchMerge(BranchMerge {
        workspace: workspace.clone(),
        from: branch.clone(),
        into: into.clone(),
        keep_conflicts: false,
        dry_run: false,
        label: None,
        message: String::new(),
        progress: Bar::is_wanted(),
    });
    let answer: BranchMergeAnswer =
        context.ask_cancellable(&what, &call, "merging", &mut |_| {})?;
    let hint = format!(
        "agentvfs branch merge -w {workspace} {branch} --into {into} --conflicts keep merges with \
         conflict markers"
    );
    refuse_conflicts(&what, &answer.conflicts, hint)?;
    Ok(Done::Merged(into))
}

fn refuse_conflicts(what: &str, conflicts: &[ConflictRow], hint: String) -> Result<(), Failure> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let many = count(conflicts.len() as u64, "conflict");
    let paths = some_paths(conflicts.iter().map(|conflict| conflict.path.0.as_slice()));
    let why = format!("{many} ({paths}); nothing was changed, the branch is kept");
    Err(Failure::new(what, why).kind("conflicts").hint(hint))
}

/// Says what became of the branch.
pub fn tell(done: &Done, work: &Work) {
    let branch = &work.branch;
    let base = shown(&work.info.base.0);
    match done {
        Done::Kept => {}
        Done::KeptFor(why) => words::say(&format!("branch {branch} is kept: {why}")),
        Done::Applied(0) => words::say(&format!("nothing to apply to {base}")),
        Done::Applied(changes) => {
            words::say(&format!("{} applied to {base}", count(*changes, "change")));
        }
        Done::Merged(into) => words::say(&format!("branch {branch} was merged into {into}")),
        Done::Discarded => words::say(&format!("branch {branch} was deleted")),
    }
}
