//! What a branch knows besides its trees, and how an event changes that.
//!
//! A branch that is open, one that is recovered after a crash, and one that is repaired carry an event out by
//! the same function, [`Book::carry_out`]. What an event changes in trees comes before it
//! ([`Inner::carry_out`](crate::branch::Inner::carry_out)); a repair has no trees.
//!
//! Invariant: the book is made of the state file's and of the events after it, in the order of their
//! records, and of nothing else.

pub(crate) mod anchors;
pub(crate) mod digits;
pub(crate) mod history;
pub(crate) mod joined;
pub(crate) mod later;
pub(crate) mod retention;
pub(crate) mod states;
pub(crate) mod timeline;

use crate::book::anchors::Anchors;
use crate::book::history::History;
use crate::book::later::Asked;
use crate::book::retention::Expiry;
use crate::book::timeline::Switched;
use crate::book::timeline::Timeline;
use crate::record::call::StateRef;
use crate::record::call::SwitchWord;
use crate::record::{Counters, Event, StateInfo, SwitchKind};
use crate::tree::Tree;
use objstore::{CommitId, TimelineHead};
use std::collections::BTreeSet;

/// What a branch knows besides its trees.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    /// States, labels, the head, the way back and forward, and the conflicts of the last merge.
    pub history: History,
    /// Tool calls and switches.
    pub timeline: Timeline,
    /// Numbers that are given next.
    pub counters: Counters,
    /// What the branch's files refer to in the store.
    pub anchors: Anchors,
    /// Base files that were not what had been shown.
    pub base_changed: BTreeSet<Vec<u8>>,
    /// Base files and directories that could not be read.
    pub unreadable: BTreeSet<Vec<u8>>,
}

/// What there is beside an event that is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside<'a> {
    /// Sequence number of its record.
    pub seq: u64,
    /// The live tree as the event leaves it, or the tree that [`Event::Kept`] keeps; empty where it is not known.
    pub live: &'a Tree,
}

