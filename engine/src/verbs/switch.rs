//! Rollback, undo and redo: the live tree becomes another state.
//!
//! What they share with taking single paths back (`restore.rs`): freezing what is there, showing the new
//! tree behind the fence, and telling the kernel.

use super::RolledBack;
use super::diff::{files_changed, learn_here};
use crate::book::history::Turn;
use crate::branch::away;
use crate::branch::events;
use crate::branch::fence::Fence;
use crate::branch::seal;
use crate::branch::states;
use crate::branch::{Branch, Inner};
use crate::change::transition::{Transition, differs, transition};
use crate::error::Result;
use crate::limits::{INVALIDATE_AT_ONCE, INVALIDATE_NAMES_MAX, VANISHED_WAIT_MAX};
use crate::merge::Conflict;
use crate::record::{Counters, Event, OpKind, StateInfo, SwitchKind, TreePatch};
use crate::tree::Tree;
use crate::types::{Nid, NodeId, Progress};
use crate::verbs::announce;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What the live tree is changed into.
pub(super) enum To {
    /// A state that there is.
    State(SwitchKind, Turn),
    /// What a merge made.
    Merge(Box<Made>),
    /// What there was, without what this call changed.
    Undone(u64),
}

/// What a merge made; the number of its state is given when it is shown.
pub(super) struct Made {
    pub info: StateInfo,
    pub tree: Tree,
    pub label: Option<String>,
    pub conflicts: Vec<Conflict>,
}

impl To {
    /// States that are set aside for what is shown afterwards.
    fn freezes_after(&self) -> u64 {
        u64::from(matches!(
            self,
            To::State(SwitchKind::Restore, _) | To::Undone(_)
        ))
    }

    fn kind_of_replaced(&self) -> OpKind {
        match self {
            To::State(SwitchKind::Rollback | SwitchKind::Restore, _) | To::Undone(_) => {
                OpKind::BeforeRollback
            }
            To::State(SwitchKind::Undo, _) => OpKind::BeforeUndo,
            To::State(SwitchKind::Redo, _) => OpKind::BeforeRedo,
            To::State(SwitchKind::Merge, _) | To::Merge(_) => OpKind::BeforeMerge,
        }
    }
}

impl To {
    /// The switch as an event, with the tree of the state that a merge makes.
    fn into_event(self, replaced: u64, mut counters: Counters) -> (Event, Option<(u64, Tree)>) {
        match self {
            To::State(kind, turn) => {
                let event = Event::Switch {
                    kind,
                    replaced,
                    target: turn.state,
                    head: turn.head,
                    counters,
                };
                (event, None)
            }
            To::Merge(made) => {
                let Made {
                    mut info,
                    tree,
                    label,
                    conflicts,
                } = *made;
                info.number = counters.state;
                counters.state += 1;
                let kept = (info.number, tree);
                let event = Event::Merged {
                    replaced,
                    info,
                    label,
                    conflicts,
                    counters,
                };
                (event, Some(kept))
            }
            To::Undone(call) => {
                let event = Event::CallUndone {
                    call,
                    replaced,
                    after: replaced + 1,
                    counters,
                };
                (event, None)
            }
        }
    }
}

/// Sets the live tree to a state, as one of the verbs that do so.
pub(super) fn switch(
    branch: &Branch,
    author: &str,
    kind: SwitchKind,
    turn: Turn,
    keep_kv: bool,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    events::check_journal(branch)?;
    branch.cache().flush_dirty();
    let target = states::tree_of(branch, turn.state)?;
    if kind == SwitchKind::Rollback {
        learn_here(branch, &target);
    }
    let (shown, replaced, changes, before) = loop {
        let mut inner = branch.lock_synced()?;
        // It may have expired meanwhile, and then gc may take what it holds.
        inner.book.history.state(turn.state)?;
        // It may have been stored meanwhile; then the live tree was made to refer to the store, too.
        let mut target = inner
            .book
            .history
            .tree(turn.state)
            .cloned()
            .unwrap_or_else(|| target.clone());
        inner.brought.catch_up(&mut target);
        if keep_kv {
            *target.kv_mut() = inner.live.kv().clone();
        }
        let same = inner.book.history.head == turn.head && !differs(&inner.live, &target);
        if kind == SwitchKind::Rollback && same {
            let commit = inner.book.history.id_of(turn.state);
            return Ok(RolledBack {
                commit,
                replaced: None,
                files_changed: 0,
            });
        }
        let shown = inner.book.history.shown;
        let before = inner.live.clone();
        let mut counters = inner.book.counters;
        let changes = transition(&before, &target, &mut counters, &inner.lookups);
        if inner.needs_links(&changes) {
            drop(inner);
            away::bring_all(branch)?;
            continue;
        }
        let to = To::State(kind, turn);
        let replaced = swap(branch, &mut inner, author, to, &changes, counters)?;
        break (shown, replaced, changes, before);
    };
    after_swap(
        branch,
        (&before, &changes),
        (replaced, shown),
        turn.state,
        progress,
    )
}

