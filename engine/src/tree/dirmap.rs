//! The entries of one directory: a persistent hash trie.
//!
//! Keys are names, ordered by (hash, name); the hash is [`objstore::object::tree::name_hash`], the same by which a
//! stored directory is split. A node with at most 64 entries is a leaf, one byte string; a larger one
//! has 16 children by the next four bits of the hash. The shape depends only on the set of entries, so
//! two maps are compared by skipping shared nodes.
//!
//! The hash is also the directory position that `readdir` hands out: it does not move when other
//! entries come and go.

use crate::types::{Kind, Nid};
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries that a leaf holds at most, but at the deepest level.
const LEAF_MAX: usize = 64;
const HASH_BITS: u32 = 62;
const LEVELS: u32 = 15;

pub use objstore::object::tree::name_hash;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dentry {
    /// The inode it names.
    pub nid: Nid,
    /// The inode's type.
    pub kind: Kind,
}

/// Takes a name with its entries on both sides of a comparison.
pub type EachChange<'a> = dyn FnMut(&[u8], Option<Dentry>, Option<Dentry>) + 'a;

/// One entry with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named<'a> {
    /// 62-bit hash of the name.
    pub hash: u64,
    /// Name.
    pub name: &'a [u8],
    /// What it names.
    pub entry: Dentry,
}

#[derive(Debug, Clone)]
enum Node {
    /// Entries sorted by (hash, name), packed; see [`pack`].
    Leaf {
        count: u32,
        bytes: Box<[u8]>,
    },
    Inner(Box<Inner>),
}

#[derive(Debug, Clone)]
struct Inner {
    count: usize,
    children: [Option<Arc<Node>>; 16],
}

/// The map from names to entries.
#[derive(Debug, Clone, Default)]
pub struct DirMap {
    root: Option<Arc<Node>>,
}

/// Fixed bytes before each packed name: hash 8, nid 5, kind 1, name length 1.
const HEAD: usize = 15;

fn pack(out: &mut Vec<u8>, e: &Named<'_>) {
    debug_assert!(e.name.len() <= 255 && e.entry.nid.0 < 1 << 40);
    out.extend_from_slice(&e.hash.to_le_bytes());
    out.extend_from_slice(&e.entry.nid.0.to_le_bytes()[..5]);
    out.push(kind_code(e.entry.kind));
    out.push(e.name.len() as u8);
    out.extend_from_slice(e.name);
}

fn kind_code(kind: Kind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

fn kind_of_code(code: u8) -> Kind {
    Kind::of_mode(u32::from(code) << 12).unwrap_or(Kind::File)
}

/// Iterates over packed entries.
struct Packed<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Packed<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Packed { bytes, at: 0 }
    }
}

impl<'a> Iterator for Packed<'a> {
    type Item = (usize, Named<'a>);

    /// The next entry with the offset at which it starts.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let head: &[u8; HEAD] = self.bytes.get(at..at + HEAD)?.try_into().ok()?;
        let mut hash = [0; 8];
        hash.copy_from_slice(&head[..8]);
        let mut nid = [0; 8];
        nid[..5].copy_from_slice(&head[8..13]);
        let len = usize::from(head[14]);
        let name = self.bytes.get(at + HEAD..at + HEAD + len)?;
        self.at = at + HEAD + len;
        let entry = Dentry {
            nid: Nid(u64::from_le_bytes(nid)),
            kind: kind_of_code(head[13]),
        };
        Some((
            at,
            Named {
                hash: u64::from_le_bytes(hash),
                name,
                entry,
            },
        ))
    }
}

fn order(a_hash: u64, a: &[u8], b_hash: u64, b: &[u8]) -> Ordering {
    a_hash.cmp(&b_hash).then_with(|| a.cmp(b))
}

fn slot(hash: u64, level: u32) -> usize {
    ((hash >> (HASH_BITS - 4 * (level + 1))) & 15) as usize
}

