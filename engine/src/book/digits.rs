//! How many digits of a commit's id are enough to name it.
//!
//! Invariant: as many digits as are said here name the commit in [`super::history::History::resolve`], unless a label
//! of its branch is the same word.

use objstore::CommitId;

/// Digits that a prefix of an id has at least.
const DIGITS_MIN: u32 = 4;
/// Digits that are compared; two ids that share more are named by all of their digits.
const DIGITS_COMPARED: u32 = 16;
/// Digits of a whole id.
const DIGITS_ALL: u32 = 64;

/// The beginnings of all ids that a branch knows, sorted.
#[derive(Debug, Default)]
pub struct UniqueDigits(Vec<u64>);

impl UniqueDigits {
    /// Among these ids, of which some may be the same.
    pub fn among(ids: impl Iterator<Item = CommitId>) -> UniqueDigits {
        let mut ids: Vec<CommitId> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        UniqueDigits(ids.iter().map(beginning).collect())
    }

    /// How many digits of `id` no other of them begins with.
    pub fn of(&self, id: &CommitId) -> u32 {
        let wanted = beginning(id);
        let at = self.0.partition_point(|other| *other < wanted);
        let others = self.0[at..].iter().skip(1).take(1);
        let before = at.checked_sub(1).and_then(|at| self.0.get(at));
        let shared = others
            .chain(before)
            .map(|other| digits_shared(*other, wanted));
        match shared.max().unwrap_or(0) {
            DIGITS_COMPARED => DIGITS_ALL,
            shared => (shared + 1).max(DIGITS_MIN),
        }
    }
}

fn beginning(id: &CommitId) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&id.as_bytes()[..8]);
    u64::from_be_bytes(first)
}

fn digits_shared(a: u64, b: u64) -> u32 {
    (a ^ b).leading_zeros() / 4
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
        let digits = UniqueDigits::among(ids.into_iter().chain(ids));
        let found = ids.each_ref().map(|id| digits.of(id));
        assert_eq!(found, [8, 8, 4, 64, 64]);
        assert_eq!(UniqueDigits::among([ids[0]].into_iter()).of(&ids[0]), 4);
    }
}
