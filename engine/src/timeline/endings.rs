//! Calls that end without being told to: their process is gone, or nobody ended them for too long.
//!
//! Who holds a process that makes calls asks [`Workspace::calling`] for them when a workspace is opened, and says by
//! [`Workspace::end_calls_of`] which are gone: before anybody can change anything, so that what such a call left is
//! what there was when all ended. A call of nobody's process is given up after the setting `end-calls`.
//!
//! Invariant: a call of a process that lives is never ended here, however long it takes.

use crate::branch::Branch;
use crate::clock;
use crate::error::Result;
use crate::record::call::{CallOutcome, EndedBy, Owner, Process};
use crate::types::Time;
use crate::workspace::Workspace;
use std::time::Duration;

/// Why a call failed whose process is gone.
const DIED: &str = "its process died";

/// A call that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningCall {
    /// Its id.
    pub id: u64,
    /// Whose it is.
    pub owner: Owner,
    /// When it began.
    pub started: Time,
}

impl Workspace {
    /// Calls of a branch that have not ended, ascending.
    pub fn running_calls(&self, branch: &str) -> Result<Vec<RunningCall>> {
        let b = self.branch(branch)?;
        let inner = b.lock();
        let running = inner.book.timeline.running.iter();
        let call = |(id, r): (&u64, &super::Running)| RunningCall {
            id: *id,
            owner: r.owner,
            started: r.started,
        };
        Ok(running.map(call).collect())
    }

    /// Processes whose calls run, on all branches.
    pub fn calling(&self) -> Vec<Process> {
        let mut found: Vec<Process> = Vec::new();
        for branch in self.all_branches() {
            let inner = branch.lock();
            for running in inner.book.timeline.running.values() {
                if let Owner::Process(process) = running.owner
                    && !found.contains(&process)
                {
                    found.push(process);
                }
            }
        }
        found
    }

    /// Ends the calls of processes that are `gone`, on all branches; gives how many there were. Durable. Where one
    /// cannot be ended the others are, and the first error is given.
    pub fn end_calls_of(&self, gone: &dyn Fn(&Process) -> bool) -> Result<u64> {
        let (mut ended, mut failed) = (0, None);
        for branch in self.all_branches() {
            let meant = |owner: &Owner, _: Time| match owner {
                Owner::Anybody => false,
                Owner::Process(process) => gone(process),
            };
            if branch.calls_of_owners(&meant).is_empty() {
                continue;
            }
            branch.cache().flush_dirty();
            match branch.end_calls(self.author(), &meant, &(DIED.to_owned(), EndedBy::Died)) {
                Ok(count) => ended += count,
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        failed.map_or(Ok(ended), Err)
    }
}

impl Branch {
    /// Gives up calls that nobody has ended for as long as is set.
    pub(crate) fn end_overdue_calls(&self) {
        let Some(limit) = self.auto.settings.read().end_calls else {
            return;
        };
        if self.read_only || self.is_closing() {
            return;
        }
        let now = clock::now();
        let overdue = |owner: &Owner, started: Time| {
            *owner == Owner::Anybody && age(started, now).is_some_and(|age| age >= limit)
        };
        let why = format!("nobody told of its end for {} s", limit.as_secs());
        let author = self.auto.author.clone();
        // It is tried again with the next look.
        if let Err(e) = self.end_calls(&author, &overdue, &(why, EndedBy::Nobody)) {
            tracing::warn!("{}: calls cannot be timed out: {e}", self.name());
        }
    }

    /// Calls that run of which `meant` says so, ascending.
    fn calls_of_owners(&self, meant: &dyn Fn(&Owner, Time) -> bool) -> Vec<u64> {
        let inner = self.lock();
        let running = inner.book.timeline.running.iter();
        let meant = running.filter(|(_, r)| meant(&r.owner, r.started));
        meant.map(|(id, _)| *id).collect()
    }

    /// Ends the calls that are meant, the innermost first, all with what there is now.
    fn end_calls(
        &self,
        author: &str,
        meant: &dyn Fn(&Owner, Time) -> bool,
        (why, by): &(String, EndedBy),
    ) -> Result<u64> {
        let mut ended = 0;
        for id in self.calls_of_owners(meant).into_iter().rev() {
            self.bound_timeline()?;
            let (mut inner, after) = self.state_at_hand(author)?;
            // It may have been ended meanwhile.
            if inner.book.timeline.running.contains_key(&id) {
                let outcome = CallOutcome::Error(why.clone());
                self.note_end(&mut inner, id, (outcome, *by), after)?;
                ended += 1;
            }
        }
        if ended > 0 {
            self.noted()?;
        }
        Ok(ended)
    }
}

/// How long something has gone on; none where its beginning lies ahead.
fn age(started: Time, now: Time) -> Option<Duration> {
    let since = |t: Time| {
        let sec = u64::try_from(t.sec).ok()?;
        Some(Duration::new(sec, t.nsec))
    };
    since(now)?.checked_sub(since(started)?)
}
