//! What users did to a branch: states, labels, head, and the way back and forward.
//!
//! A state is a frozen tree that is, or will be, a commit. Numbers ascend in time. All of it is made
//! of [`Event`]s in the journal and kept in the state file.

use crate::book::joined;
use crate::book::later::{Asked, Later};
use crate::book::states::{State, States};
use crate::error::{Error, Result};
use crate::merge::Conflict;
use crate::record::{OpKind, StateInfo, SwitchKind};
use crate::tree::Tree;
use crate::types::Time;
use objstore::{CommitId, HexPrefix};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Trees of commits that are kept in memory for a quick way back.
const KEPT_TREES_MAX: usize = 16;
/// States of its origin that a new branch knows.
const ANCESTORS_MAX: usize = 1000;

/// A place to which undo or redo goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub struct Turn {
    /// State to show.
    pub state: u64,
    /// Head to have.
    pub head: u64,
}

/// What of the history goes into the state file.
#[derive(Clone, Debug, Default, bincode::Encode, bincode::Decode)]
pub struct HistoryRecord {
    /// States, ascending.
    pub states: Vec<StateInfo>,
    /// Labels with their states, the newest last.
    pub labels: Vec<(String, u64)>,
    /// Head.
    pub head: u64,
    /// Undo, the next one last.
    pub undo: Vec<Turn>,
    /// Redo, the next one last.
    pub redo: Vec<Turn>,
    /// States that other branches were made of or merged, since the head: further parents of the next
    /// commit.
    pub branched: Vec<u64>,
    /// Conflicts of the last merge that are not settled.
    pub conflicts: Vec<Conflict>,
}

/// The history of a branch.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// States by number.
    pub states: States,
    pub(crate) labels: Vec<(String, u64)>,
    /// State that the live tree was last made into or set to because somebody asked.
    pub head: u64,
    pub(crate) undo: Vec<Turn>,
    pub(crate) redo: Vec<Turn>,
    /// What was asked for after steps of undo, the oldest first.
    pub(crate) later: Vec<Later>,
    /// State that the live tree was last made into or set to, for whatever reason, where that is known.
    pub shown: Option<u64>,
    /// States that other branches were made of or merged, since the head.
    pub(crate) branched: Vec<u64>,
    /// Conflicts of the last merge that are not settled.
    pub conflicts: Vec<Conflict>,
    /// What the last freeze changed, for taking it back.
    before_freeze: Option<Box<BeforeFreeze>>,
}

/// Labels, head and redo as they were before a state was frozen.
#[derive(Clone, Debug)]
struct BeforeFreeze {
    state: u64,
    /// The label it got, and where in the list that stood before, for which state.
    label: Option<(String, Option<(usize, u64)>)>,
    head: u64,
    redo: Vec<Turn>,
    branched: Vec<u64>,
    shown: Option<u64>,
}

impl History {
    /// The history of a state file; all its states are in the store.
    pub fn from_record(r: HistoryRecord) -> History {
        History {
            states: States::of_stored(r.states.into_iter()),
            labels: r.labels,
            head: r.head,
            undo: r.undo,
            redo: r.redo,
            later: Vec::new(),
            shown: None,
            branched: r.branched,
            conflicts: r.conflicts,
            before_freeze: None,
        }
    }

    /// For the state file.
    pub fn to_record(&self) -> HistoryRecord {
        HistoryRecord {
            states: self.states.values().map(|s| s.info.clone()).collect(),
            labels: self.labels.clone(),
            head: self.head,
            undo: self.undo.clone(),
            redo: self.redo.clone(),
            branched: self.branched.clone(),
            conflicts: self.conflicts.clone(),
        }
    }

    /// Adds a frozen state.
    pub fn freeze(&mut self, info: StateInfo, tree: Tree, head: bool, label: Option<String>) {
        let number = info.number;
        let shown = self.shown.replace(number);
        // An automatic commit is never taken back; the checkpoint before it still may be.
        if !matches!(
            info.kind,
            OpKind::Auto | OpKind::ToolCall | OpKind::Restored
        ) {
            self.before_freeze = Some(Box::new(BeforeFreeze {
                state: number,
                label: label.as_ref().map(|l| (l.clone(), self.place_of(l))),
                head: self.head,
                redo: self.redo.clone(),
                branched: self.branched.clone(),
                shown,
            }));
        }
        let checkpoint = info.kind == OpKind::Checkpoint;
        let follows_head = info.parents.first() == Some(&self.head);
        match info.kind {
            // A branch that was made of another records that one's states of before, too: they are no parents of its
            // next commit.
            OpKind::BeforeBranch | OpKind::BeforeMerge if follows_head => {
                self.branched.push(number);
            }
            OpKind::Checkpoint => self.branched.clear(),
            _ => {}
        }
        self.states.freeze(info, tree);
        if head {
            self.head = number;
        }
        if checkpoint {
            self.redo.clear();
            self.note_asked(Asked::Checkpoint {
                state: number,
                label: label.clone(),
            });
        }
        if let Some(label) = label {
            self.label(label, number);
        }
    }

