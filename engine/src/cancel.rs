//! Cancelling a piece of work before its point of no return.
//!
//! Invariant: whoever cancels and the work itself meet in one atomic, so either the work ends and leaves
//! nothing, or it passes the point and is done to its end; never both.

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const GOING: u8 = 0;
const CANCELLED: u8 = 1;
const DECIDED: u8 = 2;

/// Shared by a piece of work and by whoever may cancel it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

impl Cancel {
    /// For work that nobody has cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Has the work end; false where it is past its point of no return and goes on.
    pub fn cancel(&self) -> bool {
        self.turn(CANCELLED)
    }

    /// True once the work is to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) == CANCELLED
    }

    /// [`Error::Cancelled`] once the work is to end.
    pub fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// The work passes its point of no return, unless it is cancelled.
    pub fn decide(&self) -> Result<()> {
        match self.turn(DECIDED) {
            true => Ok(()),
            false => Err(Error::Cancelled),
        }
    }

    /// True where it is so now, or was before.
    fn turn(&self, to: u8) -> bool {
        let turned = self
            .0
            .compare_exchange(GOING, to, Ordering::AcqRel, Ordering::Acquire);
        turned.map_or_else(|now| now == to, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_cancelled_or_done_never_both() {
        let cancel = Cancel::new();
        assert!(cancel.check().is_ok());
        assert!(cancel.cancel() && cancel.clone().is_cancelled() && cancel.cancel());
        assert!(matches!(cancel.check(), Err(Error::Cancelled)));
        assert!(matches!(cancel.decide(), Err(Error::Cancelled)));
        let cancel = Cancel::new();
        cancel.decide().unwrap();
        assert!(!cancel.cancel() && cancel.check().is_ok() && cancel.decide().is_ok());
    }

    #[test]
    fn one_of_two_who_meet_wins() {
        for _ in 0..200 {
            let cancel = Cancel::new();
            let (stopped, decided) = std::thread::scope(|scope| {
                let stop = scope.spawn(|| cancel.cancel());
                let decided = cancel.decide().is_ok();
                (stop.join().unwrap(), decided)
            });
            assert_ne!(stopped, decided);
        }
    }
}
