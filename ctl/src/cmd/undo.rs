//! `agentvfs workspace undo` and `redo`.

use super::{Context, rollback};
use crate::cli::OneWorkspace;
use crate::exit::Failure;
use crate::protocol::{Call, OnBranch, RollbackAnswer};
use std::time::Instant;

/// Which way to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `undo`.
    Back,
    /// `redo`.
    Forward,
}

/// Goes one operation back or forward and prints the commit now shown.
pub fn run(
    args: &OneWorkspace,
    context: &mut Context,
    direction: Direction,
) -> Result<u8, Failure> {
    let workspace = context.workspace(args.name.as_deref())?;
    let on = OnBranch {
        workspace: workspace.clone(),
        branch: context.branch()?,
    };
    let (verb, other, call) = match direction {
        Direction::Back => ("undo", "redo", Call::Undo(on)),
        Direction::Forward => ("redo", "undo", Call::Redo(on)),
    };
    let since = Instant::now();
    let answer: RollbackAnswer = context.ask(&format!("cannot {verb} in {workspace}"), &call)?;
    let reverse = format!("`agentvfs workspace {other}` takes it back");
    rollback::tell(&answer, context.json(), since.elapsed(), &reverse)?;
    Ok(0)
}
