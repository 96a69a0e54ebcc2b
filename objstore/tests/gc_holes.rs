//! Holes in packs: what nothing needs gives its space back where it is, and nothing that is punched is ever
//! taken for present.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use common::commits::{NEVER, anything_can_be_put, check, collect_at, commit, holey_packs};
use common::{noise, open};
use objstore::crash_storage::{CrashStorage, Policy};
use objstore::file_storage::FileStorage;
use objstore::io::Storage;
use objstore::{ChunkId, CommitId, Error, Kind, ObjectStore, StoreConfig};
use skip::{Want, skip};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files of a commit, and those of another that are large enough to be punched.
const KEPT: [u64; 6] = [1, 2, 9, 10, 11, 12];
const GONE: [u64; 5] = [12, 13, 14, 15, 16];

fn indexes(disk: &CrashStorage) -> Vec<String> {
    let paths = disk.paths().into_iter();
    paths.filter(|path| path.ends_with(".idx")).collect()
}

/// The id of the one chunk of a file of [`commit`].
fn chunk_of(seed: u64) -> ChunkId {
    let bytes = noise(seed, 100 + (seed as usize * 917) % 30_000);
    ChunkId::from_bytes(*blake3::hash(&bytes).as_bytes())
}

fn has(store: &ObjectStore, seed: u64) -> bool {
    store.contains(Kind::Chunk, chunk_of(seed).as_bytes())
}

/// A store with two commits, closed, before one of them goes.
fn two_commits(disk: &CrashStorage) -> (ObjectStore, CommitId) {
    let store = open(disk, holey_packs());
    // Needed and not, one after the other.
    for seed in [1, 13, 2, 14, 9, 15, 10, 16] {
        commit(&store, &[seed]).unwrap();
    }
    let kept = commit(&store, &KEPT).unwrap();
    commit(&store, &GONE).unwrap();
    store.close().unwrap();
    (store, kept)
}

#[test]
fn what_nothing_needs_is_punched_and_can_be_put_again() {
    let disk = CrashStorage::without_log();
    let (store, kept) = two_commits(&disk);
    let (before, packs) = (store.stats(), store.stats().packs);
    let swept = collect_at(&store, &[kept], NEVER).unwrap();
    let after = store.stats();
    assert!(swept.punched_bytes > 30_000, "{swept:?}");
    assert_eq!(swept.freed_bytes, swept.punched_bytes);
    assert_eq!((swept.packs, swept.copied_bytes), (0, 0));
    assert_eq!(before.bytes - after.bytes, swept.punched_bytes);
    assert_eq!(before.objects - after.objects, swept.objects as usize);
    assert_eq!(after.packs, packs);
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
    let error = store.get_chunk(&chunk_of(14)).unwrap_err();
    assert!(matches!(error, Error::ObjectMissing { .. }), "{error}");
    assert!(!has(&store, 14));
    let report = store.verify().unwrap();
    assert_eq!((report.punched, report.damage), (swept.objects, vec![]));
    let again = collect_at(&store, &[kept], NEVER).unwrap();
    assert_eq!((again.freed_bytes, again.objects), (0, 0), "it is done");
    assert_eq!(
        store.put_chunk(&noise(14, 100 + 14 * 917)).unwrap(),
        chunk_of(14)
    );
    assert!(store.get_chunk(&chunk_of(14)).is_ok());
    store.close().unwrap();
    let store = open(&disk, holey_packs());
    assert_eq!(store.stats().bytes, after.bytes + 56 + 100 + 14 * 917);
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
    assert!(store.get_chunk(&chunk_of(14)).is_ok());
}

/// Without a free byte but a small reserve, what would be rewritten is punched; with room it is rewritten.
#[test]
fn a_pack_that_the_disk_has_no_room_to_copy_is_punched() {
    let disk = CrashStorage::without_log();
    let (store, kept) = two_commits(&disk);
    let reserve = 256 << 10;
    disk.set_reserve(reserve);
    disk.set_capacity(Some(disk.used_bytes().unwrap() + reserve));
    let swept = collect_at(&store, &[kept], 0).unwrap();
    assert_eq!((swept.packs, swept.copied_bytes), (0, 0), "{swept:?}");
    assert!(swept.punched_bytes > 30_000, "{swept:?}");
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
    disk.set_capacity(None);
    let swept = collect_at(&store, &[kept], 0).unwrap();
    assert!(swept.packs > 0, "{swept:?}");
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
}

