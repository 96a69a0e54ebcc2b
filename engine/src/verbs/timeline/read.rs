//! What the timeline tells: calls and switches, made of the entries of its log.
//!
//! The log is read from its end, so what ended a call comes before what began it, and the commit of a
//! state before what mentions it.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::LogPlace;
use crate::book::timeline::log::newest_first;
use crate::branch::Branch;
use crate::branch::states;
use crate::branch::states::Target;
use crate::error::{Error, Result};
use crate::record::call::{CallOutcome, EndedBy, OVERLAPS_MAX, Owner, StateRef, SwitchWord, What};
use crate::types::Time;
use crate::verbs::timeline::own::Others;
use crate::verbs::timeline::sources;
use crate::workspace::Workspace;
use imbl::OrdMap;
use objstore::{CommitId, ObjectStore};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Commits of states that are remembered on the way; what mentions a state is never far before.
const NAMES_MAX: usize = 100_000;
/// How a call ended that still ran when its branch was deleted.
const BRANCH_GONE: &str = "its branch was deleted while it ran";
/// Bytes of texts in one page.
const PAGE_BYTES: usize = 512 << 10;

/// How a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// It has not ended.
    Pending,
    /// It worked.
    Success,
    /// It failed.
    Error,
}

impl CallStatus {
    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            CallStatus::Pending => "pending",
            CallStatus::Success => "success",
            CallStatus::Error => "error",
        }
    }
}

/// A call, or a switch of the live tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineItem {
    /// Number of the entry that began it.
    pub entry: u64,
    /// What it was if it was no call.
    pub switch: Option<SwitchWord>,
    /// Id of the call; of a `tool-undo`, of the call that was taken back.
    pub call: Option<u64>,
    /// Name of the tool, or the word for the switch.
    pub name: String,
    /// How it is.
    pub status: CallStatus,
    /// Parameters, JSON text.
    pub parameters: Option<String>,
    /// Result, JSON text.
    pub result: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub started: Time,
    /// When it ended.
    pub completed: Option<Time>,
    /// The branch before it.
    pub before: Option<StateRef>,
    /// The branch after it.
    pub after: Option<StateRef>,
    /// The innermost call that it lay inside.
    pub parent: Option<u64>,
    /// Calls that ran at the same time and are neither part of it nor around it, ascending (256 at most).
    pub overlaps: Vec<u64>,
    /// Entries by which the live tree was switched while it ran.
    pub switches: Vec<u64>,
    /// Number of the entry that ended it; none where it was over when it was told of.
    pub ended: Option<u64>,
    /// Who told of its end.
    pub ended_by: Option<EndedBy>,
    /// The key by which it was begun.
    pub key: Option<String>,
    /// What others changed while it ran, where that is known.
    pub(crate) others: Option<Arc<Others>>,
}

impl TimelineItem {
    /// How long it took, where it has ended.
    pub fn duration_ms(&self) -> Option<u64> {
        let end = self.completed?;
        let nanos = |t: Time| i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
        u64::try_from((nanos(end) - nanos(self.started)) / 1_000_000).ok()
    }

