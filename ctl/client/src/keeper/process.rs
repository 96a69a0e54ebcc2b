//! The keeper's process: holds what the daemon gives it, and starts a daemon where one ended unasked.
//!
//! One thread waits for everything. Invariant: it ends when there is nothing to hold and no daemon to hold it for, or
//! when daemons cannot be kept running; the mounts then end with it, as they did before there was a keeper.

use super::starts::{Crashes, Starts};
use super::wire::{self, Said, Told};
use crate::home::Home;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a new daemon may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(2);

/// How often the daemon is asked whether its mounts answer.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// How long it may take to answer; then it hangs.
const ALIVE_WAIT: Duration = Duration::from_secs(100);

/// How long a daemon that was started may take to join.
const JOIN_WAIT: Duration = Duration::from_secs(20);

/// Runs the keeper of a home. Its listening socket is standard input.
pub fn run(home: &Home) {
    // Fails where this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let Ok(listener) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return;
    };
    // There is none, but for where daemons were given up before.
    let _ = std::fs::remove_file(home.given_up());
    let Ok(starts) = Starts::new(home) else {
        return;
    };
    let mut keeper = Keeper {
        home: home.clone(),
        held: BTreeMap::new(),
        daemon: None,
        handed_over: false,
        program: PathBuf::new(),
        crashes: Crashes::new(),
        wait_until: Some(Instant::now() + JOIN_WAIT),
        starts,
    };
    let socket = identity_of(&home.keeper_socket());
    match keeper.serve(&listener) {
        Ok(why) => tracing::info!("the keeper ends: {why}"),
        Err(error) => tracing::error!(%error, "the keeper ends"),
    }
    // Another keeper's may be there by now.
    if socket.is_some() && identity_of(&home.keeper_socket()) == socket {
        let _ = std::fs::remove_file(home.keeper_socket());
    }
}

/// By which a file is known again: device and inode.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// A mount that is held.
struct Held {
    note: String,
    descriptors: Vec<OwnedFd>,
}

/// The daemon that has joined.
struct Daemon {
    socket: OwnedFd,
    /// Its process, which keeps its number as long as this is open.
    process: OwnedFd,
    asked: Instant,
    /// When it said last that its mounts answer.
    alive: Instant,
}

struct Keeper {
    home: Home,
    held: BTreeMap<String, Held>,
    daemon: Option<Daemon>,
    /// The daemon ends so that another one goes on.
    handed_over: bool,
    /// What a daemon is started from.
    program: PathBuf,
    /// Daemons that ended unasked.
    crashes: Crashes,
    /// Until when a daemon is to join, where there is none.
    wait_until: Option<Instant>,
    /// Daemons that were started.
    starts: Starts,
}

/// What there is to be read.
enum Ready {
    Daemon,
    New,
    /// A daemon that was started has ended.
    Ended,
    Nothing,
}

