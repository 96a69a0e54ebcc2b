//! The system calls that neither `std` nor `rustix` offers safely. All `unsafe` of this crate.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Closes every descriptor from `first` on.
///
/// For a process that was just started: descriptors that a shell left open would keep its pipes
/// open for as long as the process lives. Nothing in this process may own one of them.
pub fn close_from(first: u32) {
    // SAFETY: closing a descriptor touches no memory. The caller owns none of them, as the contract
    // above says, so no object is left with a closed descriptor.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result != 0 {
        close_listed(first);
    }
}

/// The same for kernels before 5.9, which have no close_range(2).
fn close_listed(first: u32) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd: &i32| u32::try_from(*fd).is_ok_and(|fd| fd >= first))
        .collect();
    for fd in open {
        // SAFETY: as above; the listing's own descriptor is closed already, EBADF is harmless.
        unsafe { libc::close(fd) };
    }
}

/// Signals that end the daemon in good order, and SIGHUP, which does not.
const HANDLED: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn handled_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises all of the set before anything reads it; both calls get a
    // valid pointer to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in HANDLED {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Which signals a thread has blocked.
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Has a command begin with these blocked and no others.
    pub fn give_to(self, command: &mut Command) {
        let restore = move || {
            let code =
                // SAFETY: the set is initialised and outlives the call; a null pointer for the old set
                // is allowed.
                unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
            done(code)
        };
        // SAFETY: after fork(2) the closure calls nothing but pthread_sigmask, which is safe in a signal
        // handler (signal-safety(7)), and makes an error without allocating.
        unsafe { command.pre_exec(restore) };
    }
}

/// Has a command be killed when the thread that starts it ends, however that ends.
pub fn end_with_this(command: &mut Command) {
    let parent = std::process::id();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        match now {
            Some(now) if u32::try_from(now) == Ok(parent) => Ok(()),
            // It ended before it was bound.
            _ => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    };
    // SAFETY: after fork(2) the closure calls nothing but prctl and getppid, which are safe in a signal handler
    // (signal-safety(7)), and makes errors without allocating.
    unsafe { command.pre_exec(bind) };
}

/// Blocks SIGTERM, SIGINT and SIGHUP in this thread and those that it starts from now on, so that
/// [`wait_for_end`] or [`wait_signal`] alone receives them. Gives what was blocked before: programs
/// that are started inherit what is blocked.
pub fn block_signals() -> io::Result<SignalMask> {
    let set = handled_set();
    let mut before = handled_set();
    // SAFETY: both sets are initialised and outlive the call.
    done(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) })?;
    Ok(SignalMask(before))
}

