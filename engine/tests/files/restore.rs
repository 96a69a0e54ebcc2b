//! Taking paths back, without a mount: over a kill, over a power cut at every operation of the disk, and
//! while readers look into pinned states and the journal is folded into the store beneath them.
#![allow(clippy::unwrap_used)]

use crate::common::by_path;
use crate::common::rng::{Rng, fresh_seed};
use engine::verbs;
use engine::{
    Caller, CloseMode, DiffSide, Engine, EngineConfig, Error, Kind, RenameFlags, StateReader,
    Target, Time, Wait, Workspace, WriteFile, WriteFlags, mode,
};
use objstore::crash_storage::{CrashStorage, Policy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const W: &str = "w";
const MAIN: &str = "main";
const WAIT: Wait = Wait::Allowed;

type Picture = BTreeMap<String, (Kind, u32, Time, Vec<u8>)>;

fn base() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir_all(project.join("src/deep")).unwrap();
    std::fs::create_dir(dir.path().join("home")).unwrap();
    std::fs::write(project.join("README"), "base\n").unwrap();
    std::fs::write(project.join("src/main"), vec![7; 20_000]).unwrap();
    std::fs::write(project.join("src/deep/lib"), "lib\n").unwrap();
    dir
}

fn open(disk: &CrashStorage, dir: &Path) -> (Arc<Engine>, Arc<Workspace>) {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    if engine.get(W).is_err() {
        engine.create(W, &dir.join("project"), None).unwrap();
    }
    let w = engine.open_workspace(W).unwrap();
    (engine, w)
}

fn write(w: &Workspace, path: &str, data: &[u8]) {
    let part = WriteFile {
        path: path.into(),
        offset: Some(0),
        data: data.to_vec(),
        last: true,
        unsynced: false,
        perm: 0o644,
        parents: true,
    };
    verbs::write_file(w, MAIN, &Caller::default(), &part).unwrap();
}

fn picture(view: &StateReader) -> Picture {
    let mut out = Picture::new();
    let mut work = vec![String::new()];
    while let Some(dir) = work.pop() {
        for node in view.list(dir.as_bytes()).unwrap() {
            let name = String::from_utf8(node.name.clone()).unwrap();
            let path = format!("{dir}{}{name}", if dir.is_empty() { "" } else { "/" });
            let mut bytes = Vec::new();
            match node.kind {
                Kind::Dir => work.push(path.clone()),
                Kind::File => loop {
                    let at = bytes.len() as u64;
                    let piece = view.read(path.as_bytes(), at, 1 << 20).unwrap();
                    bytes.resize(piece.offset as usize, 0);
                    bytes.extend_from_slice(&piece.bytes);
                    if bytes.len() as u64 == piece.size {
                        break;
                    }
                },
                _ => {}
            }
            out.insert(path, (node.kind, node.perm, node.mtime, bytes));
        }
    }
    out
}

fn live(w: &Workspace) -> Picture {
    picture(&verbs::read_state(w, MAIN, &DiffSide::Live).unwrap())
}

fn restore(w: &Workspace, paths: &[&str]) -> engine::RolledBack {
    let paths: Vec<Vec<u8>> = paths.iter().map(|p| p.as_bytes().to_vec()).collect();
    verbs::restore(w, MAIN, &Target::Head, &paths).unwrap()
}

fn end(engine: &Engine) {
    engine
        .close_workspace(W, CloseMode::NoCheckpoint, &|_, _| {})
        .unwrap();
}

#[test]
fn power_cut_leaves_the_state_before_or_after_and_undo_works_on() {
    let dir = base();
    let disk = CrashStorage::new();
    let (engine, w) = open(&disk, dir.path());
    w.settle().unwrap();
    write(&w, "src/new", b"new\n");
    verbs::checkpoint(&w, MAIN, Default::default(), &|_, _| {}).unwrap();
    let good = live(&w);
    write(&w, "src/main", b"short");
    write(&w, "src/deep/lib", &[1; 9_000]);
    write(&w, "src/extra", b"extra");
    write(&w, "README", b"mine\n");
    // So that what was written before is on the disk whatever the cut takes.
    w.fsync(engine::NodeId::ROOT).unwrap();
    let before = live(&w);
    let began = disk.op_count();
    let done = restore(&w, &["src"]);
    let ended = disk.op_count();
    let after = live(&w);
    assert!(done.files_changed >= 3 && ended > began);
    assert_eq!(after["README"], before["README"]);
    assert!(!after.contains_key("src/extra"));
    for path in ["src/main", "src/deep/lib", "src/new"] {
        assert_eq!(after[path], good[path], "{path}");
    }
    end(&engine);
    drop((w, engine));
    for cut in began..=ended {
        for policy in Policy::ALL {
            let image = disk.image_at(cut, policy, cut as u64);
            let (engine, w) = open(&image, dir.path());
            let shown = live(&w);
            let is_after = shown == after;
            assert!(is_after || shown == before, "cut {cut} {policy:?}");
            assert!(is_after || cut < ended, "what was answered is lost");
            if is_after {
                verbs::undo(&w, MAIN).unwrap();
                assert_eq!(live(&w), before);
                verbs::redo(&w, MAIN).unwrap();
                assert_eq!(live(&w), after);
            }
            end(&engine);
        }
    }
}