#[test]
fn an_index_made_anew_has_nothing_that_was_punched() {
    let disk = CrashStorage::without_log();
    let (store, kept) = two_commits(&disk);
    collect_at(&store, &[kept], NEVER).unwrap();
    let stats = store.stats();
    drop(store);
    indexes(&disk)
        .iter()
        .for_each(|path| disk.remove(path).unwrap());
    let store = open(&disk, holey_packs());
    assert!([13, 14, 15, 16].iter().all(|seed| !has(&store, *seed)));
    assert_eq!(store.stats().objects, stats.objects);
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
    assert_eq!(store.verify().unwrap().damage, []);
    drop(store);
    let rebuild = StoreConfig {
        rebuild_index: true,
        ..holey_packs()
    };
    anything_can_be_put(&disk, &rebuild, "rebuilt");
}

/// An index from before, as a backup brings it back, does not make anything of what is a hole.
#[test]
fn an_index_from_before_has_nothing_that_was_punched() {
    let disk = CrashStorage::without_log();
    let (store, kept) = two_commits(&disk);
    let before = indexes(&disk).into_iter();
    let before: Vec<_> = before
        .map(|path| (disk.read(&path).unwrap().unwrap(), path))
        .collect();
    collect_at(&store, &[kept], NEVER).unwrap();
    let objects = store.stats().objects;
    drop(store);
    let is_new = |(bytes, path): &(Vec<u8>, String)| disk.read(path).unwrap().unwrap() != *bytes;
    assert!(before.iter().filter(|b| is_new(b)).count() > 1);
    for (bytes, path) in &before {
        disk.replace(path, bytes).unwrap();
    }
    let store = open(&disk, holey_packs());
    assert_eq!(store.stats().objects, objects);
    assert!([13, 14, 15, 16].iter().all(|seed| !has(&store, *seed)));
    assert_eq!(check(&store, kept).unwrap(), KEPT.len());
    assert_eq!(store.verify().unwrap().damage, []);
    drop(store);
    anything_can_be_put(&disk, &holey_packs(), "old indexes");
}

/// Every state that a power cut may leave of a run that only punches: nothing counts as damage, nothing
/// needed is lost, nothing that is gone is taken for present; with the indexes and without.
#[test]
fn a_power_cut_at_any_operation_leaves_holes_that_are_told_from_damage() {
    let disk = CrashStorage::new();
    let (store, kept) = two_commits(&disk);
    let begin = disk.op_count();
    let swept = collect_at(&store, &[kept], NEVER).unwrap();
    assert!(swept.punched_bytes > 30_000, "{swept:?}");
    let mut partly = 0;
    for op in begin..=disk.op_count() {
        for (policy, seed) in Policy::ALL
            .into_iter()
            .flat_map(|p| (0..4).map(move |s| (p, s)))
        {
            for with_index in [true, false] {
                let at = format!("op {op} {policy:?} {seed} {with_index}");
                let image = disk.image_at(op, policy, seed);
                if !with_index {
                    let gone = indexes(&image);
                    gone.iter().for_each(|path| image.remove(path).unwrap());
                }
                let store = open(&image, holey_packs());
                assert_eq!(check(&store, kept).expect(&at), KEPT.len(), "{at}");
                let report = store.verify().unwrap();
                assert_eq!(report.damage, [], "{at}");
                partly += u64::from(report.punched > 0 && report.punched < swept.objects);
                collect_at(&store, &[kept], NEVER).unwrap();
                assert_eq!(check(&store, kept).expect(&at), KEPT.len(), "{at}");
                assert_eq!(store.verify().unwrap().damage, [], "{at}");
                drop(store);
                anything_can_be_put(&image, &holey_packs(), &at);
            }
        }
    }
    assert!(partly > 10, "{partly}");
}

/// A put between the decision and the hole keeps its object, or stores it again.
#[test]
fn what_is_found_after_the_plan_is_not_punched() {
    let disk = CrashStorage::without_log();
    let (store, kept) = two_commits(&disk);
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = objstore::gc::Walk::new(&run, met);
    walk.commit(kept, objstore::gc::Strictness::All).unwrap();
    walk.finish().unwrap();
    let plan = run.plan(Duration::ZERO, NEVER).unwrap();
    assert!(!plan.holes.is_empty() && plan.packs.is_empty());
    assert!(plan.freed_bytes() > 30_000);
    let late = commit(&store, &GONE).unwrap();
    let swept = run.sweep(&plan, &|_| ()).unwrap();
    assert!(swept.freed_bytes < plan.freed_bytes(), "{swept:?}");
    drop(run);
    assert_eq!(check(&store, late).unwrap(), GONE.len());
    store.close().unwrap();
    assert_eq!(
        check(&open(&disk, holey_packs()), late).unwrap(),
        GONE.len()
    );
}

