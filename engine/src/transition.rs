//! Changing a live tree into another state without changing the identity of what stays.
//!
//! Both trees come from the same branch, so an inode that is the same in both is the same shared
//! value, and only what differs is looked at. The result is the target's tree with some inodes
//! renumbered: a name that has the same type in both keeps the inode number it has now, so that open
//! descriptors and mappings follow it.
//!
//! Rule for hard links: the target's group takes the inode of its first name, in byte order of paths,
//! that exists now with that type.

use crate::load_tree::Numbers;
use crate::tree::Tree;
use crate::tree::dirmap::{DirMap, Entry, Named};
use crate::tree::inode::{Content, Inode, Links};
use crate::types::{Kind, Nid};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The outcome: the new tree, and what the kernel must forget.
#[derive(Debug, Default)]
pub struct Transition {
    /// The tree to show.
    pub tree: Tree,
    /// Inodes whose content or attributes changed.
    pub inodes: Vec<Nid>,
    /// Names that changed what they name: (directory, name).
    pub names: Vec<(Nid, Vec<u8>)>,
    /// Inodes that lost their last name and are still known to the kernel.
    pub orphans: Vec<Nid>,
}

/// Computes how `live` becomes `target`. `known` says whether the kernel knows an inode.
pub fn transition(
    live: &Tree,
    target: &Tree,
    numbers: &mut dyn Numbers,
    known: &dyn Fn(Nid) -> bool,
) -> Transition {
    let mut job = Job::new(live, target);
    job.walk();
    let moves = job.assign(numbers);
    job.build(moves, known)
}

/// How `live` becomes `target`, whose inodes have the numbers that they are to have already.
pub fn in_place(live: &Tree, target: &Tree, known: &dyn Fn(Nid) -> bool) -> Transition {
    Job::new(live, target).build(Moves::default(), known)
}

/// A name under which both trees have an inode of the same type, with different numbers.
struct Candidate {
    path: Vec<u8>,
    live: Nid,
    target: Nid,
}

struct Job<'a> {
    live: &'a Tree,
    target: &'a Tree,
    /// Inodes that differ between the trees.
    differing: HashSet<Nid>,
    /// Dirty children by directory, in either tree.
    children: HashMap<Nid, Vec<(u64, Nid)>>,
    candidates: Vec<Candidate>,
}

/// New numbers of target inodes, and shown numbers for those that never had one.
#[derive(Default)]
struct Moves {
    to: BTreeMap<Nid, Nid>,
    shown: HashMap<Nid, u64>,
}

impl Moves {
    fn of(&self, nid: Nid) -> Nid {
        self.to.get(&nid).copied().unwrap_or(nid)
    }
}

