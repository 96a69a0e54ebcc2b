//! `apply` and `update`: changes go from a branch to its base and back, three-way, all or nothing,
//! whatever fails on the way and whoever else writes there.
#![allow(clippy::unwrap_used)]

mod common;

use common::rng::Rng;
use common::world::{MAIN, World};
use engine::merge::Outcome;
use engine::{
    ApplyReport, ApplyRequest, Caller, Cancel, Error, Fault, NodeId, Result, SetAttr,
    UpdateRequest, Wait, WriteFlags,
};
use objstore::crash_storage::CrashStorage;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const WHO: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0o022,
};

fn me() -> Caller {
    let meta = fs::metadata("/proc/self").unwrap();
    Caller {
        uid: meta.uid(),
        gid: meta.gid(),
        ..WHO
    }
}

/// Everything of a directory that an apply may change, by path.
fn snapshot(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut work = vec![dir.to_owned()];
    while let Some(at) = work.pop() {
        let meta = fs::symlink_metadata(&at).unwrap();
        let content = if meta.is_dir() {
            for entry in fs::read_dir(&at).unwrap() {
                work.push(entry.unwrap().path());
            }
            "a directory".to_owned()
        } else if meta.is_symlink() {
            format!("to {:?}", fs::read_link(&at).unwrap())
        } else {
            format!("{:?}", fs::read(&at).unwrap_or_default())
        };
        let time = (meta.mtime(), meta.mtime_nsec());
        let facts = format!("{:o} {} {time:?} {content}", meta.mode(), meta.nlink());
        let name = at.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        found.insert(name, facts);
    }
    found
}

fn base() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    put("b", "b\n");
    put("d/x", "x\n");
    put("d/y", "y\n");
    put("old/deep/z", "z\n");
    fs::hard_link(dir.path().join("d/y"), dir.path().join("link")).unwrap();
    symlink("a", dir.path().join("sym")).unwrap();
    dir
}

fn open(base: &Path) -> World {
    let world = World::on_disk(CrashStorage::new(), base);
    world.w().settle().unwrap();
    world
}

/// Runs a test for each number of steps there is, several at a time: mostly they wait for the clock to
/// pass the times of new files.
fn each_step(test: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at > last.load(Ordering::Relaxed) {
                        break;
                    }
                    if !test(at) {
                        last.fetch_min(at, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let last = last.into_inner();
    assert!(last > 15, "only {last} steps");
}

fn parent(world: &World, path: &str) -> (NodeId, String) {
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = NodeId::ROOT;
    for part in dirs.split('/').filter(|part| !part.is_empty()) {
        at = world.w().lookup(at, part.as_bytes(), W).unwrap().node;
    }
    (at, name.to_owned())
}

fn write(world: &World, path: &str, text: &str) {
    let (dir, name) = parent(world, path);
    let w = world.w();
    let node = match w.lookup(dir, name.as_bytes(), W) {
        Ok(attr) => attr.node,
        Err(_) => {
            let made = w.mknod(&me(), dir, name.as_bytes(), 0o100644, 0, W);
            made.unwrap().node
        }
    };
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    w.setattr(&me(), node, &empty, W).unwrap();
    w.write(node, 0, text.as_bytes(), WriteFlags::default(), W)
        .unwrap();
}

fn remove(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world.w().unlink(dir, name.as_bytes(), W).unwrap();
}

fn mkdir(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world
        .w()
        .mkdir(&me(), dir, name.as_bytes(), 0o755, W)
        .unwrap();
}

fn rmdir(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world.w().rmdir(dir, name.as_bytes(), W).unwrap();
}

fn read(world: &World, path: &str) -> String {
    let (dir, name) = parent(world, path);
    let node = world.w().lookup(dir, name.as_bytes(), W).unwrap().node;
    String::from_utf8(world.w().read(node, 0, 1 << 20, W).unwrap()).unwrap()
}

fn apply_with(world: &World, faults: &dyn Fn() -> Fault) -> Result<ApplyReport> {
    apply_unless(world, faults, &Cancel::new())
}

fn apply_unless(world: &World, faults: &dyn Fn() -> Fault, cancel: &Cancel) -> Result<ApplyReport> {
    let request = ApplyRequest {
        branch: MAIN.into(),
        ..ApplyRequest::default()
    };
    world.w().apply_with(&request, &|_, _| (), faults, cancel)
}

fn apply(world: &World) -> Result<ApplyReport> {
    apply_with(world, &|| Fault::Go)
}

/// Changes of all kinds in the branch.
fn work(world: &World) {
    write(world, "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n");
    write(world, "new", "new\n");
    mkdir(world, "made");
    mkdir(world, "made/deep");
    write(world, "made/deep/file", "deep\n");
    remove(world, "old/deep/z");
    rmdir(world, "old/deep");
    rmdir(world, "old");
    remove(world, "b");
    mkdir(world, "b");
    write(world, "b/inside", "a directory now\n");
    write(world, "d/y", "both names\n");
    let w = world.w();
    let (dir, _) = parent(world, "new2");
    w.symlink(&me(), dir, b"sym2", b"new", W).unwrap();
    let file = w.lookup(dir, b"new", W).unwrap().node;
    w.link(file, dir, b"new-link", W).unwrap();
}

/// The base has what the branch has.
fn check_worked(dir: &Path) {
    let text = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    assert!(text("a").starts_with("1\ntwo\n3\n"));
    assert_eq!(text("made/deep/file"), "deep\n");
    assert_eq!(text("b/inside"), "a directory now\n");
    assert_eq!(text("link"), "both names\n");
    assert!(!dir.join("old").exists());
    assert_eq!(fs::read_link(dir.join("sym2")).unwrap(), Path::new("new"));
    let inode = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    assert_eq!(inode("new"), inode("new-link"));
    assert_eq!(inode("link"), inode("d/y"));
    assert!(staging(dir).is_empty(), "{:?}", staging(dir));
}

fn staging(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".agentvfs")).collect()
}

