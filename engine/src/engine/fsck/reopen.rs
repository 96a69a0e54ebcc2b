//! Opening a branch again whose state is damaged, at its newest commit that can be read.
//!
//! Invariants: a state that can be read is never replaced; what is replaced is in `damaged/` before,
//! durably; until the moment in which the new state counts all is as it was. What a journal has behind the
//! state that is shown again is kept there, and not guessed at ([`crate::branch::left`]).

use crate::book::states::State;
use crate::book::timeline::rebuild::heads;
use crate::book::timeline::rebuild::rebuilt;
use crate::branch::inspect::{left_of, state_file};
use crate::branch::left::Remains;
use crate::branch::outcomes::OutcomesRecord;
use crate::branch::state_file::{StateFile, StateHead, StateMore};
use crate::branch::tree_file::Trees;
use crate::engine::Engine;
use crate::engine::fsck::repair;
use crate::engine::fsck::strays;
use crate::engine::gc;
use crate::error::{Error, Result};
use crate::journal::{Journal, JournalConfig, Needed};
use crate::record::{Counters, OpKind, StateInfo};
use crate::stored::load::stored_tree;
use crate::stored::store::Reference;
use crate::tree::patch::BaseDirs;
use crate::types::Time;
use crate::workspace::branch_refs::trees_dir;
use objstore::{Commit, CommitId, CommitKind};
use std::collections::HashMap;
use std::fmt;

/// Where a branch is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reopen {
    /// Its workspace.
    pub workspace: String,
    /// Its name.
    pub branch: String,
    /// Its directory.
    pub dir: String,
    /// The commit.
    pub commit: CommitId,
    /// A label of it, else what was said about it.
    pub called: String,
    /// When it was made.
    pub time: Time,
    /// What is shown is not the commit itself, but what was stored last, after it.
    pub after: bool,
    /// How much was changed after that, in no commit; `None` where that is not known.
    pub changes: Option<u64>,
    /// Labels and steps of undo are all there.
    pub whole_history: bool,
    /// Entries of the timeline that are nowhere any more.
    pub entries_lost: u64,
}

impl fmt::Display for Reopen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (branch, workspace) = (&self.branch, &self.workspace);
        write!(f, "reopen branch {branch} of {workspace} ")?;
        if self.after {
            write!(
                f,
                "in its last stored state, after commit {} (",
                self.commit
            )?;
        } else {
            write!(f, "at commit {} (", self.commit)?;
        }
        if !self.called.is_empty() {
            write!(f, "{:?}, ", self.called)?;
        }
        write!(f, "{})", utc(self.time))?;
        match self.changes {
            Some(0) => write!(f, "; nothing was changed after it")?,
            Some(n) => write!(
                f,
                "; later changes that are in no commit ({n} records of its journal) are kept in damaged/ but not shown"
            )?,
            None => write!(
                f,
                "; later changes that are in no commit are kept in damaged/, as far as they can be read, but not shown"
            )?,
        }
        if !self.whole_history {
            write!(
                f,
                "; its log has the commits that were found, without labels and undo steps that are recorded nowhere else"
            )?;
        }
        match self.entries_lost {
            0 => Ok(()),
            1 => write!(f, "; 1 entry of its timeline is lost"),
            n => write!(f, "; {n} entries of its timeline are lost"),
        }
    }
}

/// A time as people read it (RFC 3339), without fractions; one that no calendar has as its seconds.
fn utc(time: Time) -> String {
    let sec = time.sec;
    match jiff::Timestamp::from_second(sec) {
        Ok(moment) => moment.to_string(),
        Err(_) => format!("{sec} s after 1970"),
    }
}

/// Everything of the state that a branch is opened again with.
pub(super) struct Best {
    pub step: Reopen,
    head: StateHead,
    more: StateMore,
    shown: Reference,
}

/// The newest that can be shown again.
struct Newest {
    /// State that it is, or that came before it.
    state: u64,
    /// It is something later.
    after: bool,
    /// Changes in the journal before it was shown, where that is known.
    before: Option<u64>,
    tree: Reference,
}

