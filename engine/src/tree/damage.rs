//! What turned out, when a part of a tree was read late, not to be what was written.
//!
//! Checksums are checked before a tree is shown, so this is a fault of whoever wrote the file, not of the disk. What
//! cannot be read is not in the tree. So nothing may be stored that comes from such a tree: whoever writes asks
//! [`Tree::check_whole`](super::Tree::check_whole) first.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// The first damage that was found in the files of a workspace's trees.
#[derive(Debug, Default)]
pub struct Damage {
    found: OnceLock<(String, String)>,
}

impl Damage {
    /// Takes down what is damaged, and how.
    pub fn note(&self, what: &str, why: String) {
        tracing::error!("{what} is damaged: {why}");
        let _ = self.found.set((what.to_owned(), why));
    }

    /// # Errors
    /// `Damaged` where something was found.
    pub fn check(&self) -> Result<()> {
        match self.found.get() {
            None => Ok(()),
            Some((what, why)) => Err(Error::Damaged {
                what: what.clone(),
                why: why.clone(),
            }),
        }
    }
}
