//! The system calls that neither `std` nor `rustix` offers safely. All `unsafe` of this crate.

use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::io::{Error, Result};
use std::os::fd::{BorrowedFd, RawFd};

/// First descriptor after standard input, output and error (the log).
const AFTER_STANDARD: libc::c_uint = 3;

/// Gives the calling thread a file table of its own with nothing but standard input, output and error, and
/// `kept` if there is one.
///
/// From then on the thread must not use another descriptor that was opened elsewhere, and hand out none:
/// they are others there, or nothing. Fails where the kernel cannot do it (before Linux 5.9); nothing
/// has changed then.
pub fn leave_files(kept: Option<RawFd>) -> Result<()> {
    let kept = kept.and_then(|fd| libc::c_uint::try_from(fd).ok());
    let kept = kept.filter(|fd| *fd >= AFTER_STANDARD);
    let after = kept.map_or(AFTER_STANDARD, |fd| fd + 1);
    close_range(after, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    engine::files_are_own();
    match kept {
        // The table is this thread's own by now.
        Some(fd) if fd > AFTER_STANDARD => close_range(AFTER_STANDARD, fd - 1, 0),
        _ => Ok(()),
    }
}

/// Closes descriptors; for [`leave_files`] alone.
fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> Result<()> {
    // SAFETY: the call touches no memory. It closes nothing that another thread uses, as it first
    // copies the table, and this thread uses none of them any more, as the contract above says.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Writes one message to a descriptor that [`leave_files`] has kept in this thread's table.
///
/// # Errors
/// What write(2) says; `EBADF` where there is no such descriptor.
pub(crate) fn write_kept(fd: RawFd, message: &[u8]) -> std::result::Result<(), Errno> {
    // SAFETY: nothing closes it meanwhile: whoever waits for this thread has the same one open, and in a table of its
    // own the thread closes nothing.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::retry_on_intr(|| rustix::io::write(fd, message)).map(drop)
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
