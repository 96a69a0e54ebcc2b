//! Timelines of branches that were deleted: which are needed, and what of the store they need.
//!
//! One is needed as long as a branch of its workspace has a commit from elsewhere that holds one of its entries,
//! and neither a branch's own timeline nor a longer one that is kept has that entry; or as long as one of these has
//! entries whose commits it keeps. It goes before a run begins, so whoever read its ref has a pin that the
//! run waits for.

use super::roots::Roots;
use super::tombs::is_young;
use crate::book::timeline::log::LogPlace;
use crate::engine::Engine;
use crate::engine::gc::stats;
use crate::error::Result;
use crate::types::Time;
use crate::verbs::timeline::kept::KeptRecord;
use crate::verbs::timeline::kept::from_elsewhere;
use crate::verbs::timeline::kept::heads_of;
use crate::verbs::timeline::kept::kept;
use crate::verbs::timeline::kept::strike;
use crate::workspace::branch_refs::TIMELINES_DIR;
use crate::workspace::remotes::{tracked_commits, with_ancestors};
use objstore::CommitId;
use objstore::gc::Walk;
use std::collections::BTreeSet;
use std::time::Duration;

/// Workspaces of which timelines are kept, also ones that are deleted by now.
fn with_timelines(engine: &Engine) -> Result<BTreeSet<String>> {
    let refs = engine.refs.list(TIMELINES_DIR)?;
    let workspaces = refs.iter().filter_map(|name| {
        let of = name.strip_prefix(TIMELINES_DIR)?.strip_prefix('/')?;
        Some(of.split_once('/')?.0.to_owned())
    });
    Ok(workspaces.collect())
}

/// Names of the refs of timelines that nothing needs and that were kept for longer than `grace`; none where
/// that cannot be told.
pub(super) fn timelines_to_forget(engine: &Engine, now: Time, grace: Duration) -> Vec<String> {
    unneeded(engine, now, grace).unwrap_or_else(|e| {
        tracing::debug!("no timeline is forgotten now: {e}");
        Vec::new()
    })
}

fn unneeded(engine: &Engine, now: Time, grace: Duration) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    let there: BTreeSet<String> = engine.names()?.into_iter().collect();
    for workspace in with_timelines(engine)? {
        let all = kept(&engine.refs, &workspace)?;
        let old = |r: &KeptRecord| !is_young(r.deleted, now, grace);
        if !all.iter().any(|(_, r)| old(r)) {
            continue;
        }
        if !there.contains(&workspace) {
            gone.extend(all.into_iter().map(|(name, _)| name));
            continue;
        }
        let needed = needed_of(engine, &workspace, &all, now)?;
        let all = all.into_iter().filter(|(_, r)| old(r));
        gone.extend(all.map(|(name, _)| name).filter(|n| !needed.contains(n)));
    }
    Ok(gone)
}

/// Names of the refs of those that a branch's commits need.
fn needed_of(
    engine: &Engine,
    workspace: &str,
    all: &[(String, KeptRecord)],
    now: Time,
) -> Result<BTreeSet<String>> {
    let _pin = engine.store.pin();
    let (mut ids, mut logs) = (Vec::new(), Vec::new());
    stats::each_branch(engine, workspace, &mut |_, inner, _| {
        ids.extend(from_elsewhere(inner));
        logs.push(LogPlace::of(&inner.book.timeline));
        Ok(())
    })?;
    // A merge of a remote's branch is to find the timeline that came with it.
    let tracked = tracked_commits(&engine.refs, Some(workspace))?;
    ids.extend(with_ancestors(&engine.store, tracked)?);
    let mut heads = heads_of(&engine.store, ids.iter())?;
    for log in &logs {
        strike(&engine.store, log, &mut heads)?;
    }
    let mut longest: Vec<&(String, KeptRecord)> = all.iter().collect();
    longest.sort_by_key(|(_, r)| std::cmp::Reverse(r.place().entries()));
    let mut needed = BTreeSet::new();
    for (name, record) in longest {
        // One that cannot be read stays, for fsck to tell of.
        let struck = strike(&engine.store, &record.place(), &mut heads);
        if struck.map_or(true, |n| n > 0) {
            needed.insert(name.clone());
            logs.push(record.place());
        }
    }
    add_sharing(engine, all, (logs, &mut needed), now)?;
    Ok(needed)
}

/// Adds those that have commits of entries which are in these logs too, or in that of one so added.
fn add_sharing(
    engine: &Engine,
    all: &[(String, KeptRecord)],
    (mut logs, needed): (Vec<LogPlace>, &mut BTreeSet<String>),
    now: Time,
) -> Result<()> {
    let keep = engine.settings().keep_calls;
    let mut left: Vec<&(String, KeptRecord)> = Vec::new();
    for one in all.iter().filter(|(name, _)| !needed.contains(name)) {
        let commits = one.1.read_commits(&engine.store)?;
        if commits.iter().any(|c| is_young(c.time, now, keep)) {
            left.push(one);
        }
    }
    while let Some(log) = logs.pop() {
        for (name, record) in &left {
            let mut first: BTreeSet<_> = record
                .first
                .map(|h| (h.entries, h.hash))
                .into_iter()
                .collect();
            let is_new = !needed.contains(name);
            if is_new && strike(&engine.store, &log, &mut first)? > 0 {
                needed.insert(name.clone());
                logs.push(record.place());
            }
        }
    }
    Ok(())
}

/// Takes these refs away; gives those that are still there.
pub(super) fn forget_timelines(engine: &Engine, refs: Vec<String>) -> Result<Vec<String>> {
    for name in refs {
        engine.refs.delete(&name)?;
    }
    Ok(Vec::new())
}

/// Marks what the kept timelines need but for those of these refs; gives the commits that they mention, as
/// long as the settings keep these.
pub(super) fn mark_timelines(
    engine: &Engine,
    now: Time,
    but: &[String],
    walk: &mut Walk<'_>,
) -> Result<Vec<CommitId>> {
    let mut commits = Vec::new();
    for workspace in with_timelines(engine)? {
        for (name, record) in kept(&engine.refs, &workspace)? {
            if !but.contains(&name) {
                let roots = kept_roots(engine, &record, now);
                roots.walk(walk)?;
                commits.extend(roots.maybe);
            }
        }
    }
    Ok(commits)
}

/// What a kept timeline needs. Damage in it is for fsck to tell of, and keeps no run from its work.
pub(super) fn kept_roots(engine: &Engine, record: &KeptRecord, now: Time) -> Roots {
    let mut roots = Roots::default();
    roots.loose.extend([record.log, record.commits]);
    let keep = engine.settings().keep_calls;
    match record.read_commits(&engine.store) {
        Ok(commits) => {
            let young = commits.iter().filter(|c| is_young(c.time, now, keep));
            roots.maybe.extend(young.map(|c| c.id));
        }
        Err(e) => tracing::warn!("{e}"),
    }
    roots
}
