//! Packs and their indexes: what is put comes back, damage is seen and costs nothing but itself.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{mem_store, noise, open, small_packs};
use objstore::crash_storage::{CrashStorage, Fault, FaultOp};
use objstore::io::Storage;
use objstore::{ChunkId, Error, Kind, ObjectStore, StoreConfig};

/// Puts `count` chunks of some hundred bytes, every other compressible.
fn put_some(store: &ObjectStore, seed: u64, count: u64) -> Vec<(ChunkId, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let bytes = if i % 2 == 0 {
                noise(seed + i, 100 + i as usize * 7)
            } else {
                format!("line {i} of {seed}\n").repeat(20).into_bytes()
            };
            (store.put_chunk(&bytes).unwrap(), bytes)
        })
        .collect()
}

fn assert_all_there(store: &ObjectStore, chunks: &[(ChunkId, Vec<u8>)]) {
    for (id, bytes) in chunks {
        assert_eq!(*store.get_chunk(id).unwrap(), *bytes);
        assert!(store.contains(Kind::Chunk, id.as_bytes()));
    }
}

#[test]
fn equal_content_is_stored_once() {
    let store = mem_store();
    let bytes = noise(1, 100_000);
    let first = store.put_chunk(&bytes).unwrap();
    let stats = store.stats();
    assert_eq!(store.put_chunk(&bytes).unwrap(), first);
    assert_eq!(store.stats(), stats);
    assert_eq!((stats.packs, stats.objects), (1, 1));
    assert!(stats.bytes < 100_200);
}

#[test]
fn text_is_compressed_and_noise_is_not() {
    let store = mem_store();
    let text = b"fn main() { println!(\"hello\"); }\n".repeat(1000);
    let id = store.put_chunk(&text).unwrap();
    assert!(store.stats().bytes < text.len() as u64 / 10);
    assert_eq!(*store.get_chunk(&id).unwrap(), text);
    assert!(
        store.put_chunk(&noise(0, 300_000)).is_err(),
        "no chunk is that large"
    );
    let empty = store.put_chunk(b"").unwrap();
    assert!(store.get_chunk(&empty).unwrap().is_empty());
}

#[test]
fn missing_objects_are_told() {
    let store = mem_store();
    let id = ChunkId::from_bytes([3; 32]);
    let error = store.get_chunk(&id).unwrap_err();
    assert!(
        matches!(
            error,
            Error::ObjectMissing {
                kind: Kind::Chunk,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn chunks_survive_reopening_with_and_without_index() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let mut chunks = put_some(&store, 0, 60);
    assert!(store.stats().packs > 3);
    drop(store);
    let store = open(&disk, small_packs());
    assert_all_there(&store, &chunks);
    chunks.extend(put_some(&store, 1000, 10));
    store.close().unwrap();
    let with_index = open(&disk, small_packs());
    assert_all_there(&with_index, &chunks);
    let stats = with_index.stats();
    for path in disk.paths().iter().filter(|path| path.ends_with(".idx")) {
        disk.remove(path).unwrap();
    }
    let store = open(&disk, small_packs());
    assert_all_there(&store, &chunks);
    assert_eq!(store.stats(), stats);
    let rebuilt = open(
        &disk,
        StoreConfig {
            rebuild_index: true,
            ..small_packs()
        },
    );
    assert_all_there(&rebuilt, &chunks);
    assert_eq!(rebuilt.verify().unwrap().damage, []);
}

#[test]
fn appending_goes_on_in_the_last_pack() {
    let disk = CrashStorage::without_log();
    let mut chunks = Vec::new();
    for round in 0..5 {
        let store = open(&disk, StoreConfig::default());
        chunks.extend(put_some(&store, round * 100, 3));
        store.close().unwrap();
    }
    let store = open(&disk, StoreConfig::default());
    assert_all_there(&store, &chunks);
    assert_eq!(store.stats().packs, 1);
}

#[test]
fn damaged_indexes_are_made_anew() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let chunks = put_some(&store, 0, 30);
    store.close().unwrap();
    let indexes: Vec<String> = disk
        .paths()
        .into_iter()
        .filter(|p| p.ends_with(".idx"))
        .collect();
    for (i, path) in indexes.iter().enumerate() {
        disk.flip_bit(path, 11 * i as u64, 3);
    }
    let store = open(&disk, small_packs());
    assert_all_there(&store, &chunks);
    assert_eq!(
        store.verify().unwrap().damage.len(),
        1,
        "the pack that is still open has no new one"
    );
    store.close().unwrap();
    assert_eq!(store.verify().unwrap().damage, []);
}

#[test]
fn an_index_of_more_than_there_is_does_not_count() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, StoreConfig::default());
    let chunks = put_some(&store, 0, 3);
    store.close().unwrap();
    let path = "packs/00000001.pack";
    let len = store.stats().bytes;
    drop(store);
    disk.open(path).unwrap().truncate(len - 1).unwrap();
    let store = open(&disk, StoreConfig::default());
    assert_all_there(&store, &chunks[..2]);
    assert!(store.get_chunk(&chunks[2].0).unwrap_err().is_damage());
    put_some(&store, 0, 3);
    assert_all_there(&store, &chunks);
}

