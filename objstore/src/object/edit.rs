//! Editing a stored directory: only what an edit touches is read and written.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::id::TreeId;
use crate::limits::{TREE_DEPTH_MAX, TREE_LEAF_ENTRIES_MAX};
use crate::object::tree::{
    FANOUT, TreeChild, TreeEntry, TreeNode, child_slot, name_hash, read_tree, split_by_slot,
    too_deep,
};
use crate::store::ObjectStore;

/// A change of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Adds an entry, or replaces the one with its name.
    Put(TreeEntry),
    /// Removes a name; nothing happens where there is none.
    Remove(Vec<u8>),
}

/// Edits by the order of their names; `None` removes.
type Edits = BTreeMap<(u64, Vec<u8>), Option<TreeEntry>>;

/// A node that may not be stored yet.
enum Draft {
    Stored {
        id: TreeId,
        count: u64,
    },
    Leaf(Vec<TreeEntry>),
    Inner {
        children: Vec<(usize, Draft)>,
        count: u64,
    },
}

impl Draft {
    fn count(&self) -> u64 {
        match self {
            Draft::Stored { count, .. } | Draft::Inner { count, .. } => *count,
            Draft::Leaf(entries) => entries.len() as u64,
        }
    }
}

/// Applies edits to a stored directory and stores the result; of several edits of one name the last
/// counts. Reads and writes only the nodes that are touched. `None` is the empty directory.
pub fn edit_tree(
    store: &ObjectStore,
    base: Option<TreeId>,
    edits: Vec<Edit>,
) -> Result<Option<TreeId>> {
    let mut by_order = Edits::new();
    for edit in edits {
        let (name, entry) = match edit {
            Edit::Put(entry) => (entry.name.clone(), Some(entry)),
            Edit::Remove(name) => (name, None),
        };
        by_order.insert((name_hash(&name), name), entry);
    }
    if by_order.is_empty() {
        return Ok(base);
    }
    let base = match base {
        Some(id) => load_draft(store, &id)?,
        None => Draft::Leaf(Vec::new()),
    };
    let edited = edit_node(store, base, by_order, 0)?;
    Ok(save_draft(store, edited)?.map(|(id, _)| id))
}

fn load_draft(store: &ObjectStore, id: &TreeId) -> Result<Draft> {
    Ok(match store.get_object(id)? {
        TreeNode::Leaf(entries) => Draft::Leaf(entries),
        TreeNode::Inner(stored) => {
            let count = stored.iter().map(|child| child.count).sum();
            let child = |c: TreeChild| {
                (
                    usize::from(c.slot),
                    Draft::Stored {
                        id: c.id,
                        count: c.count,
                    },
                )
            };
            Draft::Inner {
                children: stored.into_iter().map(child).collect(),
                count,
            }
        }
    })
}

fn edit_node(store: &ObjectStore, node: Draft, edits: Edits, depth: u32) -> Result<Draft> {
    match node {
        Draft::Stored { id, .. } => edit_node(store, load_draft(store, &id)?, edits, depth),
        Draft::Leaf(entries) => Ok(split(merge(entries, edits), depth)),
        Draft::Inner { .. } if depth >= TREE_DEPTH_MAX => Err(too_deep()),
        Draft::Inner { children, .. } => edit_inner(store, children, edits, depth),
    }
}

fn edit_inner(
    store: &ObjectStore,
    children: Vec<(usize, Draft)>,
    edits: Edits,
    depth: u32,
) -> Result<Draft> {
    let mut slots: [Option<Draft>; FANOUT] = Default::default();
    for (slot, child) in children {
        slots[slot] = Some(child);
    }
    let mut edits_by_slot: [Edits; FANOUT] = Default::default();
    for (order, entry) in edits {
        edits_by_slot[child_slot(order.0, depth)].insert(order, entry);
    }
    for (slot, edits) in slots.iter_mut().zip(edits_by_slot) {
        if !edits.is_empty() {
            let child = slot.take().unwrap_or(Draft::Leaf(Vec::new()));
            *slot = Some(edit_node(store, child, edits, depth + 1)?);
        }
    }
    let kept = slots
        .into_iter()
        .enumerate()
        .filter_map(|(i, child)| Some((i, child?)));
    let children: Vec<_> = kept.filter(|(_, child)| child.count() > 0).collect();
    let count = children.iter().map(|(_, child)| child.count()).sum();
    let node = Draft::Inner { children, count };
    if count > TREE_LEAF_ENTRIES_MAX as u64 {
        return Ok(node);
    }
    let mut entries = Vec::new();
    collect(store, node, &mut entries)?;
    Ok(Draft::Leaf(entries))
}

/// All entries below a node, in order.
fn collect(store: &ObjectStore, node: Draft, out: &mut Vec<TreeEntry>) -> Result<()> {
    match node {
        Draft::Stored { id, .. } => read_tree(store, Some(id), &mut |entry| {
            out.push(entry);
            Ok(())
        }),
        Draft::Leaf(entries) => {
            out.extend(entries);
            Ok(())
        }
        Draft::Inner { children, .. } => children
            .into_iter()
            .try_for_each(|(_, child)| collect(store, child, out)),
    }
}

/// Sorted entries with the edits applied, still sorted.
fn merge(entries: Vec<TreeEntry>, edits: Edits) -> Vec<TreeEntry> {
    let mut merged = Vec::with_capacity(entries.len() + edits.len());
    let mut edits = edits.into_iter().peekable();
    for entry in entries {
        let order = entry.order();
        while let Some((_, new)) = edits.next_if(|((hash, name), _)| (*hash, &name[..]) < order) {
            merged.extend(new);
        }
        match edits.next_if(|((hash, name), _)| (*hash, &name[..]) == order) {
            Some((_, new)) => merged.extend(new),
            None => merged.push(entry),
        }
    }
    merged.extend(edits.filter_map(|(_, new)| new));
    merged
}

/// A node of these sorted entries.
fn split(entries: Vec<TreeEntry>, depth: u32) -> Draft {
    if entries.len() <= TREE_LEAF_ENTRIES_MAX || depth >= TREE_DEPTH_MAX {
        return Draft::Leaf(entries);
    }
    let count = entries.len() as u64;
    let children = split_by_slot(entries, depth).into_iter().enumerate();
    let children = children.filter(|(_, entries)| !entries.is_empty());
    Draft::Inner {
        children: children
            .map(|(i, part)| (i, split(part, depth + 1)))
            .collect(),
        count,
    }
}

/// Stores a node and what is below it; `None` where it is empty.
fn save_draft(store: &ObjectStore, node: Draft) -> Result<Option<(TreeId, u64)>> {
    let count = node.count();
    let id = match node {
        Draft::Stored { id, .. } => id,
        Draft::Leaf(entries) if entries.is_empty() => return Ok(None),
        Draft::Leaf(entries) => store.put_object(&TreeNode::Leaf(entries))?,
        Draft::Inner { children, .. } => {
            let mut stored = Vec::with_capacity(children.len());
            for (slot, child) in children {
                if let Some((id, count)) = save_draft(store, child)? {
                    stored.push(TreeChild {
                        slot: slot as u8,
                        count,
                        id,
                    });
                }
            }
            store.put_object(&TreeNode::Inner(stored))?
        }
    };
    Ok(Some((id, count)))
}
