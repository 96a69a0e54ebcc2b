//! "N files changed" is the same number everywhere: the rows of a diff that are not of directories.
#![allow(clippy::unwrap_used)]

use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, DiffSide, MergeRequest, NodeId, RenameFlags, SetAttr, Target, Wait,
    WriteFlags,
};
use objstore::crash_storage::CrashStorage;
use std::fs;
use std::os::unix::fs::MetadataExt;
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const FILES: u64 = 120;

fn me() -> Caller {
    let meta = fs::metadata("/proc/self").unwrap();
    Caller {
        uid: meta.uid(),
        gid: meta.gid(),
        pid: 1,
        umask: 0o022,
    }
}

/// `d/e/0…`, `kept` and `moved`, imported and checkpointed.
fn open() -> (World, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("d/e")).unwrap();
    for i in 0..FILES {
        fs::write(dir.path().join(format!("d/e/{i}")), format!("{i}\n")).unwrap();
    }
    fs::write(dir.path().join("kept"), "kept\n").unwrap();
    fs::write(dir.path().join("moved"), "moved\n").unwrap();
    let world = World::on_disk(CrashStorage::without_log(), dir.path());
    world.w().settle().unwrap();
    (world, dir)
}

fn node(world: &World, path: &str) -> NodeId {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(NodeId::ROOT, |at, part| {
        world.w().lookup(at, part.as_bytes(), W).unwrap().node
    })
}

fn write(world: &World, path: &str, text: &str) {
    world
        .w()
        .write(
            node(world, path),
            0,
            text.as_bytes(),
            WriteFlags::default(),
            W,
        )
        .unwrap();
}

fn rename(world: &World, from: &str, to: &str) {
    let flags = RenameFlags::default();
    let (root, w) = (NodeId::ROOT, world.w());
    w.rename(root, from.as_bytes(), root, to.as_bytes(), flags, W)
        .unwrap();
}

fn checkpoint(world: &World, label: &str) -> u64 {
    let request = CheckpointRequest {
        label: Some(label.to_owned()),
        wait: true,
        ..CheckpointRequest::default()
    };
    let done = verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).unwrap();
    done.files_changed
}

/// Rows of a diff between two commits that are not of directories.
fn rows(world: &World, from: &str, to: &str) -> u64 {
    let side = |text: &str| DiffSide::Ref(text.to_owned());
    let w = world.w();
    let changes = verbs::diff(w, MAIN, &side(from), &side(to), &[]).unwrap();
    changes.len() as u64
}

/// Rolls back to a label, and looks at what that and taking it back say.
fn goes_back(world: &World, label: &str, files: u64) {
    let w = world.w();
    let back = verbs::rollback(w, MAIN, &Target::Ref(label.to_owned())).unwrap();
    assert_eq!(back.files_changed, files, "rollback");
    w.settle().unwrap();
    let log = verbs::log(w, MAIN, true).unwrap();
    let newest = |entry: &&engine::LogEntry| entry.automatic;
    // What equals a checkpoint is that one.
    let replaced = log.iter().find(newest).and_then(|entry| entry.commit);
    let replaced = replaced.map_or_else(|| "after".to_owned(), |id| id.to_string());
    assert_eq!(rows(world, &replaced, label), files, "rows");
    assert_eq!(verbs::undo(w, MAIN).unwrap().files_changed, files, "undo");
    assert_eq!(verbs::redo(w, MAIN).unwrap().files_changed, files, "redo");
}

#[test]
fn files_that_come_back_with_their_directory_are_counted_each() {
    let (world, _dir) = open();
    checkpoint(&world, "all");
    verbs::remove_path(world.w(), MAIN, b"d", true).unwrap();
    goes_back(&world, "all", FILES);
}

#[test]
fn a_rename_is_one_and_a_directory_none() {
    let (world, _dir) = open();
    checkpoint(&world, "all");
    rename(&world, "moved", "elsewhere");
    let mode = SetAttr {
        perm: Some(0o700),
        ..SetAttr::default()
    };
    world
        .w()
        .setattr(&me(), node(&world, "d"), &mode, W)
        .unwrap();
    verbs::make_dir(world.w(), MAIN, &me(), b"empty", false).unwrap();
    assert_eq!(checkpoint(&world, "after"), 1);
    let back = verbs::rollback(world.w(), MAIN, &Target::Ref("all".into())).unwrap();
    assert_eq!(back.files_changed, 1);
}

#[test]
fn files_below_a_renamed_directory_are_renamed_each() {
    let (world, _dir) = open();
    checkpoint(&world, "all");
    rename(&world, "d", "other");
    write(&world, "kept", "KEPT");
    assert_eq!(checkpoint(&world, "after"), FILES + 1);
    assert_eq!(rows(&world, "all", "after"), FILES + 1);
    goes_back(&world, "all", FILES + 1);
}

#[test]
fn names_of_one_inode_count_each() {
    let (world, _dir) = open();
    world
        .w()
        .link(node(&world, "kept"), NodeId::ROOT, b"twin", W)
        .unwrap();
    checkpoint(&world, "all");
    write(&world, "twin", "twin!");
    checkpoint(&world, "after");
    assert_eq!(rows(&world, "all", "after"), 2);
    goes_back(&world, "all", 2);
}

#[test]
fn restore_and_merge_count_as_a_diff_does() {
    let (world, _dir) = open();
    checkpoint(&world, "all");
    verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
    verbs::remove_path(world.w(), "b", b"d", true).unwrap();
    let merge = MergeRequest {
        from: "b".into(),
        into: MAIN.into(),
        ..MergeRequest::default()
    };
    let done = verbs::merge_branch(world.w(), &merge, &|_, _| ()).unwrap();
    assert_eq!(done.files_changed, FILES);
    let target = Target::Ref("all".into());
    let back = verbs::restore(world.w(), MAIN, &target, &[b"d".to_vec()]).unwrap();
    assert_eq!(back.files_changed, FILES);
}
