//! gc beside writers, checkpoints, rollbacks, sealing and expiry, cut off at any moment: nothing that can
//! be reached is missing.
//!
//! Every block that is written proves itself, so whatever is read back is seen to be whole.
//! `ENGINE_GC_CUTS` sets how many cuts are tried, `ENGINE_GC_WORKLOADS` how many workloads run beside gc,
//! `ENGINE_MODEL_SEED` makes a run happen again.
#![allow(clippy::unwrap_used)]

use crate::common::rng::{self, Rng, bytes};
use crate::common::world::{MAIN, NAME, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, GcRequest, MergeRequest, NodeId, Settings, Target, Wait, WriteFlags,
    mode,
};
use objstore::crash_storage::{CrashStorage, Policy};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const BLOCK: usize = 4096;
const FILES: u64 = 12;
const BLOCKS: u64 = 60;

fn all() -> GcRequest {
    GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    }
}

/// No pack is rewritten; holes are punched where a file was.
fn punching() -> GcRequest {
    GcRequest {
        dead_percent: Some(101),
        ..all()
    }
}

/// Bytes that holes gave back in all workloads.
static PUNCHED: AtomicU64 = AtomicU64::new(0);

/// Automatic commits expire at once.
fn forgetful() -> Settings {
    Settings {
        keep_all: Duration::ZERO,
        keep_hourly: Duration::ZERO,
        keep_daily: Duration::ZERO,
        ..Settings::quiet()
    }
}

/// A block that proves itself.
fn block(seed: u64) -> Vec<u8> {
    let mut out = seed.to_le_bytes().to_vec();
    out.extend(bytes(seed, BLOCK - 8));
    out
}

fn check_block(b: &[u8]) -> Result<(), String> {
    // A merge that keeps conflicts may write text around what it could not join.
    if b.iter().all(|x| *x == 0) || b.starts_with(b"<<<<<<<") {
        return Ok(());
    }
    let seed = u64::from_le_bytes(b[..8].try_into().unwrap());
    if b == &block(seed)[..b.len()] {
        Ok(())
    } else {
        Err("a block is not what was written".into())
    }
}

fn base() -> TempDir {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("sub")).unwrap();
    for i in 0..FILES / 2 {
        let data: Vec<u8> = (0..20).flat_map(|b| block(i * 100 + b + 1)).collect();
        std::fs::write(base.path().join(format!("f{i}")), &data).unwrap();
        std::fs::write(base.path().join(format!("sub/s{i}")), &data[..BLOCK * 3]).unwrap();
    }
    base
}

fn name(n: u64) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn file(world: &World, n: u64) -> engine::Result<NodeId> {
    if let Ok(found) = world.w().lookup(NodeId::ROOT, &name(n), W) {
        return Ok(found.node);
    }
    let who = Caller::default();
    let mode = mode::REG | 0o644;
    let made = world.w().mknod(&who, NodeId::ROOT, &name(n), mode, 0, W);
    Ok(made?.node)
}

/// One step of somebody's work. What fails does no harm here: others work on the same files.
fn step(world: &World, rng: &mut Rng, seeds: &AtomicU64) {
    let n = rng.below(FILES);
    let write = |node, at: u64, blocks: u64| {
        let data: Vec<u8> = (0..blocks)
            .flat_map(|_| block(1 + seeds.fetch_add(1, Ordering::Relaxed)))
            .collect();
        let flags = WriteFlags::default();
        let _ = world.w().write(node, at * BLOCK as u64, &data, flags, W);
    };
    match rng.below(12) {
        0..=5 => {
            if let Ok(node) = file(world, n) {
                write(node, rng.below(BLOCKS), 1 + rng.below(8));
            }
        }
        6 => {
            let _ = world.w().unlink(NodeId::ROOT, &name(n), W);
        }
        7 => {
            let (Ok(a), Ok(b)) = (file(world, n), file(world, (n + 1) % FILES)) else {
                return;
            };
            let len = (1 + rng.below(9)) * BLOCK as u64;
            let (from, to) = (rng.below(9), rng.below(20));
            let _ = world
                .w()
                .copy_range(a, from * BLOCK as u64, b, to * BLOCK as u64, len, W);
        }
        8 => {
            let flags = Default::default();
            let (from, to) = (name(n), name(rng.below(FILES)));
            let _ = world
                .w()
                .rename(NodeId::ROOT, &from, NodeId::ROOT, &to, flags, W);
        }
        _ => drop(world.w().fsync(NodeId::ROOT)),
    }
}

