//! The model of a branch's history: commits, labels, head, undo and redo.

use super::model::Tree;
use crate::ensure;
use engine::{CommitId, LogEntry, Target, Time};
use std::collections::BTreeMap;

/// A remembered state.
#[derive(Clone, Debug)]
pub struct Commit {
    pub tree: Tree,
    pub parent: Option<usize>,
    pub kind: &'static str,
    pub automatic: bool,
    /// Once known, it never changes.
    pub id: Option<CommitId>,
    pub time: Option<Time>,
    pub message: String,
    pub meta: BTreeMap<String, String>,
}

/// A state to show with the head to have.
pub type Turn = (usize, usize);

/// The history.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub commits: Vec<Commit>,
    pub labels: Vec<(String, usize)>,
    pub head: usize,
    pub undo: Vec<Turn>,
    pub redo: Vec<Turn>,
    /// Steps of undo that there were when each checkpoint was asked for that is still in the way.
    pub later: Vec<usize>,
    /// What the live tree was last made into or set to.
    pub shown: usize,
}

impl History {
    /// Remembers a state; its parent is the head.
    pub fn push(&mut self, tree: &Tree, kind: &'static str) -> usize {
        let mut tree = tree.clone();
        tree.drop_orphans();
        self.commits.push(Commit {
            tree,
            parent: (!self.commits.is_empty()).then_some(self.head),
            kind,
            automatic: !["start", "checkpoint"].contains(&kind),
            id: None,
            time: None,
            message: String::new(),
            meta: BTreeMap::new(),
        });
        self.shown = self.commits.len() - 1;
        self.shown
    }

    /// True for a commit of another branch that is not known yet.
    pub fn is_new_of_others(&self, e: &LogEntry) -> bool {
        e.kind == "other-branch" && self.of(e.commit.as_ref()).is_none()
    }

    fn of(&self, id: Option<&CommitId>) -> Option<usize> {
        self.commits.iter().rposition(|c| c.id.as_ref() == id)
    }

    /// Takes over an entry of the log that is new, with its tree; those at `at` and later move up.
    pub fn insert(&mut self, at: usize, e: &LogEntry, tree: Tree) -> usize {
        let parents = self.commits.iter_mut().filter_map(|c| c.parent.as_mut());
        let turns = self.undo.iter_mut().chain(&mut self.redo);
        let labels = self.labels.iter_mut().map(|(_, n)| n);
        let places = parents.chain(turns.flat_map(|(a, b)| [a, b])).chain(labels);
        shift(at, places.chain([&mut self.head, &mut self.shown]));
        let parent = e.parents.first().and_then(|id| self.of(Some(id)));
        let parent = parent.map(|n| n + usize::from(n >= at));
        self.commits.insert(
            at,
            Commit {
                tree,
                parent,
                kind: e.kind,
                automatic: e.automatic,
                id: e.commit,
                time: Some(e.time),
                message: e.message.clone(),
                meta: e.meta.iter().cloned().collect(),
            },
        );
        at
    }

    /// Lets a label name a commit; returns the one that it named before.
    pub fn label(&mut self, label: &str, commit: usize) -> Option<usize> {
        let old = self.labels.iter().position(|(l, _)| l == label);
        let old = old.map(|i| self.labels.remove(i).1);
        self.labels.push((label.to_owned(), commit));
        old
    }

