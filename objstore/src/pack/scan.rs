//! Reading a pack record by record: recovery at open, and verification.
//!
//! A record counts only if its content matches its id: after a power cut a header may be whole and its
//! data not. Where there is no valid header the next one is searched byte by byte, so damage costs the
//! records that it hit and no others.
//!
//! A record that was punched keeps its header and is passed over.

use crate::error::{AtPath, Result};
use crate::io::Segment;
use crate::pack::hole::may_be_punched;
use crate::pack::record::{RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader};
use crate::pack::{Key, Location, unpack_data};

/// Bytes read at a time.
const WINDOW_BYTES: usize = 1024 * 1024;

/// What stands at some place of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole record.
    Record { key: Key, at: Location },
    /// A record whose header is whole and whose data is not what it says.
    BadContent {
        key: Key,
        at: Location,
        what: &'static str,
    },
    /// A record whose header is whole, and whose data looks as a hole leaves it. It is damaged all the
    /// same where an index has it.
    Punched { key: Key, at: Location },
    /// Bytes without any record.
    Garbage { offset: u64, end: u64 },
}

impl Found {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        match self {
            Found::Record { at, .. } | Found::BadContent { at, .. } | Found::Punched { at, .. } => {
                u64::from(at.offset) + RECORD_HEADER_BYTES as u64 + u64::from(at.stored_len)
            }
            Found::Garbage { end, .. } => *end,
        }
    }
}

