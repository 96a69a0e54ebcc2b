//! `apply` and `update` of histories of real files that are edited on both sides: the base and the branch
//! become what `git merge` makes of the same.
//!
//! `APPLY_WORLDS` sets the number of histories, `APPLY_SEED` the first seed. A failure names its seed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::merging::rng::Rng;
use crate::merging::tree::{Leaf, Tree, What, file_meta};
use crate::merging::{git, history, rounds, seed};
use crate::world::{MAIN, World};
use engine::merge::Outcome;
use engine::verbs;
use engine::{ApplyRequest, Caller, Error, NodeId, SetAttr, UpdateRequest, Wait, WriteFlags};
use objstore::crash_storage::CrashStorage;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const W: Wait = Wait::Allowed;
/// Rounds of one history: both sides work, the branch is applied, now and then it is updated.
const ROUNDS: usize = 4;

fn me() -> Caller {
    let meta = fs::metadata("/proc/self").unwrap();
    Caller {
        uid: meta.uid(),
        gid: meta.gid(),
        pid: 1,
        umask: 0o022,
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A place that a tree can be written to.
trait Side {
    fn remove(&self, path: &[u8]);
    /// Removes a directory; false where it is not empty (or is the root).
    fn rmdir(&self, path: &[u8]) -> bool;
    fn put(&self, path: &[u8], leaf: &Leaf);
    fn list(&self) -> BTreeMap<Vec<u8>, Leaf>;

    /// Makes `old` into `new`, as git would: directories without files go.
    fn change(&self, old: &Tree, new: &Tree) {
        for (path, leaf) in &old.leaves {
            if new.leaves.get(path) != Some(leaf) {
                self.remove(path);
                let mut dir = split(path).0;
                while !dir.is_empty() && self.rmdir(dir) {
                    dir = split(dir).0;
                }
            }
        }
        for (path, leaf) in &new.leaves {
            if old.leaves.get(path) != Some(leaf) {
                self.put(path, leaf);
            }
        }
    }
}

struct Base<'a>(&'a Path);

impl Base<'_> {
    fn at(&self, path: &[u8]) -> PathBuf {
        self.0.join(OsStr::from_bytes(path))
    }
}

impl Side for Base<'_> {
    fn remove(&self, path: &[u8]) {
        fs::remove_file(self.at(path)).unwrap();
    }

    fn rmdir(&self, path: &[u8]) -> bool {
        fs::remove_dir(self.at(path)).is_ok()
    }

    fn put(&self, path: &[u8], leaf: &Leaf) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match &leaf.what {
            What::Link(target) => symlink(OsStr::from_bytes(target), at).unwrap(),
            _ => {
                fs::write(&at, leaf.bytes()).unwrap();
                let mode = fs::Permissions::from_mode(leaf.meta.mode & 0o777);
                fs::set_permissions(&at, mode).unwrap();
            }
        }
    }

    fn list(&self) -> BTreeMap<Vec<u8>, Leaf> {
        let mut found = BTreeMap::new();
        let mut work = vec![self.0.to_owned()];
        while let Some(at) = work.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    work.push(path);
                    continue;
                }
                let leaf = if meta.is_symlink() {
                    Leaf::link(fs::read_link(&path).unwrap().as_os_str().as_bytes())
                } else {
                    file(fs::read(&path).unwrap(), meta.mode())
                };
                let name = path.strip_prefix(self.0).unwrap().as_os_str();
                found.insert(name.as_bytes().to_vec(), leaf);
            }
        }
        found
    }
}

fn file(bytes: Vec<u8>, mode: u32) -> Leaf {
    Leaf {
        meta: file_meta(mode & 0o100 != 0),
        what: What::File(bytes),
    }
}

struct Branch<'a>(&'a World);

