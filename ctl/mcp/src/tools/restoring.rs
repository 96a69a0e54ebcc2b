//! Tools that take something back in part, or forward again: `restore`, `redo`.

use super::Tool;
use super::versions::{change_row, target, went};
use crate::answer::{Answer, Page};
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, OnBranch, PlanAnswer, Rollback, RollbackAnswer};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;

pub fn tools() -> [Tool; 2] {
    [
        Tool::changes(
            "restore",
            "Restore single files or directories as they were in a commit (the last checkpoint without \
             ref); everything else is unchanged. undo reverses it. dry_run \
             only lists what would change.",
            restore,
        ),
        Tool::changes(
            "redo",
            "Reverse the last undo. Can be called as often as undo was.",
            redo,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct RestoreArgs {
    /// What to bring back: files or directories, from the workspace's root
    paths: Vec<String>,
    /// The commit: a label, an id or the beginning of one, @~1 (the checkpoint before the last)
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Instead of ref, the newest state from before then: a duration (90s, 5m, 2h, 1d) or an RFC 3339
    /// time
    before: Option<String>,
    /// Change nothing, list what would change
    #[serde(default)]
    dry_run: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn restore(turn: &mut Turn<'_>, args: RestoreArgs) -> Result<Answer, Failure> {
    let target = target("restore", args.reference, args.before)?;
    let state = turn.state(args.branch, None);
    let what = format!("cannot restore in {}", state.workspace);
    let paths = turn.paths(&state, &args.paths)?;
    if paths.is_empty() || paths.iter().any(|path| path.0.is_empty()) {
        let why = match paths.is_empty() {
            true => "restore: paths is empty",
            false => "restore: a path is the whole workspace",
        };
        return Err(Failure::usage(why).hint("rollback restores everything"));
    }
    let request = Rollback {
        paths,
        workspace: state.workspace,
        branch: state.branch,
        target,
        keep_kv: true,
    };
    if args.dry_run {
        let plan: PlanAnswer = turn.ask(&what, &Call::RollbackPlan(request))?;
        return Ok(Page::new(None, Some(u64::MAX)).of(&plan.changes, change_row));
    }
    let answer: RollbackAnswer = turn.ask(&what, &Call::Rollback(request))?;
    Ok(went(&answer))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct RedoArgs {
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn redo(turn: &mut Turn<'_>, args: RedoArgs) -> Result<Answer, Failure> {
    let workspace = turn.workspace();
    let what = format!("cannot redo in {workspace}");
    let call = Call::Redo(OnBranch {
        workspace,
        branch: turn.branch(args.branch),
    });
    let answer: RollbackAnswer = turn.ask(&what, &call)?;
    Ok(went(&answer))
}
