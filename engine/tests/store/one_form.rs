//! The same bytes are stored as the same content, whatever made them, in whatever order, and whatever was stored,
//! sealed, lost or branched off in between.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, copy, put, root_of};
use crate::common::rng::{Rng, bytes, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::{Caller, CommitId, Fallocate, NodeId, Seek, SetAttr, Target, Wait, WriteFlags, verbs};
use objstore::content::FileContent;
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use objstore::{Body, Commit, ObjectStore, StoreConfig};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const W: Wait = Wait::Allowed;
/// The longest that a file gets.
const LEN_MAX: u64 = 600_000;
const BLOCK: u64 = 4096;

/// A change of the file `f`.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Resize(u64),
    Allocate(u64, u64, Fallocate),
    /// A range of `f` itself, or of a file of the base.
    Copy(bool, u64, u64, u64),
}

/// What has something stored, or loses what was.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Checkpoint,
    Seal,
    Kill,
    Rollback,
}

/// Any offset, that of a block as often as not.
fn place(rng: &mut Rng, end: u64) -> u64 {
    let at = rng.below(end + 1);
    if rng.one_in(2) { at - at % BLOCK } else { at }
}

fn change(rng: &mut Rng) -> Change {
    let at = place(rng, LEN_MAX - 1);
    let len = match rng.below(3) {
        0 => 1 + rng.below(6000),
        1 => BLOCK * (1 + rng.below(20)),
        _ => 1 + rng.below(200_000),
    };
    let len = len.min(LEN_MAX - at);
    let how = match rng.below(4) {
        0 => Fallocate::PunchHole,
        1 => Fallocate::Allocate { keep_size: false },
        2 => Fallocate::ZeroRange { keep_size: true },
        _ => Fallocate::ZeroRange { keep_size: false },
    };
    match rng.below(8) {
        0 | 1 => Change::Write(at, bytes(rng.next(), len as usize)),
        2 | 3 => Change::Write(at, vec![0; len as usize]),
        4 => Change::Resize(at),
        5 => Change::Copy(rng.one_in(2), place(rng, LEN_MAX), at, len),
        _ => Change::Allocate(at, len, how),
    }
}

fn make(world: &World, branch: &str, change: &Change) {
    let w = world.w();
    let find = |name: &[u8]| w.lookup(root_of(world, branch), name, W).unwrap();
    let f: NodeId = find(b"f").node;
    match change {
        Change::Write(at, data) => {
            w.write(f, *at, data, WriteFlags::default(), W).unwrap();
        }
        Change::Resize(size) => {
            let set = SetAttr {
                size: Some(*size),
                ..SetAttr::default()
            };
            w.setattr(&Caller::default(), f, &set, W).unwrap();
        }
        Change::Allocate(at, len, how) => w.fallocate(f, *at, *len, *how, W).unwrap(),
        Change::Copy(own, from, to, len) => {
            let src = if *own { find(b"f") } else { find(b"sparse") };
            // Not onto itself.
            let len = match own {
                true if from.max(to) - from.min(to) < *len => from.max(to) - from.min(to),
                _ => *len,
            };
            w.copy_range(src.node, *from, f, *to, len, W).unwrap();
        }
    }
}

/// A base with a file that has holes, and one with zeros where the other has them.
fn base(at: &Path) -> Vec<u8> {
    let mut image = vec![0; LEN_MAX as usize];
    for (n, from) in [(1, 0), (2, 100_000), (3, 300_000), (4, 590_000)] {
        image[from..from + 9000].copy_from_slice(&bytes(n, 9000));
    }
    write_sparse(&at.join("sparse"), &image);
    std::fs::write(at.join("dense"), &image).unwrap();
    image
}

fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (n, block) in bytes.chunks(BLOCK as usize).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, n as u64 * BLOCK).unwrap();
        }
    }
}

/// What a commit has of a name in its root directory.
fn content(world: &World, commit: CommitId, name: &str) -> FileContent {
    world.w().seal().unwrap();
    let disk: Arc<dyn Storage> = Arc::new(copy(world.disk.as_ref().unwrap()));
    let store = ObjectStore::open(disk, StoreConfig::default()).unwrap();
    let root = store.get_object::<Commit>(&commit).unwrap().root;
    let mut found = None;
    objstore::read_tree(&store, root, &mut |entry| {
        if entry.name == name.as_bytes() {
            found = Some(entry.body);
        }
        Ok(())
    })
    .unwrap();
    match found {
        Some(Body::File(content)) => content,
        other => panic!("{name} is {other:?}"),
    }
}

fn all_of(world: &World, branch: &str) -> Vec<u8> {
    let f = world.w().lookup(root_of(world, branch), b"f", W).unwrap();
    world.w().read(f.node, 0, LEN_MAX as u32, W).unwrap()
}

