//! The states of a branch by number, and which of them are rare.
//!
//! A history may have a hundred thousand states. Few of them are not stored yet, have a tree in memory, or were made
//! by another branch. Each of these kinds has an index, and so have the ids, so that nothing that is done for each
//! commit or for a page of the log goes over all states. Invariant: the indexes name states that there are, and only this file changes either. Tests: below, against
//! a look at every state.

use crate::book::digits::Beginnings;
use crate::record::{OpKind, StateInfo};
use crate::stored::store::Reference;
use crate::tree::Tree;
use imbl::OrdMap;
use objstore::{CommitId, HexPrefix, TimelineHead};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, RangeFrom};
use std::sync::OnceLock;

/// A state as it is in memory.
#[derive(Clone, Debug)]
pub struct State {
    /// What is known of it.
    pub info: StateInfo,
    /// How far the timeline went when it was frozen; its commit has it.
    pub timeline: Option<TimelineHead>,
}

/// Trees of a state that are in memory.
#[derive(Clone, Debug, Default)]
struct Held {
    /// As it was frozen.
    tree: Option<Tree>,
    /// With content in the store and the object of its root, once stored.
    stored: Option<Reference>,
}

/// The states of a branch. They are looked at as a map.
#[derive(Clone, Debug, Default)]
pub struct States {
    all: BTreeMap<u64, State>,
    /// Those whose objects are not all in the store.
    pending: BTreeSet<u64>,
    /// Those that another branch made.
    foreign: BTreeSet<u64>,
    held: BTreeMap<u64, Held>,
    /// The ids of those that have one.
    ids: Beginnings,
    /// The same by number, once somebody wanted a copy of it.
    commits: OnceLock<OrdMap<u64, CommitId>>,
}

impl Deref for States {
    type Target = BTreeMap<u64, State>;

    fn deref(&self) -> &BTreeMap<u64, State> {
        &self.all
    }
}

impl States {
    /// States that are all in the store, without their trees.
    pub fn of_stored(infos: impl Iterator<Item = StateInfo>) -> States {
        let mut states = States::default();
        for info in infos {
            states.place(info);
        }
        states.index_ids();
        states
    }

    /// Sorts all ids at once, which takes less time than one by one.
    fn index_ids(&mut self) {
        let known = |s: &State| Some((s.info.id?, s.info.number));
        self.ids = self.all.values().filter_map(known).collect();
    }

    fn put(&mut self, info: StateInfo) {
        let (number, id) = (info.number, info.id);
        let before = self.place(info);
        self.note_id(number, before, id);
    }

    /// Puts a state where it belongs, but for its id; gives the id that it had before.
    fn place(&mut self, info: StateInfo) -> Option<CommitId> {
        let number = info.number;
        match info.kind {
            OpKind::Foreign => self.foreign.insert(number),
            _ => self.foreign.remove(&number),
        };
        let timeline = None;
        let before = self.all.insert(number, State { info, timeline });
        before?.info.id
    }

    /// A state has another id than before, or one at last, or is gone with it.
    fn note_id(&mut self, number: u64, before: Option<CommitId>, id: Option<CommitId>) {
        if let Some(before) = before {
            self.ids.remove(&before, number);
        }
        if let Some(id) = id {
            self.ids.insert(&id, number);
        }
        let commits = self.commits.get_mut();
        match (commits, id) {
            (Some(commits), Some(id)) => drop(commits.insert(number, id)),
            (Some(commits), None) => drop(commits.remove(&number)),
            (None, _) => {}
        }
    }

    /// Adds a state that is to be stored.
    pub fn freeze(&mut self, info: StateInfo, tree: Tree) {
        let number = info.number;
        self.put(info);
        self.pending.insert(number);
        let held = Held {
            tree: Some(tree),
            stored: None,
        };
        self.held.insert(number, held);
    }

    /// Adds a state that is stored, or more of one that is known.
    pub fn know(&mut self, info: StateInfo) {
        self.pending.remove(&info.number);
        self.put(info);
    }

    /// Removes a state.
    pub fn remove(&mut self, number: u64) {
        let gone = self.all.remove(&number);
        self.pending.remove(&number);
        self.foreign.remove(&number);
        self.held.remove(&number);
        self.note_id(number, gone.and_then(|state| state.info.id), None);
    }

