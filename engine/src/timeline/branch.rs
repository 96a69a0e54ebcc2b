//! The timeline as part of a branch: adding entries, and storing the log.

use super::{Timeline, log};
use crate::branch::{Branch, Inner};
use crate::error::Result;
use crate::limits::{TIMELINE_FLUSH_BYTES, TIMELINE_TAIL_BYTES_MAX};
use crate::record::{Event, What};
use crate::types::Time;
use objstore::TimelineHead;

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
        self.carry_out(inner, Event::Timeline { time, what }, &[])
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
        let bytes = tail.len() as u64;
        drop(tail);
        let mut inner = self.lock();
        // The tail only grows, and only here does it shrink.
        self.carry_out(&mut inner, Event::TimelineStored { stored, bytes }, &[])
    }
}
