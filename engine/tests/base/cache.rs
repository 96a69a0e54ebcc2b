//! What a lazy workspace has fetched goes again beyond the setting `cache`, and nothing else does: random steps with a tiny
//! cache against a workspace that has everything, and each rule by itself.
#![allow(clippy::unwrap_used)]

use crate::common::away::{Other, Step, carry_out, origin, path, seen, settle, step, workspace};
use crate::common::by_path;
use crate::common::rng::{Rng, fresh_seed};
use crate::common::world::{MAIN, NAME, World, config};
use engine::verbs::{self, remotes};
use engine::{
    Caller, CloseMode, Engine, GcReport, GcRequest, OpenAs, Settings, TakenOver, Wait, Workspace,
    WriteFlags,
};
use objstore::crash_storage::Policy;
use objstore::exchange::commit_key;
use objstore::io::Storage;
use objstore::{ChunkId, CommitId, Kind};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const W: Wait = Wait::Allowed;

/// A project, and a workspace that has nothing of it yet, with a cache of so many bytes.
struct Lazy {
    world: World,
    other: Arc<Other>,
    id: CommitId,
    _origin: World,
    _dirs: [tempfile::TempDir; 2],
}

impl Lazy {
    fn new(cache: u64) -> Lazy {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (origin, other, id) = origin(dirs[0].path());
        let world = workspace(dirs[1].path(), &other, id, true);
        let lazy = Lazy {
            world,
            other,
            id,
            _origin: origin,
            _dirs: dirs,
        };
        know_remote(lazy.w());
        lazy.set_cache(cache);
        lazy
    }

    fn w(&self) -> &Workspace {
        self.world.w()
    }

    fn set_cache(&self, cache: u64) {
        set_cache(&self.world.engine, cache);
    }

    fn gc(&self) -> GcReport {
        gc(&self.world.engine)
    }

    /// Another daemon, which has nothing in memory.
    fn again(&mut self) {
        self.world.close(CloseMode::Checkpoint).unwrap();
        self.world.reopen().unwrap();
        let store = self.world.engine.objects();
        store.set_elsewhere(Some(self.other.clone()));
    }

    fn is_here(&self, path: &str) -> bool {
        is_here(&self.world, path)
    }

    fn read(&self, path: &str) -> String {
        by_path::text(self.w(), MAIN, path)
    }
}

fn know_remote(w: &Workspace) {
    let config = remotes::RemoteConfig {
        name: "origin".into(),
        url: "file:///nowhere".into(),
        project: "p".into(),
        options: BTreeMap::new(),
    };
    remotes::add_remote(w, config).unwrap();
}

fn set_cache(engine: &Engine, cache: u64) {
    let settings = Settings {
        cache: Some(cache),
        ..engine.settings()
    };
    engine.set_settings(settings).unwrap();
}

fn gc(engine: &Engine) -> GcReport {
    engine.gc(older_than(0), &|_, _| ()).unwrap()
}

/// Collects all that was there for so long.
fn older_than(seconds: u64) -> GcRequest {
    GcRequest {
        grace: Some(Duration::from_secs(seconds)),
        dead_percent: Some(0),
        dry_run: false,
    }
}

/// The one chunk of a small file of the origin.
fn chunk_of(path: &str) -> [u8; 32] {
    let mut numbers = path.split('/').map(|part| &part[1..]);
    let mut next = || numbers.next().unwrap();
    let text = format!("{} {} {}\n", next(), next(), next()).repeat(50);
    *blake3::hash(text.as_bytes()).as_bytes()
}

fn is_here(world: &World, path: &str) -> bool {
    world
        .engine
        .objects()
        .contains(Kind::Chunk, &chunk_of(path))
}

