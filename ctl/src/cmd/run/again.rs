//! Shows the branch in the sandbox again after the daemon died where nobody kept its mount.
//!
//! A thread waits for the daemon's end, which costs nothing meanwhile. If the mount is dead then, it brings the
//! daemon and the workspace back, and has the view placed over the dead one ([`super::reach`]): absolute paths work
//! again; working directories and open files stay dead, so the user is told. Invariant: what the plan hides in the
//! project is hidden in what is placed, too. With a keeper no mount dies, and the thread goes on waiting. A
//! workspace that was stopped is not started again.

use super::super::Context;
use super::reach::Reach;
use super::work::{self, Work};
use crate::output::warn;
use agentvfs_client::connection::Client;
use agentvfs_client::context::{self, Options};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::*;
use agentvfs_client::quote::shown;
use agentvfs_sandbox::{PathRule, Plan, What};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the mount, where the daemon's end cannot be waited for.
const PAUSE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};
/// How long the view that is just being placed may take when the command has ended.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// So many times within [`DEATHS_TIME`] the daemon is brought back.
const DEATHS_MAX: usize = 5;
/// See [`DEATHS_MAX`].
const DEATHS_TIME: Duration = Duration::from_secs(60);

/// What is needed to show a branch in a sandbox again.
struct View {
    options: Options,
    socket: PathBuf,
    sandbox: SandboxOf,
    /// Where the branch is outside, and in the sandbox.
    from: PathBuf,
    at: PathBuf,
    /// What is below it in the sandbox.
    inner: Vec<PathRule>,
    /// None without namespaces of its own.
    reach: Option<Reach>,
}

/// The thread that does so, until it is ended.
pub struct Again {
    wake: UnixStream,
    left: Receiver<Option<OwnedFd>>,
}

impl Again {
    /// Watches the view of a run. None inside another run, whose view the run around it looks after, and where the
    /// branch is not seen.
    pub fn begin(
        work: &Work,
        plan: &Plan,
        reach: Option<Reach>,
        context: &Context,
    ) -> std::io::Result<Option<Again>> {
        let mut places = plan.places.iter();
        let found = places.find(|place| place.what == What::View(work.view.clone()));
        let (Some(place), Some(held), None) = (found, work.held(), &work.around) else {
            return Ok(None);
        };
        let is_inner = |other: &&PathRule| {
            let is_below = other.at != place.at && other.at.starts_with(&place.at);
            // Branches are shown as they are by then.
            is_below && !matches!(other.what, What::View(_))
        };
        let view = View {
            options: context.options().clone(),
            socket: work.socket(context),
            sandbox: work.sandbox(),
            from: work.view.clone(),
            at: place.at.clone(),
            inner: plan.places.iter().filter(is_inner).cloned().collect(),
            reach,
        };
        let held = held.try_clone()?;
        let (wake, woken) = UnixStream::pair()?;
        let (done, left) = channel();
        thread::Builder::new().name("again".into()).spawn(move || {
            // Nobody waits for it any more where that took too long.
            let _ = done.send(view.watch(held, &woken));
        })?;
        Ok(Some(Again { wake, left }))
    }

    /// Watches no more. Gives the branch's directory in the mount that there is now, if it is another one.
    pub fn end(self) -> Option<OwnedFd> {
        drop(self.wake);
        self.left.recv_timeout(END_TIMEOUT).ok().flatten()
    }
}

impl View {
    fn watch(&self, mut held: OwnedFd, woken: &UnixStream) -> Option<OwnedFd> {
        let mut is_new = false;
        let mut deaths = VecDeque::new();
        loop {
            // In this order: a daemon that dies after the look is seen to end.
            let daemon = self.daemon();
            if is_dead(&held) {
                match self.show_within(&mut deaths) {
                    Ok(again) => (held, is_new) = (again, true),
                    Err(failure) => {
                        warn(&told(&failure));
                        return is_new.then_some(held);
                    }
                }
                warn(&format!(
                    "the daemon died and is back: files are kept, and {} can be used again; programs inside that were in it may need to enter it again, or a restart",
                    shown(self.at.as_os_str().as_bytes())
                ));
            } else if is_over(daemon.as_ref(), woken) {
                return is_new.then_some(held);
            }
        }
    }

