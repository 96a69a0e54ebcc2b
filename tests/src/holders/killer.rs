//! Kills the daemon beneath the steps at random moments, on a mount that outlives it.
//!
//! Never while a command runs: that would fail, as is promised, and what it had done by then nobody could say. Three
//! times in four not before the mount has answered: else a busy machine would see daemons that begin, and no steps.

use crate::env::Env;
use crate::rng::Rng;
use crate::wait;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time between two kills, in microseconds.
const PAUSE_US: u64 = 150_000;

/// What commands and the killer take turns with.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<()>>);

impl Turns {
    /// Nobody else's turn as long as the result lives.
    pub fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills until it is dropped.
pub struct Killer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Killer {
    /// Kills the daemons of `env`, in an order of its own for each seed, and counts.
    pub fn start(env: Arc<Env>, turns: Turns, seed: u64, kills: Arc<AtomicU64>) -> Killer {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            let mut rng = Rng::new(seed);
            while !ended.load(Ordering::Relaxed) {
                if rng.below(4) > 0 {
                    answers(&env.mountpoint());
                }
                wait::let_run(Duration::from_micros(rng.below(PAUSE_US)));
                let _turn = turns.take();
                kills.fetch_add(env.daemons().len() as u64, Ordering::Relaxed);
                env.strike_daemon();
            }
        });
        Killer {
            over,
            thread: Some(thread),
        }
    }
}

/// Waits until the mount answers what the kernel has to ask for. Panics where it does not in time.
fn answers(mountpoint: &Path) {
    let (done, answer) = mpsc::channel();
    let place = mountpoint.to_owned();
    std::thread::spawn(move || done.send(rustix::fs::statvfs(&place).is_ok()));
    let answered = answer.recv_timeout(wait::DEADLINE);
    assert!(answered.is_ok(), "the mount does not answer in time");
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Where it panicked, the steps say what went wrong.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
