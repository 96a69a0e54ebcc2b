//! What people and scripts do with a branch: checkpoint, rollback, undo, redo, log, diff, status.
//!
//! Callers hold the workspace's control lock, so one of these runs at a time on a workspace.

mod announce;
pub(crate) mod apply;
mod branches;
mod checkpoint;
mod diff;
mod exchange;
mod kv;
pub(crate) mod lineage;
mod merging;
mod names;
pub mod patch;
mod report;
mod resolve;
mod restore;
mod rollback;
mod show_merged;
mod switch;
mod undo;
mod undo_call;
mod view;
mod write;

pub use branches::{BranchInfo, Created, Deleted};
pub use exchange::Calls;
pub use undo_call::CallUndone;
pub(crate) use view::find;
pub use view::{Node, Stretch, View};
pub use write::WriteFile;

pub use merging::{MergeReport, MergeRequest};
pub use resolve::Resolution;

use crate::branch::Branch;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::stored::load::load_tree;
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::{Content, Dir};
use crate::types::{Nid, Time};
use objstore::{Commit, CommitId};

/// What to make a checkpoint with.
#[derive(Clone, Debug, Default)]
pub struct CheckpointRequest {
    /// Label for the commit.
    pub label: Option<String>,
    /// Message.
    pub message: String,
    /// Metadata; later pairs win over earlier ones with the same key.
    pub meta: Vec<(String, String)>,
    /// Wait until the commit's id is known.
    pub wait: bool,
}

/// What a checkpoint did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    /// The commit; `None` while its id is not known.
    pub commit: Option<CommitId>,
    /// Its state number.
    pub state: u64,
    /// Names whose entry or content differs from the head before, as [`RolledBack::files_changed`].
    pub files_changed: u64,
    /// Bytes of the changed files that were written.
    pub bytes_changed: u64,
    /// Commit that the label named before, where that was another one.
    pub moved_from: Option<CommitId>,
    /// False where nothing had changed and the head got the label.
    pub new_commit: bool,
    /// Conflicts of the last merge that are not settled.
    pub unresolved: usize,
    /// Paths whose content it does not have, as it cannot be read in the base.
    pub unreadable: Vec<Vec<u8>>,
}

/// What to roll back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The head.
    Head,
    /// A label, commit id or prefix, `@`, `@~N`, or one of these after `BRANCH:`.
    Ref(String),
    /// The newest commit from before this moment.
    Before(Time),
    /// The newest commit with this metadata.
    Meta {
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
}

/// What a rollback, undo or redo did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// Commit now shown; `None` while its id is not known.
    pub commit: Option<CommitId>,
    /// Automatic commit of what was there before; `None` while its id is not known, or where nothing was replaced.
    pub replaced: Option<CommitId>,
    /// Names whose entry or content differs: rows of a diff without those of directories.
    pub files_changed: u64,
}

/// One difference between two states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Path, relative to the workspace.
    pub path: Vec<u8>,
    /// `A`dded, `M`odified, `D`eleted, `R`enamed, `T`ype changed.
    pub status: char,
    /// Path before a rename.
    pub old_path: Option<Vec<u8>>,
}

/// A side of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSide {
    /// The live tree.
    Live,
    /// The state that a reference names.
    Ref(String),
    /// The base as it was at start.
    Base,
}

/// One commit of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Number of the state: of two the later one has the larger, unless both come from another branch.
    pub number: u64,
    /// The commit; `None` while its id is not known.
    pub commit: Option<CommitId>,
    /// When it was frozen.
    pub time: Time,
    /// Labels, the newest first.
    pub labels: Vec<String>,
    /// Message.
    pub message: String,
    /// Metadata.
    pub meta: Vec<(String, String)>,
    /// Nobody asked for it.
    pub automatic: bool,
    /// It is the head.
    pub is_head: bool,
    /// Parents whose ids are known.
    pub parents: Vec<CommitId>,
    /// Why it was made.
    pub kind: &'static str,
}

/// How far the import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// Directories are being read.
    Scanning,
    /// Files are being stored.
    Running,
    /// All is stored.
    Done,
    /// It stands still.
    Paused,
}

/// Figures of the import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportStatus {
    /// State.
    pub state: ImportState,
    /// Why it stands still.
    pub why: Option<String>,
    /// More space would help.
    pub wants_space: bool,
    /// Files stored, of those found.
    pub files_done: u64,
    /// Files found so far.
    pub files_total: u64,
    /// Bytes stored, of those found.
    pub bytes_done: u64,
    /// Bytes found so far.
    pub bytes_total: u64,
}

/// State of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Branch.
    pub branch: String,
    /// Head, once its id is known.
    pub head: Option<CommitId>,
    /// Import.
    pub import: ImportStatus,
    /// Base paths that were not what had been shown.
    pub base_changed: Vec<Vec<u8>>,
    /// Paths that cannot be read in the base: commits are made without their content.
    pub unreadable: Vec<Vec<u8>>,
    /// Why the base cannot be used, where it cannot.
    pub base_missing: Option<String>,
    /// Then: what was not imported of it and cannot be read, directories with a slash at the end.
    pub not_imported: Vec<Vec<u8>>,
    /// Bytes in the journal.
    pub journal_bytes: u64,
    /// Why no changes are taken any more.
    pub poisoned: Option<String>,
    /// What recovery did when the workspace was opened.
    pub recovered: Option<String>,
    /// Inodes in the live tree.
    pub entries: u64,
}

/// How far something is: done, of how many.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// What a piece of work tells whoever asked for it, and hears from them.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    pub progress: Progress<'a>,
    pub cancel: &'a Cancel,
}

impl Branch {
    /// The tree of a state: kept, or loaded from the store.
    pub fn tree_of(&self, number: u64) -> Result<Tree> {
        let _pin = self.places.store.pin();
        let (id, reference) = {
            let inner = self.lock();
            let state = inner.book.history.state(number)?;
            if let Some(tree) = state
                .stored
                .as_ref()
                .map(|r| &r.tree)
                .or(state.tree.as_ref())
            {
                return Ok(tree.clone());
            }
            (state.info.id, inner.reference.clone())
        };
        let gone = || Error::Damaged {
            what: format!("state {number}"),
            why: "it was not stored".into(),
        };
        let id = id.ok_or_else(gone)?;
        let commit: Commit = self.places.store.get_object(&id)?;
        let reference = reference.map_or_else(|| self.empty_reference(), Ok)?;
        let now = Time {
            sec: commit.time_sec,
            nsec: commit.time_nsec,
        };
        let store = &self.places.store;
        let loaded = load_tree(
            store,
            &reference,
            commit.root,
            &commit.root_meta,
            &mut self.numbers(),
            now,
        )?;
        let loaded = loaded.with_kv(store, commit.kv)?;
        let tree = loaded.tree.clone();
        if let Some(state) = self.lock().book.history.states.get_mut(&number) {
            state.stored = Some(loaded);
        }
        Ok(tree)
    }
}

impl Branch {
    /// An empty tree to load a commit into, where nothing of this branch was stored yet.
    pub(crate) fn empty_reference(&self) -> Result<Reference> {
        let mut root = (**self.lock().live.inode(Nid::ROOT)?).clone();
        root.content = Content::Dir(Box::new(Dir::new(DirMap::default(), 0)));
        Ok(Reference {
            tree: Tree::with_root(root),
            root: None,
            kv: None,
        })
    }
}
