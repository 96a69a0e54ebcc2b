//! Requests about tool calls and the timeline.

use super::moments::{moment, time};
use super::mounts::Mounts;
use super::request::{looking_into, of_change, on};
use super::{callers, faults};
use agentvfs_client::protocol::*;
use engine::descent::lineage;
use engine::verbs;
use engine::{
    BlameQuery, CallOutcome, CallRecord, CallStart, CallStatus, Owner, StateRef, TimelineItem,
    TimelineQuery,
};

/// Most items of one answer.
const ITEMS_MAX: u64 = 10_000;

/// A call begins; `caller` is the process that asks.
pub fn start(mounts: &Mounts, ask: &ToolStart, caller: Option<u32>) -> Result<CallId, Fault> {
    let workspace = mounts.workspace(&ask.workspace)?;
    if ask.of_process && ask.key.is_some() {
        return Err(wrong("a call must not have both a key and a process"));
    }
    // Only calls of processes can be told to be no part of one another.
    let lineage = match ask.of_process || !verbs::calling(&workspace).is_empty() {
        true => lineage(caller),
        false => Vec::new(),
    };
    let owner = match (&ask.key, lineage.first()) {
        (Some(key), _) => Owner::Key(key.clone()),
        (None, Some(process)) if ask.of_process => {
            mounts.callers().watch(*process).map_err(not_watched)?;
            Owner::Process(*process)
        }
        // One that this process may not see: its call is ended by itself, or given up.
        _ => Owner::Anybody,
    };
    let call = CallStart {
        name: ask.name.clone(),
        parameters: ask.parameters.clone(),
        unsynced: ask.unsynced,
        owner: owner.clone(),
        lineage,
    };
    let id = on(mounts, &ask.workspace, |w| {
        verbs::call_start(w, &ask.branch, call)
    })?;
    if let Owner::Process(process) = owner
        && callers::is_gone(&process)
    {
        // Its end may have been seen before the call was there: it is looked at once more.
        mounts.callers().watch(process).map_err(not_watched)?;
    }
    Ok(CallId { id })
}

fn not_watched(error: std::io::Error) -> Fault {
    faults::of_io("cannot watch the calling process", &error)
}

fn outcome(result: &Option<String>, error: &Option<String>) -> Result<CallOutcome, Fault> {
    match (result, error) {
        (Some(_), Some(_)) => Err(wrong("a call must not have both a result and an error")),
        (_, Some(why)) => Ok(CallOutcome::Error(why.clone())),
        (result, None) => Ok(CallOutcome::Success(result.clone())),
    }
}

fn wrong(what: &str) -> Fault {
    Fault::protocol(code::INVALID_PARAMS, what)
}

/// A call has ended; one that is named by its key is looked for on the branches `among` (`None`: on all).
pub fn finish(
    mounts: &Mounts,
    ask: &ToolFinish,
    among: Option<&[String]>,
) -> Result<Finished, Fault> {
    let outcome = outcome(&ask.result, &ask.error)?;
    let id = match (ask.id, &ask.key) {
        (Some(_), None) if ask.unsynced => return Err(wrong("unsynced needs a key")),
        (Some(id), None) => {
            on(mounts, &ask.workspace, |w| {
                verbs::call_finish(w, &ask.branch, id, outcome)
            })?;
            None
        }
        (None, Some(key)) => on(mounts, &ask.workspace, |w| {
            verbs::call_finish_keyed(w, (key, among), (outcome, ask.unsynced))
        })?,
        _ => return Err(wrong("a call is named by its id or its key")),
    };
    Ok(Finished { id })
}

/// Calls of which nobody will tell that they have ended, on the branches `among` (`None`: on all).
pub fn give_up(
    mounts: &Mounts,
    ask: &ToolGiveUp,
    among: Option<&[String]>,
) -> Result<GivenUp, Fault> {
    if ask.prefix.is_empty() {
        return Err(wrong("an empty prefix would mean the calls of everybody"));
    }
    let calls = on(mounts, &ask.workspace, |w| {
        verbs::give_up_keyed(w, (&ask.prefix, among), &ask.error)
    })?;
    Ok(GivenUp { calls })
}

