//! Carries operations out on the engine and on the model, and compares after each.

use super::branching::Besides;
use super::check::{adopt, compare};
use super::history::History;
use super::kernel::{Told, install, now};
use super::model::{ROOT, Tree};
use super::op::Op;
use super::world::World;
use super::{base_dir, rng};
use engine::{Error, NodeId, Time, Wait, Workspace, WriteFlags};
use objstore::crash_storage::CrashStorage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Requests wait for the disk.
pub const W: Wait = Wait::Allowed;

/// The kernel's side of the caches.
pub struct Pages {
    pub told: Mutex<Told>,
    w: Weak<Workspace>,
}

impl Pages {
    /// Installed in the world's workspace.
    pub fn on(world: &World) -> Arc<Pages> {
        let w = world.shared();
        let pages = Arc::new(Pages {
            told: Mutex::default(),
            w: Arc::downgrade(&w),
        });
        install(&pages, &w);
        pages
    }

    /// A dirty page arrives.
    pub fn bring(&self, node: NodeId, at: u64, data: &[u8]) -> Result<(), String> {
        let w = self.w.upgrade().ok_or("the workspace is gone")?;
        let flags = WriteFlags {
            from_cache: true,
            ..WriteFlags::default()
        };
        w.write(node, at, data, flags, W)
            .map(|_| ())
            .map_err(|e| e.to_string())
    }
}

/// Both sides.
pub struct Runner {
    pub world: World,
    pub pages: Arc<Pages>,
    pub live: Tree,
    pub history: History,
    /// How often the kernel knows each inode.
    pub lookups: BTreeMap<u64, u64>,
    /// Directories that the kernel knows and has removed itself.
    pub dead: BTreeSet<u64>,
    /// Files that never had a name.
    pub nameless: BTreeSet<u64>,
    pub seen_inos: BTreeSet<u64>,
    /// Since a kill or a close without a checkpoint the base was not imported again, so that the engine cannot know yet that what it
    /// stored before is what the base holds: it may see a difference where there is none.
    pub unsettled: bool,
    /// Files whose content the step changed.
    pub changed_files: BTreeSet<u64>,
    /// What there is beside the tree and the history of main.
    pub besides: Besides,
    /// What was there before the switch of the step before this one, where that was no undo.
    pub switched_from: Option<Tree>,
    /// When the step began.
    pub now: Time,
}

/// Compares results: `Ok(Some)` where both are well, `Ok(None)` where both failed alike.
pub fn same<T: Debug, U: Debug>(
    have: Result<T, Error>,
    want: Result<U, i32>,
) -> Result<Option<T>, String> {
    match (have, want) {
        (Ok(t), Ok(_)) => Ok(Some(t)),
        (Err(e), Err(errno)) if e.errno() == errno => Ok(None),
        (have, want) => Err(format!("gave {have:?}, not {want:?}")),
    }
}

impl Runner {
    /// A workspace on `base`, whose model is `tree`.
    pub fn new(world: World, tree: &Tree) -> Result<Runner, String> {
        let live = adopt(tree, world.w())?;
        let mut history = History::default();
        history.push(&live, "start");
        let seen_inos = live.nodes.values().filter_map(|n| n.ino).collect();
        let pages = Pages::on(&world);
        Ok(Runner {
            world,
            pages,
            live,
            history,
            lookups: BTreeMap::new(),
            dead: BTreeSet::new(),
            nameless: BTreeSet::new(),
            seen_inos,
            unsettled: false,
            changed_files: BTreeSet::new(),
            besides: Besides::default(),
            switched_from: None,
            now: now(),
        })
    }

    /// How often the kernel knows an inode.
    pub fn held(&self, n: u64) -> u64 {
        if n == ROOT {
            1
        } else {
            self.lookups.get(&n).copied().unwrap_or(0)
        }
    }

    /// The kernel has removed a name: a directory is dead there as long as it knows it.
    pub fn removed_by_kernel(&mut self, n: u64) {
        if self.live.dir(n).is_some() && self.held(n) > 0 {
            self.dead.insert(n);
        }
    }

