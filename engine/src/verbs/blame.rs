//! Who changed a file, or what lies below a directory: calls, checkpoints, and switches of the live tree.
//!
//! A call is said to have changed what differs between the branch when it began and when it ended; where others
//! ran at the same time it says which. What was renamed is followed to the name that it had. Where a merge took
//! it from another branch, the calls of that branch are told too, also where it was deleted since.
//!
//! Tests: `engine/tests/timeline/blame.rs`, `engine/tests/timeline/exact.rs`.

pub(crate) mod begin;
pub(crate) mod beside;
pub(crate) mod trees;
pub(crate) mod walk;

use crate::book::history::History;
use crate::book::states::State;
use crate::branch::seal;
use crate::error::{Error, Result};
use crate::record::OpKind;
use crate::types::Time;
use crate::verbs::find;
use crate::verbs::timeline::sources;
use crate::workspace::Workspace;
use objstore::CommitId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
pub use trees::BlameChange;
pub(crate) use trees::differ_in_content;
pub(crate) use trees::different;
use trees::{Moment, Trees};
use walk::{Blamer, Elsewhere, Point, Stretch};

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
    /// The innermost call that it lay inside: that one changed it too.
    pub parent: Option<u64>,
    /// Calls that ran at the same time and are neither part of it nor around it: the change may be theirs.
    pub overlaps: Vec<u64>,
    /// Entries by which the live tree was switched while it ran: the change may be theirs.
    pub switches: Vec<u64>,
    /// What it did.
    pub change: BlameChange,
    /// What the file or directory was called afterwards.
    pub path: Vec<u8>,
    /// What it was called before, where it was renamed.
    pub old_path: Option<Vec<u8>>,
    /// The branch in whose timeline it stands; `None` for a checkpoint that another branch made.
    pub branch: Option<String>,
}

/// Who changed a path, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// What changed it.
    pub items: Vec<BlameItem>,
    /// Calls and switches of which that cannot be said: what was there before or after them is not kept.
    pub unknown: u64,
    /// Calls among what was found.
    pub calls: u64,
    /// Where no call changed it: the commits that it came with, the newest first. Empty where it is in none yet,
    /// and where there may be more.
    pub commits: Vec<CommitId>,
    /// The limit ended the search: there may be more.
    pub more: bool,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct BlameQuery {
    /// At most so many.
    pub limit: usize,
    /// Look at the names that the path had before it was renamed, too.
    pub follow: bool,
}

/// Calls, checkpoints and switches that changed `path` or what lies below it, the newest first.
///
/// A checkpoint changed what differs from the commit that it was made from. Waits until what they
/// left is stored. [`Error::NoSuchPath`] where nothing changed it and it is not there.
pub fn blame(ws: &Workspace, branch: &str, path: &[u8], limit: usize) -> Result<Blame> {
    let follow = true;
    blame_as(ws, branch, path, BlameQuery { limit, follow })
}

/// As [`blame`], with all that can be asked for.
pub fn blame_as(ws: &Workspace, branch: &str, path: &[u8], query: BlameQuery) -> Result<Blame> {
    let branch = ws.branch(branch)?;
    seal::store_pending(&branch)?;
    sources::store_others(ws, &branch)?;
    let store = &branch.places.store;
    let _pin = store.pin();
    let path = &path
        .split(|b| *b == b'/')
        .filter(|n| !n.is_empty())
        .collect::<Vec<_>>();
    let path = path.join(&b'/');
    let begin = begin::blame_begin(&branch, store, &path, query.follow)?;
    let elsewhere = branch.lock().book.history.elsewhere();
    let sources = sources::sources(ws, &branch)?;
    let last = sources.list.first().map_or(0, |own| own.last);
    let trees = Trees::new(store, query.follow);
    let mut blamer = Blamer::new(trees, sources, elsewhere, query.limit);
    let mut known = None;
    if let Some(at) = begin {
        let (points, start, origins) = {
            let inner = branch.lock();
            let (points, start) = inner.book.history.own_points();
            (points, start, inner.book.history.origins())
        };
        let stretch = Stretch {
            log: Some((0, last)),
            at: Rc::new(at),
            points,
        };
        known = Some(blamer.run(stretch, start, &origins)?);
    }
    let blame = finish(blamer, known.as_deref());
    let nowhere = blame.items.is_empty() && blame.commits.is_empty();
    if nowhere && find(&branch.lock().live, &path, false).is_err() {
        return Err(Error::NoSuchPath(path));
    }
    Ok(blame)
}