/// Goes through the records of a pack from an offset to its end.
pub(crate) struct Scanner<'a> {
    segment: &'a dyn Segment,
    path: &'a str,
    /// Salt of the records; `None` takes that of the first one found.
    salt: Option<u32>,
    pos: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Scanner<'a> {
    pub fn new(segment: &'a dyn Segment, path: &'a str, salt: Option<u32>, pos: u64) -> Self {
        let end = segment.len();
        Scanner {
            segment,
            path,
            salt,
            pos,
            end,
            window: Vec::new(),
            window_start: 0,
        }
    }

    /// The salt that the records carry, once one was found.
    pub fn salt(&self) -> Option<u32> {
        self.salt
    }

    /// What stands next; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Found>> {
        if self.pos >= self.end {
            return Ok(None);
        }
        let found = match self.header_at(self.pos)? {
            Some(header) => self.check_content(header)?,
            None => self.skip_garbage()?,
        };
        self.pos = found.end();
        Ok(Some(found))
    }

    /// The header at `pos` if it is whole, of this pack, and its record ends within it.
    fn header_at(&mut self, pos: u64) -> Result<Option<RecordHeader>> {
        let Some(bytes) = self.bytes(pos, RECORD_HEADER_BYTES)? else {
            return Ok(None);
        };
        let Some(header) = RecordHeader::decode(bytes) else {
            return Ok(None);
        };
        let record_end = pos + RECORD_HEADER_BYTES as u64 + u64::from(header.stored_len);
        let salt = *self.salt.get_or_insert(header.salt);
        Ok((record_end <= self.end && header.salt == salt).then_some(header))
    }

    fn check_content(&mut self, header: RecordHeader) -> Result<Found> {
        let mut data = vec![0; header.stored_len as usize];
        let start = self.pos + RECORD_HEADER_BYTES as u64;
        self.copy(start, &mut data)?;
        let key = (header.kind, header.id);
        let at = Location {
            offset: self.pos as u32,
            stored_len: header.stored_len,
        };
        let Err(what) = unpack_data(&header, data, 0) else {
            return Ok(Found::Record { key, at });
        };
        let mut data = vec![0; header.stored_len as usize];
        self.copy(start, &mut data)?;
        Ok(if may_be_punched(&at, &data) {
            Found::Punched { key, at }
        } else {
            Found::BadContent { key, at, what }
        })
    }

    fn skip_garbage(&mut self) -> Result<Found> {
        let offset = self.pos;
        let mut pos = offset + 1;
        while let Some(next) = self.find_magic(pos)? {
            if self.header_at(next)?.is_some() {
                return Ok(Found::Garbage { offset, end: next });
            }
            pos = next + 1;
        }
        Ok(Found::Garbage {
            offset,
            end: self.end,
        })
    }

    /// Where the bytes that begin a record stand next.
    fn find_magic(&mut self, mut pos: u64) -> Result<Option<u64>> {
        while let Some(window) = self.rest_of_window(pos)? {
            let hit = window
                .windows(RECORD_MAGIC.len())
                .position(|four| four == RECORD_MAGIC);
            if let Some(i) = hit {
                return Ok(Some(pos + i as u64));
            }
            // The magic may lie across the window's end.
            pos += (window.len() - (RECORD_MAGIC.len() - 1)) as u64;
        }
        Ok(None)
    }

    /// What is buffered from `pos` on, at least four bytes.
    fn rest_of_window(&mut self, pos: u64) -> Result<Option<&[u8]>> {
        if self.bytes(pos, RECORD_MAGIC.len())?.is_none() {
            return Ok(None);
        }
        Ok(Some(&self.window[(pos - self.window_start) as usize..]))
    }

    /// `len` bytes at `pos`, buffered; `None` where the pack is shorter.
    fn bytes(&mut self, pos: u64, len: usize) -> Result<Option<&[u8]>> {
        if pos + len as u64 > self.end {
            return Ok(None);
        }
        let window_end = self.window_start + self.window.len() as u64;
        if pos < self.window_start || pos + len as u64 > window_end {
            let take = (self.end - pos).min(WINDOW_BYTES.max(len) as u64);
            self.window.resize(take as usize, 0);
            self.window_start = pos;
            self.segment.read_at(pos, &mut self.window).at(self.path)?;
        }
        let start = (pos - self.window_start) as usize;
        Ok(Some(&self.window[start..start + len]))
    }

    fn copy(&mut self, pos: u64, out: &mut [u8]) -> Result<()> {
        if out.len() > WINDOW_BYTES {
            return self.segment.read_at(pos, out).at(self.path);
        }
        if let Some(bytes) = self.bytes(pos, out.len())? {
            out.copy_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash_storage::CrashStorage;
    use crate::id::Kind;
    use crate::io::Storage;
    use crate::pack::open::create_pack;
    use crate::pack::record::Codec;
    use crate::{ChunkId, ObjectStore, StoreConfig};
    use std::sync::Arc;

    /// Raw records of these contents, as no put makes them where they compress.
    fn raw_pack(disk: &CrashStorage, contents: &[Vec<u8>]) -> Vec<Location> {
        disk.create_dir_all("packs").unwrap();
        let pack = create_pack(disk, 1).unwrap();
        let append = |content: &Vec<u8>| {
            let header = RecordHeader {
                salt: pack.salt,
                kind: Kind::Chunk,
                codec: Codec::Raw,
                stored_len: content.len() as u32,
                raw_len: content.len() as u32,
                id: *blake3::hash(content).as_bytes(),
            };
            let offset = pack.segment.append(&[&header.encode(), content]).unwrap();
            Location {
                offset: offset as u32,
                stored_len: content.len() as u32,
            }
        };
        contents.iter().map(append).collect()
    }

    #[test]
    fn content_of_zeros_is_whole_and_a_hole_is_not() {
        let disk = CrashStorage::without_log();
        let contents = [vec![0; 20_000], vec![1; 20_000], vec![2; 20_000]];
        let at = raw_pack(&disk, &contents);
        let segment = disk.open("packs/00000001.pack").unwrap();
        segment.punch_hole(24_576..36_864).unwrap();
        let mut scanner = Scanner::new(&*segment, "p", None, 24);
        let found: Vec<Found> = std::iter::from_fn(|| scanner.next().unwrap()).collect();
        let key = |i: usize| (Kind::Chunk, *blake3::hash(&contents[i]).as_bytes());
        let whole = |i| Found::Record {
            key: key(i),
            at: at[i],
        };
        let punched = Found::Punched {
            key: key(1),
            at: at[1],
        };
        assert_eq!(found, [whole(0), punched, whole(2)]);
        // With an index and without, though the disk has holes where the zeros are, too.
        for _ in 0..2 {
            let store = ObjectStore::open(Arc::new(disk.clone()), StoreConfig::default()).unwrap();
            let has = |i: usize| store.get_chunk(&ChunkId::from_bytes(key(i).1)).is_ok();
            assert_eq!([has(0), has(1), has(2)], [true, false, true]);
            assert_eq!(store.verify().unwrap().damage, []);
            store.put_chunk(&contents[0]).unwrap();
            assert_eq!(store.stats().objects, 2, "it is there already");
            store.close().unwrap();
        }
    }

    #[test]
    fn zeros_where_an_index_has_a_record_are_damage() {
        let disk = CrashStorage::without_log();
        let contents = [vec![1; 20_000], vec![2; 20_000]];
        raw_pack(&disk, &contents);
        let config = StoreConfig::default();
        let store = ObjectStore::open(Arc::new(disk.clone()), config).unwrap();
        let segment = disk.open("packs/00000001.pack").unwrap();
        segment.punch_hole(4096..8192).unwrap();
        let damage = store.verify().unwrap().damage;
        let lost = ChunkId::from_bytes(*blake3::hash(&contents[0]).as_bytes());
        assert_eq!(damage.len(), 1);
        assert_eq!(damage[0].object, Some((Kind::Chunk, lost.to_string())));
    }
}
