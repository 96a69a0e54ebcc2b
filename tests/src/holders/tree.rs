//! The model: directories and files by number, whoever has a name or is held without one.

use super::update::Files;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of an inode; numbers are never used again.
pub type Number = u64;
/// The root.
pub const ROOT: Number = 0;

/// An inode.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Names with numbers.
    Dir(BTreeMap<String, Number>),
    /// Bytes.
    File(Vec<u8>),
}

/// A tree, with what has no name any more.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All inodes.
    pub nodes: BTreeMap<Number, Node>,
    /// What the last update that this descends from found in the project's root, of what steps put there.
    pub base: Arc<Files>,
}

/// Directory and name of a path.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Default for Tree {
    fn default() -> Tree {
        let root = Node::Dir(BTreeMap::new());
        Tree {
            nodes: BTreeMap::from([(ROOT, root)]),
            base: Arc::default(),
        }
    }
}

impl Tree {
    /// Entries of a directory.
    pub fn dir(&self, n: Number) -> Option<&BTreeMap<String, Number>> {
        match self.nodes.get(&n) {
            Some(Node::Dir(names)) => Some(names),
            _ => None,
        }
    }

    /// Bytes of a file.
    pub fn file(&self, n: Number) -> Option<&Vec<u8>> {
        match self.nodes.get(&n) {
            Some(Node::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Bytes of a file, to change them.
    pub fn bytes(&mut self, n: Number) -> &mut Vec<u8> {
        match self.nodes.get_mut(&n) {
            Some(Node::File(bytes)) => bytes,
            other => panic!("{n} is {other:?}"),
        }
    }

    /// Entries of a directory, to change them.
    pub fn names(&mut self, n: Number) -> &mut BTreeMap<String, Number> {
        match self.nodes.get_mut(&n) {
            Some(Node::Dir(names)) => names,
            other => panic!("{n} is {other:?}"),
        }
    }

    /// What a path names.
    pub fn find(&self, path: &str) -> Option<Number> {
        let parts = path.split('/').filter(|p| !p.is_empty());
        let mut at = ROOT;
        for part in parts {
            at = *self.dir(at)?.get(part)?;
        }
        Some(at)
    }

    /// Every path but the root's, with what it names.
    pub fn paths(&self) -> BTreeMap<String, Number> {
        let (mut out, mut work) = (BTreeMap::new(), vec![(String::new(), ROOT)]);
        while let Some((path, n)) = work.pop() {
            for (name, child) in self.dir(n).into_iter().flatten() {
                let full = match path.is_empty() {
                    true => name.clone(),
                    false => format!("{path}/{name}"),
                };
                work.push((full.clone(), *child));
                out.insert(full, *child);
            }
        }
        out
    }

    /// Gives a number a path, whose directory exists; what had it loses it.
    pub fn put(&mut self, path: &str, n: Number) {
        let (dir, name) = split(path);
        let dir = self.find(dir).unwrap();
        self.names(dir).insert(name.to_owned(), n);
    }

    /// Takes a path away.
    pub fn take(&mut self, path: &str) -> Number {
        let (dir, name) = split(path);
        let dir = self.find(dir).unwrap();
        self.names(dir).remove(name).unwrap()
    }

    /// What has a name, alone.
    pub fn named(&self) -> Tree {
        let mut out = Tree {
            base: self.base.clone(),
            ..Tree::default()
        };
        for n in self.paths().into_values().chain([ROOT]) {
            out.nodes.insert(n, self.nodes[&n].clone());
        }
        out
    }

    /// The same paths with the same kinds and bytes.
    pub fn shows(&self, other: &Tree) -> bool {
        let (a, b) = (self.paths(), other.paths());
        a.keys().eq(b.keys()) && a.iter().all(|(p, n)| self.file(*n) == other.file(b[p]))
    }

    /// This tree made into `target`: names of one kind in both keep their inode, the others get a new
    /// one; what has no name any more stays as it is for who holds it.
    pub fn made_into(&self, target: &Tree, next: &mut Number) -> Tree {
        let mut out = self.clone();
        out.base = target.base.clone();
        out.nodes.values_mut().for_each(|node| {
            if let Node::Dir(names) = node {
                names.clear();
            }
        });
        let mut work = vec![(Some(ROOT), ROOT, ROOT)];
        while let Some((live, from, number)) = work.pop() {
            let Some(children) = target.dir(from) else {
                out.nodes.insert(number, target.nodes[&from].clone());
                continue;
            };
            let mut names = BTreeMap::new();
            for (name, child) in children {
                let here = live.and_then(|l| self.dir(l)?.get(name).copied());
                let is_file = |tree: &Tree, n: Number| tree.file(n).is_some();
                let here = here.filter(|n| is_file(self, *n) == is_file(target, *child));
                *next += u64::from(here.is_none());
                let number = here.unwrap_or(*next);
                names.insert(name.clone(), number);
                work.push((here, *child, number));
            }
            out.nodes.insert(number, Node::Dir(names));
        }
        out
    }

    /// This tree with what `source` has at a path, and with the directories that it lacks on the way; `None`
    /// where something else is in the way.
    pub fn with_path(&self, source: &Tree, path: &str, next: &mut Number) -> Option<Tree> {
        let mut out = self.named();
        let (dir, name) = split(path);
        let Some(from) = source.find(path) else {
            let dir = out.find(dir)?;
            out.names(dir).remove(name)?;
            return Some(out);
        };
        let mut at = ROOT;
        for part in dir.split('/').filter(|p| !p.is_empty()) {
            at = match out.dir(at)?.get(part) {
                Some(n) => *n,
                None => {
                    *next += 1;
                    out.names(at).insert(part.to_owned(), *next);
                    out.nodes.insert(*next, Node::Dir(BTreeMap::new()));
                    *next
                }
            };
        }
        out.dir(at)?;
        let copy = out.copied(source, from, next);
        out.names(at).insert(name.to_owned(), copy);
        Some(out)
    }

    fn copied(&mut self, source: &Tree, from: Number, next: &mut Number) -> Number {
        *next += 1;
        let number = *next;
        let node = match source.dir(from) {
            None => source.nodes[&from].clone(),
            Some(names) => Node::Dir(
                names
                    .iter()
                    .map(|(name, n)| (name.clone(), self.copied(source, *n, next)))
                    .collect(),
            ),
        };
        self.nodes.insert(number, node);
        number
    }
}
