//! Key-value state: part of commits, branches and merges, kept over restarts, sealing and gc, never
//! touched by what is about files.
#![allow(clippy::unwrap_used)]

use crate::common::world::World;
use engine::kv::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use engine::merge::{ConflictKind, Outcome};
use engine::verbs;
use engine::*;
use objstore::crash_storage::{CrashStorage, Policy};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn world() -> (World, TempDir) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("file"), "of the base\n").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    world.w().settle().unwrap();
    (world, base)
}

fn set(w: &Workspace, branch: &str, key: &str, json: &str) {
    verbs::kv_set(w, branch, key, json).unwrap();
}

/// The value of a key, or nothing.
fn get(w: &Workspace, branch: &str, key: &str) -> Option<String> {
    let entry = verbs::kv_get(w, branch, key).unwrap();
    entry.map(|e| e.value.clone())
}

/// All keys with their values, as `key=value` words.
fn all(w: &Workspace, branch: &str) -> String {
    let list = verbs::kv_list(w, branch, "").unwrap();
    let words = list.iter().map(|(k, e)| format!("{k}={}", e.value));
    words.collect::<Vec<_>>().join(" ")
}

fn checkpoint(w: &Workspace, branch: &str, label: &str) -> Checkpointed {
    let req = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(w, branch, req, &|_, _| ()).unwrap()
}

fn merge(w: &Workspace, from: &str, into: &str, keep_conflicts: bool) -> MergeReport {
    let req = MergeRequest {
        from: from.into(),
        into: into.into(),
        keep_conflicts,
        ..MergeRequest::default()
    };
    verbs::merge_branch(w, &req, &|_, _| ()).unwrap()
}

fn at(label: &str) -> Target {
    Target::Ref(label.into())
}

#[test]
fn a_checkpoint_after_only_a_key_changed_is_a_new_commit_that_differs_in_no_path() {
    let (world, _base) = world();
    let w = world.w();
    assert!(!checkpoint(w, MAIN, "none").new_commit);
    set(w, MAIN, "a", "1");
    let one = checkpoint(w, MAIN, "one");
    assert!(one.new_commit && one.files_changed == 0);
    assert!(!checkpoint(w, MAIN, "again").new_commit);
    assert!(verbs::kv_delete(w, MAIN, "a").unwrap());
    assert!(!verbs::kv_delete(w, MAIN, "a").unwrap());
    assert!(checkpoint(w, MAIN, "two").new_commit);
    let side = |label: &str| DiffSide::Ref(label.into());
    assert_eq!(
        verbs::diff(w, MAIN, &side("one"), &side("two"), &[]).unwrap(),
        []
    );
    assert_eq!(verbs::kv_at(w, MAIN, &at("one")).unwrap().len(), 1);
    assert!(verbs::kv_at(w, MAIN, &at("two")).unwrap().is_empty());
    assert!(verbs::kv_at(w, MAIN, &at("none")).unwrap().is_empty());
    assert!(matches!(
        verbs::kv_at(w, MAIN, &at("x")),
        Err(Error::NoSuchRef(_))
    ));
}

#[test]
fn keys_and_values_have_limits() {
    let (world, _base) = world();
    let w = world.w();
    let longest = "k".repeat(KEY_BYTES_MAX);
    let text = |n: usize| format!("\"{}\"", "v".repeat(n - 2));
    set(w, MAIN, &longest, &text(VALUE_BYTES_MAX));
    assert_eq!(get(w, MAIN, &longest).unwrap().len(), VALUE_BYTES_MAX);
    let refused = |key: &str, json: &str| verbs::kv_set(w, MAIN, key, json).unwrap_err();
    for key in ["", "a\nb", &"k".repeat(KEY_BYTES_MAX + 1)] {
        assert!(matches!(refused(key, "1"), Error::BadName { .. }));
    }
    assert!(matches!(refused("a", "no json"), Error::NotJson { .. }));
    let long = text(VALUE_BYTES_MAX + 1);
    assert!(matches!(refused("a", &long), Error::ValueTooLong { .. }));
    // 64 MiB in all: of the longest values, 127 fit beside what each key counts.
    for n in 0..126 {
        set(w, MAIN, &format!("{n}"), &text(VALUE_BYTES_MAX));
    }
    let full = verbs::kv_set(w, MAIN, "126", &text(VALUE_BYTES_MAX));
    assert!(matches!(full, Err(Error::TooManyValues)));
    set(w, MAIN, "125", "1");
    set(w, MAIN, "126", &text(VALUE_BYTES_MAX));
    assert_eq!(verbs::kv_list(w, MAIN, "").unwrap().len(), 128);
}

