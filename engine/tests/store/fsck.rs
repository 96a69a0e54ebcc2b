//! One bit flipped anywhere in a store: found, named, and what is not affected is still readable; a
//! repair never makes it worse.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{check, copy, engine, put, read_all};
use crate::common::rng::{Rng, bytes};
use crate::common::world::{MAIN, NAME, World};
use engine::verbs;
use engine::{CheckpointRequest, CloseMode, Engine, EngineConfig, FsckReport, Settings};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tempfile::TempDir;

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

struct Store {
    disk: CrashStorage,
    files: Files,
    base: TempDir,
}

/// A store with every kind of record in it: closed, sealed, and with a journal that goes on.
fn store() -> Store {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("sub")).unwrap();
    for i in 0..4 {
        std::fs::write(base.path().join(format!("sub/b{i}")), bytes(i, 5000)).unwrap();
    }
    std::fs::write(base.path().join("large"), bytes(9, 600_000)).unwrap();
    let disk = CrashStorage::without_log();
    let mut world = World::on_disk(disk.clone(), base.path());
    world.engine.set_settings(Settings::quiet()).unwrap();
    put(&world, "own", &bytes(20, 9000));
    let value = |n| format!("\"{}\"", "v".repeat(n));
    verbs::kv_set(world.w(), MAIN, "kept", &value(3000)).unwrap();
    let request = CheckpointRequest {
        label: Some("kept".into()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).unwrap();
    verbs::kv_set(world.w(), MAIN, "sealed", &value(4000)).unwrap();
    world.w().seal().unwrap();
    put(&world, "late", &bytes(21, 9000));
    verbs::kv_set(world.w(), MAIN, "late", &value(5)).unwrap();
    let files = read_all(&world).into_iter();
    let files = files.map(|(path, data)| (path, data.unwrap())).collect();
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.engine.shut_down().unwrap();
    Store { disk, files, base }
}

/// Paths of the live tree that a report names.
fn named(report: &FsckReport) -> BTreeSet<Vec<u8>> {
    let all = report.findings.iter().flat_map(|f| &f.affects);
    all.map(|a| a.path.clone()).collect()
}

/// What can be read is what was written; what cannot be read is named. True where the branch opens. A
/// branch that was opened `again` shows its newest commit; the keys may be those of an older one.
fn readable(
    store: &Store,
    disk: CrashStorage,
    report: &FsckReport,
    (again, older_keys): (bool, bool),
    at: &str,
) -> bool {
    let Ok(world) = World::try_open(disk, store.base.path()) else {
        let whole = |a: &engine::Affected| a.workspace == NAME && a.path.is_empty();
        let told = report.findings.iter().flat_map(|f| &f.affects).any(whole);
        assert!(
            told,
            "{at}: it cannot be opened, and nobody is told: {report:?}"
        );
        return false;
    };
    let keys = verbs::kv_list(world.w(), MAIN, "").unwrap();
    for (key, entry) in &keys {
        let len = [("kept", 3002), ("late", 7), ("sealed", 4002)];
        assert!(len.contains(&(key, entry.value.len())), "{at}: wrong keys");
    }
    let told = !report.findings.is_empty();
    assert!(
        keys.len() == 3 || told || again || older_keys,
        "{at}: keys are missing"
    );
    let found = read_all(&world);
    let late = usize::from(again);
    assert!(found.len() + late >= store.files.len(), "{at}");
    for (path, data) in found {
        match data {
            Ok(data) => assert!(data == store.files[&path], "{at}: wrong bytes"),
            Err(e) => assert!(
                named(report).contains(&path),
                "{at}: {:?} is not named ({e}): {report:?}",
                String::from_utf8_lossy(&path)
            ),
        }
    }
    true
}

#[test]
fn a_whole_store_has_no_findings() {
    let store = store();
    let report = check(&store.disk);
    assert_eq!(report.findings, [], "{report:?}");
    assert!(report.records > 10 && report.commits == 2 && report.branches == 1);
}

#[test]
fn a_flipped_bit_is_found_and_named_and_the_rest_stays_readable() {
    let store = store();
    let mut rng = Rng(5);
    let mut tried = BTreeMap::<&str, u32>::new();
    for path in store.disk.paths() {
        let len = store.disk.read(&path).unwrap().unwrap().len() as u64;
        let (kind, from) = match path.as_str() {
            p if p.ends_with(".pack") => ("pack", 0),
            p if p.ends_with(".idx") => ("index", 0),
            p if p.ends_with(".ref") => ("ref", 0),
            p if p.ends_with("/state") => ("pointer", 0),
            p if p.contains("/state-") => ("state", 0),
            // The first record that is needed comes after what the state file has.
            p if p.ends_with(".seg") => ("journal", len.saturating_sub(9000)),
            _ => continue,
        };
        if len <= from || path.contains("refs/gc") {
            continue;
        }
        for _ in 0..(if kind == "pack" { 60 } else { 12 }) {
            let offset = from + rng.below(len - from);
            let disk = copy(&store.disk);
            assert!(disk.flip_bit(&path, offset, rng.next() as u8));
            let at = format!("{path}, byte {offset} of {len}");
            let report = check(&disk);
            assert!(!report.findings.is_empty(), "{at}: not found");
            readable(&store, copy(&disk), &report, (false, false), &at);
            *tried.entry(kind).or_default() += 1;
            repaired(&store, disk, &report, &at);
        }
    }
    assert_eq!(tried.len(), 6, "{tried:?}");
}

