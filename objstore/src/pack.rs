//! Packs: append-only files that hold the objects, and holes where nothing needs one any more (`hole`).
//! They are the truth; the index beside each can be rebuilt from it.

pub(crate) mod hole;
pub(crate) mod index;
pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod set;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::RwLock;

use crate::compress;
use crate::error::{AtPath, Error, Result};
use crate::id::{ID_BYTES, Kind};
use crate::io::Segment;
use index::PackIndex;
use record::{Codec, RECORD_HEADER_BYTES, RecordHeader};

/// Directory of the packs.
pub(crate) const PACK_DIR: &str = "packs";

/// What an object is looked up by. The kind belongs to it: a file may hold the bytes of a commit.
pub type Key = (Kind, [u8; ID_BYTES]);

/// Where a record stands in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Offset of its header.
    pub offset: u32,
    /// Length of its data after the header.
    pub stored_len: u32,
}

/// Path of a pack.
pub(crate) fn pack_path(number: u32) -> String {
    format!("{PACK_DIR}/{number:08}.pack")
}

/// Path of the index beside a pack.
pub(crate) fn index_path(number: u32) -> String {
    format!("{PACK_DIR}/{number:08}.idx")
}

/// The number of the pack with this file name.
pub(crate) fn pack_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".pack")?;
    let plain = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// One pack and what is known of its records.
#[derive(Debug)]
pub(crate) struct Pack {
    pub number: u32,
    pub path: String,
    /// Random number that its records carry: data that happens to look like a record does not.
    pub salt: u32,
    pub segment: Arc<dyn Segment>,
    pub records: RwLock<Records>,
    /// Everything before this offset is on stable storage.
    pub synced: AtomicU64,
    /// Bytes that were punched out of it.
    pub hole_bytes: AtomicU64,
}

/// The records of a pack: those that the index file covers and those after.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub index: Arc<PackIndex>,
    pub tail: HashMap<Key, Location>,
}

impl Records {
    /// Where the record with this key stands.
    pub fn find(&self, key: &Key) -> Option<Location> {
        self.tail.get(key).copied().or_else(|| self.index.find(key))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.tail.len() + self.index.len()
    }
}

impl Pack {
    /// Reads and verifies a record; with `may_wait` false `Ok(None)` where the disk would be waited for.
    pub fn read(&self, key: &Key, at: Location, may_wait: bool) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; RECORD_HEADER_BYTES + at.stored_len as usize];
        let offset = u64::from(at.offset);
        if may_wait {
            self.segment.read_at(offset, &mut bytes).at(&self.path)?;
        } else if !self
            .segment
            .try_read_at(offset, &mut bytes)
            .at(&self.path)?
        {
            return Ok(None);
        }
        match unpack(bytes, key, at.stored_len) {
            Ok(raw) => Ok(Some(raw)),
            Err(what) => Err(Error::Corrupt {
                what,
                path: self.path.clone(),
                offset,
            }),
        }
    }
}

impl Pack {
    /// The header and the data of a record as they are stored, its content verified.
    pub fn read_stored(&self, key: &Key, at: Location) -> Result<(RecordHeader, Vec<u8>)> {
        let mut bytes = vec![0; RECORD_HEADER_BYTES + at.stored_len as usize];
        let offset = u64::from(at.offset);
        self.segment.read_at(offset, &mut bytes).at(&self.path)?;
        let checked = unpack(bytes.clone(), key, at.stored_len);
        match (checked, RecordHeader::decode(&bytes)) {
            (Ok(_), Some(header)) => {
                bytes.drain(..RECORD_HEADER_BYTES);
                Ok((header, bytes))
            }
            (checked, _) => Err(Error::Corrupt {
                what: checked.err().unwrap_or("record header"),
                path: self.path.clone(),
                offset,
            }),
        }
    }
}

/// The content of a record that must be the one of `key`.
fn unpack(record: Vec<u8>, key: &Key, stored_len: u32) -> Result<Vec<u8>, &'static str> {
    let header = RecordHeader::decode(&record).ok_or("record header")?;
    if (header.kind, header.id) != *key || header.stored_len != stored_len {
        return Err("record is another one");
    }
    unpack_data(&header, record, RECORD_HEADER_BYTES)
}

/// The verified content of a record whose data begins at `start` of `bytes` and ends with it.
pub(crate) fn unpack_data(
    header: &RecordHeader,
    mut bytes: Vec<u8>,
    start: usize,
) -> Result<Vec<u8>, &'static str> {
    let raw = match header.codec {
        Codec::Raw => {
            bytes.drain(..start);
            bytes
        }
        Codec::Zstd => compress::decompress(&bytes[start..], header.raw_len as usize)
            .map_err(|_| "compressed data")?,
    };
    if raw.len() != header.raw_len as usize || *blake3::hash(&raw).as_bytes() != header.id {
        return Err("content does not match its id");
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pack_names_are_packs() {
        assert_eq!(pack_number("00000012.pack"), Some(12));
        for name in [
            "12.pack",
            "00000012.idx",
            "0000001x.pack",
            "+0000012.pack",
            ".pack",
        ] {
            assert_eq!(pack_number(name), None, "{name}");
        }
        assert_eq!(pack_path(7), "packs/00000007.pack");
    }
}