#[test]
fn keys_outlast_a_kill_sealing_gc_and_a_clean_stop() {
    let (mut world, _base) = world();
    set(world.w(), MAIN, "sealed", "1");
    set(world.w(), MAIN, "gone", "1");
    checkpoint(world.w(), MAIN, "kept");
    world.w().seal().unwrap();
    set(world.w(), MAIN, "late", "[1,2]");
    verbs::kv_delete(world.w(), MAIN, "gone").unwrap();
    let wanted = "late=[1,2] sealed=1";
    let gc = |world: &World| {
        let all = GcRequest {
            grace: Some(Duration::ZERO),
            dead_percent: Some(0),
            dry_run: false,
        };
        world.engine.gc(all, &|_, _| ()).unwrap();
        let report = world.engine.fsck(&|_, _| ()).unwrap();
        assert_eq!(report.findings, []);
    };
    for _ in 0..2 {
        gc(&world);
        world.kill().unwrap();
        assert_eq!(all(world.w(), MAIN), wanted);
        world.w().settle().unwrap();
        world.w().seal().unwrap();
        gc(&world);
        world.close(CloseMode::Checkpoint).unwrap();
        gc(&world);
        world.reopen().unwrap();
        assert_eq!(all(world.w(), MAIN), wanted);
        world.close(CloseMode::NoCheckpoint).unwrap();
        world.reopen().unwrap();
    }
    let kept = verbs::kv_at(world.w(), MAIN, &at("kept")).unwrap();
    assert_eq!((kept.len(), kept.get("gone").is_some()), (2, true));
    let figures = world.engine.figures().unwrap();
    assert_eq!(figures.workspaces[0].branches[0].keys, 2);
}

#[test]
fn an_automatic_commit_counts_a_key_as_a_change() {
    let (world, _base) = world();
    world
        .engine
        .set_settings(Settings {
            auto_idle: Some(Duration::from_millis(50)),
            auto_busy: Some(Duration::from_millis(200)),
            ..Settings::quiet()
        })
        .unwrap();
    set(world.w(), MAIN, "a", "1");
    let since = Instant::now();
    let id = loop {
        let log = verbs::log(world.w(), MAIN, true).unwrap();
        let found = log.into_iter().find(|e| e.kind == "auto");
        if let Some(id) = found.and_then(|e| e.commit) {
            break id;
        }
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    };
    let kept = verbs::kv_at(world.w(), MAIN, &at(&id.to_string())).unwrap();
    assert_eq!(kept.get("a").unwrap().value, "1");
}

#[test]
fn rollback_takes_keys_along_or_leaves_them_and_undo_brings_them_back() {
    let (world, _base) = world();
    let w = world.w();
    set(w, MAIN, "a", "1");
    checkpoint(w, MAIN, "one");
    set(w, MAIN, "a", "2");
    set(w, MAIN, "b", "3");
    verbs::rollback(w, MAIN, &at("one")).unwrap();
    assert_eq!(all(w, MAIN), "a=1");
    verbs::undo(w, MAIN).unwrap();
    assert_eq!(all(w, MAIN), "a=2 b=3");
    verbs::redo(w, MAIN).unwrap();
    assert_eq!(all(w, MAIN), "a=1");
    verbs::undo(w, MAIN).unwrap();
    verbs::rollback_keeping_kv(w, MAIN, &at("one")).unwrap();
    assert_eq!(all(w, MAIN), "a=2 b=3");
    assert!(checkpoint(w, MAIN, "two").new_commit);
    // Paths alone never touch keys.
    verbs::restore(w, MAIN, &at("one"), &[b"file".to_vec()]).unwrap();
    assert_eq!(all(w, MAIN), "a=2 b=3");
    let plan = verbs::rollback_plan(w, MAIN, &at("one")).unwrap();
    assert_eq!(plan, []);
}

