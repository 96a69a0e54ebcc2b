//! Manifests: the canonical list of a file's chunks and holes.
//!
//! A list is cut into nodes where a chunk's id begins with a zero byte, and at
//! [`MANIFEST_ENTRIES_MAX`] entries; if there is more than one node, their ids are a list that is cut
//! the same way (but never after the first node of a level, which may be the root), up to one root. So the nodes depend on nothing but the list, and a change of
//! one chunk changes one node per level.

use std::sync::Arc;

use bincode::enc::Encoder;
use bincode::error::EncodeError;
use bincode::{Decode, Encode};

use crate::codec::{self, DecodeError};
use crate::error::{Error, Result};
use crate::id::{ChunkId, Kind, ManifestId};
use crate::limits::{CHUNK_BYTES_MAX, MANIFEST_ENTRIES_MAX, MANIFEST_LEVELS_MAX};
use crate::object::Object;
use crate::store::ObjectStore;

/// One piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Part {
    /// Bytes that read as zero and take no space.
    Hole {
        /// How many.
        len: u64,
    },
    /// A chunk.
    Data {
        /// Its length.
        len: u32,
        /// Its id.
        id: ChunkId,
    },
}

impl Part {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Part::Hole { len } => *len,
            Part::Data { len, .. } => u64::from(*len),
        }
    }

    /// Always false in a checked manifest.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True for data.
    pub fn is_data(&self) -> bool {
        matches!(self, Part::Data { .. })
    }
}

/// A node of the level below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Child {
    /// Bytes of the file that it covers.
    pub len: u64,
    /// Its id.
    pub id: ManifestId,
}

/// What the list of a file's parts depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Also on which ranges were told to be data when it was stored: a block of zeros may be data. Of builds before
    /// version 2 of the encoding.
    ByRanges,
    /// On the bytes alone: a block is in a hole exactly if it is all zeros.
    Canonical,
}

/// A node of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Form of the list that it belongs to.
    pub form: Form,
    /// What it consists of.
    pub node: Node,
}

/// What a node of a manifest consists of.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Node {
    /// Pieces of the file, in order.
    Leaf(Vec<Part>),
    /// Nodes of the level below, in order.
    Inner {
        /// Height over the leaves, at least 1.
        level: u8,
        /// The nodes.
        children: Vec<Child>,
    },
}

impl Encode for Manifest {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.node.encode(encoder)
    }
}

impl Object for Manifest {
    type Id = ManifestId;
    const KIND: Kind = Kind::Manifest;
    const VERSION: u16 = 2;

    fn version(&self) -> u16 {
        match self.form {
            Form::ByRanges => 1,
            Form::Canonical => 2,
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Manifest, DecodeError> {
        let (version, node) = codec::decode_object(Self::KIND, Self::VERSION, bytes)?;
        let form = match version {
            1 => Form::ByRanges,
            _ => Form::Canonical,
        };
        Ok(Manifest { form, node })
    }

    fn check(&self) -> Result<(), &'static str> {
        let count = match &self.node {
            Node::Leaf(parts) => {
                check_parts(parts)?;
                parts.len()
            }
            Node::Inner { level, children } => {
                if *level == 0 || *level > MANIFEST_LEVELS_MAX {
                    return Err("level of a manifest");
                }
                check_sum(children.iter().map(|child| child.len))?;
                children.len()
            }
        };
        if count == 0 || count > MANIFEST_ENTRIES_MAX {
            return Err("number of entries in a manifest");
        }
        Ok(())
    }
}

fn check_parts(parts: &[Part]) -> Result<(), &'static str> {
    let too_long = |part: &Part| part.is_data() && part.len() > CHUNK_BYTES_MAX as u64;
    if parts.iter().any(too_long) {
        return Err("length of a chunk in a manifest");
    }
    check_sum(parts.iter().map(Part::len))
}

fn check_sum(mut lengths: impl Iterator<Item = u64>) -> Result<(), &'static str> {
    let sum = lengths.try_fold(0u64, |sum, len| sum.checked_add(len).filter(|_| len > 0));
    // File offsets are signed in the kernel.
    match sum {
        Some(sum) if sum <= i64::MAX as u64 => Ok(()),
        _ => Err("lengths in a manifest"),
    }
}

/// A decoded node with the offsets of its entries, for binary search.
#[derive(Debug)]
pub(crate) struct OpenManifest {
    pub manifest: Manifest,
    /// Offset of each entry within the node, and of its end.
    pub starts: Vec<u64>,
}

impl OpenManifest {
    pub fn new(manifest: Manifest) -> OpenManifest {
        let mut starts = vec![0];
        let mut end = 0;
        let mut push = |len: u64| {
            end += len;
            starts.push(end);
        };
        match &manifest.node {
            Node::Leaf(parts) => parts.iter().for_each(|part| push(part.len())),
            Node::Inner { children, .. } => children.iter().for_each(|child| push(child.len)),
        }
        OpenManifest { manifest, starts }
    }

    /// Bytes of the file that it covers.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    pub fn memory_bytes(&self) -> usize {
        self.starts.len() * (size_of::<u64>() + size_of::<Part>()) + size_of::<OpenManifest>()
    }

    /// The entry that holds `offset`, which is below [`OpenManifest::len`].
    fn entry_at(&self, offset: u64) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }
}

/// Goes through the parts of a manifest in order.
pub(crate) struct Cursor<'a> {
    store: &'a ObjectStore,
    may_wait: bool,
    /// From the root down: node, offset of its start in the file, next entry.
    stack: Vec<(Arc<OpenManifest>, u64, usize)>,
}

/// A part and where it starts.
pub(crate) type Placed = (u64, Part);