/// The root of a branch's view.
fn root(world: &World, branch: &str) -> Option<NodeId> {
    let own = world.w().lookup(NodeId::ROOT, b".agentvfs", W).ok()?;
    let all = world.w().lookup(own.node, b"branches", W).ok()?;
    let found = world.w().lookup(all.node, branch.as_bytes(), W).ok()?;
    Some(found.node)
}

/// Branches come, are written to, merged, and go.
fn branch_off(world: &World, rng: &mut Rng, seeds: &AtomicU64) {
    let w = world.w();
    let name = if rng.one_in(2) { "b" } else { "c" };
    match rng.below(6) {
        0..=1 => drop(verbs::create_branch(w, name, MAIN, None)),
        2 => {
            let request = MergeRequest {
                from: name.into(),
                into: MAIN.into(),
                keep_conflicts: rng.one_in(2),
                dry_run: false,
                label: None,
                message: String::new(),
            };
            drop(verbs::merge_branch(w, &request, &|_, _| ()));
        }
        3 if rng.one_in(3) => drop(verbs::delete_branch(w, name, &|_, _| ())),
        _ => {
            let Some(root) = root(world, name) else {
                return;
            };
            let file = format!("f{}", rng.below(FILES));
            let Ok(found) = w.lookup(root, file.as_bytes(), W) else {
                return;
            };
            let data = block(1 + seeds.fetch_add(1, Ordering::Relaxed));
            let at = rng.below(BLOCKS) * BLOCK as u64;
            drop(w.write(found.node, at, &data, WriteFlags::default(), W));
        }
    }
}

/// One step of the person who watches.
fn control(world: &World, rng: &mut Rng) {
    let w = world.w();
    match rng.below(10) {
        0..=2 => {
            let label = rng.one_in(2).then(|| format!("l{}", rng.below(3)));
            let message = if rng.one_in(2) { "m" } else { "" }.to_owned();
            let request = CheckpointRequest {
                label,
                message,
                wait: rng.one_in(2),
                ..Default::default()
            };
            drop(verbs::checkpoint(w, MAIN, request, &|_, _| ()));
        }
        3 => drop(verbs::rollback(w, MAIN, &Target::Head)),
        4 => {
            let log = verbs::log(w, MAIN, true).unwrap();
            let any = &log[rng.below(log.len() as u64) as usize];
            if let Some(id) = any.commit {
                drop(verbs::rollback(w, MAIN, &Target::Ref(id.to_string())));
            }
        }
        5 => drop(verbs::undo(w, MAIN)),
        6 => drop(verbs::redo(w, MAIN)),
        7 => drop(w.seal()),
        8 => drop(w.settle()),
        _ => drop(w.expire_now(MAIN)),
    }
}

/// Steps of each writer in a round of [`control`]: without a bound they fill memory with the simulated
/// disk's log while a round waits for the store.
const STEPS: u64 = 60;

