//! States becoming commits, and the journal being folded into the store.
//!
//! Both run under the sealing lock, in the background or in a thread that waits for an id. Requests
//! go on meanwhile: the branch lock is taken for short whiles only.

use super::state_file::{StateFile, StateHead};
use super::{Branch, Inner};
use crate::error::{Error, Result};
use crate::record::{Event, StateInfo};
use crate::store_tree::{Reference, meta_of, store_tree};
use crate::tree::Tree;
use crate::tree::file::Body;
use crate::tree::inode::{Content, Inode};
use crate::types::Nid;
use objstore::{Commit, CommitId, CommitKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Inodes that are exchanged in live trees under one holding of the lock.
const ADOPT_BATCH: usize = 512;

impl Branch {
    /// Stores all states that are not in the store yet, in order, and gives them their ids. Waits for
    /// the scan and for the import of what they refer to.
    pub fn store_pending(&self) -> Result<()> {
        let _one = self.sealing.lock();
        while self.store_next()? {}
        Ok(())
    }

    /// As [`Branch::store_pending`], where nobody else is at it; false where somebody is.
    pub fn try_store_pending(&self) -> Result<bool> {
        let Some(_one) = self.sealing.try_lock() else {
            return Ok(false);
        };
        if !self.lock().scan_done {
            return Ok(false);
        }
        while self.store_next()? {}
        Ok(true)
    }

    /// Stores the first pending state; false where there is none.
    fn store_next(&self) -> Result<bool> {
        let (info, tree, reference) = {
            let mut inner = self.lock();
            while !inner.scan_done {
                if self.closing.load(Ordering::Relaxed) {
                    return Err(Error::Closing);
                }
                self.wait_progress(&mut inner);
            }
            let fenced = inner.fence.as_ref().map(|f| f.state);
            let Some(number) = inner.history.first_pending().filter(|n| Some(*n) != fenced) else {
                return Ok(false);
            };
            let state = inner.history.state(number)?;
            (
                state.info.clone(),
                state.tree.clone(),
                inner.reference.clone(),
            )
        };
        let tree = tree.ok_or_else(|| Error::Damaged {
            what: format!("state {}", info.number),
            why: "its tree is gone".into(),
        })?;
        let stored = match store_tree(&self.places, &self.importer, reference.as_ref(), &tree) {
            Err(Error::BaseChanged(f)) => {
                self.take_anew(&f)?;
                return Ok(true);
            }
            other => other?,
        };
        let id = self.put_commit(&info, &stored)?;
        if self.importer.unsynced.swap(false, Ordering::Relaxed) {
            self.places
                .store
                .sync()
                .inspect_err(|_| self.importer.unsynced.store(true, Ordering::Relaxed))?;
        }
        self.adopt(&tree, &stored.tree);
        self.name(info.number, id, stored)?;
        Ok(true)
    }

    fn put_commit(&self, info: &StateInfo, reference: &Reference) -> Result<CommitId> {
        let root = reference.tree.inode(Nid::ROOT)?;
        let parents = {
            let inner = self.lock();
            info.parents
                .iter()
                .filter_map(|p| inner.history.id_of(*p))
                .collect()
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
        };
        Ok(self.places.store.put_object(&commit)?)
    }

    /// Exchanges what was stored in the live tree and in every state that shares it.
    fn adopt(&self, before: &Tree, stored: &Tree) {
        let mut changes: Vec<(Nid, Arc<Inode>, Arc<Inode>)> = Vec::new();
        Tree::diff(before, stored, &mut |nid, a, b| {
            if let (Some(a), Some(b)) = (a, b) {
                changes.push((nid, a.clone(), b.clone()));
            }
        });
        for batch in changes.chunks(ADOPT_BATCH) {
            let mut inner = self.lock();
            for tree in inner.trees_mut() {
                for (nid, a, b) in batch {
                    adopt_inode(tree, *nid, a, b);
                }
            }
        }
    }

    fn name(&self, number: u64, id: CommitId, reference: Reference) -> Result<()> {
        let mut inner = self.lock();
        inner.reference = Some(reference.clone());
        let history = &mut inner.history;
        let Some(state) = history.states.get_mut(&number) else {
            return Ok(());
        };
        if let Some(known) = state.info.id
            && known != id
        {
            tracing::error!("state {number} was commit {known}, is {id} when stored again");
        }
        let new = state.info.id.replace(id) != Some(id);
        (state.tree, state.stored, state.in_store) = (None, Some(reference), true);
        history.trim();
        if new {
            self.record(Event::Named { state: number, id }, &[])?;
        }
        self.signal();
        Ok(())
    }

    /// Folds the journal into the store: all data is chunked, the state file replaced, and what the
    /// journal no longer needs to hold is dropped.
    pub fn seal(&self) -> Result<()> {
        let _one = self.sealing.lock();
        loop {
            while self.store_next()? {}
            let segment = self.places.journal.roll()?;
            let Some(frozen) = self.freeze_for_seal() else {
                continue;
            };
            let (mut head, tree, reference) = frozen;
            let stored = match store_tree(&self.places, &self.importer, reference.as_ref(), &tree) {
                Err(Error::BaseChanged(f)) => {
                    self.take_anew(&f)?;
                    continue;
                }
                other => other?,
            };
            self.adopt(&tree, &stored.tree);
            self.places.store.sync()?;
            self.importer.unsynced.store(false, Ordering::Relaxed);
            head.root = Some(stored.root);
            let next_seq = head.next_seq;
            self.state_file().write(head, &stored.tree)?;
            self.sealed_seq.store(next_seq, Ordering::Relaxed);
            return self.drop_journal(segment, stored);
        }
    }

    /// The live tree and everything that the state file needs; `None` where a state is pending again.
    fn freeze_for_seal(&self) -> Option<(StateHead, Tree, Option<Reference>)> {
        let inner = self.lock();
        if inner.history.first_pending().is_some() || inner.fence.is_some() {
            return None;
        }
        let head = StateHead {
            next_seq: self.places.journal.last_seq() + 1,
            counters: inner.counters,
            history: inner.history.to_record(),
            root: None,
            base_changed: inner.base_changed.iter().cloned().collect(),
            unreadable: inner.unreadable.iter().cloned().collect(),
            inodes: 0,
        };
        Some((head, inner.live.clone(), inner.reference.clone()))
    }

    fn drop_journal(&self, segment: u32, stored: Reference) -> Result<()> {
        let keep = {
            let mut inner = self.lock();
            let keep = first_segment(&mut inner, &stored.tree)
                .unwrap_or(segment)
                .min(segment);
            inner.reference = Some(stored);
            keep
        };
        self.places.journal.drop_before(keep)?;
        self.signal();
        Ok(())
    }

    fn state_file(&self) -> StateFile<'_> {
        StateFile {
            storage: &*self.storage,
            dir: &self.dir,
        }
    }
}

