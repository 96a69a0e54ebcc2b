//! One sequence: a workspace, a model, random steps on both.

use super::hold::{Holder, MAPPED, What, same};
use super::killer::{Killer, Turns};
use super::tree::{Node, Number, ROOT, Tree, split};
use super::update::Files;
use crate::env::Env;
use crate::rng::Rng;
use crate::sys::PAGE;
use crate::wait;
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Longest content that is written at once.
const LENGTH: u64 = 20_000;
/// Names in each directory: three of files, two of directories.
const FILES: [&str; 3] = ["f", "g", "h"];
const DIRS: [&str; 2] = ["a", "b"];

/// What a step gives; an error is a difference.
pub type Outcome = Result<(), String>;

/// Both sides.
pub struct World {
    pub(super) env: Arc<Env>,
    pub(super) turns: Turns,
    pub(super) root: PathBuf,
    pub(super) tree: Tree,
    pub(super) next: Number,
    pub(super) holders: Vec<Holder>,
    /// Checkpoints by label.
    pub(super) states: Vec<(String, Tree)>,
    pub(super) undo: Vec<Tree>,
    pub(super) redo: Vec<Tree>,
    pub(super) made: u64,
    /// What steps put into the project's root.
    pub(super) project: Files,
    /// What was done, in words.
    pub(super) said: Vec<String>,
}

/// Carries out the steps that seeds stand for; what was done, and the difference. `None` where nothing can
/// be mounted. With `kills` the daemon is killed meanwhile, again and again, which is counted there.
pub fn run(
    seeds: &[u64],
    kills: Option<&Arc<AtomicU64>>,
) -> Option<Result<(), (Vec<String>, String)>> {
    let mut env = Env::in_memory()?;
    if kills.is_some() {
        env.keep_mounts();
    }
    let mut w = World::new(env);
    let killer = kills.map(|kills| {
        let seed = seeds.iter().fold(0, |all, seed| all ^ seed);
        Killer::start(w.env.clone(), w.turns.clone(), seed, kills.clone())
    });
    let mut done = w.check();
    for seed in seeds {
        done = done.and_then(|()| w.step(&mut Rng::new(*seed)).and_then(|()| w.check()));
    }
    if let Err(why) = done {
        let why = format!("{why}\nthe daemon's log ends:\n{}", w.env.log());
        return Some(Err((w.said, why)));
    }
    drop(killer);
    w.holders.clear();
    // What is left of a daemon that was killed just now may be in the mount still.
    let stops = || w.env.workspace(&["stop", "project"]).status == 0;
    wait::until("the workspace stops", stops);
    Some(Ok(()))
}

/// What a file has past the kernel's cache, where that has something wrong.
fn past(place: &Path, want: &[u8]) -> String {
    let flags = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(place);
    let mut have = vec![0; want.len() + PAGE];
    let got = file.and_then(|file| file.read_at(&mut have, 0));
    have.truncate(*got.as_ref().unwrap_or(&0));
    match got.map(|_| same("what the daemon has", &have, want)) {
        Ok(Ok(())) => "what the daemon has is right".to_owned(),
        Ok(Err(why)) => why,
        Err(e) => format!("what the daemon has: {e}"),
    }
}

impl World {
    fn new(env: Env) -> World {
        let project = env.project();
        fs::create_dir_all(project.join("a/b")).unwrap();
        for path in ["f", "a/f", "a/b/f"] {
            fs::write(project.join(path), format!("of the base: {path}\n")).unwrap();
        }
        let root = env.start();
        let mut w = World {
            env: Arc::new(env),
            turns: Turns::default(),
            root,
            tree: Tree::default(),
            next: ROOT,
            holders: Vec::new(),
            states: Vec::new(),
            undo: Vec::new(),
            redo: Vec::new(),
            made: 0,
            project: Files::new(),
            said: Vec::new(),
        };
        for dir in ["a", "a/b"] {
            w.add(dir, Node::Dir(Default::default()));
        }
        for path in ["f", "a/f", "a/b/f"] {
            w.add(path, Node::File(format!("of the base: {path}\n").into()));
        }
        w
    }

    pub(super) fn say(&mut self, what: String) {
        self.said.push(what);
    }

    pub(super) fn add(&mut self, path: &str, node: Node) {
        self.next += 1;
        self.tree.nodes.insert(self.next, node);
        self.tree.put(path, self.next);
    }