#[test]
fn torn_tails_are_cut_at_any_length() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, StoreConfig::default());
    let chunks = put_some(&store, 0, 3);
    let path = "packs/00000001.pack";
    let whole = disk.read(path).unwrap().unwrap();
    let last = whole.len() - (56 + chunks[2].1.len());
    for len in last..whole.len() {
        let disk = CrashStorage::without_log();
        disk.create_dir_all("packs").unwrap();
        disk.replace(path, &whole[..len]).unwrap();
        let store = open(&disk, StoreConfig::default());
        assert_all_there(&store, &chunks[..2]);
        assert!(store.get_chunk(&chunks[2].0).is_err());
        assert_eq!(store.stats().bytes, last as u64);
        let again = store.put_chunk(&chunks[2].1).unwrap();
        assert_eq!(*store.get_chunk(&again).unwrap(), chunks[2].1);
    }
}

/// Flips each bit of a pack, with the index and without, and looks at what can still be read.
#[test]
fn flipped_bits_never_give_wrong_bytes_and_spare_the_other_records() {
    for with_index in [true, false] {
        let disk = CrashStorage::without_log();
        let store = open(&disk, StoreConfig::default());
        let chunks: Vec<_> = (0..3u64)
            .map(|i| noise(i, 40 + i as usize))
            .map(|bytes| (store.put_chunk(&bytes).unwrap(), bytes))
            .collect();
        if with_index {
            store.close().unwrap();
        }
        let path = "packs/00000001.pack";
        let len = disk.read(path).unwrap().unwrap().len() as u64;
        for offset in 0..len {
            disk_with_flip(&disk, path, offset, &chunks);
        }
    }
}

fn disk_with_flip(disk: &CrashStorage, path: &str, offset: u64, chunks: &[(ChunkId, Vec<u8>)]) {
    let copy = CrashStorage::without_log();
    copy.create_dir_all("packs").unwrap();
    for file in disk.paths() {
        copy.replace(&file, &disk.read(&file).unwrap().unwrap())
            .unwrap();
    }
    copy.flip_bit(path, offset, (offset % 8) as u8);
    let store = open(&copy, StoreConfig::default());
    let lost: Vec<_> = chunks
        .iter()
        .filter(|(id, bytes)| match store.get_chunk(id) {
            Ok(found) => {
                assert_eq!(*found, *bytes, "byte {offset}");
                false
            }
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                true
            }
        })
        .collect();
    assert!(lost.len() <= 1, "byte {offset} cost {} records", lost.len());
    assert_eq!(offset >= 24, lost.len() == 1, "byte {offset}");
    for (_, bytes) in lost {
        let id = store.put_chunk(bytes).unwrap();
        assert_eq!(
            *store.get_chunk(&id).unwrap(),
            *bytes,
            "storing it again mends it"
        );
    }
}

#[test]
fn verify_lists_each_damaged_record() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, StoreConfig::default());
    let chunks = put_some(&store, 0, 6);
    store.close().unwrap();
    assert_eq!(store.verify().unwrap().records, 6);
    let path = "packs/00000001.pack";
    disk.flip_bit(path, 24 + 56 + 5, 0);
    let report = store.verify().unwrap();
    assert_eq!((report.records, report.damage.len()), (5, 1));
    let object = report.damage[0].object.clone().unwrap();
    assert_eq!(object, (Kind::Chunk, chunks[0].0.to_string()));
    disk.flip_bit(path, 24 + 60, 0);
    let report = store.verify().unwrap();
    assert_eq!((report.records, report.damage.len()), (5, 1));
    assert_eq!(report.damage[0].what, "content does not match its id");
    disk.flip_bit(path, 24 + 3, 0);
    assert_eq!(store.verify().unwrap().damage[0].what, "no record");
}

