//! The timeline as part of a branch: what follows from events, and storing the log.

use super::{StateRef, SwitchWord, Switched, Timeline, log};
use crate::branch::{Branch, Inner};
use crate::error::Result;
use crate::limits::{TIMELINE_FLUSH_BYTES, TIMELINE_TAIL_BYTES_MAX};
use crate::record::{Event, SwitchKind, What};
use crate::types::Time;
use objstore::{CommitId, TimelineHead};

/// What is done where an event was recorded, and where it is replayed.
impl Inner {
    /// A state was frozen: its commit has the timeline's head as it is now.
    pub fn note_head(&mut self, state: u64) {
        let head = self.timeline.head();
        if let Some(s) = self.history.states.get_mut(&state) {
            s.timeline = head;
        }
    }

    /// A state that was taken over from another branch has this head.
    pub fn set_head(&mut self, state: u64, entries: u64, hash: [u8; 32]) {
        if let Some(s) = self.history.states.get_mut(&state) {
            s.timeline = (entries > 0).then_some(TimelineHead { entries, hash });
        }
    }

    /// The commit of a state became known.
    pub fn note_named(&mut self, state: u64, commit: CommitId) {
        let time = self.history.states.get(&state).map(|s| s.info.time);
        self.timeline.named(time.unwrap_or_default(), state, commit);
    }

    /// `kept` stands for `state`.
    pub fn note_same(&mut self, state: u64, kept: u64) {
        self.timeline.same(&self.history, state, kept);
    }

    /// The live tree was switched.
    pub fn note_switch(&mut self, kind: SwitchKind, replaced: u64, target: u64) {
        // What a restore shows is frozen right after it, under the number that was set aside for it.
        let after = match kind {
            SwitchKind::Restore => {
                Some(replaced + 1).filter(|n| self.counters.state == n.saturating_add(1))
            }
            _ => Some(target),
        };
        let switched = Switched {
            by: SwitchWord::from(kind),
            call: None,
            replaced,
            after,
        };
        self.timeline.switched(&self.history, switched);
    }

    /// What a call changed was taken back.
    pub fn note_call_undone(&mut self, call: u64, replaced: u64, after: u64) {
        self.history.restored(replaced);
        let switched = Switched {
            by: SwitchWord::ToolUndo,
            call: Some(call),
            replaced,
            after: Some(after),
        };
        self.timeline.switched(&self.history, switched);
    }

    /// A state as an entry mentions it.
    pub fn state_ref(&self, state: u64) -> StateRef {
        StateRef {
            state,
            commit: self.history.id_of(state),
        }
    }
}

impl Branch {
    /// What the commit of a state says of the timeline.
    pub fn timeline_head_of(&self, state: u64) -> Option<TimelineHead> {
        let inner = self.lock();
        inner
            .book
            .history
            .states
            .get(&state)
            .and_then(|s| s.timeline)
    }

    /// Journals an entry and adds it.
    pub(super) fn note(&self, inner: &mut Inner, time: Time, what: What) -> Result<()> {
        let event = Event::Timeline {
            time,
            what: what.clone(),
        };
        self.record(event, &[])?;
        inner.book.timeline.push(time, what);
        Ok(())
    }

    /// Journals what a state that another branch has too says of the timeline in its commit.
    pub fn record_headed(&self, inner: &Inner, state: u64) -> Result<()> {
        let head = inner.book.history.state(state)?.timeline;
        let (entries, hash) = head.map_or((0, [0; 32]), |h| (h.entries, h.hash));
        let event = Event::Headed {
            state,
            entries,
            hash,
        };
        self.record(event, &[]).map(|_| ())
    }

    /// Stores what of the log is not in the store, where that is much.
    pub fn flush_timeline(&self) -> Result<()> {
        self.flush_from(TIMELINE_FLUSH_BYTES)
    }

    /// Waits with who adds entries until what is not stored is little again.
    pub(super) fn bound_timeline(&self) -> Result<()> {
        self.flush_from(TIMELINE_TAIL_BYTES_MAX)
    }

    fn flush_from(&self, least: usize) -> Result<()> {
        let waits = |t: &Timeline| t.tail.len() >= least;
        if !waits(&self.lock().book.timeline) {
            return Ok(());
        }
        let _one = self.flushing.lock();
        let store = &self.places.store;
        let _pin = store.pin();
        let (stored, tail) = {
            let inner = self.lock();
            if !waits(&inner.book.timeline) {
                return Ok(());
            }
            (inner.book.timeline.stored, inner.book.timeline.tail.clone())
        };
        let stored = log::append(store, &stored, &tail)?;
        store.sync()?;
        let mut inner = self.lock();
        let bytes = tail.len();
        self.record(
            Event::TimelineStored {
                stored,
                bytes: bytes as u64,
            },
            &[],
        )?;
        let seq = self.places.journal.last_seq();
        inner.book.anchors.refers(seq, Some(stored));
        drop(tail);
        // The tail only grows, and only here does it shrink.
        let flushed = inner.book.timeline.flushed(stored, bytes);
        flushed.map_err(|why| crate::Error::Damaged {
            what: "the timeline".into(),
            why: why.into(),
        })
    }
}
