//! The other runs of a session, as far as a run has something in common with them: directories in memory.
//!
//! Invariant: of runs that begin at the same time one after the other looks for the others and builds its sandbox, so all
//! but the first find one that stands. Who waits for its turn too long goes on with directories of its own.

use super::plan;
use super::work::Work;
use agentvfs_client::home::Home;
use agentvfs_client::runs::{self, RunRecord};
use agentvfs_sandbox::Plan;
use agentvfs_sandbox::reach::Namespaces;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// How long others may take to build their sandboxes.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// The right to build a sandbox, until it is dropped.
pub struct Turn(File);

impl Drop for Turn {
    fn drop(&mut self) {
        // Processes that were copied meanwhile may still have the file open.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Waits for the turn; none if it does not come, or nothing can be locked here.
pub fn turn(home: &Home) -> Option<Turn> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600);
    let file = file.open(home.sandbox_lock()).ok()?;
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(Turn(file)),
            Err(_) if since.elapsed() < TURN_TIMEOUT => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
}

/// The namespaces of another run in the branch that stands and has directories in memory to share.
pub fn standing(plan: &Plan, work: &Work, home: &Home) -> Option<Namespaces> {
    if !plan::shares(plan) {
        return None;
    }
    let own = runs::pid_namespace().ok()?;
    let is_other = |run: &RunRecord| {
        let is_here = run.workspace == work.info.name && run.branch == work.branch;
        is_here && run.shares && run.pid_namespace == own && run.run != work.run
    };
    let alive = runs::alive(home).ok()?;
    let mut found = alive.into_iter().filter(is_other).filter_map(|run| {
        let namespaces = Namespaces::held_by(run.pid)?;
        Some((run, namespaces))
    });
    let (run, namespaces) = found.next()?;
    // Its process was that run's if it still is alive.
    let still = runs::alive(home).ok()?.contains(&run);
    still.then_some(namespaces)
}
