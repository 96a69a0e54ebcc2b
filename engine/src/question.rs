//! What must be found out before a change can be judged, and what was found out ([`crate::judge`]).
//!
//! Invariant: a question is asked while no lock of the engine is held.
//!
//! Tests: `engine/tests/judging/asking.rs`.

use std::any::Any;
use std::fmt::{self, Debug};

/// What must be found out before a change is judged, without any lock.
pub trait Question: Debug + Send + Sync {
    /// Finds it out. May take some time, and never fails.
    fn ask(self: Box<Self>) -> Heard;
}

/// What was found out; the bench that put the question knows what it is.
pub struct Heard(pub Box<dyn Any + Send>);

impl Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Heard")
    }
}
