//! The timeline of a branch: which tools were called, and what the branch was before and after.
//!
//! A log of [entries](crate::record::call::TimelineEntry) that only grows: rollbacks add to it and take nothing away. Entries are
//! journal events (or follow from events: switches, names of commits), so they are as durable as those.
//! The newest stand in memory and in the state file (`tail`); once they are many they are stored as
//! content (`stored`), which is named by an event of its own. Each entry's hash covers all before it, and
//! each commit holds the newest hash ([`objstore::TimelineHead`]), so what is altered or removed later
//! does not pass (`verbs/timeline/verify.rs`).
//!
//! Invariant: the log is made by [`Timeline::push`] alone, from the same events in the same order whether
//! they are new or replayed, so a recovered timeline has the same hashes.
//!
//! Tests: beside the parts; `engine/tests/timeline/exact.rs` (power cuts, kills, altered entries).

pub(crate) mod log;
pub(crate) mod rebuild;
pub(crate) mod running;

use crate::book::history::History;
use crate::record::call::{CallOutcome, StateRef, SwitchWord};
use crate::record::call::{EndedBy, Owner};
use crate::record::call::{OVERLAPS_MAX, TimelineEntry, What, framed};
use crate::types::Time;
use objstore::content::FileContent;
use objstore::{CommitId, TimelineHead};
pub(crate) use running::Running;
#[cfg(test)]
pub(crate) use running::tests as tests_of_running;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ended calls of which it is remembered when they ran, to see which ran at the same time as one that is
/// recorded later.
const RECENT_MAX: usize = 64;

/// What a new branch says of a call that runs in the branch of which it is made.
const STILL_RAN: &str = "unknown: it still ran when this branch was made";

/// When a call ran that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Ran {
    call: u64,
    started: Time,
    completed: Time,
}

/// A branch's timeline as it is in memory and in the state file.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Timeline {
    /// The log up to the tail, in the store.
    pub(crate) stored: FileContent,
    /// Its end, not stored yet.
    pub(crate) tail: Arc<Vec<u8>>,
    /// Entries so far.
    pub(crate) entries: u64,
    /// Hash of the last one.
    pub(crate) hash: [u8; 32],
    /// Id of the next call.
    pub(crate) next_call: u64,
    /// Calls that run.
    pub(crate) running: BTreeMap<u64, Running>,
    /// Calls that ended last.
    recent: Vec<Ran>,
    /// State after the last call or switch.
    pub(crate) last: Option<u64>,
    /// States of which an entry is to tell the commit once it is known.
    pub(crate) unnamed: BTreeSet<u64>,
    /// States before and after calls, which are kept by a setting of their own.
    pub(crate) used: BTreeSet<u64>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            stored: FileContent::Empty,
            tail: Arc::default(),
            entries: 0,
            hash: [0; 32],
            next_call: 1,
            running: BTreeMap::new(),
            recent: Vec::new(),
            last: None,
            unnamed: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }
}

impl Timeline {
    /// One of which nothing is known but the log.
    pub(crate) fn of_log(stored: FileContent) -> Timeline {
        Timeline {
            stored,
            ..Timeline::default()
        }
    }

    /// What a commit that is made now says of it.
    pub fn head(&self) -> Option<TimelineHead> {
        (self.entries > 0).then_some(TimelineHead {
            entries: self.entries,
            hash: self.hash,
        })
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, time: Time, what: What) {
        self.entries += 1;
        let entry = TimelineEntry {
            number: self.entries,
            time,
            what,
        };
        let (frame, hash) = framed(&entry, &self.hash);
        Arc::make_mut(&mut self.tail).extend_from_slice(&frame);
        self.hash = hash;
        self.note(&entry);
    }

    pub(crate) fn note(&mut self, entry: &TimelineEntry) {
        match &entry.what {
            What::Started { call, before, .. } => {
                self.begin(*call, entry.time, Owner::Anybody, &[]);
                self.mention_used(*before);
            }
            What::Begun {
                call,
                before,
                owner,
                apart,
                ..
            } => {
                self.begin(*call, entry.time, owner.clone(), apart);
                self.mention_used(*before);
            }
            What::Ended { call, after, .. } | What::Over { call, after, .. } => {
                self.end(*call, entry.time);
                self.mention_used(*after);
                self.last = Some(after.state);
            }
            What::Recorded {
                call,
                started,
                completed,
                before,
                after,
                ..
            } => {
                self.next_call = self.next_call.max(call.saturating_add(1));
                let (Some(before), Some(after)) = (before, after) else {
                    return;
                };
                self.overlap_running(*call);
                self.remember(*call, *started, completed.unwrap_or(entry.time));
                self.mention_used(*before);
                self.mention_used(*after);
                self.last = Some(after.state);
            }
            What::Imported { timeline, call, .. } => {
                if timeline.is_none() {
                    self.next_call = self.next_call.max(call.saturating_add(1));
                }
            }
            What::Elsewhere { .. } | What::Others { .. } => {}
            What::Switched { before, after, .. } => {
                for running in self.running.values_mut() {
                    insert_some(&mut running.switches, entry.number);
                }
                self.mention(*before);
                if let Some(after) = after {
                    self.mention(*after);
                    self.last = Some(after.state);
                }
            }
            What::Named { state, .. } => drop(self.unnamed.remove(state)),
            What::Same { state, kept } => {
                self.unnamed.remove(state);
                if self.used.remove(state) {
                    self.used.insert(kept.state);
                }
                self.mention(*kept);
                self.last = self.last.map(|l| if l == *state { kept.state } else { l });
            }
        }
    }

