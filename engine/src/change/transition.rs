//! Changing a live tree into another state without changing the identity of what stays.
//!
//! Both trees come from the same branch, so an inode that is the same in both is the same shared
//! value, and only what differs is looked at. The result is the target's tree with some inodes
//! renumbered: a name that has the same type in both keeps the inode number it has now, so that open
//! descriptors and mappings follow it. A directory that the kernel itself removed never comes back under
//! the number that the kernel still holds it by: it stays dead there.
//!
//! Steps: [`assign`] decides which inodes of the target get which numbers, [`renumber`] gives them
//! those; what differs from the live tree then is what the kernel must forget.
//!
//! Invariant: under each name the new tree has what the target has there, as far as commits record it;
//! inodes without a name are the live tree's, never the target's.
//!
//! Tests: beside the parts; here random trees that become each other.

mod assign;
mod differs;
mod renumber;

pub(crate) use differs::{FRESH_NID, differs};

use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::Inode;
use crate::tree::lookups::Lookups;
use crate::types::Nid;
use renumber::{Moves, renumber};
use std::collections::HashSet;
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
    /// Names that the kernel may still hold in directories that go: whoever uses what they name keeps them
    /// there, and they would be back with the directory.
    pub buried: Vec<(Nid, Vec<u8>)>,
    /// Inodes that lost their last name and are still known to the kernel.
    pub orphans: Vec<Nid>,
    /// Directories that come back under another number than the target's, with that.
    pub revived: Vec<(Nid, Nid)>,
}

impl Transition {
    /// Whether a file with several names, or one that had several, changes or gets another number.
    pub fn relinks(&self, live: &Tree) -> bool {
        let mut relinks = false;
        let is_linked = |i: &Arc<Inode>| i.nlink > 0 && i.links.is_some();
        Tree::diff(live, &self.tree, &mut |_, was, now| {
            relinks |= was.is_some_and(is_linked) || now.is_some_and(is_linked);
        });
        relinks
    }
}

/// Computes how `live` becomes `target`; `kernel` is what the kernel holds.
pub fn transition(
    live: &Tree,
    target: &Tree,
    numbers: &mut dyn Numbers,
    kernel: &Lookups,
) -> Transition {
    let differing = differing(live, target);
    let mut moves = assign::moves(live, target, &differing, numbers);
    let revived = assign::revive(live, target, kernel, numbers, &mut moves);
    Transition {
        revived,
        ..build(live, target, &differing, &moves, kernel)
    }
}

/// How `live` becomes `target`, whose inodes have the numbers that they are to have already, but for
/// directories that the kernel holds as dead.
pub fn in_place(
    live: &Tree,
    target: &Tree,
    numbers: &mut dyn Numbers,
    kernel: &Lookups,
) -> Transition {
    let differing = differing(live, target);
    let mut moves = Moves::default();
    let revived = assign::revive(live, target, kernel, numbers, &mut moves);
    Transition {
        revived,
        ..build(live, target, &differing, &moves, kernel)
    }
}

/// Inodes that differ between the trees.
fn differing(live: &Tree, target: &Tree) -> HashSet<Nid> {
    let mut differing = HashSet::new();
    Tree::diff(live, target, &mut |nid, _, _| {
        differing.insert(nid);
    });
    differing
}

/// The target's tree with its new numbers, and how it differs from the live one.
fn build(
    live: &Tree,
    target: &Tree,
    differing: &HashSet<Nid>,
    moves: &Moves,
    kernel: &Lookups,
) -> Transition {
    let mut tree = target.clone();
    drop_orphans(target, differing, &mut tree);
    renumber(live, target, &mut tree, moves);
    let mut changed = Vec::new();
    Tree::diff(live, &tree, &mut |nid, _, _| changed.push(nid));
    let mut out = Transition::default();
    for nid in changed {
        let Some(was) = live.get(nid) else {
            continue;
        };
        keep_unchanged(&mut tree, nid, (live, was));
        match tree.get(nid) {
            Some(now) if Arc::ptr_eq(was, now) => continue,
            Some(now) => changed_names(nid, was, now, &mut out.names),
            None if kernel.get(nid) > 0 => {
                held_names(nid, was, kernel, &mut out.buried);
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
fn drop_orphans(target: &Tree, differing: &HashSet<Nid>, tree: &mut Tree) {
    for nid in differing {
        if target.get(*nid).is_some_and(|i| i.nlink == 0) {
            tree.remove(*nid);
        }
    }
}

fn dir_map(tree: &Tree, nid: Nid) -> Option<&DirMap> {
    tree.get(nid)?.dir().map(|d| &d.map)
}

/// An inode of which a commit would record the same as before keeps its times; where its names are the
/// same too, it stays the same value.
fn keep_unchanged(tree: &mut Tree, nid: Nid, (live, was): (&Tree, &Arc<Inode>)) {
    let Some(now) = tree.get(nid) else { return };
    if Arc::ptr_eq(was, now) || was.nlink == 0 || now.nlink == 0 {
        return;
    }
    if !Tree::commit_alike((live, was), (tree, now)) {
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

/// Names in a directory by which the kernel may hold something.
fn held_names(nid: Nid, dir: &Inode, kernel: &Lookups, names: &mut Vec<(Nid, Vec<u8>)>) {
    let Some(d) = dir.dir() else { return };
    DirMap::diff(&d.map, &DirMap::default(), &mut |name, entry, _| {
        if entry.is_some_and(|e| kernel.get(e.nid) > 0) {
            names.push((nid, name.to_vec()));
        }
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
        d.away = false;
    }
    inode
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Counters, Mutation};
    use crate::tree::inode::{Content, Dir};
    use crate::types::{Kind, Time, mode};
    use std::collections::BTreeMap;

    /// A tree with nothing in it.
    pub(super) fn root() -> Tree {
        Tree::with_root(Inode {
            mode: mode::DIR | 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
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
            content: Content::Dir(Box::new(Dir::new(DirMap::default(), 0))),
        })
    }

    /// Changes a tree by hand.
    pub(super) struct Maker {
        pub tree: Tree,
        /// Number of the next inode.
        pub next: u64,
    }

    impl Maker {
        pub fn create(&mut self, parent: Nid, name: &str, bits: u32) -> Nid {
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

        pub fn unlink(&mut self, parent: Nid, name: &str) {
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

        pub fn link(&mut self, nid: Nid, parent: Nid, name: &str) {
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

    /// Makes `target` of `live`, and looks whether it has become that.
    pub(super) fn check(live: &Tree, target: &Tree, next: u64) -> Transition {
        let mut counters = Counters {
            nid: next,
            ino: next,
            state: 1,
        };
        let t = transition(live, target, &mut counters, &Lookups::default());
        t.tree.check().unwrap();
        assert_eq!(paths(&t.tree), paths(target));
        t
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
