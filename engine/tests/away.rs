//! A workspace whose directories come from elsewhere when they are looked into is the one that has them all: the same
//! random steps on both, compared after each.
#![allow(clippy::unwrap_used)]

mod common;

use common::by_path;
use common::rng::Rng;
use common::world::{MAIN, NAME, World, config};
use engine::verbs;
use engine::{
    Caller, CloseMode, CommitId, DiffSide, Engine, Error, Kind, NodeId, RenameFlags, Result,
    SetAttr, TakenOver, Target, Wait, Workspace,
};
use objstore::crash_storage::CrashStorage;
use objstore::elsewhere::Elsewhere;
use objstore::exchange::commit_key;
use objstore::{Key, ObjectStore};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const W: Wait = Wait::Allowed;

/// The store of another engine, which can be out of reach.
#[derive(Debug)]
struct Other {
    engine: Arc<Engine>,
    is_away: AtomicBool,
    brought: AtomicUsize,
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
        if !from.contains(key.0, &key.1) {
            return Ok(false);
        }
        self.brought.fetch_add(1, Ordering::Relaxed);
        store.put_record(&from.get_record(key)?)?;
        Ok(true)
    }
}

/// A commit of a project with hard links between its directories, and who has it.
fn origin(base: &Path) -> (World, Arc<Other>, CommitId) {
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
    let other = Arc::new(Other {
        engine: world.engine.clone(),
        is_away: AtomicBool::new(false),
        brought: AtomicUsize::new(0),
    });
    (world, other, id)
}

fn copy(from: &ObjectStore, to: &ObjectStore, key: &Key, below: bool) {
    if below {
        for key in &from.references(key).unwrap().needed {
            copy(from, to, key, true);
        }
    }
    to.put_record(&from.get_record(key).unwrap()).unwrap();
}

/// A workspace that begins with a commit, of which it has all, or nothing but the commit itself.
fn workspace(base: &Path, other: &Arc<Other>, id: CommitId, is_lazy: bool) -> World {
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

fn at(w: &Workspace, path: &str) -> Result<(NodeId, Vec<u8>)> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((by_path::find(w, MAIN, dir)?, name.as_bytes().to_vec()))
}

/// Everything but times and numbers, by path; files of one inode have one name in the last place.
type Seen = BTreeMap<Vec<u8>, (Kind, u32, u32, Vec<u8>, Vec<u8>)>;

fn seen(w: &Workspace) -> Seen {
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
enum Step {
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

fn path(rng: &mut Rng) -> String {
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

fn step(rng: &mut Rng, number: usize, labels: &[String]) -> Step {
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

/// What a step gives, in words.
fn carry_out(world: &mut World, step: &Step) -> std::result::Result<String, i32> {
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

fn on(w: &Workspace, who: &Caller, step: &Step) -> Result<String> {
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

fn on_history(w: &Workspace, step: &Step) -> Result<String> {
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
            return Ok(format!("{changes:?}"));
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

fn run(seed: u64, steps: usize) {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (_origin, other, id) = origin(base.path());
    let mut lazy = workspace(empty.path(), &other, id, true);
    let mut whole = workspace(empty.path(), &other, id, false);
    let mut rng = Rng(seed);
    let mut labels = vec![id.to_string()];
    let mut done = Vec::new();
    for number in 0..steps {
        let step = step(&mut rng, number, &labels);
        done.push(step.clone());
        println!("{step:?}");
        let results = [&mut lazy, &mut whole].map(|world| carry_out(world, &step));
        // Another engine, which knows nobody yet; it was opened without.
        lazy.engine.objects().set_elsewhere(Some(other.clone()));
        assert_eq!(results[0], results[1], "seed {seed}, {step:?} of {done:#?}");
        if let Step::Checkpoint(label) = step {
            labels.push(label);
        }
    }
    let check = |lazy: &World, whole: &World| {
        // A file has as many names as are known: all of them once all directories are.
        seen(lazy.w());
        let (a, b) = (seen(lazy.w()), seen(whole.w()));
        for (path, entry) in &b {
            let path_shown = String::from_utf8_lossy(path);
            assert_eq!(
                a.get(path),
                Some(entry),
                "seed {seed}, {path_shown} after {done:#?}"
            );
        }
        assert_eq!(a.len(), b.len(), "seed {seed}");
    };
    check(&lazy, &whole);
    for world in [&mut lazy, &mut whole] {
        carry_out(world, &Step::Reopen).unwrap();
    }
    lazy.engine.objects().set_elsewhere(Some(other.clone()));
    check(&lazy, &whole);
    carry_out(&mut lazy, &Step::Collect).unwrap();
}

#[test]
fn a_lazy_workspace_is_the_whole_one() {
    let seeds: Vec<u64> = match std::env::var("AGENTVFS_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..40).collect(),
    };
    for seed in seeds {
        println!("AGENTVFS_SEED={seed}");
        run(seed, 40);
    }
}

#[test]
fn nothing_is_brought_before_it_is_looked_at_and_opening_needs_nobody() {
    let base = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let (_origin, other, id) = origin(base.path());
    let brought = || other.brought.load(Ordering::Relaxed);
    let mut lazy = workspace(empty.path(), &other, id, true);
    assert_eq!(brought(), 0);
    let root = NodeId::ROOT;
    lazy.w().lookup(root, b"d1", W).unwrap();
    assert_eq!(brought(), 1);
    // A directory that was never looked into is moved and committed as it is.
    let flags = RenameFlags::default();
    lazy.w()
        .rename(root, b"d2", root, b"moved", flags, W)
        .unwrap();
    by_path::checkpoint(lazy.w(), MAIN, "moved");
    assert_eq!(brought(), 1);
    other.is_away.store(true, Ordering::Relaxed);
    lazy.kill().unwrap();
    lazy.close(CloseMode::Checkpoint).unwrap();
    lazy.reopen().unwrap();
    lazy.engine.objects().set_elsewhere(Some(other.clone()));
    let nothing = by_path::read(lazy.w(), MAIN, "moved/s0/f0").unwrap_err();
    assert_eq!(nothing.errno(), 5, "{nothing}");
    by_path::write(lazy.w(), MAIN, "own", b"own\n");
    by_path::checkpoint(lazy.w(), MAIN, "own");
    other.is_away.store(false, Ordering::Relaxed);
    assert_eq!(
        by_path::text(lazy.w(), MAIN, "moved/s0/f0"),
        "2 0 0\n".repeat(50)
    );
    // A file that has names in directories that are not known is changed once all are.
    by_path::write(lazy.w(), MAIN, "d4/linked", b"changed\n");
    assert_eq!(by_path::text(lazy.w(), MAIN, "d3/s1/linked"), "changed\n");
}