    /// A target and what it means; `None` where it means nothing.
    pub fn target(&self, how: u8, which: u32) -> (Target, Option<usize>) {
        let pick = which as usize;
        let ids: Vec<usize> = self.with(|c| c.id.is_some());
        let times: Vec<usize> = self.with(|c| c.time.is_some());
        match how % 8 {
            0 => (Target::Head, Some(self.head)),
            1..=2 if !self.labels.is_empty() => {
                let (l, n) = &self.labels[pick % self.labels.len()];
                let text = if pick.is_multiple_of(2) {
                    l.clone()
                } else {
                    format!("main:{l}")
                };
                (Target::Ref(text), Some(*n))
            }
            3..=4 if !ids.is_empty() => {
                let n = ids[pick % ids.len()];
                let text = self.commits[n]
                    .id
                    .map(|i| i.to_string())
                    .unwrap_or_default();
                (
                    Target::Ref(text[..if pick.is_multiple_of(2) { 64 } else { 24 }].to_owned()),
                    Some(n),
                )
            }
            5 => {
                let n = which % 4;
                (Target::Ref(format!("@~{n}")), self.ancestor(n))
            }
            6 if !times.is_empty() => {
                let t = self.commits[times[pick % times.len()]]
                    .time
                    .unwrap_or_default();
                let mut older = self.with(|c| c.time.is_some_and(|x| x < t));
                older.retain(|n| self.commits[*n].kind != "other-branch" || self.was_head(*n));
                (Target::Before(t), older.last().copied())
            }
            _ => {
                let (key, value) = ("turn".to_owned(), format!("{}", which % 3));
                let has = self.with(|c| c.meta.get(&key) == Some(&value));
                (Target::Meta { key, value }, has.last().copied())
            }
        }
    }

    fn with(&self, wanted: impl Fn(&Commit) -> bool) -> Vec<usize> {
        let all = self.commits.iter().enumerate();
        all.filter(|(_, c)| wanted(c)).map(|(i, _)| i).collect()
    }

    /// True for a state that is, or was, the head.
    fn was_head(&self, n: usize) -> bool {
        let own = self.commits.iter().filter(|c| c.kind != "other-branch");
        let turns = self.undo.iter().chain(&self.redo).map(|(_, head)| *head);
        let mut heads = own.filter_map(|c| c.parent).chain(turns);
        self.head == n || heads.any(|head| head == n)
    }

    fn ancestor(&self, n: u32) -> Option<usize> {
        (0..n).try_fold(self.head, |at, _| self.commits[at].parent)
    }

    /// Compares with the whole log, the newest first, and learns ids and times.
    pub fn compare(&mut self, log: &[LogEntry]) -> Result<(), String> {
        ensure!(
            log.len() == self.commits.len(),
            "the log has {:?}, not {:?}",
            log.iter().rev().map(|e| e.kind).collect::<Vec<_>>(),
            self.commits.iter().map(|c| c.kind).collect::<Vec<_>>()
        );
        for (i, e) in log.iter().rev().enumerate() {
            self.entry(i, e)
                .map_err(|why| format!("commit {i} of the log: {why}"))?;
        }
        Ok(())
    }

    fn entry(&mut self, i: usize, e: &LogEntry) -> Result<(), String> {
        let labels = self.labels.iter().rev().filter(|(_, n)| *n == i);
        let labels: Vec<String> = labels.map(|(l, _)| l.clone()).collect();
        ensure!(e.labels == labels, "labels {:?}, not {labels:?}", e.labels);
        ensure!(e.is_head == (self.head == i), "head: {}", e.is_head);
        let parent = self.commits[i].parent.and_then(|p| self.commits[p].id);
        let c = &mut self.commits[i];
        ensure!(
            e.kind == c.kind && e.automatic == c.automatic,
            "{} is a {}",
            c.kind,
            e.kind
        );
        if c.kind != "start" {
            ensure!(e.message == c.message, "message {:?}", e.message);
        }
        let meta: BTreeMap<_, _> = e.meta.iter().cloned().collect();
        ensure!(meta == c.meta, "metadata {meta:?}, not {:?}", c.meta);
        ensure!(
            e.parents.is_empty() || e.parents.first() == parent.as_ref(),
            "another parent"
        );
        ensure!(*c.time.get_or_insert(e.time) == e.time, "another time");
        if c.id.is_some() && e.commit.is_some() {
            ensure!(c.id == e.commit, "id is {:?}, was {:?}", e.commit, c.id);
        }
        c.id = c.id.or(e.commit);
        Ok(())
    }
}

/// Places of states once one is put in at `at`.
pub fn shift<'a>(at: usize, places: impl Iterator<Item = &'a mut usize>) {
    places.filter(|n| **n >= at).for_each(|n| *n += 1);
}
