//! Timelines of branches that were deleted.
//!
//! A branch that is merged and then deleted leaves commits that hold the hash of its timeline. So before its
//! ref goes, the ref `timelines/WORKSPACE/NAME-NANOSECONDS` names its log, stored as a whole, and the commits
//! before and after calls and switches that no other branch had. The ref stays as long as a branch of the workspace
//! has a commit whose entry no branch's own log has and this one does, or shares entries with it that mention those
//! commits, and at least for the grace period of gc; the commits stay as those of other calls do (`keep-calls`).
//!
//! Invariant: the ref is durable before that of the branch goes. Where the branch is still there after a crash
//! its own log has all of this one, so this one is not asked, and goes with the next gc.
//!
//! Tests: `engine/tests/timeline/of_deleted.rs`.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::LogPlace;
use crate::book::timeline::log::Newest;
use crate::book::timeline::log::append;
use crate::book::timeline::log::newest_first;
use crate::branch::{Branch, Inner};
use crate::error::{Error, Result};
use crate::record::call::{StateRef, What};
use crate::record::{OpKind, decode, encode};
use crate::types::Time;
use crate::verbs::timeline::read::Reading;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::timelines_dir;
use objstore::content::{FileContent, read_content};
use objstore::refs::RefStore;
use objstore::{ChunkId, Commit, CommitId, Kind, ObjectStore, TimelineHead};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

const VERSION: u16 = 1;
/// Bytes of the list of commits that are read at most; a timeline mentions far fewer.
const COMMITS_BYTES_MAX: u64 = 256 << 20;

/// What the ref of a kept timeline says.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub(crate) struct KeptRecord {
    version: u16,
    /// Name of the branch.
    pub branch: String,
    /// When it was deleted.
    pub deleted: Time,
    /// Newest entry.
    head: TimelineHead,
    /// The log.
    pub log: FileContent,
    /// Commits before and after calls and switches that no other branch had: an encoded list of [`KeptCommit`].
    pub commits: FileContent,
    /// First entry that mentions one of them.
    pub first: Option<TimelineHead>,
}

/// States, each with the first entry that mentions it.
type Mentions = BTreeMap<u64, TimelineHead>;

/// A commit that a kept timeline mentions.
#[derive(Clone, Copy, Debug, bincode::Encode, bincode::Decode)]
pub(crate) struct KeptCommit {
    /// Number of its state on the branch.
    state: u64,
    /// The commit.
    pub id: CommitId,
    /// When it was frozen.
    pub time: Time,
}

impl KeptRecord {
    /// Where the log is.
    pub fn place(&self) -> LogPlace {
        LogPlace {
            stored: self.log,
            tail: Arc::default(),
            head: Some(self.head),
        }
    }

    /// The commits that it mentions.
    pub fn read_commits(&self, store: &ObjectStore) -> Result<Vec<KeptCommit>> {
        let damaged = |why: String| Error::Damaged {
            what: format!("the timeline of {}, which was deleted", self.branch),
            why,
        };
        let len = self.commits.len();
        if len > COMMITS_BYTES_MAX {
            return Err(damaged("its list of commits is too long".into()));
        }
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; len as usize];
        read_content(store, &self.commits, 0, &mut bytes)?;
        decode(&bytes).map_err(damaged)
    }

    /// For reading. The caller holds a pin since before the record was read.
    pub(crate) fn reading(&self, store: &ObjectStore) -> Result<Reading> {
        let commits = self.read_commits(store)?;
        Ok(Reading {
            log: self.place(),
            running: HashMap::new(),
            known: commits.into_iter().map(|c| (c.state, c.id)).collect(),
            gone: Some(self.deleted),
            of: None,
        })
    }
}

/// Reads the ref of a kept timeline; `None` where it is of a later version.
pub(crate) fn kept_record(name: &str, bytes: &[u8]) -> Result<Option<KeptRecord>> {
    let damaged = |why: String| Error::Damaged {
        what: format!("the record {name}"),
        why,
    };
    if bytes
        .first_chunk()
        .is_some_and(|v| u16::from_le_bytes(*v) > VERSION)
    {
        return Ok(None);
    }
    decode(bytes).map(Some).map_err(damaged)
}

/// All kept timelines of a workspace with the names of their refs, the one deleted last first. Damaged ones are
/// for fsck to tell of.
pub(crate) fn kept(refs: &RefStore, workspace: &str) -> Result<Vec<(String, KeptRecord)>> {
    let mut found = Vec::new();
    for name in refs.list(&timelines_dir(workspace))? {
        let Some(bytes) = refs.get(&name)? else {
            continue;
        };
        match kept_record(&name, &bytes) {
            Ok(record) => found.extend(record.map(|record| (name, record))),
            Err(e) => tracing::warn!("{e}"),
        }
    }
    found.sort_by_key(|(_, record)| std::cmp::Reverse(record.deleted));
    Ok(found)
}

