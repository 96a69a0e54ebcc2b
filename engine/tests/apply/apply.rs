//! `apply` and `update`: changes go from a branch to its base and back, three-way, all or nothing,
//! whatever fails on the way and whoever else writes there.
#![allow(clippy::unwrap_used)]

use crate::applying::*;
use crate::common::rng::{Rng, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::{ApplyRequest, Cancel, Error, Fault, NodeId, SetAttr, UpdateRequest};
use objstore::crash_storage::CrashStorage;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

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
    let report = verbs::apply(world.w(), &request, &|_, _| ()).unwrap();
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
    let report = verbs::update(world.w(), &request, &|_, _| ()).unwrap();
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
    let report = verbs::update(world.w(), &request, &|_, _| ()).unwrap();
    assert_eq!(report.outcome, Outcome::Merged);
    assert_eq!(read(&world, "a"), "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n");
    assert_eq!(read(&world, "users"), "mine\n");
    assert!(world.w().lookup(NodeId::ROOT, b"b", W).is_err());
    let again = verbs::update(world.w(), &request, &|_, _| ()).unwrap();
    assert_eq!(again.outcome, Outcome::UpToDate);
    // Only the branch's own change is left to be applied.
    let applied = apply(&world).unwrap();
    assert_eq!(applied.changes.len(), 1, "{:?}", applied.changes);
    let refused = verbs::undo(world.w(), MAIN).unwrap_err();
    assert!(matches!(refused, Error::LaterAsked(_)), "{refused}");
    verbs::undo_over_later(world.w(), MAIN).unwrap();
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
    verbs::apply(world.w(), &request, &|_, _| ()).unwrap();
    let mode = fs::metadata(dir.path().join("tool"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o4755);
}

#[test]
fn random_work_arrives_exactly() {
    let first = fresh_seed();
    println!("seeds from {first}; AGENTVFS_SEED={first} makes this happen again");
    for seed in first..first + 2 {
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
    names_both(verbs::update(world.w(), &update, &|_, _| ()).unwrap_err());
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
    assert!(!verbs::status(world.w(), MAIN).unwrap().branch.is_empty());
}
