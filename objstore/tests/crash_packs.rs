//! Power cuts at every operation of a store at work: what was acknowledged is there, and no wrong byte
//! is ever returned.
#![allow(clippy::unwrap_used)]

mod common;

use common::{noise, open, small_packs};
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use objstore::{ChunkId, ObjectStore};

/// Seeds per cut; `OBJSTORE_CRASH_SEEDS` raises it.
fn seeds() -> u64 {
    let given = std::env::var("OBJSTORE_CRASH_SEEDS").ok();
    given.and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

/// What the store promised: the content of `chunks[..n]` from operation `op` on.
struct History {
    disk: CrashStorage,
    chunks: Vec<(ChunkId, Vec<u8>)>,
    synced: Vec<(usize, usize)>,
}

impl History {
    fn acknowledged_at(&self, op: usize) -> usize {
        let before = self.synced.iter().take_while(|(at, _)| *at <= op);
        before.last().map_or(0, |(_, count)| *count)
    }
}

fn put(history: &mut History, store: &ObjectStore, i: u64) {
    let len = 50 + (i as usize * 613) % 1700;
    let bytes = if i.is_multiple_of(3) {
        vec![i as u8; len]
    } else {
        noise(i, len)
    };
    history
        .chunks
        .push((store.put_chunk(&bytes).unwrap(), bytes));
}

/// Some rounds of puts with a sync after each but the last, over several packs.
fn work() -> History {
    let mut history = History {
        disk: CrashStorage::new(),
        chunks: Vec::new(),
        synced: Vec::new(),
    };
    let store = open(&history.disk, small_packs());
    for i in 0..22 {
        put(&mut history, &store, i);
        if i % 5 == 4 {
            store.sync().unwrap();
            history
                .synced
                .push((history.disk.op_count(), history.chunks.len()));
        }
    }
    history
}

fn check(history: &History, op: usize, policy: Policy, seed: u64) {
    let disk = history.disk.image_at(op, policy, seed);
    let store = open(&disk, small_packs());
    let acknowledged = history.acknowledged_at(op);
    for (i, (id, bytes)) in history.chunks.iter().enumerate() {
        match store.get_chunk(id) {
            Ok(found) => assert_eq!(*found, *bytes, "op {op} {policy:?} seed {seed}"),
            Err(error) => {
                assert!(
                    i >= acknowledged,
                    "op {op} {policy:?} seed {seed}: chunk {i}: {error}"
                );
            }
        }
    }
    go_on(history, (op, policy, seed));
}

/// The store takes everything again, without having been read before (which would have found the damage),
/// and a second cut right after a sync loses none of it.
fn go_on(history: &History, at: (usize, Policy, u64)) {
    let (op, policy, seed) = at;
    let disk = history.disk.image_at(op, policy, seed);
    let store = open(&disk, small_packs());
    for (id, bytes) in &history.chunks {
        assert_eq!(store.put_chunk(bytes).unwrap(), *id);
    }
    store.sync().unwrap();
    let image = disk.image_at(disk.op_count(), Policy::Drop, seed);
    let store = open(&image, small_packs());
    for (id, bytes) in &history.chunks {
        let found = store.get_chunk(id);
        assert_eq!(*found.unwrap(), *bytes, "second cut after {at:?}");
    }
}

#[test]
fn acknowledged_chunks_survive_a_cut_at_any_operation() {
    let history = work();
    for op in 0..=history.disk.op_count() {
        for policy in Policy::ALL {
            (0..seeds()).for_each(|seed| check(&history, op, policy, seed));
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_put() {
    let history = work();
    let disk = history
        .disk
        .image_at(history.disk.op_count(), Policy::Keep, 0);
    let store = open(&disk, small_packs());
    for (id, bytes) in &history.chunks {
        assert_eq!(*store.get_chunk(id).unwrap(), *bytes);
    }
}

#[test]
fn what_a_killed_process_left_unsynced_is_synced_before_it_is_relied_on() {
    let disk = CrashStorage::new();
    let bytes = noise(1, 500);
    open(&disk, small_packs()).put_chunk(&bytes).unwrap();
    // A new process finds the chunk in the page cache and need not write it again.
    let store = open(&disk, small_packs());
    let id = store.put_chunk(&bytes).unwrap();
    store.sync().unwrap();
    let image = disk.image_at(disk.op_count(), Policy::Drop, 0);
    assert_eq!(*open(&image, small_packs()).get_chunk(&id).unwrap(), bytes);
}

#[test]
fn faults_at_any_operation_lose_nothing_acknowledged() {
    for op in [
        FaultOp::Append,
        FaultOp::Create,
        FaultOp::Replace,
        FaultOp::Sync,
        FaultOp::SyncDir,
    ] {
        for (nth, fault) in (1..30).flat_map(|n| [(n, Fault::Io), (n, Fault::NoSpace)]) {
            with_fault(op, nth, fault);
        }
    }
}

fn with_fault(op: FaultOp, nth: u64, fault: Fault) {
    let disk = CrashStorage::new();
    let store = open(&disk, small_packs());
    disk.fail_nth(op, nth, fault);
    let mut put_since_sync = Vec::new();
    let mut acknowledged = Vec::new();
    for i in 0..24u64 {
        let bytes = noise(i, 400 + i as usize * 20);
        if let Ok(id) = store.put_chunk(&bytes) {
            put_since_sync.push((id, bytes));
        }
        if i % 4 == 3 && store.sync().is_ok() {
            acknowledged.append(&mut put_since_sync);
        }
    }
    for policy in Policy::ALL {
        let image = disk.image_at(disk.op_count(), policy, nth);
        let store = open(&image, small_packs());
        for (id, bytes) in &acknowledged {
            assert_eq!(
                *store.get_chunk(id).unwrap(),
                *bytes,
                "{op:?} {nth} {fault:?} {policy:?}"
            );
        }
    }
}
