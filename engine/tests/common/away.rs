//! Lazy workspaces without a network: what they lack is in the store of another engine, and steps that are the same for a
//! workspace that has everything.

use super::by_path;
use super::rng::Rng;
use super::world::{MAIN, NAME, World, config};
use engine::verbs;
use engine::{
    Caller, CloseMode, CommitId, DiffSide, Engine, Error, Kind, NodeId, RenameFlags, Result,
    SetAttr, TakenOver, Target, Wait, Workspace,
};
use objstore::crash_storage::CrashStorage;
use objstore::elsewhere::{Backing, Branches, Elsewhere};
use objstore::exchange::commit_key;
use objstore::{Key, ObjectStore};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

pub const W: Wait = Wait::Allowed;

/// The store of another engine, which can be out of reach.
pub struct Other {
    me: Weak<Other>,
    pub engine: Arc<Engine>,
    pub is_away: AtomicBool,
    pub brought: AtomicUsize,
    /// Commits that its refs name.
    pub refs: Mutex<Vec<CommitId>>,
    /// What gc of it has left; `None`: everything.
    pub left: Mutex<Option<HashSet<Key>>>,
    /// Workspaces that are told nothing.
    pub silent_to: Mutex<HashSet<String>>,
    /// Is done the next time that somebody asks what it has.
    pub when_asked: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Is done the next time that it brings something.
    pub when_brought: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Other {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Other")
    }
}

impl Other {
    /// Whether it has an object.
    pub fn has(&self, key: &Key) -> bool {
        let left = self.left.lock();
        left.as_ref().is_none_or(|left| left.contains(key))
            && self.engine.objects().contains(key.0, &key.1)
    }

    /// Takes what a workspace has of a commit and this has not; a ref names the commit then.
    pub fn take(&self, from: &ObjectStore, id: CommitId) {
        let mut next = vec![commit_key(&id)];
        while let Some(key) = next.pop() {
            if self.has(&key) {
                continue;
            }
            let found = from.references(&key).unwrap();
            next.extend(found.needed);
            next.extend(found.parents.iter().map(commit_key));
            let record = from.get_record(&key).unwrap();
            self.engine.objects().put_record(&record).unwrap();
            if let Some(left) = &mut *self.left.lock() {
                left.insert(key);
            }
        }
        self.refs.lock().push(id);
    }

    /// Removes what its refs do not reach.
    pub fn collect(&self) {
        let mut left = HashSet::new();
        let mut next: Vec<Key> = self.refs.lock().iter().map(commit_key).collect();
        while let Some(key) = next.pop() {
            if self.has(&key) && left.insert(key) {
                let found = self.engine.objects().references(&key).unwrap();
                next.extend(found.needed);
                next.extend(found.parents.iter().map(commit_key));
            }
        }
        *self.left.lock() = Some(left);
    }
}

/// What it has.
#[derive(Debug)]
struct Has(Arc<Other>, Vec<CommitId>);

impl Backing for Has {
    fn commits(&self) -> &[CommitId] {
        &self.1
    }

    fn find(&self, key: &Key) -> Option<u64> {
        if let Some(act) = self.0.when_asked.lock().take() {
            act();
        }
        self.0.has(key).then_some(1)
    }
}

impl Elsewhere for Other {
    fn bring(&self, store: &ObjectStore, key: &Key) -> objstore::Result<bool> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(objstore::Error::Elsewhere {
                kind: key.0,
                id: "x".into(),
                why: "it is away".into(),
            });
        }
        let from = self.engine.objects();
        if !self.has(key) {
            return Ok(false);
        }
        // It brings something itself.
        let act = self.when_brought.lock().take();
        if let Some(act) = act {
            act();
        }
        self.brought.fetch_add(1, Ordering::Relaxed);
        store.put_record(&from.get_record(key)?)?;
        Ok(true)
    }

    fn look(&self, whose: &str, _: &Branches) -> std::result::Result<Box<dyn Backing>, String> {
        let is_silent = self.silent_to.lock().contains(whose);
        match self.is_away.load(Ordering::Relaxed) || is_silent {
            true => Err("it is away".into()),
            false => {
                let me = self.me.upgrade().ok_or("it is gone")?;
                Ok(Box::new(Has(me, self.refs.lock().clone())))
            }
        }
    }
}

