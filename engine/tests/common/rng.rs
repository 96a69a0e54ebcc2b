//! A small generator of pseudo-random numbers (splitmix64): a seed stands for the same run everywhere.

use std::time::Duration;

/// The generator.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `all`.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// `len` bytes that stand for `seed`; none of them is zero.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend(rng.next().to_le_bytes().map(|b| b | 1));
    }
    out.truncate(len);
    out
}

/// How long a random test runs: `ENGINE_MODEL_SECONDS`, else `default`.
pub fn budget(default: f64) -> Duration {
    let asked = std::env::var("ENGINE_MODEL_SECONDS").ok();
    Duration::from_secs_f64(asked.and_then(|s| s.parse().ok()).unwrap_or(default))
}

/// The seed that was asked for with `ENGINE_MODEL_SEED`: then only that one is run.
pub fn asked_seed() -> Option<u64> {
    std::env::var("ENGINE_MODEL_SEED").ok()?.parse().ok()
}

/// The first seed of this run: `AGENTVFS_SEED`, else a new one.
pub fn fresh_seed() -> u64 {
    let given = std::env::var("AGENTVFS_SEED").ok();
    if let Some(seed) = given.and_then(|s| s.parse().ok()) {
        return seed;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |d| d.as_nanos() as u64) % 1_000_000_007
}
