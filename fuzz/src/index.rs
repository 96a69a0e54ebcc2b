//! The index beside a pack.

use crate::{disk, seal};
use objstore::{ChunkId, ObjectStore, StoreConfig};

const CHUNK: &[u8] = b"a chunk";
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 40;

/// Whatever an index claims, no bytes come out that do not hash to the id they were asked by.
pub fn check(bytes: &[u8]) {
    with_index(bytes);
    with_index(&seal::index(bytes));
}

fn with_index(index: &[u8]) {
    let disk = disk::with_files(&[
        ("packs/00000001.pack", &pack()),
        ("packs/00000001.idx", index),
    ]);
    let Ok(disk) = disk else { return };
    let Ok(store) = ObjectStore::open(disk, StoreConfig::default()) else {
        return;
    };
    let _ = store.verify();
    let own = ChunkId::from_bytes(*blake3::hash(CHUNK).as_bytes());
    for id in claimed(index).chain([own]) {
        if let Ok(found) = store.get_chunk(&id) {
            assert_eq!(blake3::hash(&found).as_bytes(), id.as_bytes());
        }
    }
}

/// Ids in the entries.
fn claimed(index: &[u8]) -> impl Iterator<Item = ChunkId> + '_ {
    let entries = index.get(HEADER_BYTES..).unwrap_or_default();
    let ids = entries.chunks(ENTRY_BYTES).take(64);
    ids.filter_map(|entry| entry.first_chunk().copied().map(ChunkId::from_bytes))
}

/// A pack of one chunk.
pub(crate) fn pack() -> Vec<u8> {
    let mut b = vec![0; 24 + 56];
    b[24 + 8] = 1;
    let len = (CHUNK.len() as u32).to_le_bytes();
    b[24 + 12..24 + 16].copy_from_slice(&len);
    b[24 + 16..24 + 20].copy_from_slice(&len);
    b.extend_from_slice(CHUNK);
    seal::pack(&b)
}
