//! The system calls that neither `std` nor `rustix` offers safely. All `unsafe` of this crate.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

fn done(result: libc::c_long) -> rustix::io::Result<i32> {
    match i32::try_from(result) {
        Ok(value) if value >= 0 => Ok(value),
        _ => Err(last()),
    }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Copies this process, which must have one thread, into new namespaces: `namespaces` are flags of clone(2). `None` in
/// the copy, which must never return to its caller's caller: it ends by [`exit`].
pub fn clone_into(namespaces: i32) -> rustix::io::Result<Option<Pid>> {
    let flags = namespaces | libc::SIGCHLD;
    // SAFETY: without CLONE_VM and with a null stack the call is a fork(2): the copy has memory of its own and goes
    // on here. No other thread exists (the caller has checked), so no lock is held that nobody would release.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    Ok(Pid::from_raw(done(result)?))
}

/// The same, and the copy is in the control group whose directory is `group` from its beginning. To move a process later
/// waits until no processor is about to start one (`cgroup_threadgroup_rwsem`): 5 to 12 ms.
pub fn clone_into_group(namespaces: i32, group: BorrowedFd<'_>) -> rustix::io::Result<Option<Pid>> {
    /// clone3(2); more than the C library's type for flags of clone(2) can hold.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    // SAFETY: all zeros is a valid clone_args: numbers alone.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces as u64 | CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = group.as_raw_fd() as u64;
    // SAFETY: as above, with a stack of zero; args outlives the call, and the size is its own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const args,
            size_of::<libc::clone_args>(),
        )
    };
    Ok(Pid::from_raw(done(result)?))
}

/// Copies this process, which must have one thread; `None` in the copy.
pub fn fork() -> rustix::io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so the copy may do what this one may.
    let result = unsafe { libc::fork() };
    Ok(Pid::from_raw(done(result.into())?))
}

/// The process group of this process; none if its leader is outside of the PID namespace, which `rustix` takes for
/// impossible.
pub fn process_group() -> Option<Pid> {
    // SAFETY: the call has no arguments and cannot fail.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// Ends the process at once, without running anything else of it.
pub fn exit(status: i32) -> ! {
    // SAFETY: _exit(2) takes any number and does not return.
    unsafe { libc::_exit(status) }
}

/// Replaces the program; returns only where that failed.
pub fn exec(program: &CStr, args: &[CString], env: &[CString]) -> Errno {
    let pointers = |texts: &[CString]| {
        let mut all: Vec<*const libc::c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        all.push(std::ptr::null());
        all
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: both arrays end with a null pointer, and all texts outlive the call.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    last()
}

/// Closes every descriptor from 3 on but these. Nothing in this process may use one of them afterwards.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    kept.sort_unstable();
    let mut first = 3;
    let before = kept.into_iter().map(|fd| fd.saturating_sub(1));
    for last in before.chain([u32::MAX]) {
        if first <= last {
            // SAFETY: closing descriptors touches no memory; nothing here uses one of them again, as the contract
            // above says.
            done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
        first = first.max(last.saturating_add(2));
    }
    Ok(())
}

/// Sets flags of a mount, with `recursive` of all below it; `tree` is a detached tree, or `path` says where.
pub fn set_mount(
    tree: Option<BorrowedFd<'_>>,
    path: &CStr,
    flags: u64,
    recursive: bool,
) -> rustix::io::Result<()> {
    let fd = tree.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    let mut at = if tree.is_some() {
        libc::AT_EMPTY_PATH
    } else {
        0
    };
    if recursive {
        at |= libc::AT_RECURSIVE;
    }
    mount_attributes((fd, path, at), (flags, 0))
}

/// Makes a detached mount writable that this process made read-only.
pub fn make_writable(tree: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let at = (tree.as_raw_fd(), c"", libc::AT_EMPTY_PATH);
    mount_attributes(at, (0, libc::MOUNT_ATTR_RDONLY))
}

fn mount_attributes(
    (fd, path, at): (i32, &CStr, i32),
    (set, clear): (u64, u64),
) -> rustix::io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: path and attr outlive the call, and the size is that of attr.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            at,
            &attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(|_| ())
}

/// Switches the loopback device of this network namespace on.
pub fn loopback_up() -> rustix::io::Result<()> {
    // SAFETY: the call has no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let fd = done(fd.into())?;
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid ifreq: bytes and numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq (netdevice(7)), which outlives the call.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS, &request) }.into()).map(|_| ())
}

