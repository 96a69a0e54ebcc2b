//! For whom this thread works: the thread or process whose request it carries out.
//!
//! Whoever takes a request from the kernel or from a client says so around it ([`acting_for`]). From which processes
//! that one descends is looked up only where it matters: while calls run at the same time ([`super::whose`]).
//!
//! Invariant: a thread acts for somebody only within the call that said so, also where that panics.

use super::descent::of_thread;
use crate::record::call::Process;
use std::cell::RefCell;
use std::sync::Arc;

/// Somebody for whom a thread works.
struct Acting {
    thread: u32,
    /// Its process and those that it descends from, once they were looked up.
    lineage: Option<Arc<[Process]>>,
}

thread_local! {
    static ACTING: RefCell<Option<Acting>> = const { RefCell::new(None) };
}

/// Carries out the request of a thread or process; 0 where that is not known.
pub fn acting_for<R>(thread: u32, work: impl FnOnce() -> R) -> R {
    let acting = (thread > 0).then_some(Acting {
        thread,
        lineage: None,
    });
    within(acting, work)
}

/// The same for a process of which it is known from which others it descends, the nearest first.
pub fn acting_as<R>(lineage: &[Process], work: impl FnOnce() -> R) -> R {
    let acting = lineage.first().map(|process| Acting {
        thread: process.pid,
        lineage: Some(lineage.into()),
    });
    within(acting, work)
}

fn within<R>(acting: Option<Acting>, work: impl FnOnce() -> R) -> R {
    let _back = Back(ACTING.replace(acting));
    work()
}

/// Puts back who it was before.
struct Back(Option<Acting>);

impl Drop for Back {
    fn drop(&mut self) {
        ACTING.set(self.0.take());
    }
}

/// Whether this thread works for somebody whose lineage was not looked up.
pub(super) fn is_unknown() -> bool {
    ACTING.with_borrow(|a| a.as_ref().is_some_and(|a| a.lineage.is_none()))
}

/// Looks up the lineage. Reads files of the system: not under a lock.
pub(super) fn look_up() {
    let thread = ACTING.with_borrow(|a| a.as_ref().map(|a| a.thread));
    let lineage = thread.map(of_thread);
    ACTING.with_borrow_mut(|a| {
        if let Some(acting) = a {
            acting.lineage = lineage;
        }
    });
}

/// The process that this thread works for and those that it descends from, where that was looked up.
pub(super) fn lineage() -> Option<Arc<[Process]>> {
    ACTING.with_borrow(|a| a.as_ref().and_then(|a| a.lineage.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_it_is_ends_with_the_request_also_where_that_panics() {
        let process = |pid| Process {
            pid,
            started: 1,
            boot: 1,
        };
        let first = |l: Option<Arc<[Process]>>| l.and_then(|l| l.first().map(|p| p.pid));
        acting_as(&[process(1)], || {
            let inner =
                std::panic::catch_unwind(|| acting_as(&[process(2)], || panic!("on purpose")));
            assert!(inner.is_err());
            assert_eq!(first(lineage()), Some(1));
            acting_for(0, || assert_eq!((is_unknown(), lineage()), (false, None)));
            acting_for(std::process::id(), || {
                assert!(is_unknown());
                look_up();
                assert_eq!(first(lineage()), Some(std::process::id()));
            });
        });
        assert_eq!((is_unknown(), lineage()), (false, None));
    }
}
