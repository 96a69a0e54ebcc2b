//! Tool calls: begun, ended, told of afterwards.
//!
//! Invariant: what was answered survives a power cut. What a call found and what it left are states of
//! the branch; none is made where a state that is at hand shows the same.

use crate::branch::events;
use crate::branch::pins::Pinned;
use crate::branch::states;
use crate::branch::{Branch, Inner};
use crate::change::transition::differs;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::OpKind;
use crate::record::call::{
    CALL_TEXT_BYTES_MAX, CallOutcome, EndedBy, Owner, PROCESS_CALLS_MAX, Process, StateRef,
    TOOL_NAME_BYTES_MAX, What,
};
use crate::tree::Tree;
use crate::types::Time;
use crate::workspace::Workspace;
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call that begins.
#[derive(Clone, Debug, Default)]
pub struct CallStart {
    /// Name of the tool.
    pub name: String,
    /// Parameters, JSON text.
    pub parameters: Option<String>,
    /// Do not wait for stable storage: the note is there together with whatever is brought there next.
    pub unsynced: bool,
    /// Whose it is.
    pub owner: Owner,
    /// The process that asks for it, and those that it descends from, the nearest first; empty where they are
    /// not known.
    pub lineage: Vec<Process>,
}

/// A call that is over.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Name of the tool.
    pub name: String,
    /// Parameters, JSON text.
    pub parameters: Option<String>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// When it began; `None`: when it ended.
    pub started: Option<Time>,
    /// When it ended; `None`: now.
    pub completed: Option<Time>,
}

impl Workspace {
    /// Notes that a call begins; gives its id. Durable, unless it says that it need not be.
    pub fn call_start(&self, branch: &str, call: CallStart) -> Result<u64> {
        self.branch(branch)?.call_start(self.author(), call)
    }

    /// Notes that a call that runs has ended. Durable. [`Error::NoSuchCall`], [`Error::CallOver`].
    pub fn call_finish(&self, branch: &str, id: u64, outcome: CallOutcome) -> Result<()> {
        self.branch(branch)?.call_finish(self.author(), id, outcome)
    }

    /// Notes a call that is over; gives its id. Durable.
    ///
    /// What it found is what the call or switch before it left (the newest state where there was none),
    /// what it left is what is there now.
    pub fn call_record(&self, branch: &str, call: CallRecord) -> Result<u64> {
        self.branch(branch)?.call_record(self.author(), call)
    }
}

impl Branch {
    fn call_start(&self, author: &str, call: CallStart) -> Result<u64> {
        check_name(&call.name)?;
        check_text(call.parameters.as_deref())?;
        self.bound_timeline()?;
        let (mut inner, before) = self.state_now(author)?;
        if call.owner != Owner::Anybody && inner.book.timeline.of_processes() >= PROCESS_CALLS_MAX {
            return Err(Error::TooManyCalls(PROCESS_CALLS_MAX));
        }
        let id = inner.book.timeline.next_call;
        let apart = inner.book.timeline.apart_of(&call.lineage);
        let what = What::Begun {
            call: id,
            name: call.name,
            parameters: call.parameters,
            before,
            owner: call.owner,
            apart: apart.clone(),
        };
        self.note(&mut inner, clock::now(), what)?;
        let Inner { whose, book, .. } = &mut *inner;
        whose.begun(id, &apart, &book.timeline.running);
        drop(inner);
        match call.unsynced {
            true => self.signal(),
            false => self.noted()?,
        }
        Ok(id)
    }

    fn call_finish(&self, author: &str, id: u64, outcome: CallOutcome) -> Result<()> {
        check_outcome(&outcome)?;
        self.bound_timeline()?;
        check_running(&self.lock(), id)?;
        let (mut inner, after) = self.state_now(author)?;
        // Somebody else may have ended it meanwhile.
        check_running(&inner, id)?;
        self.note_end(&mut inner, id, (outcome, EndedBy::Told), after)?;
        drop(inner);
        self.noted()
    }

    /// Notes that a call that runs has ended, with what it left.
    pub(super) fn note_end(
        &self,
        inner: &mut Inner,
        id: u64,
        (outcome, by): (CallOutcome, EndedBy),
        after: StateRef,
    ) -> Result<()> {
        // One time for both: so they are known to belong together.
        let now = clock::now();
        let overlaps = inner.book.timeline.overlaps_of(id);
        if let Some(others) = inner.whose.told(id, &overlaps) {
            self.note(inner, now, others)?;
        }
        let over = inner.book.timeline.over(id, outcome, after, by);
        self.note(inner, now, over)?;
        let Inner { whose, book, .. } = inner;
        whose.ended(&book.timeline.running);
        Ok(())
    }

