//! Waiting for requests that were being handled at a moment, while new ones come.
//!
//! Two counters, one for each parity of an epoch: a request enters the counter of the current epoch,
//! [`Drain::wait`] starts a new epoch and waits until the old one's counter is zero. So requests that
//! come later never prolong the wait. It waits by sleeping briefly: a handler must not be slowed down
//! by a lock or a wake-up that only a flush needs.

use crate::limits::DRAIN_WAIT_MAX;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Requests in progress, by epoch.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    epoch: AtomicUsize,
    running: [AtomicU64; 2],
    cached_writes: AtomicU64,
    /// One wait at a time: with two, an epoch could come round while its counter is not zero.
    waiting: Mutex<()>,
}

/// Which counter a request entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parity(usize);

impl Drain {
    /// Enters a request; [`Drain::leave`] must follow.
    pub(crate) fn enter(&self) -> Parity {
        loop {
            let epoch = self.epoch.load(SeqCst);
            let counter = &self.running[epoch & 1];
            counter.fetch_add(1, SeqCst);
            // A wait that began in between may not have seen this request: enter the new epoch.
            if self.epoch.load(SeqCst) == epoch {
                return Parity(epoch & 1);
            }
            counter.fetch_sub(1, SeqCst);
        }
    }

    /// Leaves with what [`Drain::enter`] gave.
    pub(crate) fn leave(&self, parity: Parity) {
        self.running[parity.0].fetch_sub(1, SeqCst);
    }

    /// Counts a write from the page cache.
    pub(crate) fn count_cached_write(&self) {
        self.cached_writes.fetch_add(1, SeqCst);
    }

    /// Writes from the page cache so far.
    pub(crate) fn cached_writes(&self) -> u64 {
        self.cached_writes.load(SeqCst)
    }

    /// Waits that have begun.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> usize {
        self.epoch.load(SeqCst)
    }

    /// Waits until every request that had entered before has left; false if one did not in time.
    pub(crate) fn wait(&self) -> bool {
        let _alone = self.waiting.lock();
        let old = &self.running[self.epoch.fetch_add(1, SeqCst) & 1];
        let deadline = Instant::now() + DRAIN_WAIT_MAX;
        while old.load(SeqCst) != 0 {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waits_for_older_requests_only() {
        let drain = Arc::new(Drain::default());
        let old = drain.enter();
        let waiter = std::thread::spawn({
            let drain = drain.clone();
            move || drain.wait()
        });
        while drain.epoch.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let new = drain.enter();
        assert!(!waiter.is_finished());
        drain.leave(old);
        assert!(waiter.join().unwrap());
        drain.leave(new);
        assert!(drain.wait());
    }
}