#[test]
fn what_was_read_goes_beyond_the_bound_oldest_first_and_comes_again() {
    let mut lazy = Lazy::new(u64::MAX >> 1);
    for path in ["d1/s1/f0", "d2/s1/f0", "d3/s0/f0"] {
        lazy.read(path);
    }
    assert_eq!(lazy.gc().dropped_bytes, 0);
    assert!(lazy.is_here("d1/s1/f0"));
    // Room for one of three: the one that came last.
    lazy.set_cache(400);
    let dry = GcRequest {
        dry_run: true,
        ..older_than(0)
    };
    let planned = lazy.world.engine.gc(dry, &|_, _| ()).unwrap();
    let done = lazy.gc();
    assert_eq!(planned.dropped_bytes, done.dropped_bytes);
    assert!(
        done.dropped_bytes > 0 && done.cache_bytes <= 400,
        "{done:?}"
    );
    assert!(done.cache_bytes > 0 && done.unasked.is_none(), "{done:?}");
    assert!(!lazy.is_here("d1/s1/f0") && !lazy.is_here("d2/s1/f0"));
    assert!(lazy.is_here("d3/s0/f0"));
    lazy.again();
    let before = lazy.other.brought.load(Ordering::Relaxed);
    assert_eq!(lazy.read("d1/s1/f0"), "1 1 0\n".repeat(50));
    assert_eq!(lazy.other.brought.load(Ordering::Relaxed), before + 1);
    assert_eq!(lazy.world.engine.fsck(&|_, _| ()).unwrap().findings, []);
}

#[test]
fn without_an_answer_nothing_goes() {
    let lazy = Lazy::new(0);
    lazy.read("d1/s1/f0");
    lazy.other.is_away.store(true, Ordering::Relaxed);
    let done = lazy.gc();
    assert_eq!(done.dropped_bytes, 0, "{done:?}");
    assert!(done.unasked.unwrap().contains("it is away"));
    assert!(lazy.is_here("d1/s1/f0"));
    // Nor where nobody is there to ask.
    lazy.world.engine.objects().set_elsewhere(None);
    assert_eq!(lazy.gc().dropped_bytes, 0);
    assert_eq!(lazy.read("d1/s1/f0"), "1 1 0\n".repeat(50));
}

#[test]
fn what_is_younger_than_the_grace_period_stays() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (_origin, other, id) = origin(dirs[0].path());
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(home.path())).unwrap();
    let record = other.engine.objects().get_record(&commit_key(&id)).unwrap();
    engine.objects().put_record(&record).unwrap();
    engine.objects().set_elsewhere(Some(other.clone()));
    let nothing = &mut || Ok(TakenOver::Calls(Vec::new()));
    let made = engine.create_from_commit(NAME, id, Some("origin"), nothing);
    made.unwrap();
    let world = World::start(None, home, engine, dirs[1].path()).unwrap();
    know_remote(world.w());
    set_cache(&world.engine, 0);
    by_path::text(world.w(), MAIN, "d1/s1/f0");
    let done = world.engine.gc(older_than(3600), &|_, _| ()).unwrap();
    assert_eq!(done.dropped_bytes, 0);
    assert!(is_here(&world, "d1/s1/f0"));
    assert!(gc(&world.engine).dropped_bytes > 0);
    assert!(!is_here(&world, "d1/s1/f0"));
}

#[test]
fn what_is_in_use_stays() {
    let lazy = Lazy::new(0);
    for path in ["d1/s1/f0", "d2/s2/f1", "d3/s0/f2", "d4/s0/f0", "d0/s1/f1"] {
        lazy.read(path);
    }
    let w = lazy.w();
    // By a handle, by a change over it that is not stored yet, by a descriptor after unlink.
    let ask = OpenAs {
        path: b"d1/s1/f0".to_vec(),
        ..OpenAs::default()
    };
    let who = Caller::default();
    let (handle, _) = verbs::open_file(w, MAIN, &who, &ask).unwrap();
    let node = by_path::find(w, MAIN, "d2/s2/f1").unwrap();
    w.write(node, 3, b"X", WriteFlags::default(), W).unwrap();
    let unlinked = by_path::find(w, MAIN, "d4/s0/f0").unwrap();
    let dir = by_path::find(w, MAIN, "d4/s0").unwrap();
    w.unlink(dir, b"f0", W).unwrap();
    lazy.gc();
    let all = ["d1/s1/f0", "d2/s2/f1", "d4/s0/f0", "d3/s0/f2", "d0/s1/f1"];
    let here = all.map(|path| lazy.is_here(path));
    assert_eq!(here, [true, true, true, false, false]);
    lazy.other.is_away.store(true, Ordering::Relaxed);
    by_path::checkpoint(w, MAIN, "without the remote");
    assert_eq!(w.read(unlinked, 0, 6, W).unwrap(), b"4 0 0\n");
    lazy.other.is_away.store(false, Ordering::Relaxed);
    drop(handle);
    w.forget(unlinked, 100);
    lazy.gc();
    let here = all[..2].iter().map(|path| lazy.is_here(path));
    assert_eq!(here.collect::<Vec<_>>(), [false, false]);
    let snapshot = format!(".agentvfs/snapshots/{}/d1/s2/f0", lazy.id);
    let in_snapshot = by_path::find(w, MAIN, &snapshot).unwrap();
    assert_eq!(w.read(in_snapshot, 0, 6, W).unwrap(), b"1 2 0\n");
    lazy.gc();
    assert!(
        lazy.is_here("d1/s2/f0"),
        "a snapshot that the kernel knows shows it"
    );
}

