//! Directories as objects, split by name hash, so that one change in a large one stores little.
//!
//! A node is a leaf iff it holds at most [`TREE_LEAF_ENTRIES_MAX`] entries (or stands at
//! [`TREE_DEPTH_MAX`]); else it has up to 16 children, by the next four bits of the hash from the top.
//! So the nodes depend on nothing but the set of entries. Entries stand in the order of (hash, name).

use bincode::{Decode, Encode};

pub use super::diff::diff_trees;
pub use super::edit::{Edit, edit_tree};
use crate::codec::DecodeError;
use crate::content::FileContent;
use crate::error::{Error, Result};
use crate::id::{Kind, TreeId};
use crate::limits::{NAME_BYTES_MAX, TREE_DEPTH_MAX, TREE_LEAF_ENTRIES_MAX};
use crate::object::Object;
use crate::store::ObjectStore;
use std::cell::RefCell;

/// Children of an inner node.
pub(crate) const FANOUT: usize = 16;

/// Bits of a name hash: what fits a `readdir` cookie with room to spare.
const HASH_BITS: u32 = 62;

/// The hash that places a name in its directory: the first eight bytes of blake3 of the name as a
/// big-endian number, without its two lowest bits.
pub fn name_hash(name: &[u8]) -> u64 {
    LAST_NAME.with_borrow_mut(|last| {
        if last.bytes.get(..last.len) != Some(name) {
            let hash = hash_of(name);
            let Some(bytes) = last.bytes.get_mut(..name.len()) else {
                return hash;
            };
            bytes.copy_from_slice(name);
            (last.len, last.hash) = (name.len(), hash);
        }
        last.hash
    })
}

/// The name that a thread hashed last: whoever changes something hashes its name several times, until it is changed.
struct LastName {
    bytes: [u8; LAST_NAME_BYTES],
    len: usize,
    hash: u64,
}

/// Longer names are hashed each time.
const LAST_NAME_BYTES: usize = 64;

thread_local! {
    static LAST_NAME: RefCell<LastName> = const {
        RefCell::new(LastName {
            bytes: [0; LAST_NAME_BYTES],
            // None yet.
            len: usize::MAX,
            hash: 0,
        })
    };
}

fn hash_of(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let mut eight = [0; 8];
    eight.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(eight) >> (64 - HASH_BITS)
}

/// The child of a node at `depth` (the root is at 0) in which names with this hash are.
pub fn child_slot(hash: u64, depth: u32) -> usize {
    debug_assert!(depth < TREE_DEPTH_MAX);
    (hash >> (HASH_BITS - 4 * (depth + 1))) as usize % FANOUT
}

/// Attributes of a file, whatever its type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Meta {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of last change of content, seconds since 1970.
    pub mtime_sec: i64,
    /// Nanoseconds of it.
    pub mtime_nsec: u32,
    /// Device number, of a device.
    pub rdev: u64,
    /// 0 for a single link; entries with equal numbers in one commit are links of one inode.
    pub link_group: u64,
    /// Extended attributes, sorted by name, names unique.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Meta {
    /// Checks order and bounds.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.mtime_nsec >= 1_000_000_000 {
            return Err("nanoseconds of a time");
        }
        if !self.xattrs.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("extended attributes are not sorted");
        }
        Ok(())
    }
}

/// What an entry is, beside its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Body {
    /// Fifo, socket, device.
    None,
    /// Regular file.
    File(FileContent),
    /// Symbolic link with its target.
    Symlink(Vec<u8>),
    /// Directory; `None` where it is empty.
    Dir(Option<TreeId>),
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct TreeEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Attributes.
    pub meta: Meta,
    /// What it is.
    pub body: Body,
}

impl TreeEntry {
    pub(crate) fn order(&self) -> (u64, &[u8]) {
        (name_hash(&self.name), &self.name)
    }

    fn check(&self) -> Result<(), &'static str> {
        let name = &self.name[..];
        let plain = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !plain || name == b"." || name == b".."
        {
            return Err("name of an entry");
        }
        self.meta.check()
    }
}

/// A part of a large directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TreeChild {
    /// The four bits that lead to it.
    pub slot: u8,
    /// Entries below it.
    pub count: u64,
    /// Its id.
    pub id: TreeId,
}

