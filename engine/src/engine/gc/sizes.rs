//! How many bytes the files of a commit have, each directory read once for all commits.

use crate::error::Result;
use objstore::{Body, Commit, CommitId, ObjectStore, TreeId, read_tree};
use std::collections::HashMap;

/// Sizes of the directories that were met.
pub(crate) struct Sizes<'a> {
    store: &'a ObjectStore,
    known: HashMap<TreeId, u64>,
}

/// A directory whose size is being added up.
struct Open {
    id: TreeId,
    bytes: u64,
    children: Vec<TreeId>,
}

impl<'a> Sizes<'a> {
    /// Knows none yet.
    pub fn new(store: &'a ObjectStore) -> Sizes<'a> {
        Sizes {
            store,
            known: HashMap::new(),
        }
    }

    /// Bytes of all files of a commit, a hard link counting as often as it is named, and of its
    /// key-value state.
    pub fn of_commit(&mut self, id: &CommitId) -> Result<u64> {
        let commit: Commit = self.store.get_object(id)?;
        let files = match commit.root {
            Some(root) => self.of_tree(root)?,
            None => 0,
        };
        Ok(files.saturating_add(commit.kv.map_or(0, |kv| kv.len())))
    }

    fn of_tree(&mut self, root: TreeId) -> Result<u64> {
        let mut stack = Vec::new();
        let mut last = self.enter(root, &mut stack)?;
        while let Some(top) = stack.last_mut() {
            if let Some(bytes) = last.take() {
                top.bytes = top.bytes.saturating_add(bytes);
            }
            match top.children.pop() {
                Some(child) => last = self.enter(child, &mut stack)?,
                None => {
                    let (id, bytes) = (top.id, top.bytes);
                    self.known.insert(id, bytes);
                    stack.pop();
                    last = Some(bytes);
                }
            }
        }
        Ok(last.unwrap_or(0))
    }

    /// The size of a directory, where it is known; else it goes on the stack.
    fn enter(&self, id: TreeId, stack: &mut Vec<Open>) -> Result<Option<u64>> {
        if let Some(bytes) = self.known.get(&id) {
            return Ok(Some(*bytes));
        }
        let mut open = Open {
            id,
            bytes: 0,
            children: Vec::new(),
        };
        let read = read_tree(self.store, Some(id), &mut |entry| {
            match entry.body {
                Body::File(content) => open.bytes = open.bytes.saturating_add(content.len()),
                Body::Dir(Some(below)) => open.children.push(below),
                _ => {}
            }
            Ok(())
        });
        match read {
            // Of a lazy workspace: what is not here takes no space. Whoever must have it learns so elsewhere.
            Err(objstore::Error::ObjectMissing { .. }) => {}
            read => read?,
        }
        stack.push(open);
        Ok(None)
    }
}