#[test]
fn a_branch_begins_with_the_keys_of_its_origin_and_goes_its_own_way() {
    let (mut world, _base) = world();
    set(world.w(), MAIN, "sealed", "1");
    world.w().seal().unwrap();
    set(world.w(), MAIN, "late", "2");
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    set(world.w(), "b", "own", "3");
    verbs::kv_delete(world.w(), "b", "sealed").unwrap();
    set(world.w(), MAIN, "late", "4");
    verbs::create_branch(world.w(), "c", "b", None).unwrap();
    let check = |w: &Workspace| {
        assert_eq!(all(w, MAIN), "late=4 sealed=1");
        assert_eq!(all(w, "b"), "late=2 own=3");
        assert_eq!(all(w, "c"), "late=2 own=3");
    };
    check(world.w());
    world.kill().unwrap();
    check(world.w());
    world.w().settle().unwrap();
    world.w().seal().unwrap();
    world.kill().unwrap();
    check(world.w());
}

#[test]
fn a_branch_made_before_anything_was_synced_outlasts_a_power_cut() {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("file"), "x").unwrap();
    for policy in Policy::ALL {
        let disk = CrashStorage::new();
        let mut world = World::on_disk(disk.clone(), base.path());
        set(world.w(), MAIN, "a", "1");
        checkpoint(world.w(), MAIN, "one");
        set(
            world.w(),
            MAIN,
            "b",
            &format!("\"{}\"", "x".repeat(100_000)),
        );
        world.w().settle().unwrap();
        verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
        let left = disk.image_at(disk.op_count(), policy, 5);
        world.end();
        let again = World::try_open(left, base.path()).unwrap();
        for branch in [MAIN, "b"] {
            assert_eq!(
                verbs::kv(again.w(), branch).unwrap().len(),
                2,
                "{branch} {policy:?}"
            );
        }
    }
}

#[test]
fn branches_are_merged_key_by_key() {
    let (world, _base) = world();
    let w = world.w();
    for key in ["both", "changed", "gone", "same", "stays"] {
        set(w, MAIN, key, "0");
    }
    checkpoint(w, MAIN, "start");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    set(w, MAIN, "ours", "1");
    set(w, MAIN, "same", "7");
    set(w, "b", "same", "7");
    set(w, "b", "changed", "2");
    set(w, "b", "theirs", "3");
    verbs::kv_delete(w, "b", "gone").unwrap();
    checkpoint(w, "b", "theirs");
    let report = merge(w, "b", MAIN, false);
    assert_eq!((report.outcome, report.files_changed), (Outcome::Merged, 0));
    let merged = "both=0 changed=2 ours=1 same=7 stays=0 theirs=3";
    assert_eq!(all(w, MAIN), merged);
    let commit = report.commit.unwrap().to_string();
    assert_eq!(verbs::kv_at(w, MAIN, &at(&commit)).unwrap().len(), 6);
    // The merge is the head, and can be undone.
    assert!(!checkpoint(w, MAIN, "merged").new_commit);
    verbs::undo_over_later(w, MAIN).unwrap();
    assert_eq!(get(w, MAIN, "theirs"), None);
    verbs::redo(w, MAIN).unwrap();
    assert_eq!(all(w, MAIN), merged);
    // What was merged is the ground of the next merge; one that changed nothing is fast-forwarded.
    let report = merge(w, MAIN, "b", false);
    assert_eq!(report.outcome, Outcome::FastForward);
    assert_eq!(all(w, "b"), merged);
    assert_eq!(merge(w, "b", MAIN, false).outcome, Outcome::UpToDate);
    verbs::kv_delete(w, "b", "ours").unwrap();
    checkpoint(w, "b", "less");
    assert_eq!(merge(w, "b", MAIN, false).outcome, Outcome::FastForward);
    assert_eq!(get(w, MAIN, "ours"), None);
}