    /// The kernel was given an inode.
    pub fn hold(&mut self, n: u64) {
        *self.lookups.entry(n).or_default() += 1;
    }

    /// Carries out one operation and compares.
    pub fn step(&mut self, op: Op) -> Result<(), String> {
        self.now = now();
        self.changed_files.clear();
        if op != Op::Undo {
            self.switched_from = None;
        }
        self.carry_out(op)?;
        compare(&mut self.live, self.world.w(), false)?;
        for n in std::mem::take(&mut self.changed_files) {
            if let Some(c) = self.live.get(n).and_then(|i| i.file()) {
                super::check::content(c, n, self.world.w())
                    .map_err(|e| format!("inode {n}: {e}"))?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Create { .. } => self.create(op),
            Op::Link { node, dir, name } => self.link(node, dir, name),
            Op::Unlink { dir, name } => self.unlink(dir, name),
            Op::Rmdir { dir, name } => self.rmdir(dir, name),
            Op::Nameless { dir, perm } => self.nameless(dir, perm),
            Op::Rename { from, to, flags } => self.rename(from, to, flags),
            Op::Write { .. } => self.write(op),
            Op::Truncate { node, size, root } => self.truncate(node, size, root),
            Op::Allocate { .. } => self.allocate(op),
            Op::Copy { .. } => self.copy(op),
            Op::SetAttr { .. } => self.setattr(op),
            Op::SetXattr { .. } => self.setxattr(op),
            Op::RemoveXattr { node, name } => self.removexattr(node, name),
            Op::Lookup { dir, name } => self.lookup(dir, name),
            Op::Forget { node, all } => {
                self.forget(node, all);
                Ok(())
            }
            Op::ReaddirPlus { dir, room } => self.readdir_plus(dir, room),
            Op::Read { node, at, len } => self.read(node, at, len),
            Op::Fsync => self
                .world
                .w()
                .fsync(NodeId::ROOT)
                .map_err(|e| format!("fsync: {e}")),
            Op::Check => self.check(),
            Op::Checkpoint { .. } => self.checkpoint(op),
            Op::Rollback { .. } => self.rollback(op),
            Op::Undo => self.turn(false),
            Op::Redo => self.turn(true),
            Op::Seal => {
                self.unsettled = false;
                self.world.w().seal().map_err(|e| format!("seal: {e}"))
            }
            Op::Settle => {
                self.unsettled = false;
                self.world.w().settle().map_err(|e| format!("settle: {e}"))
            }
            Op::Close { commit } => self.close(commit),
            Op::Kill => self.kill(),
            Op::Gc => self.gc(),
            Op::KvSet { key, value, import } => self.kv_set(key, value, import),
            Op::KvDelete { key } => self.kv_delete(key),
            Op::Branch { .. }
            | Op::Beside { .. }
            | Op::Merge { .. }
            | Op::Restore { .. }
            | Op::Resolve { .. }
            | Op::Call
            | Op::UndoCall { .. }
            | Op::Snapshot { .. } => self.branching(op),
        }
    }
}

/// Runs a sequence on the shared base; the error says which step went wrong, `at` which one runs.
pub fn run(ops: &[Op], on_files: bool, at: &AtomicUsize) -> Result<(), String> {
    let base = base_dir::shared();
    let mut r = Runner::new(open(on_files, base), &base_dir::tree_of(base))?;
    for (i, op) in ops.iter().enumerate() {
        at.store(i, Ordering::Relaxed);
        r.step(*op).map_err(|e| format!("step {i}, {op:?}: {e}"))?;
    }
    r.check().map_err(|e| format!("at the end: {e}"))
}

fn open(on_files: bool, base: &Path) -> World {
    if on_files {
        World::on_files(base)
    } else {
        World::on_disk(CrashStorage::new(), base)
    }
}

/// A random sequence.
pub fn sequence(seed: u64, len: usize) -> Vec<Op> {
    let mut rng = rng::Rng(seed);
    (0..len).map(|_| super::op::random(&mut rng)).collect()
}
