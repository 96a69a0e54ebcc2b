//! What goes from a branch to remotes, and what comes from them: their branches are named `REMOTE/BRANCH`, for merges and
//! as refs.

use super::merging::{MergeReport, MergeRequest, merge_commit};
use super::timeline::kept;
pub use super::timeline::kept::CarriedTimeline;
use super::{
    CheckpointRequest, DiffSide, LogEntry, LogPage, Watch, checkpoint, lineage, runs, state_reader,
};
use crate::branch::{Branch, states};
use crate::cancel::Cancel;
use crate::clock;
use crate::error::{Error, Result};
use crate::names::{check_branch_name, check_label, check_remote_name};
use crate::record::OpKind;
use crate::types::{Nid, Progress, Time};
use crate::workspace::Workspace;
pub use crate::workspace::lazy::{end_lazy, lazy_remote};
pub use crate::workspace::remotes::{
    RemoteConfig, Tracking, add_remote, all_tracking, check_new_remote, remote, remotes,
    remove_remote, tracking,
};
use crate::workspace::remotes::{VERSION, put_tracking, with_ancestors};
use objstore::{Commit, CommitId, CommitKind, Kind, ObjectStore, TimelineHead};
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
/// The caller holds a pin until all of it was sent.
pub fn outgoing(ws: &Workspace, branch: &str, progress: Progress<'_>) -> Result<Outgoing> {
    // Without a message: where nothing has changed, the head is what is pushed.
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

/// Whether the timeline of a branch that there is, or one that is kept, has an entry.
pub fn is_timeline_here(ws: &Workspace, head: TimelineHead) -> Result<bool> {
    kept::is_here(ws, head)
}

/// Notes that a branch was pushed: the remote has this commit and, beside those that it had, these labels. Durable after
/// `Ok`.
pub fn pushed(
    ws: &Workspace,
    (remote, branch): (&str, &str),
    commit: CommitId,
    labels: BTreeMap<String, CommitId>,
) -> Result<()> {
    let before = tracking(ws, &format!("{remote}/{branch}"))?;
    let mut all = before.as_ref().map(|t| t.labels.clone());
    let all = all.get_or_insert_default();
    all.extend(labels);
    if before.is_some_and(|t| t.commit == commit && t.labels == *all) {
        return Ok(());
    }
    let incoming = Incoming {
        commit,
        labels: std::mem::take(all),
        timelines: Vec::new(),
    };
    set_tracking(ws, remote, branch, &incoming)
}

/// Notes what a branch of a remote has, all of which is in the store; `timelines` are kept as those of deleted
/// branches are. Durable after `Ok`. The caller holds a pin since before it was looked for.
pub fn set_tracking(ws: &Workspace, remote: &str, branch: &str, incoming: &Incoming) -> Result<()> {
    check_remote_name(remote)?;
    check_branch_name(branch)?;
    let now = clock::now();
    let store = &ws.views.shared().store;
    // A label's commit may be missing in the remote.
    let is_here = |id: &CommitId| store.contains(Kind::Commit, id.as_bytes());
    let labels = incoming
        .labels
        .iter()
        .filter(|(label, id)| check_label(label).is_ok() && is_here(id));
    let record = Tracking {
        version: VERSION,
        commit: incoming.commit,
        labels: labels.map(|(label, id)| (label.clone(), *id)).collect(),
        time: now,
    };
    let _one = ws.views.changing();
    // Removed meanwhile, or with its workspace: nothing may stay of it.
    crate::workspace::remotes::remote(ws, remote)?;
    store.sync()?;
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
    ws.untrusted.comes_from_afar(branch)?;
    take_over(ws, &*ws.branch(branch)?, &found);
    Ok(())
}

/// What of a branch's files below some paths, or of all, may be only in a remote: to be brought, with what it refers to.
/// The second says whether it may be missing in the remote.
pub fn needed_below(
    ws: &Workspace,
    branch: &str,
    paths: &[Vec<u8>],
) -> Result<Vec<(objstore::Key, bool)>> {
    let reader = state_reader::read_state(ws, branch, &DiffSide::Live)?;
    let all = [Vec::new()];
    let paths = match paths.is_empty() {
        true => &all[..],
        false => paths,
    };
    let store = &ws.views.shared().store;
    reader.with(|tree| {
        let mut found = Vec::new();
        for path in paths {
            let top = match path.is_empty() {
                true => Nid::ROOT,
                false => match state_reader::find(tree, path, true) {
                    Err(Error::NotFound) => return Err(Error::NoSuchPath(path.clone())),
                    found => found?,
                },
            };
            for nid in tree.subtree(top) {
                let Some(inode) = tree.get(nid) else { continue };
                found.extend(inode.stored().filter(|key| !is_chunk_here(store, key)));
                let away = tree.away(nid);
                found.extend(away.map(|id| (Kind::Tree, *id.as_bytes())));
            }
        }
        // What the branch has written since is in no remote, and here.
        Ok(found.into_iter().map(|key| (key, true)).collect())
    })
}

/// A chunk that is here is whole.
fn is_chunk_here(store: &ObjectStore, key: &objstore::Key) -> bool {
    key.0 == Kind::Chunk && store.contains(key.0, &key.1)
}

/// All that the branches of a remote need, as they were fetched last, as [`needed_below`].
pub fn needed_of_remote(ws: &Workspace, remote: &str) -> Result<Vec<(objstore::Key, bool)>> {
    let mut found = Vec::new();
    for (name, tracking) in all_tracking(ws)? {
        if name.split_once('/').is_some_and(|(of, _)| of == remote) {
            found.push((objstore::exchange::commit_key(&tracking.commit), false));
            let labels = tracking.labels.values();
            found.extend(labels.map(|id| (objstore::exchange::commit_key(id), true)));
        }
    }
    Ok(found)
}

/// How a branch stands to the one of its name in a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStanding {
    /// `REMOTE/BRANCH`.
    pub name: String,
    /// Commits that only the branch has, automatic ones left out.
    pub ahead: u64,
    /// Commits that only the remote has.
    pub behind: u64,
}

