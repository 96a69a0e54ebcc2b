//! Automatic commits: made when activity rests, and now and then while it does not, so that going back
//! in time works though nobody made a checkpoint.
//!
//! Both background threads look here a few times a second; whoever finds one due makes it. It is a
//! frozen state like any other: O(1) under the branch lock, stored by the background thread. The
//! kernel is not asked to write back what programs changed through shared mappings, as that could
//! hold up requests: it does so by itself within half a minute, and the next automatic commit has it.
//!
//! Invariant: none is made where nothing changed since the newest state, none while a rollback's fence
//! stands, and at most [`PENDING_STATES_MAX`] states wait to be stored.

use super::Branch;
use crate::book::retention::Expiry;
use crate::branch::states;
use crate::change::transition::differs;
use crate::clock;
use crate::error::Result;
use crate::limits::PENDING_STATES_MAX;
use crate::record::{Event, OpKind};
use crate::settings::{Settings, SharedSettings};
use crate::stored::store::meta_of;
use crate::types::{Nid, Time};
use objstore::Commit;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often expiry is looked at.
const EXPIRY_EVERY: Duration = Duration::from_secs(60);

/// Held for reading while something expires, and for writing by who needs that nothing does.
pub(crate) type Expiring = Arc<RwLock<()>>;

/// What a branch knows of its own activity.
#[derive(Debug)]
pub(crate) struct Automatic {
    pub settings: SharedSettings,
    expiry: Expiring,
    pub author: String,
    /// Counts changes of the live tree.
    changes: AtomicU64,
    rest: Mutex<Rest>,
}

/// When there was activity, as far as it was looked at.
#[derive(Debug, Default)]
struct Rest {
    /// Count of changes that are in a state.
    kept: u64,
    /// Count of changes that was seen last.
    seen: u64,
    /// When the first change was seen that is in no state.
    first: Option<Instant>,
    /// When a change was seen last.
    last: Option<Instant>,
    expiry: Option<Instant>,
}

impl Rest {
    /// True where an automatic commit is due, `changes` having been counted so far.
    fn is_due(&mut self, changes: u64, now: Instant, s: &Settings) -> bool {
        if changes == self.kept {
            return false;
        }
        if changes != self.seen {
            (self.seen, self.last) = (changes, Some(now));
            self.first.get_or_insert(now);
        }
        let past = |since: Option<Instant>, limit: Option<Duration>| {
            let since = since.map(|t| now.saturating_duration_since(t));
            limit.is_some_and(|limit| since.is_some_and(|age| age >= limit))
        };
        past(self.last, s.auto_idle) || past(self.first, s.auto_busy)
    }

    /// The changes counted up to `changes` are in a state.
    fn keep(&mut self, changes: u64) {
        self.kept = changes;
        self.first = None;
    }

    /// It did not work: not again before as much time has passed.
    fn put_off(&mut self, now: Instant) {
        (self.first, self.last) = (Some(now), Some(now));
    }
}

impl Automatic {
    /// Knows of no activity.
    pub fn new(settings: SharedSettings, expiry: Expiring, author: String) -> Automatic {
        Automatic {
            settings,
            expiry,
            author,
            changes: AtomicU64::new(0),
            rest: Mutex::default(),
        }
    }

    /// One that knows of no activity, with the same settings.
    pub fn again(&self) -> Automatic {
        let (settings, expiry) = (self.settings.clone(), self.expiry.clone());
        Automatic::new(settings, expiry, self.author.clone())
    }

