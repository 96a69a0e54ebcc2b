//! Opening, checking and repairing a store agree: what opening refuses a check finds, and what a check finds a
//! repair mends, or the file is named. Every small file of a store is cut off and has bits flipped.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{Files, call, check, checkpoint, copy, engine, files, put, put_in};
use crate::common::rng::{Rng, bytes, fresh_seed};
use crate::common::world::{MAIN, World, config};
use engine::verbs;
use engine::{CloseMode, DiffSide, Engine, FsckReport, Settings};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tempfile::TempDir;

const SIDE: &str = "side";
/// Files of the project with which a state stands on a tree file.
const MANY: u64 = 1500;
/// Random cuts and flips of each file, beside those that are always made.
const RANDOM: u64 = 6;
/// Bytes among which a header and a slot of a mark are hit for certain.
const HEADER_BYTES: u64 = 64;

/// A closed store with two branches.
struct Store {
    disk: CrashStorage,
    base: TempDir,
    /// What the branches show. No file was ever anything else but empty.
    live: BTreeMap<String, Files>,
}

/// What was done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Cut to so many bytes.
    Cut(u64),
    /// One bit of a byte.
    Flip(u64, u8),
}

/// What the branches of a damaged store show, without what cannot be read.
#[derive(Default)]
struct Shown {
    files: BTreeMap<String, Files>,
    unreadable: BTreeSet<Vec<u8>>,
}

impl Shown {
    fn count(&self) -> usize {
        self.files.values().map(Files::len).sum()
    }
}

/// With `sealed`, the state files have nearly all, and segments of the journals were dropped.
fn store(count: u64, sealed: bool) -> Store {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("sub")).unwrap();
    for i in 0..count {
        std::fs::write(base.path().join(format!("sub/b{i}")), bytes(i, 10)).unwrap();
    }
    let disk = CrashStorage::without_log();
    let mut world = World::on_disk(disk.clone(), base.path());
    world.engine.set_settings(Settings::quiet()).unwrap();
    put(&world, "own", &bytes(20, 9000));
    call(&world, MAIN, "tool-1");
    verbs::kv_set(world.w(), MAIN, "kept", "1").unwrap();
    checkpoint(&world, MAIN, "first");
    world.w().seal().unwrap();
    put(&world, "unsealed", &bytes(23, 9000));
    verbs::create_branch(world.w(), SIDE, MAIN, None).unwrap();
    put_in(&world, SIDE, "of-side", b"of side");
    checkpoint(&world, SIDE, "side-kept");
    if sealed {
        world.w().seal().unwrap();
    }
    put_in(&world, SIDE, "late-side", b"of side, late");
    put(&world, "late", &bytes(22, 9000));
    verbs::kv_set(world.w(), MAIN, "late", "2").unwrap();
    let live = [MAIN, SIDE].map(|branch| (branch.to_owned(), files(&world, branch)));
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.engine.shut_down().unwrap();
    let live = live.into_iter().collect();
    Store { disk, base, live }
}

fn len(disk: &CrashStorage, path: &str) -> u64 {
    disk.read(path).unwrap().unwrap().len() as u64
}

/// What is done to a file of a length: cuts in the middle, before the last byte, to nothing; bits of its header
/// and of its second slot, where it is a mark; and random ones.
fn damages(rng: &mut Rng, len: u64) -> Vec<Damage> {
    let mut all = vec![Damage::Cut(len / 2), Damage::Cut(len - 1), Damage::Cut(0)];
    let header = rng.below(HEADER_BYTES);
    all.push(Damage::Flip(header.min(len - 1), rng.next() as u8));
    all.push(Damage::Flip(
        (len / 2 + header).min(len - 1),
        rng.next() as u8,
    ));
    for _ in 0..RANDOM {
        all.push(Damage::Cut(rng.below(len)));
        all.push(Damage::Flip(rng.below(len), rng.next() as u8));
    }
    all
}

fn damaged(store: &Store, path: &str, damage: Damage) -> CrashStorage {
    let disk = copy(&store.disk);
    match damage {
        Damage::Cut(to) => disk.open(path).unwrap().truncate(to).unwrap(),
        Damage::Flip(at, bit) => assert!(disk.flip_bit(path, at, bit)),
    }
    disk
}

/// What opening a store and working on it comes to.
fn start(store: &Store, disk: &CrashStorage, at: &str) -> engine::Result<Shown> {
    let mut world = World::try_open(copy(disk), store.base.path())?;
    let mut shown = Shown::default();
    for info in verbs::list_branches(world.w()) {
        shown_by(store, &world, &info.name, &mut shown, at);
    }
    put(&world, "afterwards", b"written");
    let checkpoint = engine::CheckpointRequest {
        wait: shown.unreadable.is_empty(),
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, checkpoint, &|_, _| ())?;
    world.close(CloseMode::NoCheckpoint)?;
    world.reopen()?;
    let view = verbs::read_state(world.w(), MAIN, &DiffSide::Live)?;
    assert_eq!(view.read(b"afterwards", 0, 100)?.bytes, b"written", "{at}");
    Ok(shown)
}