fn leaf_of(entries: &[Named<'_>]) -> Node {
    let mut bytes = Vec::with_capacity(entries.iter().map(|e| HEAD + e.name.len()).sum());
    entries.iter().for_each(|e| pack(&mut bytes, e));
    Node::Leaf {
        count: entries.len() as u32,
        bytes: bytes.into_boxed_slice(),
    }
}

/// Builds the node for `entries`, sorted by (hash, name), that agree in the bits above `level`.
fn build(entries: &[Named<'_>], level: u32) -> Node {
    if entries.len() <= LEAF_MAX || level >= LEVELS {
        return leaf_of(entries);
    }
    let mut children: [Option<Arc<Node>>; 16] = Default::default();
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let s = slot(first.hash, level);
        let n = rest.iter().take_while(|e| slot(e.hash, level) == s).count();
        children[s] = Some(Arc::new(build(&rest[..n], level + 1)));
        rest = &rest[n..];
    }
    Node::Inner(Box::new(Inner {
        count: entries.len(),
        children,
    }))
}

impl Node {
    fn count(&self) -> usize {
        match self {
            Node::Leaf { count, .. } => *count as usize,
            Node::Inner(inner) => inner.count,
        }
    }

    fn collect<'a>(&'a self, out: &mut Vec<Named<'a>>) {
        match self {
            Node::Leaf { bytes, .. } => out.extend(Packed::new(bytes).map(|(_, e)| e)),
            Node::Inner(inner) => inner.children.iter().flatten().for_each(|c| c.collect(out)),
        }
    }

    /// Sets an entry; true when the name is new.
    fn put(&mut self, e: &Named<'_>, level: u32) -> bool {
        match self {
            Node::Leaf { bytes, .. } => {
                let mut all: Vec<Named<'_>> = Packed::new(bytes).map(|(_, e)| e).collect();
                let place = all.binary_search_by(|x| order(x.hash, x.name, e.hash, e.name));
                let new = place.is_err();
                match place {
                    Ok(i) => all[i] = *e,
                    Err(i) => all.insert(i, *e),
                }
                *self = build(&all, level);
                new
            }
            Node::Inner(inner) => {
                let place = &mut inner.children[slot(e.hash, level)];
                let new = match place {
                    Some(child) => Arc::make_mut(child).put(e, level + 1),
                    None => {
                        *place = Some(Arc::new(leaf_of(&[*e])));
                        true
                    }
                };
                inner.count += usize::from(new);
                new
            }
        }
    }

    /// Removes an entry that is there.
    fn take(&mut self, hash: u64, name: &[u8], level: u32) {
        match self {
            Node::Leaf { bytes, .. } => {
                let all: Vec<Named<'_>> = Packed::new(bytes)
                    .map(|(_, e)| e)
                    .filter(|e| e.hash != hash || e.name != name)
                    .collect();
                *self = leaf_of(&all);
            }
            Node::Inner(inner) => {
                let place = &mut inner.children[slot(hash, level)];
                if let Some(child) = place {
                    Arc::make_mut(child).take(hash, name, level + 1);
                    if child.count() == 0 {
                        *place = None;
                    }
                }
                inner.count -= 1;
                if inner.count <= LEAF_MAX {
                    let mut all = Vec::with_capacity(inner.count);
                    inner
                        .children
                        .iter()
                        .flatten()
                        .for_each(|c| c.collect(&mut all));
                    let leaf = leaf_of(&all);
                    *self = leaf;
                }
            }
        }
    }
}

