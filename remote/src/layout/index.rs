//! Where the objects of some packs are: sorted, searched in place.

use super::{Form, Hash};
use crate::error::{Error, Result};
use objstore::exchange::{PACK_START, RECORD_START, stored_bytes_max};
use objstore::{Key, Kind};
use std::ops::Range;

const FORM: Form = Form {
    magic: *b"avfsridx",
    what: "index",
};
/// Longest one that is read or made: a million and a half objects.
pub const BYTES_MAX: u64 = 64 << 20;
/// Longest pack: one that was made for a single large object has little more than that.
pub const PACK_BYTES_MAX: u64 = 256 << 20;

const START_BYTES: usize = 28;
const PACK_BYTES: usize = 48;
const ENTRY_BYTES: usize = 44;

/// A pack of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// Its hash.
    pub hash: Hash,
    /// Its length.
    pub bytes: u64,
    /// Generation in which it became present; 0: that of the index.
    pub generation: u64,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the pack in the index.
    pub pack: u32,
    /// Offset of the record in it.
    pub offset: u32,
    /// Length of the record's data.
    pub stored_len: u32,
}

impl Place {
    /// The bytes of the record in its pack.
    pub fn range(&self) -> Range<u64> {
        let start = u64::from(self.offset);
        start..start + RECORD_START + u64::from(self.stored_len)
    }
}

/// Packs and the places of objects in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    packs: Vec<PackEntry>,
    /// The entries' bytes.
    entries: Vec<u8>,
    /// Where each kind's entries end.
    ends: [usize; 4],
}

impl Index {
    /// The index of these packs; of objects that are given twice the first counts.
    pub fn build(packs: Vec<PackEntry>, mut objects: Vec<(Key, Place)>) -> Index {
        objects.sort_by_key(|(key, _)| *key);
        objects.dedup_by_key(|(key, _)| *key);
        let mut index = Index {
            packs,
            entries: Vec::with_capacity(objects.len() * ENTRY_BYTES),
            ends: [0; 4],
        };
        for ((kind, id), place) in &objects {
            index.entries.extend_from_slice(id);
            for number in [place.pack, place.offset, place.stored_len] {
                index.entries.extend_from_slice(&number.to_le_bytes());
            }
            let from = *kind as usize - 1;
            index.ends[from..].iter_mut().for_each(|end| *end += 1);
        }
        index
    }

    /// Bytes of the object for so many packs and objects.
    pub fn bytes_for(packs: usize, objects: usize) -> u64 {
        (64 + START_BYTES + packs * PACK_BYTES + objects * ENTRY_BYTES) as u64
    }

    /// The object; the number makes it differ from all others.
    pub fn encode(&self, random: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(Index::bytes_for(self.packs.len(), self.len()) as usize);
        body.extend_from_slice(&random.to_le_bytes());
        body.extend_from_slice(&(self.packs.len() as u32).to_le_bytes());
        let mut before = 0;
        for end in self.ends {
            body.extend_from_slice(&((end - before) as u32).to_le_bytes());
            before = end;
        }
        for pack in &self.packs {
            body.extend_from_slice(&pack.hash);
            body.extend_from_slice(&pack.bytes.to_le_bytes());
            body.extend_from_slice(&pack.generation.to_le_bytes());
        }
        body.extend_from_slice(&self.entries);
        FORM.wrap(&body)
    }