#[test]
fn keys_that_cannot_be_read_are_those_of_an_older_commit_after_a_repair() {
    let store = store();
    let pack = "packs/00000001.pack";
    let len = store.disk.read(pack).unwrap().unwrap().len() as u64;
    let without = (0..len).step_by(100).find_map(|at| {
        let disk = copy(&store.disk);
        disk.flip_bit(pack, at, 1);
        let report = check(&disk);
        let step = |s: &engine::RepairStep| matches!(s, engine::RepairStep::OlderKeys { .. });
        report.steps.iter().any(step).then_some((disk, report))
    });
    let (disk, report) = without.unwrap();
    assert!(World::try_open(copy(&disk), store.base.path()).is_err());
    let (engine, _home) = engine(&disk);
    engine.repair(&report, &mut |_, r| r.unwrap()).unwrap();
    assert_eq!(engine.fsck(&|_, _| ()).unwrap().findings, []);
    drop(engine);
    let world = World::try_open(disk, store.base.path()).unwrap();
    let keys = verbs::kv_list(world.w(), MAIN, "").unwrap();
    let keys: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["kept", "late"]);
    assert_eq!(read_all(&world).len(), store.files.len());
}

/// A repair leaves no less readable than there was, and its second check finds no more.
fn repaired(store: &Store, disk: CrashStorage, report: &FsckReport, at: &str) {
    let before: BTreeMap<String, Vec<u8>> = disk
        .paths()
        .into_iter()
        .map(|p| (p.clone(), disk.read(&p).unwrap().unwrap()))
        .collect();
    let (engine, _home) = engine(&disk);
    let report_now = engine.fsck(&|_, _| ()).unwrap();
    engine.repair(&report_now, &mut |_, _| ()).unwrap();
    let left = engine.fsck(&|_, _| ()).unwrap();
    assert!(
        left.findings.len() <= report.findings.len(),
        "{at}: {left:?}"
    );
    drop(engine);
    let step = |s: &engine::RepairStep| matches!(s, engine::RepairStep::Reopen(_));
    let older = |s: &engine::RepairStep| matches!(s, engine::RepairStep::OlderKeys { .. });
    let steps = || report.steps.iter();
    let allowed = (steps().any(step), steps().any(older));
    let opens = readable(store, copy(&disk), &left, allowed, at);
    let base_only = !left.findings.iter().any(|f| f.affects.is_empty());
    assert!(opens || base_only, "{at}: {left:?}");
    let state = at.contains("/state");
    assert!(
        !state || (opens && left.findings.is_empty()),
        "{at}: {left:?}"
    );
    // What was replaced is still there as it was.
    for (path, bytes) in before.iter().filter(|(p, _)| p.ends_with(".pack")) {
        let now = disk.read(path).unwrap();
        let aside = disk.read(&format!("damaged/{path}")).unwrap();
        assert!(
            now.as_ref() == Some(bytes) || aside.as_ref() == Some(bytes),
            "{at}: {path}"
        );
    }
}

#[test]
fn what_the_project_still_has_is_restored_from_it() {
    let store = store();
    let pack = "packs/00000001.pack";
    let len = store.disk.read(pack).unwrap().unwrap().len() as u64;
    // Somewhere the file's chunk is.
    let broken = (0..len).step_by(1000).find_map(|at| {
        let disk = copy(&store.disk);
        disk.flip_bit(pack, at, 1);
        let report = check(&disk);
        let alone = named(&report).len() == 1 && report.findings.len() == 1;
        (alone && named(&report).contains(b"sub/b2".as_slice())).then_some((disk, report))
    });
    let (disk, report) = broken.unwrap();
    let commits = report.findings[0].affects.iter();
    let labels: BTreeSet<&String> = commits.flat_map(|a| &a.labels).collect();
    assert!(labels.contains(&"kept".to_owned()), "{report:?}");
    let (engine, _home) = engine(&disk);
    engine.repair(&report, &mut |_, _| ()).unwrap();
    assert_eq!(engine.fsck(&|_, _| ()).unwrap().findings, []);
    drop(engine);
    assert!(readable(
        &store,
        disk,
        &FsckReport::default(),
        (false, false),
        "after the repair"
    ));
}

#[test]
fn any_damage_neither_panics_nor_shows_wrong_bytes() {
    let store = store();
    let mut rng = Rng(11);
    for round in 0..60 {
        let disk = copy(&store.disk);
        for _ in 0..1 + rng.below(30) {
            let paths = disk.paths();
            let path = rng.pick(&paths).clone();
            let len = disk.read(&path).unwrap().unwrap().len() as u64;
            match rng.below(8) {
                0 if path != "format" => disk.remove(&path).unwrap(),
                1 => {
                    let file = disk.open(&path).unwrap();
                    file.truncate(rng.below(len + 1)).unwrap();
                }
                _ if len > 0 => {
                    disk.flip_bit(&path, rng.below(len), rng.next() as u8);
                }
                _ => {}
            }
        }
        let home = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            root: home.path().to_owned(),
            author: "test".into(),
        };
        let Ok(engine) = Engine::on_storage(config, Arc::new(disk.clone())) else {
            continue;
        };
        let report = engine
            .fsck(&|_, _| ())
            .unwrap_or_else(|e| panic!("{round}: {e}"));
        let _ = engine.repair(&report, &mut |_, _| ());
        let _ = engine.fsck(&|_, _| ());
        let _ = engine.figures();
        drop(engine);
        if let Ok(world) = World::try_open(disk, store.base.path()) {
            for (path, data) in read_all(&world) {
                if let (Ok(data), Some(written)) = (data, store.files.get(&path)) {
                    assert!(data == *written || data.is_empty(), "{round}: wrong bytes");
                }
            }
        }
    }
}