impl DirMap {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |n| n.count())
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// True when both are the same value, found without looking at entries.
    pub fn same(&self, other: &DirMap) -> bool {
        match (&self.root, &other.root) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// True when both have the same entries.
    pub fn alike(&self, other: &DirMap) -> bool {
        let mut alike = true;
        if !self.same(other) {
            DirMap::diff(self, other, &mut |_, _, _| alike = false);
        }
        alike
    }

    /// Makes a map of many entries at once; of equal names the last counts.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = (&'a [u8], Dentry)>) -> DirMap {
        let mut all: Vec<Named<'a>> = entries
            .into_iter()
            .map(|(name, entry)| Named {
                hash: name_hash(name),
                name,
                entry,
            })
            .collect();
        all.sort_by(|a, b| order(a.hash, a.name, b.hash, b.name));
        all.dedup_by(|later, first| {
            let same = later.name == first.name;
            if same {
                *first = *later;
            }
            same
        });
        DirMap {
            root: (!all.is_empty()).then(|| Arc::new(build(&all, 0))),
        }
    }

    /// The entry of `name`.
    pub fn get(&self, name: &[u8]) -> Option<Dentry> {
        self.get_hashed(name_hash(name), name)
    }

    /// As [`DirMap::get`], with the name's hash known.
    pub fn get_hashed(&self, hash: u64, name: &[u8]) -> Option<Dentry> {
        self.leaf(hash)
            .find(|e| e.hash == hash && e.name == name)
            .map(|e| e.entry)
    }

    /// The name with this hash that names `nid`.
    pub fn name_of(&self, hash: u64, nid: Nid) -> Option<&[u8]> {
        self.leaf(hash)
            .find(|e| e.hash == hash && e.entry.nid == nid)
            .map(|e| e.name)
    }

    fn leaf(&self, hash: u64) -> impl Iterator<Item = Named<'_>> {
        let mut node = self.root.as_deref();
        let mut level = 0;
        while let Some(Node::Inner(inner)) = node {
            node = inner.children[slot(hash, level)].as_deref();
            level += 1;
        }
        let bytes: &[u8] = match node {
            Some(Node::Leaf { bytes, .. }) => bytes,
            _ => &[],
        };
        Packed::new(bytes).map(|(_, e)| e)
    }

    /// Sets the entry of `name`.
    pub fn insert(&mut self, name: &[u8], entry: Dentry) {
        let e = Named {
            hash: name_hash(name),
            name,
            entry,
        };
        match &mut self.root {
            Some(root) => {
                Arc::make_mut(root).put(&e, 0);
            }
            None => self.root = Some(Arc::new(leaf_of(&[e]))),
        }
    }

    /// Removes `name`; returns its entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<Dentry> {
        let hash = name_hash(name);
        let old = self.get_hashed(hash, name)?;
        let root = self.root.as_mut()?;
        Arc::make_mut(root).take(hash, name, 0);
        if root.count() == 0 {
            self.root = None;
        }
        Some(old)
    }

    /// Calls `each` for the entries whose hash is ≥ `from`, in order, until it returns false.
    pub fn scan(&self, from: u64, each: &mut dyn FnMut(&Named<'_>) -> bool) {
        if let Some(root) = &self.root {
            scan_node(root, from, 0, each);
        }
    }

    /// All entries, in order of (hash, name).
    pub fn entries(&self) -> Vec<Named<'_>> {
        let mut out = Vec::with_capacity(self.len());
        if let Some(root) = &self.root {
            root.collect(&mut out);
        }
        out
    }

    /// Calls `each` for every name whose entry differs, with both entries. Skips shared nodes.
    pub fn diff(a: &DirMap, b: &DirMap, each: &mut EachChange<'_>) {
        diff_nodes(a.root.as_ref(), b.root.as_ref(), each);
    }
}

