//! Single paths of the live tree as they are in another state.
//!
//! A switch like a rollback (what is replaced becomes an automatic commit, undo and redo go over it),
//! but to a mixture of two states, and the head stays.

use super::switch::To;
use super::{Change, RolledBack};
use crate::book::history::Turn;
use crate::branch::Branch;
use crate::branch::away;
use crate::branch::events;
use crate::branch::load::Rounds;
use crate::branch::states;
use crate::branch::states::Target;
use crate::change::graft::{Blocked, graft};
use crate::change::transition::{FRESH_NID, differs, in_place, transition};
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Counters, SwitchKind};
use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::tree::lookups::Lookups;
use crate::types::Progress;
use crate::verbs::branches;
use crate::verbs::diff;
use crate::verbs::runs;
use crate::verbs::switch;
use crate::workspace::Workspace;
use std::sync::atomic::Ordering;

/// Takes what lies at `paths` from the target into the live tree; what the target does not have
/// there goes. [`Error::NoSuchPath`] where neither has one, and then nothing is done.
pub(crate) fn restore_in(
    branch: &Branch,
    author: &str,
    target: &Target,
    paths: &[Vec<u8>],
    progress: Progress<'_>,
) -> Result<RolledBack> {
    events::check_journal(branch)?;
    let state = states::resolve(branch, target)?;
    let mut rounds = Rounds::default();
    loop {
        branch.cache().flush_dirty();
        let source = states::tree_of(branch, state)?;
        let blocked = {
            let mut inner = branch.lock_synced()?;
            let mut source = inner.book.history.tree(state).cloned().unwrap_or(source);
            inner.brought.catch_up(&mut source);
            let mut counters = inner.book.counters;
            match grafted(
                &inner.live,
                &source,
                paths,
                &mut counters,
                inner.knows_links(),
            ) {
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
                    if inner.needs_links(&changes) {
                        drop(inner);
                        away::bring_all(branch)?;
                        continue;
                    }
                    let turn = Turn { state, head };
                    let to = To::State(SwitchKind::Restore, turn);
                    let before = inner.live.clone();
                    let replaced =
                        switch::swap(branch, &mut inner, author, to, &changes, counters)?;
                    drop(inner);
                    let how = (&before, &changes);
                    return switch::after_swap(branch, how, (replaced, shown), state, progress);
                }
            }
        };
        unblock(branch, blocked, &mut rounds)?;
    }
}

/// What [`restore_in`] would change.
pub(crate) fn restore_plan_in(
    branch: &Branch,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let state = states::resolve(branch, target)?;
    branch.cache().flush_dirty();
    let mut rounds = Rounds::default();
    loop {
        let source = states::tree_of(branch, state)?;
        let (live, scanned) = {
            let inner = branch.lock();
            (inner.live.clone(), inner.knows_links())
        };
        let mut unused = Counters {
            nid: FRESH_NID,
            ino: FRESH_NID,
            state: 0,
        };
        match grafted(&live, &source, paths, &mut unused, scanned) {
            Ok(tree) => return diff::changes(branch, &live, &tree, &[]),
            Err(blocked) => unblock(branch, blocked, &mut rounds)?,
        }
    }
}

/// Once all links are known, numbers are made those of the live tree first: a state that comes from the store may have other
/// ones for files that did not change.
fn grafted(
    live: &Tree,
    source: &Tree,
    paths: &[Vec<u8>],
    numbers: &mut dyn Numbers,
    scanned: bool,
) -> Result<Tree, Blocked> {
    let now = clock::now();
    if !scanned {
        return graft(live, source, paths, numbers, now, scanned);
    }
    let source = transition(live, source, numbers, &Lookups::default()).tree;
    graft(live, &source, paths, numbers, now, scanned)
}

/// Sees to what a graft has to wait for.
fn unblock(branch: &Branch, blocked: Blocked, rounds: &mut Rounds) -> Result<()> {
    match blocked {
        Blocked::Failed(e) => Err(e),
        Blocked::Dirs(dirs) => dirs
            .into_iter()
            .try_for_each(|nid| rounds.load_dir(branch, nid)),
        Blocked::Scan if branch.closing.load(Ordering::Relaxed) => Err(Error::Closing),
        Blocked::Scan if branch.lock().scan_done => away::bring_all(branch),
        Blocked::Scan => {
            branch.wait_progress(&mut branch.lock());
            Ok(())
        }
    }
}

/// Takes what lies at `paths` from a commit into the live tree; the head stays, and what was there
/// becomes an automatic commit.
pub fn restore(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<RolledBack> {
    restore_with(ws, branch, target, paths, &|_, _| ())
}

/// As [`restore`]; `progress` hears of how many files the kernel has forgotten what it knew.
pub fn restore_with(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    runs::shows_again(ws, &b, &target)?;
    restore_in(&b, ws.author(), &target, paths, progress)
}

/// What [`restore`] would change.
pub fn restore_plan(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    restore_plan_in(&b, &target, paths)
}
