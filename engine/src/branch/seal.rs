//! States becoming commits, and the journal being folded into the store.
//!
//! Both run under the sealing lock, in the background or in a thread that waits for an id. Requests
//! go on meanwhile: the branch lock is taken for short whiles only.

use super::notable::Notable;
use super::state_file::{StateFile, StateHead, StateMore};
use super::{Branch, Inner};
use crate::branch::load;
use crate::branch::timeline;
use crate::error::{Error, Result};
use crate::journal::journal_of;
use crate::record::{Event, StateInfo};
use crate::stored::journals::Needed;
use crate::stored::store::{Reference, meta_of, store_tree};
use crate::tree::Tree;
use crate::tree::file::{Body, FileData};
use crate::tree::inode::{Content, Inode};
use crate::types::Nid;
use objstore::content::FileContent;
use objstore::{Commit, CommitId, CommitKind, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Inodes that are exchanged in live trees under one holding of the lock.
const ADOPT_BATCH: usize = 512;
/// Inode numbers whose files are imported at a time.
const IMPORT_BATCH: u64 = 1024;

/// A state that is stored, and has no id yet.
struct Ready {
    info: StateInfo,
    id: CommitId,
    stored: Reference,
}

/// An inode, what it was, and what takes its place.
type Adoption = (Nid, Arc<Inode>, Arc<Inode>);

/// Stores all states that are not in the store yet, in order, and gives them their ids. Waits for
/// the scan and for the import of what they refer to.
pub(crate) fn store_pending(branch: &Branch) -> Result<()> {
    let _one = branch.sealing.lock();
    while store_next(branch)? {}
    Ok(())
}

/// As [`store_pending`], where nobody else is at it; false where something is left, for somebody else or until a switch
/// has ended.
pub(crate) fn try_store_pending(branch: &Branch) -> Result<bool> {
    let Some(_one) = branch.sealing.try_lock() else {
        return Ok(false);
    };
    if !branch.lock().scan_done {
        return Ok(false);
    }
    while store_next(branch)? {}
    Ok(branch.lock().book.history.first_pending().is_none())
}

/// Stores the first pending state; false where there is none.
fn store_next(branch: &Branch) -> Result<bool> {
    wait_scanned(branch)?;
    if branch.lock().reference.is_none() {
        import_ahead(branch)?;
    }
    let _pin = branch.places.store.pin();
    // The first commit is a whole project.
    let small = branch.lock().reference.is_some();
    let _behind = small.then(|| branch.places.store.put_behind());
    let ready = match store_state(branch) {
        Ok(Some(ready)) => ready,
        Ok(None) => return Ok(false),
        Err(e) => {
            load::settle_base(branch, e)?;
            return Ok(true);
        }
    };
    if branch.importer.unsynced.swap(false, Ordering::Relaxed) {
        branch
            .sync_store()
            .inspect_err(|_| branch.importer.unsynced.store(true, Ordering::Relaxed))?;
    }
    give_id(branch, &mut branch.lock(), ready)?;
    Ok(true)
}

/// Stores the first pending state; `None` where there is none.
fn store_state(branch: &Branch) -> Result<Option<Ready>> {
    let (info, tree, reference) = {
        let mut inner = branch.lock();
        let fenced = inner.fence.as_ref().map(|f| f.state);
        let next = inner.book.history.first_pending();
        let may_store = |n: &u64| Some(*n) != fenced && !inner.cut_off.contains(n);
        let Some(number) = next.filter(may_store) else {
            return Ok(None);
        };
        let info = inner.book.history.state(number)?.info.clone();
        let tree = inner.book.history.states.tree(number).cloned();
        inner.storing = tree.clone();
        (info, tree, inner.reference.clone())
    };
    let tree = tree.ok_or_else(|| Error::Damaged {
        what: format!("state {}", info.number),
        why: "its tree is gone".into(),
    })?;
    let stored = store_tree(&branch.places, &branch.importer, reference.as_ref(), &tree)?;
    let id = put_commit(branch, &info, &stored)?;
    branch.unsynced.store(true, Ordering::SeqCst);
    adopt(branch, &tree, &stored.tree);
    Ok(Some(Ready { info, id, stored }))
}

fn wait_scanned(branch: &Branch) -> Result<()> {
    let mut inner = branch.lock();
    while !inner.scan_done {
        if branch.closing.load(Ordering::Relaxed) {
            return Err(Error::Closing);
        }
        branch.places.base.check_there()?;
        branch.wait_progress(&mut inner);
    }
    Ok(())
}

/// Imports the first pending state's files, a few at a time, each batch taking the place of what
/// was read from the base at once: memory stays that of one tree.
fn import_ahead(branch: &Branch) -> Result<()> {
    let mut next = Nid::ROOT.0;
    loop {
        let (batch, end) = {
            let inner = branch.lock();
            let Some(number) = inner.book.history.first_pending() else {
                return Ok(());
            };
            let Some(tree) = inner.book.history.states.tree(number) else {
                return Ok(());
            };
            (
                base_files_in(tree, next..next + IMPORT_BATCH),
                inner.book.counters.nid,
            )
        };
        branch.check_quota(bytes_of(&batch))?;
        if let Err(e) = branch.importer.import_bodies(&branch.places, &batch) {
            load::settle_base(branch, e)?;
            continue;
        }
        let stored = batch
            .into_iter()
            .filter_map(|(nid, a)| Some((nid, imported(&a)?, a)));
        branch.unsynced.store(true, Ordering::SeqCst);
        adopt_changes(
            branch,
            &stored.map(|(nid, b, a)| (nid, a, b)).collect::<Vec<_>>(),
        );
        next += IMPORT_BATCH;
        if next >= end {
            return Ok(());
        }
    }
}

fn put_commit(branch: &Branch, info: &StateInfo, reference: &Reference) -> Result<CommitId> {
    let root = reference.tree.inode(Nid::ROOT)?;
    let parents = {
        let inner = branch.lock();
        let id_of = |n: &u64| inner.book.history.id_of(*n);
        info.parents.iter().filter_map(id_of).collect()
    };
    let commit = Commit {
        root_meta: meta_of(root),
        root: reference.root,
        parents,
        time_sec: info.time.sec,
        time_nsec: info.time.nsec,
        author: info.author.clone(),
        message: info.message.clone(),
        meta: info.meta.clone(),
        kind: match info.kind {
            crate::record::OpKind::Start => CommitKind::Start,
            k if k.is_automatic() => CommitKind::Automatic,
            _ => CommitKind::Asked,
        },
        kv: reference.kv,
        timeline: timeline::timeline_head_of(branch, info.number),
    };
    Ok(branch.places.store.put_object(&commit)?)
}

/// Exchanges what was stored in the live tree and in every state that shares it.
fn adopt(branch: &Branch, before: &Tree, stored: &Tree) {
    let mut changes: Vec<Adoption> = Vec::new();
    Tree::diff(before, stored, &mut |nid, a, b| {
        if let (Some(a), Some(b)) = (a, b) {
            changes.push((nid, a.clone(), b.clone()));
        }
    });
    adopt_changes(branch, &changes);
}

fn adopt_changes(branch: &Branch, changes: &[Adoption]) {
    for batch in changes.chunks(ADOPT_BATCH) {
        let mut inner = branch.lock();
        let mut trees = inner.trees_mut();
        for (nid, a, b) in batch {
            adopt_inode(&mut trees, *nid, a, b);
        }
    }
}

fn give_id(branch: &Branch, inner: &mut Inner, ready: Ready) -> Result<()> {
    let (number, id, mut reference) = (ready.info.number, ready.id, ready.stored);
    inner.brought.catch_up(&mut reference.tree);
    inner.reference = Some(reference.clone());
    inner.storing = None;
    let Ok(state) = inner.book.history.state(number) else {
        return Ok(());
    };
    let told = state.info.id.filter(|known| is_told(branch, *known, id));
    let new = told.is_none() && state.info.id != Some(id);
    let (id, stored) = match told {
        Some(known) => (known, None),
        None => (id, Some(reference)),
    };
    if new {
        // First: where it fails the state has no id yet, and can be taken back.
        branch.carry_out(inner, Event::Named { state: number, id }, &[])?;
    }
    let history = &mut inner.book.history;
    history.states.set_stored(number, id, stored);
    history.trim();
    branch.signal();
    Ok(())
}

/// Whether the id `known`, by which a state was known before the daemon died, stands though what
/// was replayed is stored as `id`: whoever was told it can go on using it. Its commit is put after
/// all that it refers to, so it is whole where it is there.
///
/// Only an earlier build may have given another one: what it stored depended on more than the bytes.
fn is_told(branch: &Branch, known: CommitId, id: CommitId) -> bool {
    let store = &branch.places.store;
    let stands = known != id && store.contains(Kind::Commit, known.as_bytes());
    if known != id && !stands {
        tracing::error!("commit {known} was lost, its state is {id} now");
    }
    stands
}

/// Folds the journal into the store: all data is chunked, the state file replaced, and what the
/// journal no longer needs to hold is dropped.
pub(crate) fn seal(branch: &Branch) -> Result<()> {
    let _one = branch.sealing.lock();
    loop {
        while store_next(branch)? {}
        // Before a segment is begun: a switch may stand for long, and has this turn come again and again.
        if wait_for_switch(branch) {
            continue;
        }
        let segment = branch.places.journal.roll()?;
        let _pin = branch.places.store.pin();
        let Some(frozen) = freeze_for_seal(branch) else {
            continue;
        };
        let (mut head, mut more, tree, reference) = frozen;
        let stored = match store_tree(&branch.places, &branch.importer, reference.as_ref(), &tree) {
            Err(e) => {
                load::settle_base(branch, e)?;
                continue;
            }
            Ok(stored) => stored,
        };
        branch.places.store.sync()?;
        adopt(branch, &tree, &stored.tree);
        branch.importer.unsynced.store(false, Ordering::Relaxed);
        head.root = Some(stored.root);
        let next_seq = head.next_seq;
        let shared = branch.lock().tree_file.clone();
        more.kv = stored.kv;
        let shared = state_file(branch).write(head, &more, &stored.tree, &shared)?;
        branch.lock().tree_file = shared;
        branch.sealed_seq.store(next_seq, Ordering::Relaxed);
        return drop_journal(branch, segment, stored, more.timeline.stored, next_seq);
    }
}

/// Whether a switch has not ended; waits a while for its end then.
fn wait_for_switch(branch: &Branch) -> bool {
    let mut inner = branch.lock();
    let is_switching = is_switching(&inner);
    if is_switching {
        branch.wait_progress(&mut inner);
    }
    is_switching
}

/// Whether the kernel may still write pages of before a switch.
fn is_switching(inner: &Inner) -> bool {
    inner.fence.is_some() || !inner.cut_off.is_empty()
}

/// The live tree and everything that the state file needs; `None` where a state is pending again.
fn freeze_for_seal(branch: &Branch) -> Option<(StateHead, StateMore, Tree, Option<Reference>)> {
    let mut inner = branch.lock();
    if inner.book.history.first_pending().is_some() || is_switching(&inner) {
        return None;
    }
    inner.storing = Some(inner.live.clone());
    let head = StateHead {
        next_seq: branch.places.journal.last_seq() + 1,
        counters: inner.book.counters,
        history: inner.book.history.to_record(),
        root: None,
        base_changed: inner.book.base_changed.iter().cloned().collect(),
        unreadable: inner.book.unreadable.iter().cloned().collect(),
        tree_file: 0,
        patched: 0,
    };
    let more = StateMore {
        // Known once the tree is stored.
        kv: None,
        timeline: inner.book.timeline.clone(),
        later: inner.book.history.later.clone(),
        outcomes: inner.outcomes.to_record(),
        shown: inner.book.history.shown,
    };
    Some((head, more, inner.live.clone(), inner.reference.clone()))
}

fn drop_journal(
    branch: &Branch,
    segment: u32,
    mut stored: Reference,
    timeline: FileContent,
    next_seq: u64,
) -> Result<()> {
    let own = branch.places.journal.number();
    let keep = {
        // Under the lock: a branch that is made of this one meanwhile takes nothing older.
        let mut inner = branch.lock();
        let needed = needed_segments(&mut inner, &stored.tree);
        inner.book.anchors.seal(&stored, timeline, next_seq);
        inner.storing = None;
        inner.brought.catch_up(&mut stored.tree);
        inner.reference = Some(stored);
        let journals = &branch.places.journals;
        let keep = [needed.get(&own).copied(), journals.pinned(own)];
        journals.pin(own, needed);
        keep.into_iter().flatten().fold(segment, u32::min)
    };
    branch.places.journal.drop_before(keep)?;
    branch.signal();
    Ok(())
}

/// Keeps what the branch, which was just opened, shows of journals.
pub(crate) fn pin_opened(branch: &Branch, notable: &Notable) {
    let mut needed = Needed::new();
    notable.each_of_all(branch.lock().trees_mut(), &mut |_, inode| {
        need(&mut needed, inode);
    });
    branch
        .places
        .journals
        .pin(branch.places.journal.number(), needed);
}

/// Keeps what the branch shows of other branches' journals; `sealed` points into none.
pub(crate) fn pin_journals(branch: &Branch, sealed: &Tree) {
    let needed = needed_segments(&mut branch.lock(), sealed);
    branch
        .places
        .journals
        .pin(branch.places.journal.number(), needed);
}

fn state_file(b: &Branch) -> StateFile<'_> {
    StateFile {
        storage: &*b.storage,
        dir: &b.dir,
        trees: &b.trees,
        branch: b.places.journal.number(),
    }
}