    fn text_bytes(&self) -> usize {
        let texts = [&self.parameters, &self.result, &self.error];
        texts.into_iter().flatten().map(String::len).sum::<usize>() + 256
    }
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct TimelineQuery {
    /// At most so many.
    pub limit: usize,
    /// Only what began before this entry.
    pub before: Option<u64>,
    /// Only calls of this tool.
    pub name: Option<String>,
    /// Only calls that are so.
    pub status: Option<CallStatus>,
    /// Switches too.
    pub all: bool,
    /// Without parameters, results and errors.
    pub brief: bool,
    /// Of another timeline of the branch (`verbs::timelines`): its branch, and when that was deleted.
    pub of: Option<(String, Option<Time>)>,
}

impl TimelineQuery {
    fn wants(&self, item: &TimelineItem) -> bool {
        (self.all || item.switch.is_none())
            && self.before.is_none_or(|before| item.entry < before)
            && self.name.as_ref().is_none_or(|name| *name == item.name)
            && self.status.is_none_or(|status| status == item.status)
    }
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct TimelinePage {
    /// What was found, the newest first.
    pub items: Vec<TimelineItem>,
    /// There may be more, before this entry.
    pub next: Option<u64>,
}

/// Calls, and with `all` switches, the newest first. A page ends early where its texts are long.
pub fn timeline(ws: &Workspace, branch: &str, query: &TimelineQuery) -> Result<TimelinePage> {
    let mut page = TimelinePage {
        items: Vec::new(),
        next: None,
    };
    let (mut bytes, mut full) = (0, false);
    let mut each = |mut item: TimelineItem| {
        if !query.wants(&item) {
            return Ok(true);
        }
        if query.brief {
            (item.parameters, item.result, item.error) = (None, None, None);
        }
        item.others = None;
        full = page.items.len() >= query.limit
            || (bytes > 0 && bytes + item.text_bytes() > PAGE_BYTES);
        if full {
            page.next = page.items.last().map(|last| last.entry);
            return Ok(false);
        }
        bytes += item.text_bytes();
        page.items.push(item);
        Ok(true)
    };
    match &query.of {
        None => timeline_each(ws, branch, &mut each)?,
        Some((name, deleted)) => {
            let all = sources::timelines(ws, branch)?.into_iter();
            let mut asked = all.filter(|s| (&s.branch, &s.deleted) == (name, deleted));
            let source = asked.next();
            let source = source.ok_or_else(|| Error::NoSuchBranch(name.clone()))?;
            sources::timeline_of(ws, &source, &mut each)?;
        }
    }
    Ok(page)
}

/// Calls `each` for all calls and switches, the newest first, until it says false.
pub fn timeline_each(
    ws: &Workspace,
    branch: &str,
    each: &mut dyn FnMut(TimelineItem) -> Result<bool>,
) -> Result<()> {
    timeline_each_of(ws.branch(branch)?.as_ref(), each)
}

/// One call. [`Error::NoSuchCall`].
pub fn call(ws: &Workspace, branch: &str, id: u64) -> Result<TimelineItem> {
    call_of(ws.branch(branch)?.as_ref(), id)
}

/// One call with the commits before and after it, which are waited for, and which the branch knows
/// from then on. [`Error::NoSuchCall`], [`Error::CallUnknown`] where they are not kept.
pub fn call_with_commits(ws: &Workspace, branch: &str, id: u64) -> Result<TimelineItem> {
    let b = ws.branch(branch)?;
    let _pin = b.places.store.pin();
    let mut item = call_of(&b, id)?;
    for state in [&mut item.before, &mut item.after].into_iter().flatten() {
        let commit = states::kept_commit(&b, id, *state)?;
        state.commit = Some(commit);
        if states::resolve(&b, &Target::Ref(commit.to_string())).is_err() {
            b.know(commit)?;
        }
    }
    Ok(item)
}

pub(crate) fn call_of(branch: &Branch, id: u64) -> Result<TimelineItem> {
    let mut found = None;
    timeline_each_of(branch, &mut |item| {
        if item.switch.is_none() && item.call == Some(id) {
            found = Some(item);
        }
        Ok(found.is_none())
    })?;
    found.ok_or(Error::NoSuchCall(id))
}

pub(crate) fn timeline_each_of(
    branch: &Branch,
    each: &mut dyn FnMut(TimelineItem) -> Result<bool>,
) -> Result<()> {
    let store = &branch.places.store;
    let _pin = store.pin();
    reading(branch).each(store, each)
}

/// The timeline as it is now, for reading. The caller holds a pin of the store.
pub(crate) fn reading(branch: &Branch) -> Reading {
    let inner = branch.lock();
    let running = inner.book.timeline.running.keys();
    Reading {
        log: LogPlace::of(&inner.book.timeline),
        running: running
            .map(|c| (*c, inner.book.timeline.overlaps_of(*c)))
            .collect(),
        known: inner.book.history.states.commits(),
        gone: None,
        of: None,
    }
}

/// A timeline as it was at one moment, and what its branch knew beside it.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Its log.
    pub log: LogPlace,
    /// Calls that ran, with those that overlap.
    pub running: HashMap<u64, Vec<u64>>,
    /// Commits of the states that the branch kept.
    pub known: OrdMap<u64, CommitId>,
    /// When the branch was deleted, and with it whatever still ran.
    pub gone: Option<Time>,
    /// Read a timeline of another branch that was taken over into this one, and nothing else.
    pub of: Option<u64>,
}

impl Reading {
    /// Calls `each` for all calls and switches, the newest first, until it says false.
    pub fn each(
        self,
        store: &ObjectStore,
        each: &mut dyn FnMut(TimelineItem) -> Result<bool>,
    ) -> Result<()> {
        let log = Log::at(&self.log, store, store.pin());
        let mut reader = Reader::of(self);
        newest_first(&log, &mut |frame| {
            let entry = frame.entry()?;
            match reader.take(entry.number, entry.time, entry.what) {
                Some(item) => each(item),
                None => Ok(true),
            }
        })
    }
}

/// How a call ended, until its beginning is met.
struct End {
    entry: u64,
    time: Time,
    outcome: CallOutcome,
    after: StateRef,
    parent: Option<u64>,
    overlaps: Vec<u64>,
    switches: Vec<u64>,
    by: EndedBy,
    others: Option<Arc<Others>>,
}

/// Makes items of entries, the newest first.
#[derive(Default)]
pub(crate) struct Reader {
    /// Calls that run, with those that overlap.
    running: HashMap<u64, Vec<u64>>,
    /// Commits of the states that the branch keeps.
    known: OrdMap<u64, CommitId>,
    /// When the branch was deleted.
    gone: Option<Time>,
    /// The timeline that is read, where it is one that was taken over.
    of: Option<u64>,
    ends: HashMap<u64, End>,
    names: BTreeMap<u64, CommitId>,
    same: BTreeMap<u64, StateRef>,
    /// By call: later ones that say to overlap with it.
    said: BTreeMap<u64, HashSet<u64>>,
}

impl Reader {
    /// One that has met no entry of this timeline yet.
    pub fn of(reading: Reading) -> Reader {
        Reader {
            running: reading.running,
            known: reading.known,
            gone: reading.gone,
            of: reading.of,
            ..Reader::default()
        }
    }

