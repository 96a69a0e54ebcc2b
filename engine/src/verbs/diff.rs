//! What differs between two states of a branch, by path.

use super::{Change, DiffSide, StateReader};
use crate::branch::{Branch, away, load};
use crate::change::graft::is_at_or_below;
use crate::change::transition::differs;
use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::file::Body;
use crate::tree::inode::{Content, Inode};
use crate::types::{Kind, Nid, Wait};
use crate::verbs::state_reader;
use crate::workspace::Workspace;
use objstore::TreeId;
use objstore::elsewhere::only_here;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

/// Bytes compared at a time.
const COMPARE_BYTES: usize = 256 << 10;

/// Whether the content of two inodes of one type is the same.
type SameContent<'a, E> = &'a dyn Fn(&Inode, &Inode) -> Result<bool, E>;

/// State that a side other than the live tree means.
pub(super) fn state_of(branch: &Branch, side: &DiffSide) -> Result<u64> {
    let inner = branch.lock();
    match side {
        DiffSide::Ref(text) => inner.book.history.resolve(&branch.name(), text),
        DiffSide::Base | DiffSide::Live => {
            let first = inner.book.history.states.keys().next().copied();
            first.ok_or(Error::NoSuchRef("base".into()))
        }
    }
}

/// Differences between two trees of this branch.
pub(crate) fn changes(
    branch: &Branch,
    a: &Tree,
    b: &Tree,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    if !differs(a, b) {
        return Ok(Vec::new());
    }
    let (a, b) = bring_moved(branch, a, b)?;
    let rows = rows(&a, &b, &|x, y| same_content(branch, x, y))?;
    let changes = rows.into_iter().map(|row| row.change);
    let mut out: Vec<Change> = changes.filter(|c| wanted(c, paths)).collect();
    out.sort();
    Ok(out)
}

/// Both trees with the entries of directories that are away and that are named otherwise in the other one, or known there.
fn bring_moved(branch: &Branch, a: &Tree, b: &Tree) -> Result<(Tree, Tree)> {
    let (mut a, mut b) = (a.clone(), b.clone());
    while let Some((nid, id)) = away_moved(&a, &b).or_else(|| away_moved(&b, &a)) {
        away::bring(branch, nid, id)?;
        let inner = branch.lock();
        inner.brought.catch_up(&mut a);
        inner.brought.catch_up(&mut b);
        drop(inner);
        if [&a, &b].iter().any(|tree| tree.away(nid) == Some(id)) {
            return Err(load::still_unknown(branch, nid));
        }
    }
    Ok((a, b))
}

/// As far as that asks no remote, makes the live tree and `target` know the same directories where they differ: one that is away
/// here and known there counts as different, whatever its entries are.
pub(crate) fn learn_here(branch: &Branch, target: &Tree) {
    let live = {
        let inner = branch.lock();
        if !inner.brought.is_any_away {
            return;
        }
        inner.live.clone()
    };
    if differs(&live, target) {
        let _here = only_here();
        // Best effort: what is not here is taken as different.
        let _ = bring_moved(branch, &live, target);
    }
}

/// Compares by sources first, by bytes where that leaves it open.
fn same_content(branch: &Branch, a: &Inode, b: &Inode) -> Result<bool> {
    if let Some(same) = same_sources(a, b) {
        return Ok(same);
    }
    let (Content::File(x), Content::File(y)) = (&a.content, &b.content) else {
        return Ok(false);
    };
    if let (Some(Body::Stored(x)), Some(Body::Stored(y))) = (plain_body(a), plain_body(b)) {
        return Ok(objstore::same_bytes(&branch.places.store, x, y)?);
    }
    let (mut p, mut q) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut at = 0;
    while at < a.size {
        let n = (a.size - at).min(COMPARE_BYTES as u64) as usize;
        branch.places.read(x, at, &mut p[..n], Wait::Allowed)?;
        branch.places.read(y, at, &mut q[..n], Wait::Allowed)?;
        if p[..n] != q[..n] {
            return Ok(false);
        }
        at += n as u64;
    }
    Ok(true)
}

