//! The cache of lazy workspaces: what they fetched stays up to the setting `cache`, beyond it the oldest goes.
//!
//! A chunk goes only if a remote that answered during this run has it in an index, and a ref that the remote showed reaches
//! it through a file, for each lazy workspace that needs it. Then the remote keeps it, and reading fetches it again. What
//! anything else needs stays: other workspaces, keys, timelines, what the journal refers to, changed files that are not
//! stored yet, open files, snapshots that the kernel knows, conflicts, what was deleted lately. If no remote answers,
//! nothing goes.
//!
//! The remotes are asked before the run begins, so nobody waits for them who waits for a run. Which workspaces are
//! lazy is looked at again before anything is removed.
//!
//! Tests: `engine/tests/base/cache.rs`, `tests/tests/lazy_cache.rs`.

use super::roots::Roots;
use super::{GROWTH_MIN, Still, mark_branch, mark_closed, mark_rest, mark_workspace};
use crate::branch::Branch;
use crate::branch::inspect::inspect;
use crate::engine::Engine;
use crate::engine::away::Remotes;
use crate::error::Result;
use crate::types::Time;
use crate::workspace::branch_refs::workspace_of;
use crate::workspace::lazy::lazy_names;
use crate::workspace::remotes::{tracked_commits, with_ancestors};
use objstore::content::FileContent;
use objstore::elsewhere::Backing;
use objstore::gc::{Collection, Shed, Strictness, Walk};
use objstore::{Commit, CommitId, Key};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Growth of the packs that makes a run worthwhile, as a part of the bound.
const GROWTH_PART: u64 = 16;

/// What somebody needs, and what of it the remote has.
struct Need<'a> {
    /// All that the workspace needs; `None` where that is all that is left.
    all: Option<Collection<'a>>,
    /// What files of commits have that the remote keeps, with the remote.
    backed: Option<(Collection<'a>, &'a dyn Backing)>,
}

impl Need<'_> {
    /// Whether it can do without a chunk for a while.
    fn can_spare(&self, key: &Key) -> bool {
        if self.all.as_ref().is_some_and(|all| !all.has_met(key)) {
            return true;
        }
        let backed = self.backed.as_ref();
        backed.is_some_and(|(reached, has)| reached.has_met(key) && has.find(key).is_some())
    }
}

/// Whether the cache may have grown beyond its bound by enough that a run is worthwhile: the packs have so many bytes, and
/// grew by so many since the last run.
pub(super) fn exceeds(engine: &Engine, bytes: u64, grown: u64) -> bool {
    let Some(bound) = engine.settings().cache.filter(|bound| bytes > *bound) else {
        return false;
    };
    let is_worth = grown >= GROWTH_MIN.max(bound / GROWTH_PART);
    is_worth && lazy_names(&engine.refs).is_ok_and(|lazy| !lazy.is_empty())
}

/// Chooses what goes in the sweep of a run in which all was marked.
pub(super) fn shed(
    engine: &Engine,
    run: &Collection<'_>,
    remotes: &Remotes,
    still: &Still<'_>,
    times: (Time, Duration, &[String]),
) -> Result<Shed> {
    let bytes = engine.store.stats().bytes;
    let bound = engine.settings().cache.filter(|bound| bytes > *bound);
    let Some(bound) = bound.filter(|_| remotes.is_any_known()) else {
        return Ok(Shed::default());
    };
    let kept = engine.store.look(&engine.stop);
    mark_kept(engine, &kept, still, times)?;
    let mut needs = Vec::new();
    for workspace in &still.lazy {
        let backed = remotes.of(workspace).map(|backing| {
            let reached = engine.store.look(&engine.stop);
            mark_reached(engine, &reached, backing.commits()).map(|()| (reached, backing))
        });
        // One alone needs all that nobody else does.
        let all = (still.lazy.len() > 1).then(|| {
            let all = engine.store.look(&engine.stop);
            mark_needed(engine, &all, workspace, still).map(|()| all)
        });
        needs.push(Need {
            all: all.transpose()?,
            backed: backed.transpose()?,
        });
    }
    let may_go = |key: &Key| !kept.has_met(key) && needs.iter().all(|n| n.can_spare(key));
    Ok(run.shed(bound, times.1, &may_go)?)
}