impl Book {
    /// That of a branch which shows `live`.
    pub fn new(live: Tree, counters: Counters, history: History) -> Book {
        Book {
            history,
            timeline: Timeline::default(),
            counters,
            anchors: Anchors::new(live, None),
            base_changed: BTreeSet::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// Carries out an event that was recorded.
    ///
    /// # Errors
    ///
    /// The event says that more of the timeline was stored than there is. Then it changes nothing.
    pub fn carry_out(&mut self, event: Event, beside: Beside<'_>) -> Result<(), &'static str> {
        let switched = Switched::by(&event);
        if event.has_patch() {
            self.anchors.switched(beside.seq, beside.live.clone());
        }
        self.note(event, beside)?;
        if let Some(switched) = switched {
            self.timeline.switched(&self.history, switched);
        }
        Ok(())
    }

    fn note(&mut self, event: Event, beside: Beside<'_>) -> Result<(), &'static str> {
        let history = &mut self.history;
        match event {
            Event::Freeze { info, head, label } => self.freeze(info, beside.live, head, label),
            Event::Kept { info } => self.keep(info, beside.live),
            Event::Withdraw { state } => {
                history.withdraw(state);
            }
            Event::Same { state, kept } => {
                history.merge(state, kept);
                self.timeline.same(history, state, kept);
            }
            Event::Expired { states, undo, redo } => {
                self.timeline.expired(&states);
                history.expire(&Expiry { states, undo, redo });
            }
            Event::Known { info } => {
                self.counters.pass_state(info.number);
                history.know(info);
            }
            Event::Named { state, id } => self.name(state, id),
            Event::Label { label, state } => history.label_unchanged(label, state),
            Event::Inherited { label, state } => {
                history.inherit_label(label, state);
            }
            Event::Applied { time } => history.note_asked(Asked::Apply { time }),
            Event::Resolved { path } => history.conflicts.retain(|c| c.path != path),
            Event::Switch {
                kind,
                replaced,
                target,
                head,
                counters,
            } => {
                self.counters.raise(counters);
                history.switch(kind, replaced, target, head);
            }
            Event::Merged {
                replaced,
                info,
                label,
                conflicts,
                counters,
            } => {
                self.counters.raise(counters);
                history.merged(replaced, info, label, conflicts);
            }
            Event::CallUndone {
                replaced, counters, ..
            } => {
                self.counters.raise(counters);
                history.restored(replaced);
            }
            Event::Patched { counters } => self.counters.raise(counters),
            Event::LoadDir { entries, .. } => self.counters.pass_loaded(&entries),
            Event::Brought { entries, .. } => self.counters.pass_brought(&entries),
            Event::TakeAnew { content, .. } => self.anchors.refers(beside.seq, content),
            Event::Timeline { time, what } => self.timeline.push(time, what),
            Event::TimelineStored { stored, bytes } => {
                self.timeline.flushed(stored, bytes as usize)?;
                self.anchors.refers(beside.seq, Some(stored));
            }
            Event::Headed {
                state,
                entries,
                hash,
            } => {
                let head = (entries > 0).then_some(TimelineHead { entries, hash });
                history.states.set_timeline(state, head);
            }
            // Trees alone.
            Event::Fenced { .. } | Event::SwitchPart => {}
        }
        Ok(())
    }

    /// The live tree is a state; its commit has the timeline's head as it is now.
    fn freeze(&mut self, info: StateInfo, live: &Tree, head: bool, label: Option<String>) {
        let number = info.number;
        self.counters.pass_state(number);
        self.history.freeze(info, live.clone(), head, label);
        self.history
            .states
            .set_timeline(number, self.timeline.head());
    }

    /// A tree from before is a state.
    fn keep(&mut self, info: StateInfo, tree: &Tree) {
        let number = info.number;
        self.counters.pass_state(number);
        self.history.keep(info, tree.clone());
        let head = self.timeline.head();
        self.history.states.set_timeline(number, head);
    }

    /// The commit of a state became known.
    fn name(&mut self, state: u64, id: CommitId) {
        let time = self.history.states.set_id(state, id).map(|s| s.info.time);
        self.timeline.named(time.unwrap_or_default(), state, id);
    }

    /// A state as an entry of the timeline mentions it.
    pub fn state_ref(&self, state: u64) -> StateRef {
        StateRef {
            state,
            commit: self.history.id_of(state),
        }
    }
}

impl Switched {
    /// The switch of the live tree that an event is; `None` for all other events.
    fn by(event: &Event) -> Option<Switched> {
        let (by, call, replaced, after) = match event {
            Event::Switch {
                kind: SwitchKind::Restore,
                replaced,
                counters,
                ..
            } => {
                // What a restore shows is frozen right after it, under the number that was set aside for it.
                let after = replaced.saturating_add(1);
                let set_aside = counters.state == after.saturating_add(1);
                let by = SwitchWord::from(SwitchKind::Restore);
                (by, None, *replaced, set_aside.then_some(after))
            }
            Event::Switch {
                kind,
                replaced,
                target,
                ..
            } => (SwitchWord::from(*kind), None, *replaced, Some(*target)),
            Event::Merged { replaced, info, .. } => {
                let by = SwitchWord::from(SwitchKind::Merge);
                (by, None, *replaced, Some(info.number))
            }
            Event::CallUndone {
                call,
                replaced,
                after,
                ..
            } => (SwitchWord::ToolUndo, Some(*call), *replaced, Some(*after)),
            // `Patched` is how a new branch comes to what it shows, which its origin's timeline tells.
            Event::Patched { .. }
            | Event::Freeze { .. }
            | Event::Kept { .. }
            | Event::Withdraw { .. }
            | Event::Same { .. }
            | Event::Expired { .. }
            | Event::Known { .. }
            | Event::Named { .. }
            | Event::Label { .. }
            | Event::Inherited { .. }
            | Event::Applied { .. }
            | Event::Resolved { .. }
            | Event::LoadDir { .. }
            | Event::Brought { .. }
            | Event::TakeAnew { .. }
            | Event::Timeline { .. }
            | Event::TimelineStored { .. }
            | Event::Headed { .. }
            | Event::Fenced { .. }
            | Event::SwitchPart => return None,
        };
        Some(Switched {
            by,
            call,
            replaced,
            after,
        })
    }
}
