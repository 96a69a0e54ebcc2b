//! All packs of a store: finding and reading records, appending, syncing, recovery at open.
//!
//! Locks, in order: `sync`, `writer`, `packs`, one pack's `records`, `bad`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::error::{AtPath, Error, Result};
use crate::id::hex;
use crate::io::Storage;
use crate::limits::{FREE_BYTES_MIN, FREE_CHECK_BYTES, UNINDEXED_BYTES_MAX};
use crate::pack::index::{Covered, PackIndex};
use crate::pack::open::{create_pack, open_pack, read_index, record_end};
use crate::pack::record::{Codec, RECORD_HEADER_BYTES, RecordHeader};
use crate::pack::{Key, Location, PACK_DIR, Pack, index_path, pack_number, pack_path};
use crate::reserve::with_reserve;

/// Room for the indexes that rewriting a pack makes.
const COPY_SLACK_BYTES: u64 = 1 << 20;

/// The packs.
#[derive(Debug)]
pub(crate) struct PackSet {
    pub(crate) storage: Arc<dyn Storage>,
    pack_bytes_max: u64,
    /// Sorted by number.
    packs: RwLock<Vec<Arc<Pack>>>,
    writer: Mutex<Writer>,
    sync: Mutex<()>,
    poisoned: AtomicBool,
    /// Records that were found damaged, so that the same content is stored anew.
    bad: RwLock<HashMap<(u32, u32), &'static str>>,
}

#[derive(Debug)]
struct Writer {
    current: Option<Arc<Pack>>,
    next_number: u32,
    /// Bytes that were appended since free space was looked at.
    unchecked_bytes: u64,
}

impl PackSet {
    /// Opens all packs, cuts torn tails, and brings what a killed process left unsynced to the disk.
    pub fn open(storage: Arc<dyn Storage>, pack_bytes_max: u64, rebuild: bool) -> Result<PackSet> {
        storage.create_dir_all(PACK_DIR).at(PACK_DIR)?;
        let names = storage.list(PACK_DIR).at(PACK_DIR)?;
        let mut packs = Vec::new();
        let mut next_number = 1;
        let mut current = None;
        for number in names.iter().filter_map(|name| pack_number(name)) {
            next_number = next_number.max(number.saturating_add(1));
            current = None;
            if let Some((pack, appendable)) = open_pack(&*storage, number, rebuild)? {
                let pack = Arc::new(pack);
                current = appendable.then(|| pack.clone());
                packs.push(pack);
            }
        }
        let set = PackSet {
            storage,
            pack_bytes_max,
            packs: RwLock::new(packs),
            writer: Mutex::new(Writer {
                current,
                next_number,
                unchecked_bytes: 0,
            }),
            sync: Mutex::new(()),
            poisoned: AtomicBool::new(false),
            bad: RwLock::default(),
        };
        if let Err(error) = set.sync() {
            // Reading goes on; the store is poisoned for puts.
            tracing::error!(%error, "packs cannot be synced");
        }
        Ok(set)
    }

    /// True where an undamaged record with this key is known.
    pub fn contains(&self, key: &Key) -> bool {
        self.locate(key, false).is_some()
    }

    /// The verified content of a record; with `may_wait` false `None` where the disk would be waited
    /// for.
    pub fn read(&self, key: &Key, may_wait: bool) -> Result<Option<Vec<u8>>> {
        while let Some((pack, at)) = self.locate(key, false) {
            match pack.read(key, at, may_wait) {
                // What nothing needs was punched between these two steps.
                Err(Error::Corrupt { .. }) if !pack.lists(key, at) => {}
                Err(Error::Corrupt { what, path, offset }) => {
                    tracing::error!(what, path, offset, "damaged record");
                    self.bad.write().insert((pack.number, at.offset), what);
                }
                other => return other,
            }
        }
        Err(self.missing(key))
    }

