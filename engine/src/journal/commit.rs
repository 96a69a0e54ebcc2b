//! Group commit: one `fdatasync` for all who wait.
//!
//! The first caller who finds nobody at it becomes the leader: it takes what was appended so far,
//! brings it to stable storage and wakes the others. Who comes meanwhile waits, and one of them leads
//! the next round for all of them.
//!
//! Order of a round, which recovery relies on: older segments, the current one, names, then the mark.
//! Invariant: after a failed round the journal is poisoned. The kernel reports a failed write-back
//! once and may count the pages as clean from then on, so trying again would acknowledge lost bytes
//! (fsync(2), "Errors"; the 2018 PostgreSQL reports).

use super::Journal;
use super::error::JournalResult;
use super::writer::Batch;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

/// Who leads, and how far the journal is synced.
#[derive(Debug)]
pub(crate) struct Commit {
    running: Mutex<bool>,
    done: Condvar,
    synced: AtomicU64,
}

impl Commit {
    /// A commit state where all up to `synced` is on stable storage.
    pub(crate) fn new(synced: u64) -> Commit {
        Commit {
            running: Mutex::new(false),
            done: Condvar::new(),
            synced: AtomicU64::new(synced),
        }
    }

    /// Last record on stable storage.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }
}

impl Journal {
    /// Returns when all records up to `upto_seq` (at most the last one there is) survive a power
    /// cut. Callers share syncs. Fails with `Poisoned` where a sync failed, now or earlier.
    pub fn sync(&self, upto_seq: u64) -> JournalResult<()> {
        let upto = upto_seq.min(self.last_seq());
        let mut running = self.commit.running.lock();
        loop {
            self.check_poison()?;
            if self.commit.synced() >= upto {
                return Ok(());
            }
            self.lead_or_wait(&mut running);
        }
    }

    /// As [`Journal::sync`] of everything, with a round of its own: also what is no record (a new
    /// segment's name and header) is on stable storage then.
    pub(crate) fn commit_all(&self) -> JournalResult<()> {
        let mut running = self.commit.running.lock();
        while *running {
            self.commit.done.wait(&mut running);
        }
        self.check_poison()?;
        self.lead_or_wait(&mut running);
        self.check_poison()
    }

    /// Waits for the round that is under way, or runs one.
    fn lead_or_wait(&self, running: &mut MutexGuard<'_, bool>) {
        if **running {
            self.commit.done.wait(running);
            return;
        }
        **running = true;
        MutexGuard::unlocked(running, || self.round());
        **running = false;
        self.commit.done.notify_all();
    }

    fn round(&self) {
        let batch = self.tail.lock().take_batch();
        match self.write_back(&batch) {
            Ok(()) => self.commit.synced.store(batch.upto, Ordering::Release),
            Err(error) => self.poison(&error),
        }
    }

    fn write_back(&self, batch: &Batch) -> JournalResult<()> {
        for live in batch.unsynced.older.iter().chain(&batch.unsynced.current) {
            live.sync()?;
        }
        if batch.unsynced.names {
            self.sync_names()?;
        }
        let mut mark = self.mark.lock();
        mark.update(|mark| {
            mark.seq = batch.upto;
            mark.segment = batch.segment;
            mark.clean = false;
        })?;
        if batch.unsynced.names {
            mark.sync()?;
        }
        Ok(())
    }
}
