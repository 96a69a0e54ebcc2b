//! Shared mappings, locks on ranges, leases, fanotify, filters of system calls: the one place with `unsafe` code.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A shared, writable mapping of a whole number of pages of a file.
pub struct Mapping {
    start: *mut AtomicU64,
    pages: usize,
}

// SAFETY: the mapping belongs to the value and is only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics may be used by several threads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `pages` pages of `file`, which must be that long and opened for both.
    pub fn new(file: &File, pages: usize) -> io::Result<Mapping> {
        assert!(pages > 0);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else is touched.
        let start = unsafe { mmap(ptr::null_mut(), pages * PAGE, prot, flags, file, 0)? };
        Ok(Mapping {
            start: start.cast(),
            pages,
        })
    }

    /// Pages of it.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The first eight bytes of a page. Touching it where the file has become shorter is SIGBUS.
    pub fn word(&self, page: usize) -> &AtomicU64 {
        assert!(page < self.pages);
        // SAFETY: inside the mapping, which lives as long as `self`; a page is aligned for it, and
        // any bytes are a number. Other processes change it, which is what atomics are for.
        unsafe { &*self.start.byte_add(page * PAGE) }
    }

    /// Writes `len` bytes from `start` of the mapping to another file, which has to bring them in as it goes.
    pub fn write_to(&self, file: &File, start: usize, len: usize) -> io::Result<usize> {
        assert!(start + len <= self.pages * PAGE);
        // SAFETY: an open descriptor, and bytes inside the mapping, which lives as long as `self`.
        let wrote = unsafe {
            let from = self.start.byte_add(start).cast();
            libc::write(file.as_raw_fd(), from, len)
        };
        usize::try_from(wrote).map_err(|_| io::Error::last_os_error())
    }

    /// [`Mapping::word`] as it is now.
    pub fn get(&self, page: usize) -> u64 {
        self.word(page).load(Ordering::SeqCst)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this very mapping, of which no reference is left.
        let done = unsafe { munmap(self.start.cast(), self.pages * PAGE) };
        debug_assert!(done.is_ok());
    }
}

/// A lock of fcntl(2) on a range of a file.
#[derive(Debug, Clone, Copy)]
pub struct RangeLock {
    /// It belongs to the open file (`F_OFD_SETLK`), not to the process (`F_SETLK`).
    pub of_open_file: bool,
    /// No other may be there, not even a shared one.
    pub exclusive: bool,
    /// First byte.
    pub start: i64,
    /// Bytes; 0 for all that follow.
    pub len: i64,
}

/// Takes a lock, or fails at once where another is in its way.
pub fn try_lock(file: &File, lock: RangeLock) -> io::Result<()> {
    let kind = match lock.exclusive {
        true => libc::F_WRLCK,
        false => libc::F_RDLCK,
    };
    let wanted = libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: lock.start,
        l_len: lock.len,
        l_pid: 0,
    };
    let command = match lock.of_open_file {
        true => libc::F_OFD_SETLK,
        false => libc::F_SETLK,
    };
    // SAFETY: an open descriptor, and a structure of the type that this command reads.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &wanted) })
}

/// Takes a lease on a file that is open for reading alone (`F_SETLEASE` with `F_RDLCK`). Its break is
/// told by a signal that is ignored by default.
pub fn take_read_lease(file: &File) -> io::Result<()> {
    // SAFETY: an open descriptor, and a number.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    // SAFETY: an open descriptor, and a number.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) })
}

/// Which signal tells of a broken lease (asm-generic/fcntl.h).
const F_SETSIG: i32 = 10;

/// Watches the whole mount at `path` with fanotify(7) for writes. Root only.
pub fn watch_mount(path: &Path) -> io::Result<OwnedFd> {
    let kind = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    // SAFETY: numbers alone; what it returns is a new descriptor or -1.
    let raw = unsafe { libc::fanotify_init(kind, libc::O_RDONLY as u32) };
    checked(raw)?;
    // SAFETY: a new descriptor that nobody else owns.
    let watch = unsafe { OwnedFd::from_raw_fd(raw) };
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT;
    // SAFETY: an open descriptor, numbers, and a path that ends in NUL and outlives the call.
    checked(unsafe {
        libc::fanotify_mark(raw, flags, libc::FAN_MODIFY, libc::AT_FDCWD, path.as_ptr())
    })?;
    Ok(watch)
}

/// Whether process `pid` has written since the last time; takes what was heard.
pub fn heard_a_write(watch: &OwnedFd, pid: u32) -> io::Result<bool> {
    // An event (linux/fanotify.h): length, version, mask at byte 8, descriptor at 16, process at 20.
    const EVENT: usize = 24;
    let mut buffer = [0; 64 * EVENT];
    let count = match rustix::io::read(watch, &mut buffer) {
        Err(rustix::io::Errno::AGAIN) => 0,
        read => read?,
    };
    let mut heard = false;
    for event in buffer[..count].chunks_exact(EVENT) {
        let number = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| event[at + i]));
        // SAFETY: the kernel has opened it for us with this event; nobody else owns it.
        drop(unsafe { OwnedFd::from_raw_fd(number(16)) });
        heard |= number(20) == pid as i32;
    }
    Ok(heard)
}

/// Newest ABI of Landlock that the kernel has; below 1: none.
pub fn landlock_abi() -> i32 {
    const VERSION: libc::c_uint = 1;
    let none = ptr::null::<libc::c_void>();
    // SAFETY: asked for its version (landlock_create_ruleset(2)), the kernel takes no attributes.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    i32::try_from(abi).unwrap_or(0)
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread a working directory of its own, which /proc does not show with its process.
pub fn leave_working_directory() -> io::Result<()> {
    // SAFETY: the flag concerns working directory, root and umask; descriptors and memory stay shared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.map_err(Into::into)
}

/// Has a system call fail with ENOSYS from now on, in this process and those that it starts.
pub fn without_call(call: libc::c_long) -> io::Result<()> {
    // Offset of the call's number in struct seccomp_data (seccomp(2)).
    const NR: u32 = 0;
    let of = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        of(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NR),
        of(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ),
        of(ret, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        of(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the calls have no pointers but the program, which outlives them, as does its filter.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, mode, &program),
        ]
    };
    match results {
        [0, 0] => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_one_file_share_their_words() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE as u64).unwrap();
        let one = Mapping::new(&file, 2).unwrap();
        let other = Mapping::new(&file, 2).unwrap();
        one.word(1).store(7, Ordering::SeqCst);
        assert_eq!((other.get(0), other.get(1)), (0, 7));
        assert_eq!(other.word(1).fetch_add(1, Ordering::SeqCst), 7);
        assert_eq!(one.get(1), 8);
    }
}