fn scan_node(node: &Node, from: u64, level: u32, each: &mut dyn FnMut(&Named<'_>) -> bool) -> bool {
    match node {
        Node::Leaf { bytes, .. } => Packed::new(bytes)
            .filter(|(_, e)| e.hash >= from)
            .all(|(_, e)| each(&e)),
        Node::Inner(inner) => {
            // Children before the one that holds `from` end below it.
            let first = slot(from, level);
            inner
                .children
                .iter()
                .enumerate()
                .skip(first)
                .all(|(i, c)| match c {
                    Some(c) => scan_node(c, if i == first { from } else { 0 }, level + 1, each),
                    None => true,
                })
        }
    }
}

fn diff_nodes(a: Option<&Arc<Node>>, b: Option<&Arc<Node>>, each: &mut EachChange<'_>) {
    match (a, b) {
        (Some(x), Some(y)) if Arc::ptr_eq(x, y) => return,
        (Some(x), Some(y)) => {
            if let (Node::Inner(p), Node::Inner(q)) = (&**x, &**y) {
                for (c, d) in p.children.iter().zip(&q.children) {
                    diff_nodes(c.as_ref(), d.as_ref(), each);
                }
                return;
            }
        }
        _ => {}
    }
    let (mut x, mut y) = (Vec::new(), Vec::new());
    if let Some(n) = a {
        n.collect(&mut x);
    }
    if let Some(n) = b {
        n.collect(&mut y);
    }
    diff_sorted(&x, &y, each);
}

fn diff_sorted(x: &[Named<'_>], y: &[Named<'_>], each: &mut EachChange<'_>) {
    let (mut i, mut j) = (0, 0);
    while i < x.len() || j < y.len() {
        let which = match (x.get(i), y.get(j)) {
            (Some(p), Some(q)) => order(p.hash, p.name, q.hash, q.name),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        match which {
            Ordering::Less => {
                each(x[i].name, Some(x[i].entry), None);
                i += 1;
            }
            Ordering::Greater => {
                each(y[j].name, None, Some(y[j].entry));
                j += 1;
            }
            Ordering::Equal => {
                if x[i].entry != y[j].entry {
                    each(x[i].name, Some(x[i].entry), Some(y[j].entry));
                }
                i += 1;
                j += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry(n: u64) -> Dentry {
        Dentry {
            nid: Nid(n),
            kind: if n.is_multiple_of(5) {
                Kind::Dir
            } else {
                Kind::File
            },
        }
    }

    #[test]
    fn agrees_with_a_model_and_has_one_shape() {
        let mut map = DirMap::default();
        let mut model: BTreeMap<Vec<u8>, Dentry> = BTreeMap::new();
        let mut x = 7u64;
        for i in 0..6_000u64 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let name = format!("n{}", (x >> 40) % 1500).into_bytes();
            if x % 7 < 3 {
                assert_eq!(map.remove(&name), model.remove(&name));
            } else {
                map.insert(&name, entry(i));
                model.insert(name.clone(), entry(i));
            }
            assert_eq!(map.len(), model.len());
            assert_eq!(map.get(&name), model.get(&name).copied());
        }
        let rebuilt = DirMap::from_entries(model.iter().map(|(n, e)| (n.as_slice(), *e)));
        assert_eq!(format!("{map:?}"), format!("{rebuilt:?}"));
        let mut listed: Vec<Vec<u8>> = map.entries().iter().map(|e| e.name.to_vec()).collect();
        listed.sort();
        assert_eq!(listed, model.keys().cloned().collect::<Vec<_>>());
        for n in listed.iter() {
            map.remove(n);
        }
        assert!(map.is_empty());
    }

    #[test]
    fn scan_resumes_after_any_hash() {
        let names: Vec<String> = (0..1000).map(|i| format!("file{i}")).collect();
        let map = DirMap::from_entries(
            names
                .iter()
                .enumerate()
                .map(|(i, n)| (n.as_bytes(), entry(i as u64))),
        );
        let all: Vec<u64> = map.entries().iter().map(|e| e.hash).collect();
        assert!(all.windows(2).all(|w| w[0] <= w[1]));
        for at in (0..all.len()).step_by(37) {
            let mut got = Vec::new();
            map.scan(all[at] + 1, &mut |e| {
                got.push(e.hash);
                true
            });
            assert_eq!(got, all[at + 1..]);
        }
    }

    #[test]
    fn diff_lists_what_differs() {
        let names: Vec<String> = (0..3000).map(|i| format!("f{i}")).collect();
        let a = DirMap::from_entries(
            names
                .iter()
                .enumerate()
                .map(|(i, n)| (n.as_bytes(), entry(i as u64))),
        );
        let mut b = a.clone();
        b.remove(b"f5");
        b.insert(b"f6", entry(9999));
        b.insert(b"new", entry(1));
        let mut seen = BTreeMap::new();
        DirMap::diff(&a, &b, &mut |n, x, y| {
            seen.insert(n.to_vec(), (x, y));
        });
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[b"f5".as_slice()], (Some(entry(5)), None));
        assert_eq!(seen[b"f6".as_slice()], (Some(entry(6)), Some(entry(9999))));
        assert_eq!(seen[b"new".as_slice()], (None, Some(entry(1))));
    }
}
