//! What the files of a branch refer to in the store: the state file, and the journal after it.
//!
//! In memory a file that was stored anew refers to its new content alone; on disk it is still the
//! old content with the journal's data over it, until the next state file. Recovery needs the old
//! content, so gc must keep it. Invariant: never changed by what is stored meanwhile.

use crate::stored::store::Reference;
use crate::tree::Tree;
use objstore::TreeId;
use objstore::content::FileContent;

/// What recovery would need.
#[derive(Clone, Debug)]
pub(crate) struct Anchors {
    /// The tree in the state file.
    sealed: Tree,
    /// Its root directory, where it is stored as a whole.
    pub root: Option<TreeId>,
    /// Its key-value state in the store.
    pub kv: Option<FileContent>,
    /// Trees that were switched to since, with the record that says so.
    trees: Vec<(u64, Tree)>,
    /// Content that records since refer to.
    contents: Vec<(u64, FileContent)>,
    /// The timeline in the state file.
    pub timeline: FileContent,
}

impl Anchors {
    /// The state file holds `sealed`, nothing was recorded after it.
    pub fn new(sealed: Tree, root: Option<TreeId>) -> Anchors {
        Anchors {
            sealed,
            root,
            kv: None,
            trees: Vec::new(),
            contents: Vec::new(),
            timeline: FileContent::Empty,
        }
    }

    /// Record `seq` made the live tree into `tree`.
    pub fn switched(&mut self, seq: u64, tree: Tree) {
        self.trees.push((seq, tree));
    }

    /// Record `seq` refers to `content`.
    pub fn refers(&mut self, seq: u64, content: Option<FileContent>) {
        self.contents.extend(content.map(|c| (seq, c)));
    }

    /// A state file with `sealed` and `timeline` has taken the place of all records before `next_seq`.
    pub fn seal(&mut self, sealed: &Reference, timeline: FileContent, next_seq: u64) {
        self.timeline = timeline;
        self.sealed = sealed.tree.clone();
        (self.root, self.kv) = (sealed.root, sealed.kv);
        self.trees.retain(|(seq, _)| *seq >= next_seq);
        self.contents.retain(|(seq, _)| *seq >= next_seq);
    }

    /// All trees.
    pub fn trees(&self) -> impl Iterator<Item = &Tree> {
        std::iter::once(&self.sealed).chain(self.trees.iter().map(|(_, t)| t))
    }

    /// All content beside what the trees have.
    pub fn contents(&self) -> impl Iterator<Item = &FileContent> {
        let since = self.contents.iter().map(|(_, c)| c).chain(&self.kv);
        since.chain(std::iter::once(&self.timeline))
    }
}