/// Sorts what was found and says where the path comes from if no call changed it. `oldest` is where the trail
/// ended.
fn finish(blamer: Blamer<'_>, oldest: Option<&Moment>) -> Blame {
    let limit = blamer.limit;
    let (mut blame, merges) = (blamer.found, blamer.merges);
    // A merge of another branch is told by its timeline, where that is known.
    let is_merge = |i: &BlameItem| i.branch.is_none() && merges.contains(&i.after);
    blame.items.retain(|i| !is_merge(i));
    blame.items.sort_by_key(|item| std::cmp::Reverse(item.time));
    let mut met = HashSet::new();
    let key = |i: &BlameItem| (i.kind, i.call, i.time, i.before, i.after);
    blame.items.retain(|i| met.insert(key(i)));
    blame.more = blamer.cut || blame.items.len() > limit;
    blame.items.truncate(limit);
    if blame.calls == 0 && !blame.more {
        let rows = blame.items.iter().map(|i| i.after);
        let mut commits: Vec<CommitId> = rows.chain(blamer.outside).collect();
        if commits.is_empty() {
            let there = oldest.filter(|m| m.entry.is_some());
            commits.extend(there.map(|m| m.commit));
        }
        let mut met = HashSet::new();
        commits.retain(|id| met.insert(*id));
        commits.truncate(limit);
        blame.commits = commits;
    }
    blame
}

impl History {
    /// Commits that other branches made.
    fn elsewhere(&self) -> HashMap<CommitId, Elsewhere> {
        let stored = |s: &&State| self.states.is_stored(s.info.number);
        let foreign = self.states.foreign().filter(stored);
        let labels = self.labels_by_state();
        let all = foreign.filter_map(|s| {
            let label = labels.get(&s.info.number).and_then(|l| l.first()).cloned();
            let parents = s.info.parents.iter().filter_map(|p| self.id_of(*p));
            let state = Elsewhere {
                time: s.info.time,
                name: label.unwrap_or_else(|| s.info.message.clone()),
                parents: parents.collect(),
            };
            Some((s.info.id?, state))
        });
        all.collect()
    }

    /// Commits of other branches that this one went on from: one that it was made of, or was set to.
    fn origins(&self) -> Vec<CommitId> {
        let foreign = |n: &u64| {
            let state = self.states.get(n)?;
            state.info.id.filter(|_| state.info.kind == OpKind::Foreign)
        };
        let from = self.states.own().filter_map(|s| s.info.parents.first());
        let all: HashSet<CommitId> = from.chain([&self.head]).filter_map(foreign).collect();
        all.into_iter().collect()
    }

    /// Checkpoints of this branch, the newest first, and the commit that it was made of, where another branch
    /// or an earlier one made that.
    fn own_points(&self) -> (VecDeque<Point>, Option<CommitId>) {
        let labels = self.labels_by_state();
        let made = self.states.values().rev();
        let made = made.filter(|s| s.info.kind == OpKind::Checkpoint);
        let points = made.filter_map(|s| {
            let label = labels.get(&s.info.number).and_then(|l| l.first()).cloned();
            Some(Point {
                name: label.unwrap_or_else(|| s.info.message.clone()),
                time: s.info.time,
                before: self.id_of(*s.info.parents.first()?)?,
                after: s.info.id?,
                foreign: false,
                entry: None,
            })
        });
        let first = self.states.values().find(|s| s.info.kind == OpKind::Start);
        (points.collect(), first.and_then(|s| s.info.id))
    }
}