/// Names whose entry or content differs between two trees of a branch: the rows of a diff that are not of
/// directories, so a renamed file counts once. No file is read: one that was written anew with the bytes
/// and the time that it had counts until it is stored.
pub(super) fn files_changed(a: &Tree, b: &Tree) -> u64 {
    if !differs(a, b) {
        return 0;
    }
    let by_sources = |x: &Inode, y: &Inode| Ok::<_, Infallible>(same_sources(x, y) == Some(true));
    let Ok(rows) = rows(a, b, &by_sources);
    rows.iter().filter(|row| !row.is_dir).count() as u64
}

/// Whether two contents are the same, as far as their sources tell.
fn same_sources(a: &Inode, b: &Inode) -> Option<bool> {
    if a.content_alike(b) {
        return Some(a.size == b.size);
    }
    if a.size != b.size || a.file().is_none() || b.file().is_none() {
        return Some(false);
    }
    match (plain_body(a), plain_body(b)) {
        // Of other forms of the same bytes the store knows.
        (Some(Body::Stored(c)), Some(Body::Stored(d))) if c == d => Some(true),
        _ => None,
    }
}

/// One difference.
struct Row {
    change: Change,
    /// It is of directories alone.
    is_dir: bool,
}

/// Differences between two trees, by path.
fn rows<E>(a: &Tree, b: &Tree, same_content: SameContent<'_, E>) -> Result<Vec<Row>, E> {
    let (old, new) = (named(a, b), named(b, a));
    let all: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
    let mut out = Vec::new();
    for path in all {
        let (was, now) = (old.get(path), new.get(path));
        if let Some(status) = status_of(was, now, same_content)? {
            let change = Change {
                path: path.clone(),
                status,
                old_path: None,
            };
            let is_dir = [was, now].into_iter().flatten().all(Found::is_dir);
            out.push(Row { change, is_dir });
        }
    }
    join_renames(&mut out, &old, &new);
    Ok(out)
}

fn status_of<E>(
    old: Option<&Found>,
    new: Option<&Found>,
    same_content: SameContent<'_, E>,
) -> Result<Option<char>, E> {
    Ok(match (old, new) {
        (None, None) => None,
        (None, Some(n)) => n.is_shown().then_some('A'),
        (Some(o), None) => o.is_shown().then_some('D'),
        (Some(o), Some(n)) if o.inode.kind() != n.inode.kind() => Some('T'),
        (Some(o), Some(n)) => modified(o, n, same_content)?.then_some('M'),
    })
}

fn modified<E>(old: &Found, new: &Found, same_content: SameContent<'_, E>) -> Result<bool, E> {
    let (a, b) = (&*old.inode, &*new.inode);
    if a.kind() == Kind::Dir {
        let owner = |i: &Inode| (i.mode, i.uid, i.gid);
        return Ok(owner(a) != owner(b) || a.xattrs.as_deref() != b.xattrs.as_deref());
    }
    let same_but_content = {
        let mut x = a.clone();
        x.content = b.content.clone();
        x.size = b.size;
        old.group == new.group && x.alike_but_links(b)
    };
    Ok(!same_but_content || !same_content(a, b)?)
}

impl StateReader {
    /// Differences from this state to another of the same branch, sorted by path; with `paths`, only at
    /// or below these.
    pub fn changes(&self, to: &StateReader, paths: &[Vec<u8>]) -> Result<Vec<Change>> {
        self.with(|from| changes(self.branch(), from, &to.tree()?, paths))
    }
}

fn plain_body(i: &Inode) -> Option<&Body> {
    let f = i.file()?;
    (f.is_plain() && f.body().1 == i.size).then_some(f.body().0)
}

/// An inode under a path.
struct Found {
    nid: Nid,
    inode: Arc<Inode>,
    /// Its hard-link group.
    group: u64,
}

impl Found {
    /// Directories show only where they are empty: else what is in them does.
    fn is_shown(&self) -> bool {
        self.inode.dir().is_none_or(|d| d.map.is_empty())
    }

    fn is_dir(&self) -> bool {
        self.inode.kind() == Kind::Dir
    }
}