/// Commits of a branch that were made elsewhere: they may hold the hash of another branch's timeline.
pub(crate) fn from_elsewhere(inner: &Inner) -> Vec<CommitId> {
    let states = inner.book.history.states.stored();
    let foreign = states.filter(|s| matches!(s.info.kind, OpKind::Foreign | OpKind::Start));
    foreign.filter_map(|s| s.info.id).collect()
}

/// What commits say of timelines, as far as they are there.
pub(crate) fn heads_of<'a>(
    store: &ObjectStore,
    ids: impl Iterator<Item = &'a CommitId>,
) -> Result<BTreeSet<(u64, [u8; 32])>> {
    let mut heads = BTreeSet::new();
    for id in ids {
        if store.contains(Kind::Commit, id.as_bytes()) {
            let commit: Commit = store.get_object(id)?;
            heads.extend(commit.timeline.map(|h| (h.entries, h.hash)));
        }
    }
    Ok(heads)
}

/// Takes away the heads that a log has; how many these are.
pub(crate) fn strike(
    store: &ObjectStore,
    log: &LogPlace,
    heads: &mut BTreeSet<(u64, [u8; 32])>,
) -> Result<usize> {
    let mut left: Vec<(u64, [u8; 32])> = heads.iter().copied().collect();
    left.retain(|(entries, _)| *entries <= log.entries());
    let mut struck = 0;
    let mut reader = Newest::of(Log::at(log, store, store.pin()));
    while let Some((entries, hash)) = left.pop() {
        if reader.skip_to(entries)? == Some(TimelineHead { entries, hash }) {
            heads.remove(&(entries, hash));
            struck += 1;
        }
    }
    Ok(struck)
}

/// The newest entry that two logs have in common; 0 where there is none.
fn common(store: &ObjectStore, a: &LogPlace, b: &LogPlace) -> Result<u64> {
    let mut a = Newest::of(Log::at(a, store, store.pin()));
    let mut b = Newest::of(Log::at(b, store, store.pin()));
    loop {
        let (Some(x), Some(y)) = (a.peek()?, b.peek()?) else {
            return Ok(0);
        };
        if x == y {
            return Ok(x.entries);
        }
        match x.entries.cmp(&y.entries) {
            Ordering::Greater => a.skip_to(y.entries)?,
            Ordering::Less => b.skip_to(x.entries)?,
            Ordering::Equal => {
                a.take()?;
                b.skip_to(x.entries.saturating_sub(1))?
            }
        };
    }
}

/// Keeps the timeline of a branch that is about to be deleted, durably. Nothing is kept of one without calls
/// and switches of its own, but for commits before and after those which branches made of it share with it.
/// All its states are commits.
pub(crate) fn keep_timeline(ws: &Workspace, branch: &Branch, now: Time) -> Result<()> {
    let store = &branch.places.store;
    let pin = store.pin();
    let place = LogPlace::of(&branch.lock().book.timeline);
    let Some(head) = place.head else {
        return Ok(());
    };
    let mut others = Vec::new();
    for other in ws.views.branches_but(branch) {
        let theirs = LogPlace::of(&other.lock().book.timeline);
        others.push((common(store, &place, &theirs)?, other));
    }
    let shared = others.iter().map(|(shared, _)| *shared).max().unwrap_or(0);
    let (mentions, tells) = mentions(branch, &place, shared)?;
    let mut commits = commits_of(branch, mentions);
    for (shared, other) in &others {
        let inner = other.lock();
        // What an entry of both mentions is the same state on both, also where it is not stored yet.
        commits.retain(|(c, at)| match inner.book.history.states.get(&c.state) {
            Some(state) => at.entries > *shared && state.info.id != Some(c.id),
            None => true,
        });
    }
    if !tells && commits.is_empty() {
        return Ok(());
    }
    let first = commits
        .iter()
        .map(|(_, at)| *at)
        .min_by_key(|at| at.entries);
    let commits: Vec<KeptCommit> = commits.into_iter().map(|(c, _)| c).collect();
    let record = KeptRecord {
        version: VERSION,
        branch: branch.name(),
        deleted: now,
        head,
        log: append(store, &place.stored, &place.tail)?,
        commits: append(store, &FileContent::Empty, &encode(&commits))?,
        first,
    };
    store.sync()?;
    let nanos = i128::from(now.sec) * 1_000_000_000 + i128::from(now.nsec);
    let name = format!("{}/{}-{nanos}", timelines_dir(ws.name()), branch.name());
    ws.views.shared().refs.set(&name, &encode(&record))?;
    drop(pin);
    Ok(())
}

/// A timeline as it goes to a remote and comes from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedTimeline {
    /// Name of the branch.
    pub branch: String,
    /// Newest entry.
    pub head: TimelineHead,
    /// The log.
    pub log: FileContent,
    /// The list of commits that it mentions (docs/format.md, 7.4).
    pub commits: FileContent,
    /// First entry that mentions one of them.
    pub first: Option<TimelineHead>,
    /// These commits.
    pub mentioned: Vec<CommitId>,
}