    /// Adds a state that is not what is shown now, but what was shown before.
    pub fn keep(&mut self, info: StateInfo, tree: Tree) {
        self.states.freeze(info, tree);
    }

    /// The newest value of a key of metadata.
    pub fn newest_meta(&self, key: &str) -> Option<&str> {
        let metas = self.newest_first().flat_map(|state| &state.info.meta);
        let mut values = metas.filter(|(k, _)| k == key).map(|(_, value)| value);
        values.next().map(String::as_str)
    }

    fn place_of(&self, label: &str) -> Option<(usize, u64)> {
        let at = self.labels.iter().position(|(l, _)| l == label)?;
        Some((at, self.labels[at].1))
    }

    /// Whether [`History::withdraw`] would take that state back.
    pub fn can_withdraw(&self, state: u64) -> bool {
        self.states.is_pending(state)
            && self
                .before_freeze
                .as_ref()
                .is_some_and(|b| b.state == state)
    }

    /// Takes the state that was frozen last back, unless something was built on it or it is a commit
    /// already; true where it was taken back.
    pub fn withdraw(&mut self, state: u64) -> bool {
        let can = self.can_withdraw(state);
        let before = self.before_freeze.take_if(|b| b.state == state);
        let Some(before) = before.filter(|_| can) else {
            return false;
        };
        self.states.remove(state);
        self.forget_checkpoint(state);
        self.states.replace_parent(state.., state, before.head);
        (self.head, self.redo) = (before.head, before.redo);
        (self.branched, self.shown) = (before.branched, before.shown);
        if let Some((label, place)) = before.label {
            self.labels.retain(|(l, _)| *l != label);
            if let Some((at, state)) = place {
                self.labels.insert(at, (label, state));
            }
        }
        true
    }

    /// Lets a label name a state; it becomes the newest label.
    pub fn label(&mut self, label: String, state: u64) {
        self.labels.retain(|(l, _)| *l != label);
        self.labels.push((label, state));
    }

    /// State that a label names.
    pub fn labelled(&self, label: &str) -> Option<u64> {
        self.labels
            .iter()
            .find(|(l, _)| l == label)
            .map(|(_, s)| *s)
    }

    /// All labels with their states.
    pub fn labels_with_states(&self) -> Vec<(String, u64)> {
        self.labels.clone()
    }

    /// Labels of a state, the newest first.
    pub fn labels_of(&self, state: u64) -> Vec<String> {
        self.labels
            .iter()
            .rev()
            .filter(|(_, s)| *s == state)
            .map(|(l, _)| l.clone())
            .collect()
    }

    /// As [`History::labels_of`] for all states that have one.
    pub fn labels_by_state(&self) -> HashMap<u64, Vec<String>> {
        let mut found: HashMap<u64, Vec<String>> = HashMap::new();
        for (label, state) in self.labels.iter().rev() {
            found.entry(*state).or_default().push(label.clone());
        }
        found
    }

    /// As [`History::labels_of`] for these states.
    pub fn labels_of_states(&self, states: &HashSet<u64>) -> HashMap<u64, Vec<String>> {
        let mut found: HashMap<u64, Vec<String>> = HashMap::new();
        let wanted = self.labels.iter().rev();
        for (label, state) in wanted.filter(|(_, state)| states.contains(state)) {
            found.entry(*state).or_default().push(label.clone());
        }
        found
    }

    /// Notes a switch from what is now state `replaced` to state `target`, or to a mixture of both.
    pub fn switch(&mut self, kind: SwitchKind, replaced: u64, target: u64, head: u64) {
        let back = Turn {
            state: replaced,
            head: self.head,
        };
        match kind {
            SwitchKind::Rollback | SwitchKind::Merge => {
                self.undo.push(back);
                self.redo.clear();
                self.states.set_asked(target);
            }
            SwitchKind::Restore => {
                self.undo.push(back);
                self.redo.clear();
            }
            SwitchKind::Undo => {
                self.undo.pop();
                self.forget_undone();
                self.redo.push(back);
            }
            SwitchKind::Redo => {
                self.redo.pop();
                self.undo.push(back);
            }
        }
        // Paths that are taken from elsewhere, or settled, leave the conflicts of others.
        if !matches!(kind, SwitchKind::Merge | SwitchKind::Restore) {
            self.conflicts.clear();
        }
        self.branched.clear();
        self.head = head;
        self.shown = (kind != SwitchKind::Restore).then_some(target);
    }