#[test]
fn data_that_looks_like_a_pack_is_not_taken_for_one() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, StoreConfig::default());
    let secret = noise(5, 500);
    let inner = store.put_chunk(&secret).unwrap();
    let pack = disk.read("packs/00000001.pack").unwrap().unwrap();
    let other_disk = CrashStorage::without_log();
    let other = open(&other_disk, StoreConfig::default());
    other.put_chunk(&noise(6, 100)).unwrap();
    let outer = other.put_chunk(&pack).unwrap();
    // The header of the outer record is gone: what is in it must not come up as records.
    other_disk.flip_bit("packs/00000001.pack", 24 + 56 + 100 + 20, 0);
    let reopened = open(&other_disk, StoreConfig::default());
    assert!(reopened.get_chunk(&outer).is_err());
    assert!(reopened.get_chunk(&inner).is_err());
}

#[test]
fn after_a_failed_sync_nothing_more_is_taken_and_reads_go_on() {
    let disk = CrashStorage::new();
    let store = open(&disk, StoreConfig::default());
    let chunks = put_some(&store, 0, 4);
    disk.fail_nth(FaultOp::Sync, 1, Fault::Io);
    assert!(matches!(store.sync(), Err(Error::Io { .. })));
    assert!(store.is_poisoned());
    assert!(matches!(store.sync(), Err(Error::Poisoned)));
    assert!(matches!(store.put_chunk(b"more"), Err(Error::Poisoned)));
    assert_all_there(&store, &chunks);
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = CrashStorage::new();
    let store = open(&disk, StoreConfig::default());
    let chunks = put_some(&store, 0, 4);
    disk.set_capacity(Some(store.stats().bytes + 300));
    let big = noise(99, 1000);
    assert!(store.put_chunk(&big).unwrap_err().is_no_space());
    store.sync().unwrap();
    disk.set_capacity(None);
    let id = store.put_chunk(&big).unwrap();
    store.close().unwrap();
    let store = open(&disk, StoreConfig::default());
    assert_all_there(&store, &chunks);
    assert_eq!(*store.get_chunk(&id).unwrap(), big);
    assert_eq!(store.verify().unwrap().damage, []);
}

#[test]
fn failures_while_a_pack_is_begun_leave_a_usable_store() {
    for op in [FaultOp::Create, FaultOp::Append, FaultOp::SyncDir] {
        let disk = CrashStorage::new();
        let store = open(&disk, StoreConfig::default());
        disk.fail_nth(op, 1, Fault::Io);
        assert!(store.put_chunk(b"first").is_err());
        let id = store.put_chunk(b"first").unwrap();
        store.sync().unwrap();
        drop(store);
        let store = open(&disk, StoreConfig::default());
        assert_eq!(*store.get_chunk(&id).unwrap(), b"first");
    }
}

#[test]
fn newer_stores_are_refused() {
    let disk = CrashStorage::without_log();
    disk.replace("format", b"agentvfs store 2\n").unwrap();
    let open = |disk: &CrashStorage| {
        ObjectStore::open(Arc::new(disk.clone()), StoreConfig::default()).map(|_| ())
    };
    assert!(matches!(
        open(&disk),
        Err(Error::NewerVersion {
            found: 2,
            supported: 1
        })
    ));
    disk.replace("format", b"something else").unwrap();
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
}

#[test]
fn many_threads_share_a_store() {
    let store = Arc::new(mem_store());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = store.clone();
            scope.spawn(move || {
                for i in 0..200 {
                    let bytes = noise(i * (thread % 2 + 1), 300);
                    let id = store.put_chunk(&bytes).unwrap();
                    assert_eq!(*store.get_chunk(&id).unwrap(), bytes);
                    if i % 50 == 0 {
                        store.sync().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(
        store.stats().objects,
        300,
        "each content once, whoever put it"
    );
}
