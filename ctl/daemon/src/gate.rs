//! Who may still come in, and whether the daemon is to end: asked to, or idle.
//!
//! Invariant: a request is either carried out by a daemon that goes on, or answered with "ending",
//! never begun by one that is about to exit. The gate decides that under one lock.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long nothing must have been mounted or asked before the daemon ends.
const IDLE: Duration = Duration::from_secs(2);

/// How often mounts are looked after though nothing happened.
const ROUND: Duration = Duration::from_secs(5);

/// Counts requests in progress and keeps new ones out when the daemon ends.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<Usage>,
    changed: Condvar,
}

#[derive(Debug)]
struct Usage {
    active: usize,
    quiet_since: Instant,
    end_asked: bool,
    /// The mounts stay, for another daemon.
    handed_over: bool,
    shut: bool,
}

/// A request in progress.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.active -= 1;
        state.quiet_since = Instant::now();
        self.0.changed.notify_all();
    }
}

impl Gate {
    /// An open gate.
    pub fn new() -> Gate {
        let state = Usage {
            active: 0,
            quiet_since: Instant::now(),
            end_asked: false,
            handed_over: false,
            shut: false,
        };
        Gate {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Lets a request in; `None` once the daemon is ending.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state.lock();
        if state.shut {
            return None;
        }
        state.active += 1;
        Some(Pass(self))
    }

    /// Asks the daemon to end.
    pub fn ask_end(&self) {
        self.state.lock().end_asked = true;
        self.changed.notify_all();
    }

    /// Asks the daemon to end and to leave its mounts to another one.
    pub fn ask_hand_over(&self) {
        self.state.lock().handed_over = true;
        self.ask_end();
    }

    /// Whether the mounts are left to another daemon.
    pub fn is_handed_over(&self) -> bool {
        self.state.lock().handed_over
    }

    /// Has the mounts looked after now.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Shuts the gate if the daemon was asked to end, or if nothing was asked for [`IDLE`] and
    /// `is_unused` says that nothing needs the daemon.
    pub fn shut_if_done(&self, is_unused: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock();
        let idle = state.active == 0 && state.quiet_since.elapsed() >= IDLE;
        state.shut = state.end_asked || (idle && is_unused());
        state.shut
    }

    /// Waits until something may have changed.
    pub fn wait(&self, is_unused: bool) {
        let mut state = self.state.lock();
        if state.end_asked {
            return;
        }
        let idle = IDLE.saturating_sub(state.quiet_since.elapsed()) + Duration::from_millis(1);
        let most = if is_unused && state.active == 0 {
            idle
        } else {
            ROUND
        };
        self.changed.wait_for(&mut state, most);
    }

    /// Waits until no request is in progress, for so long at most.
    pub fn wait_quiet(&self, most: Duration) {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, |state| state.active > 0, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_stays_open_while_a_request_is_in_progress() {
        let gate = Gate::new();
        gate.state.lock().quiet_since -= IDLE;
        let pass = gate.enter().unwrap();
        assert!(!gate.shut_if_done(|| true));
        drop(pass);
        assert!(!gate.shut_if_done(|| true), "a request just ended");
    }

    #[test]
    fn idle_gate_shuts_and_keeps_requests_out() {
        let gate = Gate::new();
        gate.state.lock().quiet_since -= IDLE;
        assert!(!gate.shut_if_done(|| false));
        assert!(gate.enter().is_some());
        gate.state.lock().quiet_since -= IDLE;
        assert!(gate.shut_if_done(|| true));
        assert!(gate.enter().is_none());
    }

    #[test]
    fn asked_to_end_it_shuts_at_once() {
        let gate = Gate::new();
        let _pass = gate.enter().unwrap();
        gate.ask_end();
        gate.wait(false);
        assert!(gate.shut_if_done(|| false));
    }
}