    /// Removes all states but those that `keep` wants.
    pub fn retain(&mut self, keep: impl Fn(&State) -> bool) {
        let gone: Vec<u64> = self
            .all
            .iter()
            .filter(|(_, s)| !keep(s))
            .map(|(n, _)| *n)
            .collect();
        gone.into_iter().for_each(|n| self.remove(n));
    }

    /// These of the states, with their trees.
    pub fn part(&self, numbers: impl Iterator<Item = u64>) -> States {
        let mut part = States::default();
        for number in numbers {
            let Some(state) = self.all.get(&number) else {
                continue;
            };
            part.all.insert(number, state.clone());
            if let Some(held) = self.held.get(&number) {
                part.held.insert(number, held.clone());
            }
            part.pending.extend(self.pending.get(&number));
            part.foreign.extend(self.foreign.get(&number));
        }
        part.index_ids();
        part
    }

    /// All of them, without their trees.
    pub fn into_infos(self) -> impl Iterator<Item = StateInfo> {
        self.all.into_values().map(|state| state.info)
    }

    /// True where the state is there and its objects are all in the store.
    pub fn is_stored(&self, number: u64) -> bool {
        !self.pending.contains(&number) && self.all.contains_key(&number)
    }

    /// True where the state is there and is not stored yet.
    pub fn is_pending(&self, number: u64) -> bool {
        self.pending.contains(&number)
    }

    /// Those whose objects are all in the store, ascending.
    pub fn stored(&self) -> impl DoubleEndedIterator<Item = &State> {
        let stored = |(n, _): &(&u64, &State)| !self.pending.contains(n);
        self.all.iter().filter(stored).map(|(_, state)| state)
    }

