//! What becomes of a branch whose state is damaged: it is opened again as whole as can be, what cannot be
//! shown is kept aside, and no other branch is touched.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{
    Files, assert_same, call, check, checkpoint, copy, copy_to, engine, files, put, put_in,
};
use crate::common::rng::bytes;
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{CloseMode, CommitId, DiffSide, FsckReport, GcRequest, RepairStep, Settings, Target};
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use objstore::io::Storage;
use std::time::Duration;
use tempfile::TempDir;

const SIDE: &str = "side";
const MAIN_DIR: &str = "workspaces/w/branches/main";
const SIDE_DIR: &str = "workspaces/w/branches/1";

/// Two branches with commits of their own and changes in no commit, closed.
struct Store {
    disk: CrashStorage,
    base: TempDir,
    /// Newest commit of `main`.
    second: CommitId,
    /// What the branches show.
    live: Files,
    live_side: Files,
    /// All commits of `main`.
    ids: Vec<CommitId>,
}

fn store(sealed: bool) -> Store {
    store_of(4, sealed)
}

/// With `sealed`, the state file has the newest commit and the journal begins behind it. With many files the
/// state files stand on a tree file, which both branches share.
fn store_of(count: u64, sealed: bool) -> Store {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("sub")).unwrap();
    for i in 0..count {
        let size = if i < 4 { 5000 } else { 10 };
        std::fs::write(base.path().join(format!("sub/b{i}")), bytes(i, size)).unwrap();
    }
    let disk = CrashStorage::without_log();
    let mut world = World::on_disk(disk.clone(), base.path());
    world.engine.set_settings(Settings::quiet()).unwrap();
    put(&world, "own", &bytes(20, 9000));
    call(&world, MAIN, "tool-1");
    verbs::kv_set(world.w(), MAIN, "kept", "1").unwrap();
    checkpoint(&world, MAIN, "first");
    world.w().seal().unwrap();
    verbs::create_branch(world.w(), SIDE, MAIN, None).unwrap();
    put_in(&world, SIDE, "of-side", b"of side");
    checkpoint(&world, SIDE, "side-kept");
    put_in(&world, SIDE, "late-side", b"of side, late");
    put(&world, "more", &bytes(21, 9000));
    call(&world, MAIN, "tool-2");
    let second = checkpoint(&world, MAIN, "second");
    if sealed {
        world.w().seal().unwrap();
    }
    put(&world, "late", &bytes(22, 9000));
    verbs::kv_set(world.w(), MAIN, "late", "2").unwrap();
    let log = verbs::log(world.w(), MAIN, true).unwrap();
    let ids = log.into_iter().filter_map(|e| e.commit).collect();
    let (live, live_side) = (files(&world, MAIN), files(&world, SIDE));
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.engine.shut_down().unwrap();
    Store {
        disk,
        base,
        second,
        live,
        live_side,
        ids,
    }
}

/// Path of the state file of a branch.
fn state_of(disk: &CrashStorage, dir: &str) -> String {
    let names = disk.list(dir).unwrap();
    let found: Vec<&String> = names.iter().filter(|n| n.starts_with("state-")).collect();
    assert_eq!(found.len(), 1, "{names:?}");
    format!("{dir}/{}", found[0])
}

fn len(disk: &CrashStorage, path: &str) -> u64 {
    disk.read(path).unwrap().unwrap().len() as u64
}

fn is_for_main(step: &RepairStep) -> bool {
    match step {
        RepairStep::Reopen(r) => r.branch == MAIN,
        RepairStep::TakeState { dir, .. } => dir == MAIN_DIR,
        _ => false,
    }
}

/// What a plan says of `main`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// All is shown that was.
    Exact,
    /// Its newest commit is shown; so many entries of the timeline are lost.
    Newest { entries_lost: u64 },
}

