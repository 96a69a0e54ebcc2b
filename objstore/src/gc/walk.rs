//! Going from roots to everything that they need.
//!
//! What was marked is not looked into again, so shared parts cost nothing; directories nested however
//! deep take no stack. One commit is much like the next, so nearly all that is met was met just before: a
//! small table of that spares the search through the indexes of all packs.

use super::Collection;
use super::marks::Marked;
use crate::content::FileContent;
use crate::error::{Error, Result};
use crate::id::{ChunkId, CommitId, ID_BYTES, Kind, ManifestId, TreeId};
use crate::limits::{MANIFEST_LEVELS_MAX, TREE_DEPTH_MAX};
use crate::object::Object;
use crate::object::commit::Commit;
use crate::object::manifest::{Manifest, Node, Part};
use crate::object::tree::{Body, TreeEntry, TreeNode};
use crate::pack::Key;

/// An object that a walk met for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Bytes that its record takes.
    pub stored: u64,
    /// Length of its content.
    pub raw: u64,
    /// Name of the file that it belongs to, where it is the content of one.
    pub name: Option<&'a [u8]>,
}

/// Whether what a root refers to must all be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// What is missing or damaged is an error.
    All,
    /// What is missing is passed over: the root was never stored as a whole.
    WhatIsThere,
    /// What is missing is passed over, as it is elsewhere, and noted ([`Collection::take_missing`]); what is damaged is
    /// an error.
    WhatIsHere,
}

/// What is still to be looked into.
enum Todo {
    Commit(CommitId, Strictness),
    Tree(TreeId, u32, Strictness),
    Manifest(ManifestId, u8, Strictness, Option<Vec<u8>>),
}

/// Slots of the table of what was met lately: 2 MiB.
const RECENT_SLOTS: usize = 1 << 16;

/// Objects that were met lately, each in the slot that its hash chooses.
struct Recent(Vec<Option<Key>>);

impl Recent {
    fn new() -> Recent {
        Recent(vec![None; RECENT_SLOTS])
    }

    fn slot(&mut self, key: &Key) -> &mut Option<Key> {
        let at = u16::from_le_bytes([key.1[0], key.1[1]]);
        &mut self.0[usize::from(at)]
    }
}

/// A walk of one run of gc. `met` hears of each object once.
pub struct Walk<'a> {
    collection: &'a Collection<'a>,
    met: &'a mut dyn FnMut(Met<'_>),
    todo: Vec<Todo>,
    /// Ancestors, which need not be there: after all that must be.
    ancestors: Vec<CommitId>,
    recent: Recent,
}