/// Lowest segment of each journal that any tree still points into. Only what differs from `sealed` can,
/// and files that were left out because a part of them cannot be read.
fn needed_segments(inner: &mut Inner, sealed: &Tree) -> Needed {
    let mut needed = Needed::new();
    if !inner.book.unreadable.is_empty() {
        // What was written over a file that cannot be read is in the journal alone.
        sealed.for_each_open(&mut |_, inode| need(&mut needed, inode));
    }
    for tree in inner.trees_mut() {
        Tree::diff(sealed, tree, &mut |_, _, now| {
            if let Some(inode) = now {
                need(&mut needed, inode);
            }
        });
    }
    needed
}

/// Notes which segments an inode points into.
fn need(needed: &mut Needed, inode: &Inode) {
    for segment in inode.file().into_iter().flat_map(|f| f.segments()) {
        let lowest = needed.entry(journal_of(segment)).or_insert(segment);
        *lowest = segment.min(*lowest);
    }
}

/// Plain files of the base among the inodes of a range.
fn base_files_in(tree: &Tree, range: std::ops::Range<u64>) -> Vec<(Nid, Arc<Inode>)> {
    let is_base = |i: &Inode| {
        i.file()
            .is_some_and(|f| f.is_plain() && matches!(f.body().0, Body::Base(_)))
    };
    let found = range.filter_map(|n| Some((Nid(n), tree.get(Nid(n))?.clone())));
    found.filter(|(_, i)| is_base(i)).collect()
}

