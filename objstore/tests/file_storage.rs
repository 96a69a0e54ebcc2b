//! Files on a real disk keep the contract of the storage traits.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use common::noise;
use objstore::file_storage::FileStorage;
use objstore::io::Storage;
use objstore::{ObjectStore, StoreConfig};
use skip::{Want, skip};

fn storage() -> (tempfile::TempDir, FileStorage) {
    let dir = tempfile::tempdir().unwrap();
    let storage = FileStorage::open(&dir.path().join("a/store")).unwrap();
    (dir, storage)
}

#[test]
fn segments_grow_and_are_read_back() {
    let (_dir, storage) = storage();
    let segment = storage.create("s").unwrap();
    assert!(segment.is_empty());
    assert_eq!(segment.append(&[b"abc", b"", b"def"]).unwrap(), 0);
    assert_eq!(segment.append(&[b"", b""]).unwrap(), 6);
    let many: Vec<&[u8]> = vec![b"xy"; 3000];
    assert_eq!(segment.append(&many).unwrap(), 6);
    assert_eq!(segment.len(), 6006);
    let mut bytes = [0; 6];
    segment.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abcdef");
    segment.write_at(1, b"BC").unwrap();
    assert!(
        segment.try_read_at(0, &mut bytes).unwrap(),
        "just written: in the page cache"
    );
    assert_eq!(&bytes, b"aBCdef");
    segment.sync().unwrap();
    segment.truncate(4).unwrap();
    for result in [segment.read_at(0, &mut bytes), segment.write_at(3, b"xx")] {
        assert_eq!(
            result.unwrap_err().kind(),
            std::io::ErrorKind::UnexpectedEof
        );
    }
    assert!(segment.try_read_at(3, &mut bytes).is_err());
    assert_eq!(storage.open("s").unwrap().len(), 4);
}

#[test]
fn names_are_made_listed_and_removed() {
    let (_dir, storage) = storage();
    storage.create_dir_all("d/e").unwrap();
    storage.create_dir_all("d/e").unwrap();
    storage.create("d/one").unwrap();
    let taken = storage.create("d/one").unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(
        storage.open("d/two").unwrap_err().kind(),
        std::io::ErrorKind::NotFound
    );
    storage.replace("d/two", b"x").unwrap();
    storage.replace("d/two", b"yz").unwrap();
    storage.sync_dir("d").unwrap();
    assert_eq!(storage.list("d").unwrap(), ["e", "one", "two"]);
    assert_eq!(storage.read("d/two").unwrap().unwrap(), b"yz");
    assert_eq!(storage.read("d/none").unwrap(), None);
    storage.remove("d/two").unwrap();
    storage.remove("d/two").unwrap();
    storage.remove_dir_all("d").unwrap();
    storage.remove_dir_all("d").unwrap();
    assert_eq!(storage.list("d").unwrap(), Vec::<String>::new());
    assert!(storage.free_bytes().unwrap() > 0);
}

#[test]
fn only_the_owner_may_look() {
    let (dir, storage) = storage();
    storage.create_dir_all("d").unwrap();
    storage.create("d/file").unwrap();
    storage.replace("d/small", b"").unwrap();
    let mode = |path: &str| {
        let metadata = std::fs::metadata(dir.path().join("a/store").join(path)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!((mode(""), mode("d")), (0o700, 0o700));
    assert_eq!((mode("d/file"), mode("d/small")), (0o600, 0o600));
}

#[test]
fn one_name_can_be_replaced_by_many_threads() {
    let (_dir, storage) = storage();
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let storage = &storage;
            scope.spawn(move || storage.replace("x", &vec![i; 5000]).unwrap());
        }
    });
    let bytes = storage.read("x").unwrap().unwrap();
    assert!(bytes.len() == 5000 && bytes.iter().all(|byte| *byte == bytes[0]));
    assert_eq!(storage.list("").unwrap(), ["x"]);
}

#[test]
fn a_store_lives_in_files() {
    let (_dir, storage) = storage();
    let storage = Arc::new(storage);
    let store = ObjectStore::open(storage.clone(), StoreConfig::default()).unwrap();
    let chunks: Vec<Vec<u8>> = (0..20).map(|i| noise(i, 10_000)).collect();
    let ids: Vec<_> = chunks
        .iter()
        .map(|bytes| store.put_chunk(bytes).unwrap())
        .collect();
    store.sync().unwrap();
    store.sync().unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(
        storage.list("packs").unwrap(),
        ["00000001.idx", "00000001.pack"]
    );
    let store = ObjectStore::open(storage, StoreConfig::default()).unwrap();
    for (id, bytes) in ids.iter().zip(&chunks) {
        assert_eq!(store.try_get_chunk(id).unwrap().unwrap().as_slice(), bytes);
    }
}

#[test]
fn a_hole_gives_its_space_back_and_reads_as_zeros() {
    use std::os::unix::fs::MetadataExt;
    let (dir, storage) = storage();
    let segment = storage.create("s").unwrap();
    let bytes = noise(1, 1 << 20);
    segment.append(&[&bytes]).unwrap();
    segment.sync().unwrap();
    assert_eq!(segment.holes().unwrap(), []);
    if !segment.can_punch() {
        skip(Want::Machine, "this file system punches no holes");
        return;
    }
    let blocks = || {
        let meta = std::fs::metadata(dir.path().join("a/store/s")).unwrap();
        meta.blocks() * 512
    };
    let before = blocks();
    assert_eq!(segment.len(), 1 << 20, "asking changes nothing");
    let hole = 65_536..655_360;
    segment.punch_hole(hole.clone()).unwrap();
    assert_eq!(segment.holes().unwrap(), std::slice::from_ref(&hole));
    assert_eq!(before - blocks(), hole.end - hole.start);
    let mut read = vec![1; 1 << 20];
    segment.read_at(0, &mut read).unwrap();
    assert_eq!(read[..65_536], bytes[..65_536]);
    assert!(read[65_536..655_360].iter().all(|byte| *byte == 0));
    assert_eq!(read[655_360..], bytes[655_360..]);
    segment.append(&[b"more"]).unwrap();
    let holes = segment.holes().unwrap();
    assert_eq!(holes, std::slice::from_ref(&hole), "the end is none");
    let past_the_end = segment.punch_hole(1 << 20..2 << 20).unwrap_err();
    assert_eq!(past_the_end.kind(), std::io::ErrorKind::UnexpectedEof);
}