#[test]
fn changes_of_all_kinds_reach_the_base() {
    let dir = base();
    let world = open(dir.path());
    work(&world);
    let report = apply(&world).unwrap();
    assert_eq!(report.outcome, Outcome::Merged);
    check_worked(dir.path());
    let again = apply(&world).unwrap();
    assert_eq!((again.outcome, again.changes), (Outcome::UpToDate, vec![]));
}

#[test]
fn a_dry_run_lists_and_does_nothing() {
    let dir = base();
    let world = open(dir.path());
    work(&world);
    let before = snapshot(dir.path());
    let request = ApplyRequest {
        branch: MAIN.into(),
        dry_run: true,
        ..ApplyRequest::default()
    };
    let report = world.w().apply(&request, &|_, _| ()).unwrap();
    let has = |status: char, path: &[u8]| {
        let mut all = report.changes.iter();
        all.any(|c| c.status == status && c.path == path)
    };
    assert!(has('M', b"a") && has('A', b"new") && has('D', b"old/deep/z"));
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn edits_on_both_sides_are_merged_and_nothing_is_taken_back() {
    let dir = base();
    let world = open(dir.path());
    work(&world);
    let edited = "1\n2\n3\n4\n5\n6\n7\neight\n9\n";
    fs::write(dir.path().join("a"), edited).unwrap();
    fs::write(dir.path().join("users"), "mine\n").unwrap();
    apply(&world).unwrap();
    let text = fs::read_to_string(dir.path().join("a")).unwrap();
    assert_eq!(text, "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n");
    // The branch does not have the user's edits, and does not take them back.
    write(&world, "new", "newer\n");
    apply(&world).unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("users")).unwrap(),
        "mine\n"
    );
    assert!(
        fs::read_to_string(dir.path().join("a"))
            .unwrap()
            .contains("eight")
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("new")).unwrap(),
        "newer\n"
    );
}

