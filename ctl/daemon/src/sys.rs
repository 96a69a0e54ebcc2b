//! The system calls that neither `std` nor `rustix` offers safely. All `unsafe` of this crate.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
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
