//! A workspace whose project is gone opens from the store, and can be bound to another directory.
#![allow(clippy::unwrap_used)]

use crate::common::world::{MAIN, NAME, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::{
    ApplyRequest, BaseFound, CloseMode, Error, NodeId, Result, Settings, UpdateRequest, Wait,
    WriteFlags, errno,
};
use objstore::crash_storage::CrashStorage;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const W: Wait = Wait::Allowed;

/// A directory for projects, and one in it with `a`, `d/b` and `empty`.
fn project() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    make(&path);
    (dir, path)
}

fn make(path: &Path) {
    fs::create_dir_all(path.join("d")).unwrap();
    fs::write(path.join("a"), "a\n").unwrap();
    fs::write(path.join("d/b"), "b\n").unwrap();
    fs::write(path.join("empty"), "").unwrap();
}

fn read(world: &World, path: &str) -> Result<String> {
    let mut at = NodeId::ROOT;
    for part in path.split('/') {
        at = world.w().lookup(at, part.as_bytes(), W)?.node;
    }
    let bytes = world.w().read(at, 0, 1 << 20, W)?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn write(world: &World, path: &str, text: &str) {
    let node = world
        .w()
        .lookup(NodeId::ROOT, path.as_bytes(), W)
        .unwrap()
        .node;
    let flags = WriteFlags::default();
    world.w().write(node, 0, text.as_bytes(), flags, W).unwrap();
}

fn apply(world: &World) -> Result<Outcome> {
    let request = ApplyRequest {
        branch: MAIN.into(),
        ..ApplyRequest::default()
    };
    let done = verbs::apply(world.w(), &request, &|_, _| ())?;
    Ok(done.outcome)
}

fn update(world: &World) -> Result<Outcome> {
    let request = UpdateRequest {
        branch: MAIN.into(),
        ..UpdateRequest::default()
    };
    Ok(verbs::update(world.w(), &request, &|_, _| ())?.outcome)
}

fn found(world: &World) -> BaseFound {
    let config = world.engine.get(NAME).unwrap();
    world.engine.find_base(&config).unwrap()
}

#[test]
fn what_was_imported_is_shown_though_the_project_is_gone() {
    let (dir, path) = project();
    let mut world = World::on_disk(CrashStorage::new(), &path);
    world.w().settle().unwrap();
    write(&world, "a", "agent\n");
    world.close(CloseMode::Checkpoint).unwrap();
    fs::remove_dir_all(&path).unwrap();
    world.reopen().unwrap();
    assert_eq!(found(&world), BaseFound::Gone);
    assert_eq!(read(&world, "a").unwrap(), "agent\n");
    assert_eq!(read(&world, "d/b").unwrap(), "b\n");
    let status = verbs::status(world.w(), MAIN).unwrap();
    assert_eq!(status.base_missing.as_deref(), Some("it is gone"));
    assert_eq!(status.not_imported, Vec::<Vec<u8>>::new());
    let missing = |error: Error| matches!(error, Error::BaseMissing { .. });
    assert!(missing(apply(&world).unwrap_err()));
    assert!(missing(update(&world).unwrap_err()));
    write(&world, "empty", "full\n");
    assert!(world.close(CloseMode::Checkpoint).unwrap().commit.is_some());
    drop(dir);
}

#[test]
fn what_was_not_imported_is_named_and_comes_back_with_the_project() {
    let (dir, path) = project();
    let mut world = World::on_disk(CrashStorage::new(), &path);
    // Nothing may be imported, but all directories are read.
    let full = Settings {
        quota: Some(1),
        ..world.engine.settings()
    };
    world.close(CloseMode::NoCheckpoint).unwrap();
    world.engine.delete(NAME).unwrap();
    world.engine.set_settings(full).unwrap();
    world.engine.create(NAME, &path, None).unwrap();
    world.reopen().unwrap();
    // Has all directories read.
    read(&world, "d/b").unwrap();
    world.close(CloseMode::NoCheckpoint).unwrap();
    let free = Settings {
        quota: None,
        ..world.engine.settings()
    };
    world.engine.set_settings(free).unwrap();
    let moved = dir.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    world.reopen().unwrap();
    let status = verbs::status(world.w(), MAIN).unwrap();
    assert_eq!(status.not_imported, [b"a".to_vec(), b"d/b".to_vec()]);
    assert_eq!(read(&world, "a").unwrap_err().errno(), errno::EIO);
    assert_eq!(read(&world, "empty").unwrap(), "");
    // Nothing hangs, and nothing is lost.
    let closed = world.close(CloseMode::Checkpoint).unwrap();
    assert_eq!(closed.commit, None);
    world.engine.bind(NAME, &moved).unwrap();
    world.reopen().unwrap();
    assert_eq!(found(&world), BaseFound::There);
    assert_eq!(read(&world, "a").unwrap(), "a\n");
    world.w().settle().unwrap();
    assert_eq!(verbs::status(world.w(), MAIN).unwrap().base_missing, None);
    write(&world, "a", "agent\n");
    assert_eq!(apply(&world).unwrap(), Outcome::Merged);
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "agent\n");
}

#[test]
fn a_project_that_is_there_is_not_left_for_another() {
    let (dir, path) = project();
    let mut world = World::on_disk(CrashStorage::new(), &path);
    let other = dir.path().join("other");
    make(&other);
    let refused = |world: &World| world.engine.bind(NAME, &other).unwrap_err();
    assert!(matches!(refused(&world), Error::WorkspaceBusy(_)));
    world.w().settle().unwrap();
    world.close(CloseMode::Checkpoint).unwrap();
    assert!(matches!(refused(&world), Error::WorkspaceExists { .. }));
    world.reopen().unwrap();
}

#[test]
fn another_directory_in_its_place_is_not_taken_for_the_project() {
    let (dir, path) = project();
    let mut world = World::on_disk(CrashStorage::new(), &path);
    world.w().settle().unwrap();
    write(&world, "a", "agent\n");
    assert_eq!(apply(&world).unwrap(), Outcome::Merged);
    world.close(CloseMode::Checkpoint).unwrap();
    fs::rename(&path, dir.path().join("p.old")).unwrap();
    make(&path);
    world.reopen().unwrap();
    assert_eq!(found(&world), BaseFound::Replaced);
    assert!(matches!(
        update(&world).unwrap_err(),
        Error::BaseMissing { .. }
    ));
    assert_eq!(read(&world, "a").unwrap(), "agent\n");
    world.close(CloseMode::Checkpoint).unwrap();
    // Bound to it all the same, what was applied to the old one is not taken for removed.
    world.engine.bind(NAME, &path).unwrap();
    world.reopen().unwrap();
    update(&world).unwrap();
    assert_eq!(read(&world, "a").unwrap(), "agent\n");
    assert_eq!(apply(&world).unwrap(), Outcome::Merged);
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "agent\n");
}