/// Has an abort end the process as SIGKILL does, in place of a core dump. Before one is written the kernel waits for all
/// threads of the process to end, and one may wait for an answer of a mount that only this process would give: neither
/// would ever come, while the device stays open (core(5); `do_coredump` in fs/coredump.c).
///
/// # Errors
/// What sigaction(2) says.
pub fn abort_without_dump() -> io::Result<()> {
    extern "C" fn end(_: libc::c_int) {
        // SAFETY: both calls touch no memory and are safe in a signal handler (signal-safety(7)).
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let handler: extern "C" fn(libc::c_int) = end;
    // SAFETY: all fields of the structure may be zero: no flags, no signal blocked meanwhile.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the structure is initialised and outlives the call; the handler does only what a handler may.
    match unsafe { libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a call that returns an error number says.
fn done(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Waits until the process is asked to end (SIGTERM, SIGINT); a hang-up of a terminal is no such
/// request. The signals must be blocked.
pub fn wait_for_end() {
    loop {
        let signal = wait_signal();
        if signal != libc::SIGHUP {
            return;
        }
    }
}

/// Waits for SIGTERM, SIGINT or SIGHUP, and gives its number. The signals must be blocked.
pub fn wait_signal() -> i32 {
    let set = handled_set();
    let mut signal = 0;
    // SAFETY: both pointers are to initialised locals that outlive the call.
    while unsafe { libc::sigwait(&set, &mut signal) } != 0 {}
    signal
}

/// An event of fanotify(7).
pub struct Heard {
    /// The kernel's queue was full: events are missing.
    pub is_overflow: bool,
    /// A file was opened.
    pub is_open: bool,
    /// To be executed.
    pub is_exec: bool,
    /// A file was read.
    pub is_read: bool,
    /// A file is about to be opened, and the program waits for [`fanotify_answer`].
    pub is_question: bool,
    /// The process.
    pub pid: u32,
    /// The file; none of an overflow.
    pub file: Option<OwnedFd>,
}

/// Bytes of events that are read at once.
const HEARD_BYTES: usize = 4096;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Hearing of opens and reads that have happened.
    Told,
    /// Being asked before a file is opened.
    Asked,
}

impl Queue {
    fn class(self) -> libc::c_uint {
        match self {
            Queue::Told => libc::FAN_CLASS_NOTIF,
            Queue::Asked => libc::FAN_CLASS_CONTENT,
        }
    }

    fn events(self) -> u64 {
        match self {
            Queue::Told => libc::FAN_OPEN | libc::FAN_OPEN_EXEC | libc::FAN_ACCESS,
            Queue::Asked => libc::FAN_OPEN_PERM,
        }
    }
}

/// A queue for events of fanotify, whose files are opened to be read. If it is closed, all that is asked is allowed.
///
/// # Errors
/// What fanotify_init(2) says: `EPERM` for whoever lacks CAP_SYS_ADMIN.
pub fn fanotify(of: Queue) -> io::Result<OwnedFd> {
    let flags = of.class() | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    let files = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOATIME;
    // SAFETY: the call touches no memory of ours.
    let fd = unsafe { libc::fanotify_init(flags, files as libc::c_uint) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has `queue` get events of the file system that `path` is in, whatever shows it.
pub fn fanotify_mark(queue: &OwnedFd, of: Queue, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    let (queue, here) = (queue.as_raw_fd(), libc::AT_FDCWD);
    // SAFETY: the path is a string with an end, which the kernel only reads.
    match unsafe { libc::fanotify_mark(queue, flags, of.events(), here, path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The events that there are, as many as come at once.
pub fn fanotify_read(queue: &OwnedFd) -> io::Result<Vec<Heard>> {
    let mut bytes = [0u8; HEARD_BYTES];
    let len = rustix::io::read(queue, &mut bytes)?;
    let mut all = Vec::new();
    let mut rest = bytes.get(..len).unwrap_or_default();
    while let Some(first) = rest.get(..size_of::<libc::fanotify_event_metadata>()) {
        // SAFETY: so many bytes are there, and each pattern of bits is a value of this type; it need not be aligned.
        let event: libc::fanotify_event_metadata =
            unsafe { std::ptr::read_unaligned(first.as_ptr().cast()) };
        // SAFETY: the kernel has opened the file for this event, and nobody else knows the descriptor.
        let file = (event.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.fd) });
        all.push(Heard {
            is_overflow: event.mask & libc::FAN_Q_OVERFLOW != 0,
            is_open: event.mask & libc::FAN_OPEN != 0,
            is_exec: event.mask & libc::FAN_OPEN_EXEC != 0,
            is_read: event.mask & libc::FAN_ACCESS != 0,
            is_question: event.mask & libc::FAN_OPEN_PERM != 0,
            pid: u32::try_from(event.pid).unwrap_or_default(),
            file,
        });
        let next = usize::try_from(event.event_len).unwrap_or(usize::MAX);
        rest = rest.get(next.max(first.len())..).unwrap_or_default();
    }
    Ok(all)
}

/// Answers whether the file of a question may be opened.
pub fn fanotify_answer(queue: &OwnedFd, file: &OwnedFd, is_allowed: bool) -> io::Result<()> {
    let said = if is_allowed {
        libc::FAN_ALLOW
    } else {
        libc::FAN_DENY
    };
    // `struct fanotify_response`.
    let fd = file.as_raw_fd().to_ne_bytes();
    let answer = [fd, said.to_ne_bytes()].concat();
    rustix::io::write(queue, &answer)?;
    Ok(())
}

/// `struct file_handle` (open_by_handle_at(2)) with room for what FUSE says.
#[repr(C)]
struct FileHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    words: [u32; FUSE_HANDLE_WORDS],
}

/// A node's number in two halves, and its generation (`fuse_encode_fh` in the kernel's fs/fuse/inode.c).
const FUSE_HANDLE_WORDS: usize = 3;

/// Kind of such a handle (`FILEID_INO64_GEN` in linux/exportfs.h).
const FUSE_HANDLE: libc::c_int = 0x81;

/// Asks for a handle that only identifies (Linux 6.5), which is there for each file system.
const AT_HANDLE_FID: libc::c_int = 0x200;

/// Number of the node of a file in a FUSE mount. The mount is not asked.
pub fn fuse_node(file: &OwnedFd) -> Option<u64> {
    let mut handle = FileHandle {
        bytes: (FUSE_HANDLE_WORDS * size_of::<u32>()) as libc::c_uint,
        kind: 0,
        words: [0; FUSE_HANDLE_WORDS],
    };
    let mut mount: libc::c_int = 0;
    let flags = libc::AT_EMPTY_PATH | AT_HANDLE_FID;
    // SAFETY: the path is empty and has an end; the handle has the room that its first field says, and both pointers are
    // valid while the call lasts.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags,
        )
    };
    let [high, low, _] = handle.words;
    let is_whole = result == 0 && handle.kind == FUSE_HANDLE;
    is_whole.then_some(u64::from(high) << 32 | u64::from(low))
}

/// Takes over a descriptor that [`fuse_front::leave_files`] has kept in this thread's table: in it nobody else uses it.
pub fn only_here(kept: RawFd) -> OwnedFd {
    // SAFETY: the table is this thread's own, so whatever owns the same number elsewhere owns another descriptor.
    unsafe { OwnedFd::from_raw_fd(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn dup_to(fd: i32) {
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the target number is used by nobody else in this test process.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), fd) }, fd);
    }

    fn is_open(fd: i32) -> bool {
        // SAFETY: F_GETFD touches no memory.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn close_from_closes_what_lies_above() {
        dup_to(900);
        close_from(900);
        assert!(!is_open(900));
        dup_to(901);
        close_listed(901);
        assert!(!is_open(901));
    }

    #[test]
    fn hang_up_does_not_end_the_wait() {
        let waiter = std::thread::spawn(|| {
            block_signals().unwrap();
            // SAFETY: raise(3) touches no memory; both signals are blocked in this thread, which
            // they are sent to.
            unsafe {
                libc::raise(libc::SIGHUP);
                libc::raise(libc::SIGTERM);
            }
            wait_for_end();
        });
        waiter.join().unwrap();
    }
}
