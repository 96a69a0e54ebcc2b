//! What the tests of the store share.
#![allow(dead_code)]

pub mod commits;

use std::sync::Arc;

use objstore::crash_storage::CrashStorage;
use objstore::{ObjectStore, StoreConfig};

/// Bytes that do not compress; the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// A small configuration, so that packs roll in tests.
pub fn small_packs() -> StoreConfig {
    StoreConfig {
        pack_bytes_max: 4096,
        ..StoreConfig::default()
    }
}

/// A store in memory.
pub fn mem_store() -> ObjectStore {
    open(&CrashStorage::without_log(), StoreConfig::default())
}

/// Opens the store on a simulated disk.
pub fn open(disk: &CrashStorage, cfg: StoreConfig) -> ObjectStore {
    ObjectStore::open(Arc::new(disk.clone()), cfg).unwrap()
}
