//! Keeping the sizes that the kernel has in mind in step with a tree that changes behind its back.
//!
//! Dropping an inode's attributes leaves its size in the kernel as it was, until somebody asks for it: a
//! program appends there, a mapping ends there, a copy stops there. So each file that the kernel holds and
//! whose size a switch changes is *doubted* (`lookups.rs`), and the kernel is made to ask
//! ([`Branch::refresh_sizes`]). An append that was under way comes with the old end nevertheless; it is placed
//! at the true one (`ops/data.rs`), and the pages that hold it in the wrong place are dropped
//! ([`Branch::mend_later`]): never by the request's handler, which the kernel waits for with a page locked.
//!
//! A file is trusted again once an append comes with the true end: the kernel lets one append after the
//! other into a file, so none from before is under way then.

use super::{Branch, Inner};
use crate::limits::{MEND_PAUSE, MEND_ROUNDS_MAX, REFRESH_TRIES_MAX};
use crate::types::Nid;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages that hold what was placed elsewhere, and who drops them.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    /// There are such pages.
    pub due: AtomicBool,
    /// Somebody was sent to drop them and has not begun.
    sent: AtomicBool,
    /// Held while they are dropped.
    running: Mutex<()>,
}

impl Branch {
    /// Has the kernel ask for the sizes of those of these files that it may take for others; gives those of
    /// which it still did, as far as can be told: one that is written to at every moment may be among them.
    pub(crate) fn refresh_sizes(&self, files: &[Nid]) -> Vec<Nid> {
        let mut left = files.to_vec();
        for _ in 0..REFRESH_TRIES_MAX {
            let asked = {
                let inner = self.lock();
                left.retain(|nid| inner.lookups.is_doubted(*nid));
                inner.paths_of(&left, self.view_path())
            };
            if asked.is_empty() {
                return Vec::new();
            }
            let (files, paths): (Vec<(Nid, u64)>, Vec<Vec<u8>>) = asked.into_iter().unzip();
            let seen = self.cache().refresh_sizes(paths);
            let inner = self.lock();
            let wrong = files.iter().zip(seen).filter(|((nid, before), seen)| {
                let now = inner.live.get(*nid).map_or(*before, |i| i.size);
                let between = now.min(*before)..=now.max(*before);
                // Where it cannot be made to ask, trying again does not help.
                seen.is_some_and(|seen| !between.contains(&seen))
            });
            left = wrong.map(|((nid, _), _)| *nid).collect();
        }
        left
    }

    /// Waits until no further part can follow of appends that were under way when the tree was switched, where
    /// the kernel tells of it.
    pub(crate) fn wait_for_appends(&self) {
        loop {
            let asked = {
                let inner = self.lock();
                let awaited = inner.fence.as_ref().map(|fence| fence.awaited());
                inner.paths_of(&awaited.unwrap_or_default(), self.view_path())
            };
            let (files, paths): (Vec<(Nid, u64)>, Vec<Vec<u8>>) = asked.into_iter().unzip();
            if files.is_empty() {
                return;
            }
            let mut over = self.cache().wait_for_writers(paths);
            over.resize(files.len(), false);
            if !over.contains(&true) {
                return;
            }
            if let Some(fence) = &mut self.lock().fence {
                let files = files.iter().zip(over).filter(|(_, over)| *over);
                files.for_each(|((nid, _), _)| fence.append_is_over(*nid));
            }
        }
    }

    /// Has the kernel drop pages, as [`Branch::mend_later`] does.
    pub(crate) fn drop_pages(&self, file: Nid, range: Range<u64>) {
        self.lock().lookups.misplace(file, range);
        self.mending.due.store(true, Ordering::SeqCst);
    }

    /// Sees to it that pages which hold appended data in the wrong place are dropped soon, by another thread.
    pub(crate) fn mend_later(self: &Arc<Self>) {
        let Mending { due, sent, .. } = &self.mending;
        if !due.load(Ordering::SeqCst) || sent.swap(true, Ordering::SeqCst) {
            return;
        }
        let branch = self.clone();
        let spawned = std::thread::Builder::new()
            .name("mending".to_owned())
            .spawn(move || branch.mend());
        if let Err(e) = spawned {
            self.mending.sent.store(false, Ordering::SeqCst);
            // The next write tries again; the data itself is where it belongs.
            tracing::warn!("pages of {} cannot be dropped yet: {e}", self.name());
        }
    }

    /// Drops pages that hold appended data in the wrong place, those that somebody else is dropping too.
    pub(crate) fn mend(&self) {
        let _one = self.mending.running.lock();
        self.mending.sent.store(false, Ordering::SeqCst);
        self.mending.due.store(false, Ordering::SeqCst);
        let all = self.lock().lookups.all_misplaced();
        let cache = self.cache();
        for (nid, ranges) in &all {
            for range in ranges {
                cache.inval_range(self.node(*nid), range.clone());
            }
            self.lock().lookups.dropped(*nid, ranges);
        }
        let mut left: Vec<Nid> = all.into_iter().map(|(nid, _)| nid).collect();
        for _ in 0..MEND_ROUNDS_MAX {
            left = self.refresh_sizes(&left);
            if left.is_empty() {
                return;
            }
            // The kernel has yet to take in answers to writes, and heeds no size meanwhile.
            std::thread::sleep(MEND_PAUSE);
        }
    }
}

impl Inner {
    /// Those of these files that can be found by a path, each with its size, and that path from the mount's
    /// root.
    fn paths_of(&self, files: &[Nid], view: Option<Vec<u8>>) -> Vec<((Nid, u64), Vec<u8>)> {
        let prefix = view.map_or_else(Vec::new, |mut view| {
            view.push(b'/');
            view
        });
        let found = files.iter().filter_map(|nid| {
            let size = self.live.get(*nid)?.size;
            let path = self.live.path(*nid)?;
            Some(((*nid, size), [&prefix[..], &path].concat()))
        });
        found.collect()
    }

    /// What of a range of the kernel's pages belongs to a file that is `size` long: nothing past its end,
    /// where the kernel may have another one in mind, and nothing that was placed elsewhere.
    pub(crate) fn belonging(&self, nid: Nid, size: u64, range: Range<u64>) -> Vec<Range<u64>> {
        let mut parts = vec![range];
        if self.lookups.is_doubted(nid) {
            parts[0].end = parts[0].end.min(size).max(parts[0].start);
        }
        for gone in self.lookups.misplaced(nid) {
            let without = |part: Range<u64>| {
                let before = part.start..part.end.min(gone.start).max(part.start);
                let after = part.start.max(gone.end).min(part.end)..part.end;
                [before, after]
            };
            parts = parts.into_iter().flat_map(without).collect();
        }
        parts.retain(|part| !part.is_empty());
        parts
    }
}
