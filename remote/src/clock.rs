//! Time, as what works with a remote knows it: a trait, so that a test can let days pass.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A clock and a way to wait.
pub trait Clock: Send + Sync + Debug {
    /// Seconds since 1970.
    fn now(&self) -> i64;

    /// Returns after about this time.
    fn pause(&self, time: Duration);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that goes on only when it is told to, or when somebody waits.
#[derive(Debug, Default)]
pub struct SimulatedClock(AtomicI64);

impl SimulatedClock {
    /// A clock that begins at a moment.
    pub fn at(seconds: i64) -> SimulatedClock {
        SimulatedClock(AtomicI64::new(seconds))
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn pause(&self, time: Duration) {
        self.pass(time.as_secs() as i64);
    }
}
