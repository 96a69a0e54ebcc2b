//! A disk on which nothing is free: reading, deleting, going back and gc go on, from the reserve.
#![allow(clippy::unwrap_used)]

use crate::common::rng::bytes;
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, GcRequest, NodeId, Result, SetAttr, Target, Wait, WriteFlags, errno,
    mode,
};
use objstore::crash_storage::{CrashStorage, Policy};
use objstore::io::Storage;
use std::time::Duration;
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const RESERVE: u64 = 4 << 20;
const FILES: u32 = 40;

fn create(world: &World, name: &str) -> Result<NodeId> {
    let who = Caller::default();
    let mode = mode::REG | 0o644;
    let made = world
        .w()
        .mknod(&who, NodeId::ROOT, name.as_bytes(), mode, 0, W)?;
    Ok(made.node)
}

fn write(world: &World, node: NodeId, data: &[u8]) -> Result<u32> {
    world.w().write(node, 0, data, WriteFlags::default(), W)
}

fn read(world: &World, name: &str) -> Result<Vec<u8>> {
    let found = world.w().lookup(NodeId::ROOT, name.as_bytes(), W)?;
    world.w().read(found.node, 0, 64 << 20, W)
}

fn checkpoint(world: &World, label: &str) -> Result<()> {
    let request = CheckpointRequest {
        label: Some(label.to_owned()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).map(|_| ())
}

fn content(i: u32) -> Vec<u8> {
    bytes(u64::from(i), 20_000)
}

/// Files, a checkpoint of them, changes after it, and then not a byte free but the reserve's.
fn full() -> (World, CrashStorage, TempDir) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("based"), b"of the base").unwrap();
    let disk = CrashStorage::new();
    let world = World::on_disk(disk.clone(), base.path());
    for i in 0..FILES {
        let node = create(&world, &format!("f{i}")).unwrap();
        write(&world, node, &content(i)).unwrap();
    }
    checkpoint(&world, "kept").unwrap();
    world.w().seal().unwrap();
    let node = create(&world, "later").unwrap();
    write(&world, node, b"later").unwrap();
    disk.set_reserve(RESERVE);
    let used = disk.used_bytes().unwrap();
    disk.set_capacity(Some(used + RESERVE));
    (world, disk, base)
}

fn no_space<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().errno(), errno::ENOSPC);
}

#[test]
fn reading_deleting_and_going_back_go_on_and_the_reserve_is_for_them_alone() {
    let (mut world, disk, _base) = full();
    no_space(create(&world, "new"));
    let later = world.w().lookup(NodeId::ROOT, b"later", W).unwrap().node;
    no_space(write(&world, later, b"x"));
    for i in 0..FILES / 2 {
        let name = format!("f{i}");
        world.w().unlink(NodeId::ROOT, name.as_bytes(), W).unwrap();
    }
    let set = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    world
        .w()
        .setattr(&Caller::default(), later, &set, W)
        .unwrap();
    let given = RESERVE - disk.reserve_bytes();
    assert!(given > 0, "the disk was not full");
    // What was given back is not for writers.
    for i in 0..1000 {
        no_space(create(&world, &format!("new{i}")));
    }
    no_space(write(&world, later, b"x"));
    assert_eq!(RESERVE - disk.reserve_bytes(), given);
    verbs::rollback(world.w(), MAIN, &Target::Head).unwrap();
    assert_eq!(read(&world, "f0").unwrap(), content(0));
    verbs::undo(world.w(), MAIN).unwrap();
    assert!(read(&world, "f0").is_err());
    verbs::redo(world.w(), MAIN).unwrap();
    let target = Target::Ref("kept".into());
    let paths = [b"f1".to_vec()];
    world.w().unlink(NodeId::ROOT, b"f1", W).unwrap();
    verbs::restore(world.w(), MAIN, &target, &paths).unwrap();
    assert_eq!(read(&world, "f1").unwrap(), content(1));
    assert!(checkpoint(&world, "no").is_err());
    let left = disk.image_at(usize::MAX, Policy::Keep, 0);
    world.end();
    // With room again so does everything else, after a kill too.
    let world = World::try_open(left, _base.path()).unwrap();
    let node = create(&world, "new").unwrap();
    write(&world, node, b"new").unwrap();
    checkpoint(&world, "room").unwrap();
}

#[test]
fn gc_makes_room_and_the_reserve_is_whole_again() {
    let (world, disk, _base) = full();
    let node = create(&world, "x");
    no_space(node);
    for i in 0..FILES {
        let name = format!("f{i}");
        world.w().unlink(NodeId::ROOT, name.as_bytes(), W).unwrap();
    }
    // All that was needed by the checkpoint alone is garbage once its branch's history is.
    let branch = verbs::list_branches(world.w());
    assert_eq!(branch.len(), 1);
    let all = GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    };
    world.engine.gc(all, &|_, _| ()).unwrap();
    disk.set_capacity(None);
    let since = std::time::Instant::now();
    while disk.reserve_bytes() < RESERVE {
        assert!(since.elapsed() < Duration::from_secs(60), "not made anew");
        std::thread::sleep(Duration::from_millis(5));
    }
    create(&world, "x").unwrap();
}
