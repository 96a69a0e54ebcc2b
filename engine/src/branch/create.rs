//! Making a branch of another one.
//!
//! The new branch shows the other's frozen tree, shares all of it in memory, and reads from the other's
//! journal what is not sealed yet (which it pins, see [`crate::stored::journals`]). On disk it begins with the
//! tree that was stored last, named by the same tree file; its journal says how what it shows comes
//! from that: one state after the other that is not a commit yet, then the rest. So making it costs
//! what differs, not what there is.

use super::notable::Notable;
use super::open::{
    OpenBranch, Parts, assemble, count_files, journal_config, journal_dir, new_inner, state_file,
};
use super::outcomes::OutcomesRecord;
use super::state_file::{StateHead, StateMore};
use super::{Branch, Inner};
use crate::base::BaseDir;
use crate::book::anchors::Anchors;
use crate::book::history::{History, HistoryRecord};
use crate::book::timeline::Timeline;
use crate::branch::inherit;
use crate::branch::seal;
use crate::branch::shared::SharedParts;
use crate::branch::states;
use crate::branch::timeline;
use crate::change::transition::differs;
use crate::clock;
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::kv::KvMap;
use crate::limits::FIRST_NEW_INO;
use crate::record::{Counters, Event, OpKind, StateInfo};
use crate::stored::load::{away_tree, load_tree};
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::{Content, Dir};
use crate::tree::load::inode_of;
use crate::types::{Nid, Time};
use objstore::{Commit, CommitId, Kind, TreeId};
use std::sync::Arc;

/// Half of the numbers that a branch can give.
const FAR_OFF_BITS: u32 = 38;

/// What a new branch begins with.
#[derive(Debug)]
pub(crate) struct Origin {
    inner: Inner,
}

impl Origin {
    /// State that becomes the new branch's head.
    pub fn head(&self) -> u64 {
        self.inner.book.history.head
    }

    /// Everything that changes.
    pub fn inner_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }

    /// A history that begins with a commit that is in the store as a whole.
    pub fn of_commit(shared: &SharedParts, id: CommitId) -> Result<Origin> {
        let commit: Commit = shared.store.get_object(&id)?;
        let time = Time {
            sec: commit.time_sec,
            nsec: commit.time_nsec,
        };
        let mut root = inode_of(
            &shared.base.root_entry()?,
            None,
            &BaseDir::root(),
            Nid::ROOT,
            1,
        );
        root.content = Content::Dir(Box::new(Dir::new(DirMap::default(), 0)));
        let none = Reference {
            tree: Tree::with_root(root),
            root: None,
            kv: None,
        };
        let mut counters = Counters {
            nid: 2,
            ino: FIRST_NEW_INO,
            state: 2,
        };
        let (root, meta) = (commit.root, &commit.root_meta);
        let is_away = |id: &TreeId| !shared.store.contains(Kind::Tree, id.as_bytes());
        let away = root.filter(is_away);
        let loaded = match away {
            None => load_tree(
                &shared.store,
                &none,
                (root, meta),
                &mut counters,
                time,
                true,
            )?,
            Some(_) => {
                counters.ino += far_off(id);
                away_tree(none, root, meta, time)?
            }
        };
        let loaded = loaded.with_kv(&shared.store, commit.kv)?;
        let info = StateInfo {
            number: 1,
            kind: OpKind::Start,
            asked: true,
            time,
            author: commit.author,
            message: commit.message,
            meta: commit.meta,
            parents: vec![],
            id: Some(id),
        };
        let history = HistoryRecord {
            states: vec![info],
            head: 1,
            ..HistoryRecord::default()
        };
        let mut history = History::from_record(history);
        history.shown = Some(1);
        let mut inner = new_inner(loaded.tree.clone(), counters, history);
        inner.scan_done = true;
        inner.brought.is_any_away = away.is_some();
        inner.reference = Some(loaded);
        let mut origin = Origin { inner };
        origin.keep_off_groups();
        Ok(origin)
    }
}

