//! What tests of limits measure by.

use agentvfs_programs::ProgramEvent;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A write to a file that is asked about.
pub fn event() -> ProgramEvent<'static> {
    ProgramEvent {
        op: "write",
        path: b"src/my-long-name/node-gyp-build.lock",
        backend: "fuse",
        ..ProgramEvent::default()
    }
}

/// Processor time of this thread.
pub fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
