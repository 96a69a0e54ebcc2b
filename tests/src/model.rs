//! A model of what one process does in a directory of its own, one changing system call at a time.
//!
//! The operations follow from a seed, so a log needs only their outcomes: [`BEGUN`] before a call,
//! then [`DONE`] or [`NO_SPACE`]. Whoever has seed and log knows every state that the directory went
//! through, and which of them may be there after an accident: those between the last answered call
//! and the last begun one. Invariant: each operation is one request to the file system, so it is
//! there as a whole or not at all.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A call is about to be made.
pub const BEGUN: u8 = b'b';
/// It succeeded.
pub const DONE: u8 = b'd';
/// It failed for want of space, so it changed nothing.
pub const NO_SPACE: u8 = b'n';

const FILE_BYTES_MAX: u64 = 256 << 10;
/// The kernel may make several requests of one write, but never of what lies within one page.
const PAGE_BYTES: u64 = 4096;
const DIRECTORIES: u64 = 4;
const FILES: u64 = 12;

/// What a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A file with its bytes.
    File(Vec<u8>),
    /// A symbolic link with its target.
    Link(String),
}

/// A state of the directory: names by path from it.
pub type State = BTreeMap<String, Node>;

/// One changing call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `mkdir`
    Mkdir(String),
    /// `rmdir` of an empty one
    Rmdir(String),
    /// `open` with `O_CREAT | O_EXCL`
    Create(String),
    /// `pwrite`
    Write(String, u64, Vec<u8>),
    /// `truncate`
    Truncate(String, u64),
    /// `rename`, maybe over another file
    Rename(String, String),
    /// `unlink`
    Unlink(String),
    /// `symlink`
    Symlink(String, String),
    /// `fsync`, which changes nothing
    Fsync(String),
}

/// The operations of a seed, and the state that they lead to.
pub struct Session {
    rng: Rng,
    /// The state now.
    pub state: State,
}

impl Session {
    /// The beginning: an empty directory.
    pub fn new(seed: u64) -> Session {
        Session {
            rng: Rng::new(seed),
            state: State::new(),
        }
    }

    /// The next operation; it can be done in the present state.
    pub fn choose(&mut self) -> Op {
        loop {
            let (dir, path) = self.name();
            let other = self.name();
            let choice = self.rng.below(100);
            if let Some(op) = self.possible(choice, &dir, path, other) {
                return op;
            }
        }
    }

    fn name(&mut self) -> (String, String) {
        let dir = format!("d{}", self.rng.below(DIRECTORIES));
        let path = format!("{dir}/f{}", self.rng.below(FILES));
        (dir, path)
    }

    fn possible(
        &mut self,
        choice: u64,
        dir: &str,
        path: String,
        (other_dir, other): (String, String),
    ) -> Option<Op> {
        let has_dir = self.state.contains_key(dir);
        let is_free = !self.state.contains_key(&path);
        let is_file = matches!(self.state.get(&path), Some(Node::File(_)));
        match choice {
            0..5 if !has_dir => Some(Op::Mkdir(dir.to_owned())),
            0..5 if self.is_empty(dir) => Some(Op::Rmdir(dir.to_owned())),
            5..20 if has_dir && is_free => Some(Op::Create(path)),
            20..25 if has_dir && is_free => Some(Op::Symlink(path, other)),
            25..70 if is_file => Some(self.write(path)),
            70..76 if is_file => {
                let len = self.rng.below(FILE_BYTES_MAX);
                Some(Op::Truncate(path, len))
            }
            76..88 if is_file && self.state.contains_key(&other_dir) && path != other => {
                Some(Op::Rename(path, other))
            }
            88..97 if !is_free => Some(Op::Unlink(path)),
            97..100 if is_file => Some(Op::Fsync(path)),
            _ => None,
        }
    }

    fn is_empty(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        !self.state.keys().any(|path| path.starts_with(&below))
    }

    fn write(&mut self, path: String) -> Op {
        let at = self.rng.below(FILE_BYTES_MAX);
        let len = 1 + self.rng.below(PAGE_BYTES - at % PAGE_BYTES);
        Op::Write(path, at, self.rng.bytes(len as usize))
    }

    /// Does an operation to the state.
    pub fn apply(&mut self, op: &Op) {
        let state = &mut self.state;
        match op {
            Op::Mkdir(path) => drop(state.insert(path.clone(), Node::Directory)),
            Op::Rmdir(path) | Op::Unlink(path) => drop(state.remove(path)),
            Op::Create(path) => drop(state.insert(path.clone(), Node::File(Vec::new()))),
            Op::Symlink(path, to) => drop(state.insert(path.clone(), Node::Link(to.clone()))),
            Op::Write(path, at, bytes) => {
                let file = content(state, path);
                let (start, end) = (*at as usize, *at as usize + bytes.len());
                file.resize(file.len().max(end), 0);
                file[start..end].copy_from_slice(bytes);
            }
            Op::Truncate(path, len) => content(state, path).resize(*len as usize, 0),
            Op::Rename(from, to) => {
                let node = state.remove(from).expect("it exists");
                state.insert(to.clone(), node);
            }
            Op::Fsync(_) => {}
        }
    }
}

fn content<'a>(state: &'a mut State, path: &str) -> &'a mut Vec<u8> {
    match state.get_mut(path) {
        Some(Node::File(bytes)) => bytes,
        other => panic!("{path} is {other:?}"),
    }
}

