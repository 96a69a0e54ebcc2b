//! The base under a running workspace: odd entries, and changes while it is shown and imported.
#![allow(clippy::unwrap_used)]

use crate::common::base_dir;
use crate::common::check::{adopt, compare, list};
use crate::common::model::ROOT;
use crate::common::rng::bytes;
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, Error, ImportState, Kind, NodeId, Result, SetAttr, SetTime, Target,
    Time, UpdateRequest, Wait, WriteFlags, errno,
};
use objstore::crash_storage::CrashStorage;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

const W: Wait = Wait::Allowed;

fn open(base: &Path) -> World {
    World::on_disk(CrashStorage::new(), base)
}

fn node(world: &World, path: &str) -> Result<NodeId> {
    let mut at = NodeId::ROOT;
    for part in path.split('/') {
        at = world.w().lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

/// A project of files of 20,000 bytes that `change` changes before anything of them was imported; made again
/// where the import was faster.
fn changed_before_import(
    names: &[&str],
    change: impl Fn(&Path, &World, &[NodeId]),
) -> (tempfile::TempDir, World, Vec<NodeId>) {
    for _ in 0..100 {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(dir.path().join(name), bytes(1, 20_000)).unwrap();
        }
        let world = open(dir.path());
        let nodes: Vec<NodeId> = names.iter().map(|n| node(&world, n).unwrap()).collect();
        change(dir.path(), &world, &nodes);
        if verbs::status(world.w(), MAIN).unwrap().import.files_done == 0 {
            return (dir, world, nodes);
        }
    }
    panic!("the import was faster each time");
}

fn read(world: &World, path: &str) -> Result<Vec<u8>> {
    world.w().read(node(world, path)?, 0, 16 << 20, W)
}

fn checkpoint(world: &World, label: &str) {
    let label = Some(label.to_owned());
    let request = CheckpointRequest {
        label,
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).unwrap();
}

/// The tree is that of the base, before and after everything is stored, and after a restart.
fn shows_base(base: &Path) {
    let mut world = open(base);
    let mut tree = adopt(&base_dir::tree_of(base), world.w()).unwrap();
    compare(&mut tree, world.w(), true).unwrap();
    world.w().seal().unwrap();
    compare(&mut tree, world.w(), true).unwrap();
    assert_eq!(
        verbs::status(world.w(), MAIN).unwrap().import.state,
        ImportState::Done
    );
    world.kill().unwrap();
    let mut tree = adopt(&tree, world.w()).unwrap();
    compare(&mut tree, world.w(), true).unwrap();
}

#[test]
fn everything_in_a_base_is_shown_as_it_is() {
    shows_base(base_dir::shared());
}

#[test]
fn deep_trees_long_and_odd_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut at = dir.path().to_owned();
    // Deeper than a path may be long for one system call.
    let mut here = fs::File::open(&at).unwrap();
    for i in 0..40 {
        let name = format!("{i:03}{}", "d".repeat(150));
        rustix::fs::mkdirat(&here, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty())
            .unwrap()
            .into();
        at.push(name);
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let deep = rustix::fs::openat(&here, "bottom", flags, rustix::fs::Mode::RWXU).unwrap();
    rustix::io::write(&deep, b"deep").unwrap();
    let long = b"x".repeat(255);
    for name in [&long[..], b"\xff\xfe", b"new\nline", b" ", b"-rf", b"\\"] {
        fs::write(dir.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let world = open(dir.path());
    let mut dir_node = ROOT;
    for _ in 0..40 {
        let below = list(world.w(), dir_node, 7, false).unwrap();
        dir_node = below.iter().find(|e| e.kind == Kind::Dir).unwrap().node;
    }
    let bottom = world.w().lookup(NodeId(dir_node), b"bottom", W).unwrap();
    assert_eq!(world.w().read(bottom.node, 0, 100, W).unwrap(), b"deep");
    let top = list(world.w(), ROOT, 3, true).unwrap();
    assert_eq!(top.len(), 7);
    for e in top.iter().filter(|e| e.kind == Kind::File) {
        assert_eq!(world.w().read(NodeId(e.node), 0, 1000, W).unwrap(), e.name);
    }
    world.w().seal().unwrap();
    assert_eq!(world.w().read(bottom.node, 0, 100, W).unwrap(), b"deep");
}

/// Files and bytes that are to be imported, and that are.
fn figures(world: &World) -> [(u64, u64); 2] {
    let import = verbs::status(world.w(), MAIN).unwrap().import;
    [
        (import.files_done, import.files_total),
        (import.bytes_done, import.bytes_total),
    ]
}

#[track_caller]
fn all_imported(world: &World) {
    for (done, total) in figures(world) {
        assert_eq!(done, total);
    }
}

#[test]
fn figures_of_the_import_never_say_more_than_there_is() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..35 {
        fs::write(dir.path().join(format!("f{i}")), format!("content {i}")).unwrap();
    }
    fs::write(dir.path().join("empty"), "").unwrap();
    let mut world = open(dir.path());
    read(&world, "f1").unwrap();
    let label = |label: &str| CheckpointRequest {
        label: Some(label.to_owned()),
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, label("all"), &|_, _| ()).unwrap();
    for i in 1..35 {
        let name = format!("f{i}");
        world.w().unlink(NodeId::ROOT, name.as_bytes(), W).unwrap();
    }
    // What the live tree has let go of is in the checkpoint, and still to be imported where it was not.
    world.kill().unwrap();
    checkpoint(&world, "rest");
    all_imported(&world);
    // An update looks at all files of the base; none of them waits for the import.
    fs::write(dir.path().join("f40"), "more").unwrap();
    let update = UpdateRequest {
        branch: MAIN.to_owned(),
        ..Default::default()
    };
    verbs::update(world.w(), &update, &|_, _| ()).unwrap();
    all_imported(&world);
    world.close(engine::CloseMode::Checkpoint).unwrap();
    world.reopen().unwrap();
    verbs::update(world.w(), &update, &|_, _| ()).unwrap();
    all_imported(&world);
}

#[test]
fn twenty_thousand_files() {
    let dir = tempfile::tempdir().unwrap();
    for d in 0..20 {
        let sub = dir.path().join(format!("d{d}"));
        fs::create_dir(&sub).unwrap();
        for f in 0..1000 {
            fs::write(sub.join(format!("f{f}")), format!("{d} {f}")).unwrap();
        }
    }
    let since = Instant::now();
    let mut world = open(dir.path());
    assert_eq!(read(&world, "d7/f77").unwrap(), b"7 77");
    let first = since.elapsed();
    assert_eq!(
        list(world.w(), node(&world, "d3").unwrap().0, 100, false)
            .unwrap()
            .len(),
        1000
    );
    world
        .w()
        .unlink(node(&world, "d1").unwrap(), b"f1", W)
        .unwrap();
    verbs::rollback(world.w(), MAIN, &Target::Head).unwrap();
    world.w().settle().unwrap();
    assert_eq!(verbs::status(world.w(), MAIN).unwrap().entries, 20_021);
    assert!(
        first < since.elapsed() / 2,
        "the first file waited for the others: {first:?}"
    );
    world.kill().unwrap();
    assert_eq!(read(&world, "d1/f1").unwrap(), b"1 1");
    world.w().seal().unwrap();
    world.kill().unwrap();
    assert_eq!(read(&world, "d19/f999").unwrap(), b"19 999");
}

#[test]
fn a_changed_base_file_is_taken_anew_as_a_whole() {
    let all = ["written", "replaced", "cut", "gone", "same"];
    let (_dir, world, nodes) = changed_before_import(&all, |dir, _, _| {
        fs::write(dir.join("written"), bytes(2, 20_000)).unwrap();
        fs::write(dir.join("new"), bytes(3, 30_000)).unwrap();
        fs::rename(dir.join("new"), dir.join("replaced")).unwrap();
        let cut = fs::OpenOptions::new().write(true).open(dir.join("cut"));
        cut.unwrap().set_len(5).unwrap();
        fs::remove_file(dir.join("gone")).unwrap();
    });
    let have = |n: usize| world.w().read(nodes[n], 0, 1 << 20, W);
    // The length that was shown bounds the first read; whatever it gives is of the new version alone.
    for (n, new) in [
        (0, bytes(2, 20_000)),
        (1, bytes(3, 30_000)),
        (2, bytes(1, 5)),
    ] {
        let first = have(n).unwrap();
        assert!(
            new.starts_with(&first) && !first.is_empty(),
            "{} mixes versions",
            all[n]
        );
        assert_eq!(have(n).unwrap(), new, "{}", all[n]);
        assert_eq!(world.w().getattr(nodes[n]).unwrap().size, new.len() as u64);
    }
    assert_eq!(have(3).unwrap_err().errno(), errno::EACCES);
    assert_eq!(have(4).unwrap(), bytes(1, 20_000));
    world.w().settle().unwrap();
    let status = verbs::status(world.w(), MAIN).unwrap();
    let changed: Vec<&[u8]> = status.base_changed.iter().map(|p| &p[..]).collect();
    assert_eq!(changed, [&b"cut"[..], b"gone", b"replaced", b"written"]);
    checkpoint(&world, "one");
    assert_eq!(have(0).unwrap(), bytes(2, 20_000));
}

#[test]
fn what_was_done_to_a_file_stays_done_when_its_base_changes() {
    let time = Time { sec: 77, nsec: 7 };
    let size = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let date = SetAttr {
        mtime: Some(SetTime::At(time)),
        ..SetAttr::default()
    };
    let all = ["short", "long", "dated", "written"];
    let (_dir, world, nodes) = changed_before_import(&all, |dir, world, nodes| {
        let (w, who) = (world.w(), Caller::default());
        for (node, set) in nodes.iter().zip([size(10), size(50_000), date]) {
            w.setattr(&who, *node, &set, W).unwrap();
        }
        let flags = WriteFlags::default();
        w.write(nodes[3], 100, b"mine", flags, W).unwrap();
        for name in all {
            fs::write(dir.join(name), bytes(2, 30_000)).unwrap();
        }
    });
    let have = |n: usize| {
        // The first read may still be bounded by the length before.
        let _ = world.w().read(nodes[n], 0, 1 << 20, W);
        world.w().read(nodes[n], 0, 1 << 20, W).unwrap()
    };
    assert_eq!(have(0), bytes(2, 10));
    let mut long = bytes(2, 30_000);
    long.resize(50_000, 0);
    assert_eq!(have(1), long);
    assert_eq!(have(2), bytes(2, 30_000));
    assert_eq!(world.w().getattr(nodes[2]).unwrap().mtime, time);
    let mut written = bytes(2, 30_000);
    written[100..104].copy_from_slice(b"mine");
    assert_eq!(have(3), written);
}

#[test]
fn what_was_imported_no_longer_needs_the_base() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), bytes(1, 300_000)).unwrap();
    fs::write(dir.path().join("touched"), b"as it was").unwrap();
    let mut world = open(dir.path());
    checkpoint(&world, "start");
    fs::remove_dir_all(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("touched"), b"otherwise").unwrap();
    assert_eq!(read(&world, "d/f").unwrap(), bytes(1, 300_000));
    assert_eq!(read(&world, "touched").unwrap(), b"as it was");
    // The daemon dies before it ever folded its journal, and its table of imports is gone too.
    world.kill().unwrap();
    assert_eq!(read(&world, "touched").unwrap(), b"as it was");
    assert_eq!(read(&world, "d/f").unwrap(), bytes(1, 300_000));
    world.w().settle().unwrap();
    assert_eq!(read(&world, "touched").unwrap(), b"as it was");
    world.w().seal().unwrap();
    world.kill().unwrap();
    assert_eq!(read(&world, "d/f").unwrap(), bytes(1, 300_000));
    assert_eq!(read(&world, "touched").unwrap(), b"as it was");
}