    /// The live tree changed.
    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes an automatic commit where one is due. The newest state's tree is loaded from the store only
/// with `may_load`, else that is left to the other thread.
pub(crate) fn auto_tick(branch: &Branch, may_load: bool) {
    let works = !branch.read_only && !branch.is_closing();
    let Some(mut rest) = branch.auto.rest.try_lock().filter(|_| works) else {
        return;
    };
    let settings = *branch.auto.settings.read();
    let now = Instant::now();
    let changes = branch.auto.changes.load(Ordering::Relaxed);
    if rest.is_due(changes, now, &settings) {
        match commit_automatically(branch, may_load) {
            Ok(true) => rest.keep(changes),
            Ok(false) => {}
            Err(e) => {
                tracing::warn!("{}: no automatic commit: {e}", branch.name());
                rest.put_off(now);
            }
        }
    }
    let since = rest.expiry.map(|t| now.saturating_duration_since(t));
    if may_load && since.is_none_or(|age| age >= EXPIRY_EVERY) {
        rest.expiry = Some(now);
        drop(rest);
        if let Err(e) = expire(branch, clock::now()) {
            tracing::debug!("{}: nothing expires now: {e}", branch.name());
        }
    }
}

/// True where no automatic commit will be due before something changes.
pub(crate) fn is_at_rest(branch: &Branch) -> bool {
    let Some(rest) = branch.auto.rest.try_lock() else {
        return false;
    };
    let settings = branch.auto.settings.read();
    let off = settings.auto_idle.is_none() && settings.auto_busy.is_none();
    off || rest.kept == branch.auto.changes.load(Ordering::Relaxed)
}

/// Freezes the live tree where it differs from the newest state; false where that cannot be done now.
fn commit_automatically(branch: &Branch, may_load: bool) -> Result<bool> {
    if branch.places.journal.poisoned().is_some() {
        return Ok(true);
    }
    let (newest, live, tree) = {
        let inner = branch.lock();
        let history = &inner.book.history;
        let Some(newest) = history.states.keys().next_back().copied() else {
            return Ok(false);
        };
        if inner.fence.is_some() || history.states.pending().len() >= PENDING_STATES_MAX {
            return Ok(false);
        }
        (newest, inner.live.clone(), history.tree(newest).cloned())
    };
    let tree = match tree {
        Some(tree) => tree,
        None if is_sealed_as(branch, newest)? => return Ok(true),
        None if may_load => states::tree_of(branch, newest)?,
        None => return Ok(false),
    };
    if !differs(&tree, &live) {
        return Ok(true);
    }
    drop((tree, live));
    let mut inner = branch.lock();
    if inner.fence.is_some() {
        return Ok(false);
    }
    let author = &branch.auto.author;
    let info = states::new_state(&inner, OpKind::Auto, author, String::new(), BTreeMap::new());
    states::freeze(branch, &mut inner, info, false, None)?;
    drop(inner);
    branch.signal();
    Ok(true)
}

/// True where nothing changed since the live tree was sealed, and that is what the commit of a state
/// has: so a branch that nobody changed needs not be loaded to see that.
fn is_sealed_as(branch: &Branch, state: u64) -> Result<bool> {
    let (id, root, kv, meta) = {
        let inner = branch.lock();
        let sealed = inner.reference.as_ref();
        let sealed = sealed.filter(|r| r.tree.same(&inner.live));
        let (Some(sealed), Some(id)) = (sealed, inner.book.history.id_of(state)) else {
            return Ok(false);
        };
        let meta = meta_of(inner.live.inode(Nid::ROOT)?);
        (id, sealed.root, sealed.kv, meta)
    };
    let commit: Commit = branch.places.store.get_object(&id)?;
    Ok(commit.root == root && commit.kv == kv && commit.root_meta == meta)
}

/// Lets go of automatic commits that have expired at `now`. Nothing goes while somebody works with
/// states of the branch, or while gc looks at what is needed.
pub(crate) fn expire(branch: &Branch, now: Time) -> Result<()> {
    let (Some(_free), Some(_may)) = (branch.control.try_lock(), branch.auto.expiry.try_read())
    else {
        return Ok(());
    };
    let settings = *branch.auto.settings.read();
    let mut inner = branch.lock();
    if inner.fence.is_some() {
        return Ok(());
    }
    let gone = inner
        .book
        .history
        .expired(now, &settings, &inner.book.timeline.used);
    if gone.is_empty() {
        return Ok(());
    }
    let Expiry { states, undo, redo } = gone;
    branch.carry_out(&mut inner, Event::Expired { states, undo, redo }, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_after_a_rest_or_when_it_does_not_rest_and_never_when_idle() {
        let (mut rest, s, start) = (Rest::default(), Settings::default(), Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        assert!(!rest.is_due(0, at(0), &s), "nothing happened");
        assert!(!rest.is_due(1, at(0), &s));
        assert!(!rest.is_due(1, at(9), &s));
        assert!(rest.is_due(1, at(10), &s), "it rested");
        rest.keep(1);
        assert!(!rest.is_due(1, at(9999), &s), "idle");
        for second in 0..60 {
            assert!(!rest.is_due(2 + second, at(20_000 + second), &s));
        }
        assert!(rest.is_due(62, at(20_060), &s), "it does not rest");
        rest.put_off(at(20_060));
        assert!(!rest.is_due(62, at(20_069), &s));
        assert!(rest.is_due(62, at(20_070), &s));
        let off = Settings::quiet();
        assert!(!rest.is_due(63, at(90_000), &off));
    }
}
