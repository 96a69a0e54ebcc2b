//! Directories whose entries are only in a stored object that was not looked into: *away*, as in a lazy workspace.
//!
//! An away directory has no entries, and [`Dir::stored`](super::inode::Dir) is what it has. Its entries come at once, with
//! numbers that they get then, into every tree that has it away under that number with that object ([`Load`]); a tree that
//! nobody knew of then can be brought up to date later. So an entry has one number in all trees of a branch.
//!
//! Tests: here; `engine/tests/base/away.rs`.

use super::Tree;
use super::dirmap::{Dentry, DirMap, name_hash};
use super::inode::Inode;
use crate::types::{Kind, Nid};
use objstore::TreeId;
use std::collections::HashMap;
use std::sync::Arc;

/// The entries of an away directory, with their numbers.
#[derive(Debug)]
pub struct Load {
    dir: Nid,
    id: TreeId,
    map: DirMap,
    subdirs: u32,
    inodes: Vec<(Nid, u64, Arc<Inode>)>,
}

impl Load {
    /// The directory `dir`, whose object is `id`, has these names. An inode that has further names elsewhere has the
    /// number that it has there.
    pub fn new(dir: Nid, id: TreeId, entries: Vec<(Nid, Vec<u8>, Inode)>) -> Load {
        let names = entries.iter().map(|(nid, name, inode)| {
            let (nid, kind) = (*nid, inode.kind());
            (name.as_slice(), Dentry { nid, kind })
        });
        let map = DirMap::from_entries(names);
        let dirs = entries.iter().filter(|(_, _, i)| i.kind() == Kind::Dir);
        let subdirs = dirs.count() as u32;
        let inodes = entries
            .into_iter()
            .map(|(nid, name, inode)| (nid, name_hash(&name), Arc::new(inode)));
        Load {
            dir,
            id,
            map,
            subdirs,
            inodes: inodes.collect(),
        }
    }

    /// Which directory, and its object.
    pub fn key(&self) -> (Nid, TreeId) {
        (self.dir, self.id)
    }

    /// The inodes, with their numbers.
    pub fn inodes(&self) -> impl Iterator<Item = (Nid, &Arc<Inode>)> {
        self.inodes.iter().map(|(nid, _, inode)| (*nid, inode))
    }

    /// Gives the directory its entries in all of these trees that have it away. Trees go on sharing what they shared. One
    /// that has something else under one of the numbers stays as it is.
    /// Returns inodes that got a further name.
    pub fn apply<'a>(&self, trees: impl Iterator<Item = &'a mut Tree>) -> Vec<Nid> {
        let mut made = HashMap::new();
        let (mut kept, mut relinked) = (Vec::new(), Vec::new());
        for tree in trees.filter(|tree| self.fits(tree)) {
            for (nid, hash, inode) in &self.inodes {
                let Some(before) = tree.get(*nid).cloned() else {
                    tree.set(*nid, inode.clone());
                    continue;
                };
                let after = made.entry((*nid, Arc::as_ptr(&before) as usize));
                let after = after.or_insert_with(|| {
                    relinked.push(*nid);
                    let mut linked = (*before).clone();
                    linked.add_name(self.dir, *hash, linked_group(inode));
                    Arc::new(linked)
                });
                let after = after.clone();
                kept.push(before);
                tree.set(*nid, after);
            }
            let Some(before) = tree.get(self.dir).cloned() else {
                continue;
            };
            let after = made.entry((self.dir, Arc::as_ptr(&before) as usize));
            let after = after
                .or_insert_with(|| Arc::new(self.filled(&before)))
                .clone();
            // Keeps its address from being used again.
            kept.push(before);
            tree.set(self.dir, after);
        }
        relinked
    }

    /// True for a tree that has the directory away, and none of the numbers but for other names of the same files.
    fn fits(&self, tree: &Tree) -> bool {
        let is_free = |(nid, _, inode): &(Nid, u64, Arc<Inode>)| {
            let linked = |there: &Arc<Inode>| there.is_linked_as(linked_group(inode));
            tree.get(*nid).is_none_or(linked)
        };
        tree.away(self.dir) == Some(self.id) && self.inodes.iter().all(is_free)
    }

    fn filled(&self, before: &Inode) -> Inode {
        let mut inode = before.clone();
        if let Some(dir) = inode.dir_mut() {
            dir.away = false;
            dir.map = self.map.clone();
            dir.subdirs = self.subdirs;
        }
        inode
    }
}

fn linked_group(inode: &Inode) -> u64 {
    inode.links.as_ref().map_or(0, |links| links.group)
}

impl Tree {
    /// Whether all names of every inode are known: no directory is away.
    pub fn knows_links(&self) -> bool {
        self.away == 0
    }

    /// The hard-link group that a commit has of an inode of this tree; 0 for one with one name. While a directory is away
    /// one known name may be one of several; no name of a linked inode is taken away before all are known.
    pub fn group_of(&self, inode: &Inode) -> u64 {
        match &inode.links {
            Some(links) if inode.nlink == 1 && !self.knows_links() => links.group,
            _ => inode.group(),
        }
    }

    /// True where a commit of both trees would record the same of these inodes alone (not of what lies below a directory):
    /// ctime, atime and numbers do not count.
    pub fn commit_alike(a: (&Tree, &Inode), b: (&Tree, &Inode)) -> bool {
        a.0.group_of(a.1) == b.0.group_of(b.1) && a.1.alike_but_links(b.1)
    }