impl<'a> Walk<'a> {
    /// A walk that marks what it meets.
    pub fn new(collection: &'a Collection<'a>, met: &'a mut dyn FnMut(Met<'_>)) -> Walk<'a> {
        Walk {
            collection,
            met,
            todo: Vec::new(),
            ancestors: Vec::new(),
            recent: Recent::new(),
        }
    }

    /// Marks a commit and all below it; its ancestors wait for [`Walk::finish`]. What must be there
    /// as a whole comes before what need not.
    pub fn commit(&mut self, id: CommitId, strict: Strictness) -> Result<()> {
        self.todo.push(Todo::Commit(id, strict));
        self.run()
    }

    /// Marks a directory and all below it.
    pub fn tree(&mut self, id: TreeId, strict: Strictness) -> Result<()> {
        self.todo.push(Todo::Tree(id, 0, strict));
        self.run()
    }

    /// Marks the content of a file named `name`.
    pub fn content(
        &mut self,
        content: &FileContent,
        name: &[u8],
        strict: Strictness,
    ) -> Result<()> {
        self.file(content, Some(name), strict)?;
        self.run()
    }

    /// Marks the ancestors of all commits, as far as they are there.
    pub fn finish(mut self) -> Result<()> {
        while let Some(id) = self.ancestors.pop() {
            self.commit(id, Strictness::WhatIsThere)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        while let Some(todo) = self.todo.pop() {
            self.collection.check_stop()?;
            match todo {
                Todo::Commit(id, strict) => self.enter_commit(&id, strict)?,
                Todo::Tree(id, depth, strict) => self.enter_tree(&id, depth, strict)?,
                Todo::Manifest(id, level, strict, name) => {
                    self.enter_manifest(&id, level, strict, name)?;
                }
            }
        }
        Ok(())
    }

    /// Marks an object and reads it, where that was not done before.
    fn enter<T: Object>(
        &mut self,
        id: &T::Id,
        name: Option<&[u8]>,
        strict: Strictness,
    ) -> Result<Option<T>> {
        use crate::id::ObjectId;
        let hash = id.as_bytes();
        let Some(stored) = self.mark(T::KIND, hash, strict)? else {
            return Ok(None);
        };
        let bytes = match self.collection.store.get(T::KIND, hash) {
            Err(e) if e.is_damage() && strict == Strictness::WhatIsThere => return Ok(None),
            read => read?,
        };
        (self.met)(Met {
            kind: T::KIND,
            stored,
            raw: bytes.len() as u64,
            name,
        });
        let object = T::from_bytes(&bytes).map_err(|e| e.0);
        let checked = object.and_then(|o| o.check().map(|()| o));
        match checked {
            Ok(object) => Ok(Some(object)),
            Err(_) if strict == Strictness::WhatIsThere => Ok(None),
            Err(what) => Err(bad(T::KIND, hash, what)),
        }
    }

    /// The length of the record, where it was not marked before.
    fn mark(
        &mut self,
        kind: Kind,
        hash: &[u8; ID_BYTES],
        strict: Strictness,
    ) -> Result<Option<u64>> {
        let key = (kind, *hash);
        if *self.recent.slot(&key) == Some(key) {
            return Ok(None);
        }
        let marked = self.collection.mark(&key)?;
        if marked != Marked::Missing {
            *self.recent.slot(&key) = Some(key);
        }
        match marked {
            Marked::Now(stored) => Ok(Some(stored)),
            Marked::Before => Ok(None),
            Marked::Missing if strict == Strictness::WhatIsThere => Ok(None),
            Marked::Missing if strict == Strictness::WhatIsHere => {
                self.collection.missing.lock().insert(key);
                Ok(None)
            }
            Marked::Missing => Err(Error::ObjectMissing {
                kind,
                id: crate::id::hex(hash),
            }),
        }
    }

    fn enter_commit(&mut self, id: &CommitId, strict: Strictness) -> Result<()> {
        let Some(commit) = self.enter::<Commit>(id, None, strict)? else {
            return Ok(());
        };
        self.ancestors.extend(&commit.parents);
        self.todo
            .extend(commit.root.map(|root| Todo::Tree(root, 0, strict)));
        match commit.kv {
            Some(kv) => self.file(&kv, None, strict),
            None => Ok(()),
        }
    }

    fn enter_tree(&mut self, id: &TreeId, depth: u32, strict: Strictness) -> Result<()> {
        match self.enter::<TreeNode>(id, None, strict)? {
            None => Ok(()),
            Some(TreeNode::Leaf(entries)) => entries.iter().try_for_each(|e| self.entry(e, strict)),
            Some(TreeNode::Inner(_)) if depth >= TREE_DEPTH_MAX => {
                Err(bad(Kind::Tree, id.as_bytes(), "it is split too deep"))
            }
            Some(TreeNode::Inner(children)) => {
                let below = children.iter().map(|c| Todo::Tree(c.id, depth + 1, strict));
                self.todo.extend(below);
                Ok(())
            }
        }
    }

    fn entry(&mut self, e: &TreeEntry, strict: Strictness) -> Result<()> {
        match &e.body {
            Body::File(content) => self.file(content, Some(&e.name), strict),
            Body::Dir(Some(id)) => {
                self.todo.push(Todo::Tree(*id, 0, strict));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        content: &FileContent,
        name: Option<&[u8]>,
        strict: Strictness,
    ) -> Result<()> {
        match *content {
            FileContent::Empty => Ok(()),
            FileContent::Chunk { id, len } => self.chunk(&id, len, name, strict),
            FileContent::Manifest { id, .. } => {
                let name = name.map(<[u8]>::to_vec);
                self.todo
                    .push(Todo::Manifest(id, MANIFEST_LEVELS_MAX, strict, name));
                Ok(())
            }
        }
    }

    fn chunk(
        &mut self,
        id: &ChunkId,
        len: u32,
        name: Option<&[u8]>,
        strict: Strictness,
    ) -> Result<()> {
        if let Some(stored) = self.mark(Kind::Chunk, id.as_bytes(), strict)? {
            (self.met)(Met {
                kind: Kind::Chunk,
                stored,
                raw: len.into(),
                name,
            });
        }
        Ok(())
    }

    fn enter_manifest(
        &mut self,
        id: &ManifestId,
        level: u8,
        strict: Strictness,
        name: Option<Vec<u8>>,
    ) -> Result<()> {
        let entered = self.enter::<Manifest>(id, name.as_deref(), strict)?;
        match entered.map(|manifest| manifest.node) {
            None => Ok(()),
            Some(Node::Leaf(parts)) => parts.iter().try_for_each(|part| match part {
                Part::Data { len, id } => self.chunk(id, *len, name.as_deref(), strict),
                Part::Hole { .. } => Ok(()),
            }),
            Some(Node::Inner { .. }) if level == 0 => {
                Err(bad(Kind::Manifest, id.as_bytes(), "it is too deep"))
            }
            Some(Node::Inner { children, .. }) => {
                let below = children
                    .iter()
                    .map(|c| Todo::Manifest(c.id, level - 1, strict, name.clone()));
                self.todo.extend(below);
                Ok(())
            }
        }
    }
}

fn bad(kind: Kind, hash: &[u8; ID_BYTES], what: &'static str) -> Error {
    Error::BadObject {
        kind,
        id: crate::id::hex(hash),
        what,
    }
}
