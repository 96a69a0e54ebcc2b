//! The caller's side of a sandbox: starts process 1, waits for its end, and connects it with the terminal.
//!
//! Caller, process 1 and command are in one process group, so that a terminal's signals reach the command by
//! themselves. The caller takes no part in them, but stops when the command was stopped, so that a shell sees it.

use crate::cgroup::{self, Group};
use crate::descriptors::{Copied, Descriptors, Replaced};
use crate::error::{Doing, Error, Result};
use crate::inside::{self, Given};
use crate::plan::{Limits, Net, Plan, Protection};
use crate::reach::Namespaces;
use crate::sys::{self, Signals};
use crate::wire::{GO, MAPPED, Told};
use crate::{ids, layers, own, private, sockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long threads of this process that are ending may take.
const THREADS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a command may take to end once its time has run out.
const GRACE: Duration = Duration::from_secs(5);
/// How often what can be done while the command runs is done.
const TICK: Duration = Duration::from_secs(30);
/// Pause between two looks at them.
const THREADS_PAUSE: Duration = Duration::from_micros(200);

/// Signals that the caller takes: those that it passes on, and those of a terminal, which the command gets itself.
const TAKEN: [i32; 9] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// A sandbox that stands; its command waits.
pub struct Standing {
    child: Pid,
    up: File,
    down: File,
    signals: Signals,
    copied: Option<Copied>,
    replaced: Vec<Replaced>,
    not_copied: Vec<String>,
    layers: Vec<&'static str>,
    lacking: Vec<String>,
    may_lack: bool,
    /// It is in another sandbox, of which it keeps `/proc` if it can have none of its own.
    is_nested: bool,
    /// Maps of ids are written by somebody else.
    asks_for_maps: bool,
    namespaces: Option<Namespaces>,
    group: Option<Group>,
    limits: Limits,
    foreground: Option<Pid>,
    /// It was asked twice to end, and killed.
    is_killed: bool,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Exit(u8),
    /// By this signal.
    Signal(i32),
    /// Because its time had run out.
    OutOfTime,
}

/// The exit status of timeout(1) where the time has run out.
const OUT_OF_TIME: u8 = 124;

/// When a command has to end.
struct Limit {
    at: Option<Instant>,
    /// It was asked to end.
    is_asked: bool,
}

impl Limit {
    fn of(time: Option<Duration>) -> Limit {
        Limit {
            // What is longer than the clock goes is no limit.
            at: time.and_then(|time| Instant::now().checked_add(time)),
            is_asked: false,
        }
    }

    /// What is left of it, for poll(2); none where there is no limit.
    fn left(&self) -> Option<Timespec> {
        let left = self.at?.saturating_duration_since(Instant::now());
        // One that is too long for poll is looked at again.
        Some(Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: i32::MAX.into(),
            tv_nsec: 0,
        }))
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }
}

fn nanoseconds(time: &Timespec) -> (i64, i64) {
    (time.tv_sec, time.tv_nsec)
}

impl Ended {
    fn of(status: i32) -> Ended {
        match libc::WIFSIGNALED(status) {
            true => Ended::Signal(libc::WTERMSIG(status)),
            false => Ended::Exit(libc::WEXITSTATUS(status) as u8),
        }
    }

    /// The exit status that shells give it.
    pub fn status(self) -> u8 {
        match self {
            Ended::Exit(status) => status,
            Ended::Signal(number) => u8::try_from(128 + number).unwrap_or(u8::MAX),
            Ended::OutOfTime => OUT_OF_TIME,
        }
    }
}