    fn step(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(45) {
            0..=5 => self.write(rng),
            6..=7 => self.append(rng),
            8..=9 => self.truncate(rng),
            10 => self.unlink(rng),
            11..=12 => self.rename(rng),
            13..=14 => self.mkdir(rng),
            15..=16 => self.remove_all(rng),
            17..=22 => self.hold(rng),
            23..=29 => self.use_held(rng),
            30 => self.release(rng),
            _ => self.control(rng),
        }
    }

    /// Some directory of the model.
    fn some_dir(&self, rng: &mut Rng) -> String {
        let paths = self.tree.paths();
        let mut dirs: Vec<&str> = paths
            .iter()
            .filter(|(_, n)| self.tree.dir(**n).is_some())
            .map(|(p, _)| &p[..])
            .collect();
        dirs.push("");
        dirs[rng.below(dirs.len() as u64) as usize].to_owned()
    }

    fn below(dir: &str, name: &str) -> String {
        match dir.is_empty() {
            true => name.to_owned(),
            false => format!("{dir}/{name}"),
        }
    }

    /// A path that is a file's or nothing's.
    fn file_path(&self, rng: &mut Rng) -> String {
        let dir = self.some_dir(rng);
        Self::below(&dir, FILES[rng.below(3) as usize])
    }

    /// Some file that there is.
    pub(super) fn some_file(&self, rng: &mut Rng) -> Option<(String, Number)> {
        let mut files: Vec<(String, Number)> = self.tree.paths().into_iter().collect();
        files.retain(|(_, n)| self.tree.file(*n).is_some());
        match files.len() {
            0 => None,
            n => Some(files.swap_remove(rng.below(n as u64) as usize)),
        }
    }

    pub(super) fn content(rng: &mut Rng) -> Vec<u8> {
        let len = match rng.below(4) {
            0 => 20 + rng.below(100),
            1 => PAGE as u64 * (1 + rng.below(4)),
            _ => 20 + rng.below(LENGTH),
        };
        rng.bytes(len as usize)
    }

    fn write(&mut self, rng: &mut Rng) -> Outcome {
        let (path, bytes) = (self.file_path(rng), Self::content(rng));
        self.say(format!("write {} bytes to {path}", bytes.len()));
        let done = fs::write(self.root.join(&path), &bytes);
        done.map_err(|e| format!("write: {e}"))?;
        self.written(&path, bytes);
        Ok(())
    }

    /// A file was made, or got other bytes.
    pub(super) fn written(&mut self, path: &str, bytes: Vec<u8>) {
        match self.tree.find(path) {
            Some(n) => *self.tree.bytes(n) = bytes,
            None => self.add(path, Node::File(bytes)),
        }
    }

    fn append(&mut self, rng: &mut Rng) -> Outcome {
        let Some((path, n)) = self.some_file(rng) else {
            return Ok(());
        };
        let bytes = Self::content(rng);
        self.say(format!("append {} bytes to {path}", bytes.len()));
        let file = OpenOptions::new().append(true).open(self.root.join(&path));
        let done = file.and_then(|mut f| f.write_all(&bytes));
        done.map_err(|e| format!("append: {e}"))?;
        self.tree.bytes(n).extend(bytes);
        Ok(())
    }

    fn truncate(&mut self, rng: &mut Rng) -> Outcome {
        let Some((path, n)) = self.some_file(rng) else {
            return Ok(());
        };
        let len = rng.below(LENGTH);
        self.say(format!("truncate {path} to {len}"));
        let file = OpenOptions::new().write(true).open(self.root.join(&path));
        let done = file.and_then(|f| f.set_len(len));
        done.map_err(|e| format!("truncate: {e}"))?;
        self.tree.bytes(n).resize(len as usize, 0);
        Ok(())
    }

    fn unlink(&mut self, rng: &mut Rng) -> Outcome {
        let Some((path, _)) = self.some_file(rng) else {
            return Ok(());
        };
        self.say(format!("unlink {path}"));
        let done = fs::remove_file(self.root.join(&path));
        done.map_err(|e| format!("unlink: {e}"))?;
        self.tree.take(&path);
        Ok(())
    }