fn plan_of(report: &FsckReport) -> Plan {
    let reopen = report.steps.iter().find_map(|s| match s {
        RepairStep::Reopen(r) if r.branch == MAIN => Some(r),
        _ => None,
    });
    // A file is made and written, a key is set.
    assert!(
        reopen.is_none_or(|r| r.changes.is_none_or(|n| n == 3)),
        "{reopen:?}"
    );
    reopen.map_or(Plan::Exact, |r| Plan::Newest {
        entries_lost: r.entries_lost,
    })
}

/// The timeline is whole, or what is missing of it is told.
fn timeline_is(world: &World, plan: Plan, at: &str) {
    let verified = verbs::timeline_verify(world.w(), MAIN).unwrap();
    let lost = match plan {
        Plan::Newest { entries_lost } => entries_lost,
        Plan::Exact => 0,
    };
    match lost {
        0 => assert!(
            verified.faults.is_empty() && verified.entries >= 2,
            "{at}: {verified:?}"
        ),
        _ => assert!(
            verified.faults[0].what.contains("was removed"),
            "{at}: {verified:?}"
        ),
    }
}

/// Repairs, and looks whether nothing is found any more.
fn repair(disk: &CrashStorage, report: &FsckReport, at: &str) {
    let (engine, _home) = engine(disk);
    let told = engine.repair(report, &mut |step, done| {
        done.unwrap_or_else(|e| panic!("{at}: {step}: {e}"));
    });
    told.unwrap();
    let left = engine.fsck(&|_, _| ()).unwrap();
    assert_eq!(left.findings, [], "{at}");
}

/// The branch shows its newest commit, or all that it did; it has its log and can be worked on.
fn whole_again(store: &Store, disk: CrashStorage, plan: Plan, at: &str) {
    let mut world =
        World::try_open(disk, store.base.path()).unwrap_or_else(|e| panic!("{at}: {e}"));
    main_is_whole(store, &world, plan, at);
    assert_same(&files(&world, SIDE), &store.live_side, at);
    put(&world, "afterwards", b"written");
    checkpoint(&world, MAIN, "third");
    world.w().seal().unwrap();
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.reopen().unwrap();
    world.engine.gc(all_that_is_unneeded(), &|_, _| ()).unwrap();
    let target = Target::Ref(store.second.to_string());
    verbs::rollback(world.w(), MAIN, &target).unwrap();
    let shown = files(&world, MAIN);
    assert!(!shown.contains_key(b"late".as_slice()), "{at}");
    assert_eq!(shown.len(), store.live.len() - 1, "{at}");
    verbs::undo(world.w(), MAIN).unwrap();
    assert_eq!(files(&world, MAIN)[b"afterwards".as_slice()], b"written");
    call(&world, MAIN, "tool-3");
    timeline_is(&world, plan, at);
}

fn main_is_whole(store: &Store, world: &World, plan: Plan, at: &str) {
    let shown = files(world, MAIN);
    let exact = plan == Plan::Exact;
    if exact {
        assert_same(&shown, &store.live, at);
    } else {
        let (from, to) = (DiffSide::Ref(store.second.to_string()), DiffSide::Live);
        let changes = verbs::diff(world.w(), MAIN, &from, &to, &[]).unwrap();
        assert_eq!(changes, [], "{at}");
        let mut committed = store.live.clone();
        committed.remove(b"late".as_slice());
        assert_same(&shown, &committed, at);
    }
    let keys = verbs::kv_list(world.w(), MAIN, "").unwrap();
    let keys: Vec<&str> = keys.iter().map(|(k, _)| k.as_str()).collect();
    let wanted: &[&str] = if exact { &["kept", "late"] } else { &["kept"] };
    assert_eq!(keys, wanted, "{at}");
    let log = verbs::log(world.w(), MAIN, true).unwrap();
    for id in &store.ids {
        assert!(log.iter().any(|e| e.commit == Some(*id)), "{at}: {id}");
    }
    let second = log.iter().find(|e| e.commit == Some(store.second));
    let second = second.unwrap();
    assert_eq!(second.message, "says second", "{at}");
    assert_eq!(second.meta, [("of".to_owned(), MAIN.to_owned())], "{at}");
    assert!(second.is_head && !second.automatic, "{at}");
    timeline_is(world, plan, at);
}

