//! What goes from a branch to remotes, and what comes from them: their branches are named `REMOTE/BRANCH`, for merges and
//! as refs.

use super::merging::{MergeReport, MergeRequest, merge_commit};
use super::timeline::kept;
pub use super::timeline::kept::CarriedTimeline;
use super::{CheckpointRequest, Watch, checkpoint, lineage, runs};
use crate::branch::{Branch, states};
use crate::cancel::Cancel;
use crate::clock;
use crate::error::{Error, Result};
use crate::names::{check_branch_name, check_label, check_remote_name};
use crate::types::Progress;
use crate::workspace::Workspace;
pub use crate::workspace::remotes::{
    RemoteConfig, Tracking, add_remote, all_tracking, check_new_remote, remote, remotes,
    remove_remote, tracking,
};
use crate::workspace::remotes::{VERSION, put_tracking};
use objstore::{Commit, CommitId, Kind, ObjectStore, TimelineHead};
use std::collections::{BTreeMap, HashSet};

/// A branch as it is pushed.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its head.
    pub commit: CommitId,
    /// Its labels.
    pub labels: BTreeMap<String, CommitId>,
    /// Its timeline.
    pub timeline: Option<CarriedTimeline>,
    /// Whether a checkpoint was made for the push.
    pub checkpoint: bool,
}

/// A branch as it came.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its commit.
    pub commit: CommitId,
    /// Its labels.
    pub labels: BTreeMap<String, CommitId>,
    /// Its timelines.
    pub timelines: Vec<CarriedTimeline>,
}

/// A branch as it is to be pushed. If it shows something else than its head, a checkpoint is made first.
pub fn outgoing(ws: &Workspace, branch: &str, progress: Progress<'_>) -> Result<Outgoing> {
    let request = CheckpointRequest {
        wait: true,
        ..CheckpointRequest::default()
    };
    let done = checkpoint(ws, branch, request, progress)?;
    let b = ws.branch(branch)?;
    let commit = match done.commit {
        Some(commit) => commit,
        None => states::wait_for_id(&b, done.state, progress)?,
    };
    let _pin = b.places.store.pin();
    let labels = {
        let history = &b.lock().book.history;
        let stored = |n: u64| {
            history
                .states
                .is_stored(n)
                .then(|| history.id_of(n))
                .flatten()
        };
        let labels = history.labels.iter();
        labels
            .filter_map(|(label, n)| Some((label.clone(), stored(*n)?)))
            .collect()
    };
    let timeline = kept::carried(&b)?;
    b.places.store.sync()?;
    Ok(Outgoing {
        commit,
        labels,
        timeline,
        checkpoint: done.new_commit,
    })
}

/// Whether the timeline of a branch has an entry with this number and hash.
pub fn has_entry(ws: &Workspace, branch: &str, head: TimelineHead) -> Result<bool> {
    kept::has_entry(&*ws.branch(branch)?, head)
}

/// Notes what a branch of a remote has, all of which is in the store; `timelines` are kept as those of deleted
/// branches are. Durable after `Ok`. The caller holds a pin since before it was looked for.
pub fn set_tracking(ws: &Workspace, remote: &str, branch: &str, incoming: &Incoming) -> Result<()> {
    check_remote_name(remote)?;
    check_branch_name(branch)?;
    let now = clock::now();
    let labels = incoming
        .labels
        .iter()
        .filter(|(label, _)| check_label(label).is_ok());
    let record = Tracking {
        version: VERSION,
        commit: incoming.commit,
        labels: labels.map(|(label, id)| (label.clone(), *id)).collect(),
        time: now,
    };
    let _one = ws.views.changing();
    // Removed meanwhile, or with its workspace: nothing may stay of it.
    crate::workspace::remotes::remote(ws, remote)?;
    ws.views.shared().store.sync()?;
    for timeline in &incoming.timelines {
        kept::keep_carried(ws, remote, timeline, now)?;
    }
    put_tracking(ws, remote, branch, &record)
}

/// Commits that this workspace keeps, with all their ancestors that are here: what they need is here, too.
pub fn complete_commits(ws: &Workspace) -> Result<HashSet<CommitId>> {
    let store = &ws.views.shared().store;
    let mut work: Vec<CommitId> = Vec::new();
    for branch in ws.views.branches() {
        let inner = branch.lock();
        let states = inner.book.history.states.stored();
        work.extend(states.filter_map(|s| s.info.id));
    }
    for (_, tracking) in all_tracking(ws)? {
        work.push(tracking.commit);
        work.extend(tracking.labels.values());
    }
    with_ancestors(store, work)
}

fn with_ancestors(store: &ObjectStore, mut work: Vec<CommitId>) -> Result<HashSet<CommitId>> {
    let mut found = HashSet::new();
    while let Some(id) = work.pop() {
        if store.contains(Kind::Commit, id.as_bytes()) && found.insert(id) {
            work.extend(store.get_object::<Commit>(&id)?.parents);
        }
    }
    Ok(found)
}

/// Merges a branch of a remote, `req.from` being `REMOTE/BRANCH`, as it was fetched last. Labels that it has and
/// `req.into` has not come along. Durable after `Ok`. Cancelled before the branch shows the merge it changes nothing.
pub fn merge_tracking(
    ws: &Workspace,
    req: &MergeRequest,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<MergeReport> {
    let watch = Watch { progress, cancel };
    let ours = ws.branch(&req.into)?;
    let _pin = ours.places.store.pin();
    let found = tracking(ws, &req.from)?.ok_or_else(|| Error::NoSuchRef(req.from.clone()))?;
    let report = {
        let _control = ours.control.lock();
        runs::merging(ws, req, || {
            merge_commit(ws, req, &ours, found.commit, true, watch)
        })?
    };
    if report.commit.is_some() {
        take_over(ws, &ours, &found);
    }
    Ok(report)
}

fn take_over(ws: &Workspace, ours: &Branch, found: &Tracking) {
    let labels = found.labels.iter().map(|(label, id)| (label.clone(), *id));
    if let Err(e) = lineage::take_over_stored(ws, ours, found.commit, labels.collect()) {
        tracing::warn!(
            "{} does not know all ancestors of {} yet: {e}",
            ours.name(),
            found.commit
        );
    }
}

/// Has a branch know a commit of a remote with its ancestors and labels, so that they can be named.
pub fn know_tracking(ws: &Workspace, branch: &str, name: &str) -> Result<()> {
    let found = tracking(ws, name)?.ok_or_else(|| Error::NoSuchRef(name.to_owned()))?;
    take_over(ws, &*ws.branch(branch)?, &found);
    Ok(())
}

/// Labels that a branch and a branch of a remote have on different commits.
pub fn labels_differ(ws: &Workspace, branch: &str, found: &Tracking) -> Result<Vec<String>> {
    let b = ws.branch(branch)?;
    let history = &b.lock().book.history;
    let differs = |label: &str, theirs: &CommitId| {
        let ours = history.labelled(label).and_then(|n| history.id_of(n));
        ours.is_some_and(|ours| ours != *theirs)
    };
    let labels = found.labels.iter().filter(|(label, id)| differs(label, id));
    Ok(labels.map(|(label, _)| label.clone()).collect())
}
