//! Signals that a command gets while others work for it: passed on to a child, or taken as a wish to cancel.

use agentvfs_daemon::sys::{block_signals, wait_signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

const HUP: i32 = Signal::HUP.as_raw();
const TERM: i32 = Signal::TERM.as_raw();

/// How long this process may take for what is left to do once its child has ended and it is asked to end, too.
const FAREWELL: Duration = Duration::from_secs(5);

/// Has SIGTERM and SIGHUP passed on to a child of this process that was not waited for yet, and SIGINT left to it: a
/// terminal sends that to both. A second SIGTERM kills it. Once it has ended, this process ends, too, shortly after
/// any of them. The signals must be blocked since before the child was started, so that none is lost.
pub fn pass_signals_on(child: u32) -> io::Result<()> {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Errno::SRCH)?;
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    let spawned = std::thread::Builder::new().name("signals".into());
    spawned.spawn(move || {
        let mut asked = false;
        loop {
            let signal = wait_signal();
            let name = match signal {
                HUP => Signal::HUP,
                TERM if asked => Signal::KILL,
                TERM => Signal::TERM,
                _ => Signal::INT,
            };
            asked |= signal == TERM;
            let gone = match name {
                Signal::INT => has_ended(&child),
                _ => pidfd_send_signal(&child, name) == Err(Errno::SRCH),
            };
            if gone {
                std::thread::sleep(FAREWELL);
                std::process::exit(128 + signal);
            }
        }
    })?;
    Ok(())
}

/// True where the process of a descriptor has ended.
fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&none)).is_ok_and(|ready| ready > 0)
}

/// Calls `interrupted` for each SIGINT and SIGTERM from now on; once that says so, and at SIGHUP, the process
/// ends with the status that shells give to a signal. For a process that starts no others.
pub fn on_interrupt(
    mut interrupted: impl FnMut() -> Interrupted + Send + 'static,
) -> io::Result<()> {
    block_signals()?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            loop {
                let signal = wait_signal();
                if signal == HUP || interrupted() == Interrupted::End {
                    std::process::exit(128 + signal);
                }
            }
        })?;
    Ok(())
}

/// What becomes of a process that was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It goes on.
    GoOn,
    /// It ends.
    End,
}