    /// Numbers of those that are not stored yet, ascending.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = u64> {
        self.pending.iter().copied()
    }

    /// The first that is not stored yet.
    pub fn first_pending(&self) -> Option<u64> {
        self.pending.first().copied()
    }

    /// Those that another branch made, ascending.
    pub fn foreign(&self) -> impl DoubleEndedIterator<Item = &State> {
        self.foreign.iter().filter_map(|n| self.all.get(n))
    }

    /// Those that this branch made, ascending.
    pub fn own(&self) -> impl DoubleEndedIterator<Item = &State> {
        self.all.values().filter(|s| s.info.kind != OpKind::Foreign)
    }

    /// Those that are the commit `id`.
    pub fn with_id(&self, id: &CommitId) -> impl Iterator<Item = &State> {
        let alike = self.ids.like(id).filter_map(|n| self.all.get(&n));
        alike.filter(move |state| state.info.id.as_ref() == Some(id))
    }

    /// Those whose ids have a prefix.
    pub fn with_prefix(&self, prefix: &HexPrefix) -> impl Iterator<Item = &State> {
        let has = |n| self.id(n).is_some_and(|id| prefix.matches(id.as_bytes()));
        let meant = self.ids.with_prefix(prefix, has);
        meant.filter_map(|n| self.all.get(&n))
    }

    /// How many digits of `id` no other id of these states begins with.
    pub fn digits_of(&self, id: &CommitId) -> u32 {
        self.ids.digits_of(id, |n| self.id(n) != Some(*id))
    }

    /// The ids of those that have one, by number, as they are now.
    pub fn commits(&self) -> OrdMap<u64, CommitId> {
        let known = |s: &State| Some((s.info.number, s.info.id?));
        let all = || self.all.values().filter_map(known).collect();
        self.commits.get_or_init(all).clone()
    }

    fn id(&self, number: u64) -> Option<CommitId> {
        self.all.get(&number)?.info.id
    }

    /// The state's tree as it was frozen, while that is kept.
    pub fn tree(&self, number: u64) -> Option<&Tree> {
        self.held.get(&number)?.tree.as_ref()
    }

    /// The same, for changing it.
    pub fn tree_mut(&mut self, number: u64) -> Option<&mut Tree> {
        self.held.get_mut(&number)?.tree.as_mut()
    }

    /// The state's tree with its content in the store, while that is kept.
    pub fn reference(&self, number: u64) -> Option<&Reference> {
        self.held.get(&number)?.stored.as_ref()
    }

    /// All trees.
    pub fn trees_mut(&mut self) -> impl Iterator<Item = &mut Tree> {
        self.held.values_mut().flat_map(|held| {
            let stored = held.stored.as_mut().map(|r| &mut r.tree);
            held.tree.iter_mut().chain(stored)
        })
    }

    /// Keeps the tree of a state.
    pub fn keep_tree(&mut self, number: u64, tree: Tree) {
        if self.all.contains_key(&number) {
            self.held.entry(number).or_default().tree = Some(tree);
        }
    }

    /// Keeps this tree of a stored state and no other.
    pub fn keep_tree_only(&mut self, number: u64, tree: Tree) {
        if self.is_stored(number) {
            self.held.remove(&number);
            self.keep_tree(number, tree);
        }
    }

    /// Keeps the tree of a state, with its content in the store.
    pub fn keep_reference(&mut self, number: u64, stored: Reference) {
        if self.all.contains_key(&number) {
            self.held.entry(number).or_default().stored = Some(stored);
        }
    }

    /// All are in the store; lets go of their trees.
    pub fn set_all_stored(&mut self) {
        self.pending.clear();
        self.held.clear();
    }

    /// Lets go of the trees of stored states but for the `newest` that have one and for `but`.
    pub fn trim(&mut self, newest: usize, but: u64) {
        let stored = self.held.keys().rev().copied();
        let stored = stored.filter(|n| !self.pending.contains(n));
        let old: Vec<u64> = stored.skip(newest).filter(|n| *n != but).collect();
        for number in old {
            self.held.remove(&number);
        }
    }

    /// A state is the commit `id`, all in the store, of which `stored` may be kept in memory.
    pub fn set_stored(&mut self, number: u64, id: CommitId, stored: Option<Reference>) {
        if self.set_id(number, id).is_none() {
            return;
        }
        self.pending.remove(&number);
        self.held.remove(&number);
        if let Some(stored) = stored {
            self.keep_reference(number, stored);
        }
    }

    /// The commit of a state became known; gives the state.
    pub fn set_id(&mut self, number: u64, id: CommitId) -> Option<&State> {
        let state = self.all.get_mut(&number)?;
        let before = state.info.id.replace(id);
        self.note_id(number, before, Some(id));
        self.all.get(&number)
    }

    /// Somebody asked for a state.
    pub fn set_asked(&mut self, number: u64) {
        if let Some(state) = self.all.get_mut(&number) {
            state.info.asked = true;
        }
    }

    /// The commit of a state has this of the timeline.
    pub fn set_timeline(&mut self, number: u64, head: Option<TimelineHead>) {
        if let Some(state) = self.all.get_mut(&number) {
            state.timeline = head;
        }
    }

    /// Lets the states from a number on have the parent `to` where they had `from`.
    pub fn replace_parent(&mut self, states: RangeFrom<u64>, from: u64, to: u64) {
        for (_, state) in self.all.range_mut(states) {
            let parents = state.info.parents.iter_mut();
            parents.filter(|p| **p == from).for_each(|p| *p = to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;
    use proptest::prelude::*;

    fn reference() -> Reference {
        Reference {
            tree: Tree::default(),
            root: None,
            kv: None,
        }
    }

    fn info(number: u64, kind: OpKind) -> StateInfo {
        StateInfo {
            number,
            kind,
            asked: false,
            time: Time::default(),
            author: String::new(),
            message: String::new(),
            meta: vec![],
            parents: vec![number.saturating_sub(1)],
            id: None,
        }
    }

    /// One of some ids of which many begin alike, two of them with more digits than are compared.
    fn id(which: u64) -> CommitId {
        let mut bytes = [0x11; 32];
        bytes[which as usize % 10] = which as u8;
        CommitId::from_bytes(bytes)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Freeze(u64, OpKind),
        Know(u64, OpKind, Option<u64>),
        SetStored(u64, bool),
        SetId(u64, u64),
        SetAllStored,
        KeepTree(u64),
        KeepTreeOnly(u64),
        KeepReference(u64),
        Remove(u64),
        RetainAbove(u64),
        Part(Vec<u64>),
        Trim(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = || 0..24_u64;
        let kind = || prop_oneof![Just(OpKind::Checkpoint), Just(OpKind::Foreign)];
        prop_oneof![
            6 => (number(), kind()).prop_map(|(n, kind)| Step::Freeze(n, kind)),
            3 => (number(), kind(), prop::option::of(number()))
                .prop_map(|(n, kind, id)| Step::Know(n, kind, id)),
            3 => (number(), number()).prop_map(|(n, id)| Step::SetId(n, id)),
            5 => (number(), any::<bool>()).prop_map(|(n, kept)| Step::SetStored(n, kept)),
            1 => Just(Step::SetAllStored),
            2 => number().prop_map(Step::KeepTree),
            1 => number().prop_map(Step::KeepTreeOnly),
            2 => number().prop_map(Step::KeepReference),
            2 => number().prop_map(Step::Remove),
            1 => (0..8_u64).prop_map(Step::RetainAbove),
            1 => prop::collection::vec(number(), 12..24).prop_map(Step::Part),
            2 => (0..6_usize, number()).prop_map(|(newest, but)| Step::Trim(newest, but)),
        ]
    }

    /// A state with all that is said of it, to be found by looking at every one.
    #[derive(Clone, Copy, Debug)]
    struct Plain {
        kind: OpKind,
        in_store: bool,
        tree: bool,
        stored: bool,
        id: Option<CommitId>,
    }

    type Slow = BTreeMap<u64, Plain>;

    fn do_slowly(slow: &mut Slow, step: &Step) {
        match step {
            Step::Freeze(n, kind) => {
                let (kind, in_store, tree, stored) = (*kind, false, true, false);
                let state = Plain {
                    kind,
                    in_store,
                    tree,
                    stored,
                    id: None,
                };
                slow.insert(*n, state);
            }
            Step::SetId(n, which) => {
                if let Some(s) = slow.get_mut(n) {
                    s.id = Some(id(*which));
                }
            }
            Step::Know(n, kind, which) => {
                let known = slow.get(n).map_or((false, false), |s| (s.tree, s.stored));
                let (kind, in_store, (tree, stored)) = (*kind, true, known);
                let state = Plain {
                    kind,
                    in_store,
                    tree,
                    stored,
                    id: which.map(id),
                };
                slow.insert(*n, state);
            }
            Step::SetStored(n, kept) => {
                if let Some(s) = slow.get_mut(n) {
                    (s.in_store, s.tree, s.stored) = (true, false, *kept);
                    s.id = Some(id(*n));
                }
            }
            Step::SetAllStored => slow
                .values_mut()
                .for_each(|s| (s.in_store, s.tree, s.stored) = (true, false, false)),
            Step::KeepTree(n) => {
                if let Some(s) = slow.get_mut(n) {
                    s.tree = true;
                }
            }
            Step::KeepTreeOnly(n) => {
                if let Some(s) = slow.get_mut(n).filter(|s| s.in_store) {
                    (s.tree, s.stored) = (true, false);
                }
            }
            Step::KeepReference(n) => {
                if let Some(s) = slow.get_mut(n) {
                    s.stored = true;
                }
            }
            Step::Remove(n) => drop(slow.remove(n)),
            Step::RetainAbove(least) => slow.retain(|n, _| n >= least),
            Step::Part(numbers) => slow.retain(|n, _| numbers.contains(n)),
            Step::Trim(newest, but) => {
                let held = |s: &Plain| s.in_store && (s.tree || s.stored);
                let states = slow.iter_mut().rev().filter(|(_, s)| held(s));
                for (_, s) in states.skip(*newest).filter(|(n, _)| *n != but) {
                    (s.tree, s.stored) = (false, false);
                }
            }
        }
    }

    fn do_fast(states: &mut States, step: &Step) {
        match step {
            Step::Freeze(n, kind) => states.freeze(info(*n, *kind), Tree::default()),
            Step::Know(n, kind, which) => {
                let info = info(*n, *kind);
                let id = which.map(id);
                states.know(StateInfo { id, ..info });
            }
            Step::SetId(n, which) => drop(states.set_id(*n, id(*which))),
            Step::SetStored(n, kept) => states.set_stored(*n, id(*n), kept.then(reference)),
            Step::SetAllStored => states.set_all_stored(),
            Step::KeepTree(n) => states.keep_tree(*n, Tree::default()),
            Step::KeepTreeOnly(n) => states.keep_tree_only(*n, Tree::default()),
            Step::KeepReference(n) => states.keep_reference(*n, reference()),
            Step::Remove(n) => states.remove(*n),
            Step::RetainAbove(least) => states.retain(|s| s.info.number >= *least),
            Step::Part(numbers) => *states = states.part(numbers.iter().copied()),
            Step::Trim(newest, but) => states.trim(*newest, *but),
        }
    }

    fn numbers<'a>(states: impl Iterator<Item = &'a State>) -> Vec<u64> {
        states.map(|s| s.info.number).collect()
    }

    fn of(slow: &Slow, is: impl Fn(&Plain) -> bool) -> Vec<u64> {
        let found = slow.iter().filter(|(_, s)| is(s));
        found.map(|(n, _)| *n).collect()
    }

    fn digits_by_look(all: &BTreeSet<CommitId>, id: &CommitId) -> u32 {
        let text = id.to_string();
        let shared = |other: &CommitId| {
            let other = other.to_string();
            let same = text.bytes().zip(other.bytes());
            same.take_while(|(a, b)| a == b).count() as u32
        };
        let others = all.iter().filter(|other| *other != id);
        match others.map(shared).max().unwrap_or(0) {
            16.. => 64,
            most => (most + 1).max(4),
        }
    }

    /// `lengths`: of prefixes by which they are looked up, beside the shortest that names one.
    fn check_ids(states: &States, slow: &Slow, lengths: &[usize]) {
        let known = slow.iter().filter_map(|(n, s)| Some((*n, s.id?)));
        let known: BTreeMap<u64, CommitId> = known.collect();
        let all: BTreeSet<CommitId> = known.values().copied().collect();
        for id in (0..24).map(id) {
            let has = |other: &CommitId| *other == id;
            let with = known.iter().filter(|(_, other)| has(other));
            let with: Vec<u64> = with.map(|(n, _)| *n).collect();
            assert_eq!(numbers(states.with_id(&id)), with);
            let digits = states.digits_of(&id);
            assert_eq!(digits, digits_by_look(&all, &id));
            for digits in lengths.iter().copied().chain([digits as usize]) {
                let prefix = HexPrefix::parse(&id.to_string()[..digits]).unwrap();
                let mut found = numbers(states.with_prefix(&prefix));
                found.sort_unstable();
                let matching = known.iter().filter(|(_, id)| prefix.matches(id.as_bytes()));
                let matching: Vec<u64> = matching.map(|(n, _)| *n).collect();
                assert_eq!(found, matching);
            }
        }
        // A copy of what others look into at other times stays as it is.
        if known.len().is_multiple_of(2) {
            assert!(states.commits().into_iter().eq(known));
        }
    }

    fn check(states: &mut States, slow: &Slow) {
        check_ids(states, slow, &[]);
        assert_eq!(numbers(states.values()), of(slow, |_| true));
        assert_eq!(numbers(states.stored()), of(slow, |s| s.in_store));
        let is_foreign = |s: &Plain| s.kind == OpKind::Foreign;
        assert_eq!(numbers(states.foreign()), of(slow, is_foreign));
        assert_eq!(numbers(states.own()), of(slow, |s| !is_foreign(s)));
        let pending = of(slow, |s| !s.in_store);
        assert_eq!(states.pending().collect::<Vec<_>>(), pending);
        assert_eq!(states.first_pending(), pending.first().copied());
        for n in 0..25 {
            let state = slow.get(&n);
            assert_eq!(states.is_stored(n), state.is_some_and(|s| s.in_store));
            assert_eq!(states.is_pending(n), state.is_some_and(|s| !s.in_store));
            assert_eq!(states.tree(n).is_some(), state.is_some_and(|s| s.tree));
            let stored = state.is_some_and(|s| s.stored);
            assert_eq!(states.reference(n).is_some(), stored);
        }
        let trees = slow.values();
        let trees: usize = trees
            .map(|s| usize::from(s.tree) + usize::from(s.stored))
            .sum();
        assert_eq!(states.trees_mut().count(), trees);
    }

    proptest! {
        #[test]
        fn what_is_rare_is_found_as_a_look_at_every_state_finds_it(
            steps in prop::collection::vec(step(), 1..80)
        ) {
            let (mut states, mut slow) = (States::default(), Slow::new());
            for step in steps {
                do_fast(&mut states, &step);
                do_slowly(&mut slow, &step);
                check(&mut states, &slow);
            }
            check_ids(&states, &slow, &[4, 9, 12, 16, 17, 18, 19, 20, 64]);
        }
    }

    #[test]
    fn a_parent_is_replaced_in_later_states_alone() {
        let infos = (1..=4).map(|n| StateInfo {
            parents: vec![2, n],
            ..info(n, OpKind::Checkpoint)
        });
        let mut states = States::of_stored(infos);
        states.replace_parent(3.., 2, 9);
        let parents = states.values().map(|s| s.info.parents[0]);
        assert_eq!(parents.collect::<Vec<_>>(), [2, 2, 9, 9]);
    }
}