/// Every file that was there is there as it was, or in `damaged/`.
fn nothing_is_gone(before: &CrashStorage, after: &CrashStorage, at: &str) {
    for path in before.paths() {
        let is_kept = |p: &str| p.starts_with(MAIN_DIR) || p.contains("/trees/");
        if !is_kept(&path) {
            continue;
        }
        let bytes = before.read(&path).unwrap();
        // A copy that a repair was cut off at has a whole one beside it.
        let aside = format!("damaged/{path}");
        let places = after.paths().into_iter();
        let mut places = places.filter(|p| *p == path || p.starts_with(&aside));
        let same = |p: String| after.read(&p).unwrap() == bytes;
        assert!(places.any(same), "{at}: {path} is gone");
    }
}

fn all_that_is_unneeded() -> GcRequest {
    GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    }
}

fn damage_and_repair(store: &Store, disk: CrashStorage, at: &str) -> Plan {
    let report = check(&disk);
    assert!(!report.findings.is_empty(), "{at}: not found");
    let steps: Vec<String> = report.steps.iter().map(ToString::to_string).collect();
    assert!(
        report.steps.iter().any(is_for_main),
        "{at}: {steps:?} {report:?}"
    );
    assert!(
        World::try_open(copy(&disk), store.base.path()).is_err(),
        "{at}: it is opened without what it had"
    );
    let (before_repair, _home) = engine(&copy(&disk));
    let collected = before_repair.gc(all_that_is_unneeded(), &|_, _| ());
    assert!(collected.is_err(), "{at}: {collected:?}");
    let before = copy(&disk);
    repair(&disk, &report, at);
    let plan = plan_of(&report);
    if plan != Plan::Exact {
        nothing_is_gone(&before, &disk, at);
    }
    assert_eq!(check(&disk).steps, [], "{at}");
    whole_again(store, disk, plan, at);
    plan
}