#[test]
fn what_the_refs_of_the_remote_do_not_reach_stays() {
    let mut lazy = Lazy::new(0);
    by_path::write(lazy.w(), MAIN, "d1/s1/own", b"own\n");
    let own = by_path::checkpoint(lazy.w(), MAIN, "own");
    let chunk = *blake3::hash(b"own\n").as_bytes();
    let has_own = |lazy: &Lazy| lazy.world.engine.objects().contains(Kind::Chunk, &chunk);
    // The file itself may still be in the journal, too.
    let read_own = |lazy: &mut Lazy| {
        lazy.again();
        let id = ChunkId::from_bytes(chunk);
        lazy.world.engine.objects().get_chunk(&id).unwrap().to_vec()
    };
    lazy.gc();
    assert_eq!(read_own(&mut lazy), b"own\n", "it was not pushed");
    lazy.other.take(lazy.world.engine.objects(), own);
    // The remote has it, and somebody moved the ref elsewhere.
    lazy.other.refs.lock().pop();
    lazy.gc();
    lazy.other.collect();
    assert_eq!(read_own(&mut lazy), b"own\n", "the remote lost it");
    lazy.other.take(lazy.world.engine.objects(), own);
    // What is not sealed counts as in use.
    lazy.again();
    assert!(lazy.gc().dropped_bytes > 0);
    lazy.other.collect();
    assert!(!has_own(&lazy), "it is in the remote for good");
    assert_eq!(read_own(&mut lazy), b"own\n");
    assert!(has_own(&lazy));
}

#[test]
fn what_the_remote_lacks_stays() {
    let lazy = Lazy::new(0);
    lazy.read("d1/s1/f0");
    lazy.read("d2/s1/f0");
    // Its refs reach it all the same: it is damaged.
    lazy.other.collect();
    let lost = (Kind::Chunk, chunk_of("d1/s1/f0"));
    lazy.other.left.lock().as_mut().unwrap().remove(&lost);
    assert!(lazy.gc().dropped_bytes > 0);
    assert!(lazy.is_here("d1/s1/f0") && !lazy.is_here("d2/s1/f0"));
}

#[test]
fn what_was_deleted_lately_stays() {
    let lazy = Lazy::new(0);
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("same"), "1 1 0\n".repeat(50)).unwrap();
    let engine = &lazy.world.engine;
    engine.create("whole", base.path(), None).unwrap();
    let whole = engine.open_workspace("whole").unwrap();
    by_path::checkpoint(&whole, MAIN, "all");
    drop(whole);
    lazy.read("d1/s1/f0");
    lazy.read("d2/s1/f0");
    let mode = CloseMode::Checkpoint;
    engine.close_workspace("whole", mode, &|_, _| ()).unwrap();
    engine.delete("whole").unwrap();
    engine.gc(older_than(3600), &|_, _| ()).unwrap();
    assert!(lazy.is_here("d1/s1/f0") && !lazy.is_here("d2/s1/f0"));
    lazy.gc();
    assert!(!lazy.is_here("d1/s1/f0"));
}

