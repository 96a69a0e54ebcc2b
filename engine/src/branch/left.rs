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
use crate::history::{History, HistoryRecord};
use crate::journal::Journal;
use crate::later::Asked;
use crate::limits::FIRST_NEW_INO;
use crate::record::{Counters, Event, Mutation, Record, SwitchKind, decode};
use crate::retention::Expiry;
use crate::timeline::Timeline;
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
                Ok(record) => remains.record(record),
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

    /// The live tree is this state now.
    fn show(&mut self, state: u64) {
        let changes = self.changes;
        self.shown.push(Shown { state, changes });
    }

    fn record(&mut self, record: Record) {
        self.changes += u64::from(matches!(record, Record::Mutation(_)));
        match record {
            Record::Mutation(Mutation::Create { nid, ino, .. }) => self.above(nid, ino),
            Record::Mutation(Mutation::Link { group, .. }) => self.above(0, group),
            Record::Mutation(_) => {}
            Record::Event(event) => self.event(event),
        }
    }

    /// Numbers that are given later are above these.
    fn above(&mut self, nid: u64, ino: u64) {
        let c = &mut self.inner.book.counters;
        c.nid = c.nid.max(nid.saturating_add(1));
        c.ino = c.ino.max(ino.saturating_add(1));
    }

    /// States from here on are not given yet.
    fn states_from(&mut self, number: u64) {
        let c = &mut self.inner.book.counters;
        c.state = c.state.max(number);
    }

    fn counted(&mut self, counters: Counters) {
        self.above(
            counters.nid.saturating_sub(1),
            counters.ino.saturating_sub(1),
        );
        self.states_from(counters.state);
    }

    /// What [`Replay`](super::replay::Replay) does for an event, but for the trees.
    fn event(&mut self, event: Event) {
        match event {
            Event::Freeze { info, head, label } => {
                let number = info.number;
                self.states_from(number.saturating_add(1));
                let inner = &mut self.inner;
                inner
                    .book
                    .history
                    .freeze(info, Tree::default(), head, label);
                inner.note_head(number);
                self.show(number);
            }
            Event::Withdraw { state } => {
                if self.inner.book.history.withdraw(state) {
                    self.shown.retain(|s| s.state != state);
                }
            }
            Event::Same { state, kept } => {
                self.inner.book.history.merge(state, kept);
                self.inner.note_same(state, kept);
                let same = self.shown.iter_mut().filter(|s| s.state == state);
                same.for_each(|s| s.state = kept);
            }
            Event::Expired { states, undo, redo } => {
                self.inner.book.timeline.expired(&states);
                let expiry = Expiry { states, undo, redo };
                self.inner.book.history.expire(&expiry);
            }
            Event::Label { label, state } => self.inner.book.history.label_unchanged(label, state),
            Event::Inherited { label, state } => {
                self.inner.book.history.inherit_label(label, state);
            }
            Event::Switch {
                kind,
                replaced,
                target,
                head,
                counters,
            } => {
                self.counted(counters);
                self.inner.book.history.switch(kind, replaced, target, head);
                self.inner.note_switch(kind, replaced, target);
                self.changes += 1;
                if kind != SwitchKind::Restore {
                    self.show(target);
                }
            }
            Event::Known { info } => {
                self.states_from(info.number.saturating_add(1));
                self.inner.book.history.know(info);
            }
            Event::Merged {
                replaced,
                info,
                label,
                conflicts,
                counters,
            } => {
                self.counted(counters);
                let (inner, number) = (&mut self.inner, info.number);
                inner
                    .book
                    .history
                    .merged(replaced, info, None, label, conflicts);
                inner.note_switch(SwitchKind::Merge, replaced, number);
                self.show(number);
            }
            Event::CallUndone {
                call,
                replaced,
                after,
                counters,
            } => {
                self.counted(counters);
                self.changes += 1;
                self.inner.note_call_undone(call, replaced, after);
            }
            other => self.small_event(other),
        }
    }

    /// Events that neither make nor show a state.
    fn small_event(&mut self, event: Event) {
        let inner = &mut self.inner;
        match event {
            Event::Named { state, id } => inner.named(state, id),
            Event::Timeline { time, what } => inner.book.timeline.push(time, what),
            Event::TimelineStored { stored, bytes } => {
                let flushed = inner.book.timeline.flushed(stored, bytes as usize);
                self.has_timeline &= flushed.is_ok();
                self.logs.push(Timeline::of_log(stored));
            }
            Event::Headed {
                state,
                entries,
                hash,
            } => inner.set_head(state, entries, hash),
            Event::Applied { time } => inner.book.history.note_asked(Asked::Apply { time }),
            Event::Resolved { path } => inner.book.history.conflicts.retain(|c| c.path != path),
            Event::Patched { counters } => {
                self.counted(counters);
                self.changes += 1;
            }
            Event::LoadDir { entries, .. } => {
                for l in entries {
                    let given = if l.ino >= FIRST_NEW_INO { l.ino } else { 0 };
                    self.above(l.nid, given);
                }
            }
            _ => {}
        }
    }

    /// Lets go of the states that are no commit of the store, and of what refers to them.
    pub fn keep_commits(&mut self, store: &ObjectStore) {
        let history = &mut self.inner.book.history;
        let all: BTreeSet<u64> = history.states.keys().copied().collect();
        history.states.retain(|_, s| {
            let there = |id| store.get_object::<Commit>(&id).is_ok();
            s.in_store || s.info.id.is_some_and(there)
        });
        for state in history.states.values_mut() {
            (state.in_store, state.tree, state.stored) = (true, None, None);
        }
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
