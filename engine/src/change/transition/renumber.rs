//! Giving inodes of the target their new numbers.
//!
//! An inode is mentioned by the directories that name it, and a directory by the inodes that it names.
//! Numbers may change places, so all is read from the target as it was, and written to the new tree.
//!
//! Invariant: nothing in the new tree mentions a number that its inode no longer has, and an inode that
//! takes a live one's number takes its shown number, too.

use super::dir_map;
use crate::tree::Tree;
use crate::tree::dirmap::Dentry;
use crate::tree::inode::{Content, Inode, Links};
use crate::types::Nid;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// New numbers of target inodes, and shown numbers for those that never had one.
#[derive(Default)]
pub(super) struct Moves {
    /// By the number in the target: the new one.
    pub to: BTreeMap<Nid, Nid>,
    /// By the new number: the shown one.
    pub shown: HashMap<Nid, u64>,
}

impl Moves {
    fn of(&self, nid: Nid) -> Nid {
        self.to.get(&nid).copied().unwrap_or(nid)
    }
}

/// Moves target inodes to their new numbers in `tree`, with everything that mentions them.
pub(super) fn renumber(live: &Tree, target: &Tree, tree: &mut Tree, moves: &Moves) {
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
                Dentry {
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
    use crate::change::transition::tests::{Maker, check, root};
    use crate::types::mode;

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
}