    fn overlap_running(&mut self, call: u64) {
        for running in self.running.values_mut() {
            insert_some(&mut running.overlaps, call);
        }
    }

    fn remember(&mut self, call: u64, started: Time, completed: Time) {
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(Ran {
            call,
            started,
            completed,
        });
    }

    fn mention(&mut self, state: StateRef) {
        if state.commit.is_none() {
            self.unnamed.insert(state.state);
        }
    }

    fn mention_used(&mut self, state: StateRef) {
        self.mention(state);
        self.used.insert(state.state);
    }

    /// Calls that ran at some time between `from` and `to`, as far as is remembered, ascending.
    pub(crate) fn ran_between(&self, from: Time, to: Time) -> Vec<u64> {
        let ended = self.recent.iter();
        let ended = ended.filter(|r| r.started < to && from < r.completed);
        let running = self.running.iter().filter(|(_, r)| r.started <= to);
        let all: BTreeSet<u64> = ended
            .map(|r| r.call)
            .chain(running.map(|(call, _)| *call))
            .collect();
        all.into_iter().take(OVERLAPS_MAX).collect()
    }

    /// The live tree was switched; `reserved` is the state that is frozen of what a restore shows.
    pub(crate) fn switched(&mut self, history: &History, s: Switched) {
        let time = history.states.get(&s.replaced).map(|s| s.info.time);
        let of = |state| StateRef {
            state,
            commit: history.id_of(state),
        };
        let what = What::Switched {
            by: s.by,
            call: s.call,
            before: of(s.replaced),
            after: s.after.map(of),
        };
        self.push(time.unwrap_or_default(), what);
    }

    /// The commit of a state became known at `time`.
    pub(crate) fn named(&mut self, time: Time, state: u64, commit: CommitId) {
        if self.unnamed.contains(&state) {
            self.push(time, What::Named { state, commit });
        }
    }

    /// `kept` stands for `state`, which it equals.
    pub(crate) fn same(&mut self, history: &History, state: u64, kept: u64) {
        if !self.mentions(state) {
            return;
        }
        let time = history.states.get(&kept).map(|s| s.info.time);
        let kept = StateRef {
            state: kept,
            commit: history.id_of(kept),
        };
        self.push(time.unwrap_or_default(), What::Same { state, kept });
    }

    /// States that are not kept any longer.
    pub(crate) fn expired(&mut self, states: &[u64]) {
        for state in states {
            self.used.remove(state);
            self.unnamed.remove(state);
        }
    }

    /// The part of the log that is in the store has grown by so many bytes of the tail.
    pub(crate) fn flushed(
        &mut self,
        stored: FileContent,
        bytes: usize,
    ) -> Result<(), &'static str> {
        if bytes > self.tail.len() {
            return Err("more of the timeline was stored than there is");
        }
        // A new one, so that the room goes back.
        self.tail = Arc::new(self.tail[bytes..].to_vec());
        self.stored = stored;
        Ok(())
    }

    /// What a branch that is made of this one, of its state `head`, begins with: the same entries. Calls that
    /// run, run here: nobody will end them there, so there it is not known how they ended.
    pub(crate) fn inherited(&self, head: StateRef, now: Time) -> Timeline {
        let mut new = self.clone();
        // The innermost first, as they are parts of one another.
        for call in self.running.keys().rev() {
            let outcome = CallOutcome::Error(STILL_RAN.to_owned());
            let over = new.over(*call, outcome, head, EndedBy::Nobody);
            new.push(now, over);
        }
        new
    }

    /// States to which it refers without their commits, or as before and after calls.
    pub(crate) fn mentioned(&self) -> impl Iterator<Item = u64> {
        self.unnamed.iter().chain(&self.used).copied()
    }

    /// States of which a commit is still to be told.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = u64> {
        self.unnamed.iter().copied()
    }
}

/// A switch of the live tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switched {
    pub by: SwitchWord,
    pub call: Option<u64>,
    pub replaced: u64,
    pub after: Option<u64>,
}

fn insert_some(set: &mut BTreeSet<u64>, value: u64) {
    if set.len() < OVERLAPS_MAX {
        set.insert(value);
    }
}
