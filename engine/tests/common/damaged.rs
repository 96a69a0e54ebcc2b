//! Stores that are damaged on purpose, checked and repaired.

use super::world::{MAIN, World};
use engine::verbs;
use engine::{
    CallOutcome, CallRecord, Caller, CheckpointRequest, CommitId, DiffSide, Engine, EngineConfig,
    FsckReport, NodeId, Wait, WriteFlags, mode,
};
use objstore::crash_storage::CrashStorage;
use objstore::io::Storage;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
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
    copy_to(disk, CrashStorage::without_log())
}

/// Puts the files of a disk on an empty one, synced.
pub fn copy_to(disk: &CrashStorage, empty: CrashStorage) -> CrashStorage {
    for path in disk.paths() {
        let (dir, _) = path.rsplit_once('/').unwrap_or_default();
        empty.create_dir_all(dir).unwrap();
        let file = empty.create(&path).unwrap();
        file.append(&[&disk.read(&path).unwrap().unwrap()]).unwrap();
        file.sync().unwrap();
        empty.sync_dir(dir).unwrap();
    }
    empty
}

/// Files by their paths.
pub type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes a checkpoint with a label, a message and metadata.
pub fn checkpoint(world: &World, branch: &str, label: &str) -> CommitId {
    let request = CheckpointRequest {
        label: Some(label.into()),
        message: format!("says {label}"),
        meta: vec![("of".to_owned(), branch.to_owned())],
        wait: true,
    };
    let made = verbs::checkpoint(world.w(), branch, request, &|_, _| ());
    made.unwrap().commit.unwrap()
}

/// Root directory of a branch.
pub fn root_of(world: &World, branch: &str) -> NodeId {
    let mut at = NodeId::ROOT;
    if branch != MAIN {
        for part in [".agentvfs", "branches", branch] {
            at = world.w().lookup(at, part.as_bytes(), W).unwrap().node;
        }
    }
    at
}

/// Makes a file in the root directory of a branch.
pub fn put_in(world: &World, branch: &str, name: &str, data: &[u8]) {
    let (who, dir) = (me(), root_of(world, branch));
    let mode = mode::REG | 0o644;
    let made = world.w().mknod(&who, dir, name.as_bytes(), mode, 0, W);
    let flags = WriteFlags::default();
    let node = made.unwrap().node;
    world.w().write(node, 0, data, flags, W).unwrap();
}

/// Who runs the tests: what belongs to somebody else could not be applied.
fn me() -> Caller {
    let me = std::fs::metadata("/proc/self").unwrap();
    Caller {
        uid: me.uid(),
        gid: me.gid(),
        ..Caller::default()
    }
}

/// Records a tool call.
pub fn call(world: &World, branch: &str, name: &str) {
    let call = CallRecord {
        name: name.into(),
        parameters: None,
        outcome: CallOutcome::Success(None),
        started: None,
        completed: None,
    };
    verbs::call_record(world.w(), branch, call).unwrap();
}

/// All files of a branch, read without a mount.
pub fn files(world: &World, branch: &str) -> Files {
    let view = verbs::read_state(world.w(), branch, &DiffSide::Live).unwrap();
    let mut out = Files::new();
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        for node in view.list(&dir).unwrap() {
            let path = [dir.as_slice(), &node.name].join(&b"/"[..usize::from(!dir.is_empty())]);
            match node.kind {
                engine::Kind::Dir => dirs.push(path),
                _ => {
                    let all = view.read(&path, 0, 1 << 20).unwrap();
                    out.insert(path, all.bytes);
                }
            }
        }
    }
    out
}

/// Without printing what the files hold.
pub fn assert_same(shown: &Files, wanted: &Files, at: &str) {
    let names = |files: &Files| -> Vec<String> {
        let names = files
            .keys()
            .map(|p| String::from_utf8_lossy(p).into_owned());
        names.filter(|p| !p.starts_with("sub/")).collect()
    };
    assert_eq!(names(shown), names(wanted), "{at}");
    assert!(shown == wanted, "{at}: other bytes");
}
