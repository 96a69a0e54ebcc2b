//! What a branch has from others: its log shows where it is, and the ancestors of its head can be named and
//! stay, whatever becomes of the branch that they were made in.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, files, put_in};
use crate::common::world::{MAIN, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;

fn world() -> (tempfile::TempDir, World) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("a"), "a").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    (base, world)
}

fn merge(world: &World, from: &str) -> MergeReport {
    let request = MergeRequest {
        from: from.into(),
        into: MAIN.into(),
        ..MergeRequest::default()
    };
    verbs::merge_branch(world.w(), &request, &|_, _| ()).unwrap()
}

fn delete(world: &World, branch: &str) {
    verbs::delete_branch(world.w(), branch, &|_, _| ()).unwrap();
}

/// The entry of a commit in the log of what was asked for.
fn row(world: &World, id: CommitId) -> LogEntry {
    let log = verbs::log(world.w(), MAIN, false).unwrap();
    let found = log.into_iter().find(|e| e.commit == Some(id));
    found.unwrap_or_else(|| panic!("{id} is not in the log"))
}

/// Goes to each of these in turn and gives the names of the files there.
fn names_at(world: &World, refs: &[&str]) -> Vec<usize> {
    let at = |text: &&str| {
        let target = Target::Ref((*text).to_owned());
        verbs::rollback(world.w(), MAIN, &target).unwrap();
        files(world, MAIN).len()
    };
    refs.iter().map(at).collect()
}

/// Branch `b` with two checkpoints, the first with two labels; what they are.
fn branch_with_two(world: &World) -> (CommitId, CommitId) {
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    put_in(world, "b", "b1", b"1");
    let first = checkpoint(world, "b", "first");
    let unchanged = CheckpointRequest {
        label: Some("also".into()),
        wait: true,
        ..CheckpointRequest::default()
    };
    verbs::checkpoint(world.w(), "b", unchanged, &|_, _| ()).unwrap();
    put_in(world, "b", "b2", b"2");
    (first, checkpoint(world, "b", "second"))
}

#[test]
fn the_head_is_in_the_log_after_a_fast_forward_and_later() {
    let (_base, mut world) = world();
    let (first, second) = branch_with_two(&world);
    assert_eq!(merge(&world, "b").outcome, Outcome::FastForward);
    for again in [false, true] {
        let head = row(&world, second);
        assert!(head.is_head);
        assert_eq!(
            (head.labels, head.parents),
            (vec!["second".to_owned()], vec![first])
        );
        assert_eq!(row(&world, first).labels, ["also", "first"]);
        if !again {
            world.kill().unwrap();
        }
    }
    put_in(&world, MAIN, "more", b"3");
    let third = checkpoint(&world, MAIN, "third");
    assert_eq!(row(&world, third).parents, [second]);
    assert!(!row(&world, second).is_head, "it stays in the log");
}

#[test]
fn the_head_is_in_the_log_of_a_branch_that_begins_with_an_automatic_commit() {
    let (_base, world) = world();
    put_in(&world, MAIN, "uncommitted", b"1");
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    let log = verbs::log(world.w(), "b", false).unwrap();
    assert_eq!(log.iter().filter(|e| e.is_head).count(), 1, "{log:?}");
}

#[test]
fn merged_commits_have_parents_and_can_be_named_once_their_branch_is_gone() {
    let (_base, mut world) = world();
    let (first, second) = branch_with_two(&world);
    put_in(&world, MAIN, "own", b"1");
    checkpoint(&world, MAIN, "second");
    let merged = merge(&world, "b").commit.unwrap();
    assert_eq!(row(&world, merged).parents[1], second);
    assert_eq!(row(&world, second).parents, [first]);
    delete(&world, "b");
    for again in [false, true] {
        let id = second.to_string();
        // The label that main has itself is where it was.
        let names = names_at(&world, &["first", "also", &id[..12], "second", "@"]);
        assert_eq!(names, [2, 2, 3, 2, 2]);
        if !again {
            world.kill().unwrap();
        }
    }
    let request = GcRequest {
        grace: Some(std::time::Duration::ZERO),
        ..GcRequest::default()
    };
    world.engine.gc(request, &|_, _| ()).unwrap();
    assert_eq!(names_at(&world, &["first", &second.to_string()]), [2, 3]);
}

#[test]
fn a_branch_that_was_only_looked_at_leaves_nothing_behind() {
    let (_base, world) = world();
    let (first, _) = branch_with_two(&world);
    let of_b = Target::Ref("b:second".into());
    verbs::restore(world.w(), MAIN, &of_b, &[b"b1".to_vec()]).unwrap();
    delete(&world, "b");
    let log = verbs::log(world.w(), MAIN, false).unwrap();
    assert!(log.iter().all(|e| e.commit != Some(first)), "{log:?}");
}