    /// The item that an entry began; what an entry tells of earlier ones is remembered until they are met.
    pub fn take(&mut self, entry: u64, time: Time, what: What) -> Option<TimelineItem> {
        let of = match &what {
            What::Imported { timeline, .. } => *timeline,
            _ => None,
        };
        if of != self.of {
            return None;
        }
        match what {
            What::Named { state, commit } => bounded(&mut self.names, state, commit),
            What::Same { state, kept } => bounded(&mut self.same, state, kept),
            What::Ended {
                call,
                outcome,
                after,
                overlaps,
                switches,
            } => {
                let end = End {
                    entry,
                    time,
                    outcome,
                    after,
                    parent: None,
                    overlaps,
                    switches,
                    by: EndedBy::Told,
                    others: None,
                };
                self.ends.insert(call, end);
            }
            What::Over {
                call,
                outcome,
                after,
                parent,
                overlaps,
                switches,
                by,
            } => {
                let end = End {
                    entry,
                    time,
                    outcome,
                    after,
                    parent,
                    overlaps,
                    switches,
                    by,
                    others: None,
                };
                self.ends.insert(call, end);
            }
            What::Started {
                call,
                name,
                parameters,
                before,
            } => {
                let mut item = self.item(entry, call, name, time);
                (item.parameters, item.before) = (parameters, Some(self.named(before)));
                self.end(&mut item, call);
                return Some(item);
            }
            What::Begun {
                call,
                name,
                parameters,
                before,
                owner,
                ..
            } => {
                let mut item = self.item(entry, call, name, time);
                (item.parameters, item.before) = (parameters, Some(self.named(before)));
                if let Owner::Key(key) = owner {
                    item.key = Some(key);
                }
                self.end(&mut item, call);
                return Some(item);
            }
            What::Recorded {
                call,
                name,
                parameters,
                outcome,
                started,
                completed,
                before,
                after,
                overlaps,
            } => {
                let mut item = self.item(entry, call, name, started);
                (item.parameters, item.completed) = (parameters, completed);
                item.before = before.map(|s| self.named(s));
                item.after = after.map(|s| self.named(s));
                set_outcome(&mut item, outcome);
                self.overlap(&mut item, call, overlaps);
                return Some(item);
            }
            What::Imported {
                call,
                name,
                parameters,
                outcome,
                started,
                completed,
                parent,
                overlaps,
                ..
            } => {
                let mut item = self.item(entry, call, name, started);
                (item.parameters, item.completed) = (parameters, completed);
                item.parent = parent;
                set_outcome(&mut item, outcome);
                self.overlap(&mut item, call, overlaps);
                return Some(item);
            }
            What::Others { call, paths, doubt } => {
                // Both have one time. Else a crash cut it off from the end that it was written for.
                let next = |end: &&mut End| (end.entry, end.time) == (entry + 1, time);
                if let Some(end) = self.ends.get_mut(&call).filter(next) {
                    let of = end.overlaps.clone();
                    end.others = Some(Arc::new(Others { of, paths, doubt }));
                }
            }
            What::Elsewhere { .. } => {}
            What::Switched {
                by,
                call,
                before,
                after,
            } => {
                let mut item = self.item(entry, 0, by.word().to_owned(), time);
                (item.switch, item.call) = (Some(by), call);
                (item.status, item.completed) = (CallStatus::Success, Some(time));
                item.before = Some(self.named(before));
                item.after = after.map(|s| self.named(s));
                return Some(item);
            }
        }
        None
    }

