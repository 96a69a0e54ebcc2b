//! Whether what differs between a call's beginning and its end is what it changed, and nothing else.
//!
//! It is, where nobody else changed the branch meanwhile. What a call that is part of it changed is its own, and
//! what it is part of is taken to wait for it. Of one that ran at the same time otherwise it is not known whose a
//! change of that time was. So the two are told apart only where the branch was the same when the later of them
//! began as when the first of them ended: each one's change is then that of the time that it had for itself; or where it
//! is known whose each change was while both ran ([`super::own`]).
//!
//! Invariant: a doubt is never passed over; whoever takes a call back asks here first.

use crate::branch::Branch;
use crate::branch::states;
use crate::branch::states::Target;
use crate::error::{Error, Result};
use crate::kv;
use crate::record::call::{EndedBy, OVERLAPS_MAX, StateRef};
use crate::verbs::show_merged;
use crate::verbs::timeline::own::Calls;
use crate::verbs::timeline::own::Others;
use crate::verbs::timeline::own::Whole;
use crate::verbs::timeline::own::alone;
use crate::verbs::timeline::own::differ;
use crate::verbs::timeline::own::shared;
use crate::verbs::timeline::own::without_own;
use crate::verbs::timeline::read;
use crate::verbs::timeline::read::TimelineItem;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, CommitKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why it is not known what a call changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Why.
    pub why: String,
    /// Calls that have not ended and that it is for.
    pub pending: Vec<u64>,
}

/// What a call changed.
pub(crate) enum Certain {
    /// All that differs between its beginning and its end.
    All,
    /// What others did not change.
    But(Arc<Others>),
}

type Found<T> = std::result::Result<T, Doubt>;

fn doubt<T>(why: &str) -> Found<T> {
    let (why, pending) = (why.to_owned(), Vec::new());
    Err(Doubt { why, pending })
}

/// A path or key as messages name it.
fn shown(path: &[u8]) -> String {
    match path {
        b"" => "the root directory".to_owned(),
        [b'/', key @ ..] => format!("key {}", agentvfs_quote::shown(key)),
        path => agentvfs_quote::shown(path),
    }
}

/// A commit of what the branch would have been before a call, had all that others did while it ran been done: what
/// differs between that and what the call left is its own. `None` where that is all that differs. The branch
/// knows the commit from then on.
pub fn call_own_before(ws: &Workspace, branch: &str, id: u64) -> Result<Option<CommitId>> {
    let b = ws.branch(branch)?;
    let _pin = b.places.store.pin();
    let item = read::call_of(&b, id)?;
    let Ok(Certain::But(others)) = certain_of(&b, id, &item)? else {
        return Ok(None);
    };
    let (Some(before), Ok(own)) = (item.before, before_own(&b, id, &item, &others)?) else {
        return Ok(None);
    };
    let store = &b.places.store;
    let time = item.completed.unwrap_or(item.started);
    let commit = Commit {
        root_meta: own.root.meta,
        root: own.root.tree,
        parents: vec![states::kept_commit(&b, id, before)?],
        time_sec: time.sec,
        time_nsec: time.nsec,
        author: ws.author().to_owned(),
        message: format!("before call {id}, with what others changed while it ran"),
        meta: Vec::new(),
        kind: CommitKind::Automatic,
        kv: kv::stored::store(store, &own.kv)?,
        timeline: None,
    };
    let commit = store.put_object(&commit)?;
    show_merged::mark_unsynced(&b);
    if states::resolve(&b, &Target::Ref(commit.to_string())).is_err() {
        b.know(commit)?;
    }
    Ok(Some(commit))
}

/// Why it is not known what a call changed, where that is so. Waits until what there was before and after
/// it is stored. [`Error::NoSuchCall`].
pub fn call_doubt(ws: &Workspace, branch: &str, id: u64) -> Result<Option<Doubt>> {
    let b = ws.branch(branch)?;
    let _pin = b.places.store.pin();
    let item = read::call_of(&b, id)?;
    doubt_of(&b, id, &item)
}

pub(crate) fn doubt_of(branch: &Branch, id: u64, item: &TimelineItem) -> Result<Option<Doubt>> {
    let others = match certain_of(branch, id, item)? {
        Err(doubt) => return Ok(Some(doubt)),
        Ok(Certain::All) => return Ok(None),
        Ok(Certain::But(others)) => others,
    };
    Ok(before_own(branch, id, item, &others)?.err())
}

/// What a call changed, or why that is not known.
pub(crate) fn certain_of(branch: &Branch, id: u64, item: &TimelineItem) -> Result<Found<Certain>> {
    let certain = match together(branch, item)? {
        Err(together) => return Ok(Err(together)),
        Ok(certain) => certain,
    };
    if !item.switches.is_empty() {
        return Ok(doubt(
            "the branch was rolled back, merged or restored while it ran",
        ));
    }
    if item.ended_by == Some(EndedBy::Nobody) {
        return Ok(doubt(
            "its end was not reported, so the time of its end is not known",
        ));
    }
    Ok(match (item.before, item.after) {
        (Some(_), Some(_)) => Ok(certain),
        (Some(_), None) => Err(Doubt {
            why: "it has not ended".to_owned(),
            pending: vec![id],
        }),
        _ => doubt("it was imported without its files"),
    })
}

