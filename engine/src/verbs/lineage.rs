//! Ancestors that a branch has from other branches.
//!
//! A merge, a rollback to another branch's commit, or a branch made of one refers to that commit, and so to
//! its ancestors. The branch takes them over as states of its own, with their labels, so that they can be
//! named and are kept as long as its own are, whatever becomes of the other branch. What was left out (by an
//! earlier version, or beyond the number of ancestors that a new branch begins with) is taken over when the
//! other branch is deleted. Invariant: a label that the branch has already stays where it is.
//!
//! Tests: `engine/tests/branches/lineage.rs`.

use crate::book::history::History;
use crate::book::states::State;
use crate::branch::states::Target;
use crate::branch::{Branch, Inner};
use crate::error::Result;
use crate::record::{Event, OpKind, StateInfo};
use crate::types::Time;
use crate::verbs::branches;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, CommitKind, Kind};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A commit that another branch has.
struct Ancestor {
    /// What is known of it there.
    info: StateInfo,
    id: CommitId,
    parents: Vec<CommitId>,
}

/// Ancestors of some commits, and the labels that they have there, the newest last.
#[derive(Default)]
struct Lineage {
    ancestors: Vec<Ancestor>,
    labels: Vec<(String, CommitId)>,
}

impl History {
    /// States that are, or were, the head.
    pub(crate) fn heads(&self) -> HashSet<u64> {
        let parents = self
            .states
            .own()
            .filter_map(|s| s.info.parents.first().copied());
        let turns = self.undo.iter().chain(&self.redo).map(|t| t.head);
        parents.chain(turns).chain([self.head]).collect()
    }

    /// All states, the newest first: this branch's own as they were made, those of others by their time
    /// between them.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &State> {
        let mut foreign: Vec<&State> = self.states.foreign().collect();
        foreign.sort_by_key(|s| std::cmp::Reverse((s.info.time, s.info.number)));
        let mut foreign = foreign.into_iter().peekable();
        // A page of a long history needs no more of these than it shows.
        let mut own = self.states.own().rev().peekable();
        std::iter::from_fn(move || match (foreign.peek(), own.peek()) {
            (Some(theirs), Some(ours)) if theirs.info.time <= ours.info.time => own.next(),
            (Some(_), _) => foreign.next(),
            (None, _) => own.next(),
        })
    }

    /// Commits of this branch, and those of others that it was set to or merged with, with their ancestors.
    fn line(&self) -> HashSet<CommitId> {
        let own = self.states.own().map(|s| s.info.number);
        let own = own.chain(self.heads());
        let line = self.with_ancestors(own.collect());
        line.into_iter().filter_map(|n| self.id_of(n)).collect()
    }

    /// These states and their ancestors, as far as they are known.
    fn with_ancestors(&self, mut work: BTreeSet<u64>) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        while let Some(number) = work.pop_last() {
            if let Some(state) = self.states.get(&number)
                && found.insert(number)
            {
                work.extend(&state.info.parents);
            }
        }
        found
    }

    /// For each commit that has an id, how many of its parents are known; of this branch's own, all are.
    fn known_parents(&self) -> HashMap<CommitId, usize> {
        let parents = |s: &State| match is_foreign(s) {
            true => s.info.parents.len(),
            false => usize::MAX,
        };
        let named = self.states.values();
        named
            .filter_map(|s| Some((s.info.id?, parents(s))))
            .collect()
    }

    /// The same, where what a branch began with may have parents that are not known: it came from elsewhere.
    fn known_parents_from_elsewhere(&self) -> HashMap<CommitId, usize> {
        let mut known = self.known_parents();
        let begins = self.states.values();
        let begins = begins.filter(|s| s.info.kind == OpKind::Start);
        known.extend(begins.filter_map(|s| Some((s.info.id?, s.info.parents.len()))));
        known
    }

    /// What a branch that has these commits takes over; `known` is what it has already.
    fn lineage(&self, of: &HashSet<CommitId>, known: &HashMap<CommitId, usize>) -> Lineage {
        let is_stored = |s: &State| self.states.is_stored(s.info.number);
        let id = |s: &State| s.info.id.filter(|_| is_stored(s));
        let tips = self.states.values();
        let tips = tips.filter(|s| id(s).is_some_and(|id| of.contains(&id)));
        let line = self.with_ancestors(tips.map(|s| s.info.number).collect());
        let states = line.iter().filter_map(|n| self.states.get(n));
        let ancestors = states.filter_map(|s| {
            let id = id(s)?;
            let parents = s.info.parents.iter().filter_map(|p| self.id_of(*p));
            let parents: Vec<CommitId> = parents.collect();
            let is_new = known.get(&id).is_none_or(|n| *n < parents.len());
            is_new.then(|| Ancestor {
                info: s.info.clone(),
                id,
                parents,
            })
        });
        let ancestors = parents_first(ancestors.collect());
        let labels = self.labels.iter().filter(|(_, n)| line.contains(n));
        let labels = labels.filter_map(|(label, n)| Some((label.clone(), self.id_of(*n)?)));
        Lineage {
            ancestors,
            labels: labels.collect(),
        }
    }

    /// A label that the state has from another branch: older than all labels of this one. False where the
    /// label names something here.
    pub(crate) fn inherit_label(&mut self, label: String, state: u64) -> bool {
        let is_free = self.labelled(&label).is_none();
        if is_free {
            self.labels.insert(0, (label, state));
        }
        is_free
    }
}

