//! Keeping processors awake while requests come fast.
//!
//! Waking a sleeping processor costs some 60 µs on a virtual machine, against 3 µs for a request
//! itself. Whoever holds `/dev/cpu_dma_latency` open with a 0 in it keeps idle processors from going
//! to sleep (kernel documentation, PM Quality of Service). That costs power, so it is held only while
//! requests come fast, by a thread that sleeps otherwise; it ends by itself when the daemon dies.
//! Where the device may not be opened nothing happens.

use crate::limits::{LATENCY_BURST, LATENCY_WINDOW};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::Thread;
use std::time::Instant;

/// What may be done for quick answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Latency {
    /// Keep processors awake while requests come fast.
    #[default]
    Low,
    /// Nothing.
    Normal,
}

/// The rate of requests, and the thread that is told when it is high.
#[derive(Debug)]
pub(crate) struct WakeUp {
    started: Instant,
    requests: AtomicU64,
    /// When the current burst of [`LATENCY_BURST`] requests began, in nanoseconds since `started`.
    burst_began: AtomicU64,
    holding: AtomicBool,
    ended: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl WakeUp {
    /// Starts the thread, if the device is there and may be opened.
    pub(crate) fn start(latency: Latency) -> Arc<WakeUp> {
        let wake_up = Arc::new(WakeUp {
            started: Instant::now(),
            requests: AtomicU64::new(0),
            burst_began: AtomicU64::new(0),
            holding: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        if latency == Latency::Low && hold().is_ok() {
            wake_up.start_thread();
        }
        wake_up
    }

    fn start_thread(self: &Arc<WakeUp>) {
        let holder = self.clone();
        let thread = std::thread::Builder::new()
            .name("fuse-latency".to_owned())
            .spawn(move || holder.run());
        match thread {
            Ok(thread) => *self.thread.lock() = Some(thread.thread().clone()),
            Err(error) => tracing::warn!(%error, "cannot start the latency thread"),
        }
    }

    /// Counts a request that came at `now`; every few of them, looks how fast they come.
    pub(crate) fn request(&self, now: Instant) {
        let count = self.requests.fetch_add(1, Relaxed);
        if !count.is_multiple_of(LATENCY_BURST) || self.holding.load(Relaxed) {
            return;
        }
        let now = now.saturating_duration_since(self.started).as_nanos() as u64;
        let began = self.burst_began.swap(now, Relaxed);
        if count > 0 && u128::from(now.saturating_sub(began)) < LATENCY_WINDOW.as_nanos() {
            self.call_thread();
        }
    }

    fn call_thread(&self) {
        if let Some(thread) = &*self.thread.lock() {
            self.holding.store(true, Relaxed);
            thread.unpark();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            thread.unpark();
        }
    }

    /// The thread: holds the device whenever called, until requests have ceased.
    fn run(&self) {
        while !self.ended.load(Relaxed) {
            if self.holding.load(Relaxed) {
                self.hold_while_busy();
                self.holding.store(false, Relaxed);
            } else {
                std::thread::park();
            }
        }
    }

    fn hold_while_busy(&self) {
        let held = hold();
        let mut seen = self.requests.load(Relaxed);
        while !self.ended.load(Relaxed) {
            std::thread::sleep(LATENCY_WINDOW);
            let now = self.requests.load(Relaxed);
            if now.wrapping_sub(seen) < LATENCY_BURST {
                break;
            }
            seen = now;
        }
        drop(held);
    }
}

/// Opens the device and asks for no latency at all; that lasts until the file is closed.
fn hold() -> std::io::Result<File> {
    let mut device = OpenOptions::new()
        .write(true)
        .open("/dev/cpu_dma_latency")?;
    device.write_all(&0i32.to_ne_bytes())?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn slow_requests_never_call_the_thread() {
        let wake_up = WakeUp::start(Latency::Normal);
        let start = wake_up.started;
        *wake_up.thread.lock() = Some(std::thread::current());
        for i in 0..200 {
            wake_up.request(start + Duration::from_millis(5 * i));
        }
        assert!(!wake_up.holding.load(Relaxed));
    }

    #[test]
    fn fast_requests_call_the_thread() {
        let wake_up = WakeUp::start(Latency::Normal);
        let start = wake_up.started;
        *wake_up.thread.lock() = Some(std::thread::current());
        for i in 0..200 {
            wake_up.request(start + Duration::from_micros(100 * i));
        }
        assert!(wake_up.holding.load(Relaxed));
    }
}
