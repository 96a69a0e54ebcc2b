//! The timeline as part of a branch: adding entries, and storing the log.

use crate::book::timeline::Timeline;
use crate::book::timeline::log;
use crate::branch::{Branch, Inner};
use crate::error::Result;
use crate::limits::{TIMELINE_FLUSH_BYTES, TIMELINE_TAIL_BYTES_MAX};
use crate::record::{Event, What};
use crate::types::Time;
use objstore::TimelineHead;

/// What the commit of a state says of the timeline.
pub(crate) fn timeline_head_of(branch: &Branch, state: u64) -> Option<TimelineHead> {
    let inner = branch.lock();
    inner
        .book
        .history
        .states
        .get(&state)
        .and_then(|s| s.timeline)
}

/// Journals an entry and adds it.
pub(crate) fn note(branch: &Branch, inner: &mut Inner, time: Time, what: What) -> Result<()> {
    branch.carry_out(inner, Event::Timeline { time, what }, &[])
}

/// Journals what a state that another branch has too says of the timeline in its commit.
pub(crate) fn record_headed(branch: &Branch, inner: &Inner, state: u64) -> Result<()> {
    let head = inner.book.history.state(state)?.timeline;
    let (entries, hash) = head.map_or((0, [0; 32]), |h| (h.entries, h.hash));
    let event = Event::Headed {
        state,
        entries,
        hash,
    };
    branch.record(event, &[]).map(|_| ())
}

/// Stores what of the log is not in the store, where that is much.
pub(crate) fn flush_timeline(branch: &Branch) -> Result<()> {
    flush_from(branch, TIMELINE_FLUSH_BYTES)
}

/// Waits with who adds entries until what is not stored is little again.
pub(crate) fn bound_timeline(branch: &Branch) -> Result<()> {
    flush_from(branch, TIMELINE_TAIL_BYTES_MAX)
}

fn flush_from(branch: &Branch, least: usize) -> Result<()> {
    let waits = |t: &Timeline| t.tail.len() >= least;
    if !waits(&branch.lock().book.timeline) {
        return Ok(());
    }
    let _one = branch.flushing.lock();
    let store = &branch.places.store;
    let _pin = store.pin();
    let (stored, tail) = {
        let inner = branch.lock();
        if !waits(&inner.book.timeline) {
            return Ok(());
        }
        (inner.book.timeline.stored, inner.book.timeline.tail.clone())
    };
    let stored = log::append(store, &stored, &tail)?;
    store.sync()?;
    let bytes = tail.len() as u64;
    drop(tail);
    let mut inner = branch.lock();
    // The tail only grows, and only here does it shrink.
    branch.carry_out(&mut inner, Event::TimelineStored { stored, bytes }, &[])
}
