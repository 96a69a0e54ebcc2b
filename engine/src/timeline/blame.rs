//! Who changed a file, or what lies below a directory: calls, checkpoints, and switches of the live tree.
//!
//! Stored trees are compared at the path alone, so it costs what the path is deep, for each call. A call
//! is said to have changed what differs between the branch when it began and when it ended; where others
//! ran at the same time it says which.

use super::entry::StateRef;
use super::read::TimelineItem;
use crate::branch::Branch;
use crate::control::find;
use crate::error::{Error, Result};
use crate::merge::Root;
use crate::record::OpKind;
use crate::types::{Kind, Time};
use crate::workspace::Workspace;
use objstore::{Body, Commit, CommitId, Meta, ObjectStore, TreeEntry, diff_trees, tree_entry};

/// Something that changed a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameItem {
    /// `call`, `checkpoint`, or the word for a switch.
    pub kind: &'static str,
    /// Id of the call.
    pub call: Option<u64>,
    /// Name of the tool; label or message of the checkpoint; empty for a switch.
    pub name: String,
    /// When it began.
    pub time: Time,
    /// Commit of the branch before it.
    pub before: CommitId,
    /// Commit of the branch after it.
    pub after: CommitId,
    /// Calls that ran at the same time: the change may be theirs.
    pub overlaps: Vec<u64>,
    /// Entries by which the live tree was switched while it ran: the change may be theirs.
    pub switches: Vec<u64>,
}

/// Who changed a path, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// What changed it.
    pub items: Vec<BlameItem>,
    /// Calls and switches of which that cannot be said: what was there before or after them is not kept.
    pub unknown: u64,
}

impl Workspace {
    /// Calls, checkpoints and switches that changed `path` or what lies below it, the newest first.
    ///
    /// A checkpoint changed what differs from the commit that it was made from. Waits until what they
    /// left is stored. [`Error::NoSuchPath`] where nothing changed it and it is not there.
    pub fn blame(&self, branch: &str, path: &[u8], limit: usize) -> Result<Blame> {
        self.branch(branch)?.blame(path, limit)
    }
}

impl Branch {
    fn blame(&self, path: &[u8], limit: usize) -> Result<Blame> {
        self.store_pending()?;
        let _pin = self.places.store.pin();
        let mut trees = Trees {
            store: &self.places.store,
            path,
        };
        let mut blame = Blame::default();
        self.timeline_each(&mut |item| {
            blame_item(&mut blame, &mut trees, item)?;
            Ok(blame.items.len() < limit)
        })?;
        self.blame_checkpoints(&mut blame, &mut trees, limit)?;
        blame.items.sort_by_key(|item| std::cmp::Reverse(item.time));
        blame.items.truncate(limit);
        if blame.items.is_empty() && find(&self.lock().live, path, false).is_err() {
            return Err(Error::NoSuchPath(path.to_vec()));
        }
        Ok(blame)
    }

    fn blame_checkpoints(
        &self,
        blame: &mut Blame,
        trees: &mut Trees<'_>,
        most: usize,
    ) -> Result<()> {
        let checkpoints: Vec<BlameItem> = {
            let inner = self.lock();
            let history = &inner.book.history;
            let labels = history.labels_by_state();
            let made = history.states.values().rev();
            made.filter(|s| s.info.kind == OpKind::Checkpoint)
                .filter_map(|s| {
                    let label = labels.get(&s.info.number).and_then(|l| l.first()).cloned();
                    Some(BlameItem {
                        kind: "checkpoint",
                        call: None,
                        name: label.unwrap_or_else(|| s.info.message.clone()),
                        time: s.info.time,
                        before: history.id_of(*s.info.parents.first()?)?,
                        after: s.info.id?,
                        overlaps: Vec::new(),
                        switches: Vec::new(),
                    })
                })
                .collect()
        };
        let enough = blame.items.len() + most;
        for item in checkpoints {
            if blame.items.len() >= enough {
                break;
            }
            match trees.differ(item.before, item.after)? {
                Some(true) => blame.items.push(item),
                Some(false) => {}
                None => blame.unknown += 1,
            }
        }
        Ok(())
    }
}