#[test]
fn a_key_that_both_changed_is_a_conflict_that_can_be_settled() {
    let (mut world, _base) = world();
    for key in ["a/..//b", "c", "d", "e"] {
        set(world.w(), MAIN, key, "0");
    }
    checkpoint(world.w(), MAIN, "start");
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    for (key, ours, theirs) in [("a/..//b", "1", "2"), ("c", "3", "4"), ("d", "5", "6")] {
        set(world.w(), MAIN, key, ours);
        set(world.w(), "b", key, theirs);
    }
    verbs::kv_delete(world.w(), MAIN, "e").unwrap();
    set(world.w(), "b", "e", "8");
    set(world.w(), "b", "new", "9");
    let refused = merge(world.w(), "b", MAIN, false);
    assert_eq!(
        (refused.outcome, refused.commit),
        (Outcome::Conflicts, None)
    );
    assert_eq!(all(world.w(), MAIN), "a/..//b=1 c=3 d=5");
    let report = merge(world.w(), "b", MAIN, true);
    let listed: Vec<_> = report.conflicts.iter().map(|c| c.path.clone()).collect();
    let paths = ["a/..//b", "c", "d", "e"].map(|k| format!(".agentvfs/kv/{k}").into_bytes());
    assert_eq!(listed, paths);
    let kinds = |c: &engine::merge::Conflict| c.kind == ConflictKind::Content;
    assert!(report.conflicts.iter().all(kinds));
    assert_eq!(all(world.w(), MAIN), "a/..//b=1 c=3 d=5 new=9");
    verbs::delete_branch(world.w(), "b", &|_, _| ()).unwrap();
    world.close(CloseMode::Checkpoint).unwrap();
    let all_of_it = GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    };
    world.engine.gc(all_of_it, &|_, _| ()).unwrap();
    assert_eq!(world.engine.fsck(&|_, _| ()).unwrap().findings, []);
    world.reopen().unwrap();
    let w = world.w();
    assert_eq!(verbs::conflicts(w, MAIN).unwrap().len(), 4);
    let settle = |key: usize, how| {
        verbs::resolve_conflict(w, MAIN, &paths[key], how)
            .unwrap()
            .0
    };
    assert_eq!(settle(0, Resolution::Theirs), 3);
    assert_eq!(settle(1, Resolution::Base), 2);
    assert_eq!(settle(2, Resolution::Ours), 1);
    assert_eq!(settle(3, Resolution::Theirs), 0);
    assert_eq!(all(w, MAIN), "a/..//b=2 c=0 d=5 e=8 new=9");
    let none = verbs::resolve_conflict(w, MAIN, &paths[0], Resolution::Ours);
    assert!(matches!(none, Err(Error::NoConflict(_))));
    verbs::undo(w, MAIN).unwrap();
    assert_eq!(get(w, MAIN, "e"), None);
}

#[test]
fn a_criss_cross_of_merges_resurrects_nothing_and_takes_no_side() {
    let (world, _base) = world();
    let w = world.w();
    set(w, MAIN, "k", "0");
    set(w, MAIN, "gone", "0");
    checkpoint(w, MAIN, "start");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    set(w, MAIN, "k", "1");
    verbs::kv_delete(w, MAIN, "gone").unwrap();
    set(w, "b", "k", "2");
    verbs::create_branch(w, "main2", MAIN, None).unwrap();
    verbs::create_branch(w, "b2", "b", None).unwrap();
    // Each takes the other in, and both decide otherwise.
    merge(w, "b2", MAIN, true);
    let path = b".agentvfs/kv/k";
    verbs::resolve_conflict(w, MAIN, path, Resolution::Ours).unwrap();
    merge(w, "main2", "b", true);
    verbs::resolve_conflict(w, "b", path, Resolution::Ours).unwrap();
    assert_eq!(
        (get(w, MAIN, "k"), get(w, "b", "k")),
        (Some("1".into()), Some("2".into()))
    );
    let report = merge(w, "b", MAIN, false);
    let paths: Vec<_> = report.conflicts.iter().map(|c| &c.path[..]).collect();
    assert_eq!(paths, [&path[..]]);
    assert_eq!((get(w, MAIN, "gone"), get(w, "b", "gone")), (None, None));
}