/// How a branch stands to those of its name in remotes, as they were when they were fetched or pushed last.
pub fn remote_standings(ws: &Workspace, branch: &str) -> Result<Vec<RemoteStanding>> {
    let b = ws.branch(branch)?;
    let store = &b.places.store;
    let mut all = Vec::new();
    for remote in remotes(ws)? {
        let name = format!("{}/{branch}", remote.name);
        let Some(found) = tracking(ws, &name)? else {
            continue;
        };
        let head = {
            let history = &b.lock().book.history;
            history.id_of(history.head)
        };
        let Some(head) = head else { continue };
        let (ahead, behind) = apart(store, head, found.commit)?;
        all.push(RemoteStanding {
            name,
            ahead,
            behind,
        });
    }
    Ok(all)
}

/// How many commits that were asked for only each of two has.
fn apart(store: &ObjectStore, ours: CommitId, theirs: CommitId) -> Result<(u64, u64)> {
    if ours == theirs {
        return Ok((0, 0));
    }
    let _pin = store.pin();
    let (ours, theirs) = (
        with_ancestors(store, vec![ours])?,
        with_ancestors(store, vec![theirs])?,
    );
    let count = |all: &HashSet<CommitId>, other: &HashSet<CommitId>| {
        all.difference(other).try_fold(0, |n, id| {
            let commit: Commit = store.get_object(id)?;
            Ok::<_, Error>(n + u64::from(commit.kind != CommitKind::Automatic))
        })
    };
    Ok((count(&ours, &theirs)?, count(&theirs, &ours)?))
}

/// The commits of a branch of a remote, the newest first: at most so many, after the one of a cursor.
pub fn remote_log(ws: &Workspace, name: &str, all: bool, page: LogPage) -> Result<Vec<LogEntry>> {
    let found = tracking(ws, name)?.ok_or_else(|| Error::NoSuchBranch(name.to_owned()))?;
    let store = &ws.views.shared().store;
    let _pin = store.pin();
    let mut entries = Vec::new();
    for id in with_ancestors(store, vec![found.commit])? {
        let commit: Commit = store.get_object(&id)?;
        if all || commit.kind != CommitKind::Automatic || id == found.commit {
            entries.push(entry(id, commit, &found));
        }
    }
    // By time, and of one time by id: the same each time.
    entries.sort_by_key(|e| (e.time, e.commit));
    for (number, entry) in (1..).zip(&mut entries) {
        entry.number = number;
    }
    let after = page.after.map_or(u64::MAX, |cursor| cursor.number);
    let limit = page.limit.and_then(|n| usize::try_from(n).ok());
    let newest = entries.into_iter().rev().filter(|e| e.number < after);
    Ok(newest.take(limit.unwrap_or(usize::MAX)).collect())
}

/// How many commits there are in all pages.
pub fn count_of_remote_log(ws: &Workspace, name: &str, all: bool) -> Result<u64> {
    Ok(remote_log(ws, name, all, LogPage::default())?.len() as u64)
}

fn entry(id: CommitId, commit: Commit, found: &Tracking) -> LogEntry {
    let labels = found.labels.iter().filter(|(_, of)| **of == id);
    LogEntry {
        number: 0,
        commit: Some(id),
        time: Time {
            sec: commit.time_sec,
            nsec: commit.time_nsec,
        },
        labels: labels.map(|(label, _)| label.clone()).collect(),
        message: commit.message,
        meta: commit.meta,
        automatic: commit.kind == CommitKind::Automatic,
        is_head: id == found.commit,
        parents: commit.parents,
        kind: OpKind::Foreign.word(),
    }
}

/// Labels that a branch, if there is one, and a branch of a remote have on different commits.
pub fn labels_differ(ws: &Workspace, branch: &str, name: &str) -> Result<Vec<String>> {
    let (Ok(b), Some(found)) = (ws.branch(branch), tracking(ws, name)?) else {
        return Ok(Vec::new());
    };
    let history = &b.lock().book.history;
    let differs = |label: &str, theirs: &CommitId| {
        let ours = history.labelled(label).and_then(|n| history.id_of(n));
        ours.is_some_and(|ours| ours != *theirs)
    };
    let labels = found.labels.iter().filter(|(label, id)| differs(label, id));
    Ok(labels.map(|(label, _)| label.clone()).collect())
}
