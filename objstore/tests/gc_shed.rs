//! Chunks that may go though they are needed: which go, and what a put or a question meanwhile does to that.
#![allow(clippy::unwrap_used)]

use objstore::crash_storage::CrashStorage;
use objstore::elsewhere::only_here;
use objstore::gc::{Collection, Met, Plan, Strictness, Walk};
use objstore::{ChunkId, FileContent, Key, Kind, ObjectStore, StoreConfig};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Bytes of each record: incompressible content and what stands before it.
const RECORD: u64 = 20_056;

fn noise(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 20_000];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// A store with so many chunks in packs of some.
fn store(count: u64, pack_bytes_max: u64) -> (ObjectStore, Vec<ChunkId>) {
    let config = StoreConfig {
        punch_bytes_min: 4096,
        pack_bytes_max,
        chunk_cache_bytes: 0,
        ..StoreConfig::default()
    };
    let store = ObjectStore::open(Arc::new(CrashStorage::without_log()), config).unwrap();
    let ids = (0..count).map(|n| store.put_chunk(&noise(n)).unwrap());
    let ids = ids.collect();
    store.sync().unwrap();
    (store, ids)
}

/// Marks all of them.
fn mark(run: &Collection<'_>, ids: &[ChunkId]) {
    let met = &mut |_: Met<'_>| ();
    let mut walk = Walk::new(run, met);
    for id in ids {
        let content = FileContent::Chunk {
            id: *id,
            len: 20_000,
        };
        walk.content(&content, b"", Strictness::All).unwrap();
    }
    walk.finish().unwrap();
}

fn plan(run: &Collection<'_>, dead_percent: u64) -> Plan {
    run.plan(Duration::ZERO, dead_percent).unwrap()
}

fn here(store: &ObjectStore, ids: &[ChunkId]) -> Vec<bool> {
    let _here = only_here();
    ids.iter().map(|id| store.get_chunk(id).is_ok()).collect()
}

#[test]
fn those_that_came_first_go_until_the_rest_is_within_the_bound() {
    for (pack_bytes_max, dead_percent) in
        [(1 << 30, 101), (1 << 30, 0), (50_000, 101), (50_000, 20)]
    {
        let (store, ids) = store(10, pack_bytes_max);
        let stop = AtomicBool::new(false);
        let run = store.collect(&stop).unwrap();
        mark(&run, &ids);
        let may_go = |key: &Key| key.1 != *ids[1].as_bytes();
        let shed = run.shed(6 * RECORD, Duration::ZERO, &may_go).unwrap();
        let got = (shed.bytes, shed.shed_bytes, shed.objects);
        assert_eq!(got, (9 * RECORD, 3 * RECORD, 3));
        let plan = plan(&run, dead_percent);
        assert_eq!(run.shed_by(&plan), 3 * RECORD);
        let swept = run.sweep(&plan, &|_| ()).unwrap();
        assert_eq!(swept.objects, 3, "{swept:?}");
        let goes = |n: usize| matches!(n, 0 | 2 | 3);
        let wanted: Vec<bool> = (0..10).map(|n| !goes(n)).collect();
        assert_eq!(
            here(&store, &ids),
            wanted,
            "{pack_bytes_max} {dead_percent}"
        );
    }
}

#[test]
fn what_a_put_or_a_question_finds_meanwhile_stays() {
    for dead_percent in [0, 101] {
        let (store, ids) = store(6, 1 << 30);
        let stop = AtomicBool::new(false);
        let run = store.collect(&stop).unwrap();
        mark(&run, &ids);
        store.put_chunk(&noise(0)).unwrap();
        run.shed(0, Duration::ZERO, &|_| true).unwrap();
        store.put_chunk(&noise(1)).unwrap();
        let plan = plan(&run, dead_percent);
        assert!(store.contains(Kind::Chunk, ids[2].as_bytes()));
        assert_eq!(run.sweep(&plan, &|_| ()).unwrap().objects, 3);
        let wanted = [true, true, true, false, false, false];
        assert_eq!(here(&store, &ids), wanted, "{dead_percent}");
    }
}

#[test]
fn what_was_chosen_can_be_taken_back() {
    let (store, ids) = store(6, 1 << 30);
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    mark(&run, &ids);
    run.shed(0, Duration::ZERO, &|_| true).unwrap();
    run.shed_none();
    let plan = plan(&run, 0);
    assert_eq!(run.shed_by(&plan), 0);
    run.sweep(&plan, &|_| ()).unwrap();
    assert_eq!(here(&store, &ids), [true; 6]);
}
