//! The keeper's process: holds what the daemon gives it, and starts a daemon where one ended unasked. Where daemons cannot
//! be kept running it refuses what is asked of their mounts, until a command has a daemon take them.
//!
//! One thread waits for everything. Invariant: it ends when there is nothing to hold and no daemon to hold it for.

use super::daemon::Daemon;
use super::held::Mounts;
use super::starts::{Crashes, Starts};
use super::wire::Said;
use crate::home::Home;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
        held: Mounts::default(),
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

struct Keeper {
    home: Home,
    held: Mounts,
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
    /// Requests that are refused.
    Requests,
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
                Ready::Requests => {
                    self.held.refuse();
                    self.forget_why();
                    if self.daemon.is_none() && self.held.are_none() {
                        return Ok("the mounts that were refused have ended");
                    }
                }
                Ready::Nothing if self.daemon.is_none() => {
                    if self.held.are_none() {
                        return Ok("no daemon came");
                    }
                    // It did not join in time: it counts as one that ended.
                    if let Some(why) = self.daemon_is_gone() {
                        return Ok(why);
                    }
                }
                Ready::Nothing => {
                    self.daemon.iter_mut().for_each(Daemon::ask);
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
        all.extend(daemon.map(|daemon| PollFd::from_borrowed_fd(daemon.socket(), PollFlags::IN)));
        let others = all.len();
        let refused = self.held.refused();
        all.extend(refused.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let ask_at = daemon.filter(|_| self.held.wait_for_a_daemon());
        let ask_at = ask_at.map(|daemon| daemon.ask_at());
        let left = self
            .wait_until
            .or(ask_at)
            .map(|until| until.saturating_duration_since(Instant::now()));
        // Requests that are refused may come without end.
        let is_over = left.is_some_and(|left| left.is_zero());
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        rustix::io::retry_on_intr(|| poll(&mut all, left.as_ref()))?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (others, refused) = all.split_at(others);
        let others: Vec<bool> = others.iter().map(is_ready).collect();
        Ok(match others[..] {
            [.., true] if daemon.is_some() => Ready::Daemon,
            [true, ..] => Ready::New,
            [_, true, ..] => Ready::Ended,
            _ if !is_over && refused.iter().any(is_ready) => Ready::Requests,
            _ => Ready::Nothing,
        })
    }

    /// A daemon that joins takes the place of the one before, which cannot serve any more: a home's store is open in
    /// one process at a time.
    fn admit(&mut self, listener: &OwnedFd) {
        match Daemon::admit(listener, |socket| self.held.tell(socket)) {
            Ok((daemon, program)) => {
                self.program = program;
                self.daemon = Some(daemon);
                self.handed_over = false;
                self.wait_until = None;
                self.starts.joined();
            }
            Err(error) => tracing::warn!(%error, "somebody did not join the keeper"),
        }
    }

    /// Hears what the daemon says. Gives the reason to end, if there is one.
    fn hear(&mut self) -> Option<&'static str> {
        let said = self.daemon.as_ref().and_then(Daemon::hear);
        match said {
            Some((Said::Keep { workspace, note }, descriptors)) => {
                self.held.keep(workspace, note, descriptors);
                None
            }
            // Whoever waits until it is done sees what came with it being closed.
            Some((Said::Release { workspace }, _)) => {
                self.held.release(&workspace);
                self.forget_why();
                None
            }
            Some((Said::Take { workspace }, at)) => {
                let taken = at
                    .first()
                    .map(|at| self.held.hand_over_refused(&workspace, at));
                if let Some(Err(error)) = taken {
                    tracing::warn!(workspace, %error, "a mount was not handed over");
                }
                self.forget_why();
                None
            }
            Some((Said::End, _)) => {
                self.daemon = None;
                self.held.release_served();
                self.held
                    .are_none()
                    .then_some("the daemon was asked to end")
            }
            Some((Said::HandOver, _)) => {
                self.handed_over = true;
                None
            }
            Some((Said::Alive, _)) => {
                self.daemon.iter_mut().for_each(Daemon::is_alive);
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
        self.wait_until = None;
        if self.held.are_none() {
            return Some("the daemon is gone and had nothing mounted");
        }
        let now = Instant::now();
        if std::mem::take(&mut self.handed_over) {
            tracing::info!("the daemon has ended for another one");
            self.wait_until = Some(now + JOIN_WAIT);
            return None;
        }
        if !self.held.wait_for_a_daemon() {
            tracing::warn!("the daemon has died; a command is to start another one");
            return None;
        }
        if let Some(number) = self.crashes.too_many(now) {
            let why = format!("daemons end again and again: {number} within a minute");
            tracing::error!("{why}; what is asked of their mounts fails with EIO");
            if let Err(error) = std::fs::write(self.home.given_up(), why) {
                tracing::warn!(%error, "the reason is in this log alone");
            }
            self.held.refuse_all();
            let ended = self.held.are_none();
            return ended.then_some("the mounts have ended");
        }
        tracing::warn!("the daemon has died; starting another one");
        self.wait_until = Some(now + JOIN_WAIT);
        self.starts.start(&self.program);
        None
    }

    /// Why mounts are refused is of interest only while some are.
    fn forget_why(&self) {
        if !self.held.are_refused() {
            // There may be none.
            let _ = std::fs::remove_file(self.home.given_up());
        }
    }
}
