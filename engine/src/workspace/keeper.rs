//! The background threads of a workspace, for all its branches.
//!
//! One stores (scan, import, commits, sealing) at low priority, one sees to it that no change waits
//! long for stable storage and that the disk's reserve is whole. Both look at each branch in turn, and rest while
//! there is nothing to do.

use crate::branch::Branch;
use crate::branch::wake::Wake;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between looks while something may become due.
const TICK: Duration = Duration::from_millis(500);
/// Longest rest where nothing changes: automatic commits expire meanwhile.
const REST: Duration = Duration::from_secs(600);
/// Time before something that could not be done is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// The branches of a workspace as its background threads see them.
pub(crate) type Branches = Arc<dyn Fn() -> Vec<Arc<Branch>> + Send + Sync>;

/// The running threads.
#[derive(Debug)]
pub(crate) struct Keeper {
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Keeper {
    /// Starts them.
    pub fn start(branches: Branches, wake: Arc<Wake>) -> Result<Keeper> {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.into())
                .spawn(work)
                .map_err(Error::io(name))
        };
        let (ended, asleep, all) = (stop.clone(), wake.clone(), branches.clone());
        let storing = move || {
            lower_priority();
            while !ended.load(Ordering::Relaxed) {
                let mut again = false;
                // Held one at a time: a deleted one's number is free once nobody holds it.
                let in_turn: Vec<_> = all().iter().map(Arc::downgrade).collect();
                for branch in in_turn.iter().filter_map(Weak::upgrade) {
                    again |= branch.storing_round();
                }
                let pause = match again {
                    true => RETRY,
                    false => pause(&asleep, &all),
                };
                asleep.storing.sleep(pause);
            }
        };
        let (ended, asleep) = (stop.clone(), wake.clone());
        let syncing = move || {
            let mut next = TICK;
            loop {
                asleep.syncing.sleep(next);
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let all = branches();
                all.iter().for_each(|b| b.sync_if_due());
                // They are all on the same disk.
                let whole = all.first().map(|b| b.storage.restore_reserve());
                if let Some(Err(e)) = &whole {
                    tracing::debug!("the reserve is not made whole: {e}");
                }
                next = match whole {
                    Some(Ok(true)) => pause(&asleep, &branches),
                    _ => TICK,
                };
            }
        };
        let threads = vec![
            spawn("storing", Box::new(storing))?,
            spawn("sync-timer", Box::new(syncing))?,
        ];
        Ok(Keeper {
            wake,
            stop,
            threads: Mutex::new(threads),
        })
    }

    /// Ends them. The branches were told to close before.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.wake_all();
        let own = std::thread::current().id();
        for t in std::mem::take(&mut *self.threads.lock()) {
            // A thread that lets go of the workspace last does not wait for itself.
            if t.thread().id() != own && t.join().is_err() {
                tracing::error!("a background thread had panicked");
            }
        }
    }
}

/// A workspace that is dropped without being closed leaves no threads.
impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How long a thread may sleep: long where no branch has anything that may become due.
fn pause(wake: &Wake, branches: &Branches) -> Duration {
    let at_rest = || branches().iter().all(|branch| branch.is_at_rest());
    if !at_rest() {
        return TICK;
    }
    wake.begin_rest();
    // Who changed something before that has woken nobody.
    if at_rest() { REST } else { TICK }
}

/// Background work yields to requests.
pub(crate) fn lower_priority() {
    let tid = rustix::thread::gettid();
    if let Err(e) = rustix::process::setpriority_process(Some(tid), 10) {
        tracing::debug!("a background thread keeps its priority: {e}");
    }
}
