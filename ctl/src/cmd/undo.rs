//! `agentvfs workspace undo` and `redo`.

use super::{Context, rollback};
use crate::cli::{OneWorkspace, UndoArgs};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, OnBranch, RollbackAnswer, Undo};
use std::time::Instant;

/// Goes one operation back and prints the commit now shown.
pub fn back(args: &UndoArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(args.name.as_deref())?;
    let branch = context.branch()?;
    let call = Call::Undo(Undo {
        workspace: workspace.clone(),
        branch: branch.clone(),
        over_later_changes: args.over_later_changes,
    });
    turn(
        ("undo", "redo", "undoing"),
        (&workspace, &branch),
        &call,
        context,
    )
}

/// Goes one operation forward and prints the commit now shown.
pub fn forward(args: &OneWorkspace, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(args.name.as_deref())?;
    let branch = context.branch()?;
    let call = Call::Redo(OnBranch {
        workspace: workspace.clone(),
        branch: branch.clone(),
    });
    turn(
        ("redo", "undo", "redoing"),
        (&workspace, &branch),
        &call,
        context,
    )
}

fn turn(
    (verb, other, doing): (&str, &str, &'static str),
    of: (&str, &str),
    call: &Call,
    context: &mut Context,
) -> Result<u8, Failure> {
    let since = Instant::now();
    let answer: RollbackAnswer =
        context.ask_with_bar(&format!("cannot {verb} in {}", of.0), call, doing)?;
    let reverse = format!("`agentvfs {other}` reverses it");
    rollback::tell(&answer, of, since.elapsed(), &reverse, context)?;
    Ok(0)
}