    /// How a call that began has ended, if it has.
    fn end(&mut self, item: &mut TimelineItem, call: u64) {
        match self.ends.remove(&call) {
            Some(end) => {
                item.completed = Some(end.time);
                item.after = Some(self.named(end.after));
                (item.parent, item.switches) = (end.parent, end.switches);
                (item.ended, item.ended_by) = (Some(end.entry), Some(end.by));
                item.others = end.others;
                set_outcome(item, Some(end.outcome));
                self.overlap(item, call, end.overlaps);
            }
            None => {
                let so_far = self.running.remove(&call).unwrap_or_default();
                self.overlap(item, call, so_far);
                if let Some(deleted) = self.gone {
                    item.completed = Some(deleted);
                    set_outcome(item, Some(CallOutcome::Error(BRANCH_GONE.to_owned())));
                }
            }
        }
    }

    fn item(&self, entry: u64, call: u64, name: String, started: Time) -> TimelineItem {
        TimelineItem {
            entry,
            switch: None,
            call: Some(call),
            name,
            status: CallStatus::Pending,
            parameters: None,
            result: None,
            error: None,
            started,
            completed: None,
            before: None,
            after: None,
            parent: None,
            overlaps: Vec::new(),
            switches: Vec::new(),
            ended: None,
            ended_by: None,
            key: None,
            others: None,
        }
    }

    /// A state with its commit, where that is known by now.
    pub fn named(&self, mut state: StateRef) -> StateRef {
        if state.commit.is_none()
            && let Some(kept) = self.same.get(&state.state)
        {
            state = *kept;
        }
        let later = || {
            self.known
                .get(&state.state)
                .or(self.names.get(&state.state))
        };
        state.commit = state.commit.or_else(|| later().copied());
        state
    }

    /// What a call says itself, and what later ones say of it.
    fn overlap(&mut self, item: &mut TimelineItem, call: u64, own: Vec<u64>) {
        let mut all: BTreeSet<u64> = self.said.remove(&call).into_iter().flatten().collect();
        for other in own.into_iter().filter(|other| *other != call) {
            all.insert(other);
            if other < call {
                self.said.entry(other).or_default().insert(call);
            }
        }
        item.overlaps = all.into_iter().take(OVERLAPS_MAX).collect();
    }
}

fn set_outcome(item: &mut TimelineItem, outcome: Option<CallOutcome>) {
    match outcome {
        None => {}
        Some(CallOutcome::Success(result)) => {
            (item.status, item.result) = (CallStatus::Success, result);
        }
        Some(CallOutcome::Error(why)) => {
            (item.status, item.error) = (CallStatus::Error, Some(why));
        }
    }
}

/// Remembers a value for a state; lets go of that of the newest one where there are many.
fn bounded<T>(map: &mut BTreeMap<u64, T>, state: u64, value: T) {
    if map.len() >= NAMES_MAX {
        map.pop_last();
    }
    map.insert(state, value);
}