/// A directory that is away, and whose entries are named otherwise in `tree` than in `other`, or are known there.
fn away_moved(tree: &Tree, other: &Tree) -> Option<(Nid, TreeId)> {
    let (shown, moved) = differing(tree, other);
    let known = shown.into_iter().filter(|nid| {
        let there = other.get(*nid).and_then(|inode| inode.dir());
        there.is_some_and(|_| tree.away(*nid) != other.away(*nid))
    });
    let mut all = known.chain(all_below(tree, moved));
    all.find_map(|nid| Some((nid, tree.away(nid)?)))
}

/// Inodes of `tree` that differ from `other`, and those that have other paths with all below them.
fn differing(tree: &Tree, other: &Tree) -> (Vec<Nid>, Vec<Nid>) {
    let mut shown: Vec<Nid> = Vec::new();
    let mut moved: Vec<Nid> = Vec::new();
    Tree::diff(other, tree, &mut |nid, was, now| {
        let Some(inode) = now.filter(|i| i.nlink > 0) else {
            return;
        };
        shown.push(nid);
        let names = |i: &Inode| (i.parent, i.hash);
        if inode.dir().is_some() && was.is_none_or(|w| names(w) != names(inode)) {
            moved.push(nid);
        }
        // Names that the other side has for inodes that did not change themselves.
        if let (Some(d), Some(w)) = (inode.dir(), was.and_then(|w| w.dir())) {
            DirMap::diff(&w.map, &d.map, &mut |_, _, e| {
                moved.extend(e.map(|e| e.nid));
            });
        }
    });
    (shown, moved)
}

/// Every path of `tree` whose inode, or one above it, differs from `other`.
fn named(tree: &Tree, other: &Tree) -> BTreeMap<Vec<u8>, Found> {
    let (mut shown, moved) = differing(tree, other);
    shown.extend(all_below(tree, moved));
    let mut paths = Paths::new(tree);
    let mut out = BTreeMap::new();
    for nid in shown {
        let Some(inode) = tree.get(nid) else { continue };
        for name in inode.names() {
            if let Some(path) = paths.of_name(nid, name).filter(|p| !p.is_empty()) {
                let found = Found {
                    nid,
                    inode: inode.clone(),
                    group: tree.group_of(inode),
                };
                out.insert(path, found);
            }
        }
    }
    out
}

/// The inodes `tops` and all below them, each once.
fn all_below(tree: &Tree, tops: Vec<Nid>) -> HashSet<Nid> {
    let (mut seen, mut work) = (HashSet::new(), tops);
    while let Some(nid) = work.pop() {
        if seen.insert(nid)
            && let Some(dir) = tree.get(nid).and_then(|i| i.dir())
        {
            work.extend(dir.map.entries().iter().map(|e| e.entry.nid));
        }
    }
    seen
}

/// Paths of a tree, each directory's found once.
struct Paths<'a> {
    tree: &'a Tree,
    /// Of directories; `None` for one that is not below the root.
    dirs: HashMap<Nid, Option<Vec<u8>>>,
}

