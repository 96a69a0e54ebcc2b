//! Undo and redo: a step back to what the last switch replaced, and forth again.

use super::RolledBack;
use crate::branch::Branch;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Event, SwitchKind};
use crate::workspace::Workspace;

impl Branch {
    /// Takes the last rollback (or redo) back; [`Error::LaterAsked`] where something was asked for since,
    /// unless that may go too.
    pub fn undo(&self, author: &str, over_later: bool) -> Result<RolledBack> {
        let turn = {
            let history = &self.lock().book.history;
            let turn = history.next_undo()?;
            let later = history.later_than_undo().map(|l| history.in_words(l));
            let later: Vec<String> = later.collect();
            if !over_later && !later.is_empty() {
                return Err(Error::LaterAsked(later));
            }
            turn
        };
        self.switch(author, SwitchKind::Undo, turn, false)
    }

    /// Takes the last undo back.
    pub fn redo(&self, author: &str) -> Result<RolledBack> {
        let turn = self.lock().book.history.next_redo()?;
        self.switch(author, SwitchKind::Redo, turn, false)
    }

    /// Notes that what the branch showed was applied. That is done, so a failure here is none of it: undo
    /// will not know of it.
    pub(crate) fn note_applied(&self) {
        let time = clock::now();
        let mut inner = self.lock();
        if let Err(e) = self.carry_out(&mut inner, Event::Applied { time }, &[]) {
            tracing::warn!("{}: undo does not know of the apply: {e}", self.name());
        }
    }
}

impl Workspace {
    /// Takes the last rollback, restore, merge, resolve or update back.
    /// [`Error::LaterAsked`](crate::Error::LaterAsked), with nothing done, where a checkpoint or an apply was
    /// asked for since.
    pub fn undo(&self, branch: &str) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        b.undo(self.author(), false)
    }

    /// As [`Workspace::undo`], whatever was asked for since.
    pub fn undo_over_later(&self, branch: &str) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        b.undo(self.author(), true)
    }

    /// Takes the last undo back.
    pub fn redo(&self, branch: &str) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        b.redo(self.author())
    }
}
