//! What the benchmarks share: noise that does not compress, and a workspace on a generated project.
//!
//! `cargo bench -p benches` runs the hot paths of the engine without a mount; `benches/compare.sh` a
//! mount against the file system below it.

pub mod project;

/// `len` bytes that neither compress nor repeat, the same for the same `seed`.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        // xorshift64*, good enough for that.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::noise;

    #[test]
    fn noise_is_the_same_for_the_same_seed() {
        assert_eq!(noise(3, 20), noise(3, 20));
        assert_ne!(noise(3, 20), noise(4, 20));
        assert_eq!(noise(0, 3).len(), 3);
    }
}
