//! Tool calls: begun, ended, told of afterwards.
//!
//! Invariant: what was answered survives a power cut. What a call found and what it left are states of
//! the branch; none is made where a state that is at hand shows the same.

use crate::book::states::State;
use crate::branch::events;
use crate::branch::pins::Pinned;
use crate::branch::states;
use crate::branch::timeline;
use crate::branch::{Branch, Inner};
use crate::change::transition::differs;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::OpKind;
use crate::record::call::{
    CALL_KEY_BYTES_MAX, CALL_TEXT_BYTES_MAX, CallOutcome, EndedBy, Owner, PROCESS_CALLS_MAX,
    Process, StateRef, TOOL_NAME_BYTES_MAX, What,
};
use crate::tree::Tree;
use crate::types::Time;
use parking_lot::MutexGuard;
use serde_json::value::RawValue;
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

pub(crate) fn call_start_in(branch: &Branch, author: &str, call: CallStart) -> Result<u64> {
    check_name(&call.name)?;
    check_text(call.parameters.as_deref())?;
    check_key(&call.owner)?;
    timeline::bound_timeline(branch)?;
    let (mut inner, before) = state_now(branch, author)?;
    if let Owner::Key(key) = &call.owner
        && let Some(id) = inner.book.timeline.keyed(key)
    {
        // It was told of twice.
        return Ok(id);
    }
    if call.owner != Owner::Anybody && inner.book.timeline.owned() >= PROCESS_CALLS_MAX {
        return Err(Error::TooManyCalls(PROCESS_CALLS_MAX));
    }
    let id = inner.book.timeline.next_call;
    let apart = inner.book.timeline.apart_of(&call.owner, &call.lineage);
    let what = What::Begun {
        call: id,
        name: call.name,
        parameters: call.parameters,
        before,
        owner: call.owner,
        apart: apart.clone(),
    };
    timeline::note(branch, &mut inner, clock::now(), what)?;
    let Inner { whose, book, .. } = &mut *inner;
    whose.begun(id, &apart, &book.timeline.running);
    drop(inner);
    noted_or_later(branch, call.unsynced)?;
    Ok(id)
}

pub(crate) fn call_finish_in(
    branch: &Branch,
    author: &str,
    id: u64,
    (outcome, unsynced): (CallOutcome, bool),
) -> Result<()> {
    check_outcome(&outcome)?;
    timeline::bound_timeline(branch)?;
    check_running(&branch.lock(), id)?;
    let (mut inner, after) = state_now(branch, author)?;
    // Somebody else may have ended it meanwhile.
    check_running(&inner, id)?;
    note_end(branch, &mut inner, id, (outcome, EndedBy::Told), after)?;
    drop(inner);
    noted_or_later(branch, unsynced)
}

/// Notes that a call that runs has ended, with what it left.
pub(crate) fn note_end(
    branch: &Branch,
    inner: &mut Inner,
    id: u64,
    (outcome, by): (CallOutcome, EndedBy),
    after: StateRef,
) -> Result<()> {
    // One time for both: so they are known to belong together.
    let now = clock::now();
    let overlaps = inner.book.timeline.overlaps_of(id);
    if let Some(others) = inner.whose.told(id, &overlaps) {
        timeline::note(branch, inner, now, others)?;
    }
    let over = inner.book.timeline.over(id, outcome, after, by);
    timeline::note(branch, inner, now, over)?;
    let Inner { whose, book, .. } = inner;
    whose.ended(&book.timeline.running);
    Ok(())
}

pub(crate) fn call_record_in(branch: &Branch, author: &str, call: CallRecord) -> Result<u64> {
    check_name(&call.name)?;
    check_text(call.parameters.as_deref())?;
    check_outcome(&call.outcome)?;
    timeline::bound_timeline(branch)?;
    let last = {
        let inner = branch.lock();
        let known = |n: &u64| inner.book.history.states.contains_key(n);
        let last = inner.book.timeline.last.filter(known);
        last.or(inner.book.history.states.keys().next_back().copied())
    };
    let (mut inner, after) = state_now(branch, author)?;
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
    timeline::note(branch, &mut inner, now, what)?;
    drop(inner);
    noted(branch)?;
    Ok(id)
}

/// Makes entries durable, and has what they mention stored.
pub(crate) fn noted(branch: &Branch) -> Result<()> {
    branch.signal();
    branch.sync()
}

/// The same, unless it is to become durable together with whatever does next.
pub(crate) fn noted_or_later(branch: &Branch, unsynced: bool) -> Result<()> {
    match unsynced {
        true => {
            branch.signal();
            Ok(())
        }
        false => noted(branch),
    }
}

/// The live tree as a state, and as a tree in the numbers that it has. What the kernel has of changes is
/// not asked for.
pub(crate) fn state_of_now(branch: &Arc<Branch>, author: &str) -> Result<(u64, Pinned)> {
    let (mut inner, state) = state_at_hand(branch, author)?;
    let live = inner.live.clone();
    Ok((state.state, branch.pin_in(&mut inner, live)))
}

/// The live tree as a state, with the lock under which it is so: one that is at hand, or a new one.
fn state_now<'a>(branch: &'a Branch, author: &str) -> Result<(MutexGuard<'a, Inner>, StateRef)> {
    branch.cache().flush_dirty();
    state_at_hand(branch, author)
}

/// The same as it is known here, without asking the kernel.
pub(crate) fn state_at_hand<'a>(
    branch: &'a Branch,
    author: &str,
) -> Result<(MutexGuard<'a, Inner>, StateRef)> {
    events::check_journal(branch)?;
    let (live, near) = {
        let inner = branch.lock();
        (inner.live.clone(), near_states(&inner))
    };
    let same = near.into_iter().find(|(_, tree)| !differs(tree, &live));
    let mut inner = branch.lock();
    while inner.fence.is_some() {
        // Pages of what a rollback replaced are still coming.
        branch.wait_progress(&mut inner);
    }
    let fits = |n: &u64| inner.live.same(&live) && stays(&inner, *n);
    let state = match same.map(|(n, _)| n).filter(fits) {
        Some(state) => state,
        None => {
            let kind = OpKind::ToolCall;
            let info = states::new_state(&inner, kind, author, String::new(), BTreeMap::new());
            states::freeze(branch, &mut inner, info, false, None)?
        }
    };
    let state = inner.book.state_ref(state);
    Ok((inner, state))
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
    let states = &inner.book.history.states;
    let is_automatic = |s: &State| s.info.kind.is_automatic();
    states.is_stored(state) || states.get(&state).is_some_and(is_automatic)
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

pub(crate) fn check_name(name: &str) -> Result<()> {
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

fn check_key(owner: &Owner) -> Result<()> {
    let Owner::Key(key) = owner else {
        return Ok(());
    };
    let rule = if key.is_empty() {
        "it is empty"
    } else if key.len() > CALL_KEY_BYTES_MAX {
        "it is longer than 512 bytes"
    } else if key.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(Error::BadName {
        kind: "call key",
        name: key.chars().take(60).collect(),
        rule,
    })
}

pub(crate) fn check_outcome(outcome: &CallOutcome) -> Result<()> {
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
pub(crate) fn check_text(text: Option<&str>) -> Result<()> {
    let Some(text) = text else {
        return Ok(());
    };
    if text.len() > CALL_TEXT_BYTES_MAX {
        return Err(too_long());
    }
    let parsed = serde_json::from_str::<&RawValue>(text);
    parsed
        .map(|_| ())
        .map_err(|e| Error::CallText(format!("it is not JSON: {e}")))
}