/// What could be punched is no reason to copy, and what is left beside many holes is.
#[test]
fn packs_of_little_but_holes_are_rewritten() {
    let disk = CrashStorage::without_log();
    let config = StoreConfig {
        pack_bytes_max: 32 << 20,
        ..holey_packs()
    };
    let store = open(&disk, config.clone());
    let chunk = |i: u64| noise(i, 200_000);
    let ids: Vec<ChunkId> = (0..100)
        .map(|i| store.put_chunk(&chunk(i)).unwrap())
        .collect();
    store.close().unwrap();
    let keep = |store: &ObjectStore, kept: &[ChunkId]| {
        let stop = AtomicBool::new(false);
        let run = store.collect(&stop).unwrap();
        assert!(
            kept.iter()
                .all(|id| store.contains(Kind::Chunk, id.as_bytes()))
        );
        run.sweep(&run.plan(Duration::ZERO, 20).unwrap(), &|_| ())
            .unwrap()
    };
    let mut alive = ids;
    let mut rewritten = 0;
    for round in 0..16 {
        // A tenth of what is left goes each time.
        let kept = alive.len() - alive.len().div_ceil(10);
        alive.truncate(kept);
        let swept = keep(&store, &alive);
        rewritten += swept.packs;
        assert!(swept.freed_bytes > 190_000, "round {round}: {swept:?}");
        assert!(swept.packs > 0 || swept.punched_bytes > 0, "{swept:?}");
        assert!(rewritten == 0 || round > 9, "round {round}");
        let needed = alive.len() as u64 * 200_056;
        let bytes = store.stats().bytes;
        assert!(
            bytes < needed * 5 / 4,
            "round {round}: {bytes} for {needed}"
        );
    }
    assert_eq!(rewritten, 1);
    assert_eq!(store.stats().packs, 1);
    for (i, id) in alive.iter().enumerate() {
        assert_eq!(*store.get_chunk(id).unwrap(), chunk(i as u64));
    }
}

struct OnDisk {
    dir: tempfile::TempDir,
    kept: Vec<(ChunkId, Vec<u8>)>,
    gone: Vec<(ChunkId, Vec<u8>)>,
}

impl OnDisk {
    fn open(&self) -> ObjectStore {
        let storage = FileStorage::open(self.dir.path()).unwrap();
        let config = StoreConfig {
            chunk_cache_bytes: 0,
            ..StoreConfig::default()
        };
        ObjectStore::open(Arc::new(storage), config).unwrap()
    }

    /// 8 MiB of chunks in a pack, of which an eighth is to go.
    fn new() -> OnDisk {
        let mut disk = OnDisk {
            dir: tempfile::tempdir().unwrap(),
            kept: vec![],
            gone: vec![],
        };
        let store = disk.open();
        for i in 0..128 {
            let bytes = noise(i, 60_000 + i as usize * 70);
            let chunk = (store.put_chunk(&bytes).unwrap(), bytes);
            if i % 8 == 3 {
                disk.gone.push(chunk);
            } else {
                disk.kept.push(chunk);
            }
        }
        store.close().unwrap();
        disk
    }

    fn pack(&self) -> PathBuf {
        self.dir.path().join("packs/00000001.pack")
    }

    fn collect(&self, store: &ObjectStore) -> objstore::gc::Swept {
        let stop = AtomicBool::new(false);
        let run = store.collect(&stop).unwrap();
        for (id, _) in &self.kept {
            assert!(store.contains(Kind::Chunk, id.as_bytes()));
        }
        let plan = run.plan(Duration::ZERO, 20).unwrap();
        run.sweep(&plan, &|_| ()).unwrap()
    }

    fn assert_kept(&self, store: &ObjectStore) {
        for (id, bytes) in &self.kept {
            assert_eq!(*store.get_chunk(id).unwrap(), *bytes);
        }
    }

