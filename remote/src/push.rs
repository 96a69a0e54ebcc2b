//! Sending what a remote lacks, and moving a ref of it (docs/remote.md, 3).
//!
//! Invariant: an object becomes present only in a generation in which everything that it refers to is present, and
//! the ref moves only while a generation keeps its commit from gc.

mod sending;

use crate::error::{Error, Result};
use crate::layout::catalog::BranchName;
use crate::layout::reference::{RemoteRef, TIMELINES_MAX, Timeline};
use crate::limits::TRIES_MAX;
use crate::remote::Remote;
use objstore::exchange::{commit_key, content_key};
use objstore::{Commit, CommitId, Key, Kind, ObjectStore, TimelineHead};
use sending::Sending;
use std::collections::{BTreeMap, HashSet};

/// What is to be pushed.
#[derive(Debug)]
pub struct PushRequest {
    /// Branch of the remote whose ref is moved.
    pub to: BranchName,
    /// Commit that it gets.
    pub commit: CommitId,
    /// Labels of the branch here.
    pub labels: BTreeMap<String, CommitId>,
    /// The branch's timeline, whose log and list are in the store.
    pub timeline: Option<Timeline>,
    /// Commits that it mentions; sent as far as they are there.
    pub mentioned: Vec<CommitId>,
    /// Who pushes.
    pub by: String,
    /// When.
    pub time: (i64, u32),
    /// Which changes of the ref are allowed.
    pub allow: Allow,
}

/// Which changes of a ref a push may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allow {
    /// To a descendant.
    FastForward,
    /// From this commit to any, `None`: from no ref.
    From(Option<CommitId>),
}

/// What surrounds a push.
pub struct Context<'a> {
    /// Hears of bytes that were sent, of how many.
    pub progress: &'a dyn Fn(u64, u64),
    /// May end the push, before each object and request.
    pub check: &'a dyn Fn() -> Result<()>,
    /// The push passes its point of no return: the ref is put next. It may end the push as well.
    pub decide: &'a dyn Fn() -> Result<()>,
    /// Whether the branch's timeline here has this entry.
    pub has_entry: &'a dyn Fn(&TimelineHead) -> Result<bool>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

/// What a push did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The ref's commit before; `None`: there was no ref.
    pub before: Option<CommitId>,
    /// False where the ref was as it was to become.
    pub moved: bool,
    /// Objects that were sent.
    pub objects: u64,
    /// Bytes of the packs that they were sent in.
    pub bytes: u64,
    /// Labels that the remote has on other commits, which stay as they are there.
    pub labels_differ: Vec<String>,
}

/// Pushes. On `Err` the ref is what it was, unless the last request's answer was lost.
pub fn push(
    remote: &Remote,
    store: &ObjectStore,
    request: &PushRequest,
    context: &Context<'_>,
) -> Result<Pushed> {
    let (old, etag) = match remote.reference(&request.to)? {
        Some((old, etag)) => (Some(old), Some(etag)),
        None => (None, None),
    };
    let before = old.as_ref().map(|old| old.commit);
    let mut done = Pushed {
        before,
        ..Pushed::default()
    };
    let mut new = RemoteRef {
        commit: request.commit,
        labels: Vec::new(),
        timelines: merged_timelines(old.as_ref(), request, context)?,
        time_sec: request.time.0,
        time_nsec: request.time.1,
        by: request.by.clone(),
        random: remote.random(),
    };
    (new.labels, done.labels_differ) = merged_labels(old.as_ref(), &request.labels);
    if let Some(old) = &old {
        let same =
            (old.commit, &old.labels, &old.timelines) == (new.commit, &new.labels, &new.timelines);
        if same {
            return Ok(done);
        }
    }
    check_allowed(store, request, before)?;
    let mut sending = Sending::new(remote, store, context, roots(request, &new), before);
    let kept = sending.send(request, &new)?;
    (done.objects, done.bytes) = sending.sent();
    (context.check)()?;
    sending.keep_alive(kept, request, &new)?;
    (context.decide)()?;
    if !remote.put_reference(&request.to, &new, etag.as_ref())? {
        return Err(rejected(request));
    }
    done.moved = true;
    Ok(done)
}