/// Tells the kernel of a swap, ends its fence, and makes all durable.
pub(super) fn after_swap(
    branch: &Branch,
    how: (&Tree, &Transition),
    states: (u64, Option<u64>),
    target: u64,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let done = swapped(branch, how, states, target, progress);
    done.map(|(back, _)| back)
}

/// As [`after_swap`]; also gives the replaced state where a page of it came that a merge should
/// have had.
pub(super) fn swapped(
    branch: &Branch,
    (before, changes): (&Tree, &Transition),
    (replaced, shown): (u64, Option<u64>),
    target: u64,
    progress: Progress<'_>,
) -> Result<(RolledBack, Option<u64>)> {
    invalidate(branch, changes, progress);
    branch.wait_for_appends();
    branch.refresh_sizes(&changes.inodes);
    // What was appended meanwhile with an old end in mind.
    branch.mend();
    wait_for_vanished(branch);
    let (replaced, overtaken) = end_fence(branch, replaced, shown)?;
    branch.signal();
    branch.sync()?;
    announce::announce(branch, before, changes);
    if knows_no_id(branch, target) {
        // Best effort: where it fails the id is told as pending, and storing goes on.
        let _ = seal::try_store_pending(branch);
    }
    let files_changed = files_changed(before, &changes.tree);
    let inner = branch.lock();
    let back = RolledBack {
        commit: inner.book.history.id_of(target),
        replaced: inner.book.history.id_of(replaced),
        files_changed,
    };
    Ok((back, overtaken.then_some(replaced)))
}

/// Whether a state that could be stored at once has no id yet.
fn knows_no_id(branch: &Branch, state: u64) -> bool {
    let inner = branch.lock();
    inner.reference.is_some() && inner.book.history.id_of(state).is_none()
}

/// Freezes what is there, shows what comes, and puts up the fence: all or, on error, nothing. Gives
/// the state that keeps what was there.
pub(super) fn swap(
    branch: &Branch,
    inner: &mut Inner,
    author: &str,
    to: To,
    changes: &Transition,
    mut counters: Counters,
) -> Result<u64> {
    let before = inner.live.clone();
    let patch = TreePatch::between(&before, &changes.tree).to_bytes();
    let why = to.kind_of_replaced();
    let freezes = to.freezes_after() > 0;
    let info = states::new_state(inner, why, author, String::new(), BTreeMap::new());
    let replaced = states::freeze(branch, inner, info, false, None)?;
    counters.state = replaced + 1 + to.freezes_after();
    let (event, kept) = to.into_event(replaced, counters);
    branch.switch_live(inner, event, &patch, changes.tree.clone())?;
    if let Some((state, tree)) = kept {
        inner.book.history.keep_tree(state, tree);
    }
    if freezes && let Err(e) = freeze_restored(branch, inner, author, replaced + 1) {
        // It is shown already; only the timeline cannot say what that was.
        tracing::warn!("{}: the live tree was not stored: {e}", branch.name());
    }
    let read = changes.inodes.iter();
    read.for_each(|n| inner.accessed.forget(*n));
    branch.auto.note_change();
    inner.put_up_fence(replaced, &before, changes);
    Ok(replaced)
}

/// Waits, a short while at most, until no program has a file open any more that the switch has removed.
/// Who has only just opened one by its path, and writes to it now, still finds the fence.
fn wait_for_vanished(branch: &Branch) {
    if !branch.cache().is_mounted() {
        return;
    }
    let deadline = Instant::now() + VANISHED_WAIT_MAX;
    let mut inner = branch.lock();
    loop {
        let is_held = |nid| inner.lookups.is_with_kernel(nid);
        let held = inner.fence.as_ref().map(|f| f.vanished().any(is_held));
        if held != Some(true) || !branch.wait_progress_until(&mut inner, deadline) {
            return;
        }
    }
}

