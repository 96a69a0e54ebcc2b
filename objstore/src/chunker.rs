//! Content-defined boundaries: FastCDC (the 2020 variant) with 16 KiB at least, 64 KiB aimed at, 256 KiB
//! at most.
//!
//! Where a chunk that begins at some byte ends depends on nothing before that byte, and on at most
//! [`LOOKAHEAD_BYTES`] bytes after its end. The gear table of the pinned crate is part of the format; a
//! test holds known boundaries.

use std::sync::OnceLock;

use fastcdc::v2020::{self, Normalization};

use crate::limits::{CHUNK_BYTES_AVG, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};

/// The cut decides at the byte after a chunk, and looks at bytes in pairs: so many bytes after a chunk
/// must be the same (and exist) for it to end where it did.
pub const LOOKAHEAD_BYTES: u64 = 2;

/// Length of the first chunk of `data`, which must hold [`CHUNK_BYTES_MAX`] bytes and the look-ahead, or
/// all that is left of the segment.
pub fn cut(data: &[u8]) -> usize {
    static MASKS: OnceLock<(u64, u64)> = OnceLock::new();
    let (small, large) =
        *MASKS.get_or_init(|| v2020::select_masks(CHUNK_BYTES_AVG, Normalization::Level1));
    let (min, avg, max) = (CHUNK_BYTES_MIN, CHUNK_BYTES_AVG, CHUNK_BYTES_MAX);
    v2020::cut(data, min, avg, max, small, large, small << 1, large << 1).1
}

/// What the chunker makes of a known input, as 64 hex digits: stores whose chunkers differ share no chunks.
pub fn fingerprint() -> &'static str {
    static FINGERPRINT: OnceLock<String> = OnceLock::new();
    FINGERPRINT.get_or_init(|| {
        let mut noise = vec![0; 1 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let mut hasher = blake3::Hasher::new();
        for length in cut_all(&noise).into_iter().chain(cut_all(&[0; 1 << 19])) {
            hasher.update(&(length as u64).to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    })
}

/// Lengths of all chunks of a segment.
pub fn cut_all(mut data: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while !data.is_empty() {
        let len = cut(data);
        lengths.push(len);
        data = &data[len..];
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn bounds_are_kept() {
        let data = noise(3_000_000);
        let lengths = cut_all(&data);
        assert_eq!(lengths.iter().sum::<usize>(), data.len());
        let (last, others) = lengths.split_last().unwrap();
        assert!(
            others
                .iter()
                .all(|len| (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(len))
        );
        assert!(*last <= CHUNK_BYTES_MAX);
        assert_eq!(
            cut_all(&vec![0; 600_000]),
            [CHUNK_BYTES_MAX, CHUNK_BYTES_MAX, 75_712]
        );
    }

    #[test]
    fn small_data_is_one_chunk() {
        for len in [1, 2, 1000, CHUNK_BYTES_MIN] {
            assert_eq!(cut_all(&noise(len)), [len]);
        }
    }
}
