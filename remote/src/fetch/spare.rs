//! Commits that come beside those that are wanted, where nothing but commits is: an ancestor is wanted only once its
//! descendant was read, and most lie in one place. What nobody wants in the end is dropped.

use crate::remote::Generation;
use objstore::exchange::Record;
use objstore::{Key, Kind, ObjectStore};
use std::collections::{HashMap, HashSet};

/// Commits of one index that are looked through for those that lie beside others.
const LOOKED_AT_MAX: usize = 1_000_000;
/// Bytes of commits that wait.
const BYTES_MAX: u64 = 32 << 20;

/// Commits that nobody wants yet.
#[derive(Debug, Default)]
pub(super) struct Spare {
    records: HashMap<Key, Record>,
    asked: HashSet<Key>,
    bytes: u64,
}

impl Spare {
    /// The record, where it came before.
    pub fn take(&mut self, key: &Key) -> Option<Record> {
        let record = self.records.remove(key)?;
        self.bytes -= record.stored_len();
        Some(record)
    }

    /// Keeps a record until it is wanted.
    pub fn put(&mut self, record: Record) {
        self.bytes += record.stored_len();
        self.records.insert(record.key(), record);
    }

    /// Commits that are in one pack with some of these, and that are neither here nor were asked for.
    pub fn beside(
        &mut self,
        generation: &Generation,
        keys: &[Key],
        store: &ObjectStore,
    ) -> Vec<Key> {
        let commits = keys.iter().filter(|key| key.0 == Kind::Commit);
        let found = commits.filter_map(|key| generation.find(key));
        let packs: HashSet<_> = found.map(|found| found.pack.hash).collect();
        self.asked.extend(keys);
        let mut beside = Vec::new();
        if packs.is_empty() {
            return beside;
        }
        let mut bytes = self.bytes;
        for index in &generation.indexes {
            if !index.packs().iter().any(|pack| packs.contains(&pack.hash)) {
                continue;
            }
            for (key, place) in index.objects_of(Kind::Commit).take(LOOKED_AT_MAX) {
                let pack = index.packs().get(place.pack as usize);
                let is_beside = pack.is_some_and(|pack| packs.contains(&pack.hash));
                let fits = bytes + u64::from(place.stored_len) <= BYTES_MAX;
                if is_beside && fits && !store.contains(key.0, &key.1) && self.asked.insert(key) {
                    bytes += u64::from(place.stored_len);
                    beside.push(key);
                }
            }
        }
        beside
    }
}
