//! Making commits.

use super::diff::files_changed;
use super::{CheckpointRequest, Checkpointed, Progress};
use crate::branch::{Branch, Inner, Paused};
use crate::cancel::Cancel;
use crate::change::transition::differs;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Event, OpKind, StateInfo};
use crate::tree::Tree;
use crate::workspace::Workspace;
use objstore::CommitId;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Branch {
    /// Makes a checkpoint of the live tree, durably.
    ///
    /// Where nothing changed and neither message nor metadata is given, the head gets the label.
    pub fn checkpoint(
        &self,
        author: &str,
        req: CheckpointRequest,
        progress: Progress<'_>,
    ) -> Result<Checkpointed> {
        if let Some(label) = &req.label {
            crate::names::check_label(label)?;
        }
        self.cache().flush_dirty();
        let head = self.lock().book.history.head;
        let before = self.tree_of(head)?;
        let wait = req.wait;
        let mut done = self.freeze_or_label(author, req, &before)?;
        if wait {
            let named = self.sync_and_name(done.state, progress);
            let withdraw = done.new_commit && !matches!(named, Ok(_) | Err(Error::Closing));
            if withdraw {
                self.withdraw(done.state)?;
            }
            done.commit = Some(named?);
        } else {
            self.sync()?;
            done.commit = self.lock().book.history.id_of(done.state);
        }
        done.unreadable = self.left_out();
        Ok(done)
    }

    /// Makes a state durable and waits for its id, both at once.
    fn sync_and_name(&self, state: u64, progress: Progress<'_>) -> Result<CommitId> {
        std::thread::scope(|scope| {
            let synced = scope.spawn(|| self.sync());
            let stored = self.try_store_pending();
            synced.join().unwrap_or(Err(Error::Closing))?;
            stored?;
            self.wait_for_id(state, progress)
        })
    }

    /// Takes back a checkpoint that could not be stored: all is as it was before.
    fn withdraw(&self, state: u64) -> Result<()> {
        let mut inner = self.lock();
        if !inner.book.history.can_withdraw(state) {
            return Ok(());
        }
        let withdrawn = self.carry_out(&mut inner, Event::Withdraw { state }, &[]);
        if withdrawn.is_err() {
            // The caller hears of a failure, so it is gone all the same; a crash brings it back.
            inner.book.history.withdraw(state);
        }
        withdrawn
    }

    fn freeze_or_label(
        &self,
        author: &str,
        req: CheckpointRequest,
        before: &Tree,
    ) -> Result<Checkpointed> {
        let mut inner = self.lock();
        // The head may have been stored meanwhile, and the live tree refers to the store since then.
        let stored = inner.book.history.tree(inner.book.history.head).cloned();
        let before = stored.as_ref().unwrap_or(before);
        let label = req.label.clone();
        let old = label.as_ref().and_then(|l| inner.book.history.labelled(l));
        let (before, now) = (before.clone(), inner.live.clone());
        let plain = req.message.is_empty() && req.meta.is_empty();
        let new_commit = !plain || differs(&before, &now);
        let state = if new_commit {
            let meta: BTreeMap<String, String> = req.meta.into_iter().collect();
            let info = self.new_state(&inner, OpKind::Checkpoint, author, req.message, meta);
            self.freeze(&mut inner, info, true, req.label)?
        } else {
            let head = inner.book.history.head;
            if let Some(label) = req.label {
                self.carry_out(&mut inner, Event::Label { label, state: head }, &[])?;
            }
            head
        };
        let moved_from = old
            .filter(|o| *o != state)
            .and_then(|o| inner.book.history.id_of(o));
        let unresolved = inner.book.history.conflicts.len();
        drop(inner);
        if new_commit {
            self.signal();
        }
        Ok(Checkpointed {
            commit: None,
            state,
            files_changed: files_changed(&before, &now),
            bytes_changed: bytes_changed(&before, &now),
            moved_from,
            new_commit,
            unresolved,
            unreadable: Vec::new(),
        })
    }

    /// What a new state of the live tree says of itself. Its parent is the head.
    pub fn new_state(
        &self,
        inner: &Inner,
        kind: OpKind,
        author: &str,
        message: String,
        meta: BTreeMap<String, String>,
    ) -> StateInfo {
        StateInfo {
            number: inner.book.counters.state,
            kind,
            asked: false,
            time: clock::now(),
            author: author.to_owned(),
            message,
            meta: meta.into_iter().collect(),
            parents: inner.book.history.parents(),
            id: None,
        }
    }

    /// Freezes the live tree as a state.
    pub fn freeze(
        &self,
        inner: &mut Inner,
        info: StateInfo,
        head: bool,
        label: Option<String>,
    ) -> Result<u64> {
        let number = info.number;
        self.carry_out(inner, Event::Freeze { info, head, label }, &[])?;
        Ok(number)
    }

    /// Waits until a state is a commit; stores it in this thread where nothing else does.
    pub fn wait_for_id(&self, state: u64, progress: Progress<'_>) -> Result<CommitId> {
        self.wait_for(state, progress, None)
    }

    /// As [`Branch::wait_for_id`] until that is cancelled.
    pub fn wait_for_id_unless(
        &self,
        state: u64,
        progress: Progress<'_>,
        cancel: &Cancel,
    ) -> Result<CommitId> {
        self.wait_for(state, progress, Some(cancel))
    }

    fn wait_for(
        &self,
        state: u64,
        progress: Progress<'_>,
        cancel: Option<&Cancel>,
    ) -> Result<CommitId> {
        loop {
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            let durable = |inner: &Inner| {
                inner
                    .book
                    .history
                    .state(state)
                    .map(|s| s.info.id.filter(|_| s.in_store))
            };
            if let Some(id) = durable(&self.lock())? {
                return Ok(id);
            }
            // Whoever imports the base is at it for long, and hears of nothing else.
            let may_store = cancel.is_none() || self.lock().reference.is_some();
            if !may_store {
                self.wake.wake();
            } else if self.try_store_pending()? {
                continue;
            }
            let paused = self.paused.lock().clone();
            if let Some(Paused { why, wants_space }) = paused {
                // It may be possible by now: whoever holds the lock may have begun before.
                match self.store_pending() {
                    Ok(()) => continue,
                    Err(Error::Closing) => return Err(Error::Closing),
                    Err(_) => return Err(Error::ImportPaused { why, wants_space }),
                }
            }
            if self.closing.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            let done = self.importer.files_done.load(Ordering::Relaxed);
            progress(done, self.importer.files_total.load(Ordering::Relaxed));
            let mut inner = self.lock();
            if durable(&inner)?.is_none() {
                self.wait_progress(&mut inner);
            }
        }
    }
}

/// Bytes that were written of the files that differ between two trees of a branch.
fn bytes_changed(before: &Tree, now: &Tree) -> u64 {
    let mut bytes = 0;
    Tree::diff(before, now, &mut |_, was, is| {
        let Some(inode) = is.filter(|i| i.nlink > 0) else {
            return;
        };
        let Some(file) = inode.file() else { return };
        let was = was.filter(|i| i.nlink > 0);
        if was.is_some_and(|was| was.commits_alike(inode)) {
            return;
        }
        let over: u64 = file.extents().map(|p| p.range.end - p.range.start).sum();
        bytes += if file.is_plain() { inode.size } else { over };
    });
    bytes
}

impl Workspace {
    /// Makes a checkpoint; after `Ok` it survives a power cut.
    pub fn checkpoint(
        &self,
        branch: &str,
        req: CheckpointRequest,
        progress: Progress<'_>,
    ) -> Result<Checkpointed> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let done = b.checkpoint(self.author(), req, progress)?;
        self.snapshots_changed(&b);
        Ok(done)
    }
}
