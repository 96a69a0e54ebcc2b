//! What a branch begins with that is made of an older state: the timeline up to that state.
//!
//! A commit holds the newest entry of the moment in which its state was frozen. What was noted after that while the
//! branch still was that state belongs to it too: the end of the call that left it, say. What later entries tell of
//! the states that are mentioned so far (the commit of one, and which one stands for another) is told again.
//!
//! Of a state that another branch made, the log has what it had when that branch came from it; the commit leads to
//! the rest ([`super::sources`]).
//!
//! Tests: `engine/tests/timeline/inherited.rs`.

use crate::book::timeline::Timeline;
use crate::book::timeline::log::Log;
use crate::book::timeline::log::LogPlace;
use crate::book::timeline::log::Newest;
use crate::book::timeline::log::beginning;
use crate::book::timeline::log::newest_first;
use crate::book::timeline::log::oldest_first;
use crate::branch::Branch;
use crate::error::Result;
use crate::record::OpKind;
use crate::record::call::{FRAME_EXTRA_BYTES, StateRef, TimelineEntry, What};
use crate::types::Time;
use objstore::{Commit, CommitId, Kind, TimelineHead};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A state, and how far the timeline went when it was frozen.
struct Frozen {
    state: u64,
    head: Option<TimelineHead>,
}

impl Frozen {
    fn entries(&self) -> u64 {
        self.head.map_or(0, |head| head.entries)
    }
}

/// One of the states that a state comes from.
struct Ancestor {
    state: u64,
    foreign: bool,
    /// What is known here of the timeline; of others the commit says it.
    head: Option<TimelineHead>,
    commit: Option<CommitId>,
}

/// What entries tell of states that earlier ones mention, the oldest first.
#[derive(Default)]
struct Later {
    told: Vec<TimelineEntry>,
    /// By state: the one that stands for it.
    same: HashMap<u64, u64>,
}

/// What an entry is for a state that was frozen before it.
enum Bearing {
    /// With it the branch was the state still.
    Ends,
    /// It may be that a later one is such.
    Open,
    /// The branch was another one then.
    Over,
}

/// The timeline up to a state. What it needs is in the store, not synced.
pub(crate) fn timeline_up_to(branch: &Branch, state: u64) -> Result<Timeline> {
    let store = &branch.places.store;
    let _pin = store.pin();
    let whole = branch.lock().book.timeline.clone();
    let place = LogPlace::of(&whole);
    let Some(frozen) = frozen_from(branch, state, &place)? else {
        return Ok(Timeline::default());
    };
    let log = Log::at(&place, store, store.pin());
    let later = Later::than(frozen.entries(), &log)?;
    let (mut found, bytes) = up_to(&frozen, &later, &log)?;
    match bytes.checked_sub(whole.stored.len()) {
        Some(of_tail) => {
            let tail = whole.tail.iter().take(of_tail as usize);
            (found.stored, found.tail) = (whole.stored, Arc::new(tail.copied().collect()));
        }
        None => found.stored = beginning(store, &whole.stored, bytes)?,
    }
    let reached = found.entries;
    for entry in later.told {
        if entry.number > reached {
            found.tell_again(entry.time, entry.what);
        }
    }
    // Some have expired since.
    found.used.retain(|state| whole.used.contains(state));
    found.unnamed.retain(|state| whole.unnamed.contains(state));
    Ok(found)
}

/// The state, or where another branch made that, the newest one that it comes from of which the log has the
/// newest entry.
fn frozen_from(branch: &Branch, state: u64, place: &LogPlace) -> Result<Option<Frozen>> {
    let store = &branch.places.store;
    let mut all = Vec::new();
    for ancestor in own_before(branch, state) {
        let mut head = ancestor.head;
        if let (None, Some(id)) = (head, ancestor.commit) {
            if !store.contains(Kind::Commit, id.as_bytes()) {
                continue;
            }
            let commit: Commit = store.get_object(&id)?;
            head = commit.timeline;
        }
        if head.is_some() || !ancestor.foreign {
            let state = ancestor.state;
            all.push(Frozen { state, head });
        }
    }
    all.sort_by_key(|frozen| Reverse((frozen.entries(), frozen.state)));
    let mut log = Newest::of(Log::at(place, store, store.pin()));
    for frozen in all {
        let Some(head) = frozen.head else {
            return Ok(Some(frozen));
        };
        if log.skip_to(head.entries)? == Some(head) {
            return Ok(Some(frozen));
        }
    }
    Ok(None)
}

