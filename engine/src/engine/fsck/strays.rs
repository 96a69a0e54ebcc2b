//! Which commits of the store are a branch's that has lost its history.
//!
//! A commit names its parents, its time and its kind, but no branch. So a commit is taken for the branch's
//! where it can be nobody else's: no other branch of the workspace was there when it was made, or each of
//! them would still know it. What others may have made (and let expire) stands in the log as a commit of
//! another branch, so that it is there, and is never shown: another branch's tree would be worse than an
//! older one.

use crate::book::history::History;
use crate::book::timeline::Timeline;
use crate::branch::inspect::left_of;
use crate::clock;
use crate::engine::Engine;
use crate::engine::exchange::{IMPORTED, no_base};
use crate::engine::gc;
use crate::engine::gc::tombs;
use crate::error::Result;
use crate::names::MAIN;
use crate::record::Counters;
use crate::types::Time;
use crate::workspace::branch_refs::{branch_dir, recorded};
use objstore::{Commit, CommitId, CommitKind, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// Further fact of commits that stand for the base.
const BASE_FACT: &str = "agentvfs.base";
/// How long before a commit's time the commit of a start may have been asked for.
const START_SKEW_SEC: i64 = 1;

/// What is found of a branch in the store, and by its siblings.
#[derive(Debug)]
pub(super) struct Strays {
    /// Its commits and those that may be, each after its parents.
    pub commits: Vec<(CommitId, Commit)>,
    /// Those that are certain to be its.
    pub certain: HashSet<CommitId>,
    /// Labels by which siblings know some of them.
    pub labels: Vec<(String, CommitId)>,
    /// Numbers that siblings have given.
    pub counters: Option<Counters>,
}

/// Another branch of the workspace.
struct Sibling {
    created: Time,
    is_main: bool,
    /// Its history is whole.
    whole: bool,
    history: History,
    counters: Counters,
    timeline: Timeline,
    knows: HashSet<CommitId>,
}

struct Search {
    commits: HashMap<CommitId, Commit>,
    /// First ancestor of each.
    roots: HashMap<CommitId, CommitId>,
    siblings: Vec<Sibling>,
    /// Of other workspaces, or of branches that were deleted.
    foreign: HashSet<CommitId>,
    is_main: bool,
    created: Time,
}

/// Looks for the commits of a branch; `own` are commits that are known to be its.
pub(super) fn strays(
    engine: &Engine,
    workspace: &str,
    branch: &str,
    own: &HashSet<CommitId>,
) -> Result<Strays> {
    let search = search_strays(engine, workspace, branch)?;
    let mut roots = search.roots_of(own.iter());
    if roots.is_empty() {
        let known = search.siblings.iter().flat_map(|s| &s.knows);
        roots = search.roots_of(known);
    }
    if roots.is_empty() {
        roots.extend(start_of(engine, workspace, &search));
    }
    let mut work: Vec<CommitId> = own.iter().copied().collect();
    let all = search.commits.keys();
    work.extend(all.filter(|id| search.is_certain(id, &roots)));
    if work.is_empty() {
        work.extend(&roots);
    }
    let certain = search.with_ancestors(work).into_iter();
    let certain: HashSet<CommitId> = certain.map(|(id, _)| id).collect();
    let all = search.commits.keys();
    let maybe = all.filter(|id| certain.contains(id) || search.is_nobodys(id, &roots));
    let commits = search.with_ancestors(maybe.copied().collect());
    let ids: HashSet<CommitId> = commits.iter().map(|(id, _)| *id).collect();
    Ok(Strays {
        commits,
        certain,
        labels: search.labels(&ids),
        counters: search.counters(),
    })
}

/// Timelines of all branches of a workspace: a branch begins with all entries of the one that it was
/// made of.
pub(super) fn timelines(engine: &Engine, workspace: &str) -> Result<Vec<Timeline>> {
    let all = siblings_of(engine, workspace)?.into_values();
    Ok(all.map(|s| s.timeline).collect())
}

fn search_strays(engine: &Engine, workspace: &str, branch: &str) -> Result<Search> {
    let mut commits = HashMap::new();
    for id in engine.store.ids(Kind::Commit) {
        let id = CommitId::from_bytes(id);
        if let Ok(commit) = engine.store.get_object::<Commit>(&id)
            && !commit.meta.iter().any(|(key, _)| key == BASE_FACT)
        {
            commits.insert(id, commit);
        }
    }
    let mut siblings = siblings_of(engine, workspace)?;
    let me = siblings.remove(branch);
    let mut search = Search {
        commits,
        roots: HashMap::new(),
        siblings: siblings.into_values().collect(),
        foreign: HashSet::new(),
        is_main: branch == MAIN,
        created: me.map_or(Time::default(), |s| s.created),
    };
    search.find_roots();
    let deleted = tombs::tombs(engine, clock::now(), Duration::MAX)?;
    let deleted = search.with_ancestors(deleted);
    search.foreign.extend(deleted.into_iter().map(|(id, _)| id));
    for other in engine.names()?.into_iter().filter(|n| n != workspace) {
        let branches = siblings_of(engine, &other).unwrap_or_default();
        let known = branches.into_values().flat_map(|s| s.knows);
        search.foreign.extend(known);
    }
    Ok(search)
}

/// What is left of all branches of a workspace.
fn siblings_of(engine: &Engine, workspace: &str) -> Result<BTreeMap<String, Sibling>> {
    let made = engine.get(workspace).map_or(Time::default(), |c| c.created);
    let others = recorded(&engine.refs, workspace)?.0.into_iter();
    let others = others.map(|(name, r)| (name, r.number, r.created));
    let trees = gc::look_at_trees(engine, workspace);
    let all = std::iter::once((MAIN.to_owned(), 0, made)).chain(others);
    let read = |(name, number, created): (String, u16, Time)| {
        let dir = branch_dir(workspace, number);
        let mut left = left_of(&*engine.storage, &trees, &dir, engine.boot);
        left.keep_commits(&engine.store);
        let history = left.inner.book.history;
        let ids = history.states.values().filter_map(|s| s.info.id);
        let sibling = Sibling {
            created,
            is_main: number == 0,
            whole: left.has_head,
            knows: ids.collect(),
            counters: left.inner.book.counters,
            timeline: left.inner.book.timeline,
            history,
        };
        (name, sibling)
    };
    Ok(all.map(read).collect())
}

/// The commit that the workspace began with, by what that says.
fn start_of(engine: &Engine, workspace: &str, search: &Search) -> Option<CommitId> {
    let config = engine.get(workspace).ok()?;
    let imported = config.base == no_base(engine.root());
    let message = format!("start from {}", config.base.display());
    let begins = search.commits.iter().filter(|(id, c)| {
        let as_said = match imported {
            true => c.message.starts_with(IMPORTED),
            false => c.kind == CommitKind::Start && c.message == message,
        };
        let since = c.time_sec + START_SKEW_SEC >= config.created.sec;
        as_said && c.parents.is_empty() && since && !search.foreign.contains(id)
    });
    // A workspace of the same name and base may have been there before, or be there under another.
    let first = begins.min_by_key(|(_, c)| (c.time_sec, c.time_nsec));
    first.map(|(id, _)| *id)
}

impl Search {
    fn time_of(commit: &Commit) -> Time {
        Time {
            sec: commit.time_sec,
            nsec: commit.time_nsec,
        }
    }

    /// Notes the first ancestor of each commit, by first parents.
    fn find_roots(&mut self) {
        for id in self.commits.keys() {
            let mut way = vec![*id];
            let mut at = *id;
            // Ids are hashes of what names the parents: no commit is its own ancestor.
            let root = loop {
                if let Some(root) = self.roots.get(&at) {
                    break *root;
                }
                let parent = self.commits.get(&at).and_then(|c| c.parents.first());
                match parent.filter(|up| self.commits.contains_key(up)) {
                    Some(up) => at = *up,
                    None => break at,
                }
                way.push(at);
            };
            self.roots.extend(way.into_iter().map(|id| (id, root)));
        }
    }

    fn root_of(&self, id: &CommitId) -> CommitId {
        self.roots.get(id).copied().unwrap_or(*id)
    }

    fn roots_of<'a>(&self, ids: impl Iterator<Item = &'a CommitId>) -> HashSet<CommitId> {
        let there = ids.filter(|id| self.commits.contains_key(id));
        there.map(|id| self.root_of(id)).collect()
    }

    /// True where a commit is of this workspace, and no other branch has it.
    fn is_nobodys(&self, id: &CommitId, roots: &HashSet<CommitId>) -> bool {
        let known = self.siblings.iter().any(|s| s.knows.contains(id));
        !known && !self.foreign.contains(id) && roots.contains(&self.root_of(id))
    }

    /// True where a commit can be no other branch's.
    fn is_certain(&self, id: &CommitId, roots: &HashSet<CommitId>) -> bool {
        let Some(commit) = self.commits.get(id) else {
            return false;
        };
        if self.foreign.contains(id) || !roots.contains(&self.root_of(id)) {
            return false;
        }
        let time = Search::time_of(commit);
        let mut knowing = self.siblings.iter().filter(|s| s.knows.contains(id));
        if self.siblings.iter().any(|s| s.knows.contains(id)) {
            // What a branch began with was there before it.
            return match self.is_main {
                true => knowing.any(|s| time <= s.created),
                false => time <= self.created,
            };
        }
        let asked = commit.kind != CommitKind::Automatic;
        if !self.is_main && time < self.created {
            // Of the time in which there was `main` alone, of which all others were made.
            let branches = self.siblings.iter().filter(|s| !s.is_main);
            return branches.into_iter().all(|s| s.created > time);
        }
        let others = self
            .siblings
            .iter()
            .filter(|s| s.is_main || s.created <= time);
        others.into_iter().all(|s| s.whole && asked)
    }

    /// Commits and all before them, each after its parents.
    fn with_ancestors(&self, mut work: Vec<CommitId>) -> Vec<(CommitId, Commit)> {
        let mut found = BTreeMap::new();
        let mut seen = HashSet::new();
        while let Some(id) = work.pop() {
            if let Some(commit) = self.commits.get(&id).filter(|_| seen.insert(id)) {
                work.extend(&commit.parents);
                let time = (commit.time_sec, commit.time_nsec);
                found.insert((time, id), (id, commit.clone()));
            }
        }
        parents_first(found.into_values().collect())
    }

    fn labels(&self, of: &HashSet<CommitId>) -> Vec<(String, CommitId)> {
        let mut labels = Vec::new();
        for sibling in &self.siblings {
            for (label, state) in &sibling.history.labels {
                let id = sibling.history.id_of(*state).filter(|id| of.contains(id));
                // What the sibling labelled itself is its own affair.
                let before = |id: &CommitId| {
                    let time = self.commits.get(id).map(Search::time_of);
                    sibling.is_main || time.is_some_and(|t| t <= sibling.created)
                };
                let taken = labels.iter().any(|(l, _)| l == label);
                labels.extend(
                    id.filter(|id| !taken && before(id))
                        .map(|id| (label.clone(), id)),
                );
            }
        }
        labels
    }

    fn counters(&self) -> Option<Counters> {
        let all = self.siblings.iter().map(|s| s.counters);
        all.reduce(|a, b| Counters {
            nid: a.nid.max(b.nid),
            ino: a.ino.max(b.ino),
            state: a.state.max(b.state),
        })
    }
}

/// In the order of their times, but for those whose parents have a later one.
fn parents_first(sorted: Vec<(CommitId, Commit)>) -> Vec<(CommitId, Commit)> {
    let all: HashSet<CommitId> = sorted.iter().map(|(id, _)| *id).collect();
    let mut done = HashSet::new();
    let mut out = Vec::with_capacity(sorted.len());
    let mut waiting = sorted;
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        for (id, commit) in waiting {
            let ready = |p: &CommitId| done.contains(p) || !all.contains(p);
            match commit.parents.iter().all(ready) {
                true => {
                    done.insert(id);
                    out.push((id, commit));
                }
                false => later.push((id, commit)),
            }
        }
        waiting = later;
        if waiting.len() == before {
            break;
        }
    }
    out
}