/// Sends a signal by its number to a process.
pub fn send(to: Pid, number: i32) -> rustix::io::Result<()> {
    // SAFETY: the call has no pointers.
    done(unsafe { libc::kill(to.as_raw_nonzero().get(), number) }.into()).map(|_| ())
}

/// Signals that are taken from a descriptor instead of interrupting.
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// A process sent it, rather than the kernel or a terminal.
    pub sent: bool,
    /// That process, as this PID namespace knows it; 0: it is outside.
    pub sender: u32,
}

impl Signals {
    /// Takes these from now on.
    pub fn take(numbers: &[i32]) -> rustix::io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set before anything reads it, pthread_sigmask the one before; all
        // pointers are valid.
        let (set, before) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for number in numbers {
                libc::sigaddset(set.as_mut_ptr(), *number);
            }
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            if code != 0 {
                return Err(Errno::from_raw_os_error(code));
            }
            (set.assume_init(), before.assume_init())
        };
        // SAFETY: the set is initialised.
        let fd = done(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC) }.into())?;
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd, before })
    }

    /// Waits for the next one.
    pub fn next(&self) -> rustix::io::Result<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the buffer is as long as said and is written by the kernel.
            let count = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            match done(count as libc::c_long) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        // SAFETY: it was all zeros, which is valid, before the kernel filled it.
        let info = unsafe { info.assume_init() };
        Ok(Signal {
            number: info.ssi_signo as i32,
            // sigaction(2): codes above 0 are the kernel's.
            sent: info.ssi_code <= 0,
            sender: info.ssi_pid,
        })
    }

    /// Forgets those that have come and were not read.
    pub fn discard(&self) {
        let now = rustix::event::Timespec::default();
        loop {
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut polled, Some(&now)) {
                Ok(0) => return,
                Err(errno) if errno != Errno::INTR => return,
                _ if self.next().is_err() => return,
                _ => {}
            }
        }
    }

    /// Has this thread's signals be as they were before: for what is executed next.
    pub fn give_back(&self) {
        // SAFETY: the set was filled by pthread_sigmask; a null pointer for the old one is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
        // Rust ignores SIGPIPE in every program; others expect it.
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, waitpid};

    #[test]
    fn a_copy_ends_with_its_status_and_runs_programs() {
        let (args, env) = ([c"sh", c"-c", c"exit $N"], [c"N=7"]);
        let own = |texts: &[&CStr]| texts.iter().map(|t| CString::from(*t)).collect::<Vec<_>>();
        let (args, env) = (own(&args), own(&env));
        let child = fork().unwrap();
        let Some(child) = child else {
            exec(c"/bin/sh", &args, &env);
            exit(1);
        };
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(7));
        assert_eq!(exec(c"/nonexistent", &args, &env), Errno::NOENT);
    }

    #[test]
    fn signals_are_taken_with_their_sender() {
        let signals = Signals::take(&[libc::SIGUSR1]).unwrap();
        // SAFETY: the signal is blocked in this thread, and only this thread gets it.
        let sent = || unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
        assert_eq!(sent(), 0);
        let got = signals.next().unwrap();
        assert_eq!(
            (got.number, got.sent, got.sender),
            (libc::SIGUSR1, true, std::process::id())
        );
        assert_eq!(sent(), 0);
        signals.discard();
        // It would end this process.
        signals.give_back();
    }

    #[test]
    fn descriptors_are_closed_but_for_two() {
        let child = fork().unwrap();
        let Some(child) = child else {
            let open = |path: &str| std::fs::File::open(path).map(OwnedFd::from);
            let (Ok(a), Ok(b), Ok(c)) = (open("/"), open("/"), open("/")) else {
                exit(1)
            };
            let closed = close_all_but(&[c.as_fd(), a.as_fd()]).is_ok();
            let is_open = |fd: &OwnedFd| rustix::io::fcntl_getfd(fd).is_ok();
            exit(match closed && is_open(&a) && !is_open(&b) && is_open(&c) {
                true => 0,
                false => 2,
            });
        };
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }

    #[test]
    fn what_an_ordinary_process_may_not_do_is_an_error() {
        let missing = set_mount(None, c"/nonexistent", libc::MOUNT_ATTR_RDONLY, false);
        assert!(matches!(missing, Err(Errno::NOENT | Errno::PERM)));
    }
}
