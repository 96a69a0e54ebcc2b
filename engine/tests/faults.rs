//! Failing disks: a sync that fails, no space, flipped bits. Nothing answered is lost, wrong bytes are
//! never shown, and who asks is told.
#![allow(clippy::unwrap_used)]

mod common;

use common::rng::{Rng, bytes};
use common::world::{MAIN, NAME, World};
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, Error, NodeId, Result, SetAttr, Target, Wait, WriteFlags, errno,
    mode,
};
use objstore::crash_storage::{CrashStorage, Fault, FaultOp, Policy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tempfile::TempDir;

const W: Wait = Wait::Allowed;
const MIB: u64 = 1 << 20;

/// A world on a base with one file, old enough to be imported at once.
fn world() -> (World, TempDir) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("based"), b"of the base").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    (world, base)
}

fn disk(world: &World) -> CrashStorage {
    world.disk.clone().unwrap()
}

fn create(world: &World, name: &str) -> Result<NodeId> {
    let who = Caller::default();
    let made = world
        .w()
        .mknod(&who, NodeId::ROOT, name.as_bytes(), mode::REG | 0o644, 0, W)?;
    Ok(made.node)
}

fn write(world: &World, node: NodeId, at: u64, data: &[u8]) -> Result<u32> {
    world.w().write(node, at, data, WriteFlags::default(), W)
}

fn node(world: &World, name: &str) -> Result<NodeId> {
    Ok(world.w().lookup(NodeId::ROOT, name.as_bytes(), W)?.node)
}

fn read(world: &World, name: &str) -> Result<Vec<u8>> {
    world.w().read(node(world, name)?, 0, 64 << 20, W)
}