    /// Notes that what is shown is now something else, frozen at once, instead of what is state
    /// `replaced`; the head stays.
    pub fn restored(&mut self, replaced: u64) {
        self.switch(SwitchKind::Restore, replaced, replaced, self.head);
    }

    /// The part of the history that a branch made of state `head` begins with: that state and the
    /// newest of those that it came from, with their labels, and the states `also`.
    pub fn ancestry(&self, head: u64, also: impl Iterator<Item = u64>) -> History {
        let mut found: BTreeSet<u64> = BTreeSet::new();
        let mut work: BTreeSet<u64> = also.filter(|n| self.states.contains_key(n)).collect();
        work.insert(head);
        while let Some(number) = work.pop_last() {
            if found.len() >= ANCESTORS_MAX {
                break;
            }
            let Some(state) = self.states.get(&number) else {
                continue;
            };
            work.extend(state.info.parents.iter().filter(|p| !found.contains(*p)));
            found.insert(number);
        }
        let labels = self.labels.iter().filter(|(_, n)| found.contains(n));
        History {
            labels: labels.cloned().collect(),
            states: self.states.part(found.into_iter()),
            head,
            shown: Some(head),
            ..History::default()
        }
    }

    /// Parents of the next commit: the head, then what was branched off or merged since.
    pub fn parents(&self) -> Vec<u64> {
        let more = self.branched.iter().filter(|n| **n != self.head);
        std::iter::once(self.head).chain(more.copied()).collect()
    }

    /// What was branched off or merged last, of what the next commit has as parents.
    pub fn branched_last(&self) -> Option<u64> {
        self.branched.last().copied()
    }

    /// Notes a commit that is in the store already, or more of one that is known.
    pub fn know(&mut self, info: StateInfo) {
        self.states.know(info);
    }

    /// Notes a switch from what is now state `replaced` to what a merge made, as a state of its own.
    pub fn merged(
        &mut self,
        replaced: u64,
        info: StateInfo,
        label: Option<String>,
        conflicts: Vec<Conflict>,
    ) {
        let number = info.number;
        self.know(info);
        self.switch(SwitchKind::Merge, replaced, number, number);
        self.conflicts = conflicts;
        if let Some(label) = label {
            self.label(label, number);
        }
    }

    /// Keeps the tree of a state in memory, for a quick way back.
    pub fn keep_tree(&mut self, number: u64, tree: Tree) {
        self.states.keep_tree(number, tree);
    }

    /// Lets `kept` stand for `state`, which equals it.
    pub fn merge(&mut self, state: u64, kept: u64) {
        self.states.remove(state);
        let turns = self.undo.iter_mut().chain(&mut self.redo);
        turns
            .filter(|t| t.state == state)
            .for_each(|t| t.state = kept);
    }

    /// Where the next undo goes.
    pub fn next_undo(&self) -> Result<Turn> {
        self.undo.last().copied().ok_or(Error::NothingTo("undo"))
    }

    /// Where the next redo goes.
    pub fn next_redo(&self) -> Result<Turn> {
        self.redo.last().copied().ok_or(Error::NothingTo("redo"))
    }

    /// A state by number.
    pub fn state(&self, number: u64) -> Result<&State> {
        self.states
            .get(&number)
            .ok_or_else(|| Error::NoSuchRef(format!("state {number}")))
    }

    /// Tree of a state, where it is in memory: with its content in the store if that was stored.
    pub fn tree(&self, number: u64) -> Option<&Tree> {
        let stored = self.states.reference(number).map(|r| &r.tree);
        stored.or_else(|| self.states.tree(number))
    }

    /// Commit id of a state, if known.
    pub fn id_of(&self, number: u64) -> Option<CommitId> {
        self.states.get(&number).and_then(|s| s.info.id)
    }

    /// First state whose objects are not all in the store.
    pub fn first_pending(&self) -> Option<u64> {
        self.states.first_pending()
    }

