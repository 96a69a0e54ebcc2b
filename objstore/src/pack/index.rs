//! The sorted index beside a pack: from key to location, for a prefix of the pack.
//!
//! The file's bytes (40 a record) are searched in place, in a mapping of the file where there is one: hashes are
//! spread evenly, so interpolation finds one in a few steps.

use std::collections::HashSet;

use crate::Frozen;
use crate::id::{ID_BYTES, Kind};
use crate::pack::record::{u32_at, u64_at};
use crate::pack::{Key, Location};

const MAGIC: [u8; 8] = *b"avfspidx";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = ID_BYTES + 8;
const CHECKSUM_BYTES: usize = 32;

/// What of a pack the index covers, and of which pack it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    pub number: u32,
    pub salt: u32,
    /// Bytes of the pack from its start.
    pub bytes: u64,
}

/// A sorted array of keys and locations.
#[derive(Debug, Default)]
pub(crate) struct PackIndex {
    /// The file's bytes, perhaps with the checksum; empty for an index of nothing.
    bytes: Frozen,
    covered: Covered,
    /// Where each kind's entries end.
    ends: [usize; 4],
}

impl PackIndex {
    /// Sorts `entries` into an index.
    pub fn build(covered: Covered, mut entries: Vec<(Key, Location)>) -> PackIndex {
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.dedup_by_key(|(key, _)| *key);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&covered.number.to_le_bytes());
        bytes.extend_from_slice(&covered.bytes.to_le_bytes());
        for kind in Kind::ALL {
            let count = entries.iter().filter(|((of, _), _)| *of == kind).count();
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        for ((_, id), at) in &entries {
            bytes.extend_from_slice(id);
            bytes.extend_from_slice(&at.offset.to_le_bytes());
            bytes.extend_from_slice(&at.stored_len.to_le_bytes());
        }
        let ends = section_ends(&bytes).unwrap_or_default();
        PackIndex {
            bytes: Frozen::from(bytes),
            covered,
            ends,
        }
    }

    /// The index of the same part of the pack without the records at these offsets.
    pub fn without(&self, offsets: &HashSet<u32>) -> PackIndex {
        let kept = self.entries();
        let kept = kept.filter(|(_, at)| !offsets.contains(&at.offset));
        PackIndex::build(self.covered, kept.collect())
    }

    /// The bytes of the index file.
    pub fn encode(&self) -> Vec<u8> {
        let mut file = self.body().to_vec();
        let sum = checksum(&file, self.covered.salt);
        file.extend_from_slice(&sum);
        file
    }

    /// Reads an index file of the pack with this number and salt; `None` where it is not one, or
    /// damaged: it can be rebuilt.
    pub fn decode(file: Frozen, number: u32, salt: u32) -> Option<PackIndex> {
        let (body, sum) = file.split_last_chunk::<CHECKSUM_BYTES>()?;
        if body.len() < HEADER_BYTES || checksum(body, salt) != *sum || body[..8] != MAGIC {
            return None;
        }
        let covered = Covered {
            number,
            salt,
            bytes: u64_at(body, 16),
        };
        if u32_at(body, 8) != VERSION || u32_at(body, 12) != number {
            return None;
        }
        let ends = section_ends(body)?;
        Some(PackIndex {
            bytes: file,
            covered,
            ends,
        })
    }

    /// True where both have the same entries of the same part of a pack.
    pub fn is_same(&self, other: &PackIndex) -> bool {
        self.covered == other.covered && self.body() == other.body()
    }

    /// Header and entries.
    fn body(&self) -> &[u8] {
        let len = HEADER_BYTES + self.len() * ENTRY_BYTES;
        self.bytes.get(..len).unwrap_or_default()
    }

    /// Bytes of the pack that are covered.
    pub fn covered_bytes(&self) -> u64 {
        self.covered.bytes
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        (HEADER_BYTES + self.len() * ENTRY_BYTES + CHECKSUM_BYTES) as u64
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends[3]
    }

    /// Where the object stands.
    pub fn find(&self, key: &Key) -> Option<Location> {
        self.position(key).map(|i| self.location(i))
    }

    /// Which entry is the object's.
    pub fn position(&self, key: &Key) -> Option<usize> {
        let (start, end) = self.section(key.0);
        let i = self.lower_bound(start, end, &key.1);
        (i < end && self.id(i) == key.1).then_some(i)
    }