#[test]
fn a_file_that_changes_while_it_is_imported_is_never_a_mixture() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("busy");
    fs::write(&path, vec![1; 300_000]).unwrap();
    let world = open(dir.path());
    let busy = node(&world, "busy").unwrap();
    let until = Instant::now() + Duration::from_millis(1500);
    let mut version = 1u8;
    while Instant::now() < until {
        version = version % 250 + 1;
        fs::write(&path, vec![version; 300_000]).unwrap();
        match world.w().read(busy, 0, 1 << 20, W) {
            Ok(have) => assert!(have.iter().all(|b| *b == have[0]), "a mixture"),
            Err(e) => assert_eq!(e.errno(), errno::EIO, "{e}"),
        }
    }
    checkpoint(&world, "one");
    let have = world.w().read(busy, 0, 1 << 20, W).unwrap();
    assert!(have.iter().all(|b| *b == have[0]), "a mixture");
}

/// Stops a thread when the test ends, whichever way.
struct Stop(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_is_rewritten_all_the_time_can_be_read_and_is_no_mixture() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, vec![0; 200_000]).unwrap();
    let world = open(dir.path());
    let log = node(&world, "log").unwrap();
    let stop = Stop(Default::default());
    let ended = stop.0.clone();
    let writer = std::thread::spawn(move || {
        let mut version = 0u8;
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            version = version.wrapping_add(1);
            let next = path.with_extension("next");
            fs::write(&next, vec![version; 200_000]).unwrap();
            // In place, so that the inode stays.
            fs::write(&path, fs::read(&next).unwrap()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
    });
    for _ in 0..3 {
        let have = world.w().read(log, 0, 1 << 20, W).unwrap();
        assert!(have.iter().all(|b| *b == have[0]), "a mixture");
    }
    world.w().settle().unwrap();
    drop(stop);
    writer.join().unwrap();
    checkpoint(&world, "one");
    let have = world.w().read(log, 0, 1 << 20, W).unwrap();
    assert!(have.iter().all(|b| *b == have[0]), "a mixture");
}