#[test]
fn paths_that_nobody_has_change_nothing() {
    let dir = base();
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    let before = live(&w);
    let states = verbs::log(&w, MAIN, true).unwrap().len();
    let none = [b"src/main".to_vec(), b"none".to_vec()];
    let failed = verbs::restore(&w, MAIN, &Target::Head, &none).unwrap_err();
    assert!(matches!(failed, Error::NoSuchPath(p) if p == b"none"));
    assert_eq!(live(&w), before);
    assert_eq!(restore(&w, &["src/main"]).files_changed, 0);
    assert_eq!(verbs::log(&w, MAIN, true).unwrap().len(), states);
    assert!(matches!(verbs::undo(&w, MAIN), Err(Error::NothingTo(_))));
    end(&engine);
}

#[test]
fn a_view_stays_as_it_was_while_all_around_it_changes() {
    let dir = base();
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    write(&w, "src/big", &[3; 300_000]);
    write(&w, "src/main", b"changed");
    let view = verbs::read_state(&w, MAIN, &DiffSide::Live).unwrap();
    let wanted = picture(&view);
    write(&w, "src/big", &[4; 10]);
    restore(&w, &["src/main"]);
    verbs::checkpoint(&w, MAIN, Default::default(), &|_, _| {}).unwrap();
    write(&w, "src/big", &[5; 200_000]);
    // The journal's segments that held what the view shows are dropped.
    w.seal().unwrap();
    w.seal().unwrap();
    assert_eq!(picture(&view), wanted);
    let head = verbs::read_state(&w, MAIN, &DiffSide::Ref("@".into())).unwrap();
    let changes = head.changes(&view, &[]).unwrap();
    let mut patch = Vec::new();
    let mut take = |bytes: &[u8]| {
        patch.extend_from_slice(bytes);
        Ok(())
    };
    let left_out = engine::patch::write(&head, &view, &changes, &mut take).unwrap();
    assert!(left_out.is_empty() && patch.starts_with(b"diff --git a/src/big b/src/big\n"));
    drop((view, head));
    end(&engine);
}

#[test]
fn paths_come_from_other_branches_and_go_into_the_branch_that_is_meant() {
    let dir = base();
    let disk = CrashStorage::without_log();
    let (engine, w) = open(&disk, dir.path());
    verbs::create_branch(&w, "b", MAIN, None).unwrap();
    write(&w, "src/main", b"of main\n");
    verbs::checkpoint(&w, MAIN, Default::default(), &|_, _| {}).unwrap();
    let of = |w: &Workspace, branch: &str| {
        let view = verbs::read_state(w, branch, &DiffSide::Live).unwrap();
        picture(&view)
    };
    let (main, before) = (of(&w, MAIN), of(&w, "b"));
    let from = Target::Ref("main:@".into());
    // While the import runs the head's id is not known yet, and would seem to change once it is.
    w.settle().unwrap();
    let head = verbs::status(&w, "b").unwrap().head;
    verbs::restore(&w, "b", &from, &[b"src/main".to_vec()]).unwrap();
    let mut wanted = before.clone();
    wanted.insert("src/main".into(), main["src/main"].clone());
    assert_eq!(of(&w, "b")["src/main"], wanted["src/main"]);
    assert_eq!(of(&w, "b")["README"], wanted["README"]);
    assert_eq!(verbs::status(&w, "b").unwrap().head, head, "the head stays");
    assert_eq!(of(&w, MAIN), main);
    let other = verbs::read_state(&w, "b", &DiffSide::Ref("main:@".into())).unwrap();
    assert_eq!(picture(&other), main);
    drop(other);
    verbs::undo(&w, "b").unwrap();
    assert_eq!(of(&w, "b"), before);
    verbs::redo(&w, "b").unwrap();
    let after = of(&w, "b");
    end(&engine);
    drop((w, engine));
    let (engine, w) = open(&disk, dir.path());
    assert_eq!((of(&w, MAIN), of(&w, "b")), (main, after));
    end(&engine);
}