/// Whether what was chosen may still go: each workspace fetches from its remote. Whoever ends that from here on has
/// asked for all that it needs, so it stays.
pub(super) fn holds(engine: &Engine, run: &Collection<'_>, remotes: &Remotes) -> Result<bool> {
    run.wait_for_work()?;
    let lazy = lazy_names(&engine.refs)?;
    Ok(remotes.workspaces().all(|name| lazy.contains(name)))
}

/// Marks what has to stay, whatever remotes have.
fn mark_kept(
    engine: &Engine,
    kept: &Collection<'_>,
    still: &Still<'_>,
    times: (Time, Duration, &[String]),
) -> Result<()> {
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(kept, met);
    let mut maybe = Vec::new();
    for branch in &still.branches {
        if !still.lazy.contains(workspace_of(&branch.dir)) {
            mark_branch(branch, false, &mut walk, &mut maybe)?;
        }
    }
    for name in still.names.iter().filter(|n| !still.lazy.contains(*n)) {
        mark_workspace(engine, name, still, &mut walk, &mut maybe)?;
        maybe.extend(tracked_commits(&engine.refs, Some(name))?);
    }
    mark_rest(engine, times, &mut walk, &mut maybe)?;
    Roots::walk_rest(&maybe, &mut walk)?;
    for name in &still.lazy {
        for content in contents_in_use(engine, name, still)? {
            walk.content(&content, b"", Strictness::WhatIsHere)?;
        }
    }
    Ok(walk.finish()?)
}

/// What a lazy workspace is at work on, and what it needs without its remote.
fn contents_in_use(
    engine: &Engine,
    workspace: &str,
    still: &Still<'_>,
) -> Result<Vec<FileContent>> {
    let (mut contents, mut commits) = (Vec::new(), Vec::new());
    let is_of = |b: &&Arc<Branch>| workspace_of(&b.dir) == workspace;
    let open: Vec<&Arc<Branch>> = still.branches.iter().filter(is_of).collect();
    let held = open.first().map(|b| b.cache().open_files());
    let held = held.unwrap_or_default();
    for branch in &open {
        let inner = branch.lock();
        let roots = Roots::of(&inner);
        let is_held = |ino: u64| branch.read_only || held.contains(&ino);
        contents.extend(roots.in_use(&inner, branch.slot, &is_held));
        commits.extend(roots.commits.iter().chain(&roots.maybe));
    }
    if open.is_empty() {
        let trees = super::look_at_trees(engine, workspace);
        for (_, dir) in super::branch_dirs(engine, workspace)? {
            let found = inspect(&*engine.storage, &engine.store, &trees, &dir, engine.boot)?;
            if let Some(found) = found {
                let roots = Roots::of(&found.inner);
                contents.extend(roots.in_use(&found.inner, 0, &|_| false));
                commits.extend(roots.commits.iter().chain(&roots.maybe));
            }
        }
    }
    commits.extend(tracked_commits(&engine.refs, Some(workspace))?);
    for id in with_ancestors(&engine.store, commits)? {
        contents.extend(engine.store.get_object::<Commit>(&id)?.kv);
    }
    Ok(contents)
}

/// Marks what files of these commits and all their ancestors have, as far as it is here.
fn mark_reached(engine: &Engine, reached: &Collection<'_>, commits: &[CommitId]) -> Result<()> {
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(reached, met);
    let all: HashSet<CommitId> = with_ancestors(&engine.store, commits.to_vec())?;
    for id in all {
        if let Some(root) = engine.store.get_object::<Commit>(&id)?.root {
            walk.tree(root, Strictness::WhatIsThere)?;
        }
    }
    Ok(walk.finish()?)
}

/// Marks all that a lazy workspace needs.
fn mark_needed(
    engine: &Engine,
    all: &Collection<'_>,
    workspace: &str,
    still: &Still<'_>,
) -> Result<()> {
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(all, met);
    let mut maybe = tracked_commits(&engine.refs, Some(workspace))?;
    let is_of = |b: &&Arc<Branch>| workspace_of(&b.dir) == workspace;
    for branch in still.branches.iter().filter(is_of) {
        mark_branch(branch, true, &mut walk, &mut maybe)?;
    }
    if engine.opened(workspace).is_none() {
        mark_closed(engine, workspace, true, &mut walk, &mut maybe)?;
    }
    Roots::walk_rest(&maybe, &mut walk)?;
    Ok(walk.finish()?)
}
