//! A live tree with some paths taken from another state of the same branch.
//!
//! Names outside the paths keep their inodes as they are: a file that was moved out of the paths stays,
//! and what comes back under its old name is a copy. Names below the paths that are one file in the
//! source are one file again, and linked with a name outside where that is the same unchanged file. A
//! file that did not change is not touched, whatever further names it got. Only what differs is looked
//! at.

use crate::error::{Error, Result};
use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::tree::dirmap::{Dentry, DirMap, name_hash};
use crate::tree::inode::{Content, Dir, Inode};
use crate::types::{Kind, Nid, Time};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Why there is no tree yet.
#[derive(Debug)]
pub enum Blocked {
    /// These directories of the base must be read first.
    Dirs(Vec<Nid>),
    /// The base must be scanned first: a hard-linked file may have further names.
    Scan,
    /// It cannot be done.
    Failed(Error),
}

impl From<Error> for Blocked {
    fn from(e: Error) -> Blocked {
        Blocked::Failed(e)
    }
}

/// `live` with what lies at `paths` (and below) as it is in `source`; what `source` does not have there
/// is gone. `scanned` says whether all of the base is known.
///
/// [`Error::NoSuchPath`] for a path that neither has, [`Error::InTheWay`] where something that is no
/// directory stands in the place of a parent.
pub fn graft(
    live: &Tree,
    source: &Tree,
    paths: &[Vec<u8>],
    numbers: &mut dyn Numbers,
    now: Time,
    scanned: bool,
) -> Result<Tree, Blocked> {
    let dirty = Dirty::between(live, source);
    graft_dirty(live, (source, dirty), paths, numbers, now, scanned)
}

/// As [`graft`], once it is known where both differ.
pub fn graft_dirty(
    live: &Tree,
    (source, dirty): (&Tree, Dirty),
    paths: &[Vec<u8>],
    numbers: &mut dyn Numbers,
    now: Time,
    scanned: bool,
) -> Result<Tree, Blocked> {
    let mut job = Graft {
        live,
        source,
        tree: live.clone(),
        paths: outermost(paths),
        children: dirty.0,
        numbers,
        now,
        scanned,
        adds: Vec::new(),
        lazy: Vec::new(),
        given: HashMap::new(),
        groups: None,
    };
    for path in job.paths.clone() {
        job.take_away(&path)?;
    }
    let mut adds = std::mem::take(&mut job.adds);
    adds.sort_by(|a, b| a.order().cmp(&b.order()));
    for add in adds {
        job.bring_back(add)?;
    }
    if job.lazy.is_empty() {
        Ok(job.tree)
    } else {
        Err(Blocked::Dirs(job.lazy))
    }
}

/// The paths in order, without those that lie below another.
fn outermost(paths: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all: Vec<&Vec<u8>> = paths.iter().collect();
    all.sort();
    let mut out: Vec<Vec<u8>> = Vec::new();
    for path in all {
        if !out.iter().any(|top| is_at_or_below(path, top)) {
            out.push(path.clone());
        }
    }
    out
}

/// True where `path` is `top` or lies below it.
pub fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path == top || (path.starts_with(top) && path.get(top.len()) == Some(&b'/'))
}

/// Names below each directory, in either of two trees, at or below which something may differ.
#[derive(Debug, Default)]
pub struct Dirty(HashMap<Nid, HashSet<(u64, Nid)>>);

impl Dirty {
    /// Of a live tree and another state.
    pub fn between(live: &Tree, source: &Tree) -> Dirty {
        let mut dirty = Dirty::default();
        Tree::diff(live, source, &mut |nid, _, _| {
            dirty.add(nid, [live, source]);
        });
        dirty
    }

    /// An inode may differ, too.
    pub fn add(&mut self, nid: Nid, trees: [&Tree; 2]) {
        let children = &mut self.0;
        for tree in trees {
            for (parent, hash) in tree.get(nid).map_or_else(Vec::new, |i| i.names()) {
                children.entry(parent).or_default().insert((hash, nid));
                if let Some(up) = tree.get(parent) {
                    mark_up(tree, parent, up, children);
                }
            }
        }
    }
}