impl<'a> Paths<'a> {
    fn new(tree: &'a Tree) -> Paths<'a> {
        let dirs = HashMap::from([(Nid::ROOT, Some(Vec::new()))]);
        Paths { tree, dirs }
    }

    /// As [`Tree::path_of_name`].
    fn of_name(&mut self, nid: Nid, name: (Nid, u64)) -> Option<Vec<u8>> {
        if nid == Nid::ROOT {
            return Some(Vec::new());
        }
        let tree = self.tree;
        joined(tree, self.of_dir(name.0)?, nid, name)
    }

    fn of_dir(&mut self, dir: Nid) -> Option<&Vec<u8>> {
        // Up to one that is known, and down again.
        let (mut chain, mut at) = (Vec::new(), dir);
        while !self.dirs.contains_key(&at) {
            // Until its own path is found; a loop ends here.
            self.dirs.insert(at, None);
            chain.push(at);
            at = self.tree.get(at)?.parent;
        }
        for nid in chain.into_iter().rev() {
            let inode = self.tree.get(nid)?;
            let above = self.dirs.get(&inode.parent)?.as_ref()?;
            let path = joined(self.tree, above, nid, (inode.parent, inode.hash));
            self.dirs.insert(nid, path);
        }
        self.dirs.get(&dir)?.as_ref()
    }
}

/// The path of a name in a directory whose path is `above`.
fn joined(tree: &Tree, above: &[u8], nid: Nid, name: (Nid, u64)) -> Option<Vec<u8>> {
    let name = tree.get(name.0)?.dir()?.map.name_of(name.1, nid)?;
    let mut path = Vec::with_capacity(above.len() + 1 + name.len());
    path.extend_from_slice(above);
    if !above.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(path)
}

/// A deleted and an added file with the same inode, or the same stored content, are one rename.
fn join_renames(
    rows: &mut Vec<Row>,
    old: &BTreeMap<Vec<u8>, Found>,
    new: &BTreeMap<Vec<u8>, Found>,
) {
    let key_of = |f: &Found| match plain_body(&f.inode) {
        Some(Body::Stored(c)) if f.inode.size > 0 => Some(format!("{c:?}")),
        _ => None,
    };
    let mut by_nid: HashMap<Nid, Vec<u8>> = HashMap::new();
    let mut by_content: HashMap<String, Vec<u8>> = HashMap::new();
    let changes = rows.iter().map(|row| &row.change);
    for c in changes.filter(|c| c.status == 'D') {
        if let Some(f) = old.get(&c.path).filter(|f| f.inode.kind() != Kind::Dir) {
            by_nid.insert(f.nid, c.path.clone());
            if let Some(key) = key_of(f) {
                by_content.insert(key, c.path.clone());
            }
        }
    }
    let mut gone: BTreeSet<Vec<u8>> = BTreeSet::new();
    let changes = rows.iter_mut().map(|row| &mut row.change);
    for c in changes.filter(|c| c.status == 'A') {
        let Some(f) = new.get(&c.path).filter(|f| f.inode.kind() != Kind::Dir) else {
            continue;
        };
        let from = by_nid
            .get(&f.nid)
            .cloned()
            .or_else(|| key_of(f).and_then(|k| by_content.get(&k).cloned()));
        if let Some(from) = from.filter(|p| gone.insert(p.clone())) {
            (c.status, c.old_path) = ('R', Some(from));
        }
    }
    rows.retain(|row| row.change.status != 'D' || !gone.contains(&row.change.path));
}

fn wanted(c: &Change, paths: &[Vec<u8>]) -> bool {
    let hit = |p: &[u8]| paths.iter().any(|top| is_at_or_below(p, top));
    paths.is_empty() || hit(&c.path) || c.old_path.as_deref().is_some_and(hit)
}

/// Differences between two sides, sorted by path.
pub fn diff(
    ws: &Workspace,
    branch: &str,
    from: &DiffSide,
    to: &DiffSide,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let (old, new) = (
        state_reader::read_state(ws, branch, from)?,
        state_reader::read_state(ws, branch, to)?,
    );
    old.changes(&new, paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::load::inode_of_entry;
    use crate::tree::away::Load;
    use crate::tree::inode::Dir;
    use crate::types::{Time, mode};
    use objstore::{Body as StoredBody, Meta, TreeEntry};

    fn dir(name: &str, id: TreeId) -> Inode {
        let entry = TreeEntry {
            name: name.into(),
            meta: Meta {
                mode: mode::DIR | 0o755,
                ..Meta::default()
            },
            body: StoredBody::Dir(Some(id)),
        };
        inode_of_entry(&entry, Nid::ROOT, 1, Time::default()).unwrap()
    }

    #[test]
    fn a_directory_that_one_tree_alone_knows_is_brought() {
        let ids = [1u8, 2].map(|n| TreeId::from_bytes([n; 32]));
        let mut root = dir("", ids[0]);
        root.content = Content::Dir(Box::new(Dir::new(DirMap::default(), 0)));
        let mut away = Tree::with_root(root);
        away.set(Nid(2), Arc::new(dir("d", ids[0])));
        let mut known = away.clone();
        let below = vec![(Nid(3), b"e".to_vec(), dir("e", ids[1]))];
        Load::new(Nid(2), ids[0], below).apply([&mut known].into_iter());
        assert_eq!(away_moved(&away, &known), Some((Nid(2), ids[0])));
        assert_eq!(away_moved(&away, &away.clone()), None);
        // What only the other one has is brought with what is above it.
        assert_eq!(away_moved(&known, &away), Some((Nid(3), ids[1])));
    }
}