#[test]
fn apply_and_update_leave_keys_alone() {
    let (world, base) = world();
    let w = world.w();
    set(w, MAIN, "a", "1");
    verbs::create_branch(w, "b", MAIN, None).unwrap();
    set(w, "b", "of b", "2");
    let dir = w.lookup(NodeId::ROOT, b"file", Wait::Allowed).unwrap();
    let flags = WriteFlags::default();
    w.write(dir.node, 0, b"of main", flags, Wait::Allowed)
        .unwrap();
    let apply = ApplyRequest {
        branch: MAIN.into(),
        ..ApplyRequest::default()
    };
    let done = verbs::apply(w, &apply, &|_, _| ()).unwrap();
    assert_eq!(done.changes.len(), 1);
    std::fs::write(base.path().join("new"), "new").unwrap();
    for branch in [MAIN, "b"] {
        let update = UpdateRequest {
            branch: branch.into(),
            ..UpdateRequest::default()
        };
        let report = verbs::update(w, &update, &|_, _| ()).unwrap();
        assert!(report.commit.is_some(), "{report:?}");
    }
    assert_eq!(
        (all(w, MAIN), all(w, "b")),
        ("a=1".into(), "a=1 of b=2".into())
    );
    // The head has them too, whatever stands for it.
    for branch in [MAIN, "b"] {
        let keys = all(w, branch);
        verbs::rollback(w, branch, &Target::Head).unwrap();
        assert_eq!(all(w, branch), keys);
    }
    // Nothing of it passed through the base: main's deletion and b's own key meet as if there were none.
    verbs::kv_delete(w, MAIN, "a").unwrap();
    assert_eq!(merge(w, "b", MAIN, false).conflicts, []);
    assert_eq!(all(w, MAIN), "of b=2");
}

#[test]
fn a_view_shows_the_keys_of_its_state_and_no_directory_shows_any() {
    let (world, _base) = world();
    let w = world.w();
    set(w, MAIN, "a", "1");
    checkpoint(w, MAIN, "one");
    set(w, MAIN, "a", "2");
    let view = |side: &DiffSide| verbs::read_state(w, MAIN, side).unwrap();
    let (old, live) = (view(&DiffSide::Ref("one".into())), view(&DiffSide::Live));
    assert_eq!(old.kv().unwrap().get("a").unwrap().value, "1");
    assert_eq!(live.kv().unwrap().get("a").unwrap().value, "2");
    let names: Vec<_> = live
        .list(b"")
        .unwrap()
        .into_iter()
        .map(|n| n.name)
        .collect();
    assert_eq!(names, [b"file"]);
    assert_eq!(old.changes(&live, &[]).unwrap(), []);
}

/// Threads set keys of their own while others are set on a branch that is merged in, checkpoints are made
/// and rolled back with the keys left alone: whatever was answered is there.
#[test]
fn keys_that_are_set_beside_merges_and_rollbacks_are_all_there() {
    const EACH: usize = 60;
    let (mut world, _base) = world();
    set(world.w(), MAIN, "start", "0");
    checkpoint(world.w(), MAIN, "start");
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    std::thread::scope(|scope| {
        let w = world.w();
        let writers: Vec<_> = (0..4)
            .map(|t| {
                scope.spawn(move || {
                    let branch = [MAIN, "b"][t % 2];
                    for n in 0..EACH {
                        set(w, branch, &format!("{t}/{n}"), &n.to_string());
                    }
                })
            })
            .collect();
        while writers.iter().any(|t| !t.is_finished()) {
            let req = MergeRequest {
                from: "b".into(),
                into: MAIN.into(),
                ..MergeRequest::default()
            };
            match verbs::merge_branch(w, &req, &|_, _| ()) {
                Ok(report) => assert_eq!(report.conflicts, []),
                Err(Error::KeepsChanging(_)) => {}
                Err(e) => panic!("{e}"),
            }
            checkpoint(w, MAIN, "now");
            verbs::rollback_keeping_kv(w, MAIN, &at("start")).unwrap();
        }
    });
    merge(world.w(), "b", MAIN, false);
    assert_eq!(verbs::kv(world.w(), MAIN).unwrap().len(), 4 * EACH + 1);
    world.kill().unwrap();
    assert_eq!(verbs::kv(world.w(), MAIN).unwrap().len(), 4 * EACH + 1);
    assert_eq!(verbs::kv(world.w(), "b").unwrap().len(), 2 * EACH + 1);
}