/// How far from those of the commit's own numbers a branch gives its own whose directories are away: which hard links
/// they have is not known, and no number that is given may be that of a group. Nobody who made the commit knows it.
fn far_off(id: CommitId) -> u64 {
    let now = clock::now();
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&now.sec.to_le_bytes());
    hasher.update(&now.nsec.to_le_bytes());
    let hash = hasher.finalize();
    let first = hash
        .as_bytes()
        .first_chunk()
        .map_or(0, |b| u64::from_le_bytes(*b));
    first & ((1 << FAR_OFF_BITS) - 1)
}

/// What the live tree is now, for a new branch; frozen as a state where it differs from the head, and from
/// what was branched off last.
pub(crate) fn origin_live(branch: &Branch, author: &str) -> Result<Origin> {
    branch.cache().flush_dirty();
    let head = branch.lock().book.history.head;
    let before = states::tree_of(branch, head)?;
    let mut inner = branch.lock();
    let state = match inner.branched_off_last() {
        Some(state) => state,
        None => {
            let kind = OpKind::BeforeBranch;
            states::freeze_if_differs(branch, &mut inner, &before, kind, author)?
        }
    };
    let tree = inner.live.clone();
    let timeline = inner.book.timeline.clone();
    Ok(origin(&inner, state, tree, &timeline))
}

impl Inner {
    /// The state that was branched off or merged last, where the live tree is still that.
    fn branched_off_last(&self) -> Option<u64> {
        let history = &self.book.history;
        let last = history.branched_last()?;
        let tree = history.tree(last)?;
        (!differs(tree, &self.live)).then_some(last)
    }
}

/// What a state of this branch is, for a new branch. What the timeline needs is stored, and not synced yet.
pub(crate) fn origin_at(branch: &Branch, state: u64) -> Result<Origin> {
    let tree = states::tree_of(branch, state)?;
    let timeline = inherit::timeline_up_to(branch, state)?;
    let inner = branch.lock();
    Ok(origin(&inner, state, tree, &timeline))
}

/// Makes a branch that begins with `origin`. It is whole and durable once this returned; that it
/// exists is for the caller to record.
pub(crate) fn make(o: OpenBranch, origin: Origin) -> Result<Branch> {
    let mut inner = origin.inner;
    o.storage
        .remove_dir_all(&o.dir)
        .map_err(Error::io(&o.dir))?;
    let dir = journal_dir(&o);
    let journal = Journal::create(o.storage.clone(), &dir, journal_config(&o)?)?;
    let pending = inner.book.history.pending();
    let (mut first, root, kv) = match (&inner.reference, pending.first()) {
        (Some(r), _) => (r.tree.clone(), Some(r.root), r.kv),
        (None, Some((_, tree))) => (tree.clone(), None, None),
        (None, None) => (inner.live.clone(), None, None),
    };
    if kv.is_none() {
        // What is not in the store is told by the journal.
        *first.kv_mut() = KvMap::default();
    }
    let head = StateHead {
        next_seq: 1,
        counters: inner.book.counters,
        history: inner.book.history.to_stored_record(),
        root,
        base_changed: inner.book.base_changed.iter().cloned().collect(),
        unreadable: inner.book.unreadable.iter().cloned().collect(),
        tree_file: 0,
        patched: 0,
    };
    let more = StateMore {
        kv,
        timeline: inner.book.timeline.clone(),
        later: inner.book.history.later.clone(),
        outcomes: OutcomesRecord::default(),
        shown: inner.book.history.shown,
    };
    inner.book.anchors = Anchors::new(first.clone(), root.flatten());
    inner.book.anchors.timeline = inner.book.timeline.stored;
    inner.book.anchors.kv = kv;
    inner.tree_file = state_file(&o).write(head, &more, &first, &inner.tree_file)?;
    let stored = inner.reference.as_ref().map(|r| r.tree.clone());
    let branch = assemble(o, Arc::new(journal), inner, None, 1);
    count_files(&mut branch.lock(), &Notable::default(), &branch.importer);
    seal::pin_journals(&branch, &stored.unwrap_or_default());
    record_way(&branch, first, &pending)?;
    branch.sync()?;
    Ok(branch)
}