#[test]
fn a_branch_whose_pointer_is_lost_shows_all_that_it_did() {
    let store = store(false);
    let path = format!("{MAIN_DIR}/state");
    let removed = copy(&store.disk);
    removed.remove(&path).unwrap();
    let plan = damage_and_repair(&store, removed, "removed");
    assert_eq!(plan, Plan::Exact);
    for at in 0..len(&store.disk, &path) {
        let disk = copy(&store.disk);
        assert!(disk.flip_bit(&path, at, at as u8));
        let plan = damage_and_repair(&store, disk, &format!("byte {at}"));
        assert_eq!(plan, Plan::Exact);
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_state_file_loses_no_commit() {
    for sealed in [false, true] {
        let store = store(sealed);
        let path = state_of(&store.disk, MAIN_DIR);
        let (mut exact, mut lossy) = (0, 0);
        for at in (0..12).chain((12..len(&store.disk, &path)).step_by(61)) {
            let disk = copy(&store.disk);
            assert!(disk.flip_bit(&path, at, at as u8));
            let at = format!("sealed {sealed}, byte {at}");
            match damage_and_repair(&store, disk, &at) {
                Plan::Exact => exact += 1,
                Plan::Newest { .. } => lossy += 1,
            }
        }
        assert!(exact >= 12 && lossy > 10, "{exact} {lossy}");
    }
}

#[test]
fn a_state_file_that_is_cut_off_or_gone_loses_no_commit() {
    for sealed in [false, true] {
        let store = store(sealed);
        let path = state_of(&store.disk, MAIN_DIR);
        let all = len(&store.disk, &path);
        for keep in [0, 5, 12, 20, all / 4, all / 2, all - 1] {
            let disk = copy(&store.disk);
            disk.open(&path).unwrap().truncate(keep).unwrap();
            let at = format!("sealed {sealed}, {keep} of {all} bytes");
            let plan = damage_and_repair(&store, disk, &at);
            assert_ne!(plan, Plan::Exact);
        }
        let disk = copy(&store.disk);
        disk.remove(&path).unwrap();
        let plan = damage_and_repair(&store, disk, &format!("sealed {sealed}, gone"));
        assert_ne!(plan, Plan::Exact);
        let disk = copy(&store.disk);
        disk.remove(&path).unwrap();
        disk.remove(&format!("{MAIN_DIR}/state")).unwrap();
        let plan = damage_and_repair(&store, disk, &format!("sealed {sealed}, both gone"));
        assert_ne!(plan, Plan::Exact);
    }
}

/// A workspace of which nothing was sealed yet; its first branch was made of it early.
#[test]
fn a_branch_whose_journal_has_all_loses_nothing() {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("sub")).unwrap();
    std::fs::write(base.path().join("sub/b"), "of the base").unwrap();
    let disk = CrashStorage::without_log();
    let mut world = World::on_disk(disk.clone(), base.path());
    world.engine.set_settings(Settings::quiet()).unwrap();
    verbs::create_branch(world.w(), SIDE, MAIN, None).unwrap();
    put(&world, "own", b"first");
    call(&world, MAIN, "tool");
    let first = checkpoint(&world, MAIN, "first");
    put(&world, "late", b"in no commit");
    verbs::kv_set(world.w(), MAIN, "key", "1").unwrap();
    let (live, log) = (
        files(&world, MAIN),
        verbs::log(world.w(), MAIN, true).unwrap(),
    );
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.engine.shut_down().unwrap();
    let path = state_of(&disk, MAIN_DIR);
    for at in (12..len(&disk, &path)).step_by(23) {
        let damaged = copy(&disk);
        assert!(damaged.flip_bit(&path, at, 2));
        let at = format!("byte {at}");
        let report = check(&damaged);
        assert!(
            matches!(&report.steps[..], [RepairStep::Replay { .. }]),
            "{at}: {report:?}"
        );
        repair(&damaged, &report, &at);
        let world = World::try_open(damaged, base.path()).unwrap();
        assert_same(&files(&world, MAIN), &live, &at);
        assert_eq!(verbs::log(world.w(), MAIN, true).unwrap(), log, "{at}");
        assert_eq!(
            verbs::kv_list(world.w(), MAIN, "").unwrap().len(),
            1,
            "{at}"
        );
        let verified = verbs::timeline_verify(world.w(), MAIN).unwrap();
        assert_eq!(verified.faults, [], "{at}");
        let target = Target::Ref(first.to_string());
        verbs::rollback(world.w(), MAIN, &target).unwrap();
        assert!(!files(&world, MAIN).contains_key(b"late".as_slice()));
    }
    let damaged = copy(&disk);
    damaged.remove(&state_of(&disk, SIDE_DIR)).unwrap();
    let report = check(&damaged);
    assert!(matches!(&report.steps[..], [RepairStep::Reopen(_)]));
    repair(&damaged, &report, "side");
    let world = World::try_open(damaged, base.path()).unwrap();
    assert_eq!(files(&world, SIDE).len(), 1, "the start");
}

/// More files than a state file has differences at most.
const MANY: u64 = 1100;

#[test]
fn a_damaged_tree_file_loses_no_commit_of_the_branches_that_share_it() {
    let store = store_of(MANY, false);
    let trees = store.disk.list("workspaces/w/trees").unwrap();
    assert_eq!(trees.len(), 1, "{trees:?}");
    let path = format!("workspaces/w/trees/{}", trees[0]);
    let all = len(&store.disk, &path);
    let mut damages = vec![None];
    damages.extend([2, 9, 14, 30, all / 3, all - 9].map(Some));
    for damage in damages {
        let disk = copy(&store.disk);
        match damage {
            Some(at) => assert!(disk.flip_bit(&path, at, 3)),
            None => disk.remove(&path).unwrap(),
        }
        let at = format!("{damage:?}");
        let report = check(&disk);
        assert_eq!(report.findings.len(), 2, "{at}: both branches: {report:?}");
        let before = copy(&disk);
        repair(&disk, &report, &at);
        let plan = plan_of(&report);
        let world = World::try_open(disk.clone(), store.base.path()).unwrap();
        if damage.is_some_and(|at| at < 12) {
            assert_eq!((plan, report.steps.len()), (Plan::Exact, 1), "{at}");
            assert_same(&files(&world, SIDE), &store.live_side, &at);
        } else {
            assert_eq!(plan, Plan::Newest { entries_lost: 0 }, "{at}");
            nothing_is_gone(&before, &disk, &at);
            let mut committed = store.live_side.clone();
            committed.remove(b"late-side".as_slice());
            assert_same(&files(&world, SIDE), &committed, &at);
            let labels = verbs::log(world.w(), SIDE, false).unwrap();
            let kept = |l: &str| labels.iter().any(|e| e.labels.contains(&l.to_owned()));
            assert!(kept("side-kept") && kept("first"), "{at}: {labels:?}");
        }
        main_is_whole(&store, &world, plan, &at);
        let undone = verbs::log(world.w(), MAIN, false).unwrap();
        let labels: Vec<&String> = undone.iter().flat_map(|e| &e.labels).collect();
        assert_eq!(labels, ["second", "first"], "{at}");
    }
}

#[test]
fn of_two_branches_each_shows_its_own_commit_again() {
    for sealed in [false, true] {
        let store = store(sealed);
        for both in [false, true] {
            let disk = copy(&store.disk);
            disk.remove(&state_of(&disk, SIDE_DIR)).unwrap();
            if both {
                disk.remove(&state_of(&disk, MAIN_DIR)).unwrap();
            }
            let at = format!("sealed {sealed}, both {both}");
            let report = check(&disk);
            repair(&disk, &report, &at);
            let world = World::try_open(disk, store.base.path()).unwrap();
            let shown = files(&world, SIDE);
            let mut wanted = store.live_side.clone();
            wanted.remove(b"late-side".as_slice());
            // Where both are lost nothing tells whose a commit is that was made while there were both.
            if sealed && both {
                wanted.remove(b"of-side".as_slice());
            }
            assert_same(&shown, &wanted, &at);
            if !both {
                assert_same(&files(&world, MAIN), &store.live, &at);
            }
            for branch in [MAIN, SIDE] {
                put_in(&world, branch, "afterwards", b"written");
                checkpoint(&world, branch, "third");
            }
            let log = verbs::log(world.w(), MAIN, true).unwrap();
            for id in &store.ids {
                assert!(log.iter().any(|e| e.commit == Some(*id)), "{at}: {id}");
            }
        }
    }
}

#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let store = store(true);
    let path = state_of(&store.disk, MAIN_DIR);
    let mut bytes = store.disk.read(&path).unwrap().unwrap();
    bytes[8] = 200;
    // Something that this version does not know: a frame of its own.
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(crc32fast::hash(b"more").to_le_bytes());
    bytes.extend(b"more");
    store.disk.replace(&path, &bytes).unwrap();
    let report = check(&store.disk);
    assert_eq!((report.findings.len(), report.steps.len()), (1, 0));
    assert!(
        report.findings[0].what.contains("version is 200"),
        "{report:?}"
    );
}

