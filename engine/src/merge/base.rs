//! The common history of two commits: which came before which, and their merge bases.

use crate::error::{Error, Result};
use objstore::{Commit, CommitId, ObjectStore};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// Where commits are read from.
pub trait History {
    /// The commit with this id.
    fn commit(&self, id: &CommitId) -> Result<Arc<Commit>>;
}

impl History for ObjectStore {
    fn commit(&self, id: &CommitId) -> Result<Arc<Commit>> {
        Ok(Arc::new(self.get_object(id)?))
    }
}

/// Reachable from the one commit.
const ONE: u8 = 1;
/// Reachable from the other.
const OTHER: u8 = 2;
/// Reachable from a common ancestor that was found.
const STALE: u8 = 4;
/// A common ancestor.
const COMMON: u8 = 8;

/// A commit in the order of time, then of its id, so that the order is always the same.
type Ranked = ((i64, u32), CommitId);

struct Search<'a> {
    history: &'a dyn History,
    flags: HashMap<CommitId, u8>,
    /// Newest first.
    queue: BinaryHeap<Ranked>,
    /// Commits in the queue that are not stale.
    fresh: HashSet<CommitId>,
}

impl Search<'_> {
    fn paint(&mut self, id: CommitId, flags: u8) -> Result<()> {
        let before = self.flags.get(&id).copied().unwrap_or(0);
        if before | flags == before {
            return Ok(());
        }
        self.flags.insert(id, before | flags);
        match flags & STALE {
            0 => self.fresh.insert(id),
            _ => self.fresh.remove(&id),
        };
        let commit = self.history.commit(&id)?;
        self.queue.push(((commit.time_sec, commit.time_nsec), id));
        Ok(())
    }
}

/// The lowest common ancestors of two commits, oldest first: those common ancestors that no other one
/// comes after. None where the two have nothing in common.
///
/// Goes back in time only as far as needed.
pub fn merge_bases(
    history: &dyn History,
    one: &CommitId,
    other: &CommitId,
) -> Result<Vec<CommitId>> {
    merge_bases_of(history, std::slice::from_ref(one), other)
}

/// As [`merge_bases`], with a commit that would have several as parents in place of the one.
pub(super) fn merge_bases_of(
    history: &dyn History,
    many: &[CommitId],
    other: &CommitId,
) -> Result<Vec<CommitId>> {
    if many.contains(other) {
        return Ok(vec![*other]);
    }
    let mut search = Search {
        history,
        flags: HashMap::new(),
        queue: BinaryHeap::new(),
        fresh: HashSet::new(),
    };
    for one in many {
        search.paint(*one, ONE)?;
    }
    search.paint(*other, OTHER)?;
    let mut found: Vec<Ranked> = Vec::new();
    while !search.fresh.is_empty() {
        let Some((time, id)) = search.queue.pop() else {
            break;
        };
        search.fresh.remove(&id);
        let mut flags = search.flags.get(&id).copied().unwrap_or(0);
        let common = flags & (ONE | OTHER) == ONE | OTHER;
        if common && flags & (STALE | COMMON) == 0 {
            search.flags.insert(id, flags | COMMON);
            found.push((time, id));
        }
        flags &= ONE | OTHER | STALE;
        if common {
            flags |= STALE;
        }
        for parent in &history.commit(&id)?.parents {
            search.paint(*parent, flags)?;
        }
    }
    found.retain(|(_, id)| search.flags.get(id).is_some_and(|flags| flags & STALE == 0));
    found.sort_unstable();
    let bases: Vec<CommitId> = found.into_iter().map(|(_, id)| id).collect();
    independent(history, bases)
}

/// Drops commits that another one of them comes after, which clocks that went back may have left.
fn independent(history: &dyn History, ids: Vec<CommitId>) -> Result<Vec<CommitId>> {
    if ids.len() < 2 {
        return Ok(ids);
    }
    let mut before: HashSet<CommitId> = HashSet::new();
    let mut work = Vec::new();
    for id in &ids {
        work.extend(history.commit(id)?.parents.iter().copied());
    }
    while let Some(id) = work.pop() {
        if before.insert(id) {
            work.extend(history.commit(&id)?.parents.iter().copied());
        }
    }
    Ok(ids.into_iter().filter(|id| !before.contains(id)).collect())
}

/// The error for commits that have nothing in common.
pub(super) fn nothing_in_common(ours: &CommitId, theirs: &CommitId) -> Error {
    Error::NoCommonHistory {
        ours: *ours,
        theirs: *theirs,
    }
}
