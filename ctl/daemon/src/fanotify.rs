//! Hearing from the kernel of opens and reads in a mount, by fanotify(7): for root alone, also of reads from cached pages.
//!
//! One thread for a mount reads what the kernel has queued, and tells the engine, which says where a node is. Invariants:
//! it asks the mount for nothing that it tells, as the file of an event names its node by a handle, which the kernel knows by itself;
//! the kernel waits for no answer of it, so a thread that is slow, or a daemon that is killed, delays no program. What the kernel's queue
//! did not take is told as `lost`. Accesses of the daemon itself are not told of.
//!
//! Where rules are about opens, another thread with a queue of its own is asked before each open, and the program waits until it
//! answers. It asks the engine alone, which has the rules in memory, and waits [`ANSWER_WITHIN`] at most for a branch that is in
//! use; whatever cannot be found out in that time is allowed, and so is what the daemon itself opens. If the daemon is killed, its
//! queue is closed, upon which the kernel allows all that waits.
//!
//! An event holds the file that it is about until it is read, and so the mount: [`Hearing`] is dropped before unmounting.
//!
//! Tests: `tests/tests/telemetry.rs`, `tests/tests/telemetry_denied.rs`.

pub use crate::sys::Queue;
use crate::sys::{self, Heard};
use engine::feed::FeedBackend;
use engine::{Asking, NodeId, Opening, Terms, Workspace, acting_for};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long it may take until the mount is found.
const BEGIN_WAIT: Duration = Duration::from_secs(5);

/// How long a program that opens a file waits for a branch that is in use.
const ANSWER_WITHIN: Duration = Duration::from_millis(1);

/// A thread that hears of a mount. It ends when this is dropped.
pub struct Hearing {
    /// Dropped to say that it is to end.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Whether this process may hear of a mount.
///
/// # Errors
/// `EPERM` for whoever is not root.
pub fn check() -> io::Result<()> {
    sys::fanotify(Queue::Told).map(drop)
}

impl Hearing {
    /// Hears of the mount of a workspace from now on, or is asked about its files.
    pub fn begin(workspace: Arc<Workspace>, of: Queue, mountpoint: &Path) -> io::Result<Hearing> {
        let (stopped, stop) = io::pipe()?;
        let (ready, begun) = channel();
        let (raw, path) = (stopped.as_raw_fd(), mountpoint.to_owned());
        // Finding the mount and closing an event's file may ask the mount. A thread that has the device open, and waits for
        // this daemon when it is killed, would wait for ever; so it has files of its own, the pipe alone of ours.
        let run = move || {
            let left = fuse_front::leave_files(Some(raw));
            let is_apart = left.is_ok();
            drop(ready.send(left));
            if !is_apart {
                return;
            }
            let stopped = sys::only_here(raw);
            match Ear::open(workspace, of, &path) {
                Err(error) => drop(ready.send(Err(error))),
                // If nobody waits any more, the other end of the pipe is closed.
                Ok(mut ear) => drop(ready.send(Ok(())).map(|()| ear.run(&stopped))),
            }
        };
        let thread = thread::Builder::new().name("fanotify".into()).spawn(run)?;
        let ended = |_| io::Error::other("the thread that was to hear has ended");
        // Until it has its own descriptor of the pipe, this one must keep its number; that waits for no mount.
        begun.recv().map_err(ended)??;
        drop(stopped);
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        begun.recv_timeout(BEGIN_WAIT).map_err(late)??;
        Ok(Hearing {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Its queue is closed when it has ended.
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that hears of opens and reads panicked");
        }
    }
}

struct Ear {
    workspace: Arc<Workspace>,
    queue: OwnedFd,
    /// Opens that were allowed because the rules could not be asked in time.
    late: u64,
}

impl Ear {
    fn open(workspace: Arc<Workspace>, of: Queue, mountpoint: &Path) -> io::Result<Ear> {
        let queue = sys::fanotify(of)?;
        sys::fanotify_mark(&queue, of, mountpoint)?;
        Ok(Ear {
            workspace,
            queue,
            late: 0,
        })
    }

    fn run(&mut self, stopped: &OwnedFd) {
        loop {
            let mut wanted = [
                PollFd::new(&self.queue, PollFlags::IN),
                PollFd::new(stopped, PollFlags::IN),
            ];
            match poll(&mut wanted, None) {
                Ok(_) if !wanted[1].revents().is_empty() => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "opens and reads are not heard any more");
                }
            }
            match sys::fanotify_read(&self.queue) {
                Ok(all) => {
                    let until = Instant::now() + ANSWER_WITHIN;
                    for heard in all {
                        match heard.is_question {
                            true => self.answer(&heard, until),
                            false => self.tell(heard),
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The file of an event could not be opened: that event is gone.
                Err(error) => {
                    tracing::debug!(%error, "an event of fanotify cannot be read");
                    self.missing();
                }
            }
        }
    }

    fn missing(&self) {
        self.workspace
            .feed()
            .tell_missing(FeedBackend::Fanotify, None);
    }

    fn tell(&self, heard: Heard) {
        if heard.is_overflow {
            return self.missing();
        }
        let Some(file) = heard.file else { return };
        if heard.pid == std::process::id() || !self.workspace.feed().is_on() {
            return;
        }
        let Some(node) = sys::fuse_node(&file).map(NodeId) else {
            return self.missing();
        };
        let how = Opening {
            exec: heard.is_exec,
            ..Opening::default()
        };
        acting_for(asker(heard.pid), || {
            if heard.is_open {
                self.workspace.was_opened(node, how);
            }
            if heard.is_read {
                self.workspace.was_read(node);
            }
        });
    }

    /// Says whether a file may be opened; what is not known by `until` is allowed.
    fn answer(&mut self, heard: &Heard, until: Instant) {
        let Some(file) = &heard.file else { return };
        let is_own = heard.pid == std::process::id();
        let node = sys::fuse_node(file).map(NodeId).filter(|_| !is_own);
        let terms = Terms {
            at_most: until.saturating_duration_since(Instant::now()),
            errno: engine::errno::EPERM,
        };
        let said = node.map_or(Ok(()), |node| {
            acting_for(asker(heard.pid), || self.workspace.may_open(node, terms))
        });
        let is_allowed = !matches!(said, Err(engine::Error::Denied { .. }));
        if let Err(error) = sys::fanotify_answer(&self.queue, file, is_allowed) {
            tracing::error!(%error, "an open is not answered");
        }
        if let Err(engine::Error::WouldBlock) = said {
            self.late += 1;
            if self.late.is_power_of_two() {
                let late = self.late;
                tracing::warn!(late, "opens were allowed as their branch was in use");
            }
        }
    }
}

/// A process that opens or reads. One that has ended has no owner any more; it has no name either then.
fn asker(pid: u32) -> Asking {
    let who = std::fs::metadata(format!("/proc/{pid}")).ok();
    Asking {
        thread: pid,
        uid: who.as_ref().map_or(0, MetadataExt::uid),
        gid: who.as_ref().map_or(0, MetadataExt::gid),
        since: None,
        backend: FeedBackend::Fanotify,
        waits: false,
        comm: [0; 16],
    }
}