fn blame_item(blame: &mut Blame, trees: &mut Trees<'_>, item: TimelineItem) -> Result<()> {
    let commit = |s: Option<StateRef>| s.and_then(|s| s.commit);
    let (Some(before), Some(after)) = (commit(item.before), commit(item.after)) else {
        // What still runs has changed nothing yet that could be told.
        let over = item.switch.is_some() || item.completed.is_some();
        blame.unknown += u64::from(over);
        return Ok(());
    };
    match trees.differ(before, after)? {
        None => blame.unknown += 1,
        Some(false) => {}
        Some(true) => blame.items.push(BlameItem {
            kind: item.switch.map_or("call", |by| by.word()),
            call: item.call,
            name: match item.switch {
                Some(_) => String::new(),
                None => item.name,
            },
            time: item.started,
            before,
            after,
            overlaps: item.overlaps,
            switches: item.switches,
        }),
    }
    Ok(())
}

/// Compares commits at one path.
struct Trees<'a> {
    store: &'a ObjectStore,
    path: &'a [u8],
}

impl Trees<'_> {
    /// Whether two commits differ there; `None` where one of them is not there any more.
    fn differ(&mut self, a: CommitId, b: CommitId) -> Result<Option<bool>> {
        if a == b {
            return Ok(Some(false));
        }
        let kept = |id: &CommitId| self.store.contains(objstore::Kind::Commit, id.as_bytes());
        if !kept(&a) || !kept(&b) {
            return Ok(None);
        }
        let (a, b) = (self.entry(a)?, self.entry(b)?);
        different(self.store, a.as_ref(), b.as_ref(), true).map(Some)
    }

    /// What a commit has at the path.
    fn entry(&self, id: CommitId) -> Result<Option<TreeEntry>> {
        let commit: Commit = self.store.get_object(&id)?;
        let mut entry = TreeEntry {
            name: Vec::new(),
            meta: commit.root_meta,
            body: Body::Dir(commit.root),
        };
        for name in self.path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let Body::Dir(Some(dir)) = entry.body else {
                return Ok(None);
            };
            match tree_entry(self.store, dir, name)? {
                Some(below) => entry = below,
                None => return Ok(None),
            }
        }
        Ok(Some(entry))
    }
}

/// Whether two trees differ in more than times.
pub(crate) fn differ_in_content(store: &ObjectStore, a: &Root, b: &Root) -> Result<bool> {
    let entry = |root: &Root| TreeEntry {
        name: Vec::new(),
        meta: root.meta.clone(),
        body: Body::Dir(root.tree),
    };
    different(store, Some(&entry(a)), Some(&entry(b)), false)
}

/// Whether a diff would show something at or below an entry; `times`: also where only the time of a file
/// is another.
pub(super) fn different(
    store: &ObjectStore,
    a: Option<&TreeEntry>,
    b: Option<&TreeEntry>,
    times: bool,
) -> Result<bool> {
    let (Some(a), Some(b)) = (a, b) else {
        return Ok(a.is_some() != b.is_some());
    };
    let (Body::Dir(x), Body::Dir(y)) = (&a.body, &b.body) else {
        let mut meta = b.meta.clone();
        if !times {
            (meta.mtime_sec, meta.mtime_nsec) = (a.meta.mtime_sec, a.meta.mtime_nsec);
        }
        return Ok(a.meta != meta || a.body != b.body);
    };
    // The time of a directory only says that a name came or went.
    let owner = |m: &Meta| (m.mode, m.uid, m.gid, m.xattrs.clone());
    if owner(&a.meta) != owner(&b.meta) || Kind::of_mode(a.meta.mode) != Kind::of_mode(b.meta.mode)
    {
        return Ok(true);
    }
    let mut found = false;
    let mut failed = None;
    diff_trees(store, *x, *y, &mut |a, b| {
        if !found {
            match different(store, a, b, times) {
                Ok(differ) => found = differ,
                Err(e) => failed = Some(e),
            }
        }
        Ok(())
    })?;
    failed.map_or(Ok(found), Err)
}
