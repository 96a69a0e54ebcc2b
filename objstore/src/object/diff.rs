//! Comparing two stored directories, one level, without reading what they share.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::id::{Kind, TreeId};
use crate::limits::TREE_DEPTH_MAX;
use crate::object::tree::{FANOUT, TreeEntry, TreeNode, split_by_slot};
use crate::store::ObjectStore;

/// Receives an entry of the one and of the other directory; at least one is there.
pub type Visit<'a> = dyn FnMut(Option<&TreeEntry>, Option<&TreeEntry>) -> Result<()> + 'a;

/// A stored node, or entries of a leaf that stand against an inner node of the other side.
#[derive(PartialEq, Eq)]
enum Side {
    Stored(TreeId),
    Entries(Vec<TreeEntry>),
}

/// Calls `visit` for each name of one directory level that differs between `a` and `b`: with both
/// entries, or the one that exists. Names come in the order of (hash, name). Equal nodes are not read.
pub fn diff_trees(
    store: &ObjectStore,
    a: Option<TreeId>,
    b: Option<TreeId>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let side = |id: Option<TreeId>| id.map_or(Side::Entries(Vec::new()), Side::Stored);
    diff_nodes(store, side(a), side(b), 0, visit)
}

fn diff_nodes(
    store: &ObjectStore,
    a: Side,
    b: Side,
    depth: u32,
    visit: &mut Visit<'_>,
) -> Result<()> {
    if a == b {
        return Ok(());
    }
    match (load(store, a)?, load(store, b)?) {
        (TreeNode::Leaf(a), TreeNode::Leaf(b)) => diff_entries(&a, &b, visit),
        _ if depth >= TREE_DEPTH_MAX => {
            let what = "a directory is split too deep";
            Err(Error::BadObject {
                kind: Kind::Tree,
                id: String::new(),
                what,
            })
        }
        (a, b) => {
            let pairs = by_slot(a, depth).into_iter().zip(by_slot(b, depth));
            for (a, b) in pairs {
                diff_nodes(store, a, b, depth + 1, visit)?;
            }
            Ok(())
        }
    }
}

fn load(store: &ObjectStore, side: Side) -> Result<TreeNode> {
    match side {
        Side::Stored(id) => store.get_object(&id),
        Side::Entries(entries) => Ok(TreeNode::Leaf(entries)),
    }
}

fn by_slot(node: TreeNode, depth: u32) -> [Side; FANOUT] {
    match node {
        TreeNode::Leaf(entries) => split_by_slot(entries, depth).map(Side::Entries),
        TreeNode::Inner(children) => {
            let mut sides = [(); FANOUT].map(|()| Side::Entries(Vec::new()));
            for child in children {
                sides[usize::from(child.slot)] = Side::Stored(child.id);
            }
            sides
        }
    }
}

fn diff_entries(a: &[TreeEntry], b: &[TreeEntry], visit: &mut Visit<'_>) -> Result<()> {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.order().cmp(&b.order()),
        };
        let a = if order.is_le() { left.next() } else { None };
        let b = if order.is_ge() { right.next() } else { None };
        if a != b {
            visit(a, b)?;
        }
    }
}