/// Files of `src/many`.
const MANY: u64 = 400;
/// In which there are some changes.
const WORK_MAX: Duration = Duration::from_secs(60);

/// Changes files and names below `src` and beside it until it is told to end, and counts what it has done; what is not there
/// any more is left out.
fn work_below(w: &Workspace, seed: u64, ended: &AtomicBool, count: &AtomicU64) {
    let who = Caller::default();
    let (mut rng, mut done) = (Rng(seed), 0);
    let dir = |path: &str| by_path::find(w, MAIN, path);
    while !ended.load(Ordering::Relaxed) {
        let name = format!("f{}", rng.below(MANY));
        let (Ok(many), Ok(busy)) = (dir("src/many"), dir("busy")) else {
            continue;
        };
        let (from, to) = match rng.below(2) {
            0 => (many, busy),
            _ => (busy, many),
        };
        let flags = RenameFlags::default();
        // Now and then nothing but contents, for a while.
        let act = match done / 512 % 2 {
            0 => rng.below(4),
            _ => 3,
        };
        let what = match act {
            0 => w.rename(from, name.as_bytes(), to, name.as_bytes(), flags, WAIT),
            1 => w.unlink(many, name.as_bytes(), WAIT),
            2 => w.lookup(from, name.as_bytes(), WAIT).and_then(|file| {
                w.forget(file.node, 1);
                let linked = w.link(file.node, to, format!("{name}b").as_bytes(), WAIT)?;
                w.forget(linked.node, 1);
                Ok(())
            }),
            _ => {
                let mode = mode::REG | 0o644;
                let file = w
                    .lookup(many, name.as_bytes(), WAIT)
                    .or_else(|_| w.mknod(&who, many, name.as_bytes(), mode, 0, WAIT));
                file.and_then(|file| {
                    w.forget(file.node, 1);
                    let data = format!("of the worker {done}\\n");
                    let flags = WriteFlags::default();
                    w.write(file.node, 0, data.as_bytes(), flags, WAIT)?;
                    Ok(())
                })
            }
        };
        done += u64::from(what.is_ok());
        count.store(done, Ordering::Relaxed);
    }
}

#[test]
fn what_is_restored_while_others_work_below_it_is_the_commit() {
    let dir = base();
    let (engine, w) = open(&CrashStorage::without_log(), dir.path());
    w.settle().unwrap();
    write(&w, "busy/own", b"own\\n");
    for number in 0..MANY {
        write(
            &w,
            &format!("src/many/f{number}"),
            format!("{number}\\n").as_bytes(),
        );
    }
    let good = by_path::checkpoint(&w, MAIN, "good");
    let src = |all: Picture| -> BTreeMap<String, Vec<u8>> {
        let below = all.into_iter().filter(|(path, _)| path.starts_with("src/"));
        below
            .map(|(path, (_, _, _, bytes))| (path, bytes))
            .collect()
    };
    let wanted = src(live(&w));
    let seed = fresh_seed();
    println!("seed {seed}");
    let (ended, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| work_below(&w, seed, &ended, &done));
        // Trees are rewritten, and the journal is dropped.
        threads.spawn(|| {
            let mut next = 0;
            while !ended.load(Ordering::Relaxed) {
                if done.load(Ordering::Relaxed) >= next {
                    by_path::checkpoint(&w, MAIN, "now");
                    w.seal().unwrap();
                    next += 500;
                }
                std::thread::yield_now();
            }
        });
        for round in 0..30 {
            let begun = Instant::now();
            while done.load(Ordering::Relaxed) < round * 100 {
                assert!(begun.elapsed() < WORK_MAX, "nobody works");
                std::thread::yield_now();
            }
            let target = Target::Ref(good.to_string());
            verbs::restore(&w, MAIN, &target, &[b"src".to_vec()]).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    w.settle().unwrap();
    let mut log = verbs::log(&w, MAIN, true).unwrap();
    log.retain(|entry| entry.kind == "restored");
    assert!(log.len() > 20, "{}", log.len());
    for entry in log {
        let at = DiffSide::Ref(entry.commit.unwrap().to_string());
        let shown = picture(&verbs::read_state(&w, MAIN, &at).unwrap());
        assert_eq!(src(shown), wanted, "state {}", entry.number);
    }
    assert_eq!(engine.fsck(&|_, _| ()).unwrap().findings, []);
    end(&engine);
}
