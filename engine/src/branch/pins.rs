//! Trees that somebody reads for a while: kept in step with what happens to their content's places.
//!
//! A tree that is merely cloned goes stale: sealing moves data from the journal into the store and drops
//! the segments, and directories of the base are read. A pinned one is among the trees that are
//! rewritten then, so its readers only have to look at it again.

use super::Branch;
use crate::branch::load::{self, Rounds};
use crate::error::{Error, Result};
use crate::journal::JournalError;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pinned trees by number.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    next: u64,
    trees: BTreeMap<u64, Tree>,
    /// How often all trees of the branch were given out to be kept in step.
    steps: u64,
}

impl Pins {
    /// The trees.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.trees.values()
    }

    /// Pins a tree until it is released by this number.
    pub fn hold(&mut self, tree: Tree) -> u64 {
        let number = self.next;
        self.next += 1;
        self.trees.insert(number, tree);
        number
    }

    /// Lets go of a pinned tree, and gives it as it is now.
    pub fn release(&mut self, number: u64) -> Option<Tree> {
        self.trees.remove(&number)
    }

    /// The trees, to keep them in step.
    pub fn trees_mut(&mut self) -> impl Iterator<Item = &mut Tree> {
        self.steps += 1;
        self.trees.values_mut()
    }

    /// While this is the same number, no tree was rewritten: a clone of one that was kept then is as good as pinned.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// A tree that stays readable while this lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Its branch.
    pub branch: Arc<Branch>,
    number: u64,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.branch.lock().pins.release(self.number);
    }
}

impl Branch {
    /// Pins the tree that `choose` makes of the branch's state.
    pub fn pin(
        self: &Arc<Branch>,
        choose: impl FnOnce(&super::Inner) -> Result<Tree>,
    ) -> Result<Pinned> {
        let mut inner = self.lock();
        let tree = choose(&inner)?;
        Ok(self.pin_in(&mut inner, tree))
    }

    /// Pins a tree of the branch under its lock.
    pub fn pin_in(self: &Arc<Branch>, inner: &mut super::Inner, tree: Tree) -> Pinned {
        Pinned {
            branch: self.clone(),
            number: inner.pins.hold(tree),
        }
    }
}

impl Pinned {
    /// The tree as it is kept now.
    pub fn tree(&self) -> Result<Tree> {
        self.tree_in(&self.branch.lock())
    }

    /// As [`Pinned::tree`], under its branch's lock.
    pub fn tree_in(&self, inner: &super::Inner) -> Result<Tree> {
        inner
            .pins
            .trees
            .get(&self.number)
            .cloned()
            .ok_or(Error::Stale)
    }

    /// Runs `body` on the tree, again where a directory had to be read first or data has moved.
    pub fn with<R>(&self, mut body: impl FnMut(&Tree) -> Result<R>) -> Result<R> {
        let (mut gone, mut rounds) = (None, Rounds::default());
        loop {
            match body(&self.tree()?) {
                Err(Error::NeedsDir(nid)) => rounds.load_dir(&self.branch, nid)?,
                Err(Error::BaseChanged(file)) => load::take_anew(&self.branch, &file)?,
                // What still refers to a segment after a second look was lost with it.
                Err(Error::Journal(JournalError::Dropped { segment })) if gone != Some(segment) => {
                    gone = Some(segment);
                }
                other => return other,
            }
        }
    }
}
