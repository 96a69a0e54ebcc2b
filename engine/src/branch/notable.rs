//! Inodes that opening a branch looks for: few, where all is stored. Files say which they are, or they are noted while a file
//! is read, so that no pass over the whole tree is needed afterwards.

use crate::tree::Tree;
use crate::tree::file::Body;
use crate::tree::inode::{Content, Inode};
use crate::types::Nid;
use std::sync::Arc;

/// It has no name.
const NAMELESS: u8 = 1;
/// It is of the base, or a directory that was not read, or some of it is in a journal.
const NOT_STORED: u8 = 2;
/// It has several names, or had.
const LINKED: u8 = 4;
/// What no inode is that is decoded later (docs/architecture.md, section 7).
pub(crate) const NEEDED_AT_ONCE: u8 = NAMELESS | NOT_STORED;

/// Why an inode is notable; 0 where it is not.
pub(crate) fn why_notable(inode: &Inode) -> u8 {
    let is_stored = match &inode.content {
        Content::File(file) => file.is_plain() && !matches!(file.body().0, Body::Base(_)),
        Content::Dir(dir) => !dir.is_lazy(),
        Content::Symlink(_) | Content::Special => true,
    };
    let bit = |why: u8, is: bool| if is { why } else { 0 };
    bit(NAMELESS, inode.nlink == 0)
        | bit(NOT_STORED, !is_stored)
        | bit(LINKED, inode.links.is_some())
}

/// The notable inodes that a file has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    needed: Vec<Nid>,
    linked: Vec<Nid>,
}

impl Known {
    /// An inode is notable for this.
    pub fn note(&mut self, nid: Nid, why: u8) {
        if why & NEEDED_AT_ONCE != 0 {
            self.needed.push(nid);
        }
        if why & LINKED != 0 {
            self.linked.push(nid);
        }
    }
}

/// Those of a tree, by which those of trees that came from it are found, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notable {
    tree: Tree,
    known: Vec<Arc<Known>>,
}

impl Notable {
    /// The tree was made of files that have these.
    pub fn new(tree: Tree, known: Vec<Arc<Known>>) -> Notable {
        Notable { tree, known }
    }

    /// Calls `each` for every inode of a tree that has no name or is not stored, and for others, in no order. It costs what
    /// differs from the tree whose are known.
    pub fn each(&self, tree: &Tree, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        let known = self.known.iter().flat_map(|known| &known.needed);
        self.each_known(known, tree, each);
        each_new(&self.tree, tree, each);
    }

    /// Calls `each` for every inode of a tree that has several names, and for others, in no order.
    pub fn each_linked(&self, tree: &Tree, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        let known = self.known.iter().flat_map(|known| &known.linked);
        self.each_known(known, tree, each);
        each_new(&self.tree, tree, each);
    }

    /// One may be among those of several files.
    fn each_known<'a>(
        &self,
        known: impl Iterator<Item = &'a Nid>,
        tree: &Tree,
        each: &mut dyn FnMut(Nid, &Arc<Inode>),
    ) {
        let mut known: Vec<Nid> = known.copied().collect();
        known.sort_unstable();
        known.dedup();
        for nid in known {
            if let (Some(known), Some(inode)) = (self.tree.get(nid), tree.get(nid))
                && Arc::ptr_eq(known, inode)
                && why_notable(inode) != 0
            {
                each(nid, inode);
            }
        }
    }

    /// As [`Notable::each`] for several trees; an inode that follow each other share comes once.
    pub fn each_of_all(&self, trees: Vec<&mut Tree>, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        let mut before: Option<&Tree> = None;
        for tree in trees {
            let tree: &Tree = tree;
            match before {
                None => self.each(tree, each),
                Some(before) => each_new(before, tree, each),
            }
            before = Some(tree);
        }
    }
}

/// Notable inodes of a tree that another one does not have.
fn each_new(before: &Tree, tree: &Tree, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
    Tree::diff(before, tree, &mut |nid, _, inode| {
        if let Some(inode) = inode.filter(|inode| why_notable(inode) != 0) {
            each(nid, inode);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::branch::state_file::tests::one_file_tree;
    use std::collections::BTreeSet;

    /// A tree of some inodes, of which those with these numbers lost their names.
    fn tree(count: u64, nameless: &[u64]) -> Tree {
        let root = one_file_tree().get(Nid::ROOT).cloned();
        let mut inode = (*root.unwrap()).clone();
        inode.content = Content::Special;
        let inodes = (1..=count).map(|n| {
            let mut inode = inode.clone();
            inode.nlink = u32::from(!nameless.contains(&n));
            (Nid(n), Arc::new(inode))
        });
        inodes.collect()
    }

    fn found(notable: &Notable, trees: &mut [Tree]) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        notable.each_of_all(trees.iter_mut().collect(), &mut |nid, inode| {
            assert!(why_notable(inode) != 0);
            assert!(found.insert(nid.0), "{nid} comes twice");
        });
        found
    }

    #[test]
    fn what_changed_since_the_known_tree_is_found_and_what_went_is_not() {
        let known = tree(100, &[3, 40, 70]);
        let mut live = known.clone();
        live.remove(Nid(40));
        live.update(Nid(70), |inode| inode.nlink = 1);
        live.update(Nid(80), |inode| inode.nlink = 0);
        let mut nids = Known::default();
        for nid in [3, 40, 70] {
            nids.note(Nid(nid), NAMELESS);
        }
        let notable = Notable::new(known.clone(), vec![Arc::new(nids)]);
        assert_eq!(
            found(&notable, &mut [live.clone()]),
            BTreeSet::from([3, 80])
        );
        assert_eq!(
            found(&Notable::default(), &mut [live.clone()]),
            BTreeSet::from([3, 80])
        );
        let all = BTreeSet::from([3, 40, 70, 80]);
        assert_eq!(found(&notable, &mut [live.clone(), known.clone()]), all);
        assert_eq!(found(&Notable::default(), &mut [live, known]), all);
    }
}