impl<'a> Job<'a> {
    fn new(live: &'a Tree, target: &'a Tree) -> Job<'a> {
        let mut differing = HashSet::new();
        Tree::diff(live, target, &mut |nid, _, _| {
            differing.insert(nid);
        });
        let mut job = Job {
            live,
            target,
            differing,
            children: HashMap::new(),
            candidates: Vec::new(),
        };
        let mut marked = HashSet::new();
        for nid in &job.differing {
            mark(live, *nid, &mut marked, &mut job.children);
            mark(target, *nid, &mut marked, &mut job.children);
        }
        job
    }

    /// Walks the directories that both trees have at the same path, from the root.
    fn walk(&mut self) {
        let mut work = vec![(Nid::ROOT, Nid::ROOT, Vec::new())];
        while let Some((l, t, path)) = work.pop() {
            let (Some(live), Some(target)) = (dir_map(self.live, l), dir_map(self.target, t))
            else {
                continue;
            };
            let mut pairs: Vec<(Vec<u8>, Option<Entry>, Option<Entry>)> = Vec::new();
            if l == t {
                DirMap::diff(live, target, &mut |name, a, b| {
                    pairs.push((name.to_vec(), a, b))
                });
                self.same_names(l, live, target, &mut pairs);
            } else {
                both_lists(live, target, &mut pairs);
            }
            for (name, a, b) in pairs {
                if let (Some(a), Some(b)) = (a, b)
                    && a.kind == b.kind
                {
                    self.pair(&path, &name, a, b, &mut work);
                }
            }
        }
    }

    /// Names that both maps give the same number and below which something differs.
    fn same_names(
        &self,
        dir: Nid,
        live: &DirMap,
        target: &DirMap,
        pairs: &mut Vec<(Vec<u8>, Option<Entry>, Option<Entry>)>,
    ) {
        for (hash, nid) in self.children.get(&dir).map_or(&[][..], |c| c) {
            if let Some(name) = live.name_of(*hash, *nid)
                && let (Some(a), Some(b)) =
                    (live.get_hashed(*hash, name), target.get_hashed(*hash, name))
                && a == b
                && a.kind == Kind::Dir
                && !pairs.iter().any(|(n, ..)| n == name)
            {
                pairs.push((name.to_vec(), Some(a), Some(b)));
            }
        }
    }

    fn pair(
        &mut self,
        path: &[u8],
        name: &[u8],
        live: Entry,
        target: Entry,
        work: &mut Vec<(Nid, Nid, Vec<u8>)>,
    ) {
        let mut full = path.to_vec();
        if !full.is_empty() {
            full.push(b'/');
        }
        full.extend_from_slice(name);
        if live.nid != target.nid {
            self.candidates.push(Candidate {
                path: full.clone(),
                live: live.nid,
                target: target.nid,
            });
        }
        if live.kind == Kind::Dir {
            work.push((live.nid, target.nid, full));
        }
    }

    /// Decides which target inodes get which numbers.
    fn assign(&mut self, numbers: &mut dyn Numbers) -> Moves {
        self.add_hard_link_candidates();
        self.candidates.sort_by(|a, b| a.path.cmp(&b.path));
        let mut moves = Moves::default();
        let mut taken: HashSet<Nid> = HashSet::new();
        for c in &self.candidates {
            if !moves.to.contains_key(&c.target) && taken.insert(c.live) {
                moves.to.insert(c.target, c.live);
            }
        }
        // A target inode whose own number was given away and that got none.
        let displaced: Vec<Nid> = taken
            .iter()
            .filter(|n| {
                self.target.get(**n).is_some_and(|i| i.nlink > 0) && !moves.to.contains_key(n)
            })
            .copied()
            .collect();
        for nid in displaced {
            let (fresh, ino) = numbers.next();
            moves.to.insert(nid, fresh);
            moves.shown.insert(fresh, ino);
        }
        moves.to.retain(|from, to| from != to);
        moves
    }

    /// Names of multi-link target inodes that the walk did not meet because both trees agree on them.
    fn add_hard_link_candidates(&mut self) {
        let met: HashSet<Nid> = self.candidates.iter().map(|c| c.target).collect();
        let met_live: HashSet<Nid> = self.candidates.iter().map(|c| c.live).collect();
        for nid in met.iter().chain(&met_live).collect::<HashSet<_>>() {
            let Some(inode) = self
                .target
                .get(*nid)
                .filter(|i| i.nlink > 0 && i.dir().is_none())
            else {
                continue;
            };
            for name in inode.names() {
                let Some(path) = self.target.path_of_name(*nid, name) else {
                    continue;
                };
                if let Ok(live) = self.live.resolve(&path)
                    && self
                        .live
                        .get(live)
                        .is_some_and(|i| i.kind() == inode.kind())
                {
                    self.candidates.push(Candidate {
                        path,
                        live,
                        target: *nid,
                    });
                }
            }
        }
    }

    fn build(self, moves: Moves, known: &dyn Fn(Nid) -> bool) -> Transition {
        let mut tree = self.target.clone();
        self.drop_target_orphans(&mut tree);
        renumber(self.live, self.target, &mut tree, &moves);
        let mut changed = Vec::new();
        Tree::diff(self.live, &tree, &mut |nid, _, _| changed.push(nid));
        let mut out = Transition::default();
        for nid in changed {
            let Some(was) = self.live.get(nid) else {
                continue;
            };
            keep_unchanged(&mut tree, nid, was);
            match tree.get(nid) {
                Some(now) if Arc::ptr_eq(was, now) => continue,
                Some(now) => changed_names(nid, was, now, &mut out.names),
                None if known(nid) => {
                    tree.set(nid, Arc::new(orphaned(was)));
                    out.orphans.push(nid);
                }
                None => continue,
            }
            out.inodes.push(nid);
        }
        out.tree = tree;
        out
    }

    /// Inodes that were unlinked but open when the target was frozen are nobody's now.
    fn drop_target_orphans(&self, tree: &mut Tree) {
        for nid in &self.differing {
            if self.target.get(*nid).is_some_and(|i| i.nlink == 0) {
                tree.remove(*nid);
            }
        }
    }
}

fn dir_map(tree: &Tree, nid: Nid) -> Option<&DirMap> {
    tree.get(nid)?.dir().map(|d| &d.map)
}