fn is_foreign(state: &State) -> bool {
    state.info.kind == OpKind::Foreign
}

/// Each behind its parents. Numbers do not say that: what a branch takes over of a commit that it knows already has
/// higher ones than that.
fn parents_first(ancestors: Vec<Ancestor>) -> Vec<Ancestor> {
    let mut work: Vec<(CommitId, bool)> = ancestors.iter().rev().map(|a| (a.id, false)).collect();
    let all = ancestors.into_iter().map(|a| (a.id, a));
    let mut left: HashMap<CommitId, Ancestor> = all.collect();
    let (mut met, mut sorted) = (HashSet::new(), Vec::new());
    while let Some((id, parents_done)) = work.pop() {
        if parents_done {
            sorted.extend(left.remove(&id));
        } else if let Some(one) = left.get(&id).filter(|_| met.insert(id)) {
            work.push((id, true));
            work.extend(one.parents.iter().map(|parent| (*parent, false)));
        }
    }
    sorted
}

/// Makes the ancestors states of this branch; true where something was new. Parents come first, so that
/// whatever fails, no state refers to a number that is given to another one later.
fn take_ancestors(branch: &Branch, lineage: Lineage) -> Result<bool> {
    let mut inner = branch.lock_synced()?;
    let states = inner.book.history.states.values();
    let mut numbers: HashMap<CommitId, u64> = states
        .filter_map(|s| Some((s.info.id?, s.info.number)))
        .collect();
    let mut changed = !lineage.ancestors.is_empty();
    for Ancestor { info, id, parents } in lineage.ancestors {
        let known = numbers.get(&id).copied();
        let was_asked = known.and_then(|n| inner.book.history.states.get(&n));
        let was_asked = was_asked.is_some_and(|s| s.info.asked);
        let number = known.unwrap_or(inner.book.counters.state);
        let info = StateInfo {
            number,
            kind: OpKind::Foreign,
            asked: was_asked || info.asked || !info.kind.is_automatic(),
            parents: parents
                .iter()
                .filter_map(|p| numbers.get(p).copied())
                .collect(),
            id: Some(id),
            ..info
        };
        branch.carry_out(&mut inner, Event::Known { info }, &[])?;
        numbers.insert(id, number);
    }
    // Each goes before those that are there, so the newest comes first.
    for (label, id) in lineage.labels.into_iter().rev() {
        changed |= inherit_label(branch, &mut inner, label, numbers.get(&id).copied())?;
    }
    Ok(changed)
}