/// Work of several threads while gc runs again and again.
fn workload(seed: u64, base: &TempDir, rounds: u64) -> CrashStorage {
    let disk = CrashStorage::new();
    let world = World::on_disk(disk.clone(), base.path());
    world.engine.set_settings(forgetful()).unwrap();
    let seeds = AtomicU64::new(1000 + seed * 1_000_000);
    let (done, round) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (world, seeds, done, round) = (&world, &seeds, &done, &round);
        let wait_for = |wanted: u64| {
            while round.load(Ordering::Relaxed) < wanted && !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        for thread in 0..2 {
            scope.spawn(move || {
                let mut rng = Rng(seed * 7 + thread);
                for n in 0.. {
                    wait_for(n / STEPS);
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    step(world, &mut rng, seeds);
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(move || {
            let mut rng = Rng(seed ^ 0xBEEF);
            for _ in 0..rounds {
                control(world, &mut rng);
                step(world, &mut rng, seeds);
                branch_off(world, &mut rng, seeds);
                round.fetch_add(1, Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
        });
        for n in 0.. {
            wait_for(n / 2);
            if done.load(Ordering::Relaxed) {
                return;
            }
            let request = if n % 3 == 2 { all() } else { punching() };
            let done = world.engine.gc(request, &|_, _| ()).unwrap();
            if done.packs == 0 {
                PUNCHED.fetch_add(done.freed_bytes, Ordering::Relaxed);
            }
        }
    });
    disk
}

/// Reads everything that is shown.
fn read_all(world: &World, dir: NodeId) -> Result<u64, String> {
    let mut entries = Vec::new();
    let listed = world.w().readdir(dir, 0, false, W, &mut |e| {
        entries.push(e.name.to_vec());
        true
    });
    listed.map_err(|e| e.to_string())?;
    let mut blocks = 0;
    for name in entries
        .iter()
        .filter(|n| !matches!(n.as_slice(), b"." | b".."))
    {
        let shown = String::from_utf8_lossy(name).into_owned();
        let said = |e: engine::Error| format!("{shown}: {e}");
        let attr = world.w().lookup(dir, name, W).map_err(said)?;
        if attr.kind == engine::Kind::Dir {
            blocks += read_all(world, attr.node)?;
            continue;
        }
        let data = world.w().read(attr.node, 0, 1 << 20, W).map_err(said)?;
        for part in data.chunks(BLOCK) {
            check_block(part).map_err(|e| format!("{shown}: {e}"))?;
            blocks += 1;
        }
    }
    Ok(blocks)
}

/// All that can be reached: what is shown, every commit, every step of undo.
fn check_world(world: &World, rng: &mut Rng) -> Result<u64, String> {
    let mut blocks = read_all(world, NodeId::ROOT)?;
    world.w().settle().map_err(|e| format!("settling: {e}"))?;
    blocks += read_all(world, NodeId::ROOT)?;
    for branch in verbs::list_branches(world.w()) {
        if let Some(root) = root(world, &branch.name) {
            blocks += read_all(world, root).map_err(|e| format!("{}: {e}", branch.name))?;
        }
    }
    let log = verbs::log(world.w(), MAIN, true).unwrap();
    for _ in 0..3 {
        match verbs::undo_over_later(world.w(), MAIN) {
            Ok(_) | Err(engine::Error::NothingTo(_)) => {}
            Err(e) => return Err(format!("undo: {e}")),
        }
        blocks += read_all(world, NodeId::ROOT).map_err(|e| format!("after undo: {e}"))?;
    }
    for entry in log {
        let id = entry.commit.ok_or("a commit has no id")?;
        let now = verbs::log(world.w(), MAIN, true).unwrap();
        if entry.automatic && !now.iter().any(|e| e.commit == Some(id)) {
            // It expired just now: steps of undo that need it are gone.
            continue;
        }
        let back = verbs::rollback(world.w(), MAIN, &Target::Ref(id.to_string()));
        back.map_err(|e| format!("{} {id}: {e}", entry.kind))?;
        let read = read_all(world, NodeId::ROOT);
        blocks += read.map_err(|e| format!("{} {id}: {e}", entry.kind))?;
        if rng.one_in(4) {
            let request = if rng.one_in(3) { all() } else { punching() };
            let gc = world.engine.gc(request, &|_, _| ());
            gc.map_err(|e| format!("gc: {e}"))?;
        }
    }
    world.w().seal().map_err(|e| format!("sealing: {e}"))?;
    blocks += read_all(world, NodeId::ROOT)?;
    Ok(blocks)
}

fn cuts() -> u64 {
    let given = std::env::var("ENGINE_GC_CUTS").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(40)
}

#[test]
fn nothing_that_can_be_reached_is_missing_wherever_gc_is_cut_off() {
    let base = base();
    let first = rng::asked_seed().unwrap_or_else(rng::fresh_seed) % 1_000_000;
    println!("seeds from {first}");
    let (mut tried, mut seed, mut blocks) = (0, first, 0);
    while tried < cuts() {
        let disk = workload(seed, &base, 60);
        let mut rng = Rng(seed);
        for _ in 0..10 {
            let cut = rng.below(disk.op_count() as u64 + 1) as usize;
            let policy = *rng.pick(&Policy::ALL);
            let image = disk.image_at(cut, policy, rng.next());
            let at = format!("ENGINE_MODEL_SEED={seed}, cut at {cut}, {policy:?}");
            let world = match World::try_open(image, base.path()) {
                Ok(world) => world,
                // Before the workspace was made whole.
                Err(_) if cut < 40 => continue,
                Err(e) => panic!("{at}: it cannot be opened: {e}"),
            };
            world.engine.set_settings(forgetful()).unwrap();
            blocks += check_world(&world, &mut rng).unwrap_or_else(|e| panic!("{at}: {e}"));
            tried += 1;
        }
        seed += 1;
    }
    println!(
        "{tried} cuts of {} workloads, {blocks} blocks read, {PUNCHED:?} bytes punched",
        seed - first
    );
    assert!(PUNCHED.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_a_kill_leaves_is_whole_too() {
    let base = base();
    let first = rng::asked_seed().unwrap_or_else(rng::fresh_seed) % 1_000_000;
    println!("seeds from {first}");
    for seed in first..first + 3 {
        let disk = workload(seed, &base, 40);
        let image = disk.image_at(usize::MAX, Policy::Keep, 0);
        let world = World::try_open(image, base.path()).unwrap();
        check_world(&world, &mut Rng(seed)).unwrap_or_else(|e| panic!("{seed}: {e}"));
    }
}

#[test]
fn closed_and_deleted_workspaces_are_kept_and_let_go_of() {
    let base = base();
    let mut world = World::on_disk(CrashStorage::without_log(), base.path());
    let node = file(&world, 1).unwrap();
    let flags = WriteFlags::default();
    world.w().write(node, 0, &block(77), flags, W).unwrap();
    world.close(engine::CloseMode::NoCheckpoint).unwrap();
    world.engine.gc(all(), &|_, _| ()).unwrap();
    world.reopen().unwrap();
    read_all(&world, NodeId::ROOT).unwrap();
    world.close(engine::CloseMode::Checkpoint).unwrap();
    let before = world.engine.gc(all(), &|_, _| ()).unwrap();
    assert!(before.needed_bytes > 0);
    world.engine.delete(NAME).unwrap();
    let young = GcRequest {
        grace: Some(Duration::from_secs(3600)),
        ..all()
    };
    let kept = world.engine.gc(young, &|_, _| ()).unwrap();
    assert_eq!(kept.objects, 0, "deleted, but in its grace period");
    let gone = world.engine.gc(all(), &|_, _| ()).unwrap();
    assert_eq!((gone.needed_bytes, gone.left_bytes), (0, 0), "{gone:?}");
    let left = world.engine.gc(all(), &|_, _| ()).unwrap();
    assert!(left.store_bytes < 1000, "{left:?}");
}

#[test]
fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let base = base();
    let mut world = World::on_disk(CrashStorage::new(), base.path());
    world.close(engine::CloseMode::Checkpoint).unwrap();
    world.engine.delete(NAME).unwrap();
    let dry = GcRequest {
        dry_run: true,
        ..all()
    };
    let said = world.engine.gc(dry, &|_, _| ()).unwrap();
    let ops = world.disk.as_ref().unwrap().op_count();
    assert_eq!(world.engine.gc(dry, &|_, _| ()).unwrap(), said);
    assert_eq!(world.disk.as_ref().unwrap().op_count(), ops);
    let did = world.engine.gc(all(), &|_, _| ()).unwrap();
    assert_eq!((said.objects, said.packs), (did.objects, did.packs));
    assert!(said.objects > 0);
}

/// Whoever asks for figures or a check while gc runs is answered: with figures of a moment in it, and with a check
/// of what it left.
#[test]
fn figures_and_checks_are_answered_beside_gc() {
    let base = base();
    let world = World::on_disk(workload_disk(&base), base.path());
    let before = world.engine.figures().unwrap();
    let (asked, checks) = (Cell::new(false), channel());
    std::thread::scope(|scope| {
        let gc = world.engine.gc(all(), &|_, _| {
            if asked.replace(true) {
                return;
            }
            let during = world.engine.figures().unwrap();
            assert_eq!(during.needed_bytes, before.needed_bytes);
            assert_eq!(during.workspaces[0].own_bytes, during.needed_bytes);
            let (done, engine) = (checks.0.clone(), world.engine.clone());
            scope.spawn(move || drop(done.send(engine.fsck(&|_, _| ()))));
        });
        assert!(gc.unwrap().objects > 0);
    });
    let check = checks.1.recv().unwrap().unwrap();
    assert_eq!(check.findings, []);
}

/// A disk with a workspace in it of which much is not needed any more.
fn workload_disk(base: &TempDir) -> CrashStorage {
    let mut world = World::on_disk(CrashStorage::without_log(), base.path());
    let node = file(&world, 1).unwrap();
    let flags = WriteFlags::default();
    for round in 0..200 {
        world.w().write(node, 0, &block(round), flags, W).unwrap();
        world.w().seal().unwrap();
    }
    world.close(engine::CloseMode::NoCheckpoint).unwrap();
    world.engine.shut_down().unwrap();
    world.disk.clone().unwrap()
}

/// Workloads of the race test: `ENGINE_GC_WORKLOADS`, else what takes some seconds.
fn workloads() -> u64 {
    let given = std::env::var("ENGINE_GC_WORKLOADS").ok();
    given.and_then(|n| n.parse().ok()).unwrap_or(4)
}

#[test]
fn gc_beside_work_finds_all_that_is_needed() {
    let base = base();
    let first = rng::asked_seed().unwrap_or_else(rng::fresh_seed) % 1_000_000;
    for seed in first..first + workloads() {
        println!("seed {seed}");
        workload(seed, &base, 60);
    }
}
