//! The system calls that neither `std` nor `rustix` offers safely. All `unsafe` of this crate.

use rustix::thread::UnshareFlags;
use std::io::{Error, Result};

/// First descriptor after standard input, output and error (the log).
const AFTER_STANDARD: libc::c_uint = 3;

/// Gives the calling thread a file table of its own with nothing but standard input, output and error.
///
/// From then on the thread must not use a descriptor that was opened elsewhere, and hand out none:
/// they are others there, or nothing. Fails where the kernel cannot do it (before Linux 5.9); nothing
/// has changed then.
pub fn leave_files() -> Result<()> {
    // SAFETY: the call touches no memory. It closes nothing that another thread uses, as it first
    // copies the table, and this thread uses none of them any more, as the contract above says.
    let code = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            AFTER_STANDARD,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: the call touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(4096)
}

/// Gives the calling thread mounts of its own, a copy of the process's, with a working directory of its own.
/// They end with the thread.
pub(crate) fn leave_mounts() -> Result<()> {
    // SAFETY: the flag concerns paths alone: descriptors stay shared, which is all that memory safety rests on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(Error::from)
}
