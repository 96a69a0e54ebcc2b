//! Tool calls of a workspace: beginning, ending and recording them.

use crate::book::timeline::running::Running;
use crate::branch::Branch;
use crate::branch::calls::{self, CallRecord, CallStart};
use crate::branch::endings::{self, DIED};
use crate::error::{Error, Result};
use crate::record::call::{CallOutcome, EndedBy, Owner, Process};
use crate::types::Time;
use crate::workspace::Workspace;
use std::sync::Arc;

/// Notes that a call begins; gives its id. Durable, unless it says that it need not be.
pub fn call_start(ws: &Workspace, branch: &str, call: CallStart) -> Result<u64> {
    calls::call_start_in(ws.branch(branch)?.as_ref(), ws.author(), call)
}

/// Notes that a call that runs has ended. Durable. [`Error::NoSuchCall`], [`Error::CallOver`].
pub fn call_finish(ws: &Workspace, branch: &str, id: u64, outcome: CallOutcome) -> Result<()> {
    calls::call_finish_in(
        ws.branch(branch)?.as_ref(),
        ws.author(),
        id,
        (outcome, false),
    )
}

/// Notes a call that is over; gives its id. Durable.
///
/// What it found is what the call or switch before it left (the newest state where there was none),
/// what it left is what is there now.
pub fn call_record(ws: &Workspace, branch: &str, call: CallRecord) -> Result<u64> {
    calls::call_record_in(ws.branch(branch)?.as_ref(), ws.author(), call)
}

/// Calls of a branch that have not ended, ascending.
pub fn running_calls(ws: &Workspace, branch: &str) -> Result<Vec<RunningCall>> {
    let b = ws.branch(branch)?;
    let inner = b.lock();
    let running = inner.book.timeline.running.iter();
    let call = |(id, r): (&u64, &Running)| RunningCall {
        id: *id,
        owner: r.owner.clone(),
        started: r.started,
    };
    Ok(running.map(call).collect())
}

/// Processes whose calls run, on all branches.
pub fn calling(ws: &Workspace) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    for branch in ws.all_branches() {
        let inner = branch.lock();
        for running in inner.book.timeline.running.values() {
            if let Owner::Process(process) = &running.owner
                && !found.contains(process)
            {
                found.push(*process);
            }
        }
    }
    found
}

/// Ends the calls of processes that are `gone`, on all branches; gives how many there were. Durable. Where one
/// cannot be ended the others are, and the first error is given.
pub fn end_calls_of(ws: &Workspace, gone: &dyn Fn(&Process) -> bool) -> Result<u64> {
    let (mut ended, mut failed) = (0, None);
    for branch in ws.all_branches() {
        let meant = |owner: &Owner, _: Time| match owner {
            Owner::Anybody | Owner::Key(_) => false,
            Owner::Process(process) => gone(process),
        };
        if endings::calls_of_owners(&branch, &meant).is_empty() {
            continue;
        }
        branch.cache().flush_dirty();
        match endings::end_calls(&branch, ws.author(), &meant, (DIED, EndedBy::Died, false)) {
            Ok(count) => ended += count,
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    failed.map_or(Ok(ended), Err)
}

/// Notes that the call with a key has ended, on whichever of the branches `among` it runs (`None`: of all); `None` where none with that key runs, which
/// is no error: whoever ends a call by its key may not know whether its beginning was noted. Durable, unless
/// `unsynced`.
pub fn call_finish_keyed(
    ws: &Workspace,
    (key, among): (&str, Option<&[String]>),
    (outcome, unsynced): (CallOutcome, bool),
) -> Result<Option<u64>> {
    calls::check_outcome(&outcome)?;
    for branch in branches_among(ws, among) {
        let found = branch.lock().book.timeline.keyed(key);
        let Some(id) = found else { continue };
        return match calls::call_finish_in(&branch, ws.author(), id, (outcome, unsynced)) {
            Ok(()) => Ok(Some(id)),
            // It was ended by somebody else meanwhile.
            Err(Error::CallOver(_)) => Ok(None),
            Err(error) => Err(error),
        };
    }
    Ok(None)
}

/// Gives up the calls whose keys begin with `prefix`, on the branches `among` (`None`: on all): nobody tells of their
/// end any more. Gives how many there were. Not durable by itself: if the machine fails, they are given up later.
pub fn give_up_keyed(
    ws: &Workspace,
    (prefix, among): (&str, Option<&[String]>),
    why: &str,
) -> Result<u64> {
    let meant =
        |owner: &Owner, _: Time| matches!(owner, Owner::Key(key) if key.starts_with(prefix));
    let mut ended = 0;
    for branch in branches_among(ws, among) {
        if endings::calls_of_owners(&branch, &meant).is_empty() {
            continue;
        }
        branch.cache().flush_dirty();
        let how = (why, EndedBy::Nobody, true);
        ended += endings::end_calls(&branch, ws.author(), &meant, how)?;
    }
    Ok(ended)
}

/// The branches with these names, or all of them.
fn branches_among(ws: &Workspace, among: Option<&[String]>) -> Vec<Arc<Branch>> {
    let mut all = ws.all_branches();
    if let Some(names) = among {
        all.retain(|branch| names.contains(&branch.name()));
    }
    all
}

/// A call that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCall {
    /// Its id.
    pub id: u64,
    /// Whose it is.
    pub owner: Owner,
    /// When it began.
    pub started: Time,
}
