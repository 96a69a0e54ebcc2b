//! Processes that make tool calls, and when they end.
//!
//! A process is told apart from others that have its id before or after it by when it was started and in which boot of
//! the machine ([`Process`]). A thread waits for the end of each that has calls of its own, and ends those calls. A
//! daemon that comes after one that died finds the processes in the timelines ([`Callers::take_up`]).
//!
//! Invariant: a call that is of a process is noted only while that is waited for; so none stays that nobody ends.

use engine::descent::seen;
use engine::verbs;
use engine::{Engine, Process, Workspace};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Pause before what could not be done is tried again: the disk may be full.
const RETRY: Duration = Duration::from_secs(2);

/// The processes whose calls run.
#[derive(Clone)]
pub struct Callers {
    engine: Arc<Engine>,
    watched: Arc<Mutex<HashSet<Process>>>,
}

impl Callers {
    /// None yet.
    pub fn new(engine: Arc<Engine>) -> Callers {
        Callers {
            engine,
            watched: Arc::default(),
        }
    }

    /// Ends the calls of processes that are gone, and waits for the others: for a workspace that was just opened and
    /// that nobody can change yet.
    pub fn take_up(&self, workspace: &Workspace) {
        let name = workspace.name();
        match verbs::end_calls_of(workspace, &is_gone) {
            Ok(0) => {}
            Ok(ended) => {
                tracing::info!(
                    workspace = name,
                    ended,
                    "ended calls whose processes are gone"
                )
            }
            Err(error) => tracing::warn!(workspace = name, "calls cannot be ended: {error}"),
        }
        // Those of which that failed are gone at once, and it is tried again.
        for process in verbs::calling(workspace) {
            if let Err(error) = self.watch(process) {
                tracing::error!(workspace = name, "a call's process is not watched: {error}");
            }
        }
    }

    /// Waits for the end of a process, in a thread of its own, and ends its calls then.
    pub fn watch(&self, process: Process) -> io::Result<()> {
        if !self.watched.lock().insert(process) {
            return Ok(());
        }
        let callers = self.clone();
        let spawned = thread::Builder::new().name("caller".into()).spawn(move || {
            wait_for_end(&process);
            callers.watched.lock().remove(&process);
            while !callers.end_calls_of(&process) {
                thread::sleep(RETRY);
            }
        });
        if spawned.is_err() {
            self.watched.lock().remove(&process);
        }
        spawned.map(|_| ())
    }

    /// Ends the calls of a process in all workspaces that are open; false where that failed.
    fn end_calls_of(&self, process: &Process) -> bool {
        let mut done = true;
        for workspace in self.engine.all_opened() {
            match verbs::end_calls_of(&workspace, &|other| other == process) {
                // One that is being closed takes its calls up again when it is opened.
                Ok(_) | Err(engine::Error::Closing) => {}
                Err(error) => {
                    tracing::warn!(
                        workspace = workspace.name(),
                        "calls cannot be ended: {error}"
                    );
                    done = false;
                }
            }
        }
        done
    }
}

/// True once a process has ended.
pub fn is_gone(process: &Process) -> bool {
    seen(process.pid).is_none_or(|seen| seen.process != *process || seen.ended)
}

/// Returns once a process has ended.
fn wait_for_end(process: &Process) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return;
    };
    loop {
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Looked at after it was opened, so it is not another one with that id.
            Ok(_) if is_gone(process) => return,
            Ok(fd) => match poll(&mut [PollFd::new(&fd, PollFlags::IN)], None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!("a process is looked at now and then: {error}");
                    thread::sleep(RETRY);
                }
            },
            Err(Errno::SRCH) => return,
            Err(_) if is_gone(process) => return,
            // No descriptor is left, or the kernel is older than these.
            Err(_) => thread::sleep(RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::descent::lineage;
    use std::process::Command;

    #[test]
    fn a_process_descends_from_the_one_that_started_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let found = lineage(Some(child.id()));
        assert_eq!(found[0].pid, child.id());
        assert_eq!(found[1], lineage(Some(std::process::id()))[0]);
        assert!(!is_gone(&found[0]));
        let waiter = {
            let process = found[0];
            std::thread::spawn(move || wait_for_end(&process))
        };
        child.kill().unwrap();
        waiter.join().unwrap();
        // Also while nobody has asked how it ended.
        assert!(is_gone(&found[0]));
        child.wait().unwrap();
        assert!(is_gone(&found[0]));
        wait_for_end(&found[0]);
        assert!(lineage(None).is_empty() && lineage(Some(0)).is_empty());
    }

    #[test]
    fn one_with_the_same_id_is_another() {
        let own = lineage(Some(std::process::id()))[0];
        let started = own.started + 1;
        for other in [
            Process { started, ..own },
            Process {
                boot: own.boot ^ 1,
                ..own
            },
        ] {
            assert!(is_gone(&other));
            wait_for_end(&other);
        }
    }
}
