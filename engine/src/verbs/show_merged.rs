//! Showing what a merge made, on a live tree that goes on changing.
//!
//! What is merged was frozen before. Under the branch's lock everything that the merge changes must still be
//! as it was then; the change is laid over the live tree and switched to like a rollback. Pages that the
//! kernel brings while that is shown are carried into it ([`crate::branch::carry`]).

use super::switch::To;
use super::{RolledBack, Watch};
use crate::book::history::History;
use crate::branch::carry::Carry;
use crate::branch::pins::Pinned;
use crate::branch::{Branch, Inner};
use crate::branch::{away, states};
use crate::cancel::Cancel;
use crate::change::transition::{in_place, transition};
use crate::clock;
use crate::error::Result;
use crate::kv::KvMap;
use crate::merge::Root;
use crate::record::{OpKind, SwitchKind};
use crate::stored::load::load_tree;
use crate::stored::store::meta_of;
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::Inode;
use crate::verbs::switch;
use objstore::CommitId;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A live tree as it was at one moment.
pub(crate) struct Frozen {
    /// The state that stands for it.
    pub state: u64,
    /// Its commit.
    pub id: CommitId,
    /// The tree, in the numbers that the live one had: those of the state may be others, where that was
    /// loaded from the store.
    pub tree: Pinned,
}

/// What showing a merge did.
pub(super) struct Shown {
    pub back: RolledBack,
    /// Set where a page came too late that the merge had changed.
    pub late: Option<Late>,
}

/// A page came that a merge had changed: it is in the replaced state alone.
pub(super) struct Late {
    /// The replaced state, with that page.
    pub replaced: u64,
    /// What the merge shows.
    pub merged: Pinned,
}

/// What the live tree is now as a commit.
pub(crate) fn frozen(branch: &Branch, author: &str, watch: Watch<'_>) -> Result<CommitId> {
    let state = frozen_state(branch, author)?;
    states::wait_for_id_unless(branch, state, watch.progress, watch.cancel)
}

/// What the live tree is now as a state.
pub(crate) fn frozen_state(branch: &Branch, author: &str) -> Result<u64> {
    branch.cache().flush_dirty();
    Ok(freeze_for_merge(branch, author)?.1)
}

/// As [`frozen`], with the tree. What the kernel has of changes is not asked for.
pub(super) fn frozen_tree(branch: &Arc<Branch>, author: &str, watch: Watch<'_>) -> Result<Frozen> {
    let (state, tree) = {
        let (mut inner, state) = freeze_for_merge(branch, author)?;
        let live = inner.live.clone();
        (state, branch.pin_in(&mut inner, live))
    };
    let id = states::wait_for_id_unless(branch, state, watch.progress, watch.cancel)?;
    Ok(Frozen { state, id, tree })
}

fn freeze_for_merge<'a>(branch: &'a Branch, author: &str) -> Result<(MutexGuard<'a, Inner>, u64)> {
    let head = branch.lock().book.history.head;
    let before = states::tree_of(branch, head)?;
    let mut inner = branch.lock();
    let state =
        states::freeze_if_differs(branch, &mut inner, &before, OpKind::BeforeMerge, author)?;
    Ok((inner, state))
}

/// Trees may refer to stored content that no sync has covered.
pub(crate) fn mark_unsynced(branch: &Branch) {
    branch.unsynced.store(true, Ordering::SeqCst);
}

/// The tree of a root directory in the store, in this branch's numbers.
pub(crate) fn load_root(branch: &Branch, root: &Root) -> Result<Tree> {
    away::with_dirs(branch, || load_once(branch, root))
}

fn load_once(branch: &Branch, root: &Root) -> Result<Tree> {
    let (reference, knows_links) = {
        let inner = branch.lock();
        (inner.reference.clone(), !inner.brought.is_any_away)
    };
    let reference = reference.map_or_else(|| states::empty_reference(branch), Ok)?;
    let (root, now) = ((root.tree, &root.meta), clock::now());
    let (store, numbers) = (&branch.places.store, &mut branch.numbers());
    load_tree(store, &reference, root, numbers, now, knows_links).map(|loaded| loaded.tree)
}

/// Brings all directories where what makes `merged` of `frozen` needs all names of a file.
fn learn_links(branch: &Branch, frozen: &Pinned, merged: &Tree) -> Result<()> {
    let relinks = {
        let inner = branch.lock();
        if !inner.brought.is_any_away {
            return Ok(());
        }
        let frozen = frozen.tree_in(&inner)?;
        let mut merged = merged.clone();
        inner.brought.catch_up(&mut merged);
        let mut counters = inner.book.counters;
        transition(&frozen, &merged, &mut counters, &inner.lookups).relinks(&frozen)
    };
    match relinks {
        true => away::bring_all(branch),
        false => Ok(()),
    }
}

