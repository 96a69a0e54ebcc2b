//! Undo and redo: a step back to what the last switch replaced, and forth again.

use super::RolledBack;
use crate::branch::Branch;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Event, SwitchKind};
use crate::types::Progress;
use crate::verbs::switch;
use crate::workspace::Workspace;

/// Takes the last rollback (or redo) back; [`Error::LaterAsked`] where something was asked for since,
/// unless that may go too.
pub(crate) fn undo_in(
    branch: &Branch,
    author: &str,
    over_later: bool,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let turn = {
        let history = &branch.lock().book.history;
        let turn = history.next_undo()?;
        let later = history.later_than_undo().map(|l| history.in_words(l));
        let later: Vec<String> = later.collect();
        if !over_later && !later.is_empty() {
            return Err(Error::LaterAsked(later));
        }
        turn
    };
    switch::switch(branch, author, SwitchKind::Undo, turn, false, progress)
}

/// Takes the last undo back.
pub(crate) fn redo_in(branch: &Branch, author: &str, progress: Progress<'_>) -> Result<RolledBack> {
    let turn = branch.lock().book.history.next_redo()?;
    switch::switch(branch, author, SwitchKind::Redo, turn, false, progress)
}

/// Notes that what the branch showed was applied. That is done, so a failure here is none of it: undo
/// will not know of it.
pub(crate) fn note_applied(branch: &Branch) {
    let time = clock::now();
    let mut inner = branch.lock();
    if let Err(e) = branch.carry_out(&mut inner, Event::Applied { time }, &[]) {
        tracing::warn!("{}: undo does not know of the apply: {e}", branch.name());
    }
}

/// Takes the last rollback, restore, merge, resolve or update back.
/// [`Error::LaterAsked`](crate::Error::LaterAsked), with nothing done, where a checkpoint or an apply was
/// asked for since.
pub fn undo(ws: &Workspace, branch: &str) -> Result<RolledBack> {
    undo_with(ws, branch, false, &|_, _| ())
}

/// As [`undo`], whatever was asked for since.
pub fn undo_over_later(ws: &Workspace, branch: &str) -> Result<RolledBack> {
    undo_with(ws, branch, true, &|_, _| ())
}

/// As [`undo`], with `over_later` as [`undo_over_later`]. `progress` hears of how many files the kernel has forgotten
/// what it knew.
pub fn undo_with(
    ws: &Workspace,
    branch: &str,
    over_later: bool,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    ws.untrusted.shows_again(branch, false)?;
    undo_in(&b, ws.author(), over_later, progress)
}

/// Takes the last undo back.
pub fn redo(ws: &Workspace, branch: &str) -> Result<RolledBack> {
    redo_with(ws, branch, &|_, _| ())
}

/// As [`redo`]; `progress` hears of how many files the kernel has forgotten what it knew.
pub fn redo_with(ws: &Workspace, branch: &str, progress: Progress<'_>) -> Result<RolledBack> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    ws.untrusted.shows_again(branch, false)?;
    redo_in(&b, ws.author(), progress)
}
