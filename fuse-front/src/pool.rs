//! Threads that wait for the disk, so that the threads that read requests never do.
//!
//! A task owns its reply. Threads start when a task finds none idle and end after a while without work.
//! The queue has no bound of its own: the kernel bounds it, since every task is a request that somebody
//! waits for. A task that panics is logged and costs neither the thread nor the others.

use crate::limits::{POOL_IDLE, POOL_THREADS_MAX};
use crate::transport::Room;
use crossbeam::channel::{self, Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

type Task = Box<dyn FnOnce(&mut Room) + Send>;

/// A pool of threads.
#[derive(Debug)]
pub(crate) struct Pool {
    tasks: Sender<Task>,
    worker: Arc<Worker>,
}

/// What the threads share.
#[derive(Debug)]
struct Worker {
    tasks: Receiver<Task>,
    threads: AtomicUsize,
    /// Jobs that are queued or running.
    pending: AtomicUsize,
}

impl Pool {
    /// A pool without threads yet.
    pub(crate) fn new() -> Pool {
        let (tasks, receiver) = channel::unbounded();
        let worker = Worker {
            tasks: receiver,
            threads: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
        };
        Pool {
            tasks,
            worker: Arc::new(worker),
        }
    }

    /// Runs `task` on a thread that may wait, with that thread's memory for answers.
    pub(crate) fn run(&self, task: impl FnOnce(&mut Room) + Send + 'static) {
        let pending = self.worker.pending.fetch_add(1, SeqCst) + 1;
        let threads = self.worker.threads.load(SeqCst);
        if pending > threads && threads < POOL_THREADS_MAX {
            self.start_thread(threads == 0);
        }
        if self.tasks.send(Box::new(task)).is_err() {
            self.worker.pending.fetch_sub(1, SeqCst);
            tracing::error!("the pool's queue is closed");
        }
    }

    /// Starts a thread. Failing to is bad only if there is none at all.
    fn start_thread(&self, needed: bool) {
        let worker = self.worker.clone();
        worker.threads.fetch_add(1, SeqCst);
        let started = std::thread::Builder::new()
            .name("fuse-pool".to_owned())
            .spawn(move || worker.work());
        if let Err(error) = started {
            self.worker.threads.fetch_sub(1, SeqCst);
            if needed {
                tracing::error!(%error, "cannot start a thread for requests that wait");
            }
        }
    }
}

impl Worker {
    /// Carries out tasks until none came for a while.
    fn work(&self) {
        let mut room = Room::default();
        loop {
            match self.tasks.recv_timeout(POOL_IDLE) {
                Ok(task) => self.carry_out(task, &mut room),
                Err(_) if self.may_end() => return,
                Err(_) => {}
            }
        }
    }

    fn carry_out(&self, task: Task, room: &mut Room) {
        if catch_unwind(AssertUnwindSafe(|| task(room))).is_err() {
            tracing::error!("a request's handler panicked");
        }
        self.pending.fetch_sub(1, SeqCst);
    }

    /// Takes this thread off the count, unless a task came that relies on it.
    fn may_end(&self) -> bool {
        self.threads.fetch_sub(1, SeqCst);
        if self.pending.load(SeqCst) == 0 {
            return true;
        }
        self.threads.fetch_add(1, SeqCst);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn jobs_that_wait_for_each_other_all_run() {
        let pool = Pool::new();
        let barrier = Arc::new(std::sync::Barrier::new(8));
        let (done, all) = channel::unbounded();
        for _ in 0..8 {
            let (barrier, done) = (barrier.clone(), done.clone());
            pool.run(move |_| {
                barrier.wait();
                done.send(()).unwrap();
            });
        }
        for _ in 0..8 {
            all.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }

    #[test]
    fn a_panic_leaves_the_pool_usable() {
        let pool = Pool::new();
        let (done, all) = channel::unbounded();
        pool.run(|_| panic!("on purpose"));
        pool.run(move |_| done.send(()).unwrap());
        all.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn more_jobs_than_threads_all_run() {
        let pool = Pool::new();
        let (done, all) = channel::unbounded();
        for _ in 0..500 {
            let done = done.clone();
            pool.run(move |_| done.send(()).unwrap());
        }
        for _ in 0..500 {
            all.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(pool.worker.threads.load(SeqCst) <= POOL_THREADS_MAX);
    }
}