/// Carries out a [`Reopen`].
pub(super) fn reopen(engine: &Engine, step: &Reopen) -> Result<()> {
    let (workspace, dir) = (&step.workspace, &step.dir);
    let trees = Trees::open(engine.storage.clone(), trees_dir(workspace))?.at_once();
    let place = dir.rsplit('/').next().unwrap_or_default();
    let file = StateFile {
        branch: place.parse().unwrap_or(0),
        ..state_file(&*engine.storage, &trees, dir)
    };
    if let Ok(Some(_)) = file.read(&mut BaseDirs::default()) {
        return Ok(());
    }
    let best = best(engine, workspace, &step.branch, dir, Some(step.commit))?;
    let planned = |best: &Best| (best.step.commit, best.step.after) == (step.commit, step.after);
    let Some(mut best) = best.filter(planned) else {
        return Err(Error::Damaged {
            what: dir.clone(),
            why: "what can be read of it changed after the check".into(),
        });
    };
    set_branch_aside(engine, &file)?;
    reserve_trees(engine, workspace, &trees)?;
    best.head.next_seq = usable_journal(engine, &file)?;
    file.write_over(best.head, &best.more, &best.shown.tree)
}

/// Keeps off the tree files that states name, also where they are gone: another branch's state must not
/// come to stand on this one's tree.
pub(super) fn reserve_trees(engine: &Engine, workspace: &str, trees: &Trees) -> Result<()> {
    for (_, dir) in gc::branch_dirs(engine, workspace)? {
        let file = state_file(&*engine.storage, trees, &dir);
        let heads = file.numbers()?.into_iter();
        let heads = heads.filter_map(|n| file.left(n).head);
        heads.for_each(|head| trees.reserve(head.tree_file));
    }
    Ok(())
}

/// Copies all files of a branch, and the tree files that its journal may be about.
fn set_branch_aside(engine: &Engine, file: &StateFile<'_>) -> Result<()> {
    repair::set_aside_if_there(engine, &file.pointer())?;
    let numbers = file.numbers()?;
    let current = file.current().ok().flatten().or(numbers.last().copied());
    for number in numbers {
        repair::set_aside_if_there(engine, &file.path(number))?;
    }
    let head = current.and_then(|n| file.left(n).head);
    let of_tree = match head {
        Some(head) => vec![head.tree_file],
        None => file.trees.numbers()?,
    };
    for number in of_tree {
        repair::set_aside_if_there(engine, &file.trees.path(number))?;
    }
    let journal = format!("{}/journal", file.dir);
    for name in engine.storage.list(&journal).map_err(Error::io(&journal))? {
        repair::set_aside(engine, &format!("{journal}/{name}"))?;
    }
    Ok(())
}

/// Sees to it that the journal of a branch can be opened; returns the number of its next record.
fn usable_journal(engine: &Engine, file: &StateFile<'_>) -> Result<u64> {
    let dir = format!("{}/journal", file.dir);
    let (storage, boot) = (&*engine.storage, engine.boot);
    let next = || match Journal::inspect_left(storage, &dir, boot, &mut |_| Ok(())) {
        Ok((report, true)) => Some(report.last_seq + 1),
        _ => None,
    };
    if let Some(seq) = next() {
        return Ok(seq);
    }
    // Set aside before; what other branches show of it is in its payloads, which stay.
    if Journal::repair(storage, &dir, Needed::default(), file.branch, boot).is_ok()
        && let Some(seq) = next()
    {
        return Ok(seq);
    }
    storage.remove_dir_all(&dir).map_err(Error::io(&dir))?;
    let config = JournalConfig {
        boot,
        number: file.branch,
        ..JournalConfig::default()
    };
    Ok(Journal::create(engine.storage.clone(), &dir, config)?.last_seq() + 1)
}

/// The newest of what a branch showed that can be shown again as a whole. A `planned` commit is the
/// branch's: what was found in favour of it may have been repaired since.
pub(super) fn best(
    engine: &Engine,
    workspace: &str,
    branch: &str,
    dir: &str,
    planned: Option<CommitId>,
) -> Result<Option<Best>> {
    let trees = gc::look_at_trees(engine, workspace);
    let mut left = left_of(&*engine.storage, &trees, dir, engine.boot);
    left.keep_commits(&engine.store);
    if !left.has_head {
        add_strays(engine, &mut left, workspace, branch, planned)?;
    }
    let Some(newest) = newest_shown(engine, &mut left, planned) else {
        return Ok(None);
    };
    let number = newest.state;
    let history = &mut left.inner.book.history;
    if !history.states.contains_key(&history.head) {
        history.head = head_for(history.states.get(&number), number);
        history.conflicts.clear();
    }
    // What is shown must not expire.
    history.states.set_asked(number);
    let entries_lost = mend_timeline(engine, &mut left, workspace)?;
    let state = left.inner.book.history.state(number)?;
    let Some(commit) = state.info.id else {
        return Ok(None);
    };
    let label = left.inner.book.history.labels_of(number).into_iter().next();
    let step = Reopen {
        workspace: workspace.to_owned(),
        branch: branch.to_owned(),
        dir: dir.to_owned(),
        commit,
        called: label.unwrap_or_else(|| state.info.message.clone()),
        time: state.info.time,
        after: newest.after,
        changes: newest
            .before
            .filter(|_| left.journal_whole)
            .map(|n| left.changes - n),
        whole_history: left.has_head,
        entries_lost,
    };
    Ok(Some(best_of(step, left, (newest.state, newest.tree))))
}