#[test]
fn ancestors_come_with_a_commit_of_another_branch_that_is_shown() {
    let (_base, world) = world();
    let (first, second) = branch_with_two(&world);
    let of_b = Target::Ref("b:second".into());
    verbs::rollback(world.w(), MAIN, &of_b).unwrap();
    verbs::create_branch(world.w(), "c", MAIN, Some("b:second")).unwrap();
    delete(&world, "b");
    assert_eq!(row(&world, second).parents, [first]);
    assert_eq!(names_at(&world, &["@~1", "also", "second"]), [2, 2, 3]);
    let of_c = verbs::rollback(world.w(), "c", &Target::Ref("first".into()));
    assert_eq!(of_c.unwrap().commit, Some(first));
}

#[test]
fn ancestors_that_a_branch_learned_of_after_the_commit_itself_come_with_it() {
    let (_base, mut world) = world();
    let into = |from: &str, into: &str| {
        let request = MergeRequest {
            from: from.into(),
            into: into.into(),
            ..MergeRequest::default()
        };
        let report = verbs::merge_branch(world.w(), &request, &|_, _| ()).unwrap();
        (report.outcome, report.commit.unwrap())
    };
    for name in ["x", "y"] {
        verbs::create_branch(world.w(), name, MAIN, None).unwrap();
        put_in(&world, name, name, b"1");
    }
    let of_x = checkpoint(&world, "x", "of-x");
    let (outcome, merged) = into("x", "y");
    assert_eq!(outcome, Outcome::Merged);
    put_in(&world, "y", "later", b"1");
    let last = checkpoint(&world, "y", "last");
    // x knows the commit that it shows then before it knows what that was made of.
    assert_eq!(into("y", "x"), (Outcome::FastForward, last));
    put_in(&world, MAIN, "meanwhile", b"1");
    assert_eq!(merge(&world, "x").outcome, Outcome::Merged);
    for again in [false, true] {
        assert_eq!(row(&world, last).parents, [merged]);
        assert!(row(&world, merged).parents.contains(&of_x));
        if !again {
            world.kill().unwrap();
        }
    }
    verbs::create_branch(world.w(), "z", MAIN, None).unwrap();
    let log = verbs::log(world.w(), "z", false).unwrap();
    let has = |id: CommitId| log.iter().any(|e| e.commit == Some(id));
    assert!(has(last) && has(merged) && has(of_x), "{log:?}");
}

#[test]
fn what_another_branch_was_is_not_what_this_one_was() {
    let (_base, world) = world();
    let (first, second) = branch_with_two(&world);
    put_in(&world, MAIN, "own", b"1");
    checkpoint(&world, MAIN, "own");
    merge(&world, "b");
    let time = row(&world, second).time;
    // Main was still as it was started.
    let start = verbs::rollback(world.w(), MAIN, &Target::Before(time)).unwrap();
    assert_ne!(start.commit, Some(first));
    assert_eq!(files(&world, MAIN).len(), 1);
}

#[test]
fn labels_are_taken_over_when_the_branch_is_deleted_at_the_latest() {
    let (_base, world) = world();
    let (_, second) = branch_with_two(&world);
    merge(&world, "b");
    let late = CheckpointRequest {
        label: Some("late".into()),
        wait: true,
        ..CheckpointRequest::default()
    };
    verbs::checkpoint(world.w(), "b", late, &|_, _| ()).unwrap();
    delete(&world, "b");
    assert_eq!(row(&world, second).labels, ["second", "late"]);
}

#[test]
fn branches_of_what_is_unchanged_begin_with_the_same_state() {
    let (_base, world) = world();
    let branch = |name: &str| verbs::create_branch(world.w(), name, MAIN, None).unwrap();
    let frozen = || {
        let log = verbs::log(world.w(), MAIN, true).unwrap();
        log.iter().filter(|e| e.kind == "before-branch").count()
    };
    put_in(&world, MAIN, "b", b"1");
    for name in ["x", "y", "z"] {
        branch(name);
    }
    assert_eq!(frozen(), 1);
    put_in(&world, MAIN, "c", b"2");
    branch("u");
    assert_eq!(frozen(), 2);
    let next = checkpoint(&world, MAIN, "next");
    assert_eq!(row(&world, next).parents.len(), 3);
    branch("v");
    assert_eq!(frozen(), 2);
    let files_of = |name: &str| files(&world, name).len();
    assert_eq!(["x", "z", "u", "v"].map(files_of), [2, 2, 3, 3]);
}
