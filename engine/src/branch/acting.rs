//! For whom this thread works: the thread or process whose request it carries out.
//!
//! Whoever takes a request from the kernel or from a client says so around it ([`acting_for`]). From which processes
//! that one descends is looked up only where it matters: while calls run at the same time ([`super::whose`]). So is
//! its name: while somebody follows the feed of the workspace ([`super::telling`]).
//!
//! Invariant: a thread acts for somebody only within the call that said so, also where that panics.

mod naming;

pub use naming::files_are_own;

use super::descent::of_thread;
use crate::feed::{FeedBackend, FeedWho};
use crate::record::call::Process;
use naming::{Named, name_of};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// Who asks, as whoever takes the request knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asking {
    /// The thread, or process; 0 where that is not known.
    pub thread: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When its request came.
    pub since: Option<Instant>,
    /// By which way.
    pub backend: FeedBackend,
    /// The thread executes nothing from the request's beginning until it is answered.
    pub waits: bool,
    /// Name of the thread, with NULs at its end, where whoever takes the request knows that, too.
    pub comm: [u8; 16],
}

impl From<u32> for Asking {
    fn from(thread: u32) -> Asking {
        Asking {
            thread,
            ..Asking::default()
        }
    }
}

impl Asking {
    fn named(&self) -> Option<Arc<Named>> {
        let end = self.comm.iter().position(|byte| *byte == 0);
        let name = self.comm.get(..end.unwrap_or(self.comm.len()))?;
        (!name.is_empty()).then(|| {
            let name = String::from_utf8_lossy(name);
            Arc::new(Named::new(self.thread, name.into()))
        })
    }

    /// Since when the thread waits for the answer.
    fn waits_since(&self) -> Option<Instant> {
        self.since.filter(|_| self.waits)
    }

    /// Its name, where that is known without asking the system.
    fn known(&self) -> Option<Arc<Named>> {
        let still = || naming::still(self.thread, self.waits_since()?);
        self.named().or_else(still)
    }
}

/// Somebody for whom a thread works.
struct Acting {
    asking: Asking,
    /// Its process and those that it descends from, once they were looked up.
    lineage: Option<Arc<[Process]>>,
    /// Its process and the name of that, once they were looked up.
    named: Option<Arc<Named>>,
}

thread_local! {
    static ACTING: RefCell<Option<Acting>> = const { RefCell::new(None) };
}

/// Carries out the request of a thread or process.
pub fn acting_for<R>(asking: impl Into<Asking>, work: impl FnOnce() -> R) -> R {
    let asking = asking.into();
    let acting = Acting {
        named: asking.known(),
        asking,
        lineage: None,
    };
    within(Some(acting), work)
}

/// The same for a process of which it is known from which others it descends, the nearest first.
pub fn acting_as<R>(lineage: &[Process], work: impl FnOnce() -> R) -> R {
    let acting = lineage.first().map(|process| Acting {
        asking: process.pid.into(),
        lineage: Some(lineage.into()),
        named: None,
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

impl Acting {
    fn is_somebody(&self) -> bool {
        self.asking.thread > 0
    }
}

/// Whether this thread works for somebody whose lineage was not looked up.
pub(super) fn is_unknown() -> bool {
    ACTING.with_borrow(|a| {
        a.as_ref()
            .is_some_and(|a| a.is_somebody() && a.lineage.is_none())
    })
}

/// Looks up the lineage. Reads files of the system: not under a lock.
pub(super) fn look_up() {
    let thread = ACTING.with_borrow(|a| a.as_ref().map(|a| a.asking.thread));
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

/// Whether this thread works for somebody whose name was not looked up.
pub(super) fn is_nameless() -> bool {
    ACTING.with_borrow(|a| {
        a.as_ref()
            .is_some_and(|a| a.is_somebody() && a.named.is_none())
    })
}

/// Looks up the name. Reads files of the system: not under a lock.
pub(super) fn find_name() {
    let asking = ACTING.with_borrow(|a| a.as_ref().map(|a| a.asking));
    let named = asking.map(|asking| name_of(asking.thread, asking.waits_since()));
    ACTING.with_borrow_mut(|a| {
        if let Some(acting) = a {
            acting.named = named;
        }
    });
}

/// Whoever asked for what this thread does has waited until now.
pub(super) fn waited_until(now: Instant) {
    ACTING.with_borrow(|a| {
        if let Some(Acting { asking, named, .. }) = a
            && let Some(named) = named
            && asking.waits_since().is_some()
        {
            named.waits(now);
        }
    });
}

/// Who asked for what this thread does, as far as it was looked up, and when.
pub(super) fn who() -> (FeedWho, Option<Instant>) {
    ACTING.with_borrow(|a| {
        let Some(Acting { asking, named, .. }) = a else {
            return Default::default();
        };
        let (pid, comm) = match named {
            Some(named) => (named.pid, named.comm.clone()),
            None => Default::default(),
        };
        let who = FeedWho {
            pid: match asking.backend {
                // It names the process, which may have ended by the time that it is told of.
                FeedBackend::Fanotify | FeedBackend::Ebpf => asking.thread,
                _ => pid,
            },
            uid: asking.uid,
            gid: asking.gid,
            comm,
            backend: asking.backend,
        };
        (who, asking.since)
    })
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

    #[test]
    fn the_name_is_looked_up_on_request() {
        let asking = Asking {
            uid: 7,
            backend: FeedBackend::Front,
            ..std::process::id().into()
        };
        acting_for(asking, || {
            assert!(is_nameless());
            assert_eq!(who().0.pid, 0);
            find_name();
            assert!(!is_nameless());
            assert_eq!((who().0.pid, who().0.uid), (std::process::id(), 7));
        });
        // No process has this number (PID_MAX_LIMIT in the kernel).
        let ended = u32::MAX;
        let heard = Asking {
            backend: FeedBackend::Fanotify,
            ..ended.into()
        };
        acting_for(heard, || {
            find_name();
            assert_eq!((who().0.pid, &*who().0.comm), (ended, ""));
        });
        assert_eq!(who().0, FeedWho::default());
    }
}
