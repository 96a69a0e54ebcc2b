//! Pseudo-random numbers (SplitMix64): for pauses between attempts, for names that must differ, and for the faults
//! of tests, which a seed repeats. Never for secrets.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A generator.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A generator that no other one equals.
    pub fn fresh() -> Chance {
        Chance(RandomState::new().hash_one(std::process::id()))
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word().checked_rem(end).unwrap_or(0)
    }

    /// True in one of `of` cases on average, never where that is 0.
    pub fn one_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_fresh_ones_differ() {
        let (mut a, mut b) = (Chance::new(7), Chance::new(7));
        assert!((0..100).all(|_| a.word() == b.word()));
        assert_ne!(Chance::fresh().word(), Chance::fresh().word());
        assert_eq!((a.below(0), a.one_in(0), a.one_in(1)), (0, false, true));
    }
}