/// A read-only view of one of this branch's states.
pub(crate) fn snapshot(branch: &Branch, slot: u16, tree: Tree) -> Branch {
    let mut inner = {
        let of = branch.lock();
        let mut inner = new_inner(tree, of.book.counters, History::default());
        inner.brought = of.brought.again();
        inner
    };
    inner.scan_done = true;
    let parts = Parts {
        name: branch.name(),
        dir: branch.dir.clone(),
        slot,
        storage: branch.storage.clone(),
        places: branch.places.clone(),
        trees: branch.trees.clone(),
        importer: branch.importer.again(),
        wake: branch.wake.clone(),
        auto: branch.auto.again(),
        feed: branch.feed.clone(),
        judges: branch.judges.clone(),
        read_only: true,
    };
    parts.into_branch(inner, None, u64::MAX)
}

/// Journals how the live tree comes from the tree of the state file.
fn record_way(branch: &Branch, first: Tree, pending: &[(u64, Tree)]) -> Result<()> {
    let mut inner = branch.lock();
    let mut at = first;
    for (number, tree) in pending {
        record_step(branch, &mut inner, &at, tree)?;
        let info = inner.book.history.state(*number)?.info.clone();
        let head = *number == inner.book.history.head;
        branch.record(
            Event::Freeze {
                info,
                head,
                label: None,
            },
            &[],
        )?;
        timeline::record_headed(branch, &inner, *number)?;
        for label in inner.book.history.labels_of(*number) {
            let state = *number;
            branch.record(Event::Label { label, state }, &[])?;
        }
        at = tree.clone();
    }
    let live = inner.live.clone();
    record_step(branch, &mut inner, &at, &live)
}

fn record_step(branch: &Branch, inner: &mut Inner, from: &Tree, to: &Tree) -> Result<()> {
    if from.same(to) {
        return Ok(());
    }
    let patch = crate::record::TreePatch::between(from, to);
    let counters = inner.book.counters;
    branch.record_patch(Event::Patched { counters }, &patch.to_bytes())?;
    let seq = branch.places.journal.last_seq();
    inner.book.anchors.switched(seq, to.clone());
    Ok(())
}

/// Everything of a branch that one made of its state `head`, whose tree is `tree`, begins with; `timeline` is the
/// timeline as far as it belongs to that state.
fn origin(inner: &Inner, head: u64, mut tree: Tree, timeline: &Timeline) -> Origin {
    inner.brought.catch_up(&mut tree);
    drop_new_orphans(&mut tree, inner);
    let history = inner.book.history.ancestry(head, timeline.unnamed());
    let mut new = new_inner(tree, inner.book.counters, history);
    new.book.timeline = timeline.inherited(inner.book.state_ref(head), clock::now());
    new.scan_done = inner.scan_done;
    new.brought = inner.brought.again();
    if !inner.scan_done {
        new.base_inodes = inner.base_inodes.clone();
    }
    new.book.base_changed = inner.book.base_changed.clone();
    new.book.unreadable = inner.book.unreadable.clone();
    new.reference = inner.reference.clone();
    new.tree_file = inner.tree_file.clone();
    Origin { inner: new }
}

/// Removes inodes that are unlinked but open in the other branch; older ones are not in what was stored.
fn drop_new_orphans(tree: &mut Tree, inner: &Inner) {
    for nid in tree.nameless_since(&inner.tree_file.1) {
        tree.remove(nid);
    }
}

impl History {
    /// States that are no commits yet, with their trees, ascending.
    fn pending(&self) -> Vec<(u64, Tree)> {
        let pending = self.states.pending();
        pending
            .filter_map(|n| Some((n, self.states.tree(n)?.clone())))
            .collect()
    }

    /// For a state file that pending states are recorded after.
    fn to_stored_record(&self) -> crate::book::history::HistoryRecord {
        let mut record = self.to_record();
        let stored = |n: u64| self.states.is_stored(n);
        record.states.retain(|s| stored(s.number));
        record.labels.retain(|(_, n)| stored(*n));
        record
    }
}
