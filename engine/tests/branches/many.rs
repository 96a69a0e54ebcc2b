//! Much of one thing: branches in the life of a workspace, directories in one another, pieces of a file.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::copy;
use crate::common::watched::{Act, world as watched};
use crate::common::world::World;
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const W: Wait = Wait::Allowed;

fn world(base: &tempfile::TempDir) -> World {
    let world = World::on_disk(CrashStorage::without_log(), base.path());
    world.w().settle().unwrap();
    world
}

fn find(w: &Workspace, path: &str) -> Result<NodeId> {
    let mut at = NodeId::ROOT;
    for part in path.split('/') {
        at = w.lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

fn write_at(w: &Workspace, path: &str, offset: u64, data: Vec<u8>) -> Result<u64> {
    let part = WriteFile {
        path: path.into(),
        offset: Some(offset),
        data,
        last: false,
        unsynced: false,
        perm: 0o644,
        parents: true,
    };
    verbs::write_file(w, MAIN, &Caller::default(), &part)
}

#[test]
fn a_branch_for_each_task_is_never_one_too_many() {
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    write_at(w, "file", 0, b"text".to_vec()).unwrap();
    // One of the deleted ones stays in somebody's hand, by its root; of one the directory of agentvfs.
    verbs::create_branch(w, "held", MAIN, None).unwrap();
    let held = find(w, ".agentvfs/branches/held").unwrap();
    verbs::delete_branch(w, "held", &|_, _| ()).unwrap();
    verbs::create_branch(w, "inside", MAIN, None).unwrap();
    let root = find(w, ".agentvfs/branches/inside").unwrap();
    let inside = w.lookup(root, b".agentvfs", W).unwrap().node;
    verbs::delete_branch(w, "inside", &|_, _| ()).unwrap();
    w.forget(root, 1);
    let mut slots = BTreeSet::new();
    for n in 0..1_100 {
        let name = format!("task{n}");
        verbs::create_branch(w, &name, MAIN, None).unwrap();
        let root = find(w, &format!(".agentvfs/branches/{name}")).unwrap();
        let file = w.lookup(root, b"file", W).unwrap().node;
        assert_eq!(w.read(file, 0, 10, W).unwrap(), b"text");
        assert!(root.slot() != held.slot() && root.slot() != inside.slot());
        slots.insert(root.slot());
        verbs::delete_branch(w, &name, &|_, _| ()).unwrap();
        w.forget(file, 1);
        w.forget(root, 1);
    }
    assert!(
        slots.len() < 10,
        "{} numbers for one branch at a time",
        slots.len()
    );
    // What is let go of is used again.
    w.forget(held, 1);
    w.forget(inside, 1);
    let mut used = BTreeSet::new();
    for n in 0..5 {
        let name = format!("more{n}");
        verbs::create_branch(w, &name, MAIN, None).unwrap();
        used.insert(
            find(w, &format!(".agentvfs/branches/{name}"))
                .unwrap()
                .slot(),
        );
    }
    assert!(used.contains(&held.slot()) && used.contains(&inside.slot()));
}

#[test]
fn a_snapshot_of_a_deleted_branch_keeps_its_numbers_while_it_is_known() {
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    let label = |branch: &str, label: &str| {
        let req = CheckpointRequest {
            label: Some(label.into()),
            wait: true,
            ..Default::default()
        };
        verbs::checkpoint(w, branch, req, &|_, _| ()).unwrap();
    };
    verbs::create_branch(w, "gone", MAIN, None).unwrap();
    label("gone", "a");
    label(MAIN, "b");
    let old = find(w, ".agentvfs/branches/gone/.agentvfs/snapshots/a").unwrap();
    verbs::delete_branch(w, "gone", &|_, _| ()).unwrap();
    let other = find(w, ".agentvfs/snapshots/b").unwrap();
    assert_ne!(old.slot(), other.slot());
    w.forget(old, 1);
}

#[test]
fn directories_in_one_another_are_compared_at_any_depth() {
    const DEPTH: usize = 3_000;
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    let who = Caller::default();
    let mut at = NodeId::ROOT;
    for n in 0..DEPTH {
        at = w.mkdir(&who, at, b"d", 0o755, W).unwrap().node;
        if n % 1000 == 0 {
            w.mknod(&who, at, b"file", mode::REG | 0o644, 0, W).unwrap();
        }
    }
    let changes = |from: &DiffSide, to: &DiffSide| verbs::diff(w, MAIN, from, to, &[]).unwrap();
    let made = changes(&DiffSide::Base, &DiffSide::Live);
    assert_eq!(made.iter().map(|c| c.status).collect::<String>(), "AAAA");
    assert_eq!(made[0].path.len(), DEPTH * 2 - 1);
    assert_eq!(changes(&DiffSide::Live, &DiffSide::Base).len(), 4);
    w.rename(
        NodeId::ROOT,
        b"d",
        NodeId::ROOT,
        b"e",
        RenameFlags::default(),
        W,
    )
    .unwrap();
    let moved = changes(&DiffSide::Base, &DiffSide::Live);
    assert!(moved.iter().all(|c| c.path.starts_with(b"e/")));
}

/// A stored file of `len` bytes with 400 pieces written over it since.
fn pieces(w: &Workspace, name: &str, len: u64) -> NodeId {
    let mut state = len;
    let mut noise = |n: u64| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..n).map(|_| next()).collect()
    };
    for at in (0..len).step_by(1 << 20) {
        write_at(w, name, at, noise(1 << 20)).unwrap();
    }
    let req = CheckpointRequest {
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(w, MAIN, req, &|_, _| ()).unwrap();
    for n in 0..400 {
        write_at(w, name, n * (len / 400), noise(100)).unwrap();
    }
    find(w, name).unwrap()
}

#[test]
fn a_hole_is_looked_for_without_reading_the_manifest_for_each_piece() {
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    let time = |len: u64| {
        let node = pieces(w, &format!("file{len}"), len);
        // Not where requests are read.
        let refused = w.lseek(node, 0, Seek::Hole, Wait::Never);
        assert!(matches!(refused, Err(Error::WouldBlock)));
        let once = || {
            let since = Instant::now();
            assert_eq!(w.lseek(node, 0, Seek::Hole, W).unwrap(), len);
            since.elapsed()
        };
        (0..5).map(|_| once()).min().unwrap()
    };
    // 16 times as many chunks under as many pieces.
    let (small, large) = (time(2 << 20), time(32 << 20));
    assert!(
        large < small * 8 + Duration::from_millis(1),
        "{small:?}, {large:?}"
    );
    // What was never more than a chunk is answered at once.
    write_at(w, "short", 0, b"short".to_vec()).unwrap();
    checkpointed(w);
    let short = find(w, "short").unwrap();
    assert_eq!(w.lseek(short, 0, Seek::Hole, Wait::Never).unwrap(), 5);
}

#[test]
fn checkpoints_that_a_crash_left_unstored_share_their_syncs() {
    const COUNT: usize = 300;
    let base = tempfile::tempdir().unwrap();
    let disk = CrashStorage::without_log();
    let before = World::on_disk(disk.clone(), base.path());
    before.w().settle().unwrap();
    for n in 0..COUNT {
        write_at(before.w(), "file", 0, format!("text {n}").into_bytes()).unwrap();
        let req = CheckpointRequest {
            message: format!("checkpoint {n}"),
            ..Default::default()
        };
        verbs::checkpoint(before.w(), MAIN, req, &|_, _| ()).unwrap();
    }
    let left = copy(&disk);
    drop(before);
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = syncs.clone();
    let counting = move |act, path: &str| {
        let counts = act == Act::Sync && !path.contains("journal");
        count.fetch_add(usize::from(counts), Ordering::Relaxed);
        Ok(())
    };
    let mut after = watched(left, Arc::new(counting), base.path());
    after.close(CloseMode::Checkpoint).unwrap();
    let syncs = syncs.load(Ordering::Relaxed);
    assert!(syncs < COUNT / 4, "{syncs} syncs for {COUNT} checkpoints");
}

fn checkpointed(w: &Workspace) {
    let req = CheckpointRequest {
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(w, MAIN, req, &|_, _| ()).unwrap();
}

#[test]
fn a_part_of_a_file_is_written_as_a_whole_or_not_at_all() {
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    const LONGEST: u64 = (16 << 40) - 4096;
    write_at(w, "file", 0, b"text".to_vec()).unwrap();
    let error = write_at(w, "file", LONGEST - 2, b"long".to_vec()).unwrap_err();
    assert!(matches!(error, Error::FileTooLarge));
    let node = find(w, "file").unwrap();
    assert_eq!(w.getattr(node).unwrap().size, 4);
    assert_eq!(
        write_at(w, "file", LONGEST - 4, b"long".to_vec()).unwrap(),
        LONGEST
    );
    // As write(2): what there is room for.
    let flags = WriteFlags::default();
    assert_eq!(w.write(node, LONGEST - 2, b"long", flags, W).unwrap(), 2);
}

#[test]
fn directories_of_agentvfs_have_no_attributes_of_anybody() {
    let base = tempfile::tempdir().unwrap();
    let world = world(&base);
    let w = world.w();
    for path in [".agentvfs", ".agentvfs/branches", ".agentvfs/snapshots"] {
        let node = find(w, path).unwrap();
        for uid in [0, 1000] {
            let who = Caller {
                uid,
                ..Caller::default()
            };
            assert_eq!(w.listxattr_as(&who, node).unwrap(), b"", "{path} {uid}");
            assert!(matches!(w.getxattr(node, b"user.x"), Err(Error::NoData)));
        }
    }
}

#[test]
fn there_are_1023_branches_beside_main_at_a_time_and_not_one_more() {
    const BRANCHES_MAX: usize = 1023;
    let base = tempfile::tempdir().unwrap();
    let world = World::on_files(base.path());
    let w = world.w();
    w.settle().unwrap();
    write_at(w, "file", 0, b"text".to_vec()).unwrap();
    let name = |n: usize| format!("task{n}");
    let req = CheckpointRequest::default();
    verbs::checkpoint(w, MAIN, req, &|_, _| ()).unwrap();
    for n in 0..BRANCHES_MAX {
        verbs::create_branch(w, &name(n), MAIN, None).unwrap();
    }
    let more = verbs::create_branch(w, "more", MAIN, None);
    assert!(matches!(more, Err(Error::TooManyBranches)), "{more:?}");
    // What the kernel knows keeps its number: one of them is not looked at.
    for n in (0..BRANCHES_MAX).filter(|n| *n != 500) {
        let file = find(w, &format!(".agentvfs/branches/{}/file", name(n))).unwrap();
        assert_eq!(w.read(file, 0, 10, W).unwrap(), b"text");
    }
    verbs::delete_branch(w, &name(500), &|_, _| ()).unwrap();
    verbs::create_branch(w, "more", MAIN, None).unwrap();
}