/// One random history, by one route and by others.
fn one(seed: u64) {
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().unwrap();
    base(dir.path());
    let first = bytes(rng.next(), rng.below(LEN_MAX) as usize);
    let changes: Vec<_> = (0..1 + rng.below(8)).map(|_| change(&mut rng)).collect();
    // All at once: nothing is stored before the end.
    let plain = World::on_disk(CrashStorage::without_log(), dir.path());
    put(&plain, "f", &first);
    changes.iter().for_each(|c| make(&plain, MAIN, c));
    let wanted_bytes = all_of(&plain, MAIN);
    let told = checkpoint(&plain, MAIN, "end");
    let wanted = content(&plain, told, "f");

    let mut world = World::on_disk(CrashStorage::new(), dir.path());
    put(&world, "f", &first);
    let fork = rng.below(changes.len() as u64) as usize;
    let mut branches = vec![MAIN];
    let mut done = Vec::new();
    for (n, change) in changes.iter().enumerate() {
        if n == fork {
            verbs::create_branch(world.w(), "b", MAIN, None).unwrap();
            branches.push("b");
        }
        for branch in &branches {
            let meanwhile = meanwhile(&mut rng);
            done.push((*branch, n, meanwhile));
            store_meanwhile(&mut world, branch, &format!("at-{n}"), meanwhile);
            make(&world, branch, change);
        }
    }
    for branch in branches {
        let why = format!("seed {seed}, {branch}: {changes:?} with {done:?}");
        assert!(all_of(&world, branch) == wanted_bytes, "{why}: other bytes");
        let told = checkpoint(&world, branch, "end");
        assert_eq!(content(&world, told, "f"), wanted, "{why}");
    }
    imported(&wanted_bytes, wanted, seed);
}

fn meanwhile(rng: &mut Rng) -> Meanwhile {
    *rng.pick(&[
        Meanwhile::Nothing,
        Meanwhile::Nothing,
        Meanwhile::Checkpoint,
        Meanwhile::Seal,
        Meanwhile::Kill,
        Meanwhile::Rollback,
    ])
}

fn store_meanwhile(world: &mut World, branch: &str, label: &str, what: Meanwhile) {
    match what {
        Meanwhile::Nothing => {}
        Meanwhile::Checkpoint => {
            checkpoint(world, branch, label);
        }
        Meanwhile::Seal => world.w().seal().unwrap(),
        Meanwhile::Kill => world.kill().unwrap(),
        Meanwhile::Rollback => {
            // To what is shown, from something else: the file is taken from the commit.
            let there = checkpoint(world, branch, label);
            make(world, branch, &Change::Resize(0));
            let target = Target::Ref(there.to_string());
            verbs::rollback(world.w(), branch, &target).unwrap();
        }
    }
}

/// The same bytes as a file of a base, with its zeros as holes and as data.
fn imported(bytes: &[u8], wanted: FileContent, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    write_sparse(&dir.path().join("holes"), bytes);
    std::fs::write(dir.path().join("zeros"), bytes).unwrap();
    let world = World::on_disk(CrashStorage::without_log(), dir.path());
    let first = checkpoint(&world, MAIN, "first");
    for name in ["holes", "zeros"] {
        assert_eq!(content(&world, first, name), wanted, "seed {seed}: {name}");
    }
}

#[test]
fn the_same_bytes_are_stored_in_one_form_by_every_route() {
    let first = fresh_seed();
    let count = std::env::var("ONE_FORM_HISTORIES").ok();
    let count = count.and_then(|n| n.parse().ok()).unwrap_or(25);
    println!("AGENTVFS_SEED={first}");
    (first..first + count).for_each(one);
}

#[test]
fn written_zeros_are_a_hole_once_they_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::on_disk(CrashStorage::without_log(), dir.path());
    let mut image = bytes(1, 40_000);
    image[8000..30_000].fill(0);
    put(&world, "f", &image);
    let f = world.w().lookup(NodeId::ROOT, b"f", W).unwrap().node;
    let hole = |from| world.w().lseek(f, from, Seek::Hole, W).unwrap();
    let blocks = || world.w().getattr(f).unwrap().blocks;
    assert_eq!((hole(0), blocks()), (40_000, 80));
    checkpoint(&world, MAIN, "stored");
    assert_eq!((hole(0), hole(30_000)), (8192, 40_000));
    assert_eq!(world.w().lseek(f, 8192, Seek::Data, W).unwrap(), 28_672);
    // 20,480 bytes less.
    assert_eq!(blocks(), 40);
    assert!(world.w().read(f, 0, LEN_MAX as u32, W).unwrap() == image);
    // What is written afterwards is data until it is stored.
    let flags = WriteFlags::default();
    world.w().write(f, 12_288, &[0; 4096], flags, W).unwrap();
    assert_eq!(hole(12_288), 16_384);
}