    /// Lets go of the trees of all but the newest commits.
    pub fn trim(&mut self) {
        self.states.trim(KEPT_TREES_MAX, self.head);
    }

    /// State that a reference names: a label, a commit id or prefix, `@`, `@~N`, or one of these after
    /// `BRANCH:`. `HEAD` is another word for `@`, and `-` and `^` are others for `~1`.
    pub fn resolve(&self, branch: &str, text: &str) -> Result<u64> {
        let none = || Error::NoSuchRef(text.to_owned());
        let local = match text.split_once(':') {
            Some((b, rest)) if b == branch => rest,
            Some((b, _)) => return Err(Error::NoSuchBranch(b.to_owned())),
            None => text,
        };
        if let Some(state) = self.labelled(local) {
            return Ok(state);
        }
        let from_head = local
            .strip_prefix('@')
            .or_else(|| local.strip_prefix("HEAD"));
        if let Some(rest) = from_head {
            return self.ancestor(rest).ok_or_else(none);
        }
        let prefix = HexPrefix::parse(local).map_err(|_| none())?;
        let matching = self.states.with_prefix(&prefix);
        let found: BTreeMap<CommitId, u64> = matching
            .filter_map(|s| Some((s.info.id?, s.info.number)))
            .collect();
        match found.len() {
            0 => Err(none()),
            1 => found.into_values().next().ok_or_else(none),
            count => Err(Error::AmbiguousRef {
                prefix: local.to_owned(),
                count,
            }),
        }
    }

    /// The N-th first parent of the head, for `~N`, or N times `-` or `^`.
    fn ancestor(&self, text: &str) -> Option<u64> {
        let is_all = |step: u8| text.bytes().all(|byte| byte == step);
        let steps = match text.strip_prefix('~') {
            None if is_all(b'-') || is_all(b'^') => text.len() as u64,
            None => return None,
            Some("") => 1,
            Some(n) => n.parse::<u64>().ok()?,
        };
        let mut at = self.head;
        for _ in 0..steps {
            at = *self.states.get(&at)?.info.parents.first()?;
        }
        Some(at)
    }

    /// Newest state of this branch from before `time`, automatic ones too.
    pub fn before(&self, time: Time) -> Result<u64> {
        let heads = self.heads();
        let shown = |s: &&State| s.info.kind != OpKind::Foreign || heads.contains(&s.info.number);
        let mut states = self.newest_first().filter(shown);
        let found = states.find(|s| s.info.time < time);
        found
            .map(|s| s.info.number)
            .ok_or_else(|| Error::NoCommit("is that old".into()))
    }

    /// Newest state with this metadata, before those of other branches. An automatic commit may have them as those of a
    /// session beside its own.
    pub fn with_meta(&self, key: &str, value: &str) -> Result<u64> {
        let has = |s: &&State| match s.info.kind {
            OpKind::Auto => joined::has(&s.info.meta, key, value),
            _ => s.info.meta.iter().any(|(k, v)| k == key && v == value),
        };
        let own = |s: &&State| s.info.kind != OpKind::Foreign;
        let found = || self.states.values().rev().filter(has);
        found()
            .find(own)
            .or_else(|| found().next())
            .map(|s| s.info.number)
            .ok_or_else(|| Error::NoCommit(format!("has {key}={value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: u64, kind: OpKind, parents: &[u64]) -> StateInfo {
        StateInfo {
            number,
            kind,
            asked: false,
            time: Time::default(),
            author: String::new(),
            message: String::new(),
            meta: vec![],
            parents: parents.to_vec(),
            id: None,
        }
    }

    #[test]
    fn states_that_a_branch_came_with_are_no_parents_of_its_next_commit() {
        // What the journal of a branch begins with that was made of state 9 of another one.
        let mut history = History::from_record(HistoryRecord {
            head: 9,
            ..HistoryRecord::default()
        });
        let mut freeze = |number, kind, parents: &[u64]| {
            let head = number == 9;
            history.freeze(info(number, kind, parents), Tree::default(), head, None);
            history.parents()
        };
        assert_eq!(freeze(4, OpKind::BeforeMerge, &[2]), [9]);
        assert_eq!(freeze(9, OpKind::BeforeBranch, &[7]), [9]);
        assert_eq!(freeze(10, OpKind::BeforeBranch, &[9]), [9, 10]);
        assert_eq!(freeze(11, OpKind::BeforeMerge, &[9, 10]), [9, 10, 11]);
        assert_eq!(freeze(12, OpKind::Checkpoint, &[9, 10, 11]), [9]);
    }
}