    fn call_record(&self, author: &str, call: CallRecord) -> Result<u64> {
        check_name(&call.name)?;
        check_text(call.parameters.as_deref())?;
        check_outcome(&call.outcome)?;
        self.bound_timeline()?;
        let last = {
            let inner = self.lock();
            let known = |n: &u64| inner.book.history.states.contains_key(n);
            let last = inner.book.timeline.last.filter(known);
            last.or(inner.book.history.states.keys().next_back().copied())
        };
        let (mut inner, after) = self.state_now(author)?;
        let now = clock::now();
        let completed = call.completed.or(call.started).unwrap_or(now);
        let started = call.started.unwrap_or(completed);
        // Under the lock as it is now: another call may have been noted meanwhile.
        let known = |n: &u64| inner.book.history.states.contains_key(n);
        let last = inner.book.timeline.last.or(last).filter(known);
        let id = inner.book.timeline.next_call;
        let what = What::Recorded {
            call: id,
            name: call.name,
            parameters: call.parameters,
            outcome: Some(call.outcome),
            started,
            completed: Some(completed),
            before: Some(last.map_or(after, |n| inner.book.state_ref(n))),
            after: Some(after),
            overlaps: inner.book.timeline.ran_between(started, completed),
        };
        self.note(&mut inner, now, what)?;
        drop(inner);
        self.noted()?;
        Ok(id)
    }

    /// Makes entries durable, and has what they mention stored.
    pub(super) fn noted(&self) -> Result<()> {
        self.signal();
        self.sync()
    }

    /// The live tree as a state, and as a tree in the numbers that it has. What the kernel has of changes is
    /// not asked for.
    pub(crate) fn state_of_now(self: &Arc<Branch>, author: &str) -> Result<(u64, Pinned)> {
        let (mut inner, state) = self.state_at_hand(author)?;
        let live = inner.live.clone();
        Ok((state.state, self.pin_in(&mut inner, live)))
    }

    /// The live tree as a state, with the lock under which it is so: one that is at hand, or a new one.
    fn state_now(&self, author: &str) -> Result<(MutexGuard<'_, Inner>, StateRef)> {
        self.cache().flush_dirty();
        self.state_at_hand(author)
    }

    /// The same as it is known here, without asking the kernel.
    pub(super) fn state_at_hand(&self, author: &str) -> Result<(MutexGuard<'_, Inner>, StateRef)> {
        events::check_journal(self)?;
        let (live, near) = {
            let inner = self.lock();
            (inner.live.clone(), near_states(&inner))
        };
        let same = near.into_iter().find(|(_, tree)| !differs(tree, &live));
        let mut inner = self.lock();
        while inner.fence.is_some() {
            // Pages of what a rollback replaced are still coming.
            self.wait_progress(&mut inner);
        }
        let fits = |n: &u64| inner.live.same(&live) && stays(&inner, *n);
        let state = match same.map(|(n, _)| n).filter(fits) {
            Some(state) => state,
            None => {
                let kind = OpKind::ToolCall;
                let info = states::new_state(&inner, kind, author, String::new(), BTreeMap::new());
                states::freeze(self, &mut inner, info, false, None)?
            }
        };
        let state = inner.book.state_ref(state);
        Ok((inner, state))
    }
}

/// States whose trees are in memory and that the live tree most likely is.
fn near_states(inner: &Inner) -> Vec<(u64, Tree)> {
    let history = &inner.book.history;
    let newest = history.states.keys().next_back().copied();
    let mut numbers: Vec<u64> = [inner.book.timeline.last, history.shown, newest]
        .into_iter()
        .flatten()
        .collect();
    numbers.push(history.head);
    numbers.dedup();
    let trees = numbers
        .into_iter()
        .filter_map(|n| Some((n, history.tree(n)?.clone())));
    trees.collect()
}

/// A state that is not taken back any more: a checkpoint may be, until it is stored.
fn stays(inner: &Inner, state: u64) -> bool {
    let state = inner.book.history.states.get(&state);
    state.is_some_and(|s| s.in_store || s.info.kind.is_automatic())
}

fn check_running(inner: &Inner, id: u64) -> Result<()> {
    if inner.book.timeline.running.contains_key(&id) {
        return Ok(());
    }
    match id > 0 && id < inner.book.timeline.next_call {
        true => Err(Error::CallOver(id)),
        false => Err(Error::NoSuchCall(id)),
    }
}

pub(super) fn check_name(name: &str) -> Result<()> {
    let rule = if name.is_empty() {
        "it is empty"
    } else if name.len() > TOOL_NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(Error::BadName {
        kind: "tool",
        name: name.chars().take(60).collect(),
        rule,
    })
}

pub(super) fn check_outcome(outcome: &CallOutcome) -> Result<()> {
    match outcome {
        CallOutcome::Success(result) => check_text(result.as_deref()),
        CallOutcome::Error(why) if why.len() > CALL_TEXT_BYTES_MAX => Err(too_long()),
        CallOutcome::Error(_) => Ok(()),
    }
}

fn too_long() -> Error {
    Error::CallText(format!("it is longer than {CALL_TEXT_BYTES_MAX} bytes"))
}

/// Parameters and results are JSON.
pub(super) fn check_text(text: Option<&str>) -> Result<()> {
    let Some(text) = text else {
        return Ok(());
    };
    if text.len() > CALL_TEXT_BYTES_MAX {
        return Err(too_long());
    }
    let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_str(text);
    parsed
        .map(|_| ())
        .map_err(|e| Error::CallText(format!("it is not JSON: {e}")))
}
