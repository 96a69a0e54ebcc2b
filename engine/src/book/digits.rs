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

/// Some ids, sorted, each with the most digits that it shares with any other that a branch knows.
///
/// What is wanted is sorted, not all that there is: of a long history a page is shown at a time.
#[derive(Debug, Default)]
pub struct UniqueDigits(Vec<(CommitId, u32)>);

impl UniqueDigits {
    /// Of the ids that are wanted, among all.
    pub fn of_these(
        wanted: impl Iterator<Item = CommitId>,
        all: impl Iterator<Item = CommitId>,
    ) -> UniqueDigits {
        let mut found: Vec<(CommitId, u32)> = wanted.map(|id| (id, 0)).collect();
        found.sort_unstable();
        found.dedup();
        for id in all {
            // Whatever shares most digits with an id stands beside it once all are sorted, so one of these does.
            let at = found.partition_point(|(wanted, _)| *wanted < id);
            let beside = [at.checked_sub(1), Some(at), Some(at + 1)];
            for at in beside.into_iter().flatten() {
                if let Some((wanted, most)) = found.get_mut(at).filter(|(wanted, _)| *wanted != id)
                {
                    *most = (*most).max(digits_shared(beginning(wanted), beginning(&id)));
                }
            }
        }
        UniqueDigits(found)
    }

    /// How many digits of `id`, which was wanted, no other id begins with.
    pub fn of(&self, id: &CommitId) -> u32 {
        let found = self.0.binary_search_by_key(id, |(wanted, _)| *wanted);
        match found.map_or(DIGITS_COMPARED, |at| self.0[at].1) {
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
        let all = || ids.into_iter().chain(ids);
        let digits = UniqueDigits::of_these(all(), all());
        let found = ids.each_ref().map(|id| digits.of(id));
        assert_eq!(found, [8, 8, 4, 64, 64]);
        for id in ids {
            let alone = UniqueDigits::of_these([id].into_iter(), all());
            assert_eq!(alone.of(&id), digits.of(&id));
        }
        let alone = UniqueDigits::of_these([ids[0]].into_iter(), [ids[0]].into_iter());
        assert_eq!(alone.of(&ids[0]), 4);
    }
}
