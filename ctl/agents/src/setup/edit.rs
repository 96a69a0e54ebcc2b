//! A change of a file of somebody else's: what of ours is in it, the text with it, the text without it.
//!
//! Invariant, checked at each change of settings: but for what is ours and the keys that were added for it, the values
//! before and after are equal. Taking something out goes by the patch that putting it in left, and gives the bytes of
//! before; where the user has changed the same lines since, it is taken out piece by piece.

use super::record::Entry;
use super::undo::undo;
use std::collections::BTreeSet;

/// Something of ours in a text.
pub trait Change {
    /// What there is of it in a text, by name.
    ///
    /// # Errors
    /// The text is not understood.
    fn found(&self, text: &str) -> Result<BTreeSet<String>, String>;

    /// What there should be.
    fn wanted(&self) -> BTreeSet<String>;

    /// The text with all of it. `program` is how a shell finds `agentvfs`.
    ///
    /// # Errors
    /// The text is not understood, or has something else in its place.
    fn with(&self, text: &str, program: &str) -> Result<Edited, String>;

    /// The text without what is recorded; empty where nothing is left of a file that was made for it.
    ///
    /// # Errors
    /// The text is not understood.
    fn without(&self, text: &str, entry: &Entry) -> Result<Edited, String>;
}

/// A text that was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The text; empty: nothing is left of the file.
    pub text: String,
    /// Names of what was added.
    pub items: BTreeSet<String>,
    /// Keys that were added, from the root, with slashes.
    pub made: BTreeSet<String>,
    /// A patch to the text before.
    pub undo: String,
    /// Nothing of ours is left that was to be taken out.
    pub whole: bool,
}

impl Edited {
    /// A text of which nothing is known.
    pub fn whole(text: &str) -> Edited {
        Edited {
            text: text.to_owned(),
            whole: true,
            ..Edited::default()
        }
    }

    /// A text to which these were added.
    pub fn added(before: &str, after: String, items: BTreeSet<String>) -> Edited {
        Edited {
            undo: undo(&after, before),
            text: after,
            items,
            made: BTreeSet::new(),
            whole: true,
        }
    }
}