    /// A record as it is stored, verified; `None` where there is none that is whole.
    pub fn read_stored(&self, key: &Key) -> Result<Option<(RecordHeader, Vec<u8>)>> {
        let Some((pack, at)) = self.locate(key, false) else {
            return Ok(None);
        };
        match pack.read_stored(key, at) {
            // Reading it as usual says what is wrong, and finds another one.
            Err(Error::Corrupt { .. }) => Ok(None),
            record => record.map(Some),
        }
    }

    /// Why nothing can be read under this key: damage, or nothing was ever there.
    fn missing(&self, key: &Key) -> Error {
        match self.locate(key, true) {
            Some((pack, at)) => {
                let known = self.bad.read().get(&(pack.number, at.offset)).copied();
                let what = known.unwrap_or("record");
                Error::Corrupt {
                    what,
                    path: pack.path.clone(),
                    offset: at.offset.into(),
                }
            }
            None => Error::ObjectMissing {
                kind: key.0,
                id: hex(&key.1),
            },
        }
    }

    /// The newest record with this key; damaged ones only with `bad_too`.
    fn locate(&self, key: &Key, bad_too: bool) -> Option<(Arc<Pack>, Location)> {
        let packs = self.packs.read();
        let hits = packs.iter().rev().filter_map(|pack| {
            let at = pack.records.read().find(key)?;
            Some((pack, at))
        });
        let mut usable = hits.filter(|(pack, at)| bad_too || !self.is_bad(pack.number, at.offset));
        usable.next().map(|(pack, at)| (pack.clone(), at))
    }

    /// True for a record that was found damaged.
    pub fn is_bad(&self, number: u32, offset: u32) -> bool {
        let bad = self.bad.read();
        !bad.is_empty() && bad.contains_key(&(number, offset))
    }

    /// Appends a record unless there is one with its key by now. One that was accepted before, when
    /// the disk had room, uses the space that is kept in reserve.
    pub fn append(
        &self,
        key: Key,
        (codec, raw_len, data): (Codec, usize, &[u8]),
        accepted: bool,
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        self.check_usable()?;
        if self.contains(&key) {
            return Ok(());
        }
        if accepted {
            return self.write_surely(&mut writer, key, codec, raw_len, data);
        }
        let record_len = (RECORD_HEADER_BYTES + data.len()) as u64;
        self.check_space(&mut writer, record_len)?;
        self.write_record(&mut writer, key, codec, raw_len, data)
    }

    /// Appends a record that is there already, so that the old one can go. Uses the space that is
    /// kept in reserve.
    pub fn append_copy(&self, key: Key, header: &RecordHeader, data: &[u8]) -> Result<()> {
        let mut writer = self.writer.lock();
        self.check_usable()?;
        let raw_len = header.raw_len as usize;
        self.write_surely(&mut writer, key, header.codec, raw_len, data)
    }

    /// As [`PackSet::write_record`], with the reserve of the disk.
    fn write_surely(
        &self,
        writer: &mut Writer,
        key: Key,
        codec: Codec,
        raw_len: usize,
        data: &[u8],
    ) -> Result<()> {
        with_reserve(&*self.storage, Error::is_no_space, || {
            self.write_record(writer, key, codec, raw_len, data)
        })
    }

    /// True where the disk, with its reserve, takes copies of so many bytes.
    pub fn has_room_for_copies(&self, bytes: u64) -> bool {
        let free = self.storage.free_bytes().unwrap_or(0);
        let room = free.saturating_add(self.storage.reserve_bytes());
        room >= bytes.saturating_add(COPY_SLACK_BYTES)
    }

    fn write_record(
        &self,
        writer: &mut Writer,
        key: Key,
        codec: Codec,
        raw_len: usize,
        data: &[u8],
    ) -> Result<()> {
        let record_len = (RECORD_HEADER_BYTES + data.len()) as u64;
        let pack = self.pack_with_room(writer, record_len)?;
        let header = RecordHeader {
            salt: pack.salt,
            kind: key.0,
            codec,
            stored_len: data.len() as u32,
            raw_len: raw_len as u32,
            id: key.1,
        };
        let offset = pack
            .segment
            .append(&[&header.encode(), data])
            .at(&pack.path)?;
        let at = Location {
            offset: offset as u32,
            stored_len: data.len() as u32,
        };
        pack.records.write().tail.insert(key, at);
        Ok(())
    }