/// Does to the live tree what makes `merged` of `frozen`; `None`, with nothing done, where what that
/// touches is not as it was frozen. Once it is shown it cannot be cancelled any more.
pub(super) fn show_merged(
    branch: &Arc<Branch>,
    author: &str,
    frozen: &Pinned,
    merged: &Tree,
    mut to: To,
    cancel: &Cancel,
) -> Result<Option<Shown>> {
    let undoes = matches!(to, To::Undone(_));
    let (state, forward) = match &to {
        To::State(kind, turn) => (Some(turn.state), *kind == SwitchKind::Merge),
        To::Merge(_) | To::Undone(_) => (None, false),
    };
    learn_links(branch, frozen, merged)?;
    let (shown, replaced, changes, before, state, pinned) = {
        let mut inner = branch.lock_synced()?;
        let frozen = frozen.tree_in(&inner)?;
        let mut counters = inner.book.counters;
        let mut merged = merged.clone();
        inner.brought.catch_up(&mut merged);
        let merged = transition(&frozen, &merged, &mut counters, &inner.lookups);
        let (target, revived) = (merged.tree, merged.revived);
        if let To::Merge(made) = &mut to {
            made.tree = target.clone();
        }
        let Some(over) = overlaid(&inner.live, &frozen, &target) else {
            return Ok(None);
        };
        let shown = inner.book.history.shown;
        let mut changes = in_place(&inner.live, &over, &mut counters, &inner.lookups);
        if inner.needs_links(&changes) {
            return Ok(None);
        }
        changes.revived.extend(revived);
        let before = inner.live.clone();
        cancel.decide()?;
        let replaced = switch::swap(branch, &mut inner, author, to, &changes, counters)?;
        if let Some(fence) = &mut inner.fence {
            fence.carry = Some(Carry::new(before.clone(), changes.tree.clone()));
        }
        if let Some(state) = state.filter(|_| forward) {
            inner.book.history.renumbered(state, target);
        }
        let head = inner.book.history.head;
        let made = if undoes { replaced + 1 } else { head };
        let pinned = branch.pin_in(&mut inner, changes.tree.clone());
        let state = state.unwrap_or(made);
        (shown, replaced, changes, before, state, pinned)
    };
    // The kernel is asked for pages now, which are changes.
    branch.release();
    let (mut back, late) = switch::swapped(
        branch,
        (&before, &changes),
        (replaced, shown),
        state,
        &|_, _| (),
    )?;
    if undoes && back.commit.is_none() {
        // What was there was stored already, so this does not take long.
        back.commit = states::wait_for_id(branch, state, &|_, _| {}).ok();
    }
    let late = late.map(|replaced| Late {
        replaced,
        merged: pinned,
    });
    Ok(Some(Shown { back, late }))
}

impl History {
    /// Keeps the tree of a stored state in the numbers that the live tree has for it.
    fn renumbered(&mut self, state: u64, tree: Tree) {
        self.states.keep_tree_only(state, tree);
    }
}

/// `live` with what makes `target` of `frozen`; `None` where an inode or a key that this changes is not
/// as it was frozen.
fn overlaid(live: &Tree, frozen: &Tree, target: &Tree) -> Option<Tree> {
    let mut out = live.clone();
    let mut fits = true;
    Tree::diff(frozen, target, &mut |nid, was, now| {
        let nameless = |i: &Arc<Inode>| i.nlink == 0;
        if was.is_some_and(nameless) && now.is_none_or(nameless) {
            // Held open without a name: no part of what is merged, whatever is done to it.
            return;
        }
        let same = match (live.get(nid), was) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || alike(a, b),
            (Some(a), None) => a.nlink == 0,
            (None, Some(b)) => b.nlink == 0,
        };
        fits &= same;
        match now {
            Some(inode) => out.set(nid, inode.clone()),
            None => drop(out.remove(nid)),
        }
    });
    KvMap::diff(frozen.kv(), target.kv(), &mut |(key, was, now)| {
        fits &= live.kv().get(key) == was;
        out.kv_mut().set(key, now.cloned());
    });
    fits.then_some(out)
}

/// True where a commit would record both inodes the same, under the same names.
fn alike(a: &Inode, b: &Inode) -> bool {
    let names = |i: &Inode| (i.nlink, i.parent, i.hash);
    let same_entries = match (a.dir(), b.dir()) {
        (Some(x), Some(y)) => {
            let mut same = true;
            DirMap::diff(&x.map, &y.map, &mut |_, _, _| same = false);
            same
        }
        (None, None) => true,
        _ => false,
    };
    same_entries
        && names(a) == names(b)
        && a.links == b.links
        && a.alike_but_links(b)
        && meta_of(a) == meta_of(b)
}
