//! The clock that file times come from.

use crate::types::Time;
use rustix::time::{ClockId, clock_gettime};

/// The present moment.
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Realtime);
    Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec as u32,
    }
}
