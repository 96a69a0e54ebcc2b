//! How branches stand to each other: which one each was made of, and how far apart the two are by now.
//!
//! It is found in their histories, so a branch whose origin was deleted counts as made of `main`. Invariant: a branch is
//! made of an older one, so the branches are a tree whose root is `main`. No two branches are locked at a time.

use crate::book::digits::UniqueDigits;
use crate::book::history::History;
use crate::book::states::State;
use crate::branch::Branch;
use crate::error::Result;
use crate::record::OpKind;
use crate::types::{NodeId, Time};
use crate::workspace::Workspace;
use objstore::CommitId;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// How a branch stands to the one that it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Name of the branch.
    pub name: String,
    /// Name of the one that it was made of; `None` for `main`.
    pub made_of: Option<String>,
    /// Commits that somebody asked for, that it has and the other has not.
    pub ahead: u64,
    /// Commits that the other has and it has not.
    pub behind: u64,
    /// When its newest state was made.
    pub changed: Time,
    /// Conflicts of its last merge that are not resolved.
    pub conflicts: u64,
    /// Digits by which its head can be named.
    pub digits: u32,
}

/// What of a branch is looked at before it is compared with another.
struct Summary {
    branch: Arc<Branch>,
    created: Time,
    /// The commit with which it began.
    began_with: Option<CommitId>,
    standing: Standing,
}

/// How many digits name each of these commits of a branch.
pub fn unique_digits(
    ws: &Workspace,
    branch: &str,
    wanted: impl Iterator<Item = CommitId>,
) -> Result<UniqueDigits> {
    let branch = ws.branch(branch)?;
    let inner = branch.lock();
    let states = &inner.book.history.states;
    let digits = wanted.map(|id| (id, states.digits_of(&id)));
    Ok(UniqueDigits::of_these(digits))
}

/// How all branches stand, `main` first.
pub fn branch_standings(ws: &Workspace) -> Vec<Standing> {
    let created = ws.views.created();
    let summary = |branch| summary(branch, &created);
    let mut all: Vec<Summary> = ws.views.branches().into_iter().map(summary).collect();
    let owners = owners(&all);
    let origins: Vec<Option<usize>> = (0..all.len())
        .map(|at| origin_of(at, &all, &owners))
        .collect();
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    for (at, origin) in origins.into_iter().enumerate() {
        let Some(origin) = origin else { continue };
        let theirs = lines
            .entry(origin)
            .or_insert_with(|| Line::of(&all[origin].branch));
        let Beyond { count: ahead, met } = beyond(&all[at].branch, |id| theirs.has(id));
        let behind = theirs.newer_than(&met).unwrap_or_else(|| {
            let own = Line::of(&all[at].branch);
            beyond(&all[origin].branch, |id| own.has(id)).count
        });
        let made_of = all[origin].standing.name.clone();
        let standing = &mut all[at].standing;
        (standing.ahead, standing.behind) = (ahead, behind);
        standing.made_of = Some(made_of);
    }
    all.into_iter().map(|summary| summary.standing).collect()
}

/// Looks at a branch.
fn summary(branch: Arc<Branch>, created: &BTreeMap<u16, Time>) -> Summary {
    let created = created.get(&branch.slot).copied().unwrap_or_default();
    let inner = branch.lock();
    let history = &inner.book.history;
    let last = history.states.own().next_back();
    let first_parent = first_after(history, &branch, created)
        .and_then(|first| history.id_of(*first.info.parents.first()?));
    let head = history.id_of(history.head);
    let standing = Standing {
        name: branch.name(),
        made_of: None,
        ahead: 0,
        behind: 0,
        changed: last.map_or(created, |s| s.info.time).max(created),
        conflicts: history.conflicts.len() as u64,
        digits: head.map_or(0, |id| history.states.digits_of(&id)),
    };
    drop(inner);
    Summary {
        branch,
        created,
        began_with: first_parent.or(head),
        standing,
    }
}

/// The first state that a branch made since it was created; those before are of the branch that it was made of.
fn first_after<'h>(history: &'h History, branch: &Branch, created: Time) -> Option<&'h State> {
    if branch.slot == NodeId::ROOT.slot() {
        return None;
    }
    let newest_first = history.states.own().rev();
    newest_first.take_while(|s| s.info.time > created).last()
}