/// What the branch would have been before a call with all that the others did while it ran.
pub(crate) fn before_own(
    branch: &Branch,
    id: u64,
    item: &TimelineItem,
    others: &Others,
) -> Result<Found<Whole>> {
    let (Some(before), Some(after)) = (item.before, item.after) else {
        return Ok(doubt("it has no states"));
    };
    let store = &branch.places.store;
    let whole = |state| {
        let commit: Commit = store.get_object(&states::kept_commit(branch, id, state)?)?;
        Whole::of(store, &commit)
    };
    let parted = without_own(store, &whole(before)?, &whole(after)?, others)?;
    show_merged::mark_unsynced(branch);
    let unfit = |path: Vec<u8>| {
        let others: Vec<String> = others.of.iter().map(u64::to_string).collect();
        Doubt {
            why: format!(
                "it ran at the same time as {}, and {} was changed by it and by another",
                others.join(", "),
                shown(&path)
            ),
            pending: Vec::new(),
        }
    };
    Ok(parted.map_err(unfit))
}

/// The calls that ran at the same time, where what changed meanwhile may be theirs.
fn together(branch: &Branch, item: &TimelineItem) -> Result<Found<Certain>> {
    if item.overlaps.is_empty() {
        return Ok(Ok(Certain::All));
    }
    let others = calls_of(branch, &item.overlaps)?;
    let mut doubtful = Vec::new();
    for id in &item.overlaps {
        // Of more than are remembered it is not known which are missing.
        let idle = item.overlaps.len() < OVERLAPS_MAX
            && match others.get(id) {
                Some(other) => idle_together(branch, item, other)?,
                None => false,
            };
        if !idle {
            doubtful.push(*id);
        }
    }
    if doubtful.is_empty() {
        return Ok(Ok(Certain::All));
    }
    let named: Vec<String> = doubtful.iter().map(u64::to_string).collect();
    let mut why = format!("it ran at the same time as {}", named.join(", "));
    match told_apart(branch, item, &others)? {
        Some(Ok(told)) => return Ok(Ok(Certain::But(told))),
        Some(Err(more)) => {
            why.push_str(&format!(", and {more}"));
            return Ok(doubt(&why));
        }
        None => {}
    }
    let runs = |id: &&u64| others.get(*id).is_some_and(|o| o.completed.is_none());
    let pending: Vec<u64> = doubtful.iter().filter(runs).copied().collect();
    if !pending.is_empty() {
        let named: Vec<String> = pending.iter().map(u64::to_string).collect();
        let have = if pending.len() == 1 { "has" } else { "have" };
        why.push_str(&format!(", of which {} {have} not ended", named.join(", ")));
    }
    Ok(Err(Doubt { why, pending }))
}

/// What others changed while a call ran, or why that is not known; `None` where it was not told.
fn told_apart(
    branch: &Branch,
    item: &TimelineItem,
    calls: &Calls,
) -> Result<Option<std::result::Result<Arc<Others>, String>>> {
    let all = |told: &&Arc<Others>| item.overlaps.iter().all(|other| told.of.contains(other));
    let Some(told) = item.others.as_ref().filter(all) else {
        return Ok(None);
    };
    if let Some(why) = &told.doubt {
        return Ok(Some(Err(why.clone())));
    }
    if told.paths.is_empty() {
        return Ok(Some(Ok(told.clone())));
    }
    let Some(times) = alone(item, calls.values()).filter(|_| calls.len() == told.of.len()) else {
        return Ok(None);
    };
    let store = &branch.places.store;
    for (a, b) in times.into_iter().filter(|(a, b)| a.state != b.state) {
        let (Some(a), Some(b)) = (commit_if_kept(branch, a)?, commit_if_kept(branch, b)?) else {
            return Ok(None);
        };
        let (a, b) = (Whole::of(store, &a)?, Whole::of(store, &b)?);
        if let Some(path) = shared(store, (&a, &b), told)? {
            let why = format!("{} was changed by it and by another", shown(&path));
            return Ok(Some(Err(why)));
        }
    }
    Ok(Some(Ok(told.clone())))
}

/// Calls by their ids, without texts.
fn calls_of(branch: &Branch, ids: &[u64]) -> Result<BTreeMap<u64, TimelineItem>> {
    let mut missing: BTreeSet<u64> = ids.iter().copied().collect();
    let mut found = BTreeMap::new();
    read::timeline_each_of(branch, &mut |mut item| {
        let call = item.call.filter(|_| item.switch.is_none());
        if let Some(id) = call.filter(|id| missing.remove(id)) {
            (item.parameters, item.result, item.error) = (None, None, None);
            found.insert(id, item);
        }
        Ok(!missing.is_empty())
    })?;
    Ok(found)
}

/// True where nothing changed while both ran.
fn idle_together(branch: &Branch, one: &TimelineItem, other: &TimelineItem) -> Result<bool> {
    let later = if one.entry > other.entry { one } else { other };
    let first_to_end = match (one.ended, other.ended) {
        (Some(a), Some(b)) if b < a => other,
        (Some(_), Some(_)) => one,
        (Some(_), None) if other.completed.is_none() => one,
        // One was told of when it was over: where it began is not known.
        _ => return Ok(false),
    };
    match (later.before, first_to_end.after) {
        (Some(began), Some(ended)) => same_state(branch, began, ended),
        _ => Ok(false),
    }
}

fn same_state(branch: &Branch, a: StateRef, b: StateRef) -> Result<bool> {
    if a.state == b.state {
        return Ok(true);
    }
    let (Some(a), Some(b)) = (commit_if_kept(branch, a)?, commit_if_kept(branch, b)?) else {
        return Ok(false);
    };
    let store = &branch.places.store;
    Ok(!differ(
        store,
        &Whole::of(store, &a)?,
        &Whole::of(store, &b)?,
    )?)
}

fn commit_if_kept(branch: &Branch, state: StateRef) -> Result<Option<Commit>> {
    match states::kept_commit(branch, 0, state) {
        Ok(id) => Ok(Some(branch.places.store.get_object(&id)?)),
        // Such a state has gone with its age.
        Err(Error::CallUnknown { .. } | Error::NoSuchRef(_)) => Ok(None),
        Err(e) => Err(e),
    }
}