    /// Reads the object of this name.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Index> {
        let body = FORM.unwrap(name, bytes)?;
        let index = parse(body).map_err(|what| Error::Damaged {
            name: name.to_owned(),
            what,
        })?;
        index.check().map_err(|what| Error::Damaged {
            name: name.to_owned(),
            what,
        })?;
        Ok(index)
    }

    /// That packs are of a bounded length, and objects sorted and within their packs.
    fn check(&self) -> Result<(), &'static str> {
        let lengths = PACK_START..=PACK_BYTES_MAX;
        if !self.packs.iter().all(|pack| lengths.contains(&pack.bytes)) {
            return Err("the length of a pack");
        }
        let mut before: Option<Key> = None;
        for (key, place) in self.objects() {
            let pack = self.packs.get(place.pack as usize);
            let pack = pack.ok_or("an object lies in no pack")?;
            let range = place.range();
            if range.start < PACK_START || range.end > pack.bytes {
                return Err("an object lies outside its pack");
            }
            if u64::from(place.stored_len) > stored_bytes_max(key.0) {
                return Err("the length of an object");
            }
            if before.is_some_and(|before| before >= key) {
                return Err("objects are not sorted");
            }
            before = Some(key);
        }
        Ok(())
    }

    /// Its packs.
    pub fn packs(&self) -> &[PackEntry] {
        &self.packs
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.ends[3]
    }

    /// True where it has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects, sorted.
    pub fn objects(&self) -> impl Iterator<Item = (Key, Place)> + '_ {
        Kind::ALL
            .into_iter()
            .flat_map(move |kind| self.objects_of(kind))
    }

    /// All objects of a kind, sorted.
    pub fn objects_of(&self, kind: Kind) -> impl Iterator<Item = (Key, Place)> + '_ {
        self.section(kind)
            .map(move |i| ((kind, self.id(i)), self.place(i)))
    }

    /// Numbers of all objects, in the order in which they lie in the packs.
    pub fn by_place(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.len() as u32).collect();
        all.sort_unstable_by_key(|number| {
            let place = self.place(*number as usize);
            (place.pack, place.offset)
        });
        all
    }

    /// The object of a number below [`Index::len`].
    pub fn object(&self, number: u32) -> (Key, Place) {
        let number = number as usize;
        let of = Kind::ALL.into_iter().zip(self.ends);
        let kind = of.filter(|(_, end)| number >= *end).count();
        (
            (Kind::ALL[kind.min(Kind::ALL.len() - 1)], self.id(number)),
            self.place(number),
        )
    }

    /// Where an object is.
    pub fn find(&self, key: &Key) -> Option<Place> {
        let Range { mut start, mut end } = self.section(key.0);
        while start < end {
            let middle = start + (end - start) / 2;
            match self.id(middle).cmp(&key.1) {
                std::cmp::Ordering::Less => start = middle + 1,
                std::cmp::Ordering::Equal => return Some(self.place(middle)),
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        None
    }

    fn section(&self, kind: Kind) -> Range<usize> {
        let i = kind as usize - 1;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        start..self.ends[i]
    }

    fn id(&self, i: usize) -> [u8; 32] {
        let mut id = [0; 32];
        id.copy_from_slice(&self.entries[i * ENTRY_BYTES..i * ENTRY_BYTES + 32]);
        id
    }

    fn place(&self, i: usize) -> Place {
        let number = |n: usize| u32_at(&self.entries, i * ENTRY_BYTES + 32 + 4 * n);
        Place {
            pack: number(0),
            offset: number(1),
            stored_len: number(2),
        }
    }
}

fn parse(body: &[u8]) -> Result<Index, &'static str> {
    let (start, rest) = body
        .split_at_checked(START_BYTES)
        .ok_or("it is too short")?;
    let count = u32_at(start, 8) as usize;
    let mut ends = [0usize; 4];
    let mut end = 0usize;
    for (i, slot) in ends.iter_mut().enumerate() {
        end = end
            .checked_add(u32_at(start, 12 + 4 * i) as usize)
            .ok_or("its counts")?;
        *slot = end;
    }
    let packs = count.checked_mul(PACK_BYTES).ok_or("its counts")?;
    let (packs, entries) = rest.split_at_checked(packs).ok_or("its counts")?;
    if end.checked_mul(ENTRY_BYTES) != Some(entries.len()) {
        return Err("its counts");
    }
    let packs = packs.chunks_exact(PACK_BYTES).map(|pack| {
        let mut hash = [0; 32];
        hash.copy_from_slice(&pack[..32]);
        PackEntry {
            hash,
            bytes: u64_at(pack, 32),
            generation: u64_at(pack, 40),
        }
    });
    Ok(Index {
        packs: packs.collect(),
        entries: entries.to_vec(),
        ends,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bytes: u64) -> PackEntry {
        PackEntry {
            hash: [9; 32],
            bytes,
            generation: 3,
        }
    }

    fn objects(count: u32) -> Vec<(Key, Place)> {
        let object = |i: u32| {
            let id = *blake3::hash(&i.to_le_bytes()).as_bytes();
            let place = Place {
                pack: 0,
                offset: 24 + 60 * i,
                stored_len: 4,
            };
            ((Kind::ALL[i as usize % 4], id), place)
        };
        (0..count).map(object).collect()
    }

    #[test]
    fn finds_what_is_there_and_nothing_else() {
        for count in [0, 1, 2, 5, 1000] {
            let made = Index::build(vec![pack(100_000)], objects(count));
            let bytes = made.encode(7);
            assert_eq!(bytes.len() as u64, Index::bytes_for(1, count as usize) - 16);
            let index = Index::decode("i", &bytes).unwrap();
            assert_eq!((index.len(), &index), (count as usize, &made));
            for (key, place) in objects(count) {
                assert_eq!(index.find(&key), Some(place));
                assert_eq!(index.find(&(key.0, [0; 32])), None);
                let other = Kind::ALL[key.0 as usize % 4];
                assert_eq!(index.find(&(other, key.1)), None);
            }
        }
    }

    #[test]
    fn places_outside_of_packs_are_refused() {
        let with = |bytes, place: Place| {
            let index = Index::build(vec![pack(bytes)], vec![((Kind::Chunk, [1; 32]), place)]);
            Index::decode("i", &index.encode(1)).is_ok()
        };
        let good = Place {
            pack: 0,
            offset: 24,
            stored_len: 20,
        };
        assert!(with(100, good));
        for bad in [
            Place { pack: 1, ..good },
            Place {
                pack: u32::MAX,
                ..good
            },
            Place { offset: 23, ..good },
            Place { offset: 25, ..good },
            Place {
                offset: u32::MAX,
                ..good
            },
            Place {
                stored_len: 21,
                ..good
            },
            Place {
                stored_len: u32::MAX,
                ..good
            },
        ] {
            assert!(!with(100, bad), "{bad:?}");
        }
        assert!(!with(PACK_BYTES_MAX + 1, good) && !with(23, good));
    }

    #[test]
    fn counts_and_orders_that_are_wrong_are_refused() {
        let good = Index::build(vec![pack(100_000)], objects(9)).encode(1);
        let body = FORM.unwrap("i", &good).unwrap().to_vec();
        for (at, to) in [
            (8, 0),
            (8, 2),
            (8, u32::MAX),
            (12, 0),
            (12, u32::MAX),
            (24, 4),
        ] {
            let mut bad = body.clone();
            bad[at..at + 4].copy_from_slice(&u32::to_le_bytes(to));
            assert!(Index::decode("i", &FORM.wrap(&bad)).is_err(), "{at} {to}");
        }
        let mut swapped = body.clone();
        let first = START_BYTES + PACK_BYTES;
        let (a, b) = (
            first..first + 32,
            first + ENTRY_BYTES..first + ENTRY_BYTES + 32,
        );
        let ids = (body[a.clone()].to_vec(), body[b.clone()].to_vec());
        swapped[a.clone()].copy_from_slice(&ids.1);
        swapped[b.clone()].copy_from_slice(&ids.0);
        assert!(Index::decode("i", &FORM.wrap(&swapped)).is_err());
        swapped[a].copy_from_slice(&ids.0);
        swapped[b].copy_from_slice(&ids.0);
        assert!(Index::decode("i", &FORM.wrap(&swapped)).is_err(), "twice");
    }
}