#[test]
fn what_another_lazy_workspace_needs_is_in_its_remote_too() {
    let lazy = Lazy::new(0);
    lazy.read("d1/s1/f0");
    let engine = &lazy.world.engine;
    let nothing = &mut || Ok(TakenOver::Calls(Vec::new()));
    let made = engine.create_from_commit("second", lazy.id, Some("origin"), nothing);
    made.unwrap();
    let second = engine.open_workspace("second").unwrap();
    know_remote(&second);
    for is_open in [true, false] {
        let mode = CloseMode::Checkpoint;
        if !is_open {
            engine.close_workspace("second", mode, &|_, _| ()).unwrap();
        }
        lazy.other.silent_to.lock().insert("second".into());
        let done = lazy.gc();
        assert!(done.unasked.unwrap().contains("workspace second"));
        assert!(lazy.is_here("d1/s1/f0"));
        lazy.other.silent_to.lock().clear();
        assert!(lazy.gc().dropped_bytes > 0);
        assert!(!lazy.is_here("d1/s1/f0"));
        let key = (Kind::Chunk, chunk_of("d1/s1/f0"));
        let record = lazy.other.engine.objects().get_record(&key).unwrap();
        engine.objects().put_record(&record).unwrap();
    }
}

#[test]
fn a_workspace_that_needs_its_remote_no_more_keeps_all() {
    let lazy = Lazy::new(0);
    lazy.read("d1/s1/f0");
    let w = lazy.world.shared();
    let ends = move || remotes::end_lazy(&w).unwrap();
    *lazy.other.when_asked.lock() = Some(Box::new(ends));
    let done = lazy.gc();
    assert!(lazy.other.when_asked.lock().is_none(), "it was asked");
    assert_eq!(done.dropped_bytes, 0);
    assert!(lazy.is_here("d1/s1/f0"));
}