fn newest_shown(engine: &Engine, left: &mut Remains, planned: Option<CommitId>) -> Option<Newest> {
    if let Some(id) = planned.filter(|_| !left.has_head) {
        let mut states = left.inner.book.history.states.values();
        let number = states.find(|s| s.info.id == Some(id))?.info.number;
        let mut shown = left.shown.iter().rev();
        let before = shown.find(|s| s.state == number).map(|s| s.changes);
        return commit_tree(engine, left, number, before);
    }
    for shown in left.shown.clone().into_iter().rev() {
        let found = commit_tree(engine, left, shown.state, Some(shown.changes));
        if found.is_some() {
            return found;
        }
    }
    if let Some(found) = sealed_tree(engine, left) {
        return Some(found);
    }
    let own = left.inner.book.history.states.values();
    let own = own.filter(|s| s.info.kind != OpKind::Foreign);
    let numbers: Vec<u64> = own.map(|s| s.info.number).collect();
    let mut newest = numbers.into_iter().rev();
    newest.find_map(|n| commit_tree(engine, left, n, None))
}

fn commit_of_state(engine: &Engine, state: &State) -> Option<Commit> {
    engine.store.get_object(&state.info.id?).ok()
}

/// A state that is a commit; `before` are the changes before it was shown, where that is known.
fn commit_tree(
    engine: &Engine,
    left: &mut Remains,
    state: u64,
    before: Option<u64>,
) -> Option<Newest> {
    let commit = commit_of_state(engine, left.inner.book.history.states.get(&state)?)?;
    let tree = tree_of_commit(engine, &commit, commit.root, &mut left.inner.book.counters)?;
    let tree = tree.with_kv(&engine.store, commit.kv).ok()?;
    Some(Newest {
        state,
        after: false,
        before,
        tree,
    })
}

fn tree_of_commit(
    engine: &Engine,
    commit: &Commit,
    root: Option<objstore::TreeId>,
    counters: &mut Counters,
) -> Option<Reference> {
    let time = Time {
        sec: commit.time_sec,
        nsec: commit.time_nsec,
    };
    stored_tree(&engine.store, root, &commit.root_meta, counters, time).ok()
}

/// What the state file shows, by the objects under which it was stored. Attributes of the root
/// directory are those of a commit of it, or of the newest one.
fn sealed_tree(engine: &Engine, left: &mut Remains) -> Option<Newest> {
    let (root, kv) = left.sealed?;
    let own = left.inner.book.history.states.values().rev();
    let own = own.filter(|s| s.info.kind != OpKind::Foreign);
    let commits: Vec<(u64, Commit)> = own
        .filter_map(|s| Some((s.info.number, commit_of_state(engine, s)?)))
        .collect();
    let is_this = |c: &Commit| c.root == root && kv.is_none_or(|kv| c.kv == kv);
    let same = commits.iter().find(|(_, c)| is_this(c));
    let (number, commit) = same.or(commits.first())?;
    let tree = tree_of_commit(engine, commit, root, &mut left.inner.book.counters)?;
    let wanted = tree.clone().with_kv(&engine.store, kv.unwrap_or(commit.kv));
    let tree = match wanted {
        Ok(tree) => tree,
        // Keys that cannot be read are those of a commit.
        Err(_) => commits
            .iter()
            .find_map(|(_, c)| tree.clone().with_kv(&engine.store, c.kv).ok())?,
    };
    Some(Newest {
        state: *number,
        after: same.is_none(),
        before: Some(0),
        tree,
    })
}