/// Builds a sandbox. From now on until the end of the process, or of [`Standing::go`], signals are its own.
/// It shares directories in memory with `session`, another one that stands, if that has not ended meanwhile.
pub fn start(plan: &Plan, session: Option<&Namespaces>) -> Result<Standing> {
    let doing = || "starting the sandbox".to_owned();
    let is_view_only = plan.protection == Protection::ViewOnly;
    check_threads()?;
    let private = session.map(private::of).and_then(Result::ok);
    let (sockets, mut descriptors) = match is_view_only {
        true => (Vec::new(), Descriptors::default()),
        false => (sockets::paths()?, Descriptors::look()?),
    };
    let root = rustix::process::geteuid().is_root();
    let (up, up_there) = pipe_with(PipeFlags::CLOEXEC).doing(doing)?;
    let (down_there, down) = pipe_with(PipeFlags::CLOEXEC).doing(doing)?;
    let foreground = foreground();
    let signals = Signals::take(&TAKEN).doing(doing)?;
    let may_lack = plan.protection == Protection::BestEffort;
    let (group, unlimited) = match cgroup::made(&plan.limits) {
        Err(Error::Limits(why)) if may_lack => (None, plan.limits.lacking(&why)),
        made => (made?, Vec::new()),
    };
    let door = group.as_ref().and_then(Group::door);
    let cloned = clone(plan, root, door.as_ref()).map_err(Error::Namespaces)?;
    let Some(child) = cloned.child else {
        inside::run(Given {
            plan,
            sockets: &sockets,
            descriptors: &descriptors,
            private: private.unwrap_or_default(),
            signals: &signals,
            up: up_there.into(),
            down: down_there.into(),
        });
    };
    drop((up_there, down_there));
    descriptors.given.clear();
    let mut standing = Standing {
        child,
        up: up.into(),
        down: down.into(),
        signals,
        copied: descriptors.copied,
        replaced: descriptors.replaced,
        not_copied: Vec::new(),
        layers: layers::asked(plan, root),
        lacking: [cloned.lacking, unlimited].concat(),
        may_lack,
        is_nested: plan.nested.is_some(),
        asks_for_maps: plan.nested.as_ref().is_some_and(|of| of.maps.is_some()),
        namespaces: None,
        group,
        limits: plan.limits,
        foreground,
        is_killed: false,
    };
    match standing.stand(!(root && is_view_only), cloned.is_in_group) {
        Ok(()) => Ok(standing),
        Err(error) => {
            standing.signals.give_back();
            standing.kill();
            Err(error)
        }
    }
}

/// A copy of this process.
struct Cloned {
    /// None in the copy.
    child: Option<Pid>,
    /// It is in its control group.
    is_in_group: bool,
    /// Namespaces that the kernel lacks.
    lacking: Vec<String>,
}

/// Copies this process into namespaces, and into the group with this directory if that can be.
fn clone_into(namespaces: i32, door: Option<&OwnedFd>) -> rustix::io::Result<Cloned> {
    let inside = door.and_then(|door| sys::clone_into_group(namespaces, door.as_fd()).ok());
    let is_in_group = inside.is_some();
    let child = match inside {
        Some(child) => child,
        None => sys::clone_into(namespaces)?,
    };
    Ok(Cloned {
        child,
        is_in_group,
        lacking: Vec::new(),
    })
}

/// Copies this process into the namespaces of a plan, without those that the kernel lacks, if it may.
fn clone(plan: &Plan, root: bool, door: Option<&OwnedFd>) -> rustix::io::Result<Cloned> {
    let mut needed = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    if plan.protection == Protection::ViewOnly {
        if !root {
            needed |= libc::CLONE_NEWUSER;
        }
        return clone_into(needed, door);
    }
    needed |= libc::CLONE_NEWUSER;
    if plan.net == Net::None {
        needed |= libc::CLONE_NEWNET;
    }
    match clone_into(needed | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS, door) {
        // clone(2): the kernel was built without one of them.
        Err(errno @ Errno::INVAL) if plan.protection == Protection::BestEffort => {
            let lacking = layers::OPTIONAL_NAMESPACES.map(|name| format!("{name}: {errno}"));
            Ok(Cloned {
                lacking: lacking.into(),
                ..clone_into(needed, door)?
            })
        }
        cloned => cloned,
    }
}

/// Whether a layer that is lacking is the own `/proc`.
fn is_proc(lacking: &str) -> bool {
    lacking.split(':').next() == Some(own::OWN_PROC)
}

/// Fails where this process has threads that do not end.
fn check_threads() -> Result<()> {
    let since = Instant::now();
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").doing(|| "counting threads".to_owned())?;
        match tasks.count() {
            0 | 1 => return Ok(()),
            count if since.elapsed() > THREADS_TIMEOUT => return Err(Error::Threads(count)),
            _ => std::thread::sleep(THREADS_PAUSE),
        }
    }
}

