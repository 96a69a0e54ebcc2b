//! The thread that takes what the programs tell, and what it is told about runs.
//!
//! It waits for the kernel alone. While a run is alive it looks each [`LOOK`] whether there still is one, and for events
//! that were lost; otherwise it sleeps until a run begins.

use crate::deed::Deed;
use crate::error::Result;
use crate::programs::{Mount, Programs, State};
use aya::maps::{MapData, RingBuf};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// How often it is looked whether runs have ended, while there are some.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// What is heard.
#[derive(Debug)]
pub enum Heard {
    /// A process of a run did something.
    Did(Deed),
    /// So many events were lost before this.
    Lost(u64),
}

/// Who hears.
pub trait Listener: Send {
    /// Takes what was heard.
    fn hear(&mut self, heard: Heard);
    /// The control groups (of version 2, by their numbers) whose processes are of runs now, each with its run.
    fn groups(&mut self) -> Vec<(u64, u32)>;
}

/// Hears of runs until it is dropped.
pub struct Hearing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    programs: Mutex<Programs>,
    ends: AtomicBool,
    /// Readable when something is to be looked at.
    woken: OwnedFd,
}

impl Hearing {
    /// Hears from now on.
    pub fn begin(mount: Option<Mount>, listener: impl Listener + 'static) -> Result<Hearing> {
        let (programs, ring) = Programs::load(mount)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            programs: Mutex::new(programs),
            ends: AtomicBool::new(false),
            woken: eventfd(1, flags).map_err(std::io::Error::from)?,
        });
        let mut ear = Ear {
            shared: shared.clone(),
            ring,
            listener,
            told_lost: 0,
        };
        let thread = thread::Builder::new().name("ebpf".into());
        let thread = thread.spawn(move || ear.run())?;
        Ok(Hearing {
            shared,
            thread: Some(thread),
        })
    }

    /// A run begins: what its process `root` starts from now on is told of, each process from its first program on.
    pub fn begin_run(&self, run: u32, root: u32) -> Result<()> {
        self.shared.add(&[(root, State::Root)], run)
    }

    /// A process, and what it starts, is of a run from now on.
    pub fn join(&self, run: u32, pid: u32) -> Result<()> {
        self.shared.add(&[(pid, State::Told)], run)
    }

    /// Goes on with a run that has begun before. `processes` gives all that descend from its process `root`, each with
    /// whether it has executed a program yet; it is asked again while there are new ones.
    pub fn take_up(
        &self,
        run: u32,
        root: u32,
        mut processes: impl FnMut() -> Vec<(u32, bool)>,
    ) -> Result<()> {
        self.begin_run(run, root)?;
        // A fork of a process that is known is seen in the kernel, so each round is about fewer.
        loop {
            let all = processes();
            let state = |told| if told { State::Told } else { State::Waits };
            let known = self.shared.programs.lock();
            let new: Vec<_> = all
                .into_iter()
                .filter(|(pid, _)| !known.has(*pid))
                .map(|(pid, told)| (pid, state(told)))
                .collect();
            drop(known);
            if new.is_empty() {
                return Ok(());
            }
            self.shared.add(&new, run)?;
        }
    }

    /// Has the listener be asked for the groups again.
    pub fn groups_changed(&self) {
        self.shared.wake();
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that hears of runs panicked");
        }
    }
}

impl Shared {
    fn add(&self, processes: &[(u32, State)], run: u32) -> Result<()> {
        let mut programs = self.programs.lock();
        for (pid, state) in processes {
            programs.add(*pid, run, *state)?;
        }
        drop(programs);
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // It is full only if it was woken often enough.
        let _ = rustix::io::write(&self.woken, &1u64.to_ne_bytes());
    }
}

/// The thread's own.
struct Ear<L> {
    shared: Arc<Shared>,
    ring: RingBuf<MapData>,
    listener: L,
    /// Of those that were lost, how many the listener knows of.
    told_lost: u64,
}

impl<L: Listener> Ear<L> {
    fn run(&mut self) {
        let mut goes_on = true;
        loop {
            let shared = self.shared.clone();
            let mut wanted = [
                PollFd::new(&self.ring, PollFlags::IN),
                PollFd::new(&shared.woken, PollFlags::IN),
            ];
            let is_woken = match poll(&mut wanted, goes_on.then_some(&LOOK)) {
                Ok(0) => true,
                Ok(_) => !wanted[1].revents().is_empty(),
                Err(Errno::INTR) => false,
                Err(error) => return tracing::error!(%error, "runs are not heard of any more"),
            };
            self.take();
            if is_woken {
                let mut count = [0; 8];
                let _ = rustix::io::read(&shared.woken, &mut count);
                goes_on = self.look();
            }
            // What came before the end is told.
            if shared.ends.load(Ordering::Acquire) {
                return self.take();
            }
        }
    }

    /// Tells what there is.
    fn take(&mut self) {
        while let Some(record) = self.ring.next() {
            let deed = Deed::decode(&record);
            drop(record);
            if let Some(deed) = deed {
                self.listener.hear(Heard::Did(deed));
            }
        }
        let lost = self.shared.programs.lock().lost();
        if lost > self.told_lost {
            self.listener.hear(Heard::Lost(lost - self.told_lost));
            self.told_lost = lost;
        }
    }

    /// Looks for whom it still listens; false if for nobody.
    fn look(&mut self) -> bool {
        let groups = self.listener.groups();
        let mut programs = self.shared.programs.lock();
        let looked = programs.set_groups(&groups).and_then(|()| programs.rest());
        looked.unwrap_or_else(|error| {
            tracing::error!("which runs there are cannot be looked at: {error}");
            true
        })
    }
}