/// Freezes what a restore shows as the state that was set aside for it.
fn freeze_restored(branch: &Branch, inner: &mut Inner, author: &str, number: u64) -> Result<()> {
    let why = OpKind::Restored;
    let mut info = states::new_state(inner, why, author, String::new(), BTreeMap::new());
    info.number = number;
    states::freeze(branch, inner, info, false, None).map(|_| ())
}

/// The replaced state is whole now. Where nothing had been written since the live tree was made
/// into or set to another state, that one is what was replaced. Also says whether a page came that a
/// merge should have had.
fn end_fence(branch: &Branch, replaced: u64, shown: Option<u64>) -> Result<(u64, bool)> {
    let mut inner = branch.lock();
    let carry = inner.fence.take().and_then(|fence| fence.carry);
    let overtaken = carry.is_some_and(|carry| carry.is_overtaken());
    let same = shown.filter(|kept| {
        let tree = |n| inner.book.history.tree(n);
        matches!((tree(*kept), tree(replaced)), (Some(a), Some(b)) if !differs(a, b))
    });
    let Some(kept) = same else {
        return Ok((replaced, overtaken));
    };
    let state = replaced;
    branch.carry_out(&mut inner, Event::Same { state, kept }, &[])?;
    Ok((kept, overtaken))
}

/// Lets the kernel forget what changed; ends each inode's fence once its pages are gone. `progress` hears of inodes.
fn invalidate(branch: &Branch, changes: &Transition, progress: Progress<'_>) {
    let cache = branch.cache();
    for (at, some) in changes.inodes.chunks(INVALIDATE_AT_ONCE).enumerate() {
        let done = at * INVALIDATE_AT_ONCE;
        progress(done as u64, changes.inodes.len() as u64);
        cache.inval_inodes(&known_of(branch, some));
        if let Some(fence) = &mut branch.lock().fence {
            some.iter().for_each(|nid| fence.lift(*nid));
        }
    }
    let many = changes.names.len() + changes.buried.len() > INVALIDATE_NAMES_MAX;
    let by_name = !many || !cache.inval_all_entries();
    let vanished = |dir: &Nid, name: &[u8]| branch.lock().live.lookup(*dir, name).is_err();
    let names = changes.names.iter();
    let names = names.filter(|(dir, name)| by_name || vanished(dir, name));
    let buried = changes.buried.iter().filter(|_| by_name);
    let all = names.chain(buried);
    let all: Vec<_> = all
        .map(|(dir, name)| (branch.node(*dir), &name[..]))
        .collect();
    all.chunks(INVALIDATE_AT_ONCE)
        .for_each(|some| cache.inval_entries(some));
}

/// Those of these inodes that the kernel may know.
fn known_of(branch: &Branch, some: &[Nid]) -> Vec<NodeId> {
    let inner = branch.lock();
    let is_known = |nid: &&Nid| inner.lookups.may_know(**nid) || **nid == Nid::ROOT;
    let known = some.iter().filter(is_known);
    known.map(|nid| branch.node(*nid)).collect()
}

impl Inner {
    /// Puts up the fence after a swap, and notes of which files the kernel has a wrong size in mind now.
    fn put_up_fence(&mut self, replaced: u64, before: &Tree, changes: &Transition) {
        let file = |tree: &Tree, nid: &Nid| tree.get(*nid).filter(|i| i.file().is_some()).cloned();
        let mut files = Vec::new();
        for nid in &changes.inodes {
            let Some(was) = file(before, nid) else {
                continue;
            };
            files.push(*nid);
            if file(&changes.tree, nid).is_some_and(|is| is.size != was.size) {
                self.lookups.doubt_size(*nid);
            }
        }
        for (dir, number) in &changes.revived {
            self.lookups.came_back_as(*dir, *number);
        }
        let vanished = changes.orphans.iter().copied();
        let vanished: BTreeSet<Nid> = vanished.filter(|n| file(before, n).is_some()).collect();
        let mut fence = Fence::new(replaced, files.iter().copied(), vanished);
        for nid in files {
            let append = self.lookups.take_appended(nid);
            if let Some(append) = append.filter(|_| !fence.has_vanished(nid)) {
                fence.append_goes_on(nid, append);
            }
        }
        self.fence = Some(fence);
    }
}