/// A call is over.
pub fn record(mounts: &Mounts, ask: &ToolRecord) -> Result<CallId, Fault> {
    let call = CallRecord {
        name: ask.name.clone(),
        parameters: ask.parameters.clone(),
        outcome: outcome(&ask.result, &ask.error)?,
        started: ask.started.map(time),
        completed: ask.completed.map(time),
    };
    let id = on(mounts, &ask.workspace, |w| {
        verbs::call_record(w, &ask.branch, call)
    })?;
    Ok(CallId { id })
}

/// One call.
pub fn show(mounts: &Mounts, ask: &OneCall) -> Result<TimelineRow, Fault> {
    let (item, doubt, own) = looking_into(mounts, &ask.workspace, |w| match ask.wait {
        true => Ok((
            verbs::call_with_commits(w, &ask.branch, ask.id)?,
            verbs::call_doubt(w, &ask.branch, ask.id)?,
            verbs::call_own_before(w, &ask.branch, ask.id)?,
        )),
        false => Ok((verbs::call(w, &ask.branch, ask.id)?, None, None)),
    })?;
    let doubt = doubt.map(|doubt| CallDoubt {
        why: doubt.why,
        pending: doubt.pending,
    });
    Ok(TimelineRow {
        doubt,
        own_before: own.map(|id| id.to_string()),
        ..row(item, (&ask.branch, false))
    })
}

/// Takes back what a call changed.
pub fn undo(mounts: &Mounts, ask: &ToolUndo) -> Result<ToolUndoAnswer, Fault> {
    let done = on(mounts, &ask.workspace, |w| {
        verbs::undo_call(w, &ask.branch, ask.id, ask.dry_run)
    })?;
    let conflict = |c: &engine::merge::Conflict| ConflictRow {
        path: Bytes(c.path.clone()),
        kind: c.kind.word().to_owned(),
    };
    Ok(ToolUndoAnswer {
        commit: done.back.commit.map(|id| id.to_string()),
        replaced: done.back.replaced.map(|id| id.to_string()),
        files_changed: done.back.files_changed,
        conflicts: done.conflicts.iter().map(conflict).collect(),
        changes: done.changes.into_iter().map(of_change).collect(),
    })
}

/// Calls and switches.
pub fn list(mounts: &Mounts, ask: &TimelineList) -> Result<TimelineAnswer, Fault> {
    let query = TimelineQuery {
        limit: ask.limit.min(ITEMS_MAX) as usize,
        before: ask.before,
        name: ask.name.clone(),
        status: ask.status.map(status),
        all: ask.all,
        brief: ask.brief,
        of: ask.of.as_ref().map(|of| {
            let deleted = of.deleted.map(time);
            (of.branch.clone(), deleted)
        }),
    };
    let first = ask.all && ask.of.is_none() && ask.before.is_none();
    let (page, others) = looking_into(mounts, &ask.workspace, |w| {
        let page = verbs::timeline(w, &ask.branch, &query)?;
        let others = match first {
            true => verbs::timelines(w, &ask.branch)?.split_off(1),
            false => Vec::new(),
        };
        Ok((page, others))
    })?;
    let timeline = match &ask.of {
        Some(of) => (&of.branch[..], of.deleted.is_some()),
        None => (&ask.branch[..], false),
    };
    let of = |source: engine::TimelineSource| TimelineOf {
        branch: source.branch,
        deleted: source.deleted.map(moment),
    };
    Ok(TimelineAnswer {
        items: page.items.into_iter().map(|i| row(i, timeline)).collect(),
        next: page.next,
        others: others.into_iter().map(of).collect(),
    })
}