    fn rename(&mut self, rng: &mut Rng) -> Outcome {
        let paths: Vec<(String, Number)> = self.tree.paths().into_iter().collect();
        if paths.is_empty() {
            return Ok(());
        }
        let (from, n) = paths[rng.below(paths.len() as u64) as usize].clone();
        let is_dir = self.tree.dir(n).is_some();
        let to = match is_dir {
            true => Self::below(&self.some_dir(rng), DIRS[rng.below(2) as usize]),
            false => self.file_path(rng),
        };
        let there = self.tree.find(&to);
        let into_itself = is_dir && format!("{to}/").starts_with(&format!("{from}/"));
        let full = there
            .and_then(|t| self.tree.dir(t))
            .is_some_and(|d| !d.is_empty());
        if there == Some(n) || into_itself || full {
            return Ok(());
        }
        self.say(format!("rename {from} to {to}"));
        let done = fs::rename(self.root.join(&from), self.root.join(&to));
        done.map_err(|e| format!("rename: {e}"))?;
        self.tree.take(&from);
        self.tree.put(&to, n);
        Ok(())
    }

    fn mkdir(&mut self, rng: &mut Rng) -> Outcome {
        let dir = self.some_dir(rng);
        let path = Self::below(&dir, DIRS[rng.below(2) as usize]);
        if self.tree.find(&path).is_some() || dir.split('/').count() > 2 {
            return Ok(());
        }
        self.say(format!("mkdir {path}"));
        let done = fs::create_dir(self.root.join(&path));
        done.map_err(|e| format!("mkdir: {e}"))?;
        self.add(&path, Node::Dir(Default::default()));
        Ok(())
    }

    fn remove_all(&mut self, rng: &mut Rng) -> Outcome {
        let path = self.some_dir(rng);
        if path.is_empty() {
            return Ok(());
        }
        self.say(format!("remove {path} with all in it"));
        let done = fs::remove_dir_all(self.root.join(&path));
        done.map_err(|e| format!("removing {path}: {e}"))?;
        let below = format!("{path}/");
        let gone = self.tree.paths().into_keys();
        let gone: Vec<String> = gone
            .filter(|p| *p == path || p.starts_with(&below))
            .collect();
        for p in gone.iter().rev() {
            self.tree.take(p);
        }
        Ok(())
    }