/// This process's group, where it is the one that a terminal at standard input listens to.
fn foreground() -> Option<Pid> {
    let own = sys::process_group()?;
    let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin()).ok()?;
    (group == own).then_some(own)
}

impl Standing {
    /// Descriptors that the command does not get as this process has them.
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// Directories that are read-only though they were to be copies, each with why.
    pub fn not_copied(&self) -> &[String] {
        &self.not_copied
    }

    /// The layers that are in force.
    pub fn layers(&self) -> Vec<&'static str> {
        let lacks = |name: &str| {
            let mut all = self.lacking.iter();
            all.any(|lacking| lacking.split(':').next() == Some(name))
        };
        let all = self.layers.iter().copied();
        all.filter(|name| !lacks(name)).collect()
    }

    /// The namespaces by which [`crate::reach`] gets into the sandbox; none without one.
    pub fn namespaces(&self) -> Option<&Namespaces> {
        self.namespaces.as_ref()
    }

    /// The directory of the control group that all processes of the sandbox are in, if it has one.
    pub fn group(&self) -> Option<&Path> {
        self.group.as_ref().map(Group::dir)
    }

    /// Layers that the kernel lacks, each with why.
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }

    /// Puts all that will be in the sandbox into its control group, if it is not there and can be.
    fn enclose(&mut self, is_in_group: bool) -> Result<()> {
        if !is_in_group && let Some(group) = self.group.take() {
            match cgroup::enclose(self.child, &self.limits, group) {
                Ok(group) => self.group = group,
                Err(Error::Limits(why)) if self.may_lack => {
                    self.lacking.extend(self.limits.lacking(&why));
                }
                Err(error) => return Err(error),
            }
        }
        self.layers.extend(self.limits.told());
        if self.group.is_some() {
            self.layers.push("cgroup");
        }
        Ok(())
    }

    fn stand(&mut self, is_in_user_namespace: bool, is_in_group: bool) -> Result<()> {
        self.enclose(is_in_group)?;
        if is_in_user_namespace {
            // Once it stands, process 1 lets nobody look at it.
            let namespaces = Namespaces::of(self.child);
            self.namespaces =
                Some(namespaces.doing(|| "opening the sandbox's namespaces".to_owned())?);
        }
        if is_in_user_namespace && !self.asks_for_maps {
            ids::write_maps(self.child)?;
        }
        self.say(MAPPED)?;
        loop {
            match Told::receive(&mut self.up)? {
                Told::Stands => return Ok(()),
                Told::NotCopied(why) => self.not_copied.push(why),
                Told::Lacking(what) if self.may_lack || self.is_nested && is_proc(&what) => {
                    self.lacking.push(what);
                }
                other => return Err(other.into_error()),
            }
        }
    }

    fn say(&mut self, byte: u8) -> Result<()> {
        self.down
            .write_all(&[byte])
            .doing(|| "speaking to process 1".to_owned())
    }

    /// Ends everything in the sandbox, and waits until it is gone.
    fn kill(&self) {
        // It may have ended.
        let _ = rustix::process::kill_process(self.child, Signal::KILL);
        self.reap();
    }

    /// Waits until process 1, and so every process of the sandbox, is gone.
    fn reap(&self) {
        while let Err(Errno::INTR) = waitpid(Some(self.child), WaitOptions::empty()) {}
    }

    /// Lets the command run, and waits until it and everything that it left behind has ended. After `time` it gets
    /// SIGTERM, five seconds later SIGKILL. Calls `tick` every 30 seconds.
    pub fn go(mut self, time: Option<Duration>, tick: &mut dyn FnMut()) -> Result<Ended> {
        self.say(GO)?;
        let mut limit = Limit::of(time);
        let ended = self.watch(&mut limit, tick);
        match ended {
            Ok(_) => self.reap(),
            Err(_) => self.kill(),
        }
        self.take_terminal_back();
        // An interrupt from the terminal was the command's as well, and has done its work.
        self.signals.discard();
        self.signals.give_back();
        match ended {
            // Whatever became of it.
            _ if limit.is_asked => Ok(Ended::OutOfTime),
            Err(_) if self.is_killed => Ok(Ended::Signal(libc::SIGKILL)),
            ended => ended,
        }
    }

    fn watch(&mut self, limit: &mut Limit, tick: &mut dyn FnMut()) -> Result<Ended> {
        let mut asked = false;
        let mut next = Limit::of(Some(TICK));
        loop {
            let (told, signal, room) = self.wait([limit, &next])?;
            if next.is_over() {
                tick();
                next = Limit::of(Some(TICK));
            }
            if limit.is_over() {
                let number = match limit.is_asked {
                    true => libc::SIGKILL,
                    false => libc::SIGTERM,
                };
                // Process 1 may have ended: then its end comes next.
                let _ = sys::send(self.child, number);
                *limit = Limit::of(Some(GRACE));
                limit.is_asked = true;
            }
            if told {
                match Told::receive(&mut self.up)? {
                    Told::Ended(status) => return Ok(Ended::of(status)),
                    Told::Stopped(_) => self.stop(),
                    other => return Err(other.into_error()),
                }
            }
            if signal {
                self.pass_on(&mut asked)?;
            }
            if room && self.copied.as_mut().is_some_and(|copied| !copied.step()) {
                self.copied = None;
            }
        }
    }

    /// Waits until process 1 says something, a signal came, standard input takes more, or the time has run out.
    fn wait(&self, limits: [&Limit; 2]) -> Result<(bool, bool, bool)> {
        let mut polled = vec![
            PollFd::new(&self.up, PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        if let Some(copied) = &self.copied {
            polled.push(PollFd::from_borrowed_fd(copied.pipe(), PollFlags::OUT));
        }
        loop {
            let left = limits
                .into_iter()
                .filter_map(Limit::left)
                .min_by_key(nanoseconds);
            match poll(&mut polled, left.as_ref()) {
                Err(Errno::INTR) => {}
                done => {
                    done.doing(|| "waiting for the command".to_owned())?;
                    break;
                }
            }
        }
        let ready = |i: usize| polled.get(i).is_some_and(|fd| !fd.revents().is_empty());
        Ok((ready(0), ready(1), ready(2)))
    }

    /// A request to end is passed on once; the second one is obeyed.
    fn pass_on(&mut self, asked: &mut bool) -> Result<()> {
        let signal = self
            .signals
            .next()
            .doing(|| "reading a signal".to_owned())?;
        let is_passed = matches!(
            signal.number,
            libc::SIGTERM | libc::SIGHUP | libc::SIGUSR1 | libc::SIGUSR2
        );
        if !is_passed || !signal.sent {
            return Ok(());
        }
        let number = match signal.number {
            libc::SIGTERM if *asked => libc::SIGKILL,
            number => number,
        };
        *asked |= signal.number == libc::SIGTERM;
        self.is_killed |= number == libc::SIGKILL;
        // Process 1 may have ended: then its end comes next.
        let _ = sys::send(self.child, number);
        Ok(())
    }

    /// Stops with the command, and has it continue when this process does.
    fn stop(&mut self) {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, Signal::STOP);
        let _ = sys::send(self.child, libc::SIGCONT);
    }

    /// A shell in the sandbox may have left the terminal to its own group, which is gone.
    fn take_terminal_back(&self) {
        if let Some(group) = self.foreground {
            // The terminal may be gone, too.
            let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_shells() {
        assert_eq!(Ended::of(3 << 8), Ended::Exit(3));
        assert_eq!(Ended::of(9), Ended::Signal(9));
        assert_eq!(Ended::of(9).status(), 137);
        assert_eq!(Ended::Exit(0).status(), 0);
        assert_eq!(Ended::OutOfTime.status(), 124);
    }

    #[test]
    fn a_limit_is_over_once_its_time_has_run_out() {
        let over = Limit::of(Some(Duration::ZERO));
        assert!(over.is_over() && over.left() == Some(Timespec::default()));
        for long in [Some(Duration::from_secs(600)), Some(Duration::MAX), None] {
            assert!(!Limit::of(long).is_over());
        }
        assert_eq!(Limit::of(None).left(), None);
    }
}