/// Marks a directory, and those above it, as dirty children of their parents.
fn mark_up(
    tree: &Tree,
    nid: Nid,
    inode: &Arc<Inode>,
    children: &mut HashMap<Nid, HashSet<(u64, Nid)>>,
) {
    let (mut nid, mut inode) = (nid, inode);
    while nid != Nid::ROOT {
        let parent = inode.parent;
        if !children
            .entry(parent)
            .or_default()
            .insert((inode.hash, nid))
        {
            return;
        }
        let Some(up) = tree.get(parent) else { return };
        (nid, inode) = (parent, up);
    }
}

/// Something of the source that comes under a name.
struct Add {
    /// Path of the directory.
    dir: Vec<u8>,
    name: Vec<u8>,
    /// Inode in the source.
    from: Nid,
    /// Inode of the same type that had the name: what comes takes its number, so that open descriptors
    /// follow, unless it goes on under another name.
    instead: Option<Nid>,
    /// It is one of the paths, so the directory around it was changed by hand, as it were.
    is_top: bool,
}

impl Add {
    /// Names that keep their numbers come first.
    fn order(&self) -> (bool, &[u8], &[u8]) {
        (self.instead.is_none(), &self.dir, &self.name)
    }
}

struct Graft<'a> {
    live: &'a Tree,
    source: &'a Tree,
    tree: Tree,
    paths: Vec<Vec<u8>>,
    children: HashMap<Nid, HashSet<(u64, Nid)>>,
    numbers: &'a mut dyn Numbers,
    now: Time,
    scanned: bool,
    adds: Vec<Add>,
    /// Directories of the base that must be read first.
    lazy: Vec<Nid>,
    /// Numbers of source inodes that were brought back.
    given: HashMap<Nid, Nid>,
    /// Hard-link groups that the tree has, once needed.
    groups: Option<HashSet<u64>>,
}

/// Where a path leads in a tree.
enum Resolved {
    /// To this, in this directory.
    There(Nid, Dentry),
    /// To nothing; the last existing directory may lack more than the name.
    Missing,
    /// Something on the way, named here, is no directory.
    Blocked(Vec<u8>),
}

fn resolve(tree: &Tree, path: &[u8]) -> Result<Resolved, Blocked> {
    let mut dir = Nid::ROOT;
    let mut parts = path.split(|b| *b == b'/').peekable();
    let mut walked: Vec<u8> = Vec::new();
    while let Some(name) = parts.next() {
        let here = match tree.dir(dir) {
            Ok(here) => here,
            Err(Error::NotDir) => return Ok(Resolved::Blocked(walked)),
            Err(e) => return Err(e.into()),
        };
        if here.is_lazy() {
            return Err(Blocked::Dirs(vec![dir]));
        }
        let Some(entry) = here.map.get(name) else {
            return Ok(Resolved::Missing);
        };
        if parts.peek().is_none() {
            return Ok(Resolved::There(dir, entry));
        }
        join_to(&mut walked, name);
        dir = entry.nid;
    }
    Ok(Resolved::Missing)
}

