//! Waking the background threads of a workspace: a branch has work for them.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Wakes a sleeping thread.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    woken: Mutex<bool>,
    signal: Condvar,
}

impl Wake {
    /// Lets the next (or present) sleep end.
    pub fn wake(&self) {
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
