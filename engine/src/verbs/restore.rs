//! Single paths of the live tree as they are in another state.
//!
//! A switch like a rollback (what is replaced becomes an automatic commit, undo and redo go over it),
//! but to a mixture of two states, and the head stays.

use super::switch::To;
use super::{Change, RolledBack, Target};
use crate::book::history::Turn;
use crate::branch::Branch;
use crate::change::graft::{Blocked, graft};
use crate::change::transition::{FRESH_NID, differs, in_place};
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Counters, SwitchKind};
use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::workspace::Workspace;
use std::sync::atomic::Ordering;

impl Branch {
    /// Takes what lies at `paths` from the target into the live tree; what the target does not have
    /// there goes. [`Error::NoSuchPath`] where neither has one, and then nothing is done.
    pub fn restore(&self, author: &str, target: &Target, paths: &[Vec<u8>]) -> Result<RolledBack> {
        self.check_journal()?;
        let state = self.resolve(target)?;
        loop {
            self.cache().flush_dirty();
            let source = self.tree_of(state)?;
            let blocked = {
                let mut inner = self.lock_synced()?;
                let source = inner.book.history.tree(state).cloned().unwrap_or(source);
                let mut counters = inner.book.counters;
                match self.grafted(&inner.live, &source, paths, &mut counters, inner.scan_done) {
                    Err(blocked) => blocked,
                    Ok(tree) if !differs(&inner.live, &tree) => {
                        return Ok(RolledBack {
                            commit: inner.book.history.id_of(state),
                            replaced: None,
                            files_changed: 0,
                        });
                    }
                    Ok(tree) => {
                        let (shown, head) = (inner.book.history.shown, inner.book.history.head);
                        let kernel = &inner.lookups;
                        let changes = in_place(&inner.live, &tree, &mut counters, kernel);
                        let turn = Turn { state, head };
                        let to = To::State(SwitchKind::Restore, turn);
                        let before = inner.live.clone();
                        let replaced = self.swap(&mut inner, author, to, &changes, counters)?;
                        drop(inner);
                        return self.after_swap(&before, &changes, replaced, shown, state);
                    }
                }
            };
            self.unblock(blocked)?;
        }
    }

    /// What [`Branch::restore`] would change.
    pub fn restore_plan(&self, target: &Target, paths: &[Vec<u8>]) -> Result<Vec<Change>> {
        let state = self.resolve(target)?;
        self.cache().flush_dirty();
        loop {
            let source = self.tree_of(state)?;
            let (live, scanned) = {
                let inner = self.lock();
                (inner.live.clone(), inner.scan_done)
            };
            let mut unused = Counters {
                nid: FRESH_NID,
                ino: FRESH_NID,
                state: 0,
            };
            match self.grafted(&live, &source, paths, &mut unused, scanned) {
                Ok(tree) => return self.changes(&live, &tree, &[]),
                Err(blocked) => self.unblock(blocked)?,
            }
        }
    }

    fn grafted(
        &self,
        live: &Tree,
        source: &Tree,
        paths: &[Vec<u8>],
        numbers: &mut dyn Numbers,
        scanned: bool,
    ) -> Result<Tree, Blocked> {
        graft(live, source, paths, numbers, clock::now(), scanned)
    }

    /// Sees to what a graft has to wait for.
    fn unblock(&self, blocked: Blocked) -> Result<()> {
        match blocked {
            Blocked::Failed(e) => Err(e),
            Blocked::Dirs(dirs) => dirs.into_iter().try_for_each(|nid| self.load_dir(nid)),
            Blocked::Scan if self.closing.load(Ordering::Relaxed) => Err(Error::Closing),
            Blocked::Scan => {
                self.wait_progress(&mut self.lock());
                Ok(())
            }
        }
    }
}

impl Workspace {
    /// Takes what lies at `paths` from a commit into the live tree; the head stays, and what was there
    /// becomes an automatic commit.
    pub fn restore(&self, branch: &str, target: &Target, paths: &[Vec<u8>]) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let target = self.import_ref(&b, target)?;
        b.restore(self.author(), &target, paths)
    }

    /// What [`Workspace::restore`] would change.
    pub fn restore_plan(
        &self,
        branch: &str,
        target: &Target,
        paths: &[Vec<u8>],
    ) -> Result<Vec<Change>> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let target = self.import_ref(&b, target)?;
        b.restore_plan(&target, paths)
    }
}