#[test]
fn directories_that_vanish_or_become_links_show_nothing_from_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    for d in ["a", "b"] {
        fs::create_dir(dir.path().join(d)).unwrap();
        fs::write(dir.path().join(d).join("secret"), b"shown").unwrap();
    }
    let world = open(dir.path());
    let a = node(&world, "a/secret").unwrap();
    for d in ["a", "b"] {
        fs::remove_dir_all(dir.path().join(d)).unwrap();
        symlink(outside.path(), dir.path().join(d)).unwrap();
    }
    for have in [world.w().read(a, 0, 100, W), read(&world, "b/secret")] {
        match have {
            Ok(bytes) => assert_eq!(bytes, b"shown"),
            Err(e) => assert!(
                [errno::EACCES, errno::ENOENT, errno::EIO].contains(&e.errno()),
                "{e}"
            ),
        }
    }
    world.w().settle().unwrap();
    checkpoint(&world, "one");
}

#[test]
fn fifos_are_never_opened_and_special_files_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    fs::write(dir.path().join("becomes"), b"a file").unwrap();
    let world = open(dir.path());
    let becomes = node(&world, "becomes").unwrap();
    fs::remove_file(dir.path().join("becomes")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("becomes"))
        .status();
    assert!(made.unwrap().success());
    // Opening a fifo for reading would wait for ever.
    let gone = world.w().read(becomes, 0, 10, W);
    assert!(matches!(gone, Err(Error::Access)), "{gone:?}");
    let kind = |name: &[u8]| world.w().lookup(NodeId::ROOT, name, W).unwrap().kind;
    assert_eq!((kind(b"pipe"), kind(b"socket")), (Kind::Fifo, Kind::Socket));
    world.w().settle().unwrap();
    checkpoint(&world, "one");
    assert_eq!((kind(b"pipe"), kind(b"socket")), (Kind::Fifo, Kind::Socket));
}