/// Stands for "the disk would have to be waited for" where that is not wanted.
pub(crate) enum Step<T> {
    Done(T),
    WouldWait,
}

impl<'a> Cursor<'a> {
    /// Begins at the part that holds `offset`, which is below `len`, the manifest's length.
    pub fn new(
        store: &'a ObjectStore,
        root: &ManifestId,
        len: u64,
        offset: u64,
        may_wait: bool,
    ) -> Result<Step<Cursor<'a>>> {
        let mut cursor = Cursor {
            store,
            may_wait,
            stack: Vec::new(),
        };
        let Some(node) = store.manifest_node(root, may_wait)? else {
            return Ok(Step::WouldWait);
        };
        if node.len() != len {
            return Err(malformed(root, "length differs from what refers to it"));
        }
        cursor.push(node, 0, offset);
        Ok(Step::Done(cursor))
    }

    fn push(&mut self, node: Arc<OpenManifest>, base: u64, offset: u64) {
        let entry = node.entry_at(offset - base);
        self.stack.push((node, base, entry));
    }

    /// The next part; `None` at the end.
    ///
    /// `offset` says where to go down in nodes that are entered: anything at or before the next part.
    pub fn next(&mut self, offset: u64) -> Result<Step<Option<Placed>>> {
        while let Some((node, base, entry)) = self.stack.last_mut() {
            let i = *entry;
            *entry += 1;
            let Some(start) = node.starts.get(i).map(|start| *base + start) else {
                self.stack.pop();
                continue;
            };
            match &node.manifest.node {
                Node::Leaf(parts) if i < parts.len() => {
                    return Ok(Step::Done(Some((start, parts[i]))));
                }
                Node::Inner { level, children } if i < children.len() => {
                    let (level, child) = (*level, children[i]);
                    if !self.descend(level, child, start, offset)? {
                        // So that a later call tries again.
                        if let Some((_, _, entry)) = self.stack.last_mut() {
                            *entry -= 1;
                        }
                        return Ok(Step::WouldWait);
                    }
                }
                _ => {
                    self.stack.pop();
                }
            }
        }
        Ok(Step::Done(None))
    }

    /// Enters a child; false where the disk would have to be waited for.
    fn descend(&mut self, level: u8, child: Child, start: u64, offset: u64) -> Result<bool> {
        let Some(node) = self.store.manifest_node(&child.id, self.may_wait)? else {
            return Ok(false);
        };
        let below = match &node.manifest.node {
            Node::Leaf(_) => 0,
            Node::Inner { level, .. } => *level,
        };
        if below + 1 != level || node.len() != child.len {
            return Err(malformed(&child.id, "does not fit the node above it"));
        }
        let offset = offset.clamp(start, start + child.len - 1);
        self.push(node, start, offset);
        Ok(true)
    }
}

fn no_parts() -> Error {
    Error::BadObject {
        kind: Kind::Manifest,
        id: String::new(),
        what: "a manifest without parts",
    }
}

fn malformed(id: &ManifestId, what: &'static str) -> Error {
    Error::BadObject {
        kind: Kind::Manifest,
        id: id.to_string(),
        what,
    }
}

/// Builds a manifest from parts in order, in bounded memory.
pub(crate) struct Builder<'a> {
    store: &'a ObjectStore,
    form: Form,
    parts: Vec<Part>,
    /// Nodes of each level that are not yet in one of the level above.
    levels: Vec<Vec<Child>>,
}

impl<'a> Builder<'a> {
    pub fn new(store: &'a ObjectStore, form: Form) -> Builder<'a> {
        Builder {
            store,
            form,
            parts: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Adds the next part. Holes must not follow each other.
    pub fn push(&mut self, part: Part) -> Result<()> {
        self.parts.push(part);
        let cut = matches!(part, Part::Data { id, .. } if id.as_bytes()[0] == 0);
        if cut || self.parts.len() == MANIFEST_ENTRIES_MAX {
            self.close_leaf()?;
        }
        Ok(())
    }

    fn close_leaf(&mut self) -> Result<()> {
        let len = self.parts.iter().map(Part::len).sum();
        let node = Node::Leaf(std::mem::take(&mut self.parts));
        let id = self.put(node)?;
        self.add_child(0, Child { len, id })
    }

    fn put(&self, node: Node) -> Result<ManifestId> {
        let form = self.form;
        self.store.put_object(&Manifest { form, node })
    }

    /// Adds a node to the list that level `level + 1` is made of.
    fn add_child(&mut self, level: usize, child: Child) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(child);
        let full = self.levels[level].len() == MANIFEST_ENTRIES_MAX;
        if full || child.id.as_bytes()[0] == 0 && !self.is_only_node(level) {
            self.close_inner(level)?;
        }
        Ok(())
    }

    /// True while the level has one node in all: it may turn out to be the root.
    fn is_only_node(&self, level: usize) -> bool {
        self.levels[level].len() == 1 && self.levels.len() == level + 1
    }

    fn close_inner(&mut self, level: usize) -> Result<()> {
        let children = std::mem::take(&mut self.levels[level]);
        let len = children.iter().map(|child| child.len).sum();
        let id = self.put(Node::Inner {
            level: level as u8 + 1,
            children,
        })?;
        self.add_child(level + 1, Child { len, id })
    }

    /// The root. There must have been a part.
    pub fn finish(mut self) -> Result<Child> {
        if !self.parts.is_empty() {
            self.close_leaf()?;
        }
        let mut level = 0;
        loop {
            let top = level + 1 == self.levels.len();
            match self.levels.get(level).map(Vec::as_slice) {
                Some([root]) if top => return Ok(*root),
                Some([]) => {}
                Some(_) => self.close_inner(level)?,
                None => return Err(no_parts()),
            }
            level += 1;
        }
    }
}
