//! Collecting: what nothing needs goes, what is needed stays, whatever happens beside it or cuts it off.
#![allow(clippy::unwrap_used)]

mod common;

use common::commits::{
    NEVER, anything_can_be_put, check, collect, collect_at, commit, holey_packs,
};
use common::{noise, open, small_packs};
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use objstore::gc::{Strictness, Swept, Walk};
use objstore::{
    ChunkId, Commit, CommitId, Error, FileContent, Kind, ObjectStore, StoreConfig, store_content,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn what_nothing_needs_goes_and_the_disk_gets_its_space_back() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let kept = commit(&store, &[1, 2, 3]).unwrap();
    let gone = commit(&store, &[3, 4, 5, 6, 7, 8]).unwrap();
    store.sync().unwrap();
    let before = store.stats().bytes;
    let swept = collect(&store, &[kept]).unwrap();
    let after = store.stats().bytes;
    assert!(after < before / 2, "{before} {after} {swept:?}");
    assert_eq!(swept.freed_bytes, before - after + overhead(&swept, &store));
    assert_eq!(check(&store, kept).unwrap(), 3);
    assert!(check(&store, gone).is_err());
    store.close().unwrap();
    let store = open(&disk, small_packs());
    assert_eq!(check(&store, kept).unwrap(), 3);
    assert_eq!(
        collect(&store, &[kept]).unwrap().packs,
        0,
        "nothing is left to do"
    );
    assert_eq!(commit(&store, &[3, 4, 5, 6, 7, 8]).unwrap(), gone);
    assert_eq!(
        check(&store, gone).unwrap(),
        6,
        "what went can be put again"
    );
    collect(&store, &[]).unwrap();
    assert_eq!(store.stats().objects, 0);
}

/// Headers of the packs that were begun for copies.
fn overhead(swept: &Swept, store: &ObjectStore) -> u64 {
    let begun = store.stats().packs as u64;
    if swept.copied_bytes > 0 {
        begun * 24
    } else {
        0
    }
}

#[test]
fn what_is_put_or_found_during_a_run_is_kept() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let old = commit(&store, &[1, 2]).unwrap();
    commit(&store, &[3]).unwrap();
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    assert!(matches!(store.collect(&stop).unwrap_err(), Error::Busy));
    let again = commit(&store, &[1, 2]).unwrap();
    let new = commit(&store, &[9]).unwrap();
    let plan = run.plan(Duration::ZERO, 20).unwrap();
    let late = commit(&store, &[3]).unwrap();
    run.sweep(&plan, &|_| ()).unwrap();
    drop(run);
    assert_eq!(again, old);
    for id in [old, new, late] {
        assert!(check(&store, id).unwrap() > 0);
    }
}

#[test]
fn a_run_waits_for_pins_and_can_be_stopped() {
    let store = open(&CrashStorage::without_log(), small_packs());
    let stop = AtomicBool::new(false);
    let kept = std::thread::scope(|scope| {
        let pin = store.pin();
        let id = commit(&store, &[1]).unwrap();
        let store = &store;
        let run = scope.spawn(move || collect(store, &[id]));
        drop(pin);
        run.join().unwrap().unwrap();
        id
    });
    check(&store, kept).unwrap();
    let _pin = store.pin();
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(store.collect(&stop).unwrap_err(), Error::Stopped));
    stop.store(false, Ordering::Relaxed);
}

#[test]
fn packs_in_their_grace_period_stay() {
    let dir = tempfile::tempdir().unwrap();
    let storage = objstore::file_storage::FileStorage::open(dir.path()).unwrap();
    let store = ObjectStore::open(std::sync::Arc::new(storage), small_packs()).unwrap();
    commit(&store, &[1, 2, 3]).unwrap();
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    let young = run.plan(Duration::from_secs(3600), 20).unwrap();
    assert!(young.packs.is_empty() && young.left_bytes > 0, "{young:?}");
    let all = run.plan(Duration::ZERO, 20).unwrap();
    assert!(!all.packs.is_empty());
    run.sweep(&all, &|_| ()).unwrap();
    drop(run);
    let packs = std::fs::read_dir(dir.path().join("packs")).unwrap().count();
    assert_eq!(packs, 0, "the files are gone, too");
}

