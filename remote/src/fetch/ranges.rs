//! Which records come in one request: those that lie near each other in a pack.

use crate::layout::Hash;
use crate::limits::{RANGE_BYTES, RANGE_GAP_BYTES};
use crate::remote::Found;
use objstore::Key;
use std::ops::Range;

/// Records of one request, by their place.
#[derive(Debug)]
pub(crate) struct Batch {
    pub pack: Hash,
    pub records: Vec<(Key, Found)>,
    end: u64,
}

impl Batch {
    /// The bytes that are requested.
    pub fn range(&self) -> Range<u64> {
        let first = self.records.first();
        let start = first.map_or(self.end, |(_, found)| found.place.range().start);
        start..self.end
    }
}

/// Groups records into requests.
pub(crate) fn batches(mut records: Vec<(Key, Found)>) -> Vec<Batch> {
    records.sort_unstable_by_key(|(_, f)| (f.pack.hash, f.place.offset));
    let mut all: Vec<Batch> = Vec::new();
    for (key, found) in records {
        let range = found.place.range();
        if let Some(last) = all.last_mut() {
            let start = last.range().start;
            let near = range.start <= last.end + RANGE_GAP_BYTES;
            let fits = range.end.saturating_sub(start) <= RANGE_BYTES;
            if last.pack == found.pack.hash && near && fits {
                last.end = last.end.max(range.end);
                last.records.push((key, found));
                continue;
            }
        }
        all.push(Batch {
            pack: found.pack.hash,
            records: vec![(key, found)],
            end: range.end,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::index::{PackEntry, Place};
    use objstore::Kind;

    #[test]
    fn neighbours_come_together_and_others_do_not() {
        let record = |pack: u8, offset: u32| {
            let pack = PackEntry {
                hash: [pack; 32],
                bytes: 1 << 30,
                generation: 0,
            };
            let place = Place {
                pack: 0,
                offset,
                stored_len: 944,
            };
            ((Kind::Chunk, [offset as u8; 32]), Found { pack, place })
        };
        let far = 1000 + RANGE_GAP_BYTES as u32;
        let records = [
            record(2, 24),
            record(1, 5000),
            record(1, 24),
            record(1, 1024),
            record(1, 5001 + far),
        ];
        let found = batches(records.to_vec());
        let shape: Vec<_> = found
            .iter()
            .map(|b| (b.pack[0], b.range(), b.records.len()))
            .collect();
        let last = u64::from(5001 + far);
        assert_eq!(
            shape,
            [
                (1, 24..6000, 3),
                (1, last..last + 1000, 1),
                (2, 24..1024, 1)
            ]
        );
    }

    #[test]
    fn requests_are_bounded() {
        let record = |i: u32| {
            let pack = PackEntry {
                hash: [1; 32],
                bytes: 1 << 30,
                generation: 0,
            };
            let place = Place {
                pack: 0,
                offset: 24 + i * 262_200,
                stored_len: 262_144,
            };
            ((Kind::Chunk, [0; 32]), Found { pack, place })
        };
        let found = batches((0..200).map(record).collect());
        assert!(
            found.len() > 2
                && found
                    .iter()
                    .all(|b| b.range().end - b.range().start <= RANGE_BYTES)
        );
        assert_eq!(found.iter().map(|b| b.records.len()).sum::<usize>(), 200);
    }
}
