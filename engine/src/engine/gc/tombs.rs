//! What was deleted lately: its commits stay for the grace period of gc, by their ids.
//!
//! One ref `deleted/NAME` for each workspace that was deleted; a name that is deleted again adds to it.
//! One ref `deleted/WORKSPACE/NAME-TIME` for each branch ([`crate::workspace::branch_refs`]); it goes with its
//! workspace.

use crate::branch::inspect::inspect;
use crate::clock;
use crate::engine::Engine;
use crate::engine::gc;
use crate::error::{Error, Result};
use crate::types::Time;
use crate::workspace::branch_refs::{self, DeletedRecord, deleted_record};
use objstore::CommitId;
use std::sync::atomic::Ordering;
use std::time::Duration;

const DIR: &str = "deleted";
const VERSION: u16 = 1;
/// Commits that are remembered of one name.
const COMMITS_MAX: usize = 100_000;

/// A deleted workspace.
#[derive(Debug, bincode::Encode, bincode::Decode)]
struct Tomb {
    version: u16,
    /// When it was deleted last.
    time: Time,
    commits: Vec<CommitId>,
}

/// Notes the commits of a workspace that is about to be deleted. One that cannot be read any more
/// is deleted without.
pub(crate) fn remember_deleted(engine: &Engine, name: &str) -> Result<()> {
    let mut commits = Vec::new();
    let trees = gc::look_at_trees(engine, name);
    for (_, dir) in gc::branch_dirs(engine, name)? {
        match inspect(&*engine.storage, &engine.store, &trees, &dir, engine.boot) {
            Ok(Some(found)) => {
                let states = found.inner.book.history.states.values();
                commits.extend(states.filter_map(|s| s.info.id));
            }
            Ok(None) => {}
            Err(e) => tracing::warn!("{dir} is deleted though it cannot be read: {e}"),
        }
    }
    let branches = deleted_branches(engine, &branch_refs::deleted_dir(name))?;
    commits.extend(branches.into_iter().map(|(_, record)| record.last));
    engine.garbage.store(true, Ordering::Relaxed);
    let name = format!("{DIR}/{name}");
    commits.extend(tomb(engine, &name)?.into_iter().flat_map(|t| t.commits));
    commits.truncate(COMMITS_MAX);
    let tomb = Tomb {
        version: VERSION,
        time: clock::now(),
        commits,
    };
    let bytes = crate::record::encode(&tomb);
    engine.refs.set(&name, &bytes).map_err(Error::Store)
}

/// Removes what a deletion left that was cut off: its objects may be gone.
pub(crate) fn clear_deleted(engine: &Engine, name: &str) -> Result<()> {
    if tomb(engine, &format!("{DIR}/{name}"))?.is_none() {
        return Ok(());
    }
    branch_refs::forget_refs(&engine.refs, name)?;
    engine.refs.delete(&crate::verbs::apply::ref_name(name))?;
    let left = format!("workspaces/{name}");
    engine
        .storage
        .remove_dir_all(&left)
        .map_err(Error::io(left))
}

fn tomb(engine: &Engine, name: &str) -> Result<Option<Tomb>> {
    let Some(bytes) = engine.refs.get(name)? else {
        return Ok(None);
    };
    let tomb: Tomb = crate::record::decode(&bytes).map_err(|why| Error::Damaged {
        what: format!("ref {name}"),
        why,
    })?;
    Ok((tomb.version == VERSION).then_some(tomb))
}

fn all_tombs(engine: &Engine) -> Result<Vec<(String, Tomb)>> {
    let names = engine.refs.list(DIR)?;
    let workspaces = names.into_iter().filter(|n| !is_of_branch(n));
    let tombs = workspaces.map(|name| {
        let tomb = tomb(engine, &name)?;
        Ok(tomb.map(|tomb| (name, tomb)))
    });
    tombs.filter_map(Result::transpose).collect()
}

/// Commits of what was deleted less than `grace` ago.
pub(crate) fn tombs(engine: &Engine, now: Time, grace: Duration) -> Result<Vec<CommitId>> {
    let tombs = all_tombs(engine)?;
    let young = tombs
        .into_iter()
        .filter(|(_, t)| is_young(t.time, now, grace));
    let branches = deleted_branches(engine, DIR)?.into_iter();
    let branches = branches.filter(|(_, r)| is_young(r.deleted, now, grace));
    let last = branches.map(|(_, r)| r.last);
    Ok(young.flat_map(|(_, t)| t.commits).chain(last).collect())
}

/// Refs of branches that were deleted, of all workspaces or of one.
fn deleted_branches(engine: &Engine, below: &str) -> Result<Vec<(String, DeletedRecord)>> {
    let mut found = Vec::new();
    for name in engine
        .refs
        .list(below)?
        .into_iter()
        .filter(|n| is_of_branch(n))
    {
        if let Some(bytes) = engine.refs.get(&name)?
            && let Some(record) = deleted_record(&name, &bytes)?
        {
            found.push((name, record));
        }
    }
    Ok(found)
}

/// Forgets what was deleted longer ago.
pub(crate) fn bury(engine: &Engine, now: Time, grace: Duration) -> Result<()> {
    for (name, tomb) in all_tombs(engine)? {
        if !is_young(tomb.time, now, grace) {
            let bare = name.trim_start_matches("deleted/");
            if !engine.names()?.iter().any(|n| n == bare) {
                clear_deleted(engine, bare)?;
            }
            engine.refs.delete(&name)?;
        }
    }
    for (name, record) in deleted_branches(engine, DIR)? {
        if !is_young(record.deleted, now, grace) {
            engine.refs.delete(&name)?;
        }
    }
    Ok(())
}

/// True for the ref of a branch that was deleted, among those below `deleted`.
fn is_of_branch(name: &str) -> bool {
    name.matches('/').count() > 1
}

pub(super) fn is_young(deleted: Time, now: Time, grace: Duration) -> bool {
    let age = now.sec.saturating_sub(deleted.sec).max(0) as u64;
    age < grace.as_secs()
}