/// Reads all that a branch shows. No file is another one than it was.
fn shown_by(store: &Store, world: &World, branch: &str, shown: &mut Shown, at: &str) {
    let view = verbs::read_state(world.w(), branch, &DiffSide::Live).unwrap();
    let files = shown.files.entry(branch.to_owned()).or_default();
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        for node in view.list(&dir).unwrap() {
            let path = [dir.as_slice(), &node.name].join(&b"/"[..usize::from(!dir.is_empty())]);
            if node.kind == engine::Kind::Dir {
                dirs.push(path);
                continue;
            }
            let Ok(read) = view.read(&path, 0, 1 << 20) else {
                shown.unreadable.insert(path);
                continue;
            };
            // A journal that was cut off may have that a file was made, and not what was written to it.
            let same = read.bytes.is_empty() || store.live[branch].get(&path) == Some(&read.bytes);
            assert!(same, "{at}: {} of {branch}", String::from_utf8_lossy(&path));
            files.insert(path, read.bytes);
        }
    }
}

/// The three agree about one damage.
fn agree(store: &Store, path: &str, damage: Damage) -> Result<(), String> {
    let at = format!("{path}, {damage:?} of {}", len(&store.disk, path));
    let disk = damaged(store, path, damage);
    let home = tempfile::tempdir().unwrap();
    if let Err(e) = Engine::on_storage(config(home.path()), Arc::new(copy(&disk))) {
        // Without it nothing is known to be a store: all that can be done is to name it.
        let newer = matches!(
            e,
            engine::Error::Store(objstore::Error::NewerVersion { .. })
        );
        let named = newer || e.to_string().contains(path);
        return named.then_some(()).ok_or(format!("{at}: {e}"));
    }
    let report = check(&disk);
    let started = start(store, &disk, &at);
    let nothing = report.findings.is_empty();
    match &started {
        Err(e) if nothing => return Err(format!("{at}: nothing is found, but {e}")),
        Ok(shown) if nothing && shown.files != store.live => {
            return Err(format!(
                "{at}: nothing is found, but it shows something else"
            ));
        }
        Ok(shown) => named(&report, &shown.unreadable, &at)?,
        Err(_) => {}
    }
    let left = repaired(&disk, &report, &at)?;
    let shown = start(store, &disk, &at).map_err(|e| format!("{at}: {e} after {left:?}"))?;
    named(&left, &shown.unreadable, &at)?;
    if left
        .findings
        .iter()
        .any(|f| f.affects.iter().all(|a| a.path.is_empty()))
    {
        return Err(format!("{at}: more than files is damaged after {left:?}"));
    }
    let before = started.unwrap_or_default();
    let lost = shown.files.len() < store.live.len() || shown.count() < before.count();
    (!lost)
        .then_some(())
        .ok_or(format!("{at}: the repair lost files"))
}

/// What cannot be read is named.
fn named(report: &FsckReport, paths: &BTreeSet<Vec<u8>>, at: &str) -> Result<(), String> {
    let all = report.findings.iter().flat_map(|f| &f.affects);
    let named: BTreeSet<&[u8]> = all.map(|a| a.path.as_slice()).collect();
    let missing = paths.iter().find(|p| !named.contains(p.as_slice()));
    let text = |path: &Vec<u8>| format!("{at}: {:?} is not named: {report:?}", path.escape_ascii());
    missing.map_or(Ok(()), |path| Err(text(path)))
}

/// Repairs, and checks again.
fn repaired(disk: &CrashStorage, report: &FsckReport, at: &str) -> Result<FsckReport, String> {
    let (engine, _home) = engine(disk);
    let mut failed = None;
    let told = engine.repair(report, &mut |step, done| {
        failed = done.err().map(|e| format!("{at}: {step}: {e}"));
    });
    told.unwrap();
    failed.map_or(Ok(()), Err)?;
    Ok(engine.fsck(&|_, _| ()).unwrap())
}

fn all_small_files(count: u64, sealed: bool) {
    let seed = fresh_seed();
    eprintln!("AGENTVFS_SEED={seed}");
    let mut rng = Rng(seed);
    let store = store(count, sealed);
    let (mut tried, mut faults) = (0, Vec::new());
    for path in store.disk.paths() {
        let len = len(&store.disk, &path);
        if path.ends_with(".pack") || len == 0 {
            continue;
        }
        for damage in damages(&mut rng, len) {
            faults.extend(agree(&store, &path, damage).err());
            tried += 1;
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {tried}:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(tried > 100, "{tried}");
}

#[test]
fn start_and_fsck_and_repair_agree_about_every_small_file() {
    all_small_files(3, false);
}

#[test]
fn start_and_fsck_and_repair_agree_where_journals_were_sealed() {
    all_small_files(3, true);
}

#[test]
fn start_and_fsck_and_repair_agree_where_branches_share_a_tree_file() {
    all_small_files(MANY, true);
}
