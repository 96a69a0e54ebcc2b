//! Inodes that opening a branch looks for: few, where all is stored. They are noted while a tree file is read, so that no
//! pass over the whole tree is needed afterwards.

use crate::tree::Tree;
use crate::tree::file::Body;
use crate::tree::inode::{Content, Inode};
use crate::types::Nid;
use std::sync::Arc;

/// Whether an inode is one of them: it has no name or several; it is of the base, or a directory of it that was not
/// read; some of it is in a journal.
pub(crate) fn is_notable(inode: &Inode) -> bool {
    let is_content = match &inode.content {
        Content::File(file) => !file.is_plain() || matches!(file.body().0, Body::Base(_)),
        Content::Dir(dir) => dir.lazy.is_some(),
        Content::Symlink(_) | Content::Special => false,
    };
    is_content || inode.nlink == 0 || inode.links.is_some()
}

/// Those of a tree, by which those of trees that came from it are found, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notable {
    tree: Tree,
    nids: Arc<Vec<Nid>>,
}

impl Notable {
    /// `nids` are those of `tree`.
    pub fn new(tree: Tree, nids: Arc<Vec<Nid>>) -> Notable {
        Notable { tree, nids }
    }

    /// Calls `each` for every notable inode of a tree, in no order. It costs what differs from the tree whose are known.
    pub fn each(&self, tree: &Tree, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        for nid in self.nids.iter() {
            if let (Some(known), Some(inode)) = (self.tree.get(*nid), tree.get(*nid))
                && Arc::ptr_eq(known, inode)
            {
                each(*nid, inode);
            }
        }
        each_new(&self.tree, tree, each);
    }

    /// The same for several trees; an inode that follow each other share comes once.
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
        if let Some(inode) = inode.filter(|inode| is_notable(inode)) {
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
            assert!(is_notable(inode));
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
        let nids = [3, 40, 70].map(Nid).to_vec();
        let notable = Notable::new(known.clone(), Arc::new(nids));
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