#[test]
fn conflicts_are_listed_and_nothing_is_done() {
    let dir = base();
    let world = open(dir.path());
    work(&world);
    fs::write(dir.path().join("a"), "1\nzwei\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    let before = snapshot(dir.path());
    let report = apply(&world).unwrap();
    assert_eq!(report.outcome, Outcome::Conflicts);
    assert_eq!(report.conflicts[0].path, b"a");
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn what_both_changed_before_it_was_imported_is_a_conflict() {
    let dir = base();
    // Nothing is imported before the files are two seconds old.
    let world = World::on_disk(CrashStorage::new(), dir.path());
    write(&world, "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n");
    fs::write(dir.path().join("a"), "1\n2\n3\n4\n5\n6\n7\neight\n9\n").unwrap();
    fs::write(dir.path().join("d/x"), "only the base\n").unwrap();
    let report = apply(&world).unwrap();
    assert_eq!(report.outcome, Outcome::Conflicts);
    let paths: Vec<&[u8]> = report.conflicts.iter().map(|c| &c.path[..]).collect();
    assert_eq!(paths, [b"a"]);
    assert!(
        fs::read_to_string(dir.path().join("a"))
            .unwrap()
            .contains("eight")
    );
    let request = UpdateRequest {
        branch: MAIN.into(),
        ..UpdateRequest::default()
    };
    let report = world.w().update(&request, &|_, _| ()).unwrap();
    assert_eq!(report.outcome, Outcome::Conflicts);
    assert!(read(&world, "a").contains("two"));
}

#[test]
fn update_brings_what_the_base_got() {
    let dir = base();
    let world = open(dir.path());
    write(&world, "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n");
    fs::write(dir.path().join("a"), "1\n2\n3\n4\n5\n6\n7\neight\n9\n").unwrap();
    fs::write(dir.path().join("users"), "mine\n").unwrap();
    fs::remove_file(dir.path().join("b")).unwrap();
    let request = UpdateRequest {
        branch: MAIN.into(),
        ..UpdateRequest::default()
    };
    let report = world.w().update(&request, &|_, _| ()).unwrap();
    assert_eq!(report.outcome, Outcome::Merged);
    assert_eq!(read(&world, "a"), "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n");
    assert_eq!(read(&world, "users"), "mine\n");
    assert!(world.w().lookup(NodeId::ROOT, b"b", W).is_err());
    let again = world.w().update(&request, &|_, _| ()).unwrap();
    assert_eq!(again.outcome, Outcome::UpToDate);
    // Only the branch's own change is left to be applied.
    let applied = apply(&world).unwrap();
    assert_eq!(applied.changes.len(), 1, "{:?}", applied.changes);
    let refused = world.w().undo(MAIN).unwrap_err();
    assert!(matches!(refused, Error::LaterAsked(_)), "{refused}");
    world.w().undo_over_later(MAIN).unwrap();
    assert_eq!(read(&world, "a"), "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n");
}

/// Runs an apply that fails or dies before its n-th step; true where it had so many.
fn interrupted(how: Fault, at: u64, undo_by_opening: bool) -> bool {
    let dir = base();
    let mut world = open(dir.path());
    work(&world);
    let before = snapshot(dir.path());
    let steps = Cell::new(0);
    let faults = || {
        steps.set(steps.get() + 1);
        if steps.get() == at { how } else { Fault::Go }
    };
    let result = apply_with(&world, &faults);
    if steps.get() < at {
        result.unwrap();
        return false;
    }
    if how == Fault::Die {
        assert!(result.is_err());
        if undo_by_opening {
            world.kill().unwrap();
        }
    }
    let after = snapshot(dir.path());
    let done = dir.path().join("made").exists();
    if how == Fault::Fail || undo_by_opening {
        match done {
            true => check_done(dir.path(), how),
            false => assert_eq!(after, before, "step {at}"),
        }
    }
    // The next one finds its way from there.
    let report = apply(&world).unwrap();
    assert_ne!(report.outcome, Outcome::Conflicts);
    check_worked(dir.path());
    true
}

/// Only cleaning up failed: all is done, and what an error left is removed by the next command.
fn check_done(dir: &Path, how: Fault) {
    assert!(dir.join("made/deep/file").exists() && !dir.join("old").exists());
    assert!(how == Fault::Fail || staging(dir).is_empty());
}

#[test]
fn an_error_at_any_step_leaves_the_base_as_it_was_or_as_wanted() {
    let steps = (1..)
        .take_while(|at| interrupted(Fault::Fail, *at, false))
        .count();
    assert!(steps > 20, "only {steps} steps");
}

#[test]
fn a_crash_at_any_step_is_made_good_when_the_workspace_is_opened() {
    let steps = (1..)
        .take_while(|at| interrupted(Fault::Die, *at, true))
        .count();
    assert!(steps > 20, "only {steps} steps");
}

#[test]
fn a_crash_at_any_step_is_made_good_by_the_next_apply() {
    let steps = (1..)
        .take_while(|at| interrupted(Fault::Die, *at, false))
        .count();
    assert!(steps > 20, "only {steps} steps");
}

#[test]
fn what_somebody_writes_while_an_apply_runs_is_not_lost() {
    each_step(|at| {
        let dir = base();
        let world = open(dir.path());
        work(&world);
        let steps = Cell::new(0);
        let path = dir.path().join("a");
        let faults = || {
            steps.set(steps.get() + 1);
            if steps.get() == at {
                let _ = fs::remove_file(&path);
                fs::write(&path, "somebody's\n").unwrap();
            }
            Fault::Go
        };
        let result = apply_with(&world, &faults);
        if steps.get() < at {
            return false;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "somebody's\n", "step {at}: {result:?}");
        if result.is_err() {
            assert!(!dir.path().join("made").exists(), "step {at}");
            assert!(dir.path().join("old/deep/z").exists(), "step {at}");
        }
        true
    });
}

#[test]
fn nothing_outside_of_the_base_is_written() {
    each_step(|at| {
        let (dir, outside) = (base(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("x"), "outside\n").unwrap();
        fs::write(outside.path().join("y"), "outside\n").unwrap();
        let before = snapshot(outside.path());
        let world = open(dir.path());
        write(&world, "d/x", "changed\n");
        write(&world, "d/new", "new\n");
        remove(&world, "d/y");
        let steps = Cell::new(0);
        let faults = || {
            steps.set(steps.get() + 1);
            if steps.get() == at {
                // The directory is swapped for a link to somewhere else.
                fs::rename(dir.path().join("d"), dir.path().join("aside")).unwrap();
                symlink(outside.path(), dir.path().join("d")).unwrap();
            }
            Fault::Go
        };
        let result = apply_with(&world, &faults);
        assert_eq!(snapshot(outside.path()), before, "step {at}: {result:?}");
        steps.get() >= at
    });
}

#[test]
fn privileges_are_not_given_unasked() {
    let dir = base();
    let world = open(dir.path());
    write(&world, "tool", "#!/bin/sh\n");
    let node = world.w().lookup(NodeId::ROOT, b"tool", W).unwrap().node;
    let set = SetAttr {
        perm: Some(0o4755),
        ..SetAttr::default()
    };
    world.w().setattr(&me(), node, &set, W).unwrap();
    match apply(&world) {
        Err(Error::NeedsPrivilege { paths }) => assert_eq!(paths, [b"tool".to_vec()]),
        other => panic!("{other:?}"),
    }
    assert!(!dir.path().join("tool").exists());
    let request = ApplyRequest {
        branch: MAIN.into(),
        privileged: true,
        ..ApplyRequest::default()
    };
    world.w().apply(&request, &|_, _| ()).unwrap();
    let mode = fs::metadata(dir.path().join("tool"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o4755);
}

#[test]
fn random_work_arrives_exactly() {
    for seed in 0..2 {
        let mut rng = Rng(seed);
        let dir = base();
        let world = open(dir.path());
        for step in 0..30 {
            let name = format!("f{}", rng.below(8));
            match rng.below(3) {
                0 if world.w().lookup(NodeId::ROOT, name.as_bytes(), W).is_ok() => {
                    remove(&world, &name);
                }
                _ => write(&world, &name, &format!("{step}\n")),
            }
            if rng.one_in(10) {
                apply(&world).unwrap();
            }
        }
        apply(&world).unwrap();
        for number in 0..8 {
            let name = format!("f{number}");
            let there = world.w().lookup(NodeId::ROOT, name.as_bytes(), W).is_ok();
            let found = fs::read_to_string(dir.path().join(&name)).ok();
            let want = there.then(|| read(&world, &name));
            assert_eq!(found, want, "seed {seed}, {name}");
        }
    }
}

#[test]
fn what_was_applied_stays_the_ground_of_the_next_merge_after_gc() {
    let dir = base();
    let world = open(dir.path());
    work(&world);
    apply(&world).unwrap();
    let at_once = engine::GcRequest {
        grace: Some(std::time::Duration::ZERO),
        ..engine::GcRequest::default()
    };
    world.engine.gc(at_once, &|_, _| ()).unwrap();
    fs::write(dir.path().join("d/x"), "of the user\n").unwrap();
    write(&world, "new", "newer\n");
    apply(&world).unwrap();
    let text = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap();
    assert_eq!(
        (text("d/x"), text("new")),
        ("of the user\n".into(), "newer\n".into())
    );
}

#[test]
fn a_project_that_was_moved_away_is_neither_written_nor_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("p"), dir.path().join("p.old"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "a\n").unwrap();
    let world = open(&path);
    write(&world, "a", "agent\n");
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "a\n").unwrap();
    let names_both = |error: Error| {
        let text = error.to_string();
        let named = |at: &Path| text.contains(&at.display().to_string());
        assert!(matches!(error, Error::BaseMoved { .. }), "{text}");
        assert!(named(&path) && named(&old), "{text}");
    };
    names_both(apply(&world).unwrap_err());
    names_both(world.w().check_base_place().unwrap_err());
    let update = UpdateRequest {
        branch: MAIN.into(),
        ..UpdateRequest::default()
    };
    names_both(world.w().update(&update, &|_, _| ()).unwrap_err());
    for at in [&path, &old] {
        assert_eq!(fs::read_to_string(at.join("a")).unwrap(), "a\n");
    }
    fs::remove_dir_all(&path).unwrap();
    names_both(apply(&world).unwrap_err());
    fs::rename(&old, &path).unwrap();
    assert_eq!(apply(&world).unwrap().outcome, Outcome::Merged);
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "agent\n");
}

#[test]
fn cancelled_at_any_step_nothing_is_left_and_afterwards_all_is_done() {
    let (cancelled, done) = (AtomicU64::new(0), AtomicU64::new(0));
    each_step(|step| {
        let dir = base();
        let world = open(dir.path());
        work(&world);
        let before = snapshot(dir.path());
        let (at, cancel, heard) = (Cell::new(0), Cancel::new(), Cell::new(None));
        let faults = || {
            at.set(at.get() + 1);
            if at.get() == step {
                heard.set(Some(cancel.cancel()));
            }
            Fault::Go
        };
        let result = apply_unless(&world, &faults, &cancel);
        match heard.get() {
            Some(true) => {
                assert!(
                    matches!(result, Err(Error::Cancelled)),
                    "{step}: {result:?}"
                );
                assert_eq!(snapshot(dir.path()), before, "{step}");
                assert_eq!(apply(&world).unwrap().outcome, Outcome::Merged);
                cancelled.fetch_add(1, Ordering::Relaxed);
            }
            Some(false) => {
                assert_eq!(result.unwrap().outcome, Outcome::Merged, "{step}");
                done.fetch_add(1, Ordering::Relaxed);
            }
            None => assert_eq!(result.unwrap().outcome, Outcome::Merged),
        }
        check_worked(dir.path());
        heard.get().is_some()
    });
    assert!(cancelled.into_inner() > 5 && done.into_inner() > 5);
}

#[test]
fn an_apply_that_waits_for_the_import_can_be_cancelled() {
    let dir = base();
    let world = World::on_disk(CrashStorage::new(), dir.path());
    let cancel = Cancel::new();
    cancel.cancel();
    let result = apply_unless(&world, &|| Fault::Go, &cancel);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert!(!world.w().status(MAIN).unwrap().branch.is_empty());
}