/// Notes `nid` and the directories above it as dirty children of their parents.
fn mark(
    tree: &Tree,
    nid: Nid,
    marked: &mut HashSet<(Nid, Nid, u64)>,
    children: &mut HashMap<Nid, Vec<(u64, Nid)>>,
) {
    let mut next: Vec<(Nid, (Nid, u64))> = tree
        .get(nid)
        .map_or_else(Vec::new, |i| i.names())
        .into_iter()
        .map(|name| (nid, name))
        .collect();
    while let Some((nid, (parent, hash))) = next.pop() {
        if nid == Nid::ROOT || !marked.insert((parent, nid, hash)) {
            continue;
        }
        children.entry(parent).or_default().push((hash, nid));
        if let Some(up) = tree.get(parent) {
            next.push((parent, (up.parent, up.hash)));
        }
    }
}

fn both_lists(
    live: &DirMap,
    target: &DirMap,
    pairs: &mut Vec<(Vec<u8>, Option<Entry>, Option<Entry>)>,
) {
    let name_of = |e: &Named<'_>| e.name.to_vec();
    for e in live.entries() {
        pairs.push((
            name_of(&e),
            Some(e.entry),
            target.get_hashed(e.hash, e.name),
        ));
    }
    for e in target.entries() {
        if live.get_hashed(e.hash, e.name).is_none() {
            pairs.push((name_of(&e), None, Some(e.entry)));
        }
    }
}

/// An inode of which a commit would record the same as before keeps its times; where its names are the
/// same too, it stays the same value.
fn keep_unchanged(tree: &mut Tree, nid: Nid, was: &Arc<Inode>) {
    let Some(now) = tree.get(nid) else { return };
    if Arc::ptr_eq(was, now) || was.nlink == 0 || now.nlink == 0 || !was.commits_alike(now) {
        return;
    }
    let named = |i: &Inode| (i.nlink, i.ino, i.parent, i.hash);
    if named(was) == named(now) && was.links == now.links {
        tree.set(nid, was.clone());
    } else {
        tree.update(nid, |i| (i.atime, i.ctime) = (was.atime, was.ctime));
    }
}

/// Names that a directory gives to something else now. One that comes back is taken as empty before:
/// that is how the kernel knew it.
fn changed_names(nid: Nid, was: &Inode, now: &Inode, names: &mut Vec<(Nid, Vec<u8>)>) {
    let (Some(a), Some(b)) = (was.dir(), now.dir()) else {
        return;
    };
    DirMap::diff(&a.map, &b.map, &mut |name, _, _| {
        names.push((nid, name.to_vec()))
    });
}

fn orphaned(was: &Inode) -> Inode {
    let mut inode = was.clone();
    inode.nlink = 0;
    inode.links = None;
    if let Some(d) = inode.dir_mut() {
        d.map = DirMap::default();
        d.subdirs = 0;
        d.lazy = None;
    }
    inode
}

/// Moves target inodes to their new numbers in `tree`, with everything that mentions them.
fn renumber(live: &Tree, target: &Tree, tree: &mut Tree, moves: &Moves) {
    if moves.to.is_empty() {
        return;
    }
    for from in moves.to.keys() {
        tree.remove(*from);
    }
    for (from, to) in &moves.to {
        let Some(inode) = target.get(*from) else {
            continue;
        };
        let mut inode = (**inode).clone();
        inode.ino = match (live.get(*to), moves.shown.get(to)) {
            (Some(was), _) => was.ino,
            (None, Some(ino)) => *ino,
            (None, None) => inode.ino,
        };
        tree.set(*to, Arc::new(inode));
    }
    let mut dirs: HashSet<Nid> = HashSet::new();
    for (from, to) in &moves.to {
        let Some(inode) = target.get(*from) else {
            continue;
        };
        for (parent, hash) in inode.names() {
            rename_entry(target, tree, moves.of(parent), parent, hash, *from, *to);
        }
        if inode.dir().is_some() {
            dirs.insert(*from);
        }
    }
    reparent(target, tree, moves, &dirs);
}

/// Lets the entry of `from` in a directory name `to`.
fn rename_entry(
    target: &Tree,
    tree: &mut Tree,
    dir: Nid,
    old_dir: Nid,
    hash: u64,
    from: Nid,
    to: Nid,
) {
    let Some(name) = dir_map(target, old_dir).and_then(|m| m.name_of(hash, from)) else {
        return;
    };
    tree.update(dir, |i| {
        if let Some(d) = i.dir_mut()
            && let Some(e) = d.map.get_hashed(hash, name)
        {
            d.map.insert(
                name,
                Entry {
                    nid: to,
                    kind: e.kind,
                },
            );
        }
    });
}

