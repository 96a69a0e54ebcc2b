//! An id that was told is that of the commit for ever, also where the process dies or the power fails at once and
//! nothing of the commit is left but the changes, which are then stored together.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, copy, put};
use crate::common::rng::bytes;
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{Caller, Fallocate, NodeId, SetAttr, Wait, WriteFlags};
use objstore::crash_storage::{CrashStorage, Policy};

const W: Wait = Wait::Allowed;

fn resize(world: &World, node: NodeId, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    world
        .w()
        .setattr(&Caller::default(), node, &set, W)
        .unwrap();
}

fn write(world: &World, node: NodeId, at: u64, len: usize) {
    let flags = WriteFlags::default();
    world
        .w()
        .write(node, at, &bytes(at, len), flags, W)
        .unwrap();
}

fn allocate(world: &World, node: NodeId, at: u64, len: u64, how: Fallocate) {
    world.w().fallocate(node, at, len, how, W).unwrap();
}

const ZEROS: Fallocate = Fallocate::ZeroRange { keep_size: false };

/// Changes of a file of 20,000 bytes, of which some are stored before the others come.
const CHANGES: [fn(&World, NodeId); 3] = [
    |world, node| {
        allocate(world, node, 16_596, 6_479, ZEROS);
        checkpoint(world, MAIN, "stored");
        resize(world, node, 7_521);
        allocate(world, node, 10_499, 10_838, ZEROS);
    },
    |world, node| {
        write(world, node, 52_947, 9_403);
        checkpoint(world, MAIN, "stored");
        allocate(world, node, 20_339, 11_510, Fallocate::PunchHole);
        allocate(world, node, 49_524, 5_126, Fallocate::PunchHole);
        allocate(world, node, 28_090, 4_547, ZEROS);
    },
    |world, node| {
        allocate(world, node, 17_070, 17_359, Fallocate::PunchHole);
        allocate(world, node, 22_378, 4_279, ZEROS);
        checkpoint(world, MAIN, "stored");
        allocate(world, node, 10_857, 6_787, Fallocate::PunchHole);
        resize(world, node, 18_917);
    },
];
/// Times that each is tried: what waits in memory may have been packed before the process dies.
const TRIES: usize = 10;

/// A told id is that of the commit on what an accident leaves of a disk.
fn stays(disk: fn() -> CrashStorage, left: fn(&CrashStorage) -> CrashStorage) {
    let all = CHANGES.into_iter().enumerate().cycle();
    for (n, change) in all.take(TRIES * CHANGES.len()) {
        let base = tempfile::tempdir().unwrap();
        let disk = disk();
        let world = World::on_disk(disk.clone(), base.path());
        put(&world, "f", &bytes(1, 20_000));
        checkpoint(&world, MAIN, "first");
        let node = world.w().lookup(NodeId::ROOT, b"f", W).unwrap().node;
        change(&world, node);
        let told = checkpoint(&world, MAIN, "last");
        let left = left(&disk);
        drop(world);
        let world = World::on_disk(left, base.path());
        // What was replayed is stored before it.
        checkpoint(&world, MAIN, "after");
        let log = verbs::log(world.w(), MAIN, false).unwrap();
        assert_eq!(log[1].commit, Some(told), "changes {n}");
    }
}

#[test]
fn a_told_id_stays_where_the_process_dies_at_once() {
    stays(CrashStorage::without_log, copy);
}

#[test]
fn a_told_id_stays_where_the_power_fails_at_once() {
    stays(CrashStorage::new, |disk| {
        disk.image_at(usize::MAX, Policy::Drop, 0)
    });
}
