//! What is left of a branch whose state cannot be read as a whole: its history, its timeline, and the
//! newest states that can be shown again.
//!
//! The state file's parts are read each by itself, and the journal's records as far as they are whole. Of
//! these all is carried out that has to do with no tree: a tree's inodes are known by numbers that only
//! the state file has, so what a record changes in one is not guessed at.
//!
//! Invariant: nothing on disk is changed.

use super::Inner;
use super::open::new_inner;
use super::state_file::{Left, StateFile};
use crate::book::Beside;
use crate::book::history::{History, HistoryRecord};
use crate::book::timeline::Timeline;
use crate::journal::Journal;
use crate::limits::FIRST_NEW_INO;
use crate::record::{Counters, Event, Record, SwitchKind, decode};
use crate::tree::Tree;
use objstore::content::FileContent;
use objstore::{Commit, ObjectStore, TreeId};
use std::collections::{BTreeSet, HashMap};

/// A state that was shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub state: u64,
    /// Changes of the live tree before that.
    pub changes: u64,
}

/// What is left of a branch.
#[derive(Debug)]
pub(crate) struct Remains {
    /// History, counters and timeline. Its trees are empty.
    pub inner: Inner,
    /// The state file's head was read, so the history is whole.
    pub has_head: bool,
    /// The timeline is whole.
    pub has_timeline: bool,
    /// States that were shown since the state file was written, the newest last.
    pub shown: Vec<Shown>,
    /// Changes of the live tree since then.
    pub changes: u64,
    /// What the state file shows, where that was stored: the root directory's object, and the key-value
    /// state where that is known.
    pub sealed: Option<(Option<TreeId>, Option<Option<FileContent>>)>,
    /// Logs of the timeline that the branch had.
    pub logs: Vec<Timeline>,
    /// Last record of the journal; `None` where no record can be read.
    pub last_seq: Option<u64>,
    /// The journal is whole.
    pub journal_whole: bool,
}

impl Remains {
    /// Reads what is left of the branch whose state is `file`.
    pub fn read(file: &StateFile<'_>, boot: u64) -> Remains {
        let current = file.current().ok().flatten();
        let newest = || file.numbers().ok()?.into_iter().max();
        let left = current.or_else(newest).map(|n| file.left(n));
        let left = left.unwrap_or_default();
        let from = left.head.as_ref().map_or(0, |head| head.next_seq);
        let mut next = from;
        let mut remains = Remains::of_file(left);
        let journal = format!("{}/journal", file.dir);
        let walked = Journal::inspect_left(file.storage, &journal, boot, &mut |r| {
            if r.seq < from {
                return Ok(());
            }
            // Where records are missing, or are a later version's, the timeline's end is not known.
            remains.has_timeline &= r.seq == next;
            next = r.seq + 1;
            match decode(r.meta) {
                Ok(record) => remains.record(r.seq, record),
                Err(_) => remains.has_timeline = false,
            }
            Ok(())
        });
        if let Ok((report, whole)) = walked {
            (remains.last_seq, remains.journal_whole) = (Some(report.last_seq), whole);
        }
        remains
    }

    fn of_file(left: Left) -> Remains {
        let mut counters = Counters {
            nid: 2,
            ino: FIRST_NEW_INO,
            state: 1,
        };
        let mut history = HistoryRecord::default();
        let (mut base_changed, mut unreadable) = (Vec::new(), Vec::new());
        let mut sealed = None;
        let has_head = left.head.is_some();
        if let Some(head) = left.head {
            (counters, history) = (head.counters, head.history);
            (base_changed, unreadable) = (head.base_changed, head.unreadable);
            sealed = head.root.map(|root| (root, left.kv));
        }
        let mut history = History::from_record(history);
        if has_head {
            history.later = left.later;
        }
        let mut inner = new_inner(Tree::default(), counters, history);
        inner.book.base_changed = base_changed.into_iter().collect();
        inner.book.unreadable = unreadable.into_iter().collect();
        let has_timeline = has_head && left.timeline.is_some();
        let logs: Vec<Timeline> = left.timeline.into_iter().collect();
        if let Some(timeline) = logs.first().filter(|_| has_head) {
            inner.book.timeline = timeline.clone();
        }
        Remains {
            inner,
            has_head,
            has_timeline,
            shown: Vec::new(),
            changes: 0,
            sealed,
            logs,
            last_seq: None,
            journal_whole: false,
        }
    }