/// A repair that is cut off at any of its operations, and then is made.
#[test]
fn a_repair_that_is_cut_off_anywhere_can_be_made_again() {
    for sealed in [false, true] {
        let store = store(sealed);
        let path = state_of(&store.disk, MAIN_DIR);
        for kind in ["state", "pointer", "header", "journal too"] {
            let damaged = copy(&store.disk);
            match kind {
                "pointer" => assert!(damaged.flip_bit(&format!("{MAIN_DIR}/state"), 13, 1)),
                "header" => assert!(damaged.flip_bit(&path, 3, 1)),
                _ => assert!(damaged.flip_bit(&path, 40, 1)),
            }
            if kind == "journal too" {
                damaged.remove(&format!("{MAIN_DIR}/journal/mark")).unwrap();
            }
            cut_off_anywhere(&store, &damaged, &format!("sealed {sealed}, {kind}"));
        }
    }
}

fn cut_off_anywhere(store: &Store, damaged: &CrashStorage, at: &str) {
    let report = check(damaged);
    let plan = plan_of(&report);
    let logged = copy_to(damaged, CrashStorage::new());
    let start = logged.op_count();
    repair(&logged, &report, at);
    let end = logged.op_count();
    assert!(end > start + 3, "{at}: {start} to {end}");
    for op in start..=end {
        for policy in [Policy::Keep, Policy::Drop] {
            let cut = logged.image_at(op, policy, op as u64);
            let at = format!("{at}, {policy:?} after {} operations", op - start);
            let again = check(&cut);
            if !again.findings.is_empty() {
                repair(&cut, &again, &at);
            }
            nothing_is_gone(damaged, &cut, &at);
            let world = World::try_open(cut, store.base.path()).unwrap();
            main_is_whole(store, &world, plan, &at);
            assert_same(&files(&world, SIDE), &store.live_side, &at);
        }
    }
}