/// A state, and as far as other branches made them, those that it comes from, to the first of this branch.
fn own_before(branch: &Branch, state: u64) -> Vec<Ancestor> {
    let inner = branch.lock();
    let states = &inner.book.history.states;
    let (mut found, mut met) = (Vec::new(), BTreeSet::new());
    let mut work = vec![state];
    while let Some(number) = work.pop() {
        let Some(state) = states.get(&number).filter(|_| met.insert(number)) else {
            continue;
        };
        let foreign = state.info.kind == OpKind::Foreign;
        if foreign {
            work.extend(&state.info.parents);
        }
        found.push(Ancestor {
            state: number,
            foreign,
            head: state.timeline,
            commit: state.info.id.filter(|_| states.is_stored(number)),
        });
    }
    found
}

impl Later {
    /// What entries after this one tell.
    fn than(entries: u64, log: &Log<'_>) -> Result<Later> {
        let mut later = Later::default();
        newest_first(log, &mut |frame| {
            let entry = frame.entry()?;
            if entry.number <= entries {
                return Ok(false);
            }
            match &entry.what {
                What::Same { state, kept } => {
                    later.same.insert(*state, kept.state);
                    later.told.push(entry);
                }
                What::Named { .. } => later.told.push(entry),
                _ => {}
            }
            Ok(true)
        })?;
        later.told.reverse();
        Ok(later)
    }

    /// Whether this state is `state`, or that one stands for it.
    fn is(&self, of: StateRef, state: u64) -> bool {
        let mut at = of.state;
        let mut left = self.same.len();
        while at != state && left > 0 {
            let Some(kept) = self.same.get(&at) else {
                break;
            };
            (at, left) = (*kept, left - 1);
        }
        at == state
    }

    fn bearing(&self, what: &What, state: u64) -> Bearing {
        let left = |of: StateRef| match self.is(of, state) {
            true => Bearing::Ends,
            false => Bearing::Over,
        };
        match what {
            What::Named { .. } | What::Same { .. } | What::Others { .. } => Bearing::Open,
            What::Started { before, .. } | What::Begun { before, .. } => {
                match self.is(*before, state) {
                    true => Bearing::Open,
                    false => Bearing::Over,
                }
            }
            What::Ended { after, .. } | What::Over { after, .. } => left(*after),
            What::Switched { after, .. } => after.map_or(Bearing::Over, left),
            // What was taken over from elsewhere changed nothing here.
            What::Elsewhere { .. } | What::Imported { .. } => Bearing::Ends,
            What::Recorded { after, .. } => after.map_or(Bearing::Ends, left),
        }
    }
}

/// The timeline as far as it belongs to a state, without its log, and the bytes that it has of that.
fn up_to(frozen: &Frozen, later: &Later, log: &Log<'_>) -> Result<(Timeline, u64)> {
    let (mut found, mut bytes) = (Timeline::default(), 0);
    let (mut at, mut end) = (Timeline::default(), 0);
    oldest_first(log, &mut |frame| {
        let entry = frame.entry()?;
        let bearing = match entry.number.cmp(&frozen.entries()) {
            std::cmp::Ordering::Less => Bearing::Open,
            std::cmp::Ordering::Equal => Bearing::Ends,
            std::cmp::Ordering::Greater => later.bearing(&entry.what, frozen.state),
        };
        (at.entries, at.hash) = (entry.number, frame.hash);
        at.note(&entry);
        end += (frame.body.len() + FRAME_EXTRA_BYTES) as u64;
        if matches!(bearing, Bearing::Ends) {
            (found, bytes) = (at.clone(), end);
        }
        Ok(!matches!(bearing, Bearing::Over))
    })?;
    Ok((found, bytes))
}

impl Timeline {
    /// Adds what an entry told that this timeline does not have.
    fn tell_again(&mut self, time: Time, what: What) {
        match what {
            What::Named { state, commit } => self.named(time, state, commit),
            What::Same { state, .. } if self.mentions(state) => self.push(time, what),
            _ => {}
        }
    }

    /// Whether it is to be told what becomes of a state.
    pub(crate) fn mentions(&self, state: u64) -> bool {
        self.unnamed.contains(&state) || self.used.contains(&state) || self.last == Some(state)
    }
}
