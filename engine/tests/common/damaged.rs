//! Stores that are damaged on purpose, checked and repaired.

use super::world::World;
use engine::{Caller, Engine, EngineConfig, FsckReport, NodeId, Wait, WriteFlags, mode};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;

const W: Wait = Wait::Allowed;

/// Makes a file in the root directory.
pub fn put(world: &World, name: &str, data: &[u8]) {
    let who = Caller::default();
    let mode = mode::REG | 0o644;
    let made = world
        .w()
        .mknod(&who, NodeId::ROOT, name.as_bytes(), mode, 0, W)
        .unwrap();
    let flags = WriteFlags::default();
    world.w().write(made.node, 0, data, flags, W).unwrap();
}

/// Every file that is shown, with its content or why that cannot be read.
pub fn read_all(world: &World) -> BTreeMap<Vec<u8>, Result<Vec<u8>, engine::Error>> {
    let mut out = BTreeMap::new();
    let mut dirs = vec![(NodeId::ROOT, Vec::new())];
    while let Some((dir, path)) = dirs.pop() {
        let mut names = Vec::new();
        let listed = world.w().readdir(dir, 0, false, W, &mut |e| {
            names.push(e.name.to_vec());
            true
        });
        listed.unwrap();
        for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
            let attr = world.w().lookup(dir, &name, W).unwrap();
            let path = [path.as_slice(), &name].join(&b"/"[..usize::from(!path.is_empty())]);
            if attr.kind == engine::Kind::Dir {
                dirs.push((attr.node, path));
            } else {
                out.insert(path, world.w().read(attr.node, 0, 1 << 20, W));
            }
        }
    }
    out
}

/// An engine on a disk that may be damaged, and its home.
pub fn engine(disk: &CrashStorage) -> (Arc<Engine>, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        root: home.path().to_owned(),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    (engine, home)
}

/// Checks a disk.
pub fn check(disk: &CrashStorage) -> FsckReport {
    engine(disk).0.fsck(&|_, _| ()).unwrap()
}

/// A disk with the same files.
pub fn copy(disk: &CrashStorage) -> CrashStorage {
    let copy = CrashStorage::without_log();
    for path in disk.paths() {
        if let Some((dir, _)) = path.rsplit_once('/') {
            copy.create_dir_all(dir).unwrap();
        }
        let file = copy.create(&path).unwrap();
        file.append(&[&disk.read(&path).unwrap().unwrap()]).unwrap();
    }
    copy
}
