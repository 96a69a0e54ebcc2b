//! What a push has to send: everything below some roots that the remote does not have, each object after what it
//! refers to.
//!
//! Generations are closed, so the walk looks into nothing that is present. It takes no stack, however deep
//! directories are nested.

use crate::error::Result;
use objstore::{Key, Kind, ObjectStore};
use std::collections::HashSet;

enum Step {
    Enter(Key, bool),
    Leave(Key),
}

/// The walk, and what it found.
pub(crate) struct Walk<'a> {
    store: &'a ObjectStore,
    is_whole: &'a dyn Fn(&Key) -> bool,
    check: &'a dyn Fn() -> Result<()>,
    seen: HashSet<Key>,
    /// By kind, each after what it refers to.
    found: [Vec<Key>; 4],
}

impl<'a> Walk<'a> {
    /// A walk that found nothing yet. `is_whole` says what is present, and so all that it refers to; `check` may end it.
    pub fn new(
        store: &'a ObjectStore,
        is_whole: &'a dyn Fn(&Key) -> bool,
        check: &'a dyn Fn() -> Result<()>,
    ) -> Walk<'a> {
        Walk {
            store,
            is_whole,
            check,
            seen: HashSet::new(),
            found: Default::default(),
        }
    }

    /// Takes up what is below a root; one that is `lenient` may be missing.
    pub fn root(&mut self, key: Key, lenient: bool) -> Result<()> {
        let mut steps = vec![Step::Enter(key, lenient)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Leave(key) => self.found[key.0 as usize - 1].push(key),
                Step::Enter(key, lenient) => self.enter(key, lenient, &mut steps)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, key: Key, lenient: bool, steps: &mut Vec<Step>) -> Result<()> {
        if self.seen.contains(&key) || (self.is_whole)(&key) {
            return Ok(());
        }
        if lenient && !self.store.contains(key.0, &key.1) {
            return Ok(());
        }
        (self.check)()?;
        self.seen.insert(key);
        steps.push(Step::Leave(key));
        if key.0 == Kind::Chunk {
            return Ok(());
        }
        let references = self.store.references(&key)?;
        let needed = references.needed.into_iter();
        steps.extend(needed.map(|key| Step::Enter(key, false)));
        let parents = references.parents.iter();
        steps.extend(parents.map(|id| Step::Enter(objstore::exchange::commit_key(id), true)));
        Ok(())
    }

    /// Everything that it found, in the order in which it may become present.
    pub fn finish(self) -> Vec<Key> {
        self.found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objstore::crash_storage::CrashStorage;
    use objstore::exchange::commit_key;
    use objstore::{
        Body, Commit, CommitId, CommitKind, Edit, FileContent, Meta, StoreConfig, TreeEntry,
        edit_tree,
    };
    use std::sync::Arc;

    fn entry(name: String, body: Body) -> Edit {
        let meta = Meta::default();
        Edit::Put(TreeEntry {
            name: name.into_bytes(),
            meta,
            body,
        })
    }

    /// Directories in each other, each with the one before it twice, over three commits.
    fn history(store: &ObjectStore) -> CommitId {
        let (mut below, mut parents) = (None, Vec::new());
        for n in 0..30u32 {
            let bytes = n.to_le_bytes();
            let id = store.put_chunk(&bytes).unwrap();
            let mut edits = vec![entry(
                "f".into(),
                Body::File(FileContent::Chunk { id, len: 4 }),
            )];
            edits.extend((0..2).map(|i| entry(format!("d{i}"), Body::Dir(below))));
            below = edit_tree(store, None, edits).unwrap();
            if n % 10 == 9 {
                let commit = Commit {
                    root_meta: Meta::default(),
                    root: below,
                    parents: parents.clone(),
                    time_sec: 0,
                    time_nsec: 0,
                    author: String::new(),
                    message: String::new(),
                    meta: Vec::new(),
                    kind: CommitKind::Asked,
                    kv: None,
                    timeline: None,
                };
                parents = vec![store.put_object(&commit).unwrap()];
            }
        }
        parents[0]
    }

    #[test]
    fn each_object_comes_once_and_after_what_it_refers_to() {
        let disk = Arc::new(CrashStorage::without_log());
        let store = ObjectStore::open(disk, StoreConfig::default()).unwrap();
        let mut walk = Walk::new(&store, &|_| false, &|| Ok(()));
        walk.root(commit_key(&history(&store)), false).unwrap();
        let keys = walk.finish();
        assert_eq!(keys.len(), store.stats().objects);
        let mut seen = HashSet::new();
        for key in keys {
            let found = store.references(&key).unwrap();
            let parents = found.parents.iter().map(commit_key);
            assert!(
                found
                    .needed
                    .into_iter()
                    .chain(parents)
                    .all(|key| seen.contains(&key))
            );
            assert!(seen.insert(key));
        }
    }
}