impl Keeper {
    /// Serves until there is nothing left to do; says why.
    fn serve(&mut self, listener: &OwnedFd) -> Result<&'static str> {
        loop {
            match self.wait(listener.as_fd())? {
                Ready::Daemon => {
                    if let Some(why) = self.hear() {
                        return Ok(why);
                    }
                }
                Ready::New => self.admit(listener),
                Ready::Ended => {
                    if let Some(why) = self.take_end()? {
                        return Ok(why);
                    }
                }
                Ready::Nothing if self.daemon.is_some() => self.ask(),
                Ready::Nothing if self.held.is_empty() => return Ok("no daemon came"),
                // It did not join in time: it counts as one that ended.
                Ready::Nothing => {
                    if let Some(why) = self.daemon_is_gone() {
                        return Ok(why);
                    }
                }
            }
        }
    }

    /// Waits for the daemon, or for a new one.
    fn wait(&self, listener: BorrowedFd<'_>) -> Result<Ready> {
        let mut all = vec![
            PollFd::from_borrowed_fd(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(self.starts.ended(), PollFlags::IN),
        ];
        let daemon = self.daemon.as_ref();
        all.extend(daemon.map(|daemon| PollFd::new(&daemon.socket, PollFlags::IN)));
        let ask_at = daemon.filter(|_| !self.held.is_empty());
        let ask_at = ask_at.map(|daemon| daemon.asked + ASK_EVERY);
        let left = self
            .wait_until
            .or(ask_at)
            .map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        rustix::io::retry_on_intr(|| poll(&mut all, left.as_ref()))?;
        let is_ready = |n: usize| all.get(n).is_some_and(|fd| !fd.revents().is_empty());
        Ok(match [is_ready(2), is_ready(0), is_ready(1)] {
            [true, ..] => Ready::Daemon,
            [_, true, _] => Ready::New,
            [.., true] => Ready::Ended,
            _ => Ready::Nothing,
        })
    }

    /// A daemon that joins takes the place of the one before, which cannot serve any more: a home's store is open in
    /// one process at a time.
    fn admit(&mut self, listener: &OwnedFd) {
        match self.greet(listener) {
            Ok(daemon) => {
                self.daemon = Some(daemon);
                self.handed_over = false;
                self.wait_until = None;
                self.starts.joined();
            }
            Err(error) => tracing::warn!(%error, "somebody did not join the keeper"),
        }
    }

    fn greet(&mut self, listener: &OwnedFd) -> Result<Daemon> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
        let peer = sys::peer(&socket)?;
        let pid = peer.process.and_then(|pid| Pid::from_raw(pid as i32));
        let Some(pid) = pid.filter(|_| peer.user == rustix::process::geteuid()) else {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        set_socket_timeout(&socket, Timeout::Recv, Some(HELLO_WAIT))?;
        let Some((Said::Hello { program }, _)) = wire::receive(socket.as_fd())? else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        self.program = program;
        for (workspace, held) in &self.held {
            let (workspace, note) = (workspace.clone(), held.note.clone());
            let with: Vec<_> = held.descriptors.iter().map(OwnedFd::as_fd).collect();
            wire::send(socket.as_fd(), &Told::Kept { workspace, note }, &with)?;
        }
        wire::send(socket.as_fd(), &Told::All, &[])?;
        let now = Instant::now();
        Ok(Daemon {
            socket,
            process,
            asked: now,
            alive: now,
        })
    }

    /// Asks the daemon whether its mounts answer. One that has not said so for long is ended, and then replaced like one
    /// that died.
    fn ask(&mut self) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let now = Instant::now();
        if now.duration_since(daemon.alive) > ALIVE_WAIT {
            tracing::error!("the daemon hangs; ending it");
            // It may have ended by itself just now.
            let _ = pidfd_send_signal(&daemon.process, Signal::KILL);
        } else if now.duration_since(daemon.asked) < 2 * ASK_EVERY {
            // If it cannot be asked, it is gone, which is noticed when it is heard.
            let _ = wire::send(daemon.socket.as_fd(), &Told::Ask, &[]);
        } else {
            // This process, or the machine, stood still: the time does not count.
            daemon.alive = now;
        }
        daemon.asked = now;
    }

    /// Hears what the daemon says. Gives the reason to end, if there is one.
    fn hear(&mut self) -> Option<&'static str> {
        let said = self
            .daemon
            .as_ref()
            .and_then(|daemon| wire::receive(daemon.socket.as_fd()).ok().flatten());
        match said {
            Some((Said::Keep { workspace, note }, descriptors)) => {
                let held = Held { note, descriptors };
                self.held.insert(workspace, held);
                None
            }
            Some((Said::Release { workspace }, _)) => {
                self.held.remove(&workspace);
                None
            }
            Some((Said::End, _)) => Some("the daemon was asked to end"),
            Some((Said::HandOver, _)) => {
                self.handed_over = true;
                None
            }
            Some((Said::Alive, _)) => {
                if let Some(daemon) = &mut self.daemon {
                    daemon.alive = Instant::now();
                }
                None
            }
            Some((Said::Hello { program }, _)) => {
                self.program = program;
                None
            }
            None => self.daemon_is_gone(),
        }
    }

    /// A daemon that was started has ended: if it is the last one and did not join, another one is started. Gives the
    /// reason to end, if there is one.
    fn take_end(&mut self) -> Result<Option<&'static str>> {
        match self.starts.take_end()? && self.daemon.is_none() {
            true => Ok(self.daemon_is_gone()),
            false => Ok(None),
        }
    }

    /// The daemon ended unasked: another one is started. Gives the reason to end, if there is one.
    fn daemon_is_gone(&mut self) -> Option<&'static str> {
        self.daemon = None;
        if self.held.is_empty() {
            return Some("the daemon is gone and had nothing mounted");
        }
        let now = Instant::now();
        if std::mem::take(&mut self.handed_over) {
            tracing::info!("the daemon has ended for another one");
            self.wait_until = Some(now + JOIN_WAIT);
            return None;
        }
        if let Some(number) = self.crashes.too_many(now) {
            let why = format!("daemons end again and again: {number} within a minute");
            tracing::error!("{why}; their mounts are given up");
            if let Err(error) = std::fs::write(self.home.given_up(), why) {
                tracing::warn!(%error, "the reason is in this log alone");
            }
            return Some("daemons cannot be kept running");
        }
        tracing::warn!("the daemon has died; starting another one");
        self.wait_until = Some(now + JOIN_WAIT);
        self.starts.start(&self.program);
        None
    }
}
