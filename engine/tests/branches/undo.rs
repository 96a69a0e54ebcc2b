//! Undo does not go back over what somebody asked for later, unless it is told to.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, files, put_in};
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;

fn world() -> (tempfile::TempDir, World) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("a"), "a").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    (base, world)
}

fn rollback(world: &World, to: &str) {
    let target = Target::Ref(to.into());
    verbs::rollback(world.w(), MAIN, &target).unwrap();
}

/// What undo refuses to go back over.
fn refusal(world: &World) -> Vec<String> {
    let before = (
        files(world, MAIN),
        verbs::log(world.w(), MAIN, true).unwrap().len(),
    );
    let refused = verbs::undo(world.w(), MAIN).unwrap_err();
    let after = (
        files(world, MAIN),
        verbs::log(world.w(), MAIN, true).unwrap().len(),
    );
    assert!(before == after, "it changed something");
    match refused {
        Error::LaterAsked(later) => later,
        other => panic!("{other}"),
    }
}

fn restart(world: &mut World) {
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.reopen().unwrap();
}

#[test]
fn a_checkpoint_after_a_rollback_is_not_undone_with_it() {
    let (_base, mut world) = world();
    put_in(&world, MAIN, "lost", b"1");
    checkpoint(&world, MAIN, "one");
    rollback(&world, "@~1");
    put_in(&world, MAIN, "work", b"2");
    let named = checkpoint(&world, MAIN, "precious");
    assert_eq!(refusal(&world), ["checkpoint precious"]);
    world.kill().unwrap();
    assert_eq!(refusal(&world), ["checkpoint precious"]);
    restart(&mut world);
    assert_eq!(refusal(&world), ["checkpoint precious"]);
    verbs::undo_over_later(world.w(), MAIN).unwrap();
    assert!(files(&world, MAIN).contains_key(&b"lost"[..]));
    // Nothing is lost, and the way forward is open.
    verbs::redo(world.w(), MAIN).unwrap();
    assert!(files(&world, MAIN).contains_key(&b"work"[..]));
    rollback(&world, &named.to_string());
}

#[test]
fn plain_writes_and_automatic_commits_do_not_count() {
    let (_base, mut world) = world();
    put_in(&world, MAIN, "one", b"1");
    checkpoint(&world, MAIN, "one");
    rollback(&world, "@~1");
    put_in(&world, MAIN, "two", b"2");
    world.close(CloseMode::Checkpoint).unwrap();
    world.reopen().unwrap();
    verbs::undo(world.w(), MAIN).unwrap();
    assert!(files(&world, MAIN).contains_key(&b"one"[..]));
}

#[test]
fn what_was_asked_for_before_is_not_in_the_way() {
    let (_base, world) = world();
    put_in(&world, MAIN, "one", b"1");
    checkpoint(&world, MAIN, "one");
    rollback(&world, "@~1");
    put_in(&world, MAIN, "two", b"2");
    checkpoint(&world, MAIN, "two");
    put_in(&world, MAIN, "three", b"3");
    rollback(&world, "@");
    verbs::undo(world.w(), MAIN).unwrap();
    assert!(files(&world, MAIN).contains_key(&b"three"[..]));
    assert_eq!(refusal(&world), ["checkpoint two"]);
    verbs::undo_over_later(world.w(), MAIN).unwrap();
    assert!(files(&world, MAIN).contains_key(&b"one"[..]));
    let none = verbs::undo(world.w(), MAIN).unwrap_err();
    assert!(matches!(none, Error::NothingTo(_)), "{none}");
}

#[test]
fn a_label_for_what_was_rolled_back_to_counts() {
    let (_base, world) = world();
    put_in(&world, MAIN, "one", b"1");
    rollback(&world, "@");
    let label = CheckpointRequest {
        label: Some("good".into()),
        wait: true,
        ..CheckpointRequest::default()
    };
    let done = verbs::checkpoint(world.w(), MAIN, label, &|_, _| ()).unwrap();
    assert!(!done.new_commit);
    assert_eq!(refusal(&world), ["checkpoint good"]);
}

#[test]
fn an_apply_after_a_rollback_is_not_undone_with_it() {
    let (base, mut world) = world();
    put_in(&world, MAIN, "one", b"1");
    checkpoint(&world, MAIN, "one");
    put_in(&world, MAIN, "two", b"2");
    rollback(&world, "@");
    let request = ApplyRequest {
        branch: MAIN.into(),
        ..ApplyRequest::default()
    };
    verbs::apply(world.w(), &request, &|_, _| ()).unwrap();
    assert!(base.path().join("one").exists());
    for _ in 0..2 {
        let later = refusal(&world);
        assert!(
            later.len() == 1 && later[0].starts_with("the apply of "),
            "{later:?}"
        );
        world.kill().unwrap();
    }
    // Asked for what there is nothing to do, it did nothing that could be in the way.
    verbs::undo_over_later(world.w(), MAIN).unwrap();
}