#[test]
fn damage_of_what_is_needed_stops_a_run_before_anything_goes() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let kept = commit(&store, &[1]).unwrap();
    let root = store.get_object::<Commit>(&kept).unwrap().root.unwrap();
    commit(&store, &[2, 3]).unwrap();
    store.close().unwrap();
    let find = |what: &[u8]| {
        let packs = disk.paths().into_iter().filter(|p| p.ends_with(".pack"));
        packs.into_iter().find_map(|path| {
            let file = objstore::io::Storage::read(&disk, &path).unwrap().unwrap();
            let at = file.windows(32).position(|w| w == what)?;
            Some((path, at as u64))
        })
    };
    let (path, at) = find(root.as_bytes()).unwrap();
    let bytes = store.stats().bytes;
    assert!(disk.flip_bit(&path, at + 50, 1));
    let failed = collect(&store, &[kept]).unwrap_err();
    assert!(failed.is_damage(), "{failed}");
    assert_eq!(store.stats().bytes, bytes);
}

#[test]
fn chunks_without_their_manifest_do_not_count_as_stored_content() {
    let store = open(&CrashStorage::without_log(), small_packs());
    let bytes = noise(5, 600_000);
    let all = std::iter::once(0..bytes.len() as u64).collect::<Vec<_>>();
    let len = bytes.len() as u64;
    let content = store_content(&store, None, &[], &all, len, &bytes).unwrap();
    assert!(store.contains_content(&content).unwrap());
    let first = objstore::chunker::cut(&bytes[..objstore::limits::CHUNK_BYTES_MAX]);
    let chunk = store.put_chunk(&bytes[..first]).unwrap();
    // The manifest stays, one chunk goes.
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    let FileContent::Manifest { id, .. } = content else {
        panic!("one chunk")
    };
    assert!(store.contains(Kind::Manifest, id.as_bytes()));
    assert!(store.contains(Kind::Chunk, chunk.as_bytes()));
    run.sweep(&run.plan(Duration::ZERO, 20).unwrap(), &|_| ())
        .unwrap();
    drop(run);
    assert!(!store.contains_content(&content).unwrap());
    let again = store_content(&store, None, &[], &all, len, &bytes).unwrap();
    assert_eq!(again, content);
    assert!(store.contains_content(&content).unwrap());
}

/// Commits that were synced, the newest last, and what they hold.
struct Kept {
    id: CommitId,
    files: usize,
}

/// Puts, syncs and collects; the disk's operations say what was acknowledged when.
fn work(seed: u64, how: &How) -> (CrashStorage, Vec<(usize, usize, Kept)>) {
    let disk = CrashStorage::new();
    let store = open(&disk, how.config.clone());
    let mut kept: Vec<(usize, usize, Kept)> = Vec::new();
    let mut punched = 0;
    for round in 0..6 {
        let seeds: Vec<u64> = (0..4).map(|i| (seed + round * 3 + i * i) % 17).collect();
        let mut seeds = seeds;
        seeds.sort_unstable();
        seeds.dedup();
        let id = commit(&store, &seeds).unwrap();
        store.sync().unwrap();
        let files = seeds.len();
        kept.push((disk.op_count(), usize::MAX, Kept { id, files }));
        if round % 2 == 1 {
            // The oldest is let go of, then collected.
            if let Some(entry) = kept.iter_mut().find(|k| k.1 == usize::MAX) {
                entry.1 = disk.op_count();
            }
            let roots = kept.iter().filter(|k| k.1 == usize::MAX);
            let roots: Vec<CommitId> = roots.map(|k| k.2.id).collect();
            let swept = collect_at(&store, &roots, how.percent).unwrap();
            punched += swept.punched_bytes;
        }
    }
    assert_eq!(punched > 0, how.percent == NEVER, "{punched}");
    (disk, kept)
}

/// Packs and what becomes of them.
struct How {
    config: StoreConfig,
    percent: u64,
}

/// Small packs that are rewritten, and larger ones in which holes are punched.
fn hows() -> [How; 2] {
    [(small_packs(), 20), (holey_packs(), NEVER)].map(|(config, percent)| How { config, percent })
}