impl Branch<'_> {
    fn dir(&self, path: &[u8]) -> NodeId {
        let mut at = NodeId::ROOT;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = match self.0.w().lookup(at, name, W) {
                Ok(found) => found.node,
                Err(_) => self.0.w().mkdir(&me(), at, name, 0o755, W).unwrap().node,
            };
        }
        at
    }

    fn list_into(&self, dir: NodeId, path: &[u8], found: &mut BTreeMap<Vec<u8>, Leaf>) {
        let w = self.0.w();
        let mut names = Vec::new();
        w.readdir(dir, 0, false, W, &mut |e| {
            names.push(e.name.to_vec());
            true
        })
        .unwrap();
        for name in names.iter().filter(|n| !matches!(&n[..], b"." | b"..")) {
            let attr = w.lookup(dir, name, W).unwrap();
            let path = match path {
                b"" => name.clone(),
                path => [path, b"/", name].concat(),
            };
            match attr.kind {
                engine::Kind::Dir => self.list_into(attr.node, &path, found),
                engine::Kind::Symlink => {
                    let target = w.readlink(&me(), attr.node).unwrap();
                    found.insert(path, Leaf::link(target));
                }
                _ => {
                    let bytes = w.read(attr.node, 0, 1 << 24, W).unwrap();
                    found.insert(path, file(bytes, attr.perm.into()));
                }
            }
        }
    }
}

impl Side for Branch<'_> {
    fn remove(&self, path: &[u8]) {
        let (dir, name) = split(path);
        self.0.w().unlink(self.dir(dir), name, W).unwrap();
    }

    fn rmdir(&self, path: &[u8]) -> bool {
        let (dir, name) = split(path);
        match self.0.w().rmdir(self.dir(dir), name, W) {
            Ok(()) => true,
            Err(Error::NotEmpty) => false,
            Err(e) => panic!("{e}"),
        }
    }

    fn put(&self, path: &[u8], leaf: &Leaf) {
        let w = self.0.w();
        let (dir, name) = split(path);
        let dir = self.dir(dir);
        match &leaf.what {
            What::Link(target) => drop(w.symlink(&me(), dir, name, target, W).unwrap()),
            _ => {
                let node = w.mknod(&me(), dir, name, 0o100644, 0, W).unwrap().node;
                w.write(node, 0, leaf.bytes(), WriteFlags::default(), W)
                    .unwrap();
                let mode = SetAttr {
                    perm: Some(leaf.meta.mode & 0o777),
                    ..SetAttr::default()
                };
                w.setattr(&me(), node, &mode, W).unwrap();
            }
        }
    }

    fn list(&self) -> BTreeMap<Vec<u8>, Leaf> {
        let mut found = BTreeMap::new();
        self.list_into(NodeId::ROOT, b"", &mut found);
        found
    }
}

/// The history as git gets it.
#[derive(Default)]
struct History {
    commits: Vec<(Tree, Vec<usize>)>,
}

impl History {
    fn add(&mut self, tree: &Tree, parents: &[usize]) -> usize {
        self.commits.push((tree.clone(), parents.to_vec()));
        self.commits.len() - 1
    }

    /// What git makes of two commits; `None` where it has conflicts, or says that it lost something.
    fn merge(&self, ours: usize, theirs: usize) -> Option<Tree> {
        let dir = git::scratch("apply");
        let name = |i: usize| format!("c{i}");
        let commits = self.commits.iter().enumerate();
        let commits: Vec<git::Commit> = commits
            .map(|(i, (tree, parents))| git::Commit {
                name: name(i),
                parents: parents.iter().map(|p| name(*p)).collect(),
                time: 1_000_000 + i as i64,
                tree,
            })
            .collect();
        git::import(dir.path(), &commits);
        let merged = git::merge_trees(dir.path(), &[(name(ours), name(theirs))]);
        let merged = merged.into_iter().next().flatten()?;
        let collides = |text: &String| text.contains("rename involved in collision");
        if !merged.clean || merged.messages.iter().any(collides) {
            return None;
        }
        let mut tree = Tree::default();
        for (path, (mode, bytes)) in git::files(dir.path(), &merged.tree)? {
            let leaf = match &mode[..] {
                "120000" => Leaf::link(bytes),
                mode => file(bytes, u32::from_str_radix(mode, 8).unwrap()),
            };
            tree.put(path, leaf);
        }
        Some(tree)
    }
}