    fn put_gone_again(&self, store: &ObjectStore) {
        for (id, bytes) in &self.gone {
            assert_eq!(store.put_chunk(bytes).unwrap(), *id);
            assert_eq!(*store.get_chunk(id).unwrap(), *bytes);
        }
    }
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn punches(store: &ObjectStore, disk: &OnDisk) -> Option<objstore::gc::Swept> {
    let before = blocks(&disk.pack());
    let swept = disk.collect(store);
    if swept.punched_bytes == 0 {
        skip(Want::Machine, "this file system punches no holes");
        return None;
    }
    // The list of the file's extents may take a block or two now.
    let given = before - blocks(&disk.pack());
    assert!(
        given.abs_diff(swept.punched_bytes) <= 4 * 4096,
        "{given} {swept:?}"
    );
    Some(swept)
}

#[test]
fn the_disk_gets_the_blocks_back() {
    let disk = OnDisk::new();
    let store = disk.open();
    let len = fs::metadata(disk.pack()).unwrap().len();
    let Some(swept) = punches(&store, &disk) else {
        return;
    };
    let dead: u64 = disk.gone.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(swept.punched_bytes > dead * 8 / 10, "{swept:?} of {dead}");
    assert_eq!(fs::metadata(disk.pack()).unwrap().len(), len);
    assert_eq!(store.stats().bytes, len - swept.punched_bytes);
    disk.assert_kept(&store);
    assert_eq!(store.verify().unwrap().damage, []);
    assert_eq!(disk.collect(&store).freed_bytes, 0);
    disk.put_gone_again(&store);
    store.close().unwrap();
    drop(store);
    let store = disk.open();
    disk.assert_kept(&store);
    disk.put_gone_again(&store);
    assert_eq!(store.verify().unwrap().damage, []);
}

/// Whatever an index says: a hole is never read as data. A copy of the pack without holes and an index from
/// before is the worst that can be put together by hand.
#[test]
fn an_old_index_over_a_copy_without_holes_gives_no_wrong_bytes() {
    let disk = OnDisk::new();
    let index = disk.dir.path().join("packs/00000001.idx");
    let before = fs::read(&index).unwrap();
    let store = disk.open();
    let Some(_) = punches(&store, &disk) else {
        return;
    };
    drop(store);
    fs::write(&index, &before).unwrap();
    let store = disk.open();
    for (id, _) in &disk.gone {
        assert!(
            !store.contains(Kind::Chunk, id.as_bytes()),
            "holes are seen"
        );
    }
    disk.assert_kept(&store);
    drop(store);
    let dense = fs::read(disk.pack()).unwrap();
    fs::remove_file(disk.pack()).unwrap();
    fs::write(disk.pack(), &dense).unwrap();
    let store = disk.open();
    disk.assert_kept(&store);
    for (id, _) in &disk.gone {
        assert!(store.get_chunk(id).unwrap_err().is_damage());
    }
    assert_eq!(store.verify().unwrap().damage.len(), disk.gone.len());
    disk.put_gone_again(&store);
}

/// Ends all threads when one fails, or the last is done.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts, readers and writers of indexes at every moment of many runs. What was put under a pin is there as
/// long as that lives.
#[test]
fn puts_and_syncs_beside_punching_find_what_is_there() {
    const CHUNKS: u64 = 150;
    let config = StoreConfig {
        pack_bytes_max: 1 << 20,
        ..holey_packs()
    };
    let store = open(&CrashStorage::without_log(), config);
    let chunks: Vec<Vec<u8>> = (0..CHUNKS).map(|i| noise(i, 9000)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, chunks, done) = (&store, &chunks, &done);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                for round in (thread * 7..).step_by(3) {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    let bytes = &chunks[round % chunks.len()];
                    let pin = store.pin();
                    let id = store.put_chunk(bytes).unwrap();
                    assert_eq!(*store.get_chunk(&id).unwrap(), *bytes);
                    drop(pin);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.close().unwrap();
            }
        });
        let _done = SetOnDrop(&done);
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        let mut punched = 0;
        while punched < 30 && !done.load(Ordering::Relaxed) {
            if store.stats().objects < CHUNKS as usize / 2 {
                std::thread::yield_now();
                continue;
            }
            let run = store.collect(&stop).unwrap();
            let plan = run.plan(Duration::ZERO, NEVER).unwrap();
            let swept = run.sweep(&plan, &|_| ()).unwrap();
            punched += u64::from(swept.punched_bytes > 0);
            assert!(begun.elapsed() < Duration::from_secs(60), "{punched} runs");
        }
    });
    assert_eq!(store.verify().unwrap().damage, []);
}