#[test]
fn a_power_cut_at_any_operation_of_a_run_loses_nothing_that_is_needed() {
    for (seed, how) in (0..3).flat_map(|seed| hows().map(|how| (seed, how))) {
        let (disk, kept) = work(seed, &how);
        for op in 0..=disk.op_count() {
            for policy in Policy::ALL {
                let image = disk.image_at(op, policy, seed);
                let store = open(&image, how.config.clone());
                let needed = kept.iter().filter(|k| k.0 <= op && op <= k.1);
                let needed: Vec<&Kept> = needed.map(|k| &k.2).collect();
                let at = format!("seed {seed} op {op} {policy:?}");
                let verify = |store: &ObjectStore| {
                    for k in &needed {
                        let files = check(store, k.id);
                        let files = files.unwrap_or_else(|e| panic!("{at}: {e}"));
                        assert_eq!(files, k.files, "{at}");
                    }
                };
                verify(&store);
                let roots: Vec<CommitId> = needed.iter().map(|k| k.id).collect();
                collect_at(&store, &roots, how.percent).unwrap();
                verify(&store);
                drop(store);
                verify(&open(&image, how.config.clone()));
                anything_can_be_put(&image, &how.config, &at);
            }
        }
    }
}

#[test]
fn faults_at_any_operation_of_a_run_lose_nothing_that_is_needed() {
    let ops = [
        FaultOp::Append,
        FaultOp::Create,
        FaultOp::Replace,
        FaultOp::Remove,
        FaultOp::Sync,
        FaultOp::SyncDir,
        FaultOp::Read,
        FaultOp::Punch,
    ];
    for (op, how) in ops.into_iter().flat_map(|op| hows().map(|how| (op, how))) {
        for (nth, fault) in (1..40).flat_map(|n| [(n, Fault::Io), (n, Fault::NoSpace)]) {
            let disk = CrashStorage::new();
            let store = open(&disk, how.config.clone());
            let kept = commit(&store, &[1, 2, 3, 12]).unwrap();
            commit(&store, &[3, 4, 5, 14, 15, 16]).unwrap();
            store.sync().unwrap();
            disk.fail_nth(op, nth, fault);
            let swept = collect_at(&store, &[kept], how.percent);
            disk.clear_faults();
            let at = format!("{op:?} {nth} {fault:?} {swept:?}");
            assert_eq!(check(&store, kept).expect(&at), 4, "{at}");
            for policy in Policy::ALL {
                let image = disk.image_at(disk.op_count(), policy, nth);
                let store = open(&image, how.config.clone());
                assert_eq!(check(&store, kept).expect(&at), 4, "{at} {policy:?}");
                drop(store);
                anything_can_be_put(&image, &how.config, &at);
            }
        }
    }
}

#[test]
fn threads_that_put_during_runs_lose_nothing() {
    let [rewritten, punched] = hows();
    assert_eq!(threads_that_put_during_runs(&rewritten), 0);
    assert!(threads_that_put_during_runs(&punched) > 0);
}

/// One run of gc; gives how many bytes were punched.
fn collect_beside(
    store: &ObjectStore,
    needed: &dyn Fn() -> Vec<(CommitId, usize)>,
    how: &How,
) -> u64 {
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(&run, met);
    // Asked for once the run has begun: what is put from then on is needed anyway.
    for (id, _) in needed() {
        walk.commit(id, Strictness::All).unwrap();
    }
    walk.finish().unwrap();
    let plan = run.plan(Duration::ZERO, how.percent).unwrap();
    run.sweep(&plan, &|_| ()).unwrap().punched_bytes
}

