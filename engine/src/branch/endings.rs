//! Calls that end without being told to: their process is gone, or nobody ended them for too long.
//!
//! Who holds a process that makes calls asks `verbs::calling` for them when a workspace is opened, and says by
//! `verbs::end_calls_of` which are gone: before anybody can change anything, so that what such a call left is
//! what there was when all ended. A call that is of no process is given up after the setting `end-calls`.
//!
//! Invariant: a call of a process that lives is never ended here, however long it takes.

use crate::branch::Branch;
use crate::branch::calls;
use crate::branch::timeline;
use crate::clock;
use crate::error::Result;
use crate::record::call::{CallOutcome, EndedBy, Owner};
use crate::types::Time;
use std::time::Duration;

/// Why a call failed whose process is gone.
pub(crate) const DIED: &str = "its process died";

/// Gives up calls that nobody has ended for as long as is set.
pub(crate) fn end_overdue_calls(branch: &Branch) {
    let Some(limit) = branch.auto.settings.read().end_calls else {
        return;
    };
    if branch.read_only || branch.is_closing() {
        return;
    }
    let now = clock::now();
    let overdue = |owner: &Owner, started: Time| {
        !matches!(owner, Owner::Process(_)) && age(started, now).is_some_and(|age| age >= limit)
    };
    let why = format!("nobody told of its end for {} s", limit.as_secs());
    let author = branch.auto.author.clone();
    // It is tried again with the next look.
    if let Err(e) = end_calls(branch, &author, &overdue, (&why, EndedBy::Nobody, false)) {
        tracing::warn!("{}: calls cannot be timed out: {e}", branch.name());
    }
}

/// Calls that run of which `meant` says so, ascending.
pub(crate) fn calls_of_owners(branch: &Branch, meant: &dyn Fn(&Owner, Time) -> bool) -> Vec<u64> {
    let inner = branch.lock();
    let running = inner.book.timeline.running.iter();
    let meant = running.filter(|(_, r)| meant(&r.owner, r.started));
    meant.map(|(id, _)| *id).collect()
}

/// Ends the calls that are meant, the innermost first, all with what there is now; unless `unsynced`, durably.
pub(crate) fn end_calls(
    branch: &Branch,
    author: &str,
    meant: &dyn Fn(&Owner, Time) -> bool,
    (why, by, unsynced): (&str, EndedBy, bool),
) -> Result<u64> {
    let mut ended = 0;
    for id in calls_of_owners(branch, meant).into_iter().rev() {
        timeline::bound_timeline(branch)?;
        let (mut inner, after) = calls::state_at_hand(branch, author)?;
        // It may have been ended meanwhile.
        if inner.book.timeline.running.contains_key(&id) {
            let outcome = CallOutcome::Error(why.to_owned());
            calls::note_end(branch, &mut inner, id, (outcome, by), after)?;
            ended += 1;
        }
    }
    if ended > 0 {
        calls::noted_or_later(branch, unsynced)?;
    }
    Ok(ended)
}

/// How long something has gone on; none where its beginning lies ahead.
fn age(started: Time, now: Time) -> Option<Duration> {
    let since = |t: Time| {
        let sec = u64::try_from(t.sec).ok()?;
        Some(Duration::new(sec, t.nsec))
    };
    since(now)?.checked_sub(since(started)?)
}
