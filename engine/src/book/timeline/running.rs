//! Calls that run: whose they are, and which lies inside which.
//!
//! A call lies inside another where it began after that one and ended before it. It is then part of it: what it
//! changed is its own, and what the outer one changed is that and the rest. The innermost of those that it lies
//! inside is its *parent*. A call of a process never lies inside that of another process which neither started it
//! nor one that did: those two only ran at the same time ([`Running::apart`]).
//!
//! Invariant: which calls lie inside which follows from the entries alone, in their order.

use crate::book::timeline::Ran;
use crate::book::timeline::Timeline;
use crate::book::timeline::insert_some;
use crate::record::call::{CallOutcome, EndedBy, OVERLAPS_MAX, Owner, Process, StateRef, What};
use crate::types::Time;
use objstore::content::FileContent;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A call that runs.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(crate) struct Running {
    /// When it began.
    pub started: Time,
    /// Calls that ran at the same time and ended, and are not part of it.
    pub overlaps: BTreeSet<u64>,
    /// Entries by which the live tree was switched meanwhile.
    pub switches: BTreeSet<u64>,
    /// Whose it is.
    pub owner: Owner,
    /// Calls that ran when it began and of which it is known not to be part.
    pub apart: BTreeSet<u64>,
}

impl Timeline {
    /// Calls that run of which one of `owner` that `lineage` starts now is not part: calls of processes that are not
    /// in it, and those of the process itself, which makes several at once. `lineage` is the process that asks and
    /// those that it descends from; empty where they are not known. Calls with keys are made beside one another, and
    /// where several run it is not known of which another call is part.
    pub(crate) fn apart_of(&self, owner: &Owner, lineage: &[Process]) -> Vec<u64> {
        let keyed = self.running.values().filter(|r| is_keyed(&r.owner));
        let beside = is_keyed(owner) || keyed.take(2).count() > 1;
        let own = |process: &Process| !is_keyed(owner) && lineage.first() == Some(process);
        let apart = |running: &Running| match &running.owner {
            Owner::Anybody => false,
            Owner::Process(process) => !lineage.contains(process) || own(process),
            Owner::Key(_) => beside,
        };
        let all = self.running.iter().filter(|(_, r)| apart(r));
        all.map(|(call, _)| *call).collect()
    }

    /// How many calls run that are of somebody.
    pub(crate) fn owned(&self) -> usize {
        let owners = self.running.values().map(|r| &r.owner);
        owners.filter(|o| **o != Owner::Anybody).count()
    }

    /// The call with a key that runs.
    pub(crate) fn keyed(&self, key: &str) -> Option<u64> {
        let is_it = |r: &Running| matches!(&r.owner, Owner::Key(its) if its == key);
        let mut found = self.running.iter().filter(|(_, r)| is_it(r));
        found.next().map(|(call, _)| *call)
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, call: u64, started: Time, owner: Owner, apart: &[u64]) {
        let running = Running {
            started,
            overlaps: BTreeSet::new(),
            switches: BTreeSet::new(),
            owner,
            apart: apart.iter().copied().collect(),
        };
        self.running.insert(call, running);
        self.next_call = self.next_call.max(call.saturating_add(1));
    }

    /// A call ends. Those that run and that it lies inside have it as a part; of the others it is told that
    /// they ran at the same time.
    pub(crate) fn end(&mut self, call: u64, completed: Time) {
        let Some(ended) = self.running.remove(&call) else {
            return;
        };
        for (other, running) in &mut self.running {
            if *other < call && !ended.apart.contains(other) {
                running.overlaps.remove(&call);
            } else {
                insert_some(&mut running.overlaps, call);
            }
        }
        self.remember(call, ended.started, completed);
    }

    /// What is to be told of the end of a call that runs.
    pub(crate) fn over(
        &self,
        call: u64,
        outcome: CallOutcome,
        after: StateRef,
        by: EndedBy,
    ) -> What {
        let running = self.running.get(&call);
        What::Over {
            call,
            outcome,
            after,
            parent: self.parent_of(call),
            overlaps: self.overlaps_of(call),
            switches: running.map_or_else(Vec::new, |r| r.switches.iter().copied().collect()),
            by,
        }
    }

    /// Calls that a running one lies inside, if it ended now.
    fn around(&self, call: u64) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let apart = self.running.get(&call).map(|running| &running.apart);
        let known = move |other: &u64| apart.is_some_and(|apart| apart.contains(other));
        let before = self.running.range(..call).map(|(other, _)| *other);
        before.filter(move |other| !known(other))
    }

    /// The innermost call that a running one lies inside, if it ended now.
    pub(crate) fn parent_of(&self, call: u64) -> Option<u64> {
        self.around(call).next_back()
    }

    /// Calls that ran at the same time as a running one and are neither part of it nor around it, if it ended
    /// now; ascending.
    pub(crate) fn overlaps_of(&self, call: u64) -> Vec<u64> {
        let Some(running) = self.running.get(&call) else {
            return Vec::new();
        };
        let mut all = running.overlaps.clone();
        for other in self.around(call) {
            all.remove(&other);
        }
        let apart = running.apart.iter();
        all.extend(apart.filter(|other| self.running.contains_key(other)));
        all.extend(
            self.running
                .range(call.saturating_add(1)..)
                .map(|(o, _)| *o),
        );
        all.into_iter().take(OVERLAPS_MAX).collect()
    }
}

fn is_keyed(owner: &Owner) -> bool {
    matches!(owner, Owner::Key(_))
}

/// A call that runs, as it stands in state files of versions 4 and 5.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
struct RunningBefore {
    started: Time,
    overlaps: BTreeSet<u64>,
    switches: BTreeSet<u64>,
}

