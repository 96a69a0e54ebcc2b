//! Background work of a branch: one round of it, and its end.
//!
//! The threads are the workspace's ([`crate::workspace::keeper`]); nothing runs for a branch that nobody uses.

use super::{Branch, Paused};
use crate::branch::auto;
use crate::branch::endings;
use crate::branch::judging::keep_due;
use crate::branch::load;
use crate::branch::seal;
use crate::branch::timeline;
use crate::error::{Error, Result};
use crate::limits::{SEAL_BYTES, SEAL_IDLE_BYTES, SEAL_PAUSE_FACTOR, SEAL_PAUSE_MIN, SEAL_RECORDS};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time without changes after which a smaller journal is sealed too.
const IDLE: Duration = Duration::from_secs(5);
/// Age of the oldest unsynced record at which a sync begins: with a tick, less than 5 s.
const SYNC_AGE: Duration = Duration::from_secs(4);

impl Branch {
    /// True once it is told to stop.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Makes an automatic commit where one is due, and syncs the journal where its oldest record has
    /// waited long enough.
    pub fn sync_if_due(&self) {
        auto::auto_tick(self, false);
        let journal = &self.places.journal;
        let due = journal
            .unsynced_since()
            .is_some_and(|t: Instant| t.elapsed() > SYNC_AGE);
        if due
            && journal.poisoned().is_none()
            && let Err(e) = journal.sync(journal.last_seq())
        {
            tracing::error!("{}: the journal could not be synced: {e}", self.name());
        }
    }

    /// One round of background work; true where it should soon be tried again.
    pub fn storing_round(&self) -> bool {
        if !self.scan_once() {
            return false;
        }
        load::drop_stale(self);
        keep_due(self);
        auto::auto_tick(self, true);
        endings::end_overdue_calls(self);
        let seq = self.places.journal.last_seq();
        let idle = {
            let mut rest = self.rest.lock();
            if seq != rest.last_seq {
                (rest.last_seq, rest.since) = (seq, Instant::now());
            }
            rest.since.elapsed() > IDLE
        };
        let result = self.store_step(seq, idle);
        let failed = result.is_err();
        self.note_pause(result);
        !failed && self.lock().book.history.first_pending().is_some()
    }

    /// True where nothing becomes due by itself but what expires: whatever there is is stored and stable.
    pub fn is_at_rest(&self) -> bool {
        let journal = &self.places.journal;
        let seq = journal.last_seq();
        let looked = {
            let rest = self.rest.lock();
            rest.scanned && rest.last_seq == seq && rest.since.elapsed() > IDLE
        };
        looked
            && journal.unsynced_since().is_none()
            && self.paused.lock().is_none()
            && self.stale.lock().is_empty()
            && auto::is_at_rest(self)
            && self.lock().is_at_rest()
            // The round before this look may have come a moment too early to seal.
            && !self.is_sealing_due(seq, true)
    }

    /// Reads what is left of the base's directories, the first time; false while closing.
    fn scan_once(&self) -> bool {
        if std::mem::replace(&mut self.rest.lock().scanned, true) {
            return true;
        }
        if let Err(e) = load::scan(self)
            && !self.is_closing()
        {
            tracing::error!("the base could not be scanned: {e}");
            *self.paused.lock() = Some(Paused::from(&e));
        }
        !self.is_closing()
    }

    /// One round of background storing.
    fn store_step(&self, seq: u64, idle: bool) -> Result<()> {
        seal::store_pending(self)?;
        self.places.store.flush()?;
        self.importer.release();
        timeline::flush_timeline(self)?;
        match self.is_sealing_due(seq, idle) {
            true => self.seal_now(),
            false => Ok(()),
        }
    }

    /// Whether the journal, whose last record is `seq`, is worth to be sealed.
    fn is_sealing_due(&self, seq: u64, idle: bool) -> bool {
        let bytes = self.places.journal.bytes();
        let sealed = self.sealed_seq.load(Ordering::Relaxed);
        let records = (seq + 1).saturating_sub(sealed);
        let first_time = self.lock().reference.is_some() && sealed <= 1;
        let many = records >= SEAL_RECORDS;
        let is_long = bytes >= SEAL_BYTES || many && self.has_paused_sealing();
        records > 0 && (is_long || idle && (many || bytes >= SEAL_IDLE_BYTES || first_time))
    }

    /// Whether the last sealing was long enough ago for another one that only shortens what would be replayed.
    fn has_paused_sealing(&self) -> bool {
        let (ended, took) = self.rest.lock().sealed;
        ended.elapsed() > SEAL_PAUSE_MIN.max(took * SEAL_PAUSE_FACTOR)
    }

    fn seal_now(&self) -> Result<()> {
        let begun = Instant::now();
        let sealed = seal::seal(self);
        self.rest.lock().sealed = (Instant::now(), begun.elapsed());
        sealed
    }

    fn note_pause(&self, result: Result<()>) {
        let mut paused = self.paused.lock();
        match result {
            Ok(()) => *paused = None,
            Err(Error::Closing) => {}
            Err(e) => {
                if paused.is_none() {
                    tracing::warn!("storing stands still: {e}");
                }
                *paused = Some(Paused::from(&e));
            }
        }
    }

    /// Tells whoever works for the branch to stop; unfinished work is taken up at the next start.
    pub fn begin_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.importer.stop.store(true, Ordering::Relaxed);
        self.signal();
    }
}
