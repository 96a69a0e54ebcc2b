//! Which inodes of the target get which numbers.
//!
//! A name that both trees have, with the same type, keeps the number that it has in the live tree. Where
//! that number was another inode's of the target, that one gets a fresh number, unless it got a live one
//! itself. Only directories below which something differs are walked.
//!
//! Rule for hard links: the target's group takes the inode of its first name, in byte order of paths,
//! that exists now with that type.
//!
//! Invariant: no two inodes of the target get the same number.

use super::dir_map;
use super::renumber::Moves;
use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::tree::dirmap::{Dentry, DirMap, Named};
use crate::tree::lookups::Lookups;
use crate::types::{Kind, Nid};
use std::collections::{HashMap, HashSet};

/// Decides on the numbers; `differing` are the inodes that differ between the trees.
pub(super) fn moves(
    live: &Tree,
    target: &Tree,
    differing: &HashSet<Nid>,
    numbers: &mut dyn Numbers,
) -> Moves {
    let mut job = Assignment::new(live, target, differing);
    job.walk();
    job.assign(numbers)
}

/// Gives another number to each directory that comes back in the target and that the kernel holds as dead
/// under its present one: the one that it had instead before, or a fresh one. The number that users see
/// stays. (One that takes a live directory's number is alive with that.) Gives old and new numbers.
pub(super) fn revive(
    live: &Tree,
    target: &Tree,
    kernel: &Lookups,
    numbers: &mut dyn Numbers,
    moves: &mut Moves,
) -> Vec<(Nid, Nid)> {
    let is_free = |tree: &Tree, nid: &Nid| tree.get(*nid).is_none_or(|i| i.nlink == 0);
    let mut revived = Vec::new();
    for (nid, stand_in) in kernel.dead() {
        let dir = target.get(nid).filter(|i| i.nlink > 0);
        let Some(dir) = dir.filter(|_| is_free(live, &nid) && !moves.to.contains_key(&nid)) else {
            continue;
        };
        let free = |n: &Nid| is_free(live, n) && is_free(target, n);
        let number = stand_in.filter(free).unwrap_or_else(|| numbers.next().0);
        moves.to.insert(nid, number);
        moves.shown.insert(number, dir.ino);
        revived.push((nid, number));
    }
    revived
}

/// A name under which both trees have an inode of the same type, with different numbers.
struct Candidate {
    path: Vec<u8>,
    live: Nid,
    target: Nid,
}

struct Assignment<'a> {
    live: &'a Tree,
    target: &'a Tree,
    /// Dirty children by directory, in either tree.
    children: HashMap<Nid, Vec<(u64, Nid)>>,
    candidates: Vec<Candidate>,
}

impl<'a> Assignment<'a> {
    fn new(live: &'a Tree, target: &'a Tree, differing: &HashSet<Nid>) -> Assignment<'a> {
        let mut job = Assignment {
            live,
            target,
            children: HashMap::new(),
            candidates: Vec::new(),
        };
        let mut marked = HashSet::new();
        for nid in differing {
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
            let mut pairs: Vec<(Vec<u8>, Option<Dentry>, Option<Dentry>)> = Vec::new();
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

    /// Names that both maps give the same number and below which something differs. They are no pairs
    /// yet: those are of names that differ, and each child is marked once.
    fn same_names(
        &self,
        dir: Nid,
        live: &DirMap,
        target: &DirMap,
        pairs: &mut Vec<(Vec<u8>, Option<Dentry>, Option<Dentry>)>,
    ) {
        for (hash, nid) in self.children.get(&dir).map_or(&[][..], |c| c) {
            if let Some(name) = live.name_of(*hash, *nid)
                && let (Some(a), Some(b)) =
                    (live.get_hashed(*hash, name), target.get_hashed(*hash, name))
                && a == b
                && a.kind == Kind::Dir
            {
                pairs.push((name.to_vec(), Some(a), Some(b)));
            }
        }
    }

    fn pair(
        &mut self,
        path: &[u8],
        name: &[u8],
        live: Dentry,
        target: Dentry,
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
        let mut displaced: Vec<Nid> = taken
            .iter()
            .filter(|n| {
                self.target.get(**n).is_some_and(|i| i.nlink > 0) && !moves.to.contains_key(n)
            })
            .copied()
            .collect();
        // In an order that is the same each time.
        displaced.sort_unstable();
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
    pairs: &mut Vec<(Vec<u8>, Option<Dentry>, Option<Dentry>)>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::transition::tests::{Maker, check, root};
    use crate::types::mode;

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
    fn a_directory_that_the_kernel_removed_comes_back_under_another_number() {
        let mut m = Maker {
            tree: root(),
            next: 2,
        };
        let d = m.create(Nid::ROOT, "d", mode::DIR);
        let inner = m.create(d, "inner", mode::DIR);
        let file = m.create(inner, "f", mode::REG);
        let gone = m.create(Nid::ROOT, "gone", mode::DIR);
        let target = m.tree.clone();
        m.unlink(inner, "f");
        m.unlink(d, "inner");
        m.unlink(Nid::ROOT, "d");
        m.unlink(Nid::ROOT, "gone");
        let mut kernel = Lookups::default();
        for nid in [d, inner] {
            kernel.add(nid);
            kernel.removed_by_kernel(nid);
        }
        for in_place in [false, true] {
            let mut numbers = crate::record::Counters {
                nid: m.next,
                ino: m.next + 1000,
                state: 1,
            };
            let t = match in_place {
                true => super::super::in_place(&m.tree, &target, &mut numbers, &kernel),
                false => super::super::transition(&m.tree, &target, &mut numbers, &kernel),
            };
            t.tree.check().unwrap();
            let [d2, inner2] = ["d", "d/inner"].map(|p| t.tree.resolve(p.as_bytes()).unwrap());
            assert!(![d, inner, d2].contains(&inner2) && d2 != d);
            assert_eq!(t.tree.get(inner2).unwrap().parent, d2);
            // What users see is what it was, and a file is never dead.
            assert_eq!(t.tree.get(d2).unwrap().ino, target.get(d).unwrap().ino);
            assert_eq!(t.tree.resolve(b"d/inner/f").unwrap(), file);
            assert_eq!(t.tree.get(file).unwrap().parent, inner2);
            // A directory that the kernel did not remove is the one that it was.
            assert_eq!(t.tree.resolve(b"gone").unwrap(), gone);
        }
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
}