/// What must be present for the ref, and what of it may be missing here.
fn roots(request: &PushRequest, new: &RemoteRef) -> Vec<(Key, bool)> {
    let own = request.timeline.iter();
    let contents = own
        .flat_map(|t| [&t.log, &t.commits])
        .filter_map(content_key);
    let labels = request.labels.values().map(|id| (commit_key(id), true));
    let mentioned = request.mentioned.iter().map(|id| (commit_key(id), true));
    let mut roots = vec![(commit_key(&new.commit), false)];
    roots.extend(contents.map(|key| (key, false)));
    roots.extend(labels.chain(mentioned));
    roots
}

/// The remote's labels and those of ours that it has not, and names of those that it has elsewhere.
fn merged_labels(
    old: Option<&RemoteRef>,
    ours: &BTreeMap<String, CommitId>,
) -> (Vec<(String, CommitId)>, Vec<String>) {
    let theirs = old.into_iter().flat_map(|old| old.labels.iter().cloned());
    let mut all: BTreeMap<String, CommitId> = theirs.collect();
    let mut differ = Vec::new();
    for (label, commit) in ours {
        match all.insert(label.clone(), *commit) {
            Some(theirs) if theirs != *commit => {
                all.insert(label.clone(), theirs);
                differ.push(label.clone());
            }
            _ => {}
        }
    }
    (all.into_iter().collect(), differ)
}

/// Timelines of the remote that ours does not go on from, and ours.
fn merged_timelines(
    old: Option<&RemoteRef>,
    request: &PushRequest,
    context: &Context<'_>,
) -> Result<Vec<Timeline>> {
    let theirs = old.map_or(&[][..], |old| &old.timelines);
    let Some(ours) = &request.timeline else {
        return Ok(theirs.to_vec());
    };
    let mut all = Vec::new();
    for timeline in theirs {
        if timeline.head == ours.head {
            // The same log may be cut into other chunks; what is there stays.
            return Ok(theirs.to_vec());
        }
        if !(context.has_entry)(&timeline.head)? {
            all.push(timeline.clone());
        }
    }
    all.truncate(TIMELINES_MAX - 1);
    all.push(ours.clone());
    Ok(all)
}

fn check_allowed(
    store: &ObjectStore,
    request: &PushRequest,
    before: Option<CommitId>,
) -> Result<()> {
    let allowed = match request.allow {
        Allow::From(expected) => expected == before,
        Allow::FastForward => match before {
            Some(before) => is_ancestor(store, before, request.commit)?,
            None => true,
        },
    };
    match allowed {
        true => Ok(()),
        false => Err(rejected(request)),
    }
}

fn rejected(request: &PushRequest) -> Error {
    Error::Rejected {
        project: request.to.project.clone(),
        branch: request.to.branch.clone(),
    }
}

/// Whether a commit is another one or one of its ancestors, as far as these are here.
pub fn is_ancestor(store: &ObjectStore, ancestor: CommitId, of: CommitId) -> Result<bool> {
    let (mut seen, mut work) = (HashSet::new(), vec![of]);
    while let Some(id) = work.pop() {
        if id == ancestor {
            return Ok(true);
        }
        if seen.insert(id) && store.contains(Kind::Commit, id.as_bytes()) {
            let commit: Commit = store.get_object(&id)?;
            work.extend(commit.parents);
        }
    }
    Ok(false)
}

/// Generations are lost to others only so often before a push gives up.
pub(crate) fn too_busy(tries: u32) -> Result<()> {
    match tries < TRIES_MAX {
        true => Ok(()),
        false => Err(Error::Transient {
            name: crate::layout::HEAD.into(),
            why: "others move it all the time".into(),
        }),
    }
}