fn checkpoint(world: &World, label: &str) -> Result<()> {
    let label = Some(label.to_owned());
    let request = CheckpointRequest {
        label,
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(world.w(), MAIN, request, &|_, _| ()).map(|_| ())
}

#[test]
fn after_a_failed_sync_writes_fail_reads_go_on_and_status_says_so() {
    let (mut world, _base) = world();
    let f = create(&world, "f").unwrap();
    write(&world, f, 0, b"kept").unwrap();
    world.w().fsync(f).unwrap();
    write(&world, f, 0, b"lost").unwrap();
    disk(&world).fail_nth(FaultOp::Sync, 1, Fault::Io);
    assert_eq!(world.w().fsync(f).unwrap_err().errno(), errno::EIO);
    for _ in 0..2 {
        assert_eq!(
            write(&world, f, 0, b"more").unwrap_err().errno(),
            errno::EIO
        );
        assert_eq!(create(&world, "g").unwrap_err().errno(), errno::EIO);
        assert_eq!(world.w().fsync(f).unwrap_err().errno(), errno::EIO);
    }
    assert!(checkpoint(&world, "no").is_err());
    assert!(verbs::rollback(world.w(), MAIN, &Target::Head).is_err());
    assert_eq!(read(&world, "f").unwrap(), b"lost");
    assert_eq!(read(&world, "based").unwrap(), b"of the base");
    assert!(verbs::status(world.w(), MAIN).unwrap().poisoned.is_some());
    world.kill().unwrap();
    assert!(verbs::status(world.w(), MAIN).unwrap().poisoned.is_none());
    let after = read(&world, "f").unwrap();
    assert!(after == b"kept" || after == b"lost", "{after:?}");
    let f = node(&world, "f").unwrap();
    write(&world, f, 0, b"on").unwrap();
    checkpoint(&world, "yes").unwrap();
}

/// Fills the disk to the last byte that a writer gets.
fn fill(world: &World, f: NodeId) -> u64 {
    let block = bytes(5, 256 << 10);
    let mut at = 0;
    loop {
        match write(world, f, at, &block) {
            Ok(n) => at += u64::from(n),
            Err(e) => {
                assert_eq!(e.errno(), errno::ENOSPC, "{e}");
                return at;
            }
        }
        assert!(at < 200 * MIB, "the disk never fills");
    }
}

#[test]
fn a_full_disk_refuses_data_and_loses_nothing() {
    let (mut world, _base) = world();
    let f = create(&world, "f").unwrap();
    write(&world, f, 0, b"small").unwrap();
    checkpoint(&world, "before").unwrap();
    disk(&world).set_capacity(Some(40 * MIB));
    let big = create(&world, "big").unwrap();
    let len = fill(&world, big);
    assert!(len > 4 * MIB, "only {len} bytes fit");
    assert_eq!(
        write(&world, f, 0, &bytes(5, 256 << 10))
            .unwrap_err()
            .errno(),
        errno::ENOSPC
    );
    let all = read(&world, "big").unwrap();
    assert_eq!(all.len() as u64, len);
    assert!(all.chunks(256 << 10).all(|c| c == &bytes(5, 256 << 10)[..]));
    let shorter = SetAttr {
        size: Some(1000),
        ..SetAttr::default()
    };
    world
        .w()
        .setattr(&Caller::default(), big, &shorter, W)
        .unwrap();
    verbs::rollback(world.w(), MAIN, &Target::Ref("before".into())).unwrap();
    assert!(matches!(read(&world, "big"), Err(Error::NotFound)));
    verbs::undo(world.w(), MAIN).unwrap();
    assert_eq!(read(&world, "big").unwrap(), &all[..1000]);
    world.w().unlink(NodeId::ROOT, b"f", W).unwrap();
    verbs::undo(world.w(), MAIN).unwrap_err();
    // What is on the disk is all there for the next engine, too.
    let left = disk(&world).image_at(usize::MAX, Policy::Keep, 0);
    left.set_capacity(None);
    world.end();
    let mut world = World::try_open(left, _base.path()).unwrap();
    assert_eq!(read(&world, "big").unwrap(), &all[..1000]);
    assert!(matches!(read(&world, "f"), Err(Error::NotFound)));
    verbs::rollback(world.w(), MAIN, &Target::Ref("before".into())).unwrap();
    assert_eq!(read(&world, "f").unwrap(), b"small");
    write(&world, node(&world, "f").unwrap(), 0, b"again").unwrap();
    checkpoint(&world, "after").unwrap();
    world.end();
}

#[test]
fn a_checkpoint_without_space_says_so_and_leaves_all_as_it_was() {
    let (world, _base) = world();
    let f = create(&world, "f").unwrap();
    write(&world, f, 0, b"one").unwrap();
    checkpoint(&world, "first").unwrap();
    write(&world, f, 0, &bytes(1, 3 << 20)).unwrap();
    let log = verbs::log(world.w(), MAIN, true).unwrap();
    let used: u64 = 4 * MIB;
    disk(&world).set_capacity(Some(used));
    assert!(checkpoint(&world, "second").is_err());
    let after = verbs::log(world.w(), MAIN, true).unwrap();
    assert_eq!(after, log);
    assert_eq!(read(&world, "f").unwrap(), bytes(1, 3 << 20));
    disk(&world).set_capacity(None);
    checkpoint(&world, "second").unwrap();
    assert_eq!(
        verbs::log(world.w(), MAIN, false).unwrap()[0].labels,
        ["second"]
    );
    verbs::rollback(world.w(), MAIN, &Target::Ref("first".into())).unwrap();
    assert_eq!(read(&world, "f").unwrap(), b"one");
}

/// A workspace with data in journal, packs and state file, closed by a kill.
fn victim() -> (CrashStorage, TempDir) {
    let (mut world, base) = world();
    let f = create(&world, "sealed").unwrap();
    write(&world, f, 0, &bytes(7, 300_000)).unwrap();
    checkpoint(&world, "one").unwrap();
    world.w().seal().unwrap();
    let f = create(&world, "journal").unwrap();
    write(&world, f, 0, &bytes(8, 50_000)).unwrap();
    world.w().fsync(f).unwrap();
    let left = disk(&world).image_at(usize::MAX, Policy::Keep, 0);
    world.end();
    (left, base)
}

/// What somebody sees who uses everything: right bytes or an error, never anything else.
fn look(image: CrashStorage, base: &TempDir) {
    let Ok(world) = World::try_open(image, base.path()) else {
        return;
    };
    let right: [(&str, Vec<u8>); 3] = [
        ("sealed", bytes(7, 300_000)),
        ("journal", bytes(8, 50_000)),
        ("based", b"of the base".to_vec()),
    ];
    for (name, want) in &right {
        match read(&world, name) {
            Ok(have) => assert!(have == *want, "wrong bytes of {name}"),
            Err(e) => assert_eq!(e.errno(), errno::EIO, "{name}: {e}"),
        }
    }
    if verbs::rollback(world.w(), MAIN, &Target::Ref("one".into())).is_ok()
        && let Ok(have) = read(&world, "sealed")
    {
        assert!(have == right[0].1, "wrong bytes after a rollback");
    }
}

#[test]
fn flipped_bits_are_errors_never_wrong_bytes() {
    let (disk, base) = victim();
    let paths = disk.paths();
    for part in ["journal/", "state", "packs/", "refs"] {
        assert!(
            paths.iter().any(|p| p.contains(part)),
            "no {part} in {paths:?}"
        );
    }
    let mut rng = Rng(11);
    for path in &paths {
        let len = objstore::io::Storage::read(&disk, path)
            .unwrap()
            .unwrap()
            .len() as u64;
        for i in 0..14 {
            let image = disk.image_at(usize::MAX, Policy::Keep, 0);
            // The first ones go into headers.
            let at = if i < 5 {
                rng.below(len.min(64))
            } else {
                rng.below(len)
            };
            assert!(len == 0 || image.flip_bit(path, at, rng.next() as u8));
            let seen = catch_unwind(AssertUnwindSafe(|| look(image, &base)));
            assert!(seen.is_ok(), "{path}: a flip at {at} of {len}");
        }
    }
}

#[test]
fn a_damaged_state_file_or_journal_is_named() {
    let (disk, base) = victim();
    for part in ["/state", "journal/"] {
        let wanted = |p: &String| p.contains(NAME) && p.contains(part) && !p.ends_with("mark");
        let path = disk.paths().into_iter().rfind(wanted).unwrap();
        let image = disk.image_at(usize::MAX, Policy::Keep, 0);
        for at in 0..40 {
            image.flip_bit(&path, at, 3);
        }
        let told = match World::try_open(image, base.path()) {
            Ok(_) => panic!("{path} was opened"),
            Err(e) => e.to_string(),
        };
        assert!(told.len() > 10 && !told.contains("unwrap"), "{told}");
    }
}