/// A timeline, as it stands in state files of versions 4 and 5.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub(crate) struct TimelineBefore {
    stored: FileContent,
    tail: Arc<Vec<u8>>,
    entries: u64,
    hash: [u8; 32],
    next_call: u64,
    running: BTreeMap<u64, RunningBefore>,
    recent: Vec<Ran>,
    last: Option<u64>,
    unnamed: BTreeSet<u64>,
    used: BTreeSet<u64>,
}

impl From<TimelineBefore> for Timeline {
    fn from(t: TimelineBefore) -> Timeline {
        let running = |(call, r): (u64, RunningBefore)| {
            let now = Running {
                started: r.started,
                overlaps: r.overlaps,
                switches: r.switches,
                owner: Owner::Anybody,
                apart: BTreeSet::new(),
            };
            (call, now)
        };
        Timeline {
            stored: t.stored,
            tail: t.tail,
            entries: t.entries,
            hash: t.hash,
            next_call: t.next_call,
            running: t.running.into_iter().map(running).collect(),
            recent: t.recent,
            last: t.last,
            unnamed: t.unnamed,
            used: t.used,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn process(pid: u32) -> Process {
        Process {
            pid,
            started: 1,
            boot: 1,
        }
    }

    fn begun(t: &mut Timeline, call: u64, owner: Owner, lineage: &[Process]) {
        let apart = t.apart_of(&owner, lineage);
        t.begin(call, Time::default(), owner, &apart);
    }

    /// What a timeline with one running call looked like before.
    pub(crate) fn before() -> (TimelineBefore, Timeline) {
        let running = RunningBefore {
            started: Time { sec: 5, nsec: 6 },
            overlaps: [2].into(),
            switches: [3].into(),
        };
        let old = TimelineBefore {
            stored: FileContent::Empty,
            tail: Arc::default(),
            entries: 7,
            hash: [1; 32],
            next_call: 5,
            running: [(4, running)].into(),
            recent: Vec::new(),
            last: Some(1),
            unnamed: BTreeSet::new(),
            used: [1].into(),
        };
        (old.clone(), Timeline::from(old))
    }

    #[test]
    fn what_begins_later_and_ends_sooner_lies_inside() {
        let mut t = Timeline::default();
        for call in 1..=4 {
            begun(&mut t, call, Owner::Anybody, &[]);
        }
        assert_eq!((t.parent_of(4), t.overlaps_of(4)), (Some(3), vec![]));
        t.end(4, Time::default());
        // 2 ends before 3, which began later.
        assert_eq!((t.parent_of(2), t.overlaps_of(2)), (Some(1), vec![3]));
        t.end(2, Time::default());
        assert_eq!((t.parent_of(3), t.overlaps_of(3)), (Some(1), vec![2]));
        t.end(3, Time::default());
        assert_eq!((t.parent_of(1), t.overlaps_of(1)), (None, vec![]));
    }

    #[test]
    fn calls_of_processes_lie_inside_only_what_started_them() {
        let mut t = Timeline::default();
        let (outer, inner, other) = (process(1), process(2), process(3));
        begun(&mut t, 1, Owner::Process(outer), &[outer]);
        begun(&mut t, 2, Owner::Process(inner), &[inner, outer]);
        begun(&mut t, 3, Owner::Process(other), &[other]);
        begun(&mut t, 4, Owner::Process(inner), &[inner, outer]);
        begun(&mut t, 5, Owner::Anybody, &[]);
        assert_eq!((t.parent_of(5), t.overlaps_of(5)), (None, vec![1, 2, 3, 4]));
        t.end(5, Time::default());
        assert_eq!((t.parent_of(4), t.overlaps_of(4)), (Some(1), vec![2, 3, 5]));
        t.end(4, Time::default());
        assert_eq!((t.parent_of(3), t.overlaps_of(3)), (None, vec![1, 2, 4, 5]));
        t.end(3, Time::default());
        assert_eq!((t.parent_of(2), t.overlaps_of(2)), (Some(1), vec![3, 4, 5]));
        t.end(2, Time::default());
        assert_eq!(t.overlaps_of(1), [3, 5]);
    }

    #[test]
    fn calls_with_keys_run_beside_one_another_and_may_hold_others() {
        let mut t = Timeline::default();
        let (outer, hook, tool) = (process(1), process(2), process(3));
        begun(&mut t, 1, Owner::Process(outer), &[outer]);
        begun(&mut t, 2, Owner::Key("a".into()), &[hook, outer]);
        begun(&mut t, 3, Owner::Process(tool), &[tool, outer]);
        assert_eq!((t.parent_of(3), t.parent_of(2)), (Some(2), Some(1)));
        t.end(3, Time::default());
        begun(&mut t, 4, Owner::Key("b".into()), &[hook, outer]);
        assert_eq!((t.parent_of(4), t.overlaps_of(4)), (Some(1), vec![2]));
        begun(&mut t, 5, Owner::Process(tool), &[tool, outer]);
        assert_eq!((t.parent_of(5), t.overlaps_of(5)), (Some(1), vec![2, 4]));
        assert_eq!(
            (t.keyed("a"), t.keyed("b"), t.keyed("c")),
            (Some(2), Some(4), None)
        );
        t.end(2, Time::default());
        assert_eq!((t.keyed("a"), t.owned()), (None, 3));
    }

    #[test]
    fn more_calls_than_are_remembered_still_leave_a_doubt() {
        let mut t = Timeline::default();
        let last = OVERLAPS_MAX as u64 + 50;
        for call in 1..=last {
            begun(&mut t, call, Owner::Anybody, &[]);
        }
        for call in 1..last {
            assert!(!t.overlaps_of(call).is_empty());
            t.end(call, Time::default());
        }
        assert_eq!(t.overlaps_of(last).len(), OVERLAPS_MAX);
    }
}