fn status(state: CallState) -> CallStatus {
    match state {
        CallState::Pending => CallStatus::Pending,
        CallState::Success => CallStatus::Success,
        CallState::Error => CallStatus::Error,
    }
}

fn row(item: TimelineItem, (branch, branch_deleted): (&str, bool)) -> TimelineRow {
    let commit = |s: Option<StateRef>| s.and_then(|s| s.commit).map(|id| id.to_string());
    let is_call = item.switch.is_none();
    TimelineRow {
        entry: item.entry,
        kind: item.switch.map_or("call", |by| by.word()).to_owned(),
        id: item.call.filter(|_| is_call),
        undoes: item.call.filter(|_| !is_call),
        duration_ms: item.duration_ms(),
        name: item.name,
        status: match item.status {
            CallStatus::Pending => CallState::Pending,
            CallStatus::Success => CallState::Success,
            CallStatus::Error => CallState::Error,
        },
        parameters: item.parameters,
        result: item.result,
        error: item.error,
        started: moment(item.started),
        completed: item.completed.map(moment),
        before: commit(item.before),
        after: commit(item.after),
        parent: item.parent,
        overlaps: item.overlaps,
        switches: item.switches,
        doubt: None,
        own_before: None,
        key: item.key,
        branch: branch.to_owned(),
        branch_deleted,
    }
}

/// Whether the timeline is what was recorded.
pub fn verify(mounts: &Mounts, ask: &OnBranch) -> Result<VerifyAnswer, Fault> {
    let found = looking_into(mounts, &ask.workspace, |w| {
        verbs::timeline_verify(w, &ask.branch)
    })?;
    let fault = |f: engine::TimelineFault| VerifyFault {
        entry: f.entry,
        what: f.what,
    };
    Ok(VerifyAnswer {
        entries: found.entries,
        commits: found.commits,
        faults: found.faults.into_iter().map(fault).collect(),
        found: found.found,
    })
}

/// How often each tool was called.
pub fn stats(mounts: &Mounts, ask: &OnBranch) -> Result<ToolStatsAnswer, Fault> {
    let tools = looking_into(mounts, &ask.workspace, |w| {
        verbs::tool_stats(w, &ask.branch)
    })?;
    let figures = |tool: engine::ToolStats| ToolFigures {
        calls: tool.calls,
        success: tool.success,
        error: tool.error,
        pending: tool.pending,
        total_ms: tool.total_ms,
        average_ms: (tool.ended() > 0).then(|| tool.total_ms as f64 / tool.ended() as f64),
        max_ms: tool.max_ms,
        name: tool.name,
    };
    Ok(ToolStatsAnswer {
        tools: tools.into_iter().map(figures).collect(),
    })
}

/// Who changed a path.
pub fn blame(mounts: &Mounts, ask: &BlamePath) -> Result<BlameAnswer, Fault> {
    let blame = looking_into(mounts, &ask.workspace, |w| {
        let query = BlameQuery {
            limit: ask.limit.min(ITEMS_MAX) as usize,
            follow: !ask.no_follow,
        };
        verbs::blame_as(w, &ask.branch, &ask.path.0, query)
    })?;
    let row = |i: engine::BlameItem| BlameRow {
        kind: i.kind.to_owned(),
        call: i.call,
        name: i.name,
        time: moment(i.time),
        before: i.before.to_string(),
        after: i.after.to_string(),
        parent: i.parent,
        overlaps: i.overlaps,
        switches: i.switches,
        change: i.change.word().to_owned(),
        path: Bytes(i.path),
        old_path: i.old_path.map(Bytes),
        branch: i.branch,
    };
    Ok(BlameAnswer {
        items: blame.items.into_iter().map(row).collect(),
        unknown: blame.unknown,
        commits: blame.commits.iter().map(ToString::to_string).collect(),
        calls: blame.calls,
        more: blame.more,
    })
}
