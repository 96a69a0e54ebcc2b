//! A project with a workspace over it, changes of all kinds in the branch, and what the project has after an apply.
#![allow(clippy::unwrap_used)]

use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::{
    ApplyReport, ApplyRequest, Caller, Cancel, Fault, NodeId, Result, SetAttr, Wait, WriteFlags,
};
use objstore::crash_storage::CrashStorage;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

pub const W: Wait = Wait::Allowed;
pub const WHO: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 1,
    umask: 0o022,
};

pub fn me() -> Caller {
    let meta = fs::metadata("/proc/self").unwrap();
    Caller {
        uid: meta.uid(),
        gid: meta.gid(),
        ..WHO
    }
}

/// Everything of a directory that an apply may change, by path.
pub fn snapshot(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut work = vec![dir.to_owned()];
    while let Some(at) = work.pop() {
        let meta = fs::symlink_metadata(&at).unwrap();
        let content = if meta.is_dir() {
            for entry in fs::read_dir(&at).unwrap() {
                work.push(entry.unwrap().path());
            }
            "a directory".to_owned()
        } else if meta.is_symlink() {
            format!("to {:?}", fs::read_link(&at).unwrap())
        } else {
            format!("{:?}", fs::read(&at).unwrap_or_default())
        };
        let time = (meta.mtime(), meta.mtime_nsec());
        let facts = format!("{:o} {} {time:?} {content}", meta.mode(), meta.nlink());
        let name = at.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        found.insert(name, facts);
    }
    found
}

pub fn base() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    put("b", "b\n");
    put("d/x", "x\n");
    put("d/y", "y\n");
    put("old/deep/z", "z\n");
    fs::hard_link(dir.path().join("d/y"), dir.path().join("link")).unwrap();
    symlink("a", dir.path().join("sym")).unwrap();
    dir
}

pub fn open(base: &Path) -> World {
    let world = World::on_disk(CrashStorage::new(), base);
    world.w().settle().unwrap();
    world
}

/// Runs a test for each number of steps there is, several at a time: mostly they wait for the clock to
/// pass the times of new files.
pub fn each_step(test: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at > last.load(Ordering::Relaxed) {
                        break;
                    }
                    if !test(at) {
                        last.fetch_min(at, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let last = last.into_inner();
    assert!(last > 15, "only {last} steps");
}

pub fn parent(world: &World, path: &str) -> (NodeId, String) {
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = NodeId::ROOT;
    for part in dirs.split('/').filter(|part| !part.is_empty()) {
        at = world.w().lookup(at, part.as_bytes(), W).unwrap().node;
    }
    (at, name.to_owned())
}

pub fn write(world: &World, path: &str, text: &str) {
    let (dir, name) = parent(world, path);
    let w = world.w();
    let node = match w.lookup(dir, name.as_bytes(), W) {
        Ok(attr) => attr.node,
        Err(_) => {
            let made = w.mknod(&me(), dir, name.as_bytes(), 0o100644, 0, W);
            made.unwrap().node
        }
    };
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    w.setattr(&me(), node, &empty, W).unwrap();
    w.write(node, 0, text.as_bytes(), WriteFlags::default(), W)
        .unwrap();
}

pub fn remove(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world.w().unlink(dir, name.as_bytes(), W).unwrap();
}

pub fn mkdir(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world
        .w()
        .mkdir(&me(), dir, name.as_bytes(), 0o755, W)
        .unwrap();
}

pub fn rmdir(world: &World, path: &str) {
    let (dir, name) = parent(world, path);
    world.w().rmdir(dir, name.as_bytes(), W).unwrap();
}

pub fn read(world: &World, path: &str) -> String {
    let (dir, name) = parent(world, path);
    let node = world.w().lookup(dir, name.as_bytes(), W).unwrap().node;
    String::from_utf8(world.w().read(node, 0, 1 << 20, W).unwrap()).unwrap()
}

pub fn apply_with(world: &World, faults: &dyn Fn() -> Fault) -> Result<ApplyReport> {
    apply_unless(world, faults, &Cancel::new())
}

pub fn apply_unless(
    world: &World,
    faults: &dyn Fn() -> Fault,
    cancel: &Cancel,
) -> Result<ApplyReport> {
    let request = ApplyRequest {
        branch: MAIN.into(),
        ..ApplyRequest::default()
    };
    verbs::apply_with(world.w(), &request, &|_, _| (), faults, cancel)
}

pub fn apply(world: &World) -> Result<ApplyReport> {
    apply_with(world, &|| Fault::Go)
}

/// Changes of all kinds in the branch.
pub fn work(world: &World) {
    write(world, "a", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n");
    write(world, "new", "new\n");
    mkdir(world, "made");
    mkdir(world, "made/deep");
    write(world, "made/deep/file", "deep\n");
    remove(world, "old/deep/z");
    rmdir(world, "old/deep");
    rmdir(world, "old");
    remove(world, "b");
    mkdir(world, "b");
    write(world, "b/inside", "a directory now\n");
    write(world, "d/y", "both names\n");
    let w = world.w();
    let (dir, _) = parent(world, "new2");
    w.symlink(&me(), dir, b"sym2", b"new", W).unwrap();
    let file = w.lookup(dir, b"new", W).unwrap().node;
    w.link(file, dir, b"new-link", W).unwrap();
}

/// The base has what the branch has.
pub fn check_worked(dir: &Path) {
    let text = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    assert!(text("a").starts_with("1\ntwo\n3\n"));
    assert_eq!(text("made/deep/file"), "deep\n");
    assert_eq!(text("b/inside"), "a directory now\n");
    assert_eq!(text("link"), "both names\n");
    assert!(!dir.join("old").exists());
    assert_eq!(fs::read_link(dir.join("sym2")).unwrap(), Path::new("new"));
    let inode = |path: &str| fs::metadata(dir.join(path)).unwrap().ino();
    assert_eq!(inode("new"), inode("new-link"));
    assert_eq!(inode("link"), inode("d/y"));
    assert!(staging(dir).is_empty(), "{:?}", staging(dir));
}

pub fn staging(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let names = names.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".agentvfs")).collect()
}