/// Bytes that importing them may take.
fn bytes_of(batch: &[(Nid, Arc<Inode>)]) -> u64 {
    let unread = |i: &Inode| match i.file().map(|f| f.body()) {
        Some((Body::Base(base), len)) if base.stored().is_none() => len,
        _ => 0,
    };
    batch.iter().map(|(_, i)| unread(i)).sum()
}

/// An imported file of the base with its stored content; `None` where it is not imported.
fn imported(inode: &Inode) -> Option<Arc<Inode>> {
    let file = inode.file()?;
    let (Body::Base(base), len) = file.body() else {
        return None;
    };
    let content = base
        .stored()
        .filter(|c| c.len() == len && len == inode.size)?;
    let mut after = inode.clone();
    after.content = Content::File(FileData::new(Body::Stored(content), len, file.body_alloc()));
    Some(Arc::new(after))
}

/// Puts `after` in the place of `before` in all trees, or what of it fits where the inode changed since.
/// Trees go on sharing what they shared.
fn adopt_inode(trees: &mut [&mut Tree], nid: Nid, before: &Arc<Inode>, after: &Arc<Inode>) {
    let mut made = vec![(before.clone(), after.clone())];
    for tree in trees {
        let Some(now) = tree.get(nid).cloned() else {
            continue;
        };
        let known = made.iter().find(|(was, _)| Arc::ptr_eq(was, &now));
        if let Some(new) = known.map(|(_, new)| new.clone()) {
            tree.set(nid, new);
        } else if let Some(new) = adopted(&now, before, after) {
            tree.set(nid, new.clone());
            made.push((now, new));
        }
    }
}

/// `now` with the stored content of `after` below what changed since `before`; `None` where nothing is
/// to be done.
fn adopted(now: &Inode, before: &Inode, after: &Inode) -> Option<Arc<Inode>> {
    let (file, old, new) = (now.file()?, before.file()?, after.file()?);
    let Body::Stored(content) = new.body().0 else {
        return None;
    };
    let other_body = file.body().0 != old.body().0 && file.body().1 > 0;
    let nothing_over = file.is_plain() && !matches!(file.body().0, Body::Base(_));
    let content = if now.size == before.size && file == old {
        new.clone()
    } else if other_body || nothing_over {
        return None;
    } else {
        file.rebased(now.size, old, before.size, *content, new.body_alloc())
    };
    let mut inode = now.clone();
    inode.content = Content::File(content);
    Some(Arc::new(inode))
}
