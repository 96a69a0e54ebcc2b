//! Requests that can be cancelled while they are worked on, and who else may do that.

use agentvfs_client::protocol::Call;
use engine::Cancel;
use parking_lot::{Condvar, Mutex};

/// What is being worked on.
#[derive(Debug, Default)]
pub struct Jobs {
    inner: Mutex<Running>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    all: Vec<Job>,
}

#[derive(Debug)]
struct Job {
    number: u64,
    /// The workspace into which something is imported.
    imports_into: Option<String>,
    cancel: Cancel,
}

/// One piece of work, until this is dropped.
#[derive(Debug)]
pub struct Listed<'a> {
    jobs: &'a Jobs,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let all = &mut self.jobs.inner.lock().all;
        all.retain(|job| job.number != self.number);
        self.jobs.ended.notify_all();
    }
}

impl Jobs {
    /// Lists a piece of work.
    pub fn add(&self, call: &Call, cancel: &Cancel) -> Listed<'_> {
        let mut running = self.inner.lock();
        let number = running.next;
        running.next += 1;
        running.all.push(Job {
            number,
            imports_into: match call {
                Call::Import(ask) => Some(ask.workspace.clone()),
                _ => None,
            },
            cancel: cancel.clone(),
        });
        Listed { jobs: self, number }
    }

    /// Cancels what is imported into a workspace, and waits for its end: that of what came too late for
    /// that, too.
    pub fn cancel_imports(&self, workspace: &str) {
        let is_meant = |job: &Job| job.imports_into.as_deref() == Some(workspace);
        let mut running = self.inner.lock();
        while cancel(&running, is_meant) {
            self.ended.wait(&mut running);
        }
    }

    /// Cancels everything.
    pub fn cancel_all(&self) {
        cancel(&self.inner.lock(), |_| true);
    }
}

/// Cancels what is meant; false where that is nothing.
fn cancel(running: &Running, is_meant: impl Fn(&Job) -> bool) -> bool {
    let mut some = false;
    for job in running.all.iter().filter(|job| is_meant(job)) {
        // What is past its point of no return goes on to its end.
        let _ = job.cancel.cancel();
        some = true;
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::protocol::{Bytes, ImportFile};
    use std::path::Path;

    fn import(workspace: &str) -> Call {
        Call::Import(ImportFile {
            workspace: workspace.to_owned(),
            branch: None,
            file: Bytes::from(Path::new("/x.db")),
            base: None,
            sparse: false,
            skip_invalid: false,
            progress: false,
        })
    }

    #[test]
    fn imports_are_cancelled_by_their_workspace_and_everything_at_the_end() {
        let jobs = Jobs::default();
        let cancels = [Cancel::new(), Cancel::new(), Cancel::new()];
        let a = jobs.add(&import("a"), &cancels[0]);
        let _b = jobs.add(&import("b"), &cancels[1]);
        drop(jobs.add(&import("a"), &cancels[2]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !cancels[0].is_cancelled() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                drop(a);
            });
            // Comes back once that has ended.
            jobs.cancel_imports("a");
        });
        assert_eq!(
            cancels.each_ref().map(Cancel::is_cancelled),
            [true, false, false]
        );
        jobs.cancel_all();
        assert_eq!(
            cancels.each_ref().map(Cancel::is_cancelled),
            [true, true, false]
        );
    }
}