/// Lowest journal segment that any tree still points into; only what differs from `sealed` can.
fn first_segment(inner: &mut Inner, sealed: &Tree) -> Option<u32> {
    let mut first: Option<u32> = None;
    for tree in inner.trees_mut() {
        Tree::diff(sealed, tree, &mut |_, _, now| {
            let segment = now.and_then(|i| i.file()).and_then(|f| f.first_segment());
            first = match (first, segment) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        });
    }
    first
}

/// Puts `after` in the place of `before`, or what of it fits where the inode changed since.
fn adopt_inode(tree: &mut Tree, nid: Nid, before: &Arc<Inode>, after: &Arc<Inode>) {
    let Some(now) = tree.get(nid) else { return };
    if Arc::ptr_eq(now, before) {
        tree.set(nid, after.clone());
        return;
    }
    let (Some(file), Some(old), Some(new)) = (now.file(), before.file(), after.file()) else {
        return;
    };
    let Body::Stored(content) = new.body().0 else {
        return;
    };
    let needs_nothing = file.is_plain() && !matches!(file.body().0, Body::Base(_));
    if needs_nothing || (file.body().0 != old.body().0 && file.body().1 > 0) {
        return;
    }
    let mut inode = (**now).clone();
    inode.content =
        Content::File(file.rebased(now.size, old, before.size, *content, new.body_alloc()));
    tree.set(nid, Arc::new(inode));
}