    /// The daemon's process, if this one may wait for its end.
    fn daemon(&self) -> Option<OwnedFd> {
        let client = Client::connect(&self.socket).ok()?;
        let process = client.process()?;
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        let daemon = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // It was that process if it is still there.
        client.is_open().then_some(daemon)
    }

    fn show_within(&self, deaths: &mut VecDeque<Instant>) -> Result<OwnedFd, Failure> {
        deaths.retain(|at: &Instant| at.elapsed() < DEATHS_TIME);
        if deaths.len() >= DEATHS_MAX {
            return Err(Failure::new(
                "the branch is not shown again",
                "it dies again and again",
            ));
        }
        deaths.push_back(Instant::now());
        self.show()
    }

    /// Brings the workspace back, and places its view over the dead one.
    fn show(&self) -> Result<OwnedFd, Failure> {
        let workspace = &self.sandbox.workspace;
        let what = format!("{workspace} is not shown again");
        let mut context = context::Context::new(self.options.clone())?;
        let status = context.info(workspace)?.map(|info| info.status);
        if !matches!(
            status,
            Some(WorkspaceStatus::Stale | WorkspaceStatus::Started)
        ) {
            return Err(Failure::new(what, "the workspace was stopped"));
        }
        let call = Call::Start(Start {
            workspace: workspace.clone(),
            base: None,
            named: false,
            mount: None,
            options: MountChoice::default(),
        });
        let answer: StartAnswer = context.ask(&what, &call)?;
        let held = work::hold(&answer.info, &self.from)?;
        let Some(reach) = &self.reach else {
            return Err(Failure::new(what, "it can be done in a sandbox alone"));
        };
        let failed = |e: std::io::Error| Failure::new(what.clone(), e.to_string());
        let places = (self.from.as_path(), self.at.as_path());
        reach.show_view(places, &self.inner).map_err(failed)?;
        // Those that are made from now on the relay shows.
        for name in work::made_inside(&self.socket, self.sandbox.clone())? {
            if self.shows_branches() {
                reach.show(&name).map_err(failed)?;
            }
        }
        Ok(held)
    }

    fn shows_branches(&self) -> bool {
        let mut inner = self.inner.iter();
        inner.any(|place| place.what == What::Empty && place.at.ends_with(super::nested::BRANCHES))
    }
}

/// Whether nobody serves the mount any more, nor will: while a keeper has it, this waits for the next daemon.
fn is_dead(held: &OwnedFd) -> bool {
    matches!(fstatfs(held), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Waits until the daemon ends; true if the run has.
fn is_over(daemon: Option<&OwnedFd>, woken: &UnixStream) -> bool {
    let mut polled = vec![PollFd::new(woken, PollFlags::IN)];
    polled.extend(daemon.map(|daemon| PollFd::new(daemon, PollFlags::IN)));
    let time = daemon.is_none().then_some(&PAUSE);
    match poll(&mut polled, time) {
        Err(Errno::INTR) => false,
        Err(_) => true,
        Ok(_) => polled.first().is_some_and(|fd| !fd.revents().is_empty()),
    }
}

fn told(failure: &Failure) -> String {
    let Failure { what, why, .. } = failure;
    format!(
        "the daemon died: {what}: {why}; what was written is kept in the branch, end the command and start it again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_answers_is_not_dead_and_the_end_of_the_run_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap().into();
        assert!(!is_dead(&held));
        let (wake, woken) = UnixStream::pair().unwrap();
        let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        drop(wake);
        assert!(is_over(Some(&own), &woken) && is_over(None, &woken));
    }
}