/// Makes the timeline whole as far as it is found; returns how many entries are not.
fn mend_timeline(engine: &Engine, left: &mut Remains, workspace: &str) -> Result<u64> {
    let states = left.inner.book.history.states.values();
    let own = states.filter(|s| s.info.kind != OpKind::Foreign);
    let commits = own.filter_map(|s| commit_of_state(engine, s));
    let heads = heads(commits.filter_map(|c| c.timeline));
    let said = heads.last_key_value().map_or(0, |(n, _)| *n);
    if left.has_timeline && left.inner.book.timeline.entries >= said {
        return Ok(0);
    }
    left.logs.extend(strays::timelines(engine, workspace)?);
    let (timeline, lost) = rebuilt(&engine.store, &left.logs, &heads);
    left.inner.book.timeline = timeline;
    let history = &left.inner.book.history;
    let mentioned = left.inner.book.timeline.mentioned();
    let gone = mentioned.filter(|n| !history.states.contains_key(n));
    let gone: Vec<u64> = gone.collect();
    left.inner.book.timeline.expired(&gone);
    Ok(lost)
}

/// Gives a branch without a history the states that its commits tell.
fn add_strays(
    engine: &Engine,
    left: &mut Remains,
    workspace: &str,
    branch: &str,
    planned: Option<CommitId>,
) -> Result<()> {
    let states = left.inner.book.history.states.values();
    let own = states.filter_map(|s| s.info.id).chain(planned).collect();
    let strays = strays::strays(engine, workspace, branch, &own)?;
    if let Some(c) = strays.counters {
        let counters = &mut left.inner.book.counters;
        counters.nid = counters.nid.max(c.nid);
        counters.ino = counters.ino.max(c.ino);
        counters.state = counters.state.max(c.state);
    }
    let last = left
        .logs
        .iter()
        .filter_map(|log| log.mentioned().max())
        .max();
    let first = left.inner.book.counters.state.max(last.unwrap_or(0) + 1);
    let mut old: HashMap<CommitId, StateInfo> = HashMap::new();
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    let mut by_id: HashMap<CommitId, u64> = HashMap::new();
    for info in std::mem::take(&mut left.inner.book.history.states).into_infos() {
        old.extend(info.id.map(|id| (id, info)));
    }
    for ((id, commit), number) in strays.commits.into_iter().zip(first..) {
        let parents = commit.parents.iter().filter_map(|p| by_id.get(p).copied());
        let mut info = info_of(number, id, &commit, parents.collect());
        if let Some(known) = old.get(&id) {
            (info.kind, info.asked) = (known.kind, known.asked);
            numbers.insert(known.number, number);
        } else if !strays.certain.contains(&id) {
            (info.kind, info.asked) = (OpKind::Foreign, false);
        }
        by_id.insert(id, number);
        left.inner.book.history.know(info);
        left.inner.book.counters.state = number + 1;
    }
    left.renumber(&numbers);
    for (label, id) in strays.labels {
        if let Some(number) = by_id.get(&id)
            && left.inner.book.history.labelled(&label).is_none()
        {
            left.inner.book.history.label(label, *number);
        }
    }
    Ok(())
}

/// State that was made or chosen last where `number` is shown.
fn head_for(state: Option<&State>, number: u64) -> u64 {
    let automatic = state.filter(|s| s.info.kind.is_automatic());
    let before = automatic.and_then(|s| s.info.parents.first().copied());
    before.unwrap_or(number)
}

fn info_of(number: u64, id: CommitId, commit: &Commit, parents: Vec<u64>) -> StateInfo {
    let kind = match commit.kind {
        CommitKind::Start => OpKind::Start,
        CommitKind::Asked => OpKind::Checkpoint,
        CommitKind::Automatic => OpKind::Auto,
    };
    StateInfo {
        number,
        kind,
        asked: !kind.is_automatic(),
        time: Time {
            sec: commit.time_sec,
            nsec: commit.time_nsec,
        },
        author: commit.author.clone(),
        message: commit.message.clone(),
        meta: commit.meta.clone(),
        parents,
        id: Some(id),
    }
}

/// `state` is what the tree is, or what came before it.
fn best_of(step: Reopen, left: Remains, (state, shown): (u64, Reference)) -> Best {
    let inner = left.inner;
    let mut counters = inner.book.counters;
    let mut group = 0;
    shown
        .tree
        .for_each(&mut |_, i| group = group.max(i.group()));
    counters.ino = counters.ino.max(group.saturating_add(1));
    let head = StateHead {
        next_seq: 1,
        counters,
        history: inner.book.history.to_record(),
        root: Some(shown.root),
        base_changed: inner.book.base_changed.into_iter().collect(),
        unreadable: inner.book.unreadable.into_iter().collect(),
        tree_file: 0,
        patched: 0,
    };
    let more = StateMore {
        kv: shown.kv,
        timeline: inner.book.timeline,
        later: inner.book.history.later,
        outcomes: OutcomesRecord::default(),
        shown: Some(state),
    };
    Best {
        step,
        head,
        more,
        shown,
    }
}