/// A node of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TreeNode {
    /// Entries sorted by (hash, name), at least one.
    Leaf(Vec<TreeEntry>),
    /// Children sorted by slot.
    Inner(Vec<TreeChild>),
}

impl Object for TreeNode {
    type Id = TreeId;
    const KIND: Kind = Kind::Tree;
    const VERSION: u16 = 1;

    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        super::decoded(bytes)
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            TreeNode::Leaf(entries) => {
                let orders = entries.iter().map(TreeEntry::order);
                if entries.is_empty() || !orders.is_sorted_by(|a, b| a < b) {
                    return Err("entries of a directory are not sorted");
                }
                entries.iter().try_for_each(TreeEntry::check)
            }
            TreeNode::Inner(children) => check_children(children),
        }
    }
}

fn check_children(children: &[TreeChild]) -> Result<(), &'static str> {
    let slots = children
        .iter()
        .all(|child| usize::from(child.slot) < FANOUT);
    if !slots || !children.is_sorted_by(|a, b| a.slot < b.slot) {
        return Err("parts of a directory");
    }
    let count = children
        .iter()
        .try_fold(0u64, |sum, child| sum.checked_add(child.count));
    match count {
        Some(count) if count > TREE_LEAF_ENTRIES_MAX as u64 => Ok(()),
        _ => Err("number of entries in a directory"),
    }
}

/// Distributes sorted entries of a node at `depth` to its children.
pub(crate) fn split_by_slot(entries: Vec<TreeEntry>, depth: u32) -> [Vec<TreeEntry>; FANOUT] {
    let mut slots: [Vec<TreeEntry>; FANOUT] = Default::default();
    for entry in entries {
        slots[child_slot(name_hash(&entry.name), depth)].push(entry);
    }
    slots
}

pub(crate) fn too_deep() -> Error {
    Error::BadObject {
        kind: Kind::Tree,
        id: String::new(),
        what: "a directory is split too deep",
    }
}

/// Calls `visit` for each entry of a directory, in the order of (hash, name).
pub fn read_tree(
    store: &ObjectStore,
    tree: Option<TreeId>,
    visit: &mut dyn FnMut(TreeEntry) -> Result<()>,
) -> Result<()> {
    match tree {
        Some(id) => read_node(store, &id, 0, visit),
        None => Ok(()),
    }
}

fn read_node(
    store: &ObjectStore,
    id: &TreeId,
    depth: u32,
    visit: &mut dyn FnMut(TreeEntry) -> Result<()>,
) -> Result<()> {
    match store.get_object(id)? {
        TreeNode::Leaf(entries) => entries.into_iter().try_for_each(visit),
        TreeNode::Inner(_) if depth >= TREE_DEPTH_MAX => Err(too_deep()),
        TreeNode::Inner(children) => children
            .iter()
            .try_for_each(|child| read_node(store, &child.id, depth + 1, visit)),
    }
}

/// The entry with this name, if there is one.
pub fn tree_entry(store: &ObjectStore, tree: TreeId, name: &[u8]) -> Result<Option<TreeEntry>> {
    let hash = name_hash(name);
    let mut id = tree;
    for depth in 0..=TREE_DEPTH_MAX {
        match store.get_object(&id)? {
            TreeNode::Leaf(entries) => {
                return Ok(entries.into_iter().find(|entry| entry.name == name));
            }
            TreeNode::Inner(_) if depth == TREE_DEPTH_MAX => break,
            TreeNode::Inner(children) => {
                let slot = child_slot(hash, depth);
                match children
                    .iter()
                    .find(|child| usize::from(child.slot) == slot)
                {
                    Some(child) => id = child.id,
                    None => return Ok(None),
                }
            }
        }
    }
    Err(too_deep())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_own_hash_whichever_was_hashed_before() {
        let long = vec![b'n'; NAME_BYTES_MAX];
        let lengths = [
            0,
            1,
            2,
            LAST_NAME_BYTES - 1,
            LAST_NAME_BYTES,
            LAST_NAME_BYTES + 1,
        ];
        let beginnings = lengths.iter().map(|len| &long[..*len]);
        let names: Vec<&[u8]> = beginnings.chain([&long[..], b"m", b"\0"]).collect();
        for first in &names {
            for second in &names {
                assert_eq!(name_hash(first), hash_of(first));
                assert_eq!(name_hash(second), hash_of(second));
            }
        }
    }
}
