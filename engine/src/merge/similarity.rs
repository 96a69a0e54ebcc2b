//! How much of one file is in another, as git counts it for renames: by lines, or pieces of 64 bytes,
//! hashed into a table and counted.

use super::version::is_binary;

/// Full marks: the same content.
pub(super) const SCORE_MAX: u64 = 60_000;
/// Half of it: what makes a rename.
pub(super) const SCORE_MIN: u64 = 30_000;
/// What makes a rename of files that keep their name in another directory: half way up from
/// [`SCORE_MIN`], since nothing else is compared then.
pub(super) const SCORE_BASENAME_MIN: u64 = 45_000;

/// Longest piece of a line.
const PIECE_BYTES_MAX: usize = 64;
/// Number of different hashes; a prime, so that all bits count.
const HASHES: u32 = 107_927;

/// The pieces of a file: (hash, bytes), sorted by hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces(Vec<(u32, u32)>);

impl Pieces {
    pub fn of(bytes: &[u8]) -> Pieces {
        let text = !is_binary(bytes);
        let mut all = Vec::new();
        let mut piece = Piece::default();
        for (at, byte) in bytes.iter().enumerate() {
            // A carriage return before the end of a line does not count in text.
            if text && *byte == b'\r' && bytes.get(at + 1) == Some(&b'\n') {
                continue;
            }
            piece.add(*byte);
            if piece.len as usize == PIECE_BYTES_MAX || *byte == b'\n' {
                all.push(std::mem::take(&mut piece).finish());
            }
        }
        if piece.len > 0 {
            all.push(piece.finish());
        }
        all.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (hash, len) in all {
            match joined.last_mut() {
                Some(last) if last.0 == hash => last.1 = last.1.saturating_add(len),
                _ => joined.push((hash, len)),
            }
        }
        Pieces(joined)
    }

    /// Bytes of these pieces that the other file has too.
    fn common(&self, other: &Pieces) -> u64 {
        let mut rest = other.0.iter().peekable();
        let mut bytes = 0;
        for (hash, len) in &self.0 {
            while rest.peek().is_some_and(|(h, _)| h < hash) {
                rest.next();
            }
            if let Some((_, other)) = rest.next_if(|(h, _)| h == hash) {
                bytes += u64::from(*len.min(other));
            }
        }
        bytes
    }
}

/// The hash of one piece: two words that turn into each other.
#[derive(Default)]
struct Piece {
    low: u32,
    high: u32,
    len: u32,
}

impl Piece {
    fn add(&mut self, byte: u8) {
        let before = self.low;
        self.low = (self.low << 7) ^ (self.high >> 25);
        self.high = (self.high << 7) ^ (before >> 25);
        self.low = self.low.wrapping_add(u32::from(byte));
        self.len += 1;
    }

    fn finish(self) -> (u32, u32) {
        let hash = self.low.wrapping_add(self.high.wrapping_mul(0x61));
        (hash % HASHES, self.len)
    }
}

/// True where lengths alone rule out that two files reach `min`.
pub(super) fn is_hopeless(a: u64, b: u64, min: u64) -> bool {
    let (longer, shorter) = (u128::from(a.max(b)), u128::from(a.min(b)));
    longer * u128::from(SCORE_MAX - min) < (longer - shorter) * u128::from(SCORE_MAX)
}

/// How similar two files are, from 0 to [`SCORE_MAX`].
pub(super) fn score(from: &Pieces, to: &Pieces, from_len: u64, to_len: u64) -> u64 {
    match from_len.max(to_len) {
        0 => 0,
        longer => from.common(to) * SCORE_MAX / longer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(a: &str, b: &str) -> u64 {
        let (p, q) = (Pieces::of(a.as_bytes()), Pieces::of(b.as_bytes()));
        score(&p, &q, a.len() as u64, b.len() as u64)
    }

    #[test]
    fn the_same_is_full_marks_and_nothing_common_none() {
        assert_eq!(similarity("a\nb\nc\n", "a\nb\nc\n"), SCORE_MAX);
        assert_eq!(similarity("a\nb\n", "x\ny\n"), 0);
    }

    #[test]
    fn half_of_the_bytes_is_half_of_the_marks() {
        assert_eq!(similarity("aa\nbb\n", "bb\ncc\n"), SCORE_MIN);
    }

    #[test]
    fn lengths_rule_out_what_cannot_be() {
        assert!(is_hopeless(10, 21, SCORE_MIN));
        assert!(!is_hopeless(10, 20, SCORE_MIN));
        assert!(!is_hopeless(0, 0, SCORE_MIN));
    }
}
