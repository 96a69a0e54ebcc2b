//! Opening packs, with recovery, and beginning new ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::RwLock;

use crate::error::{AtPath, Error, Result};
use crate::io::{Segment, Storage};
use crate::pack::index::PackIndex;
use crate::pack::record::{PACK_HEADER_BYTES, PACK_VERSION, PackHeader, RECORD_HEADER_BYTES};
use crate::pack::scan::{Found, Scanner};
use crate::pack::{Key, Location, PACK_DIR, Pack, Records, index_path, pack_path};

/// Where a record ends.
pub(crate) fn record_end(at: &Location) -> u64 {
    u64::from(at.offset) + RECORD_HEADER_BYTES as u64 + u64::from(at.stored_len)
}

/// Bytes of a record with its header.
pub(crate) fn record_len(at: &Location) -> u64 {
    RECORD_HEADER_BYTES as u64 + u64::from(at.stored_len)
}

/// Begins a pack.
pub(crate) fn create_pack(storage: &dyn Storage, number: u32) -> Result<Pack> {
    let path = pack_path(number);
    let salt = RandomState::new().hash_one(number) as u32;
    let header = PackHeader {
        version: PACK_VERSION,
        number,
        salt,
    };
    let segment = storage.create(&path).at(&path)?;
    let begun = segment
        .append(&[&header.encode()])
        .and_then(|_| storage.sync_dir(PACK_DIR));
    if let Err(source) = begun {
        // A pack whose name may vanish must not take records.
        let _ = storage.remove(&path);
        return Err(Error::io(&path, source));
    }
    let records = RwLock::new(Records::default());
    Ok(Pack {
        number,
        path,
        salt,
        segment,
        records,
        synced: AtomicU64::new(0),
        hole_bytes: AtomicU64::new(0),
    })
}

/// Opens a pack; also tells whether it can be appended to. `None` where a crash left no more than a
/// file without any record, which is removed.
pub(crate) fn open_pack(
    storage: &dyn Storage,
    number: u32,
    rebuild: bool,
) -> Result<Option<(Pack, bool)>> {
    let path = pack_path(number);
    let segment = storage.open(&path).at(&path)?;
    let header = read_header(&*segment, &path)?;
    if header.is_none() && segment.len() < (PACK_HEADER_BYTES + RECORD_HEADER_BYTES) as u64 {
        storage.remove(&path).at(&path)?;
        return Ok(None);
    }
    let index = match header {
        Some(header) if !rebuild => {
            read_index(storage, number, header.salt, segment.len()).unwrap_or_default()
        }
        _ => PackIndex::default(),
    };
    let covered = index.covered_bytes();
    let start = covered.max(PACK_HEADER_BYTES as u64);
    let mut scanner = Scanner::new(&*segment, &path, header.map(|header| header.salt), start);
    let (tail, good_end) = scan_tail(&mut scanner, start)?;
    let salt = scanner.salt().unwrap_or(0);
    if header.is_some() && good_end < segment.len() {
        tracing::info!(path, from = good_end, len = segment.len(), "torn tail cut");
        segment.truncate(good_end).at(&path)?;
    }
    let records = RwLock::new(Records {
        index: Arc::new(index),
        tail,
    });
    let synced = AtomicU64::new(covered);
    let pack = Pack {
        number,
        path,
        salt,
        segment,
        records,
        synced,
        hole_bytes: AtomicU64::new(0),
    };
    pack.look_for_holes()?;
    Ok(Some((pack, header.is_some())))
}

/// The pack's header; `None` where it is damaged.
pub(crate) fn read_header(segment: &dyn Segment, path: &str) -> Result<Option<PackHeader>> {
    if segment.len() < PACK_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = [0; PACK_HEADER_BYTES];
    segment.read_at(0, &mut bytes).at(path)?;
    match PackHeader::decode(&bytes) {
        Some(PackHeader { version, .. }) if version > PACK_VERSION => Err(Error::NewerVersion {
            found: version,
            supported: PACK_VERSION,
        }),
        header => Ok(header),
    }
}

/// The index file of a pack; `None` where it is missing, unreadable, damaged, or covers more than there is: the
/// pack is scanned then.
pub(crate) fn read_index(
    storage: &dyn Storage,
    number: u32,
    salt: u32,
    pack_len: u64,
) -> Option<PackIndex> {
    let path = index_path(number);
    let file = match storage.read_frozen(&path) {
        Ok(file) => file?,
        Err(error) => {
            tracing::error!(path, %error, "index cannot be read");
            return None;
        }
    };
    let index = PackIndex::decode(file, number, salt)?;
    (index.covered_bytes() <= pack_len).then_some(index)
}

/// The whole records from the scanner's position on, and where the last of them ends.
fn scan_tail(scanner: &mut Scanner<'_>, start: u64) -> Result<(HashMap<Key, Location>, u64)> {
    let mut tail = HashMap::new();
    let mut good_end = start;
    while let Some(found) = scanner.next()? {
        if let Found::Record { key, at } = found {
            good_end = record_end(&at);
            tail.insert(key, at);
        }
    }
    Ok((tail, good_end))
}
