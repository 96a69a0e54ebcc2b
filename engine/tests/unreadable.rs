//! Files of the base that this process may not read: commits are made without them, they are named, and
//! nothing else suffers.
//!
//! Root reads everything, so each test gives up the capabilities for that, on its own thread: threads
//! that it starts have none either.
#![allow(clippy::unwrap_used)]

mod common;

use common::rng::bytes;
use common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, Checkpointed, CloseMode, GcRequest, ImportState, NodeId, Result,
    SetAttr, Target, UpdateRequest, Wait, WriteFlags, errno, mode,
};
use objstore::crash_storage::CrashStorage;
use rustix::thread::CapabilitySet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const SECRET_BYTES: usize = 70_000;

/// From now on permission bits hold for this thread, and for those that it starts.
fn obey_permissions() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    let reads = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    sets.effective -= reads;
    sets.permitted -= reads;
    rustix::thread::set_capabilities(None, sets).unwrap();
}

fn hide(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// A base with some files, two of which cannot be read.
fn base() -> TempDir {
    obey_permissions();
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    for name in ["good", "sub/good"] {
        fs::write(at(name), name).unwrap();
    }
    for name in ["secret", "sub/sparse"] {
        fs::write(at(name), bytes(1, SECRET_BYTES)).unwrap();
    }
    let sparse = fs::File::options().write(true).open(at("sub/sparse"));
    sparse.unwrap().set_len(1 << 20).unwrap();
    ["secret", "sub/sparse"]
        .iter()
        .for_each(|name| hide(&at(name)));
    assert!(fs::read(at("secret")).is_err(), "permissions do not hold");
    base
}

fn both() -> Vec<Vec<u8>> {
    vec![b"secret".to_vec(), b"sub/sparse".to_vec()]
}

fn node(world: &World, path: &str) -> Result<NodeId> {
    let mut at = NodeId::ROOT;
    for part in path.split('/') {
        at = world.w().lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

fn read(world: &World, path: &str) -> Result<Vec<u8>> {
    world.w().read(node(world, path)?, 0, 16 << 20, W)
}

fn write(world: &World, path: &str, at: u64, data: &[u8]) -> Result<u32> {
    let flags = WriteFlags::default();
    world.w().write(node(world, path)?, at, data, flags, W)
}

fn truncate(world: &World, path: &str) {
    let set = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let who = Caller::default();
    let at = node(world, path).unwrap();
    world.w().setattr(&who, at, &set, W).unwrap();
}

fn checkpoint(world: &World, label: &str) -> Checkpointed {
    let request = CheckpointRequest {
        label: Some(label.to_owned()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).unwrap()
}

fn rollback(world: &World, label: &str) {
    let target = Target::Ref(label.into());
    verbs::rollback(world.w(), MAIN, &target).unwrap();
}

fn no_access<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().errno(), errno::EACCES);
}

#[test]
fn commits_are_made_without_it_and_nothing_else_suffers() {
    let base = base();
    let mut world = World::on_disk(CrashStorage::new(), base.path());
    let made = checkpoint(&world, "first");
    assert!(made.commit.is_some());
    assert_eq!(made.unreadable, both());
    let status = verbs::status(world.w(), MAIN).unwrap();
    assert_eq!(status.import.state, ImportState::Done);
    assert_eq!((status.unreadable, status.base_changed), (both(), vec![]));
    let attr = world.w().lookup(NodeId::ROOT, b"secret", W).unwrap();
    assert_eq!(attr.size, SECRET_BYTES as u64);
    no_access(read(&world, "secret"));
    write(&world, "good", 0, b"changed").unwrap();
    assert_eq!(checkpoint(&world, "second").unreadable, both());
    rollback(&world, "first");
    assert_eq!(read(&world, "good").unwrap(), b"good");
    assert_eq!(read(&world, "sub/good").unwrap(), b"sub/good");
    let closed = world.close(CloseMode::Checkpoint).unwrap();
    assert!(closed.commit.is_some());
    world.reopen().unwrap();
    assert_eq!(verbs::status(world.w(), MAIN).unwrap().unreadable, both());
    world.kill().unwrap();
    assert_eq!(verbs::status(world.w(), MAIN).unwrap().unreadable, both());
    no_access(read(&world, "sub/sparse"));
    let all = GcRequest {
        grace: Some(Duration::ZERO),
        ..GcRequest::default()
    };
    world.engine.gc(all, &|_, _| ()).unwrap();
    rollback(&world, "second");
    assert_eq!(read(&world, "good").unwrap(), b"changed");
}

#[test]
fn it_is_known_after_a_kill_before_anything_was_sealed() {
    let base = base();
    let mut world = World::on_disk(CrashStorage::new(), base.path());
    checkpoint(&world, "first");
    world.kill().unwrap();
    let status = verbs::status(world.w(), MAIN).unwrap();
    assert_eq!((status.unreadable, status.base_changed), (both(), vec![]));
}

#[test]
fn only_a_whole_new_content_can_be_written() {
    let base = base();
    let world = World::on_disk(CrashStorage::new(), base.path());
    checkpoint(&world, "without");
    no_access(write(&world, "secret", 10, b"part"));
    no_access(write(&world, "secret", SECRET_BYTES as u64, b"more"));
    truncate(&world, "secret");
    write(&world, "secret", 0, b"anew").unwrap();
    let made = checkpoint(&world, "with");
    assert_eq!(made.unreadable, [b"sub/sparse".to_vec()]);
    rollback(&world, "without");
    no_access(read(&world, "secret"));
    rollback(&world, "with");
    assert_eq!(read(&world, "secret").unwrap(), b"anew");
    world.w().seal().unwrap();
    assert_eq!(read(&world, "secret").unwrap(), b"anew");
}

/// Before the import knows, an append is taken, as it could be by the project's own file system. It
/// stays, though no commit has it; and so does a copy, of which the file system could not know either.
#[test]
fn what_was_written_before_that_was_known_stays() {
    let base = base();
    let mut world = World::on_disk(CrashStorage::new(), base.path());
    let who = Caller::default();
    let mode = mode::REG | 0o644;
    let copy = world.w().mknod(&who, NodeId::ROOT, b"copy", mode, 0, W);
    let copy = copy.unwrap().node;
    let secret = node(&world, "secret").unwrap();
    let len = SECRET_BYTES as u64;
    let copied = world.w().copy_range(secret, 0, copy, 0, len, W);
    let written = write(&world, "secret", len, b"more");
    if copied.is_err() || written.is_err() {
        eprintln!("the import was faster: nothing to be shown");
        return;
    }
    let named = checkpoint(&world, "one").unreadable;
    assert_eq!(named, [vec![b"copy".to_vec()], both()].concat());
    let more = |world: &World| {
        let at = node(world, "secret").unwrap();
        assert_eq!(world.w().read(at, len, 4, W).unwrap(), b"more");
        no_access(world.w().read(at, 0, 4, W));
        no_access(read(world, "copy"));
    };
    for round in 0..3 {
        write(&world, "good", 0, &bytes(round, 9000)).unwrap();
        world.w().seal().unwrap();
        more(&world);
        world.kill().unwrap();
        more(&world);
        world.close(CloseMode::Checkpoint).unwrap();
        world.reopen().unwrap();
        more(&world);
    }
}

#[test]
fn once_it_can_be_read_an_update_takes_it_in() {
    let base = base();
    let world = World::on_disk(CrashStorage::new(), base.path());
    checkpoint(&world, "without");
    for name in ["secret", "sub/sparse"] {
        let path = base.path().join(name);
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    let request = UpdateRequest {
        branch: MAIN.into(),
        ..UpdateRequest::default()
    };
    verbs::update(world.w(), &request, &|_, _| ()).unwrap();
    assert_eq!(read(&world, "secret").unwrap(), bytes(1, SECRET_BYTES));
    assert_eq!(read(&world, "sub/sparse").unwrap().len(), 1 << 20);
    let since = Instant::now();
    while !verbs::status(world.w(), MAIN)
        .unwrap()
        .unreadable
        .is_empty()
    {
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(checkpoint(&world, "with").unreadable, Vec::<Vec<u8>>::new());
}
