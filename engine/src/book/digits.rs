//! How many digits of a commit's id are enough to name it.
//!
//! Invariant: as many digits as are said here name the commit in [`super::history::History::resolve`], unless a label
//! of its branch is the same word. Two ids that share their first sixteen digits are named by all of them. Tests: here,
//! and of the index over changing states in [`super::states`].

use objstore::{CommitId, HexPrefix};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

/// Digits that a prefix of an id has at least.
const DIGITS_MIN: u32 = 4;
/// Digits of a whole id.
const DIGITS_ALL: u32 = 64;

/// How many digits name each of some commits of a branch.
#[derive(Debug, Default)]
pub struct UniqueDigits(HashMap<CommitId, u32>);

impl UniqueDigits {
    /// Of the ids that are wanted, each with its digits.
    pub(crate) fn of_these(wanted: impl Iterator<Item = (CommitId, u32)>) -> UniqueDigits {
        UniqueDigits(wanted.collect())
    }

    /// How many digits of `id`, which was wanted, no other id begins with.
    pub fn of(&self, id: &CommitId) -> u32 {
        self.0.get(id).copied().unwrap_or(DIGITS_ALL)
    }
}

/// The ids of states, in the order of their first sixteen digits, each with the number of its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beginnings(BTreeSet<(u64, u64)>);

impl FromIterator<(CommitId, u64)> for Beginnings {
    fn from_iter<I: IntoIterator<Item = (CommitId, u64)>>(all: I) -> Beginnings {
        let all = all.into_iter();
        Beginnings(all.map(|(id, n)| (beginning(id.as_bytes()), n)).collect())
    }
}

impl Beginnings {
    /// A state has this id.
    pub fn insert(&mut self, id: &CommitId, number: u64) {
        self.0.insert((beginning(id.as_bytes()), number));
    }

    /// A state has this id no more.
    pub fn remove(&mut self, id: &CommitId, number: u64) {
        self.0.remove(&(beginning(id.as_bytes()), number));
    }

    /// States whose ids begin as this one does; most often it is the one that has it, or there is none.
    pub fn like(&self, id: &CommitId) -> impl Iterator<Item = u64> {
        let at = beginning(id.as_bytes());
        self.0.range((at, 0)..=(at, u64::MAX)).map(|(_, n)| *n)
    }

    /// States of which `is_meant` says whether their id has this prefix.
    pub fn with_prefix(
        &self,
        prefix: &HexPrefix,
        is_meant: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = u64> {
        let at = beginning(&prefix.first());
        let mut meant = Vec::new();
        for (beginning, number) in self.0.range((at, 0)..) {
            match is_meant(*number) {
                true => meant.push(*number),
                // Of those that begin alike, some may go on otherwise.
                false if *beginning == at => {}
                false => break,
            }
        }
        meant.into_iter()
    }

    /// How many digits of `id` are enough, where `is_other` says whether a state that begins alike has another id.
    pub fn digits_of(&self, id: &CommitId, is_other: impl Fn(u64) -> bool) -> u32 {
        if self.like(id).any(is_other) {
            return DIGITS_ALL;
        }
        // Whatever else shares most digits with it stands next to it.
        let at = beginning(id.as_bytes());
        let before = self.0.range(..(at, 0)).next_back();
        let after = self.0.range((Excluded((at, u64::MAX)), Unbounded)).next();
        let beside = [before, after].into_iter().flatten();
        let shared = beside.map(|(other, _)| (at ^ other).leading_zeros() / 4);
        shared
            .max()
            .map_or(DIGITS_MIN, |most| (most + 1).max(DIGITS_MIN))
    }
}

fn beginning(id: &[u8; 32]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&id[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(beginning: u64, end: u8) -> CommitId {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&beginning.to_be_bytes());
        bytes[31] = end;
        CommitId::from_bytes(bytes)
    }

    #[test]
    fn enough_digits_name_one_id_and_one_digit_less_names_two() {
        let ids = [
            id(0x1234_5678_0000_0000, 0),
            id(0x1234_5679_0000_0000, 0),
            id(0x9000_0000_0000_0000, 0),
            id(0xffff_ffff_ffff_ffff, 1),
            id(0xffff_ffff_ffff_ffff, 2),
        ];
        let index: Beginnings = ids.into_iter().zip(0..).collect();
        let digits = |id: &CommitId| index.digits_of(id, |n| ids[n as usize] != *id);
        assert_eq!(ids.each_ref().map(digits), [8, 8, 4, 64, 64]);
        let alone: Beginnings = [(ids[0], 0)].into_iter().collect();
        assert_eq!(alone.digits_of(&ids[0], |_| false), 4);
    }
}