fn assert_same(found: &BTreeMap<Vec<u8>, Leaf>, wanted: &Tree, what: &str) {
    for path in found.keys().chain(wanted.leaves.keys()) {
        let shown = String::from_utf8_lossy(path);
        assert_eq!(found.get(path), wanted.leaves.get(path), "{what}: {shown}");
    }
}

#[derive(Debug, Default)]
struct Counts {
    applied: u64,
    refused: u64,
    updated: u64,
}

/// One history; ends early where the two sides conflict.
fn one(seed: u64, texts: &[Vec<u8>], counts: &mut Counts) {
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().unwrap();
    let base = Base(dir.path());
    let mut git = History::default();
    let start = history::project(&mut rng, texts);
    base.change(&Tree::default(), &start);
    let world = World::on_disk(CrashStorage::without_log(), dir.path());
    world.w().settle().unwrap();
    let branch = Branch(&world);
    let first = git.add(&start, &[]);
    let (mut ours, mut theirs) = ((start.clone(), first), (start, first));
    for round in 0..ROUNDS {
        let at = |what: &str| format!("seed {seed}, round {round}, {what}");
        for (side, (tree, commit)) in [(&base as &dyn Side, &mut ours), (&branch, &mut theirs)] {
            let mut new = tree.clone();
            history::work(&mut rng, &mut new, texts);
            side.change(tree, &new);
            (*tree, *commit) = (new.clone(), git.add(&new, &[*commit]));
        }
        let wanted = git.merge(ours.1, theirs.1);
        let request = ApplyRequest {
            branch: MAIN.into(),
            ..ApplyRequest::default()
        };
        let report = verbs::apply(world.w(), &request, &|_, _| ());
        let report = report.unwrap_or_else(|e| panic!("{}: {e}", at("apply")));
        let Some(wanted) = wanted else {
            if report.outcome == Outcome::Conflicts {
                assert_same(&base.list(), &ours.0, &at("the base after a refusal"));
                counts.refused += 1;
            }
            return;
        };
        let conflicts = &report.conflicts;
        assert_ne!(
            report.outcome,
            Outcome::Conflicts,
            "{}: {conflicts:?}",
            at("apply")
        );
        assert_same(&base.list(), &wanted, &at("the base after apply"));
        assert_same(&branch.list(), &theirs.0, &at("the branch after apply"));
        counts.applied += 1;
        ours = (wanted.clone(), git.add(&wanted, &[ours.1, theirs.1]));
        if round % 2 == 1 {
            let request = UpdateRequest {
                branch: MAIN.into(),
                ..UpdateRequest::default()
            };
            let report = verbs::update(world.w(), &request, &|_, _| ());
            let report = report.unwrap_or_else(|e| panic!("{}: {e}", at("update")));
            assert_ne!(report.outcome, Outcome::Conflicts, "{}", at("update"));
            assert_same(&branch.list(), &wanted, &at("the branch after update"));
            theirs = ours.clone();
            counts.updated += 1;
        }
    }
}

#[test]
fn apply_and_update_make_of_histories_what_git_merge_makes() {
    let first = seed("APPLY_SEED");
    let texts = crate::merging::real_texts();
    let mut counts = Counts::default();
    let count = rounds("APPLY_WORLDS", 40);
    for seed in first..first + count {
        one(seed, &texts, &mut counts);
    }
    println!("{counts:?}");
    assert!(counts.applied * 2 > count && counts.refused > 0 && counts.updated > 0);
}