/// A commit of a project with hard links between its directories, and who has it.
pub fn origin(base: &Path) -> (World, Arc<Other>, CommitId) {
    for dir in 0..5 {
        for sub in 0..3 {
            let at = base.join(format!("d{dir}/s{sub}"));
            std::fs::create_dir_all(&at).unwrap();
            for file in 0..3 {
                let text = format!("{dir} {sub} {file}\n").repeat(50);
                std::fs::write(at.join(format!("f{file}")), text).unwrap();
            }
        }
    }
    let linked = base.join("d0/s0/linked");
    std::fs::write(&linked, "linked\n").unwrap();
    std::fs::hard_link(&linked, base.join("d3/s1/linked")).unwrap();
    std::fs::hard_link(&linked, base.join("d4/linked")).unwrap();
    std::os::unix::fs::symlink("d0/s0", base.join("link")).unwrap();
    let world = World::on_files(base);
    let id = by_path::checkpoint(world.w(), MAIN, "origin");
    let other = Arc::new_cyclic(|me| Other {
        me: me.clone(),
        engine: world.engine.clone(),
        is_away: AtomicBool::new(false),
        brought: AtomicUsize::new(0),
        refs: Mutex::new(vec![id]),
        left: Mutex::default(),
        silent_to: Mutex::default(),
        when_asked: Mutex::default(),
        when_brought: Mutex::default(),
    });
    (world, other, id)
}

pub fn copy(from: &ObjectStore, to: &ObjectStore, key: &Key, below: bool) {
    if below {
        for key in &from.references(key).unwrap().needed {
            copy(from, to, key, true);
        }
    }
    to.put_record(&from.get_record(key).unwrap()).unwrap();
}

/// A workspace that begins with a commit, of which it has all, or nothing but the commit itself.
pub fn workspace(base: &Path, other: &Arc<Other>, id: CommitId, is_lazy: bool) -> World {
    let home = tempfile::tempdir().unwrap();
    let disk = CrashStorage::new();
    let engine = Engine::on_storage(config(home.path()), Arc::new(disk.clone())).unwrap();
    let from = other.engine.objects();
    copy(from, engine.objects(), &commit_key(&id), !is_lazy);
    if is_lazy {
        engine.objects().set_elsewhere(Some(other.clone()));
    }
    let nothing = &mut || Ok(TakenOver::Calls(Vec::new()));
    let lazy = is_lazy.then_some("origin");
    engine.create_from_commit(NAME, id, lazy, nothing).unwrap();
    World::start(Some(disk), home, engine, base).unwrap()
}

pub fn at(w: &Workspace, path: &str) -> Result<(NodeId, Vec<u8>)> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((by_path::find(w, MAIN, dir)?, name.as_bytes().to_vec()))
}

/// Everything but times and numbers, by path; files of one inode have one name in the last place.
pub type Seen = BTreeMap<Vec<u8>, (Kind, u32, u32, Vec<u8>, Vec<u8>)>;

pub fn seen(w: &Workspace) -> Seen {
    let reader = verbs::read_state(w, MAIN, &DiffSide::Live).unwrap();
    let (mut out, mut firsts) = (Seen::new(), BTreeMap::new());
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        for node in reader.list(&dir).unwrap() {
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(&node.name);
            let content = match node.kind {
                Kind::File => reader.read_plain(&path, 0, 1 << 20).unwrap().0,
                Kind::Dir => {
                    dirs.push(path.clone());
                    Vec::new()
                }
                _ => node.target.unwrap_or_default(),
            };
            let nlink = if node.kind == Kind::Dir {
                0
            } else {
                node.nlink
            };
            out.insert(
                path.clone(),
                (node.kind, node.perm, nlink, content, Vec::new()),
            );
            let first = firsts.entry(node.inode).or_insert_with(|| path.clone());
            *first = path.clone().min(first.clone());
            out.get_mut(&path).unwrap().4 = node.inode.to_be_bytes().to_vec();
        }
    }
    for entry in out.values_mut() {
        let inode = u64::from_be_bytes(entry.4[..].try_into().unwrap());
        entry.4.clone_from(&firsts[&inode]);
    }
    out
}