    /// The object of a directory whose entries are away.
    pub fn away(&self, nid: Nid) -> Option<TreeId> {
        let dir = self.get(nid)?.dir()?;
        dir.stored.filter(|_| dir.away)
    }

    /// All directories whose entries are away.
    pub fn all_away(&self) -> Vec<(Nid, TreeId)> {
        let mut found = Vec::new();
        self.for_each_open(&mut |nid, inode| {
            let dir = inode.dir().filter(|dir| dir.away);
            found.extend(dir.and_then(|dir| Some((nid, dir.stored?))));
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::inode::{Content, Dir, Links};
    use crate::types::{Time, mode};
    use std::collections::BTreeMap;

    fn inode(content: Content, bits: u32, parent: Nid, name: &str) -> Inode {
        Inode {
            mode: bits | 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            ino: 1,
            size: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            parent,
            hash: name_hash(name.as_bytes()),
            links: None,
            xattrs: None,
            content,
        }
    }

    fn away_dir(parent: Nid, name: &str, id: TreeId) -> Inode {
        let mut dir = Dir::new(DirMap::default(), 0);
        (dir.stored, dir.away) = (Some(id), true);
        inode(Content::Dir(Box::new(dir)), mode::DIR, parent, name)
    }

    fn file(parent: Nid, name: &str, group: u64) -> Inode {
        let mut inode = inode(Content::Special, mode::FIFO, parent, name);
        let more = BTreeMap::new();
        inode.links = (group > 0).then(|| Arc::new(Links { group, more }));
        inode
    }

    /// Whether both have the same shared inodes.
    fn share_all(a: &Tree, b: &Tree) -> bool {
        let mut differ = 0;
        Tree::diff(a, b, &mut |_, _, _| differ += 1);
        differ == 0
    }

    #[test]
    fn one_known_name_of_several_is_of_its_group_until_all_are_known() {
        let id = TreeId::from_bytes([1; 32]);
        let root = inode(
            Content::Dir(Box::new(Dir::new(DirMap::default(), 0))),
            mode::DIR,
            Nid::ROOT,
            "",
        );
        let mut known = Tree::with_root(root);
        known.set(Nid(2), Arc::new(file(Nid::ROOT, "linked", 9)));
        let mut partly = known.clone();
        partly.set(Nid(3), Arc::new(away_dir(Nid::ROOT, "d", id)));
        let linked = known.get(Nid(2)).unwrap().clone();
        assert_eq!((known.group_of(&linked), partly.group_of(&linked)), (0, 9));
        let alike = |a, b| Tree::commit_alike((a, &linked), (b, &linked));
        assert!(alike(&partly, &partly) && !alike(&partly, &known));
        let plain = file(Nid::ROOT, "linked", 0);
        assert_eq!(partly.group_of(&plain), 0);
        assert!(!Tree::commit_alike((&partly, &linked), (&partly, &plain)));
        // However directories come and go.
        partly.update(Nid(3), |i| i.dir_mut().map(|d| d.away = false));
        assert!(partly.knows_links());
        partly.set(Nid(3), Arc::new(away_dir(Nid::ROOT, "d", id)));
        partly.set(Nid(3), Arc::new(away_dir(Nid::ROOT, "e", id)));
        partly.remove(Nid(3));
        partly.remove(Nid(3));
        assert!(partly.knows_links());
    }

    #[test]
    fn entries_come_into_all_trees_that_lack_them_and_links_are_one_file() {
        let ids = [1u8, 2, 3].map(|n| TreeId::from_bytes([n; 32]));
        let mut tree = Tree::with_root(away_dir(Nid::ROOT, "", ids[0]));
        let (early, mut other) = (tree.clone(), tree.clone());
        let entry =
            |nid: u64, name: &str, inode: Inode| (Nid(nid), name.as_bytes().to_vec(), inode);
        let root = Load::new(
            Nid::ROOT,
            ids[0],
            vec![
                entry(2, "a", away_dir(Nid::ROOT, "a", ids[1])),
                entry(3, "b", away_dir(Nid::ROOT, "b", ids[2])),
                entry(4, "f", file(Nid::ROOT, "f", 9)),
            ],
        );
        assert!(root.apply([&mut tree, &mut other].into_iter()).is_empty());
        assert!(share_all(&tree, &other));
        assert_eq!(tree.all_away(), [(Nid(2), ids[1]), (Nid(3), ids[2])]);
        // In another tree the number stands for another directory.
        let mut changed = tree.clone();
        changed.update(Nid(2), |i| i.dir_mut().map(|d| d.stored = Some(ids[2])));
        let below = Load::new(Nid(2), ids[1], vec![entry(4, "g", file(Nid(2), "g", 9))]);
        let relinked = below.apply([&mut tree, &mut other, &mut changed].into_iter());
        assert_eq!(relinked, [Nid(4)]);
        assert_eq!(tree.get(Nid(4)).unwrap().nlink, 2);
        assert!(share_all(&tree, &other));
        assert_eq!(changed.away(Nid(2)), Some(ids[2]));
        tree.check().unwrap();
        let mut late = early;
        for load in [&root, &below] {
            load.apply([&mut late].into_iter());
        }
        let mut differ = 0;
        Tree::diff(&late, &tree, &mut |_, a, b| {
            differ += usize::from(
                !matches!((a, b), (Some(a), Some(b)) if Tree::commit_alike((&late, a), (&tree, b))),
            );
        });
        assert_eq!(differ, 0);
    }
}