/// Children of renumbered directories learn their parents' new numbers, each once (numbers may change
/// places).
fn reparent(target: &Tree, tree: &mut Tree, moves: &Moves, dirs: &HashSet<Nid>) {
    let mut children: HashSet<Nid> = HashSet::new();
    for map in dirs.iter().filter_map(|d| dir_map(target, *d)) {
        children.extend(map.entries().iter().map(|e| e.entry.nid));
    }
    for child in children {
        tree.update(moves.of(child), |i| rewrite_parents(i, moves));
    }
}

fn rewrite_parents(i: &mut Inode, moves: &Moves) {
    i.parent = moves.of(i.parent);
    if let Some(links) = &i.links {
        let more = links
            .more
            .iter()
            .map(|(&(p, h), &n)| ((moves.of(Nid(p)).0, h), n))
            .collect();
        i.links = Some(Arc::new(Links {
            group: links.group,
            more,
        }));
    }
    debug_assert!(!matches!(i.content, Content::Dir(_)) || i.links.is_none());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Counters, Mutation};
    use crate::types::{Time, mode};

    fn root() -> Tree {
        let m = Mutation::Create {
            parent: 1,
            name: b"x".to_vec(),
            nid: 2,
            ino: 2,
            mode: mode::DIR | 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: vec![],
            xattrs: vec![],
            now: Time::default(),
        };
        let mut dir = Inode {
            mode: mode::DIR | 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            ino: 1,
            size: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            parent: Nid::ROOT,
            hash: 0,
            links: None,
            xattrs: None,
            content: Content::Dir(Box::new(crate::tree::inode::Dir::new(DirMap::default(), 0))),
        };
        dir.nlink = 1;
        let _ = m;
        Tree::with_root(dir)
    }

    struct Maker {
        tree: Tree,
        next: u64,
    }

    impl Maker {
        fn create(&mut self, parent: Nid, name: &str, bits: u32) -> Nid {
            let nid = self.next;
            self.next += 1;
            let m = Mutation::Create {
                parent: parent.0,
                name: name.as_bytes().to_vec(),
                nid,
                ino: nid + 1000,
                mode: bits | 0o644,
                uid: 0,
                gid: 0,
                rdev: 0,
                target: vec![],
                xattrs: vec![],
                now: Time::default(),
            };
            self.tree.apply(&m, None).unwrap();
            Nid(nid)
        }

        fn apply(&mut self, m: Mutation) {
            self.tree.apply(&m, None).unwrap();
        }

        fn unlink(&mut self, parent: Nid, name: &str) {
            let nid = self.tree.lookup(parent, name.as_bytes()).unwrap().nid;
            self.apply(Mutation::Unlink {
                parent: parent.0,
                name: name.as_bytes().to_vec(),
                now: Time::default(),
            });
            if self.tree.get(nid).unwrap().nlink == 0 {
                self.tree.remove(nid);
            }
        }

        fn link(&mut self, nid: Nid, parent: Nid, name: &str) {
            self.apply(Mutation::Link {
                nid: nid.0,
                parent: parent.0,
                name: name.as_bytes().to_vec(),
                group: nid.0,
                now: Time::default(),
            });
        }
    }

    fn paths(t: &Tree) -> BTreeMap<String, (u32, u64)> {
        let mut out = BTreeMap::new();
        t.for_each(&mut |nid, i| {
            for name in i.names() {
                if nid != Nid::ROOT {
                    let p = t.path_of_name(nid, name).unwrap();
                    out.insert(String::from_utf8(p).unwrap(), (i.mode, i.group()));
                }
            }
        });
        out
    }

    fn check(live: &Tree, target: &Tree, next: u64) -> Transition {
        let mut counters = Counters {
            nid: next,
            ino: next,
            state: 1,
        };
        let t = transition(live, target, &mut counters, &|_| false);
        t.tree.check().unwrap();
        assert_eq!(paths(&t.tree), paths(target));
        t
    }

    #[test]
    fn names_of_one_type_keep_their_inode() {
        let mut m = Maker {
            tree: root(),
            next: 2,
        };
        let d = m.create(Nid::ROOT, "d", mode::DIR);
        m.create(d, "f", mode::REG);
        m.create(d, "gone", mode::REG);
        let target = m.tree.clone();
        m.unlink(d, "f");
        let f2 = m.create(d, "f", mode::REG);
        m.unlink(d, "gone");
        m.create(d, "new", mode::REG);
        let t = check(&m.tree, &target, m.next);
        assert_eq!(t.tree.resolve(b"d/f").unwrap(), f2);
        assert_eq!(t.tree.get(f2).unwrap().ino, f2.0 + 1000);
        assert!(
            t.names.contains(&(d, b"new".to_vec())) && t.names.contains(&(d, b"gone".to_vec()))
        );
    }

    #[test]
    fn a_replaced_directory_keeps_its_number_and_its_children_follow() {
        let mut m = Maker {
            tree: root(),
            next: 2,
        };
        let d = m.create(Nid::ROOT, "d", mode::DIR);
        let s = m.create(d, "s", mode::DIR);
        m.create(s, "f", mode::REG);
        let target = m.tree.clone();
        m.unlink(s, "f");
        m.unlink(d, "s");
        m.unlink(Nid::ROOT, "d");
        let d2 = m.create(Nid::ROOT, "d", mode::DIR);
        let s2 = m.create(d2, "s", mode::DIR);
        let t = check(&m.tree, &target, m.next);
        assert_eq!(t.tree.resolve(b"d/s").unwrap(), s2);
        assert_eq!(t.tree.get(s2).unwrap().parent, d2);
    }

    #[test]
    fn a_link_group_takes_the_inode_of_its_first_name() {
        let mut m = Maker {
            tree: root(),
            next: 2,
        };
        let a = m.create(Nid::ROOT, "a", mode::REG);
        m.link(a, Nid::ROOT, "b");
        let target = m.tree.clone();
        m.unlink(Nid::ROOT, "a");
        let a2 = m.create(Nid::ROOT, "a", mode::REG);
        let t = check(&m.tree, &target, m.next);
        assert_eq!(t.tree.resolve(b"a").unwrap(), a2);
        assert_eq!(t.tree.resolve(b"b").unwrap(), a2);
        // And the other way round: separate files where a group is now.
        let back = check(&t.tree, &m.tree, m.next + 10);
        assert_ne!(
            back.tree.resolve(b"a").unwrap(),
            back.tree.resolve(b"b").unwrap()
        );
    }

    #[test]
    fn random_trees_become_each_other() {
        let mut x = 5u64;
        let mut rnd = move |n: u64| {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        for _ in 0..60 {
            let mut m = Maker {
                tree: root(),
                next: 2,
            };
            let mut states = Vec::new();
            for step in 0..80 {
                random_step(&mut m, &mut rnd);
                if step % 20 == 19 {
                    states.push(m.tree.clone());
                }
            }
            for a in &states {
                for b in &states {
                    check(a, b, m.next);
                }
            }
        }
    }

    fn random_step(m: &mut Maker, rnd: &mut impl FnMut(u64) -> u64) {
        let mut dirs = vec![Nid::ROOT];
        let mut files = Vec::new();
        m.tree.for_each(&mut |nid, i| {
            if i.dir().is_some() {
                dirs.push(nid)
            } else {
                files.push(nid)
            }
        });
        let dir = dirs[rnd(dirs.len() as u64) as usize];
        let name = ["a", "b", "c", "d"][rnd(4) as usize];
        match (m.tree.lookup(dir, name.as_bytes()), rnd(4)) {
            (Err(_), 0) if dirs.len() < 8 => drop(m.create(dir, name, mode::DIR)),
            (Err(_), 1) if !files.is_empty() => {
                let f = files[rnd(files.len() as u64) as usize];
                m.link(f, dir, name);
            }
            (Err(_), _) => drop(m.create(dir, name, mode::REG)),
            (Ok(e), 0..=1)
                if e.kind != Kind::Dir || dir_map(&m.tree, e.nid).unwrap().is_empty() =>
            {
                m.unlink(dir, name)
            }
            (Ok(e), 2) => {
                let to = dirs[rnd(dirs.len() as u64) as usize];
                let new = ["a", "b", "c", "d"][rnd(4) as usize];
                if m.tree.lookup(to, new.as_bytes()).is_err() && !m.tree.is_within(to, e.nid) {
                    m.apply(Mutation::Rename {
                        parent: dir.0,
                        name: name.as_bytes().to_vec(),
                        new_parent: to.0,
                        new_name: new.as_bytes().to_vec(),
                        exchange: false,
                        now: Time::default(),
                    });
                }
            }
            _ => {}
        }
    }
}