    fn hold(&mut self, rng: &mut Rng) -> Outcome {
        let kind = rng.below(3);
        let (path, n) = match kind {
            2 => {
                let dir = self.some_dir(rng);
                let n = self.tree.find(&dir).unwrap();
                (dir, n)
            }
            _ => match self.some_file(rng) {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        self.made += 1;
        let what = [
            "descriptor and mapping",
            "appending descriptor",
            "directory",
        ][kind as usize];
        self.say(format!("holder {}: {what} of {path:?}", self.made));
        let holder = Holder::new(self.made, &self.root.join(&path), n, kind)?;
        self.holders.push(holder);
        Ok(())
    }

    fn release(&mut self, rng: &mut Rng) -> Outcome {
        if !self.holders.is_empty() {
            let gone = rng.below(self.holders.len() as u64) as usize;
            let gone = self.holders.swap_remove(gone);
            self.say(format!("holder {} ends", gone.name));
        }
        Ok(())
    }

    fn use_held(&mut self, rng: &mut Rng) -> Outcome {
        if self.holders.is_empty() {
            return Ok(());
        }
        let i = rng.below(self.holders.len() as u64) as usize;
        let (name, node) = (self.holders[i].name, self.holders[i].node);
        let done = match self.holders[i].what {
            What::Dir => self.use_dir(i, rng),
            What::Appending => {
                let bytes = Self::content(rng);
                self.say(format!("holder {name} appends {} bytes", bytes.len()));
                let done = (&self.holders[i].file).write_all(&bytes);
                self.tree.bytes(node).extend(bytes);
                done.map_err(|e| e.to_string())
            }
            What::File(_) => self.use_file(i, rng),
        };
        done.map_err(|e| format!("holder {name}: {e}"))
    }

    fn use_file(&mut self, i: usize, rng: &mut Rng) -> Outcome {
        let (h, said) = (&self.holders[i], |e: std::io::Error| e.to_string());
        let (name, len) = (h.name, self.tree.bytes(h.node).len());
        let inside = len.min(MAPPED * PAGE);
        match rng.below(4) {
            0 => {
                let (at, bytes) = (rng.below(LENGTH) as usize, Self::content(rng));
                h.file.write_all_at(&bytes, at as u64).map_err(said)?;
                let all = self.tree.bytes(h.node);
                all.resize(all.len().max(at + bytes.len()), 0);
                all[at..at + bytes.len()].copy_from_slice(&bytes);
                self.say(format!(
                    "holder {name} writes {} bytes at {at}",
                    bytes.len()
                ));
            }
            1 => {
                let len = rng.below(LENGTH);
                h.file.set_len(len).map_err(said)?;
                self.tree.bytes(h.node).resize(len as usize, 0);
                self.say(format!("holder {name} truncates to {len}"));
            }
            _ if inside == 0 => {}
            n => {
                let at = rng.below(inside as u64) as usize;
                let len = 1 + rng.below(3000) as usize;
                let bytes = rng.bytes(len.min(inside - at));
                let node = h.node;
                h.store(at, &bytes)?;
                if n == 2 {
                    h.file.sync_all().map_err(said)?;
                }
                self.tree.bytes(node)[at..at + bytes.len()].copy_from_slice(&bytes);
                self.say(format!(
                    "holder {name} stores {} bytes at {at}",
                    bytes.len()
                ));
            }
        }
        Ok(())
    }

    fn use_dir(&mut self, i: usize, rng: &mut Rng) -> Outcome {
        let (name, node) = (self.holders[i].name, self.holders[i].node);
        let alive = node == ROOT || self.tree.paths().values().any(|n| *n == node);
        let file = FILES[rng.below(3) as usize];
        let there = self.tree.dir(node).and_then(|d| d.get(file)).is_some();
        self.say(format!(
            "holder {name} makes or removes {file}, alive: {alive}"
        ));
        let done = match there {
            true => self.holders[i].unmake(file),
            false => self.holders[i].make(file),
        };
        match (alive, done) {
            (true, Ok(())) if there => drop(self.tree.names(node).remove(file)),
            (true, Ok(())) => {
                self.next += 1;
                self.tree.nodes.insert(self.next, Node::File(Vec::new()));
                self.tree.names(node).insert(file.to_owned(), self.next);
            }
            (false, Err(rustix::io::Errno::NOENT)) => {}
            (_, done) => return Err(format!("making or removing {file}: {done:?}")),
        }
        Ok(())
    }

    /// Compares every path and every holder.
    fn check(&self) -> Outcome {
        let mut work = vec![(String::new(), ROOT)];
        while let Some((path, n)) = work.pop() {
            let place = self.root.join(&path);
            if let Some(bytes) = self.tree.file(n) {
                let said = |e: std::io::Error| format!("{path}: {e}");
                let m = fs::symlink_metadata(&place).map_err(said)?;
                let have = fs::read(&place).map_err(said)?;
                same(&path, &have, bytes)
                    .map_err(|why| format!("{why}; {}", past(&place, bytes)))?;
                if m.len() != bytes.len() as u64 {
                    return Err(format!("{path} has {} bytes, not {}", m.len(), bytes.len()));
                }
                continue;
            }
            let want: Vec<(String, Number)> = self
                .tree
                .dir(n)
                .into_iter()
                .flatten()
                .map(|(a, b)| (a.clone(), *b))
                .collect();
            let names: Vec<&String> = want.iter().map(|(name, _)| name).collect();
            let have = self.list(&path)?;
            if !have.iter().eq(names.iter().copied()) {
                return Err(format!("{path:?} lists {have:?}, not {names:?}"));
            }
            work.extend(
                want.into_iter()
                    .map(|(name, n)| (Self::below(&path, &name), n)),
            );
        }
        let named: BTreeSet<Number> = self.tree.paths().into_values().chain([ROOT]).collect();
        for h in &self.holders {
            h.check(&self.tree)?;
            let has = h.identity()?.1;
            if has != named.contains(&h.node) {
                return Err(format!("holder {} has a name: {has}", h.name));
            }
        }
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, String> {
        let said = |e: std::io::Error| format!("listing {path:?}: {e}");
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(path)).map_err(said)? {
            let name = entry.map_err(said)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.retain(|n| n != ".agentvfs");
        names.sort();
        Ok(names)
    }

    /// The file at a path, as it is on the mount.
    pub(super) fn open(&self, path: &str) -> Result<File, String> {
        File::open(self.root.join(path)).map_err(|e| format!("{path}: {e}"))
    }

    /// True for a path whose directory is one in the model.
    pub(super) fn has_parent(&self, path: &str) -> bool {
        let dir = self.tree.find(split(path).0);
        dir.is_some_and(|d| self.tree.dir(d).is_some())
    }
}
