//! The daemon that has joined a keeper: what it says, and whether it still works.

use super::wire::{self, Said, Told};
use crate::sys;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a new daemon may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(2);

/// How often the daemon is asked whether its mounts answer.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to answer; then it hangs.
const ALIVE_WAIT: Duration = Duration::from_secs(100);

/// The daemon that has joined.
pub(super) struct Daemon {
    socket: OwnedFd,
    /// Its process, which keeps its number as long as this is open.
    process: OwnedFd,
    asked: Instant,
    /// When it said last that its mounts answer.
    alive: Instant,
}

impl Daemon {
    /// The next one that comes to `listener`, and its program. `tell` tells it of the mounts.
    ///
    /// # Errors
    /// What the system says; it is another user's, or does not say what a daemon says.
    pub fn admit(
        listener: &OwnedFd,
        tell: impl FnOnce(BorrowedFd<'_>) -> Result<()>,
    ) -> Result<(Daemon, PathBuf)> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
        let peer = sys::peer(&socket)?;
        let pid = peer.process.and_then(|pid| Pid::from_raw(pid as i32));
        let Some(pid) = pid.filter(|_| peer.user == rustix::process::geteuid()) else {
            return Err(ErrorKind::PermissionDenied.into());
        };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        set_socket_timeout(&socket, Timeout::Recv, Some(HELLO_WAIT))?;
        let Some((Said::Hello { program }, _)) = wire::receive(socket.as_fd())? else {
            return Err(ErrorKind::InvalidData.into());
        };
        tell(socket.as_fd())?;
        wire::send(socket.as_fd(), &Told::All, &[])?;
        let now = Instant::now();
        let daemon = Daemon {
            socket,
            process,
            asked: now,
            alive: now,
        };
        Ok((daemon, program))
    }

    /// Where it speaks.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What it says next, and the descriptors with that; `None` once it is gone.
    pub fn hear(&self) -> Option<(Said, Vec<OwnedFd>)> {
        wire::receive(self.socket.as_fd()).ok().flatten()
    }

    /// When it is to be asked.
    pub fn ask_at(&self) -> Instant {
        self.asked + ASK_EVERY
    }

    /// It has said that its mounts answer.
    pub fn is_alive(&mut self) {
        self.alive = Instant::now();
    }

    /// Asks it whether its mounts answer. One that has not said so for long is ended, and then replaced like one that
    /// died.
    pub fn ask(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.alive) > ALIVE_WAIT {
            tracing::error!("the daemon hangs; ending it");
            // It may have ended by itself just now.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
        } else if now.duration_since(self.asked) < 2 * ASK_EVERY {
            // If it cannot be asked, it is gone, which is noticed when it is heard.
            let _ = wire::send(self.socket.as_fd(), &Told::Ask, &[]);
        } else {
            // This process, or the machine, stood still: the time does not count.
            self.alive = now;
        }
        self.asked = now;
    }
}
