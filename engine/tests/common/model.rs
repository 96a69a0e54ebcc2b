//! The plain model of a tree: inodes by number, directories as sorted maps, contents as bytes.

use super::content::Content;
use super::keys::Keys;
use engine::{Kind, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of the root.
pub const ROOT: u64 = 1;

/// A time that an inode shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Exactly this.
    At(Time),
    /// The clock's when it was changed, which was not before this; becomes exact when it is seen.
    Since(Time),
    /// Not known; becomes exact when it is seen.
    Any,
}

/// What an inode holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    File(Arc<Content>),
    Dir(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
    Special,
}

/// An inode.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub kind: Kind,
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub mtime: When,
    pub ctime: When,
    /// Shown number, once seen.
    pub ino: Option<u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub body: Body,
}

impl Node {
    /// Entries of a directory.
    pub fn dir(&self) -> Option<&BTreeMap<Vec<u8>, u64>> {
        match &self.body {
            Body::Dir(d) => Some(d),
            _ => None,
        }
    }

    /// Content of a file.
    pub fn file(&self) -> Option<&Arc<Content>> {
        match &self.body {
            Body::File(c) => Some(c),
            _ => None,
        }
    }

    /// What a commit keeps of it; numbers and ctime are not of it.
    pub fn kept(&self) -> Node {
        let mut n = self.clone();
        (n.ino, n.ctime) = (None, When::Any);
        if let Body::Dir(_) = n.body {
            n.body = Body::Special;
        }
        n
    }
}

/// A tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: BTreeMap<u64, Node>,
    pub kv: Keys,
}

impl Tree {
    /// An inode.
    pub fn get(&self, n: u64) -> Option<&Node> {
        self.nodes.get(&n)
    }

    /// An inode, to change it.
    pub fn at(&mut self, n: u64) -> &mut Node {
        self.nodes.get_mut(&n).unwrap()
    }

    /// Entries of a directory.
    pub fn dir(&self, n: u64) -> Option<&BTreeMap<Vec<u8>, u64>> {
        self.get(n)?.dir()
    }

    /// Entries of a directory, to change them.
    pub fn dir_mut(&mut self, n: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.at(n).body {
            Body::Dir(d) => d,
            _ => panic!("{n} is no directory"),
        }
    }

    /// Content of a file, to change it.
    pub fn file_mut(&mut self, n: u64) -> &mut Content {
        match &mut self.at(n).body {
            Body::File(c) => Arc::make_mut(c),
            _ => panic!("{n} is no file"),
        }
    }

    /// Every path with its inode, parents first.
    pub fn paths(&self) -> BTreeMap<Vec<u8>, u64> {
        let mut out = BTreeMap::from([(Vec::new(), ROOT)]);
        let mut work = vec![(Vec::new(), ROOT)];
        while let Some((path, dir)) = work.pop() {
            for (name, child) in self.dir(dir).into_iter().flatten() {
                let mut full: Vec<u8> = path.clone();
                if !full.is_empty() {
                    full.push(b'/');
                }
                full.extend_from_slice(name);
                if self.dir(*child).is_some() {
                    work.push((full.clone(), *child));
                }
                out.insert(full, *child);
            }
        }
        out
    }

    /// How many names each inode has.
    pub fn links(&self) -> BTreeMap<u64, u32> {
        let mut out = BTreeMap::from([(ROOT, 1)]);
        for node in self.nodes.values() {
            for child in node.dir().into_iter().flatten().map(|(_, c)| c) {
                *out.entry(*child).or_default() += 1;
            }
        }
        out
    }

    /// Directories, the root first.
    pub fn dirs(&self) -> Vec<u64> {
        let all = self.nodes.iter().filter(|(_, n)| n.dir().is_some());
        all.map(|(k, _)| *k).collect()
    }

    /// Inodes that `keep` wants.
    pub fn those(&self, keep: impl Fn(&Node) -> bool) -> Vec<u64> {
        let all = self.nodes.iter().filter(|(_, n)| keep(n));
        all.map(|(k, _)| *k).collect()
    }

    /// True where `dir` is `above` or below it.
    pub fn is_within(&self, dir: u64, above: u64) -> bool {
        dir == above
            || self
                .dir(above)
                .is_some_and(|d| d.values().any(|c| self.is_within(dir, *c)))
    }

    /// Removes inodes without a name.
    pub fn drop_orphans(&mut self) {
        loop {
            let links = self.links();
            let before = self.nodes.len();
            self.nodes.retain(|n, _| links.contains_key(n));
            if self.nodes.len() == before {
                return;
            }
        }
    }

    /// The first difference that a commit would show; `None` where there is none.
    pub fn difference(&self, other: &Tree) -> Option<String> {
        if self.kv != other.kv {
            return Some("the keys differ".to_owned());
        }
        let (a, b) = (self.paths(), other.paths());
        let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
        for path in a.keys().chain(b.keys()) {
            let shown = String::from_utf8_lossy(path).into_owned();
            let (Some(x), Some(y)) = (a.get(path), b.get(path)) else {
                return Some(format!("{shown:?} is only on one side"));
            };
            if *there.entry(*x).or_insert(*y) != *y || *back.entry(*y).or_insert(*x) != *x {
                return Some(format!("{shown:?} has other links"));
            }
            if self.nodes[x].kept() != other.nodes[y].kept() {
                return Some(format!("{shown:?} differs"));
            }
        }
        None
    }
}

/// The parts of a path's parent and name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(i) => (&path[..i], &path[i + 1..]),
        None => (b"", path),
    }
}