/// Which branch, the first of all, made each commit with which one began.
fn owners(all: &[Summary]) -> HashMap<CommitId, usize> {
    let mut wanted: HashSet<CommitId> = all.iter().filter_map(|s| s.began_with).collect();
    let mut owners = HashMap::new();
    for (at, summary) in all.iter().enumerate() {
        let inner = summary.branch.lock();
        let states = &inner.book.history.states;
        let is_own = |s: &State| s.info.kind != OpKind::Foreign;
        wanted.retain(|id| {
            let made = states.with_id(id).any(is_own);
            if made {
                owners.insert(*id, at);
            }
            !made
        });
        if wanted.is_empty() {
            break;
        }
    }
    owners
}

/// The branch that made the commit with which another began, if it is older; else `main`, of which there is none.
fn origin_of(at: usize, all: &[Summary], owners: &HashMap<CommitId, usize>) -> Option<usize> {
    if at == 0 {
        return None;
    }
    let owner = all[at].began_with.and_then(|id| owners.get(&id)).copied();
    let is_older = |owner: &usize| {
        let age = |at: usize| (all[at].created, at);
        *owner == 0 || age(*owner) < age(at)
    };
    Some(owner.filter(is_older).unwrap_or(0))
}

/// The commits from which the head of a branch descends, and the head.
#[derive(Default)]
struct Line {
    /// How many of the newer ones somebody asked for; `None` where the way to one is not a line by itself, as beside
    /// or before a merge.
    newer: HashMap<CommitId, Option<u64>>,
}

impl Line {
    fn of(branch: &Branch) -> Line {
        let mut line = Line::default();
        let (mut newer, mut is_alone) = (0, true);
        let inner = branch.lock();
        let wanted = Wanted::of(&inner.book.history);
        each_of_line(&inner.book.history, |state| {
            let newer_than_this = is_alone.then_some(newer);
            newer += u64::from(wanted.has(state));
            is_alone &= state.info.parents.len() < 2;
            let place = state
                .info
                .id
                .map(|id| line.newer.insert(id, newer_than_this));
            place.is_none_or(|known| known.is_none())
        });
        line
    }

    fn has(&self, id: &CommitId) -> bool {
        self.newer.contains_key(id)
    }

    /// How many somebody asked for that do not lead to these, where that is known without another look at all.
    fn newer_than(&self, met: &[CommitId]) -> Option<u64> {
        match met {
            [one] => self.newer.get(one).copied().flatten(),
            _ => None,
        }
    }
}

/// What of a branch's line is not known elsewhere.
#[derive(Default)]
struct Beyond {
    /// How many commits that somebody asked for.
    count: u64,
    /// The commits known elsewhere from which these go on.
    met: Vec<CommitId>,
}

fn beyond(branch: &Branch, is_known: impl Fn(&CommitId) -> bool) -> Beyond {
    let mut found = Beyond::default();
    let inner = branch.lock();
    let wanted = Wanted::of(&inner.book.history);
    each_of_line(&inner.book.history, |state| {
        if let Some(id) = state.info.id.filter(|id| is_known(id)) {
            found.met.push(id);
            return false;
        }
        found.count += u64::from(wanted.has(state));
        true
    });
    found
}

/// Tells which states of a history somebody asked for.
struct Wanted<'h> {
    history: &'h History,
    /// States with a label, looked up where it counts.
    labelled: OnceCell<HashSet<u64>>,
}

impl Wanted<'_> {
    fn of(history: &History) -> Wanted<'_> {
        let labelled = OnceCell::new();
        Wanted { history, labelled }
    }

    fn has(&self, state: &State) -> bool {
        if state.info.kind != OpKind::Foreign {
            return !state.info.kind.is_automatic() || state.info.asked;
        }
        // Whether somebody asked for it is known where it was made; nobody gives an automatic one a name.
        let labels = || {
            self.history
                .labels
                .iter()
                .map(|(_, state)| *state)
                .collect()
        };
        !state.info.message.is_empty()
            || self
                .labelled
                .get_or_init(labels)
                .contains(&state.info.number)
    }
}

/// Visits the head and, where a visit says true, the parents of the state that was visited.
fn each_of_line(history: &History, mut visit: impl FnMut(&State) -> bool) {
    let (mut work, mut seen) = (vec![history.head], HashSet::new());
    while let Some(number) = work.pop() {
        if let Some(state) = history.states.get(&number)
            && seen.insert(number)
            && visit(state)
        {
            work.extend(&state.info.parents);
        }
    }
}
