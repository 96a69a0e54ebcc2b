//! Parameters and results of the methods about tool calls and the timeline.

use super::{Bytes, Changed, ConflictRow, Moment};
use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `tool.start`.
    pub struct ToolStart {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Name of the tool.
        pub name: String,
        /// Parameters, JSON text.
        #[serde(default)]
        pub parameters: Option<String>,
        /// Answer before the call is on stable storage.
        #[serde(default)]
        pub unsynced: bool,
        /// The call is of the process at the other end of the connection: where nobody ends it, it ends with that.
        #[serde(default)]
        pub of_process: bool,
        /// By which it is ended; one that runs with this key is the answer. Not with `of_process`.
        #[serde(default)]
        pub key: Option<String>,
    }

    /// Answer of `tool.start` and `tool.record`.
    pub struct CallId {
        /// The call's id on the branch.
        pub id: u64,
    }

    /// Parameters of `tool.finish`.
    pub struct ToolFinish {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// The call; this or `key`.
        #[serde(default)]
        pub id: Option<u64>,
        /// The key that it was begun with, on whichever branch.
        #[serde(default)]
        pub key: Option<String>,
        /// Result, JSON text; not with `error`.
        #[serde(default)]
        pub result: Option<String>,
        /// Why it failed.
        #[serde(default)]
        pub error: Option<String>,
        /// Answer before its end is on stable storage; with `key` alone.
        #[serde(default)]
        pub unsynced: bool,
    }

    /// Answer of `tool.finish`.
    pub struct Finished {
        /// With `key`: the call; left out where none with that key runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<u64>,
    }

    /// Parameters of `tool.give_up`.
    pub struct ToolGiveUp {
        /// The workspace's name.
        pub workspace: String,
        /// How the keys of the calls begin.
        pub prefix: String,
        /// Why they failed.
        pub error: String,
    }

    /// Answer of `tool.give_up`.
    pub struct GivenUp {
        /// How many calls ran.
        pub calls: u64,
    }

    /// Parameters of `tool.record`.
    pub struct ToolRecord {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Name of the tool.
        pub name: String,
        /// Parameters, JSON text.
        #[serde(default)]
        pub parameters: Option<String>,
        /// Result, JSON text; not with `error`.
        #[serde(default)]
        pub result: Option<String>,
        /// Why it failed.
        #[serde(default)]
        pub error: Option<String>,
        /// When it began; `null`: when it ended.
        #[serde(default)]
        pub started: Option<Moment>,
        /// When it ended; `null`: now.
        #[serde(default)]
        pub completed: Option<Moment>,
    }

    /// Parameters of `tool.show`.
    pub struct OneCall {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// The call.
        pub id: u64,
        /// Wait until the commits before and after it are known.
        #[serde(default)]
        pub wait: bool,
    }

    /// Parameters of `tool.undo`.
    pub struct ToolUndo {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// The call.
        pub id: u64,
        /// Change nothing.
        #[serde(default)]
        pub dry_run: bool,
    }

    /// Answer of `tool.undo`.
    pub struct ToolUndoAnswer {
        /// The commit now shown.
        pub commit: Option<String>,
        /// The automatic commit of what was there; `null` where nothing was changed.
        pub replaced: Option<String>,
        /// Files that changed.
        pub files_changed: u64,
        /// What does not fit any more; then nothing was changed.
        pub conflicts: Vec<ConflictRow>,
        /// Of a dry run: what would change.
        pub changes: Vec<Changed>,
    }

    /// Answer of `timeline.stats`.
    pub struct ToolStatsAnswer {
        /// Each tool that was called on the branch, by name.
        pub tools: Vec<ToolFigures>,
    }

    /// How often a tool was called.
    pub struct ToolFigures {
        /// Its name.
        pub name: String,
        /// Calls in all.
        pub calls: u64,
        /// Those that worked.
        pub success: u64,
        /// Those that failed.
        pub error: u64,
        /// Those that have not ended.
        pub pending: u64,
        /// How long those took that have ended, together.
        pub total_ms: u64,
        /// On average; `null` where none has ended.
        pub average_ms: Option<f64>,
        /// The longest; `null` where none has ended.
        pub max_ms: Option<u64>,
    }

    /// Parameters of `timeline.list`.
    pub struct TimelineList {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// At most so many.
        pub limit: u64,
        /// Only what began before this entry: `next` of the answer before.
        #[serde(default)]
        pub before: Option<u64>,
        /// Only calls of this tool.
        #[serde(default)]
        pub name: Option<String>,
        /// Only `pending`, `success` or `error` ones.
        #[serde(default)]
        pub status: Option<CallState>,
        /// Rollbacks, undos, redos, merges and restores too.
        #[serde(default)]
        pub all: bool,
        /// Without parameters, results and errors.
        #[serde(default)]
        pub brief: bool,
        /// Of one of `others`, rather than of the branch's own timeline.
        #[serde(default)]
        pub of: Option<TimelineOf>,
    }

    /// The timeline of another branch.
    pub struct TimelineOf {
        /// Name of the branch.
        pub branch: String,
        /// When it was deleted; `null` where it is there.
        #[serde(default)]
        pub deleted: Option<Moment>,
    }

    /// How a call is.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum CallState {
        /// It has not ended.
        Pending,
        /// It worked.
        Success,
        /// It failed.
        Error,
    }

    /// Answer of `timeline.list`.
    pub struct TimelineAnswer {
        /// The newest first. A long list ends early.
        pub items: Vec<TimelineRow>,
        /// There may be more; `before` for asking on.
        pub next: Option<u64>,
        /// With `all`, on the first page of the branch's own: further timelines that its commits lead into.
        pub others: Vec<TimelineOf>,
    }

    /// A call, or a switch of the branch.
    pub struct TimelineRow {
        /// Number of its first entry.
        pub entry: u64,
        /// `call`, `rollback`, `undo`, `redo`, `merge`, `restore` or `tool-undo`.
        pub kind: String,
        /// Id of the call; `null` for a switch.
        pub id: Option<u64>,
        /// Of a `tool-undo`: the call that was taken back.
        pub undoes: Option<u64>,
        /// Name of the tool, or the kind.
        pub name: String,
        /// How it is.
        pub status: CallState,
        /// Parameters, JSON text.
        pub parameters: Option<String>,
        /// Result, JSON text.
        pub result: Option<String>,
        /// Why it failed.
        pub error: Option<String>,
        /// When it began.
        pub started: Moment,
        /// When it ended.
        pub completed: Option<Moment>,
        /// How long it took, in milliseconds.
        pub duration_ms: Option<u64>,
        /// Commit of the branch before it.
        pub before: Option<String>,
        /// Commit of the branch after it.
        pub after: Option<String>,
        /// The innermost call that it lay inside, once it has ended.
        #[serde(default)]
        pub parent: Option<u64>,
        /// Calls that ran at the same time and are neither part of it nor around it.
        pub overlaps: Vec<u64>,
        /// Entries by which the branch was switched meanwhile.
        pub switches: Vec<u64>,
        /// The branch in whose timeline it stands.
        pub branch: String,
        /// That branch was deleted.
        pub branch_deleted: bool,
        /// Of `tool.show` with `wait`: why it is not known what the call changed, where that is so.
        #[serde(default)]
        pub doubt: Option<CallDoubt>,
        /// Of `tool.show` with `wait`, where other calls ran at the same time and it is known whose each change was:
        /// the commit to compare `after` with in place of `before`. It has what the others changed meanwhile.
        #[serde(default)]
        pub own_before: Option<String>,
        /// The key by which it was begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
    }

    /// Why it is not known what a call changed.
    pub struct CallDoubt {
        /// Why.
        pub why: String,
        /// Calls that have not ended and that it is for.
        pub pending: Vec<u64>,
    }

    /// Answer of `timeline.verify`.
    pub struct VerifyAnswer {
        /// Entries that were looked at.
        pub entries: u64,
        /// Commits that were compared.
        pub commits: u64,
        /// What is wrong, the first 100.
        pub faults: Vec<VerifyFault>,
        /// How much is wrong.
        pub found: u64,
    }

    /// Something that is not as it was recorded.
    pub struct VerifyFault {
        /// The first entry concerned.
        pub entry: u64,
        /// What is wrong.
        pub what: String,
    }

    /// Parameters of `timeline.blame`.
    pub struct BlamePath {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// A file or directory, relative to the workspace's root; empty for all.
        pub path: Bytes,
        /// At most so many.
        pub limit: u64,
        /// Leave names alone that the path had before it was renamed.
        #[serde(default)]
        pub no_follow: bool,
    }

    /// Answer of `timeline.blame`.
    pub struct BlameAnswer {
        /// The newest first.
        pub items: Vec<BlameRow>,
        /// Calls and switches of which it cannot be said, as their files are not kept.
        pub unknown: u64,
        /// Where no call changed it: the commits that it came with, the newest first; none where it is in none, or
        /// there may be more.
        pub commits: Vec<String>,
        /// Calls that changed it, as far as the limit let it look.
        pub calls: u64,
        /// The limit ended the search: there may be more.
        pub more: bool,
    }

    /// Something that changed a path.
    pub struct BlameRow {
        /// `call`, `checkpoint`, or the kind of a switch.
        pub kind: String,
        /// Id of the call; of a `tool-undo`, of the one that was taken back.
        pub call: Option<u64>,
        /// Name of the tool; label or message of a checkpoint.
        pub name: String,
        /// When it began.
        pub time: Moment,
        /// Commit of the branch before it.
        pub before: String,
        /// Commit of the branch after it.
        pub after: String,
        /// The innermost call that it lay inside: that one changed it too.
        pub parent: Option<u64>,
        /// Calls that ran at the same time: the change may be theirs.
        pub overlaps: Vec<u64>,
        /// Entries by which the branch was switched meanwhile: the change may be theirs.
        pub switches: Vec<u64>,
        /// `added`, `modified`, `renamed`, `type-changed` or `deleted`.
        pub change: String,
        /// What it was called afterwards.
        pub path: Bytes,
        /// What it was called before, where it was renamed.
        pub old_path: Option<Bytes>,
        /// The branch in whose timeline it stands; `null` for a checkpoint that another branch made.
        pub branch: Option<String>,
    }
}

impl CallState {
    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            CallState::Pending => "pending",
            CallState::Success => "success",
            CallState::Error => "error",
        }
    }
}
