//! Reproducible pseudo-random numbers: the same seed gives the same test.

use std::time::{SystemTime, UNIX_EPOCH};

/// The seed of a random test: `AGENTVFS_SEED`, else a new one. It is printed, which is seen where the test fails.
pub fn seed() -> u64 {
    let given = std::env::var("AGENTVFS_SEED").ok();
    let seed = given.map_or_else(new_seed, |text| text.parse().expect("a number"));
    println!("AGENTVFS_SEED={seed} makes this happen again");
    seed
}

fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64) % 1_000_000_007
}

/// A small generator (SplitMix64); good enough to choose test cases, nothing else.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Another seed at each call; `AGENTVFS_SEED` gives the one that is to be run again.
    pub fn fresh() -> u64 {
        let asked = std::env::var("AGENTVFS_SEED").ok();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let of_now = now.as_secs() ^ u64::from(now.subsec_nanos()) << 32;
        asked.and_then(|seed| seed.parse().ok()).unwrap_or(of_now)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// `len` bytes that belong to this point of the sequence.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        words.flatten().take(len).collect()
    }
}
