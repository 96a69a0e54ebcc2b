//! What a push has to send: everything below some roots that the remote does not have, each object after what it
//! refers to.
//!
//! Generations are closed, so the walk looks into nothing that is present. It takes no stack, however deep
//! directories are nested.

use crate::error::Result;
use objstore::{Key, Kind, ObjectStore};
use std::collections::HashSet;

/// What of a remote the walk may rely on.
pub(crate) trait Present {
    /// It is there, and so is all that it refers to.
    fn is_whole(&self, key: &Key) -> bool;
    /// It need not be sent, but what it refers to may be missing.
    fn is_sent(&self, key: &Key) -> bool;
}

enum Step {
    Enter(Key, bool),
    Leave(Key),
}

/// The walk, and what it found.
pub(crate) struct Walk<'a> {
    store: &'a ObjectStore,
    present: &'a dyn Present,
    check: &'a dyn Fn() -> Result<()>,
    seen: HashSet<Key>,
    /// By kind, each after what it refers to.
    found: [Vec<Key>; 4],
}

impl<'a> Walk<'a> {
    /// A walk that found nothing yet; `check` may end it.
    pub fn new(
        store: &'a ObjectStore,
        present: &'a dyn Present,
        check: &'a dyn Fn() -> Result<()>,
    ) -> Walk<'a> {
        Walk {
            store,
            present,
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
        if self.seen.contains(&key) || self.present.is_whole(&key) {
            return Ok(());
        }
        if lenient && !self.store.contains(key.0, &key.1) {
            return Ok(());
        }
        (self.check)()?;
        self.seen.insert(key);
        if !self.present.is_sent(&key) {
            steps.push(Step::Leave(key));
        }
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
