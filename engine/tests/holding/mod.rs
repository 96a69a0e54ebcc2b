//! A workspace without a mount, and a kernel that does what a test says.
#![allow(dead_code)]

use engine::types::SetAttr;
use engine::verbs;
use engine::{
    Attr, Caller, CheckpointRequest, CloseMode, DiffSide, Engine, EngineConfig, KernelCache,
    NodeId, Target, Wait, Workspace, WriteFlags,
};
use objstore::crash_storage::CrashStorage;
use parking_lot::Mutex;
use std::sync::Arc;

pub const W: &str = "w";
pub const MAIN: &str = "main";
pub const ROOT: NodeId = NodeId::ROOT;

/// A write(2), a write(2) of an appending descriptor, a page of the kernel's cache.
pub const CALL: WriteFlags = WriteFlags {
    from_cache: false,
    kill_suidgid: false,
    append: false,
    thread: 7,
};
pub const APPEND: WriteFlags = WriteFlags {
    append: true,
    ..CALL
};
pub const PAGE: WriteFlags = WriteFlags {
    from_cache: true,
    ..CALL
};

pub struct World {
    pub engine: Arc<Engine>,
    pub w: Arc<Workspace>,
    dir: tempfile::TempDir,
    disk: CrashStorage,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        for name in ["project", "home"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let disk = CrashStorage::without_log();
        let (engine, w) = open(&disk, dir.path());
        World {
            engine,
            w,
            dir,
            disk,
        }
    }

    /// Ends without a goodbye, and opens again.
    pub fn reopen(self) -> World {
        let World {
            engine,
            w,
            dir,
            disk,
        } = self;
        drop((engine, w));
        let (engine, w) = open(&disk, dir.path());
        World {
            engine,
            w,
            dir,
            disk,
        }
    }

    /// Dies while it is mounted, and another one goes on with the connection.
    pub fn taken_over(self, connection: u64) -> World {
        let World {
            engine,
            w,
            dir,
            disk,
        } = self;
        drop((engine, w));
        let engine = engine_on(&disk, dir.path());
        let w = engine.open_kept(W, connection, None).unwrap();
        World {
            engine,
            w,
            dir,
            disk,
        }
    }

    /// How many segments the branch's journal has.
    pub fn segments(&self) -> usize {
        let all = self.disk.paths().into_iter();
        all.filter(|path| path.contains("/journal/") && !path.ends_with("mark"))
            .count()
    }

    pub fn end(self) {
        let close = CloseMode::NoCheckpoint;
        self.engine.close_workspace(W, close, &|_, _| {}).unwrap();
    }

    pub fn look(&self, dir: NodeId, name: &str) -> Attr {
        self.w.lookup(dir, name.as_bytes(), Wait::Allowed).unwrap()
    }

    pub fn mkdir(&self, dir: NodeId, name: &str) -> Attr {
        let who = Caller::default();
        let made = self
            .w
            .mkdir(&who, dir, name.as_bytes(), 0o755, Wait::Allowed);
        made.unwrap()
    }

    pub fn file(&self, dir: NodeId, name: &str, data: &[u8]) -> NodeId {
        let (who, name) = (Caller::default(), name.as_bytes());
        let made = self.w.mknod(&who, dir, name, 0o100644, 0, Wait::Allowed);
        let node = made.unwrap().node;
        self.write(node, 0, data, CALL);
        node
    }

    pub fn write(&self, node: NodeId, at: u64, data: &[u8], flags: WriteFlags) {
        let written = self.w.write(node, at, data, flags, Wait::Allowed).unwrap();
        assert_eq!(written as usize, data.len());
    }

    pub fn resize(&self, node: NodeId, size: u64) {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let who = Caller::default();
        self.w.setattr(&who, node, &set, Wait::Allowed).unwrap();
    }

    pub fn read(&self, node: NodeId) -> String {
        let bytes = self.w.read(node, 0, 1 << 20, Wait::Allowed).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    pub fn rmdir(&self, dir: NodeId, name: &str) {
        self.w.rmdir(dir, name.as_bytes(), Wait::Allowed).unwrap();
    }

    pub fn checkpoint(&self, label: &str) {
        let req = CheckpointRequest {
            label: Some(label.into()),
            ..CheckpointRequest::default()
        };
        verbs::checkpoint(&self.w, MAIN, req, &|_, _| {}).unwrap();
    }

    pub fn rollback(&self, label: &str) {
        verbs::rollback(&self.w, MAIN, &Target::Ref(label.into())).unwrap();
    }

    /// A file of the state that was shown before the last switch.
    pub fn undone(&self, path: &str) -> String {
        verbs::undo(&self.w, MAIN).unwrap();
        let view = verbs::read_state(&self.w, MAIN, &DiffSide::Live).unwrap();
        let bytes = view.read(path.as_bytes(), 0, 1 << 20).unwrap().bytes;
        drop(view);
        verbs::redo(&self.w, MAIN).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

pub fn engine_on(disk: &CrashStorage, dir: &std::path::Path) -> Arc<Engine> {
    let config = EngineConfig {
        root: dir.join("home"),
        author: "test".into(),
    };
    let engine = Engine::on_storage(config, Arc::new(disk.clone())).unwrap();
    if engine.get(W).is_err() {
        engine.create(W, &dir.join("project"), None).unwrap();
    }
    engine
}

pub fn open(disk: &CrashStorage, dir: &std::path::Path) -> (Arc<Engine>, Arc<Workspace>) {
    let engine = engine_on(disk, dir);
    let w = engine.open_workspace(W).unwrap();
    w.settle().unwrap();
    (engine, w)
}

/// Calls something once, when the kernel is told to forget a node: in the middle of a switch.
pub struct During<F>(NodeId, Mutex<Option<F>>);

impl<F: FnOnce() + Send> KernelCache for During<F> {
    fn flush_dirty(&self) {}

    fn inval_inode(&self, node: NodeId) {
        let call = self.1.lock().take_if(|_| node == self.0);
        if let Some(call) = call {
            call();
        }
    }

    fn inval_entry(&self, _parent: NodeId, _name: &[u8]) {}

    fn inval_all_entries(&self) -> bool {
        false
    }
}

/// Has `call` made in the middle of the next switch that changes `node`.
pub fn during(world: &World, node: NodeId, call: impl FnOnce(&Workspace) + Send + 'static) {
    let w = Arc::downgrade(&world.w);
    let call = move || call(&w.upgrade().unwrap());
    let cache = During(node, Mutex::new(Some(call)));
    world.w.set_kernel_cache(Arc::new(cache));
}
