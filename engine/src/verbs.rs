//! What people and scripts do with a branch: checkpoint, rollback, undo, redo, log, diff, status.
//!
//! Callers hold the workspace's control lock, so one of these runs at a time on a workspace.

pub(crate) mod announce;
pub(crate) mod apply;
pub(crate) mod blame;
pub(crate) mod branches;
pub(crate) mod calls;
pub(crate) mod checkpoint;
pub(crate) mod copy;
pub(crate) mod diff;
pub(crate) mod exchange;
pub(crate) mod kv;
pub(crate) mod lineage;
pub(crate) mod merging;
pub(crate) mod names;
pub(crate) mod open;
pub mod patch;
pub mod remotes;
pub(crate) mod report;
pub(crate) mod resolve;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod runs;
pub(crate) mod show_merged;
pub(crate) mod state_reader;
pub(crate) mod switch;
pub(crate) mod timeline;
pub(crate) mod undo;
pub(crate) mod undo_call;
pub(crate) mod write;

pub use apply::{apply, apply_patch, apply_unless, apply_with, update, update_unless};
pub use blame::{blame, blame_as};
pub use branches::deleting::delete_branch;
pub use branches::sandboxes::{
    Member, branches_of_sandbox, has_own_ref, only_with_members, sandbox_members,
};
pub use branches::standing::{Standing, branch_standings, unique_digits};
pub use branches::{
    BranchInfo, Created, Deleted, create_branch, create_branch_in_sandbox, list_branches,
    rename_branch,
};
pub use calls::{
    call_finish, call_finish_keyed, call_record, call_start, calling, end_calls_of, give_up_keyed,
    running_calls,
};
pub use checkpoint::{checkpoint, commit_automatically};
pub use copy::copy_file;
pub use diff::diff;
pub use exchange::{Calls, commit_of, create_branch_from};
pub use kv::{
    kv, kv_at, kv_delete, kv_delete_unsynced, kv_get, kv_list, kv_of, kv_set, kv_set_all,
    kv_set_at, kv_set_unsynced,
};
pub use merging::{
    MergeReport, MergeRequest, conflicts, diff_branches, merge_branch, merge_branch_unless,
};
pub use names::{
    Expect, make_dir, make_link, remove_expected, remove_path, rename_path, set_perm, set_size,
};
pub use open::{OpenAs, OpenFile, open_file};
pub use report::{Space, count_of_log, log, page_of_log, space, status, sync};
pub use resolve::{Resolution, resolve_conflict};
pub use restore::{restore, restore_plan, restore_with};
pub use rollback::{rollback, rollback_keeping_kv, rollback_keys, rollback_plan, rollback_with};
pub use runs::{run_begins, run_of, run_wrote_nothing, tell_verdict};
pub(crate) use state_reader::find;
pub use state_reader::{NodeInfo, StateReader, Stretch, read_state};
pub use timeline::certain::{call_doubt, call_own_before};
pub use timeline::imported::call_import;
pub use timeline::read::{call, call_with_commits, timeline, timeline_each};
pub use timeline::sources::{timeline_of, timelines};
pub use timeline::stats::{ToolStats, tool_stats};
pub use timeline::verify::timeline_verify;
pub use undo::{redo, redo_with, undo, undo_over_later, undo_with};
pub use undo_call::{CallUndone, undo_call};
pub use write::{WriteFile, write_file};

use crate::cancel::Cancel;
use crate::types::{Progress, Time};
use objstore::CommitId;
use std::time::Duration;

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

/// What to make an automatic commit with.
#[derive(Clone, Debug, Default)]
pub struct AutomaticRequest {
    /// Message, metadata, and whether to wait.
    pub commit: CheckpointRequest,
    /// Key and value: none where the newest commit with that metadata is what the branch shows.
    pub unlike: Option<(String, String)>,
    /// A key: where the newest automatic commit that has it is what the branch shows, this one has its metadata, too.
    pub joins: Option<String>,
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

/// Which commits of the log are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// How many at most.
    pub limit: Option<u64>,
    /// Those after this one, in the order of the log.
    pub after: Option<LogCursor>,
}

/// Where a page of the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCursor {
    /// Number of the last entry.
    pub number: u64,
    /// Its time, by which the place is found once it has expired.
    pub time: Time,
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
    /// How long it has been since it began.
    pub since: Duration,
}

/// State of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Branch.
    pub branch: String,
    /// Its number, as events have it.
    pub number: u16,
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

/// What a piece of work tells whoever asked for it, and hears from them.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    pub progress: Progress<'a>,
    pub cancel: &'a Cancel,
}