/// The timeline of a branch, stored as a whole; `None` where it is empty. The caller holds a pin.
pub(crate) fn carried(branch: &Branch) -> Result<Option<CarriedTimeline>> {
    let store = &branch.places.store;
    let place = LogPlace::of(&branch.lock().book.timeline);
    let Some(head) = place.head else {
        return Ok(None);
    };
    let (mentions, _) = mentions(branch, &place, 0)?;
    let commits = commits_of(branch, mentions);
    let first = commits.iter().map(|(_, at)| *at);
    let first = first.min_by_key(|at| at.entries);
    let commits: Vec<KeptCommit> = commits.into_iter().map(|(c, _)| c).collect();
    let list = match commits.is_empty() {
        true => FileContent::Empty,
        false => append(store, &FileContent::Empty, &encode(&commits))?,
    };
    Ok(Some(CarriedTimeline {
        branch: branch.name(),
        head,
        log: append(store, &place.stored, &place.tail)?,
        commits: list,
        first,
        mentioned: commits.iter().map(|c| c.id).collect(),
    }))
}

/// Whether the timeline of a branch has an entry.
pub(crate) fn has_entry(branch: &Branch, head: TimelineHead) -> Result<bool> {
    let place = LogPlace::of(&branch.lock().book.timeline);
    let mut heads = BTreeSet::from([(head.entries, head.hash)]);
    Ok(strike(&branch.places.store, &place, &mut heads)? > 0)
}

/// Whether a branch or a kept timeline has an entry.
pub(crate) fn is_here(ws: &Workspace, head: TimelineHead) -> Result<bool> {
    let shared = ws.views.shared();
    for branch in ws.views.branches() {
        if has_entry(&branch, head)? {
            return Ok(true);
        }
    }
    for (_, record) in kept(&shared.refs, ws.name())? {
        let mut heads = BTreeSet::from([(head.entries, head.hash)]);
        if strike(&shared.store, &record.place(), &mut heads)? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps a timeline that came from a remote, unless a branch or a kept timeline has all of it. Durable.
pub(crate) fn keep_carried(
    ws: &Workspace,
    remote: &str,
    carried: &CarriedTimeline,
    now: Time,
) -> Result<()> {
    if is_here(ws, carried.head)? {
        return Ok(());
    }
    let shared = ws.views.shared();
    let record = KeptRecord {
        version: VERSION,
        branch: carried.branch.clone(),
        deleted: now,
        head: carried.head,
        log: carried.log,
        commits: carried.commits,
        first: carried.first,
    };
    // The log must be what its hash says before anything relies on it.
    let mut reader = Newest::of(Log::at(&record.place(), &shared.store, shared.store.pin()));
    if reader.peek()? != Some(carried.head) {
        return Err(Error::Damaged {
            what: format!("the timeline of {remote}/{}", carried.branch),
            why: "it does not end with the entry that the remote names".into(),
        });
    }
    let nanos = i128::from(now.sec) * 1_000_000_000 + i128::from(now.nsec);
    let hash = ChunkId::from_bytes(carried.head.hash).to_string();
    let dir = timelines_dir(ws.name());
    let name = format!("{dir}/{}-{}-{nanos}", carried.branch, &hash[..8]);
    Ok(shared.refs.set(&name, &encode(&record))?)
}

/// States that entries mention, each with the first entry that does, and whether entries after `shared` tell
/// of a call or a switch.
fn mentions(branch: &Branch, place: &LogPlace, shared: u64) -> Result<(Mentions, bool)> {
    let store = &branch.places.store;
    let (mut states, mut tells) = (Mentions::new(), false);
    newest_first(&Log::at(place, store, store.pin()), &mut |frame| {
        let entry = frame.entry()?;
        let (entries, hash) = (entry.number, frame.hash);
        tells |= entries > shared && !matches!(entry.what, What::Named { .. } | What::Same { .. });
        for state in mentioned(&entry.what) {
            states.insert(state.state, TimelineHead { entries, hash });
        }
        Ok(true)
    })?;
    Ok((states, tells))
}

/// Their commits, as far as the branch has them.
fn commits_of(branch: &Branch, mentions: Mentions) -> Vec<(KeptCommit, TimelineHead)> {
    let inner = branch.lock();
    let states = &inner.book.history.states;
    let known = |n: u64| states.get(&n).filter(|_| states.is_stored(n));
    let commits = mentions.into_iter().filter_map(|(state, at)| {
        let info = &known(state)?.info;
        let commit = KeptCommit {
            state,
            id: info.id?,
            time: info.time,
        };
        Some((commit, at))
    });
    commits.collect()
}

/// States that an entry mentions.
fn mentioned(what: &What) -> impl Iterator<Item = StateRef> {
    let two = match what {
        What::Started { before, .. } | What::Begun { before, .. } => [Some(*before), None],
        What::Ended { after, .. } | What::Over { after, .. } => [Some(*after), None],
        What::Recorded { before, after, .. } => [*before, *after],
        What::Switched { before, after, .. } => [Some(*before), *after],
        What::Same { kept, .. } => [Some(*kept), None],
        What::Named { .. }
        | What::Elsewhere { .. }
        | What::Imported { .. }
        | What::Others { .. } => [None, None],
    };
    two.into_iter().flatten()
}