/// A step that is the same for both.
#[derive(Debug, Clone)]
pub enum Step {
    Write(String, String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Rename(String, String),
    Link(String, String),
    Chmod(String, u32),
    Checkpoint(String),
    Rollback(String),
    Restore(String, String),
    Undo,
    Redo,
    Read(String),
    List(String),
    Diff(String),
    Merge(String, String),
    Kill,
    Reopen,
    Collect,
}

pub fn path(rng: &mut Rng) -> String {
    let (dir, sub) = (rng.below(6), rng.below(4));
    match rng.below(9) {
        0 => format!("d{dir}"),
        1 => format!("new{}", rng.below(3)),
        2 => format!("d{dir}/x{}", rng.below(3)),
        3 => format!("d{dir}/s{sub}"),
        4 => ["d0/s0/linked", "d3/s1/linked", "d4/linked"][rng.below(3) as usize].to_owned(),
        _ => format!("d{dir}/s{sub}/f{}", rng.below(4)),
    }
}

pub fn step(rng: &mut Rng, number: usize, labels: &[String]) -> Step {
    let (one, two) = (path(rng), path(rng));
    let label = rng.pick(labels).clone();
    match rng.below(30) {
        0..=4 => Step::Write(
            one,
            format!("{number}\n").repeat(rng.below(90) as usize + 1),
        ),
        5 => Step::Unlink(one),
        6 => Step::Mkdir(one),
        7 => Step::Rmdir(one),
        8..=10 => Step::Rename(one, two),
        11 => Step::Link(one, two),
        12 => Step::Chmod(one, 0o700 + rng.below(8) as u32),
        13..=14 => Step::Checkpoint(format!("c{number}")),
        15..=16 => Step::Rollback(label),
        17..=18 => Step::Restore(label, one),
        19 => Step::Undo,
        20 => Step::Redo,
        21..=22 => Step::Read(one),
        23 => Step::List(one),
        24 => Step::Diff(label),
        25 => Step::Merge(format!("b{number}"), one),
        26 => Step::Kill,
        27 => Step::Reopen,
        _ => Step::Collect,
    }
}

/// Stores what the live tree has of the journal. Until then what was written is not known to be what a state has of it, and
/// which steps can be undone depends on what was stored before a kill.
pub fn settle(world: &World) {
    let commit = engine::CheckpointRequest {
        message: "settled".into(),
        wait: true,
        ..Default::default()
    };
    let settled = engine::AutomaticRequest {
        commit,
        ..Default::default()
    };
    verbs::commit_automatically(world.w(), MAIN, settled, &|_, _| ()).unwrap();
}

/// What a step gives, in words.
pub fn carry_out(world: &mut World, step: &Step) -> std::result::Result<String, i32> {
    let who = Caller::default();
    match step {
        Step::Kill => world.kill().unwrap(),
        Step::Reopen => {
            world.close(CloseMode::Checkpoint).unwrap();
            world.reopen().unwrap();
        }
        Step::Collect => {
            by_path::gc(world);
            let report = world.engine.fsck(&|_, _| ()).unwrap();
            assert_eq!(report.findings, []);
        }
        _ => return on(world.w(), &who, step).map_err(|e: Error| e.errno()),
    }
    Ok(String::new())
}

pub fn on(w: &Workspace, who: &Caller, step: &Step) -> Result<String> {
    let done = String::new;
    match step {
        Step::Write(path, text) => {
            let (dir, _) = at(w, path)?;
            let is_dir = by_path::find(w, MAIN, path)
                .is_ok_and(|node| w.getattr(node).unwrap().kind != Kind::File);
            if is_dir || w.getattr(dir)?.kind != Kind::Dir {
                return Err(Error::IsDir);
            }
            by_path::write(w, MAIN, path, text.as_bytes());
            Ok(done())
        }
        Step::Unlink(path) => {
            let (dir, name) = at(w, path)?;
            w.unlink(dir, &name, W).map(|()| done())
        }
        Step::Mkdir(path) => {
            let (dir, name) = at(w, path)?;
            w.mkdir(who, dir, &name, 0o755, W).map(|_| done())
        }
        Step::Rmdir(path) => {
            let (dir, name) = at(w, path)?;
            w.rmdir(dir, &name, W).map(|()| done())
        }
        Step::Rename(from, to) => {
            let ((a, x), (b, y)) = (at(w, from)?, at(w, to)?);
            w.rename(a, &x, b, &y, RenameFlags::default(), W)
                .map(|()| done())
        }
        Step::Link(from, to) => {
            let (node, (dir, name)) = (by_path::find(w, MAIN, from)?, at(w, to)?);
            w.link(node, dir, &name, W).map(|_| done())
        }
        Step::Chmod(path, perm) => {
            let set = SetAttr {
                perm: Some(*perm),
                ..SetAttr::default()
            };
            w.setattr(who, by_path::find(w, MAIN, path)?, &set, W)
                .map(|_| done())
        }
        Step::Read(path) => by_path::read(w, MAIN, path).map(|b| String::from_utf8(b).unwrap()),
        Step::List(path) => {
            let reader = verbs::read_state(w, MAIN, &DiffSide::Live)?;
            let names = reader.list(path.as_bytes())?.into_iter();
            let names = names.map(|n| format!("{:?}", (n.name, n.kind, n.perm, n.size)));
            Ok(names.collect())
        }
        _ => on_history(w, step),
    }
}

pub fn on_history(w: &Workspace, step: &Step) -> Result<String> {
    let label = |label: &String| Target::Ref(label.clone());
    match step {
        Step::Checkpoint(label) => {
            by_path::checkpoint(w, MAIN, label);
        }
        Step::Rollback(to) => {
            verbs::rollback(w, MAIN, &label(to))?;
        }
        Step::Restore(from, path) => {
            verbs::restore(w, MAIN, &label(from), &[path.clone().into_bytes()])?;
        }
        Step::Undo => {
            verbs::undo(w, MAIN)?;
        }
        Step::Redo => {
            verbs::redo(w, MAIN)?;
        }
        Step::Diff(from) => {
            let from = DiffSide::Ref(from.clone());
            let changes = verbs::diff(w, MAIN, &from, &DiffSide::Live, &[])?;
            // Which files were renamed is told by their numbers, which a state that comes from the store may have lost.
            let mut rows = BTreeSet::new();
            for change in changes {
                let is_renamed = change.old_path.is_some();
                rows.extend(change.old_path.map(|old| (old, 'D')));
                rows.insert((change.path, if is_renamed { 'A' } else { change.status }));
            }
            return Ok(format!("{rows:?}"));
        }
        Step::Merge(branch, path) => {
            verbs::create_branch(w, branch, MAIN, None)?;
            let there = by_path::find(w, branch, path);
            if there.is_ok_and(|node| w.getattr(node).unwrap().kind == Kind::File) {
                by_path::write(w, branch, path, branch.as_bytes());
            }
            by_path::write(w, branch, branch, b"of a branch\n");
            by_path::checkpoint(w, branch, branch);
            let report = by_path::merge(w, branch, MAIN);
            return Ok(format!("{:?}", report.conflicts.len()));
        }
        _ => unreachable!("{step:?}"),
    }
    Ok(String::new())
}
