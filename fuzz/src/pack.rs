//! Packs: opening with recovery, verifying, and opening once more.

use crate::{disk, seal};
use objstore::io::Storage;
use objstore::{ObjectStore, StoreConfig};
use std::sync::Arc;

/// Opening gives a store or an error; what was recovered is the same when it is opened again.
pub fn check(bytes: &[u8]) {
    open_twice(bytes);
    open_twice(&seal::pack(bytes));
}

fn open_twice(pack: &[u8]) {
    let disk = disk::with_files(&[("packs/00000001.pack", pack)]);
    let Ok(disk) = disk else { return };
    let Some(first) = objects(&disk, false) else {
        return;
    };
    assert_eq!(objects(&disk, false), Some(first), "after closing");
    assert_eq!(objects(&disk, true), Some(first), "from the packs alone");
}

fn objects(disk: &Arc<dyn Storage>, rebuild_index: bool) -> Option<usize> {
    let config = StoreConfig {
        rebuild_index,
        ..StoreConfig::default()
    };
    let store = ObjectStore::open(disk.clone(), config).ok()?;
    let _ = store.verify();
    let objects = store.stats().objects;
    let _ = store.close();
    Some(objects)
}
