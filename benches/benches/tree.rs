//! The live tree: looking up, changing, cloning, comparing; 100,000 files in directories of 100.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use engine::record::{ContentRecord, InodeRecord, Mutation};
use engine::tree::Tree;
use engine::tree::patch::{BaseDirs, inode_of};
use engine::{Nid, Time, mode};
use std::hint::black_box;

const DIRS: u64 = 1000;
const FILES: u64 = 100;
/// Numbers of the directories; their files follow.
const FIRST_DIR: u64 = 2;

fn create(parent: u64, nid: u64, mode: u32) -> Mutation {
    Mutation::Create {
        parent,
        name: name(nid),
        nid,
        ino: nid,
        mode,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: vec![],
        xattrs: vec![],
        now: Time::default(),
    }
}

fn name(nid: u64) -> Vec<u8> {
    format!("name-{nid}").into_bytes()
}

fn root() -> InodeRecord {
    InodeRecord {
        mode: mode::DIR | 0o755,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        ino: 1,
        size: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        parent: 1,
        hash: 0,
        links: None,
        xattrs: vec![],
        content: ContentRecord::Dir(vec![], None, false),
    }
}

fn big_tree() -> Tree {
    let mut tree = Tree::with_root(inode_of(&root(), &mut BaseDirs::default()).unwrap());
    for d in 0..DIRS {
        let dir = FIRST_DIR + d;
        tree.apply(&create(1, dir, mode::DIR | 0o755), None)
            .unwrap();
        for f in 0..FILES {
            let nid = FIRST_DIR + DIRS + d * FILES + f;
            tree.apply(&create(dir, nid, mode::REG | 0o644), None)
                .unwrap();
        }
    }
    tree
}

fn hot_paths(c: &mut Criterion) {
    let tree = big_tree();
    let mut group = c.benchmark_group("tree");
    let mut turn = 0;
    group.bench_function("look up a name of 100,000", |b| {
        b.iter(|| {
            turn = (turn + 7919) % (DIRS * FILES);
            let nid = FIRST_DIR + DIRS + turn;
            let dir = Nid(FIRST_DIR + turn / FILES);
            tree.lookup(dir, &name(black_box(nid))).unwrap()
        })
    });
    group.bench_function("clone", |b| b.iter(|| black_box(&tree).clone()));
    insert(&mut group, &tree);
    compare(&mut group, &tree);
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

fn insert(group: &mut Group<'_>, tree: &Tree) {
    let mut live = tree.clone();
    let mut nid = FIRST_DIR + DIRS * (FILES + 1);
    group.bench_function("create and unlink a file", |b| {
        b.iter(|| {
            nid += 1;
            let dir = FIRST_DIR + nid % DIRS;
            live.apply(&create(dir, nid, mode::REG), None).unwrap();
            let gone = Mutation::Unlink {
                parent: dir,
                name: name(nid),
                now: Time::default(),
            };
            live.apply(&gone, None).unwrap();
            live.remove(Nid(nid))
        })
    });
    group.bench_function("first change after a clone", |b| {
        b.iter(|| {
            let mut copy = tree.clone();
            copy.update(Nid(50_000), |inode| inode.size = 1).unwrap();
            copy
        })
    });
}

fn compare(group: &mut Group<'_>, tree: &Tree) {
    let mut other = tree.clone();
    for nid in (0..10).map(|i| FIRST_DIR + DIRS + i * 9999) {
        other.update(Nid(nid), |inode| inode.size = 1).unwrap();
    }
    group.bench_function("find 10 changes in 100,000", |b| {
        b.iter(|| {
            let mut changed = 0;
            Tree::diff(tree, &other, &mut |_, _, _| changed += 1);
            assert_eq!(changed, 10);
        })
    });
}

criterion_group!(benches, hot_paths);
criterion_main!(benches);