    /// All entries, sorted.
    pub fn entries(&self) -> impl Iterator<Item = (Key, Location)> + '_ {
        Kind::ALL.into_iter().flat_map(move |kind| {
            let (start, end) = self.section(kind);
            (start..end).map(move |i| ((kind, self.id_array(i)), self.location(i)))
        })
    }

    fn section(&self, kind: Kind) -> (usize, usize) {
        let i = kind as usize - 1;
        (if i == 0 { 0 } else { self.ends[i - 1] }, self.ends[i])
    }

    fn entry(&self, i: usize) -> &[u8] {
        let start = HEADER_BYTES + i * ENTRY_BYTES;
        &self.bytes[start..start + ENTRY_BYTES]
    }

    fn id(&self, i: usize) -> &[u8] {
        &self.entry(i)[..ID_BYTES]
    }

    fn id_array(&self, i: usize) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(self.id(i));
        id
    }

    /// Where the object of an entry stands.
    pub fn location(&self, i: usize) -> Location {
        let entry = self.entry(i);
        Location {
            offset: u32_at(entry, ID_BYTES),
            stored_len: u32_at(entry, ID_BYTES + 4),
        }
    }

    /// First entry in `start..end` whose id is not below `id`.
    fn lower_bound(&self, start: usize, end: usize, id: &[u8; ID_BYTES]) -> usize {
        let (mut low, mut high) = self.bracket(start, end, id);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.id(middle) < &id[..] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// A narrow range that holds the lower bound: around where the spread would put it, doubled until it
    /// does.
    fn bracket(&self, start: usize, end: usize, id: &[u8; ID_BYTES]) -> (usize, usize) {
        let guess = self.guess(start, end, id);
        let (mut low, mut high) = (guess, guess);
        let mut step = 2;
        while low > start && self.id(low - 1) >= &id[..] {
            low = low.saturating_sub(step).max(start);
            step *= 2;
        }
        step = 2;
        while high < end && self.id(high) < &id[..] {
            high = (high + step).min(end);
            step *= 2;
        }
        (low, high)
    }

    /// About where an id stands: where an even spread would put it, corrected by how far the id that
    /// stands there is from it. The first guess is wrong by the root of the number of entries, the second by
    /// the root of that.
    fn guess(&self, start: usize, end: usize, id: &[u8; ID_BYTES]) -> usize {
        let count = (end - start) as i64;
        let entries = |distance: i64| (distance * count) >> 32;
        let first = entries(rank(id));
        if first >= count {
            return start;
        }
        let off = entries(rank(id) - rank(self.id(start + first as usize)));
        start + (first + off).clamp(0, count) as usize
    }
}

/// The first four bytes of an id as a number: below 2^32.
fn rank(id: &[u8]) -> i64 {
    i64::from(u32::from_be_bytes([id[0], id[1], id[2], id[3]]))
}

fn checksum(bytes: &[u8], salt: u32) -> [u8; CHECKSUM_BYTES] {
    // With the pack's salt: the index of another pack of that number must not pass.
    let mut hasher = blake3::Hasher::new();
    hasher.update(&salt.to_le_bytes()).update(bytes);
    *hasher.finalize().as_bytes()
}

/// Where each kind's entries end, if the counts are those of the file.
fn section_ends(bytes: &[u8]) -> Option<[usize; 4]> {
    let mut ends = [0; 4];
    let mut end = 0usize;
    for (i, slot) in ends.iter_mut().enumerate() {
        end = end.checked_add(u32_at(bytes, 24 + 4 * i) as usize)?;
        *slot = end;
    }
    (end.checked_mul(ENTRY_BYTES)? == bytes.len() - HEADER_BYTES).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u32) -> Vec<(Key, Location)> {
        let kinds = [Kind::Chunk, Kind::Chunk, Kind::Tree, Kind::Commit];
        (0..count)
            .map(|i| {
                let id = *blake3::hash(&i.to_le_bytes()).as_bytes();
                (
                    (kinds[i as usize % 4], id),
                    Location {
                        offset: i,
                        stored_len: i * 2,
                    },
                )
            })
            .collect()
    }

    fn covered() -> Covered {
        Covered {
            number: 3,
            salt: 4,
            bytes: 5,
        }
    }

    #[test]
    fn finds_what_is_there_and_nothing_else() {
        for count in [0, 1, 2, 5, 1000] {
            let index = PackIndex::build(covered(), entries(count));
            let index = PackIndex::decode(index.encode().into(), 3, 4).unwrap();
            assert_eq!((index.len(), index.covered_bytes()), (count as usize, 5));
            for (key, at) in entries(count) {
                assert_eq!(index.find(&key), Some(at));
                assert_eq!(index.find(&(Kind::Manifest, key.1)), None);
            }
            for edge in [[0; ID_BYTES], [255; ID_BYTES]] {
                assert_eq!(index.find(&(Kind::Chunk, edge)), None);
            }
            assert_eq!(index.entries().count(), count as usize);
        }
    }

    #[test]
    fn what_is_taken_out_is_not_found_and_the_rest_is() {
        let all = PackIndex::build(covered(), entries(100));
        let without = all.without(&HashSet::from([3, 7, 98]));
        assert_eq!((without.len(), without.covered_bytes()), (97, 5));
        for (key, at) in entries(100) {
            let gone = [3, 7, 98].contains(&at.offset);
            assert_eq!(without.find(&key), (!gone).then_some(at));
        }
    }

    #[test]
    fn uneven_keys_are_found_too() {
        let mut skewed = entries(200);
        skewed
            .iter_mut()
            .for_each(|((_, id), _)| id[..4].fill(0xff));
        let index = PackIndex::build(covered(), skewed.clone());
        for (key, at) in skewed {
            assert_eq!(index.find(&key), Some(at));
        }
    }

    #[test]
    fn damage_and_strangers_are_refused() {
        let file = PackIndex::build(covered(), entries(3)).encode();
        for at in 0..file.len() {
            let mut bad = file.clone();
            bad[at] ^= 1;
            assert!(PackIndex::decode(bad.into(), 3, 4).is_none(), "byte {at}");
            assert!(PackIndex::decode(file[..at].to_vec().into(), 3, 4).is_none());
        }
        assert!(PackIndex::decode(file.clone().into(), 2, 4).is_none());
        assert!(PackIndex::decode(file.into(), 3, 5).is_none());
    }
}