    /// True where records of so many bytes would not be refused.
    pub fn has_space_for(&self, len: u64) -> bool {
        let free = self.storage.free_bytes();
        free.is_ok_and(|free| free >= FREE_BYTES_MIN + len)
    }

    /// Refuses a record where the disk is nearly full.
    fn check_space(&self, writer: &mut Writer, len: u64) -> Result<()> {
        writer.unchecked_bytes += len;
        let in_use = self.storage.is_reserve_in_use();
        if writer.unchecked_bytes < FREE_CHECK_BYTES && !in_use {
            return Ok(());
        }
        if in_use || self.storage.free_bytes().at(PACK_DIR)? < FREE_BYTES_MIN + len {
            return Err(io::Error::from(io::ErrorKind::StorageFull)).at(PACK_DIR);
        }
        writer.unchecked_bytes = 0;
        Ok(())
    }

    /// True once a sync failed.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn check_usable(&self) -> Result<()> {
        if self.is_poisoned() {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// The pack to append to: the current one, or a new one where it is full.
    fn pack_with_room(&self, writer: &mut Writer, record_len: u64) -> Result<Arc<Pack>> {
        if let Some(pack) = &writer.current
            && (pack.segment.len() + record_len <= self.pack_bytes_max
                || pack.records.read().len() == 0)
        {
            return Ok(pack.clone());
        }
        let number = writer.next_number;
        writer.next_number += 1;
        let pack = Arc::new(create_pack(&*self.storage, number)?);
        self.packs.write().push(pack.clone());
        writer.current = Some(pack.clone());
        Ok(pack)
    }

    /// Brings all records appended before the call to stable storage.
    pub fn sync(&self) -> Result<()> {
        self.check_usable()?;
        if self.unsynced().is_empty() {
            return Ok(());
        }
        let _alone = self.sync.lock();
        self.check_usable()?;
        for pack in self.unsynced() {
            let len = pack.segment.len();
            if let Err(source) = pack.segment.sync() {
                self.poisoned.store(true, Ordering::Release);
                return Err(Error::io(&pack.path, source));
            }
            pack.synced.store(len, Ordering::Release);
        }
        self.write_indexes(UNINDEXED_BYTES_MAX);
        Ok(())
    }

    fn unsynced(&self) -> Vec<Arc<Pack>> {
        let packs = self.packs.read();
        let unsynced = packs
            .iter()
            .filter(|p| p.synced.load(Ordering::Acquire) < p.segment.len());
        unsynced.cloned().collect()
    }

    /// Syncs and writes all indexes, so that the next open reads no pack.
    pub fn close(&self) -> Result<()> {
        self.sync()?;
        let _alone = self.sync.lock();
        self.write_indexes(0);
        Ok(())
    }

    /// Writes the index of each full pack, and of the current one where more than `slack` bytes are
    /// not covered. An index that cannot be written costs time at the next open, nothing else.
    fn write_indexes(&self, slack: u64) {
        let current = self.writer.lock().current.as_ref().map(|pack| pack.number);
        let packs = self.packs.read().clone();
        for pack in packs {
            let synced = pack.synced.load(Ordering::Acquire);
            let uncovered = synced.saturating_sub(pack.records.read().index.covered_bytes());
            let due = if current == Some(pack.number) {
                uncovered > slack
            } else {
                uncovered > 0
            };
            if due && let Err(error) = self.write_index(&pack, synced) {
                tracing::warn!(%error, "index not written");
            }
        }
    }

    /// Writes the index of what is in the first `synced` bytes. The caller holds `sync`.
    fn write_index(&self, pack: &Pack, synced: u64) -> Result<()> {
        let path = index_path(pack.number);
        loop {
            let (before, index) = index_up_to(pack, synced);
            self.storage.replace(&path, &index.encode()).at(&path)?;
            // The file takes its place in memory, where it can be mapped.
            let written = read_index(&*self.storage, pack.number, pack.salt, synced);
            let index = written.filter(|file| file.is_same(&index)).unwrap_or(index);
            let mut records = pack.records.write();
            // gc may have taken records out meanwhile, which must not come back.
            if Arc::ptr_eq(&records.index, &before) {
                records.index = Arc::new(index);
                records.tail.retain(|_, at| record_end(at) > synced);
                records.tail.shrink_to_fit();
                return Ok(());
            }
        }
    }

    /// The newest record with this key that is not known to be damaged, and its pack's number.
    pub fn find(&self, key: &Key) -> Option<(u32, Location)> {
        self.locate(key, false).map(|(pack, at)| (pack.number, at))
    }

    /// Takes no more records into this pack, and gives it an index of all of it.
    pub fn retire(&self, pack: &Arc<Pack>) -> Result<()> {
        {
            let mut writer = self.writer.lock();
            let current = writer.current.as_ref();
            if current.is_some_and(|c| c.number == pack.number) {
                writer.current = None;
            }
        }
        self.sync()?;
        let _alone = self.sync.lock();
        if pack.records.read().tail.is_empty() {
            return Ok(());
        }
        self.write_index(pack, pack.synced.load(Ordering::Acquire))
    }

    /// Writes the index of a pack anew, whatever its file holds.
    pub fn reindex(&self, pack: &Arc<Pack>) -> Result<()> {
        self.sync()?;
        let _alone = self.sync.lock();
        self.write_index(pack, pack.synced.load(Ordering::Acquire))
    }

    /// Copies what can be read of a pack into a new one and removes it.
    pub fn salvage(&self, pack: &Arc<Pack>) -> Result<()> {
        self.retire(pack)?;
        let index = pack.records.read().index.clone();
        for (key, at) in index.entries() {
            match pack.read_stored(&key, at) {
                Ok((header, data)) => self.append_copy(key, &header, &data)?,
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(e),
            }
        }
        self.sync()?;
        self.forget(pack.number);
        self.delete(pack.number)?;
        self.sync_names()
    }

    /// Removes the files of a pack that is in no list any more. The index first: a pack without one
    /// is read, an index without a pack is nothing.
    pub fn delete(&self, number: u32) -> Result<()> {
        for path in [index_path(number), pack_path(number)] {
            self.storage.remove(&path).at(&path)?;
        }
        Ok(())
    }

    /// Looks for nothing in this pack any more.
    pub fn forget(&self, number: u32) {
        self.packs.write().retain(|p| p.number != number);
    }

    /// Brings the removal of files to stable storage.
    pub fn sync_names(&self) -> Result<()> {
        self.storage.sync_dir(PACK_DIR).at(PACK_DIR)
    }

    /// The packs as they are now.
    pub fn packs(&self) -> Vec<Arc<Pack>> {
        self.packs.read().clone()
    }
}

/// An index of what is in the first `synced` bytes of a pack, and the one that it takes the place of.
fn index_up_to(pack: &Pack, synced: u64) -> (Arc<PackIndex>, PackIndex) {
    let records = pack.records.read();
    let tail = records.tail.iter().map(|(key, at)| (*key, *at));
    // The tail first: where a damaged record was stored anew, the later one counts.
    let entries = tail
        .filter(|(_, at)| record_end(at) <= synced)
        .chain(records.index.entries());
    let mut by_key = HashMap::new();
    entries.for_each(|(key, at)| {
        by_key.entry(key).or_insert(at);
    });
    let covered = Covered {
        number: pack.number,
        salt: pack.salt,
        bytes: synced,
    };
    let index = PackIndex::build(covered, by_key.into_iter().collect());
    (records.index.clone(), index)
}