/// Does an operation to a directory.
pub fn perform(root: &Path, op: &Op) -> io::Result<()> {
    let open = |path: &str| OpenOptions::new().write(true).open(root.join(path));
    match op {
        Op::Mkdir(path) => std::fs::create_dir(root.join(path)),
        Op::Rmdir(path) => std::fs::remove_dir(root.join(path)),
        Op::Create(path) => File::create_new(root.join(path)).map(drop),
        Op::Write(path, at, bytes) => {
            let written = open(path)?.write_at(bytes, *at)?;
            assert_eq!(written, bytes.len(), "{path}: a short write");
            Ok(())
        }
        Op::Truncate(path, len) => open(path)?.set_len(*len),
        Op::Rename(from, to) => std::fs::rename(root.join(from), root.join(to)),
        Op::Unlink(path) => std::fs::remove_file(root.join(path)),
        Op::Symlink(path, to) => std::os::unix::fs::symlink(to, root.join(path)),
        Op::Fsync(path) => open(path)?.sync_all(),
    }
}

/// The state that a directory is in.
pub fn read(root: &Path) -> State {
    let mut state = State::new();
    read_below(root, "", &mut state);
    state
}

fn read_below(root: &Path, dir: &str, state: &mut State) {
    for entry in std::fs::read_dir(root.join(dir)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if dir.is_empty() {
            name
        } else {
            format!("{dir}/{name}")
        };
        let kind = entry.file_type().unwrap();
        let node = if kind.is_dir() {
            read_below(root, &path, state);
            Node::Directory
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            Node::Link(target.into_os_string().into_string().unwrap())
        } else {
            Node::File(std::fs::read(entry.path()).unwrap())
        };
        state.insert(path, node);
    }
}

/// How many calls a log says were begun, and how many were answered.
pub fn counts(marks: &[u8]) -> (usize, usize) {
    let begun = marks.iter().filter(|mark| **mark == BEGUN).count();
    (begun, marks.len() - begun)
}

/// The number of calls after which the directory was in state `found`, looked for between `from`
/// and `to` calls; nothing where it was in no such state. A call without outcome is taken as done.
pub fn find(seed: u64, marks: &[u8], from: usize, to: usize, found: &State) -> Option<usize> {
    let outcomes: Vec<u8> = marks.iter().copied().filter(|m| *m != BEGUN).collect();
    let mut session = Session::new(seed);
    for calls in 0..=to {
        if calls >= from && session.state == *found {
            return Some(calls);
        }
        let op = session.choose();
        if outcomes.get(calls) != Some(&NO_SPACE) {
            session.apply(&op);
        }
    }
    None
}

/// The state up to call `to` that comes next to `found`, and how they differ: for a failure's message.
pub fn nearest(seed: u64, marks: &[u8], to: usize, found: &State) -> String {
    let outcomes: Vec<u8> = marks.iter().copied().filter(|m| *m != BEGUN).collect();
    let mut session = Session::new(seed);
    let mut best = (usize::MAX, String::new());
    for call in 0..=to {
        let differing = differing(&session.state, found);
        let op = session.choose();
        if differing.len() < best.0 {
            let text = format!("call {call}, before {}: {differing:#?}", brief(&op));
            best = (differing.len(), text);
        }
        if outcomes.get(call) != Some(&NO_SPACE) {
            session.apply(&op);
        }
    }
    best.1
}

fn differing(wanted: &State, found: &State) -> Vec<String> {
    let paths: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let pairs = paths.into_iter().map(|p| (p, wanted.get(p), found.get(p)));
    pairs
        .filter(|(_, wanted, found)| wanted != found)
        .map(|(path, wanted, found)| {
            let at = first_difference(wanted, found);
            format!("{path}: wanted {}, found {}{at}", kind(wanted), kind(found))
        })
        .collect()
}

fn first_difference(wanted: Option<&Node>, found: Option<&Node>) -> String {
    let (Some(Node::File(wanted)), Some(Node::File(found))) = (wanted, found) else {
        return String::new();
    };
    let differ = |(a, b): (&u8, &u8)| a != b;
    let count = wanted
        .iter()
        .zip(found)
        .filter(|pair| differ(*pair))
        .count();
    let first = wanted.iter().zip(found).position(differ);
    let last = wanted.iter().zip(found).rposition(differ);
    format!(", {count} bytes differ, from {first:?} to {last:?}")
}

fn brief(op: &Op) -> String {
    match op {
        Op::Write(path, at, bytes) => format!("Write({path}, {at}, {} bytes)", bytes.len()),
        op => format!("{op:?}"),
    }
}

fn kind(node: Option<&Node>) -> String {
    match node {
        Some(Node::File(bytes)) => format!("{} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_does_what_a_directory_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut session = Session::new(1);
        let mut marks = Vec::new();
        for _ in 0..400 {
            let op = session.choose();
            perform(dir.path(), &op).unwrap();
            session.apply(&op);
            marks.extend([BEGUN, DONE]);
        }
        let found = read(dir.path());
        assert!(found == session.state);
        assert_eq!(find(1, &marks, 400, 400, &found), Some(400));
        assert_eq!(find(1, &marks, 0, 300, &found), None);
    }
}