/// A repair of which any one operation fails, and then is made again.
#[test]
fn a_repair_that_meets_an_error_anywhere_can_be_made_again() {
    let io = [
        FaultOp::Append,
        FaultOp::WriteAt,
        FaultOp::Truncate,
        FaultOp::Sync,
        FaultOp::Create,
        FaultOp::Replace,
        FaultOp::Remove,
        FaultOp::SyncDir,
    ];
    let full = [FaultOp::Append, FaultOp::Create, FaultOp::Replace];
    let io = io.map(|op| (op, Fault::Io)).into_iter();
    let all: Vec<_> = io.chain(full.map(|op| (op, Fault::NoSpace))).collect();
    for sealed in [false, true] {
        let store = store(sealed);
        let damaged = copy(&store.disk);
        assert!(damaged.flip_bit(&state_of(&store.disk, MAIN_DIR), 40, 1));
        let mut struck = 0;
        for (op, fault) in &all {
            let mut nth = 1;
            while is_struck(&store, &damaged, (*op, nth, *fault)) {
                nth += 1;
            }
            struck += nth - 1;
        }
        assert!(
            struck > 10,
            "sealed {sealed}: only {struck} operations failed"
        );
    }
}

/// Repairs with a fault, then without; false where the fault did not strike.
fn is_struck(store: &Store, damaged: &CrashStorage, fault: (FaultOp, u64, Fault)) -> bool {
    let at = format!("{fault:?}");
    let disk = copy(damaged);
    let (engine, home) = engine(&disk);
    let report = engine.fsck(&|_, _| ()).unwrap();
    let plan = plan_of(&report);
    disk.fail_nth(fault.0, fault.1, fault.2);
    let mut failed = false;
    let told = engine.repair(&report, &mut |_, done| failed |= done.is_err());
    failed |= told.is_err();
    disk.clear_faults();
    drop((engine, home));
    let again = check(&disk);
    if !again.findings.is_empty() {
        repair(&disk, &again, &at);
    }
    nothing_is_gone(damaged, &disk, &at);
    let world = World::try_open(disk, store.base.path()).unwrap();
    main_is_whole(store, &world, plan, &at);
    assert_same(&files(&world, SIDE), &store.live_side, &at);
    failed
}