fn inherit_label(
    branch: &Branch,
    inner: &mut Inner,
    label: String,
    state: Option<u64>,
) -> Result<bool> {
    let Some(state) = state.filter(|_| inner.book.history.labelled(&label).is_none()) else {
        return Ok(false);
    };
    branch.carry_out(inner, Event::Inherited { label, state }, &[])?;
    Ok(true)
}

/// Has `to` take over the ancestors that a commit of `from` has, or without one those of all commits that
/// both have. Durable after `Ok`.
pub(crate) fn take_over_line(
    ws: &Workspace,
    to: &Branch,
    from: &Branch,
    of: Option<CommitId>,
) -> Result<()> {
    let _pin = from.places.store.pin();
    // What is taken over holds entries of the other timeline.
    from.sync()?;
    let (of, known) = {
        let inner = to.lock();
        let of = of.map_or_else(|| inner.book.history.line(), |id| HashSet::from([id]));
        (of, inner.book.history.known_parents())
    };
    let lineage = from.lock().book.history.lineage(&of, &known);
    if take_ancestors(to, lineage)? {
        to.sync()?;
        branches::snapshots_changed(ws, to);
    }
    Ok(())
}

/// Has `to` take over a commit that is in the store, its ancestors there, and labels of them.
pub(crate) fn take_over_stored(
    ws: &Workspace,
    to: &Branch,
    of: CommitId,
    labels: Vec<(String, CommitId)>,
) -> Result<()> {
    let store = &to.places.store;
    let _pin = store.pin();
    let known = to.lock().book.history.known_parents_from_elsewhere();
    let mut ancestors: HashMap<CommitId, Ancestor> = HashMap::new();
    let mut work: Vec<CommitId> = labels.iter().map(|(_, id)| *id).chain([of]).collect();
    while let Some(id) = work.pop() {
        let is_known = known.get(&id).is_some_and(|parents| *parents == usize::MAX);
        if is_known || ancestors.contains_key(&id) || !store.contains(Kind::Commit, id.as_bytes()) {
            continue;
        }
        let commit: Commit = store.get_object(&id)?;
        if known
            .get(&id)
            .is_none_or(|parents| *parents < commit.parents.len())
        {
            work.extend(&commit.parents);
            ancestors.insert(id, of_commit(id, commit));
        }
    }
    let lineage = Lineage {
        ancestors: parents_first(ancestors.into_values().collect()),
        labels,
    };
    if take_ancestors(to, lineage)? {
        to.sync()?;
        branches::snapshots_changed(ws, to);
    }
    Ok(())
}

fn of_commit(id: CommitId, commit: Commit) -> Ancestor {
    Ancestor {
        info: StateInfo {
            number: 0,
            kind: OpKind::Foreign,
            asked: commit.kind != CommitKind::Automatic,
            time: Time {
                sec: commit.time_sec,
                nsec: commit.time_nsec,
            },
            author: commit.author,
            message: commit.message,
            meta: commit.meta,
            parents: Vec::new(),
            id: Some(id),
        },
        id,
        parents: commit.parents,
    }
}

/// The same, where what refers to the commit was done already: what fails is made up for when `from` is
/// deleted.
pub(crate) fn take_over_line_of(ws: &Workspace, to: &Branch, from: &Branch, of: CommitId) {
    if let Err(e) = take_over_line(ws, to, from, Some(of)) {
        let (to, from) = (to.name(), from.name());
        tracing::warn!("{to} does not know all ancestors that it has from {from} yet: {e}");
    }
}

/// The same for what `target` names in another branch, once `to` shows it.
pub(crate) fn take_over_target(ws: &Workspace, to: &Branch, target: &Target, of: Option<CommitId>) {
    let Target::Ref(text) = target else { return };
    let Some((name, _)) = text.split_once(':').filter(|(name, _)| *name != to.name()) else {
        return;
    };
    // Deleted meanwhile: then that has been seen to.
    if let (Ok(from), Some(of)) = (ws.branch(name), of) {
        take_over_line_of(ws, to, &from, of);
    }
}
