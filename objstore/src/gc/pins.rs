//! Work in progress that gc waits for: who puts objects and only later makes something refer to them.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Pins by epoch: gc begins a new one and waits for those of the old one to end.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    state: Mutex<Epochs>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Epochs {
    epoch: usize,
    open: [usize; 2],
}

/// While it lives, gc takes nothing that was put or found since it was made. Pins may be nested.
#[derive(Debug)]
#[must_use = "gc may take what was put as soon as the pin is gone"]
pub struct Pin<'a> {
    pins: &'a Pins,
    epoch: usize,
}

impl Pins {
    pub fn pin(&self) -> Pin<'_> {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        state.open[epoch] += 1;
        Pin { pins: self, epoch }
    }

    /// Waits for all pins that were made before the call; false where `stopped` says so first.
    pub fn wait_for_older(&self, stopped: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        // Those of the epoch before the present one, should an earlier wait have been given up.
        let before = 1 - state.epoch;
        for epoch in [before, 1 - before] {
            if epoch != before {
                state.epoch = before;
            }
            while state.open[epoch] > 0 {
                if stopped() {
                    return false;
                }
                self.ended.wait_for(&mut state, Duration::from_millis(100));
            }
        }
        true
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pins.state.lock().open[self.epoch] -= 1;
        self.pins.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn older_pins_are_waited_for_and_younger_ones_are_not() {
        let pins = Pins::default();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let old = pins.pin();
            let waiter = scope.spawn(|| {
                let ended = pins.wait_for_older(&|| false);
                done.store(true, Ordering::SeqCst);
                ended
            });
            while pins.state.lock().epoch == 0 {
                std::thread::yield_now();
            }
            let young = pins.pin();
            let nested = pins.pin();
            assert!(!done.load(Ordering::SeqCst));
            drop(old);
            assert!(waiter.join().unwrap());
            drop((young, nested));
        });
    }

    #[test]
    fn a_wait_that_was_given_up_is_made_good_by_the_next() {
        let pins = Pins::default();
        let old = pins.pin();
        assert!(!pins.wait_for_older(&|| true));
        assert!(!pins.wait_for_older(&|| true), "it is still there");
        drop(old);
        assert!(pins.wait_for_older(&|| true));
    }
}
