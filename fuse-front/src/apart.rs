//! Threads that may ask the mount which their own process serves.
//!
//! Once a process has read a request, whoever waits for its answer waits to the end (`request_wait_answer` in
//! the kernel's fs/fuse/dev.c), also when it is killed. If the process that should answer is killed, the end is
//! that of the connection: when nobody has the device open any more. A thread of that very process that
//! waits for such an answer would keep it open, and so keep itself, the process, its locks and the mount
//! for ever. So such threads have a file table of their own, in which the device is not.
//!
//! Threads that tell the kernel to drop pages or names are of this kind, too: the kernel waits there for whoever has the
//! page or the directory locked, which may be somebody who waits for an answer. They need the device, so it is
//! the only thing that they have ([`Apart::with`]): where the keeper has it as well, another process can answer, and
//! nothing else of the one that was killed is held until then.

use crate::sys::leave_files;
use parking_lot::Mutex;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

type Task = Box<dyn FnOnce() + Send>;

/// Such threads, as many as there ever were tasks at the same time. They end with it.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    idle: Mutex<Vec<Sender<Task>>>,
    /// A descriptor that they have.
    kept: Option<RawFd>,
}

impl Apart {
    /// Threads that have the descriptor `kept`, which must stay open while there is anything to do.
    pub(crate) fn with(kept: RawFd) -> Apart {
        Apart {
            idle: Mutex::default(),
            kept: Some(kept),
        }
    }

    /// Does `work`, which must neither take nor give a descriptor, and waits for it.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R> {
        self.start(work, |answer| answer.recv().map_err(|_| gone()))
    }

    /// As [`Apart::run`], but waits for `limit` at most; the work then goes on by itself.
    pub(crate) fn run_for<R: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R> {
        self.start(work, |answer| {
            answer.recv_timeout(limit).map_err(|error| match error {
                RecvTimeoutError::Timeout => ErrorKind::TimedOut.into(),
                RecvTimeoutError::Disconnected => gone(),
            })
        })
    }

    fn start<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
        wait: impl FnOnce(Receiver<R>) -> Result<R>,
    ) -> Result<R> {
        let idle = self.idle.lock().pop();
        let thread = match idle {
            Some(thread) => thread,
            None => spawn(self.kept)?,
        };
        let (done, answer) = channel();
        let task: Task = Box::new(move || {
            // Nobody need wait for it any more.
            let _ = done.send(work());
        });
        thread.send(task).map_err(|_| gone())?;
        // One that was not waited for to the end takes no further task, and ends.
        let result = wait(answer)?;
        self.idle.lock().push(thread);
        Ok(result)
    }
}

fn gone() -> Error {
    Error::other("a thread has ended")
}

fn spawn(kept: Option<RawFd>) -> Result<Sender<Task>> {
    let (give, tasks) = channel::<Task>();
    let work = move || {
        if let Err(error) = leave_files(kept) {
            tracing::warn!(%error, "no thread can leave the files: a daemon that is killed may hang until its mount is aborted");
        }
        tasks.into_iter().for_each(|task| task());
    };
    std::thread::Builder::new()
        .name("apart".to_owned())
        .spawn(work)?;
    Ok(give)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn is_open(fd: i32) -> bool {
        std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).is_ok()
    }

    #[test]
    fn a_thread_apart_has_no_descriptors_and_takes_none_from_others() {
        let file = File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        assert!(is_open(fd));
        let apart = Apart::default();
        assert!(!apart.run(move || is_open(fd)).unwrap());
        assert!(apart.run(|| is_open(2)).unwrap());
        // What it opens is its own.
        let open = || File::open("/dev/zero").map(|f| f.as_raw_fd());
        apart.run(open).unwrap().unwrap();
        assert!(is_open(fd) && file.metadata().is_ok());
    }

    #[test]
    fn a_thread_apart_has_the_descriptor_that_it_was_given_alone() {
        let files: Vec<File> = (0..3).map(|_| File::open("/dev/null").unwrap()).collect();
        let all: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
        let apart = Apart::with(all[1]);
        let seen = apart.run(move || all.into_iter().map(is_open).collect::<Vec<_>>());
        assert_eq!(seen.unwrap(), [false, true, false]);
        assert!(files.iter().all(|file| file.metadata().is_ok()));
    }

    #[test]
    fn jobs_at_the_same_time_do_not_wait_for_each_other() {
        let apart = Apart::default();
        let (go, wait) = channel::<()>();
        let (begin, begun) = channel::<()>();
        let first = move || begin.send(()).is_ok() && wait.recv().is_ok();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| apart.run(first));
            begun.recv().unwrap();
            assert_eq!(apart.run(|| 7).unwrap(), 7);
            go.send(()).unwrap();
            assert!(first.join().unwrap().unwrap());
        });
        assert_eq!(apart.idle.lock().len(), 2);
    }

    #[test]
    fn a_job_that_takes_too_long_is_left_alone() {
        let apart = Apart::default();
        let (go, wait) = channel::<()>();
        let (end, ended) = channel::<()>();
        let slow = move || wait.recv().is_ok() && end.send(()).is_ok();
        let left = apart.run_for(Duration::from_millis(1), slow);
        assert_eq!(left.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(apart.idle.lock().is_empty());
        go.send(()).unwrap();
        ended.recv().unwrap();
        let limit = Duration::from_secs(60);
        assert_eq!(apart.run_for(limit, || 7).unwrap(), 7);
    }

    #[test]
    fn a_job_that_panics_is_an_error_for_whoever_asked() {
        let apart = Apart::default();
        let failed = apart.run(|| std::panic::panic_any("on purpose"));
        assert!(failed.is_err());
        assert_eq!(apart.run(|| 1).unwrap(), 1);
    }
}