fn join_to(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

impl Graft<'_> {
    /// Compares both trees at a path; takes away what must go and notes what must come.
    fn take_away(&mut self, path: &[u8]) -> Result<(), Blocked> {
        let (dir, name) = split(path);
        let wanted = resolve(self.source, path)?;
        let here = resolve(&self.tree, path)?;
        let add = |from| Add {
            dir: dir.to_vec(),
            name: name.to_vec(),
            from,
            instead: None,
            is_top: true,
        };
        match (here, wanted) {
            (Resolved::There(parent, a), Resolved::There(_, b)) => {
                self.replace(parent, name, a, b, dir, true)
            }
            (Resolved::There(parent, a), _) => {
                self.touch(parent);
                self.drop_name(parent, name, a)
            }
            (Resolved::Missing, Resolved::There(_, b)) => {
                self.adds.push(add(b.nid));
                Ok(())
            }
            (Resolved::Blocked(what), Resolved::There(..)) => Err(Error::InTheWay(what).into()),
            _ => Err(Error::NoSuchPath(path.to_vec()).into()),
        }
    }

    /// A name that both have.
    fn replace(
        &mut self,
        parent: Nid,
        name: &[u8],
        a: Dentry,
        b: Dentry,
        dir: &[u8],
        is_top: bool,
    ) -> Result<(), Blocked> {
        if a.kind == Kind::Dir && b.kind == Kind::Dir {
            let mut path = dir.to_vec();
            join_to(&mut path, name);
            return self.merge(a.nid, b.nid, path);
        }
        if a.nid == b.nid && self.is_the_same(a.nid) {
            return Ok(());
        }
        if is_top {
            self.touch(parent);
        }
        self.adds.push(Add {
            dir: dir.to_vec(),
            name: name.to_vec(),
            from: b.nid,
            instead: (a.kind == b.kind).then_some(a.nid),
            is_top,
        });
        self.drop_name(parent, name, a)
    }

    /// True for an inode that both have alike, whatever links it has.
    fn is_the_same(&self, nid: Nid) -> bool {
        let both = (self.live.get(nid), self.source.get(nid));
        matches!(both, (Some(a), Some(b)) if a.alike_but_links(b))
    }

    /// Whether the source, too, has this inode at the path that a name of it has in `tree`.
    fn is_named_alike(&self, tree: &Tree, nid: Nid, name: (Nid, u64)) -> bool {
        let path = tree.path_of_name(nid, name);
        path.is_some_and(|path| self.source.resolve(&path).is_ok_and(|there| there == nid))
    }

    /// Directories at the same path.
    fn merge(&mut self, live: Nid, source: Nid, path: Vec<u8>) -> Result<(), Blocked> {
        let mut work = vec![(live, source, path)];
        while let Some((l, s, path)) = work.pop() {
            let (Some(a), Some(b)) = (self.tree.get(l).cloned(), self.source.get(s)) else {
                continue;
            };
            let (Some(x), Some(y)) = (a.dir(), b.dir()) else {
                continue;
            };
            self.set_attributes(l, &a, b);
            if x.is_lazy() || y.is_lazy() {
                let lazy = [(l, x), (s, y)].into_iter().filter(|(_, d)| d.is_lazy());
                let same = l == s && x.away == y.away;
                if !same || (x.away && x.stored != y.stored) {
                    self.lazy.extend(lazy.map(|(nid, _)| nid));
                }
                continue;
            }
            for (name, a, b) in self.pairs(l, s, &x.map, &y.map) {
                match (a, b) {
                    (Some(a), Some(b)) if a.kind == Kind::Dir && b.kind == Kind::Dir => {
                        let mut below = path.clone();
                        join_to(&mut below, &name);
                        work.push((a.nid, b.nid, below));
                    }
                    (Some(a), Some(b)) => self.replace(l, &name, a, b, &path, false)?,
                    (Some(a), None) => self.drop_name(l, &name, a)?,
                    (None, Some(b)) => self.adds.push(Add {
                        dir: path.clone(),
                        name,
                        from: b.nid,
                        instead: None,
                        is_top: false,
                    }),
                    (None, None) => {}
                }
            }
        }
        Ok(())
    }

    /// Names of two directories at or below which something may differ.
    fn pairs(&self, l: Nid, s: Nid, x: &DirMap, y: &DirMap) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        if l != s {
            for e in x.entries() {
                let other = y.get_hashed(e.hash, e.name);
                pairs.push((e.name.to_vec(), Some(e.entry), other));
            }
            let only = |e: &crate::tree::dirmap::Named<'_>| x.get_hashed(e.hash, e.name).is_none();
            for e in y.entries().into_iter().filter(only) {
                pairs.push((e.name.to_vec(), None, Some(e.entry)));
            }
            return pairs;
        }
        DirMap::diff(x, y, &mut |name, a, b| pairs.push((name.to_vec(), a, b)));
        for (hash, nid) in self.children.get(&l).into_iter().flatten() {
            if let Some(name) = x.name_of(*hash, *nid)
                && let (Some(a), Some(b)) = (x.get_hashed(*hash, name), y.get_hashed(*hash, name))
                && a == b
            {
                pairs.push((name.to_vec(), Some(a), Some(b)));
            }
        }
        pairs
    }

    fn set_attributes(&mut self, nid: Nid, a: &Inode, b: &Inode) {
        let now = self.now;
        let of = |i: &Inode| (i.mode, i.uid, i.gid, i.mtime);
        if of(a) == of(b) && a.xattrs_alike(b) {
            return;
        }
        self.tree.update(nid, |i| {
            (i.mode, i.uid, i.gid, i.mtime) = of(b);
            i.xattrs = b.xattrs.clone();
            i.ctime = now;
        });
    }

    /// A directory in which a path itself came or went.
    fn touch(&mut self, dir: Nid) {
        let now = self.now;
        self.tree.update(dir, |i| (i.mtime, i.ctime) = (now, now));
    }

    fn drop_name(&mut self, dir: Nid, name: &[u8], e: Dentry) -> Result<(), Blocked> {
        self.tree.update(dir, |i| {
            let d = i.dir_mut()?;
            d.subdirs = d.subdirs.saturating_sub(u32::from(e.kind == Kind::Dir));
            d.map.remove(name)
        });
        if e.kind != Kind::Dir {
            return self.drop_names(e.nid, &[(dir, name_hash(name))]);
        }
        let is_dir = |nid: &Nid| self.tree.get(*nid).is_some_and(|i| i.dir().is_some());
        let (dirs, files): (Vec<Nid>, Vec<Nid>) =
            self.tree.subtree(e.nid).into_iter().partition(is_dir);
        for nid in dirs {
            self.tree.remove(nid);
        }
        for nid in files {
            let names = self.tree.get(nid).map_or_else(Vec::new, |i| i.names());
            let gone: Vec<_> = names
                .into_iter()
                .filter(|(p, _)| self.tree.get(*p).is_none())
                .collect();
            self.drop_names(nid, &gone)?;
        }
        Ok(())
    }

    fn drop_names(&mut self, nid: Nid, names: &[(Nid, u64)]) -> Result<(), Blocked> {
        self.check_known(self.tree.get(nid))?;
        let left = self.tree.update(nid, |i| {
            names.iter().for_each(|(p, h)| i.drop_name(*p, *h));
            i.nlink
        });
        if left == Some(0) {
            self.tree.remove(nid);
        }
        Ok(())
    }

    /// A file of the base with several links may be touched only once all its names are known.
    fn check_known(&self, inode: Option<&Arc<Inode>>) -> Result<(), Blocked> {
        if !self.scanned && inode.is_some_and(|i| i.links.is_some()) {
            return Err(Blocked::Scan);
        }
        Ok(())
    }

    fn bring_back(&mut self, add: Add) -> Result<(), Blocked> {
        let dir = self.parent(&add.dir)?;
        if add.is_top && self.live.get(dir).is_some_and(|i| i.dir().is_some()) {
            self.touch(dir);
        }
        let mut work = vec![(dir, add.name, add.from, add.instead)];
        while let Some((dir, name, from, instead)) = work.pop() {
            let Some(inode) = self.source.get(from) else {
                continue;
            };
            let Some(d) = inode.dir() else {
                self.add_file(dir, &name, (from, instead), inode)?;
                continue;
            };
            if d.is_lazy() {
                self.lazy.push(from);
                continue;
            }
            let nid = self.add_dir(dir, &name, from, inode);
            let below = d.map.entries().into_iter();
            work.extend(below.map(|e| (nid, e.name.to_vec(), e.entry.nid, None)));
        }
        Ok(())
    }

    /// The directory at a path, made as the source has it where it is missing.
    fn parent(&mut self, path: &[u8]) -> Result<Nid, Blocked> {
        let (mut dir, mut walked) = (Nid::ROOT, Vec::new());
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            join_to(&mut walked, name);
            dir = match self.tree.lookup(dir, name) {
                Ok(e) => e.nid,
                Err(_) => {
                    let from = self.source.resolve(&walked)?;
                    let inode = self.source.inode(from)?;
                    self.add_dir(dir, name, from, inode)
                }
            };
        }
        Ok(dir)
    }

    fn add_dir(&mut self, dir: Nid, name: &[u8], from: Nid, inode: &Arc<Inode>) -> Nid {
        let unreadable = inode.dir().is_some_and(|d| d.unreadable);
        let mut made = Dir::new(DirMap::default(), 0);
        made.unreadable = unreadable;
        let mut new = (**inode).clone();
        (new.nlink, new.content) = (0, Content::Dir(Box::new(made)));
        let nid = self.insert(from, None, new);
        self.add_name(dir, name, nid, 0);
        nid
    }

    /// Puts an inode in under the number of what it replaces, else its own, else a fresh one, whichever
    /// is not in use.
    fn insert(&mut self, from: Nid, instead: Option<Nid>, mut inode: Inode) -> Nid {
        let free = |nid: &Nid| self.tree.get(*nid).is_none_or(|i| i.nlink == 0);
        let nid = match instead.filter(free).or(Some(from).filter(free)) {
            Some(nid) => {
                inode.ino = self.live.get(nid).map_or(inode.ino, |was| was.ino);
                nid
            }
            None => {
                let (nid, ino) = self.numbers.next();
                inode.ino = ino;
                nid
            }
        };
        self.tree.set(nid, Arc::new(inode));
        nid
    }

    fn add_file(
        &mut self,
        dir: Nid,
        name: &[u8],
        (from, instead): (Nid, Option<Nid>),
        inode: &Arc<Inode>,
    ) -> Result<(), Blocked> {
        self.check_known(Some(inode))?;
        let group = inode.group();
        let nid = match self.given.get(&from) {
            Some(nid) => *nid,
            None if self.may_join(from, inode) => from,
            None => {
                let mut new = (**inode).clone();
                (new.nlink, new.links) = (0, None);
                self.insert(from, instead, new)
            }
        };
        let group = match self.tree.get(nid) {
            Some(i) if i.nlink > 0 && i.links.is_none() => self.free_group(group),
            _ => group,
        };
        self.given.insert(from, nid);
        self.add_name(dir, name, nid, group);
        Ok(())
    }

    /// Whether the inode that has this number now is the same unchanged file, and has one of the names
    /// that it has in the source.
    fn may_join(&self, from: Nid, inode: &Inode) -> bool {
        let Some(here) = self.tree.get(from) else {
            return false;
        };
        let shared = |n| self.is_named_alike(&self.tree, from, n);
        here.nlink > 0 && here.alike_but_links(inode) && here.names().into_iter().any(shared)
    }

    /// `group`, or another number where another file has that one.
    fn free_group(&mut self, group: u64) -> u64 {
        let tree = &self.tree;
        let groups = self.groups.get_or_insert_with(|| {
            let mut groups = HashSet::new();
            tree.for_each(&mut |_, i| {
                groups.extend(i.links.as_ref().map(|l| l.group));
            });
            groups
        });
        let mut group = group;
        if group == 0 || !groups.insert(group) {
            group = self.numbers.next().1;
            groups.insert(group);
        }
        group
    }

    fn add_name(&mut self, dir: Nid, name: &[u8], nid: Nid, group: u64) {
        let Some(kind) = self.tree.update(nid, |i| {
            i.add_name(dir, name_hash(name), group);
            i.kind()
        }) else {
            return;
        };
        self.tree.update(dir, |i| {
            if let Some(d) = i.dir_mut() {
                d.map.insert(name, Dentry { nid, kind });
                d.subdirs += u32::from(kind == Kind::Dir);
            }
        });
    }
}

type Pair = (Vec<u8>, Option<Dentry>, Option<Dentry>);

#[cfg(test)]
mod tests;