/// Returns how many bytes were punched.
fn threads_that_put_during_runs(how: &How) -> u64 {
    let store = open(&CrashStorage::without_log(), how.config.clone());
    // Needed and not, one after the other, and none of it put again: there is something to punch.
    for seed in [31, 43, 32, 44, 39, 45, 40, 46] {
        commit(&store, &[seed]).unwrap();
    }
    let kept = (commit(&store, &[31, 32, 39, 40]).unwrap(), 4);
    let roots = parking_lot::Mutex::new(Vec::<(CommitId, usize)>::new());
    let needed = || [&[kept][..], &roots.lock()].concat();
    let done = AtomicBool::new(false);
    let mut punched = 0;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (store, roots, done) = (&store, &roots, &done);
            scope.spawn(move || {
                for round in 0..120 {
                    let seeds: Vec<u64> =
                        (0..3).map(|i| (thread + round * 5 + i * 7) % 23).collect();
                    let pin = store.pin();
                    let id = commit(store, &seeds).unwrap();
                    assert_eq!(check(store, id).unwrap(), 3);
                    let mut all = roots.lock();
                    all.push((id, 3));
                    if all.len() > 6 {
                        all.remove(0);
                    }
                    drop((all, pin));
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        let mut runs = 0;
        while !done.load(Ordering::Relaxed) || runs < 3 {
            punched += collect_beside(&store, &needed, how);
            runs += 1;
        }
    });
    punched += collect_beside(&store, &needed, how);
    for (id, files) in needed() {
        assert_eq!(check(&store, id).unwrap(), files);
    }
    punched
}

#[test]
fn ids_of_chunks_stay_what_they_were() {
    let store = open(&CrashStorage::without_log(), small_packs());
    let id = store.put_chunk(b"x").unwrap();
    collect(&store, &[]).unwrap();
    assert_eq!(store.put_chunk(b"x").unwrap(), id);
    assert_eq!(id, ChunkId::from_bytes(*blake3::hash(b"x").as_bytes()));
}

/// A put that finds a directory says nothing of what is in it: the walk has to go on from there.
#[test]
fn what_a_put_found_is_still_looked_into() {
    let store = open(&CrashStorage::without_log(), small_packs());
    let kept = commit(&store, &[1, 2, 3]).unwrap();
    commit(&store, &[4]).unwrap();
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    let found: Commit = store.get_object(&kept).unwrap();
    store.put_object(&found).unwrap();
    assert!(store.contains(Kind::Tree, found.root.unwrap().as_bytes()));
    let met = &mut |_: objstore::gc::Met<'_>| ();
    let mut walk = Walk::new(&run, met);
    walk.commit(kept, Strictness::All).unwrap();
    walk.finish().unwrap();
    run.sweep(&run.plan(Duration::ZERO, 0).unwrap(), &|_| ())
        .unwrap();
    drop(run);
    assert_eq!(check(&store, kept).unwrap(), 3);
}

/// The pack that a run rewrites has an older record of it, which nothing marks because it is damaged.
#[test]
fn what_is_stored_anew_during_a_run_because_it_was_damaged_is_kept() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, StoreConfig::default());
    let bytes = noise(1, 500);
    let id = store.put_chunk(&bytes).unwrap();
    store.close().unwrap();
    assert!(disk.flip_bit("packs/00000001.pack", 24 + 56 + 100, 1));
    assert!(store.get_chunk(&id).unwrap_err().is_damage());
    let stop = AtomicBool::new(false);
    let run = store.collect(&stop).unwrap();
    assert_eq!(store.put_chunk(&bytes).unwrap(), id);
    run.sweep(&run.plan(Duration::ZERO, 0).unwrap(), &|_| ())
        .unwrap();
    drop(run);
    assert!(store.contains(Kind::Chunk, id.as_bytes()));
    store.close().unwrap();
    let store = open(&disk, StoreConfig::default());
    assert_eq!(*store.get_chunk(&id).unwrap(), bytes);
}

/// The newer record of a needed object is damaged, and nobody knows yet: the older one must stay.
#[test]
fn the_last_whole_record_of_an_object_is_not_swept() {
    let disk = CrashStorage::without_log();
    let store = open(&disk, small_packs());
    let kept = commit(&store, &[1]).unwrap();
    let bytes = noise(1, 1017);
    let id = ChunkId::from_bytes(*blake3::hash(&bytes).as_bytes());
    commit(&store, &[2, 3, 4]).unwrap();
    let find = |path: &str| {
        let file = objstore::io::Storage::read(&disk, path).unwrap().unwrap();
        let at = file.windows(32).position(|w| w == id.as_bytes());
        at.map(|at| at as u64 + 40)
    };
    let first = "packs/00000001.pack";
    let older = find(first).unwrap();
    disk.flip_bit(first, older, 0);
    assert!(store.get_chunk(&id).is_err());
    store.put_chunk(&bytes).unwrap();
    store.close().unwrap();
    drop(store);
    let packs = disk.paths().into_iter();
    let newer = packs.filter(|p| p.ends_with(".pack") && p != first);
    let newer = newer
        .filter_map(|p| find(&p).map(|at| (p, at)))
        .next()
        .unwrap();
    disk.flip_bit(first, older, 0);
    disk.flip_bit(&newer.0, newer.1, 0);
    let store = open(&disk, small_packs());
    collect(&store, &[kept]).unwrap();
    assert_eq!(check(&store, kept).unwrap(), 1);
    drop(store);
    assert_eq!(check(&open(&disk, small_packs()), kept).unwrap(), 1);
}