/// What is not here is counted where the remote has it, and damage where it has not: of what came from there as of what
/// was made here.
#[test]
fn what_is_only_in_the_remote_is_told_from_what_is_lost() {
    let mut lazy = Lazy::new(u64::MAX >> 1);
    lazy.read("d1/s1/f0");
    let report = lazy.world.engine.fsck(&|_, _| ()).unwrap();
    assert_eq!(report.findings, []);
    // The root's other directories, those of d1, other files of d1/s1; the link is none.
    let away = report.only_remote;
    assert_eq!((away.objects, away.bytes, away.unknown), (8, 8, 0));
    assert_eq!(lazy.gc().only_remote, away);
    lazy.other.is_away.store(true, Ordering::Relaxed);
    let report = lazy.world.engine.fsck(&|_, _| ()).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(
        (report.only_remote.objects, report.only_remote.unknown),
        (0, 8)
    );
    assert!(report.unasked.unwrap().contains("it is away"));
    lazy.gc();
    lazy.other.is_away.store(false, Ordering::Relaxed);
    // The remote loses a file that was not read.
    lazy.other.collect();
    let lost = (Kind::Chunk, chunk_of("d1/s1/f1"));
    lazy.other.left.lock().as_mut().unwrap().remove(&lost);
    let report = lazy.world.engine.fsck(&|_, _| ()).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let finding = &report.findings[0];
    assert!(finding.what.contains("its remote does not have it"));
    assert!(finding.affects.iter().any(|a| a.path == b"d1/s1/f1"));
    let all = GcRequest::default();
    let failed = lazy.world.engine.gc(all, &|_, _| ()).unwrap_err();
    assert!(
        failed
            .to_string()
            .contains(&objstore::exchange::key_hex(&lost.1))
    );
    lazy.other.left.lock().as_mut().unwrap().insert(lost);
    lazy.gc();
    // All packs go, and with them what is nowhere else.
    by_path::write(lazy.w(), MAIN, "own", b"made here\n");
    let own = by_path::checkpoint(lazy.w(), MAIN, "own");
    lazy.world.close(CloseMode::Checkpoint).unwrap();
    let disk = lazy.world.disk.clone().unwrap();
    for name in disk.list("packs").unwrap() {
        disk.remove(&format!("packs/{name}")).unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::on_storage(config(home.path()), Arc::new(disk)).unwrap();
    engine.objects().set_elsewhere(Some(lazy.other.clone()));
    let report = engine.fsck(&|_, _| ()).unwrap();
    let lost = report
        .findings
        .iter()
        .filter(|f| f.what.contains("does not have it"));
    let mut affected = lost.flat_map(|f| &f.affects);
    assert!(affected.any(|a| a.commit == Some(own)), "{report:?}");
    let of_origin = |a: &engine::Affected| a.commit == Some(lazy.id);
    let mut all = report.findings.iter().flat_map(|f| &f.affects);
    assert!(!all.any(of_origin), "{report:?}");
    assert!(report.only_remote.objects > 0);
    assert!(engine.gc(GcRequest::default(), &|_, _| ()).is_err());
}

#[test]
fn keys_stay() {
    let lazy = Lazy::new(0);
    let w = lazy.w();
    let big = format!("\"{}\"", "k".repeat(40_000));
    verbs::kv_set(w, MAIN, "key", &big).unwrap();
    // A file with the same bytes as a key's chunk would be the same object; files and keys go to the remote.
    by_path::write(w, MAIN, "file", b"of the same commit\n");
    let id = by_path::checkpoint(w, MAIN, "keys");
    lazy.other.take(lazy.world.engine.objects(), id);
    assert!(lazy.gc().dropped_bytes > 0);
    lazy.other.is_away.store(true, Ordering::Relaxed);
    assert_eq!(verbs::kv_get(w, MAIN, "key").unwrap().unwrap().value, big);
}

#[test]
fn what_another_workspace_needs_stays() {
    let lazy = Lazy::new(0);
    let base = tempfile::tempdir().unwrap();
    lazy.read("d1/s1/f0");
    lazy.read("d2/s1/f0");
    std::fs::write(base.path().join("same"), "1 1 0\n".repeat(50)).unwrap();
    lazy.world
        .engine
        .create("whole", base.path(), None)
        .unwrap();
    let whole = lazy.world.engine.open_workspace("whole").unwrap();
    by_path::checkpoint(&whole, MAIN, "all");
    for _ in 0..2 {
        lazy.gc();
        assert!(lazy.is_here("d1/s1/f0"));
        assert!(!lazy.is_here("d2/s1/f0"));
        // Then one that is closed.
        let mode = CloseMode::Checkpoint;
        let _ = lazy.world.engine.close_workspace("whole", mode, &|_, _| ());
    }
    lazy.other.is_away.store(true, Ordering::Relaxed);
    let whole = lazy.world.engine.open_workspace("whole").unwrap();
    assert_eq!(by_path::text(&whole, MAIN, "same"), "1 1 0\n".repeat(50));
    assert_eq!(lazy.world.engine.fsck(&|_, _| ()).unwrap().findings, []);
}

/// Every state of the disk that a crash during gc leaves is a whole workspace.
#[test]
fn gc_may_be_cut_off_anywhere() {
    let lazy = Lazy::new(0);
    let disk = lazy.world.disk.clone().unwrap();
    for dir in 0..5 {
        lazy.read(&format!("d{dir}/s1/f0"));
        by_path::write(
            lazy.w(),
            MAIN,
            &format!("d{dir}/own"),
            &[b'0' + dir as u8; 300],
        );
    }
    by_path::checkpoint(lazy.w(), MAIN, "own");
    lazy.world.engine.objects().sync().unwrap();
    seen(lazy.w());
    let wanted = seen(lazy.w());
    lazy.world.engine.objects().sync().unwrap();
    let began = disk.op_count();
    lazy.set_cache(500);
    assert!(lazy.gc().dropped_bytes > 0);
    let ended = disk.op_count();
    assert!(ended > began + 5, "{began} to {ended}");
    let mut rng = Rng(7);
    for cut in began..=ended {
        for policy in Policy::ALL {
            let image = disk.image_at(cut, policy, rng.next());
            let home = tempfile::tempdir().unwrap();
            let engine = Engine::on_storage(config(home.path()), Arc::new(image)).unwrap();
            let findings = engine.fsck(&|_, _| ()).unwrap().findings;
            let lost = findings
                .iter()
                .find(|f| !f.what.ends_with("no data is lost"));
            assert_eq!(lost, None, "{cut} {policy:?}");
            engine.objects().set_elsewhere(Some(lazy.other.clone()));
            let w = engine.open_workspace(NAME).unwrap();
            seen(&w);
            assert!(seen(&w) == wanted, "{cut} {policy:?}");
            gc(&engine);
        }
    }
}

/// Gives how many bytes were dropped.
fn model(seed: u64, steps: usize) -> u64 {
    let mut lazy = Lazy::new(0);
    let empty = tempfile::tempdir().unwrap();
    let mut whole = workspace(empty.path(), &lazy.other, lazy.id, false);
    let mut rng = Rng(seed);
    let mut labels = vec![lazy.id.to_string()];
    let (mut done, mut dropped) = (Vec::new(), 0);
    for number in 0..steps {
        let step = step(&mut rng, number, &labels);
        done.push(step.clone());
        println!("{step:?}");
        let results = [&mut lazy.world, &mut whole].map(|world| carry_out(world, &step));
        lazy.world
            .engine
            .objects()
            .set_elsewhere(Some(lazy.other.clone()));
        if let Step::Kill = step {
            [&lazy.world, &whole].into_iter().for_each(settle);
        }
        for _ in 0..3 {
            let read = Step::Read(path(&mut rng));
            let results = [&mut lazy.world, &mut whole].map(|world| carry_out(world, &read));
            assert_eq!(results[0], results[1], "seed {seed}, {read:?} of {done:#?}");
        }
        let engine = lazy.world.engine.clone();
        assert_eq!(results[0], results[1], "seed {seed}, {step:?} of {done:#?}");
        match step {
            Step::Checkpoint(label) => labels.push(label),
            Step::Collect => {
                let bound = rng.below(5) * 500;
                set_cache(&engine, bound);
                let is_away = rng.below(4) == 0;
                lazy.other.is_away.store(is_away, Ordering::Relaxed);
                let report = gc(&engine);
                lazy.other.is_away.store(false, Ordering::Relaxed);
                println!("{bound} {is_away} {report:?}");
                assert!(!is_away || report.dropped_bytes == 0);
                dropped += report.dropped_bytes;
                nothing_is_lost(&lazy, seed);
            }
            Step::List(_) => {
                let id = by_path::checkpoint(lazy.w(), MAIN, &format!("p{number}"));
                by_path::checkpoint(whole.w(), MAIN, &format!("p{number}"));
                lazy.other.take(engine.objects(), id);
            }
            _ => {}
        }
    }
    // A file has as many names as are known: all of them once all directories are.
    seen(lazy.w());
    assert!(
        seen(lazy.w()) == seen(whole.w()),
        "seed {seed} after {done:#?}"
    );
    gc(&lazy.world.engine);
    nothing_is_lost(&lazy, seed);
    assert!(
        seen(lazy.w()) == seen(whole.w()),
        "seed {seed} after {done:#?}"
    );
    dropped
}

/// All that the labelled commits need is here or in the remote.
fn nothing_is_lost(lazy: &Lazy, seed: u64) {
    let _here = objstore::elsewhere::only_here();
    let store = lazy.world.engine.objects();
    let log = verbs::log(lazy.w(), MAIN, true).unwrap();
    let mut next: Vec<_> = log
        .iter()
        .filter_map(|e| Some(commit_key(&e.commit?)))
        .collect();
    let mut met = HashSet::new();
    while let Some(key) = next.pop() {
        if !met.insert(key) {
            continue;
        }
        let (here, there) = (store.contains(key.0, &key.1), lazy.other.has(&key));
        assert!(here || there, "seed {seed}: {key:?} is lost");
        let from = match here {
            true => store,
            false => lazy.other.engine.objects(),
        };
        next.extend(from.references(&key).unwrap().needed);
    }
}

#[test]
fn with_a_tiny_cache_a_lazy_workspace_is_the_whole_one() {
    let first = fresh_seed();
    let each = (first..first + 30).map(|seed| {
        println!("AGENTVFS_SEED={seed}");
        model(seed, 40)
    });
    // In 168 runs it was 5,047 bytes to 25,912, half of them less than 15,853: none only if no cache was ever cut.
    let dropped: u64 = each.sum();
    println!("{dropped} bytes were dropped");
    assert!(dropped > 0, "nothing was tried");
}
