//! Objects that are put and wait: they are there as any other, and reach the packs in order.
#![allow(clippy::unwrap_used)]

mod common;

use common::noise;
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use objstore::{Commit, CommitKind, Kind, Meta, ObjectStore, StoreConfig};
use std::sync::atomic::AtomicBool;

fn commit(message: &str) -> Commit {
    Commit {
        root_meta: Meta::default(),
        root: None,
        parents: vec![],
        time_sec: 0,
        time_nsec: 0,
        author: String::new(),
        message: message.into(),
        meta: vec![],
        kind: CommitKind::Asked,
        kv: None,
        timeline: None,
    }
}

fn open(disk: &CrashStorage) -> ObjectStore {
    common::open(disk, StoreConfig::default())
}

/// What another process would find, were this one to die now.
fn reopened(disk: &CrashStorage) -> ObjectStore {
    open(&disk.image_at(disk.op_count(), Policy::Keep, 0))
}

#[test]
fn what_waits_is_found_and_read_and_is_not_on_disk() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let bytes = noise(1, 5000);
    let (chunk, id) = {
        let _behind = store.put_behind();
        let chunk = store.put_chunk(&bytes).unwrap();
        (chunk, store.put_object(&commit("waits")).unwrap())
    };
    let there = |store: &ObjectStore| {
        store.contains(Kind::Chunk, chunk.as_bytes())
            && *store.get_chunk(&chunk).unwrap() == bytes
            && store.try_get_chunk(&chunk).unwrap().is_some()
            && store.get_object::<Commit>(&id).unwrap().message == "waits"
            && store.ids(Kind::Commit) == [*id.as_bytes()]
    };
    assert!(there(&store));
    assert_eq!(store.stats().objects, 0);
    assert!(!reopened(&disk).contains(Kind::Commit, id.as_bytes()));

    store.flush().unwrap();
    assert!(there(&store));
    assert_eq!(store.stats().objects, 2);
    assert!(there(&reopened(&disk)));
}

#[test]
fn nothing_waits_without_the_guard_and_sync_leaves_nothing_waiting() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let at_once = store.put_object(&commit("at once")).unwrap();
    assert!(reopened(&disk).contains(Kind::Commit, at_once.as_bytes()));
    let waited = {
        let _behind = store.put_behind();
        store.put_object(&commit("waits")).unwrap()
    };
    store.sync().unwrap();
    assert!(reopened(&disk).contains(Kind::Commit, waited.as_bytes()));
}

/// The object that refers comes after what it refers to, also where only the latter waited.
#[test]
fn an_object_is_not_in_a_pack_before_what_was_put_before_it() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let (child, later) = {
        let _behind = store.put_behind();
        let child = store.put_chunk(&noise(1, 5000)).unwrap();
        (child, store.put_chunk(&noise(2, 5000)).unwrap())
    };
    disk.fail_nth(FaultOp::Append, 1, Fault::NoSpace);
    let parent = commit("refers to it");
    assert!(store.put_object(&parent).is_err());
    assert_eq!(reopened(&disk).stats().objects, 0);
    // Neither was lost by that.
    assert!(store.contains(Kind::Chunk, child.as_bytes()));
    assert!(store.contains(Kind::Chunk, later.as_bytes()));

    disk.clear_faults();
    store.put_object(&parent).unwrap();
    let found = reopened(&disk);
    assert!(found.contains(Kind::Chunk, child.as_bytes()));
    assert!(found.contains(Kind::Chunk, later.as_bytes()));
}

#[test]
fn what_waits_is_bounded() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let _behind = store.put_behind();
    let chunks: Vec<_> = (0..100u64)
        .map(|seed| store.put_chunk(&noise(seed, 200_000)).unwrap())
        .collect();
    // 20 MB: after the first 8 MiB nothing waits any more.
    let found = reopened(&disk);
    let there = |id: &&objstore::ChunkId| found.contains(Kind::Chunk, id.as_bytes());
    assert_eq!(chunks.iter().filter(there).count(), 100);
}

/// Whoever puts is told that there is no space, not whoever comes later.
#[test]
fn nothing_waits_where_the_disk_may_not_take_it() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let _behind = store.put_behind();
    disk.set_capacity(Some(12 * 1024 * 1024));
    let id = store.put_object(&commit("scarce")).unwrap();
    assert!(reopened(&disk).contains(Kind::Commit, id.as_bytes()));
}

#[test]
fn gc_begins_with_nothing_waiting_and_nothing_waits_beside_it() {
    let disk = CrashStorage::new();
    let store = open(&disk);
    let _behind = store.put_behind();
    let before = store.put_object(&commit("before")).unwrap();
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    assert!(reopened(&disk).contains(Kind::Commit, before.as_bytes()));
    let beside = store.put_object(&commit("beside")).unwrap();
    assert!(reopened(&disk).contains(Kind::Commit, beside.as_bytes()));
    drop(run);
    let after = store.put_object(&commit("after")).unwrap();
    assert!(!reopened(&disk).contains(Kind::Commit, after.as_bytes()));
}

#[test]
fn threads_that_put_read_and_flush_find_everything() {
    let disk = CrashStorage::without_log();
    let store = open(&disk);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                store.flush().unwrap();
            }
        });
        let putters: Vec<_> = (0..3u64)
            .map(|t| {
                let store = &store;
                scope.spawn(move || {
                    for i in 0..400 {
                        let bytes = noise(i, 700);
                        let _behind = (i % 5 != t).then(|| store.put_behind());
                        let id = store.put_chunk(&bytes).unwrap();
                        assert!(store.contains(Kind::Chunk, id.as_bytes()));
                        assert_eq!(*store.get_chunk(&id).unwrap(), bytes);
                    }
                })
            })
            .collect();
        putters.into_iter().for_each(|t| t.join().unwrap());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    store.sync().unwrap();
    assert_eq!(store.stats().objects, 400);
}
