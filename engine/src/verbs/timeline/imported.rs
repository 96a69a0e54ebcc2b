//! Calls that are taken over from elsewhere: those of the branch itself, and timelines of other branches.
//!
//! Their entries say nothing of states: what was there before and after such a call is not known here. Calls of
//! other branches stand in the log of the branch that has them, each with the number of its timeline, as their ids
//! are not the branch's. Invariant: these timelines are told of before anything else in a log, so they are found
//! without going through it.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::oldest_first;
use crate::branch::Branch;
use crate::branch::calls;
use crate::branch::calls::check_name;
use crate::branch::calls::check_outcome;
use crate::branch::calls::check_text;
use crate::branch::timeline;
use crate::clock;
use crate::error::{Error, Result};
use crate::names::check_branch_name;
use crate::record::call::OVERLAPS_MAX;
use crate::record::call::{CallOutcome, What};
use crate::types::Time;
use crate::verbs::timeline::read::Reading;
use crate::verbs::timeline::sources::TimelineSource;
use crate::workspace::Workspace;
use objstore::ObjectStore;

/// A call that is taken over from elsewhere: nothing is known of the states before and after it.
#[derive(Clone, Debug, Default)]
pub struct ImportedCall {
    /// The timeline that it is of, one that was taken over before it; `None`: the branch's own.
    pub timeline: Option<u64>,
    /// The id to have, above all that are given already; `None`: the next one. In another timeline any but 0.
    pub id: Option<u64>,
    /// Name of the tool.
    pub name: String,
    /// Parameters, JSON text.
    pub parameters: Option<String>,
    /// How it ended; `None`: it is not known to have ended.
    pub outcome: Option<CallOutcome>,
    /// When it began.
    pub started: Time,
    /// When it ended.
    pub completed: Option<Time>,
    /// The innermost call that it lay inside.
    pub parent: Option<u64>,
    /// Ids of calls that ran at the same time and are neither part of it nor around it.
    pub overlaps: Vec<u64>,
}

impl ImportedCall {
    /// Whether its name and texts are such as a call has. [`Error::BadName`], [`Error::CallText`].
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        check_text(self.parameters.as_deref())?;
        self.outcome.as_ref().map_or(Ok(()), check_outcome)
    }
}

/// A timeline of another branch that is taken over from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedTimeline {
    /// Its number among those that are taken over.
    pub number: u64,
    /// The branch that it was of.
    pub branch: String,
    /// When that was deleted; `None`: it was there.
    pub deleted: Option<Time>,
}

impl ImportedTimeline {
    /// Whether it is of what can be a branch. [`Error::BadName`].
    pub fn check(&self) -> Result<()> {
        check_branch_name(&self.branch)
    }
}

/// What is taken over at a time.
#[derive(Clone, Debug)]
pub enum TakenOver {
    /// Timelines of other branches. They come before all calls, and only where the timeline has no entries.
    Timelines(Vec<ImportedTimeline>),
    /// Calls, in order.
    Calls(Vec<ImportedCall>),
}

impl TakenOver {
    /// There is nothing more.
    pub fn is_empty(&self) -> bool {
        match self {
            TakenOver::Timelines(timelines) => timelines.is_empty(),
            TakenOver::Calls(calls) => calls.is_empty(),
        }
    }
}

/// Takes calls over from elsewhere, in order; gives their ids. Durable. [`Error::CallIdTaken`] where an
/// id is not above those before it; then none is taken over.
pub fn call_import(ws: &Workspace, branch: &str, calls: Vec<ImportedCall>) -> Result<Vec<u64>> {
    call_import_in(ws.branch(branch)?.as_ref(), calls)
}

/// Takes over what there is. Durable.
pub(crate) fn import(branch: &Branch, some: TakenOver) -> Result<()> {
    match some {
        TakenOver::Timelines(timelines) => timelines_import(branch, timelines),
        TakenOver::Calls(calls) => call_import_in(branch, calls).map(drop),
    }
}

fn timelines_import(b: &Branch, timelines: Vec<ImportedTimeline>) -> Result<()> {
    for timeline in timelines {
        timeline.check()?;
        let mut inner = b.lock();
        let what = What::Elsewhere {
            timeline: timeline.number,
            branch: timeline.branch,
            deleted: timeline.deleted,
        };
        timeline::note(b, &mut inner, clock::now(), what)?;
    }
    calls::noted(b)
}

fn call_import_in(branch: &Branch, calls: Vec<ImportedCall>) -> Result<Vec<u64>> {
    let mut ids = Vec::with_capacity(calls.len());
    let mut next = branch.lock().book.timeline.next_call;
    for call in &calls {
        call.check()?;
        let id = call.id.unwrap_or(next);
        let own = call.timeline.is_none();
        if id == 0 || id == u64::MAX || own && id < next {
            return Err(Error::CallIdTaken(id));
        }
        if own {
            next = id + 1;
        }
        ids.push(id);
    }
    for (call, id) in calls.into_iter().zip(&ids) {
        timeline::bound_timeline(branch)?;
        let mut inner = branch.lock();
        if call.timeline.is_none() && *id < inner.book.timeline.next_call {
            return Err(Error::CallIdTaken(*id));
        }
        let mut overlaps = call.overlaps;
        overlaps.truncate(OVERLAPS_MAX);
        let what = What::Imported {
            timeline: call.timeline,
            call: *id,
            name: call.name,
            parameters: call.parameters,
            outcome: call.outcome,
            started: call.started,
            completed: call.completed,
            parent: call.parent,
            overlaps,
        };
        timeline::note(branch, &mut inner, clock::now(), what)?;
    }
    calls::noted(branch)?;
    Ok(ids)
}

/// The timelines of other branches that the log of a branch has taken over.
pub(crate) fn taken_over(own: &Reading, store: &ObjectStore) -> Result<Vec<TimelineSource>> {
    let mut found = Vec::new();
    let log = Log::at(&own.log, store, store.pin());
    oldest_first(&log, &mut |frame| {
        let entry = frame.entry()?;
        let What::Elsewhere {
            timeline,
            branch,
            deleted,
        } = entry.what
        else {
            return Ok(false);
        };
        let imported = ImportedTimeline {
            number: timeline,
            branch,
            deleted,
        };
        found.push(TimelineSource {
            branch: imported.branch.clone(),
            // Here it never was.
            deleted: Some(deleted.unwrap_or(entry.time)),
            first: 1,
            last: own.log.entries(),
            imported: Some(imported),
            goes_on: None,
            reading: Reading {
                of: Some(timeline),
                ..own.clone()
            },
        });
        Ok(true)
    })?;
    Ok(found)
}
