//! Background work of a branch, and its end.

use super::Branch;
use crate::error::{Error, Result};
use crate::limits::{SEAL_BYTES, SEAL_IDLE_BYTES};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time without changes after which a smaller journal is sealed too.
const IDLE: Duration = Duration::from_secs(5);
/// Age of the oldest unsynced record at which a sync begins: with a tick, less than 5 s.
const SYNC_AGE: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(200);

impl Branch {
    /// Starts the background threads: scan and storing, and the timer of syncs.
    pub fn start_threads(self: &Arc<Branch>) -> Result<Vec<JoinHandle<()>>> {
        let storing = self.clone();
        let timer = self.clone();
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .map_err(Error::io(name))
        };
        Ok(vec![
            spawn("storing", Box::new(move || storing.run_storing()))?,
            spawn("sync-timer", Box::new(move || timer.run_timer()))?,
        ])
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn run_timer(&self) {
        while !self.is_closing() {
            std::thread::sleep(TICK / 2);
            self.auto_tick(false);
            let journal = &self.places.journal;
            if journal
                .unsynced_since()
                .is_some_and(|t: Instant| t.elapsed() > SYNC_AGE)
                && let Err(e) = journal.sync(journal.last_seq())
            {
                tracing::error!("{}: the journal could not be synced: {e}", self.name);
                return;
            }
        }
    }

    fn run_storing(&self) {
        lower_priority();
        if let Err(e) = self.scan()
            && !self.is_closing()
        {
            tracing::error!("the base could not be scanned: {e}");
            *self.paused.lock() = Some(e.to_string());
        }
        let mut last_seq = 0;
        let mut quiet_since = Instant::now();
        while !self.is_closing() {
            self.drop_stale();
            self.auto_tick(true);
            let seq = self.places.journal.last_seq();
            if seq != last_seq {
                (last_seq, quiet_since) = (seq, Instant::now());
            }
            let result = self.store_step(seq, quiet_since.elapsed() > IDLE);
            let failed = result.is_err();
            self.note_pause(result);
            let mut inner = self.lock();
            if failed || inner.history.first_pending().is_none() {
                self.wait_progress(&mut inner);
                drop(inner);
                if failed {
                    std::thread::sleep(TICK);
                }
            }
        }
    }

    /// One round of background storing.
    fn store_step(&self, seq: u64, idle: bool) -> Result<()> {
        self.store_pending()?;
        self.importer.release();
        let bytes = self.places.journal.bytes();
        let sealed = self.sealed_seq.load(Ordering::Relaxed);
        let first_time = self.lock().reference.is_some() && sealed <= 1;
        let worth =
            bytes >= SEAL_BYTES || (idle && bytes >= SEAL_IDLE_BYTES) || (idle && first_time);
        if worth && seq + 1 > sealed {
            self.seal()?;
        }
        Ok(())
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
                *paused = Some(e.to_string());
            }
        }
    }

    /// Stops the background threads; unfinished work is taken up at the next start.
    pub fn stop_threads(&self, threads: Vec<JoinHandle<()>>) {
        self.closing.store(true, Ordering::Relaxed);
        self.importer.stop.store(true, Ordering::Relaxed);
        self.signal();
        for t in threads {
            if t.join().is_err() {
                tracing::error!("a background thread had panicked");
            }
        }
    }
}

/// Background work yields to requests.
pub(crate) fn lower_priority() {
    let tid = rustix::thread::gettid();
    if let Err(e) = rustix::process::setpriority_process(Some(tid), 10) {
        tracing::debug!("a background thread keeps its priority: {e}");
    }
}