    fn record(&mut self, seq: u64, record: Record) {
        match record {
            Record::Mutation(m) | Record::Requested { mutation: m, .. } => {
                self.changes += 1;
                self.inner.book.counters.pass_given(&m);
            }
            Record::Event(event) => self.event(seq, event),
        }
    }

    /// Carries out an event, but for what it changes in trees.
    fn event(&mut self, seq: u64, event: Event) {
        self.changes += u64::from(event.patches_live());
        if let Event::TimelineStored { stored, .. } = &event {
            self.logs.push(Timeline::of_log(*stored));
        }
        let shown = self.shown_by(&event);
        let withdrawn = match &event {
            Event::Withdraw { state } => Some(*state),
            _ => None,
        };
        let live = &Tree::default();
        let carried = self.inner.book.carry_out(event, Beside { seq, live });
        self.has_timeline &= carried.is_ok();
        self.shown.extend(shown);
        let states = &self.inner.book.history.states;
        let gone = withdrawn.filter(|state| !states.contains_key(state));
        self.shown.retain(|s| Some(s.state) != gone);
    }

    /// The state that the live tree is after an event; what was shown as one that another stands for is that
    /// one.
    fn shown_by(&mut self, event: &Event) -> Option<Shown> {
        let state = match event {
            Event::Freeze { info, .. } | Event::Merged { info, .. } => info.number,
            Event::Switch { kind, target, .. } if *kind != SwitchKind::Restore => *target,
            Event::Same { state, kept } => {
                let same = self.shown.iter_mut().filter(|s| s.state == *state);
                same.for_each(|s| s.state = *kept);
                return None;
            }
            _ => return None,
        };
        let changes = self.changes;
        Some(Shown { state, changes })
    }

    /// Lets go of the states that are no commit of the store, and of what refers to them.
    pub fn keep_commits(&mut self, store: &ObjectStore) {
        let history = &mut self.inner.book.history;
        let all: BTreeSet<u64> = history.states.keys().copied().collect();
        let pending: BTreeSet<u64> = history.states.pending().collect();
        history.states.retain(|s| {
            let there = |id| store.get_object::<Commit>(&id).is_ok();
            !pending.contains(&s.info.number) || s.info.id.is_some_and(there)
        });
        history.states.set_all_stored();
        let left: BTreeSet<u64> = history.states.keys().copied().collect();
        let kept = |n: &u64| left.contains(n);
        history.labels.retain(|(_, n)| kept(n));
        history.retain_turns(&mut |t| kept(&t.state) && kept(&t.head), &|n| {
            kept(&n).then_some(n)
        });
        history.branched.retain(kept);
        let gone: Vec<u64> = all.into_iter().filter(|n| !kept(n)).collect();
        self.shown.retain(|s| kept(&s.state));
        self.inner.book.timeline.expired(&gone);
    }

    /// The states have other numbers now; what refers to one that has none goes.
    pub fn renumber(&mut self, numbers: &HashMap<u64, u64>) {
        let new = |n: &mut u64| numbers.get(n).map(|to| *n = *to).is_some();
        let history = &mut self.inner.book.history;
        history.labels.retain_mut(|(_, n)| new(n));
        history.retain_turns(&mut |t| new(&mut t.state) && new(&mut t.head), &|n| {
            numbers.get(&n).copied()
        });
        history.branched.retain_mut(new);
        if !new(&mut history.head) {
            history.head = 0;
        }
        self.shown.retain_mut(|s| new(&mut s.state));
    }
}
