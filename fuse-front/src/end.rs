//! The end of a mount's session, and those who want to know of it.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// What is called when a mount has ended.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// Whether the session has ended, and who wants to know.
#[derive(Default)]
pub(crate) struct End {
    state: Mutex<EndState>,
    changed: Condvar,
}

#[derive(Default)]
struct EndState {
    ended: bool,
    callbacks: Vec<Callback>,
}

impl End {
    pub(crate) fn is_reached(&self) -> bool {
        self.state.lock().ended
    }

    /// Tells everybody, once.
    pub(crate) fn reach(&self) {
        let callbacks = {
            let mut state = self.state.lock();
            state.ended = true;
            std::mem::take(&mut state.callbacks)
        };
        self.changed.notify_all();
        callbacks.into_iter().for_each(|callback| callback());
    }

    /// Calls `callback` when it is reached; at once, if it is already.
    pub(crate) fn when_reached(&self, callback: Callback) {
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            return callback();
        }
        state.callbacks.push(callback);
    }

    pub(crate) fn wait(&self, at_most: Duration) {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, |state| !state.ended, at_most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn the_end_is_told_once_and_at_once_afterwards() {
        let (end, told) = (End::default(), Arc::new(AtomicUsize::new(0)));
        let tell = |told: &Arc<AtomicUsize>| -> Callback {
            let told = told.clone();
            Box::new(move || {
                told.fetch_add(1, SeqCst);
            })
        };
        end.when_reached(tell(&told));
        assert!(!end.is_reached());
        end.reach();
        assert_eq!(told.load(SeqCst), 1);
        end.when_reached(tell(&told));
        assert_eq!(told.load(SeqCst), 2);
        end.wait(Duration::ZERO);
    }
}
