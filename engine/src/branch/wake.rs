//! Waking the background threads of a workspace: a branch has work for them.
//!
//! A thread with nothing to do rests: it says so ([`Wake::begin_rest`]), looks once more, and sleeps. Invariant: what
//! gives a branch work is followed by [`Wake::changed`], which ends a rest that began before; so either that
//! look finds the work or the rest ends.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// Wakes the threads of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    /// For the thread that stores.
    pub storing: Signal,
    /// For the thread that looks after stable storage.
    pub syncing: Signal,
    resting: AtomicBool,
}

impl Wake {
    /// There is work for the thread that stores.
    pub fn wake(&self) {
        self.changed();
        self.storing.wake();
    }

    /// Something changed. Costs next to nothing while no thread rests.
    pub fn changed(&self) {
        fence(Ordering::SeqCst);
        if self.resting.load(Ordering::Relaxed) {
            self.wake_all();
        }
    }

    /// Ends the present or next sleep of both threads.
    pub fn wake_all(&self) {
        self.resting.store(false, Ordering::Relaxed);
        self.storing.wake();
        self.syncing.wake();
    }

    /// Says that a thread is going to rest, until something changes.
    pub fn begin_rest(&self) {
        self.resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// Wakes one sleeping thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    woken: Mutex<bool>,
    signal: Condvar,
}

impl Signal {
    fn wake(&self) {
        *self.woken.lock() = true;
        self.signal.notify_one();
    }

    /// Sleeps until woken, `longest` at most.
    pub fn sleep(&self, longest: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.signal.wait_for(&mut woken, longest);
        }
        *woken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);

    /// Takes work up as the threads of a workspace do, until there were `wanted` pieces.
    fn take_work(wake: &Wake, signal: &Signal, work: &AtomicU64, wanted: u64) {
        let mut seen = 0;
        while seen < wanted {
            wake.begin_rest();
            if work.load(Ordering::Relaxed) == seen {
                signal.sleep(LONG);
            }
            seen = work.load(Ordering::Relaxed);
        }
    }

    #[test]
    fn no_change_is_slept_through() {
        const PIECES: u64 = 20_000;
        let (wake, work) = (Arc::new(Wake::default()), Arc::new(AtomicU64::new(0)));
        let started = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| take_work(&wake, &wake.storing, &work, PIECES));
            scope.spawn(|| take_work(&wake, &wake.syncing, &work, PIECES));
            for _ in 0..PIECES {
                work.fetch_add(1, Ordering::Relaxed);
                wake.changed();
            }
        });
        assert!(started.elapsed() < LONG, "a change was slept through");
    }

    #[test]
    fn what_wakes_before_the_sleep_ends_it() {
        let wake = Wake::default();
        wake.wake();
        wake.storing.sleep(LONG);
    }
}
