//! Parameters and results of the protocol's methods.
//!
//! Commit ids are texts of 64 hex digits; `null` is an id that is not known yet (`pending`).
//! Unknown fields are refused, so that a misspelt option is never silently without effect.

use super::{Bytes, LazyStanding, LineCount, MountChoice, RemoteStanding};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

wire! {
    /// First message.
    pub struct Hello {
        /// [`super::PROTOCOL_VERSION`] of the client.
        pub protocol: u32,
        /// Name and version of the client, for the log.
        pub client: String,
        /// For a command in a sandbox: all that the connection may work with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub sandbox: Option<SandboxOf>,
        /// How many requests the client wants to have in flight; without it they are carried out one after the other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub in_flight: Option<u32>,
    }

    /// Whose sandbox a connection comes from.
    pub struct SandboxOf {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that the sandbox shows.
        pub branch: String,
        /// When that branch was made: another one may get its name.
        pub created: Moment,
        /// The process that asks, as the daemon sees it.
        #[serde(default)]
        pub process: Option<u32>,
        /// Where the sandbox shows that branch: paths of branches are told as they are there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<Bytes>,
    }

    /// No parameters.
    pub struct Nothing {}

    /// A workspace.
    pub struct Named {
        /// Its name.
        pub workspace: String,
    }

    /// A branch of a workspace.
    pub struct OnBranch {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
    }

    /// Parameters of `workspace.init`.
    pub struct Init {
        /// Name of the new workspace.
        pub workspace: String,
        /// The project's directory, absolute.
        pub base: Bytes,
        /// Where to mount it from now on, absolute; the default is `<home>/mnt/<name>`.
        #[serde(default)]
        pub mount: Option<Bytes>,
    }

    /// Parameters of `workspace.start`.
    pub struct Start {
        /// The workspace's name.
        pub workspace: String,
        /// The project's directory, absolute: the workspace is made where it does not exist.
        #[serde(default)]
        pub base: Option<Bytes>,
        /// Its name was given, and not taken from the directory's: where the base that it had is gone it gets
        /// this one.
        #[serde(default)]
        pub named: bool,
        /// Where to mount it from now on, absolute.
        #[serde(default)]
        pub mount: Option<Bytes>,
        /// How to mount it.
        #[serde(default)]
        pub options: MountChoice,
    }

    /// What a workspace is doing.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum WorkspaceStatus {
        /// Made, and never started.
        Initialized,
        /// Mounted, or reached by the protocol alone.
        Started,
        /// Neither.
        Stopped,
        /// Its daemon died, or its mount did.
        Stale,
    }

    /// A workspace as `workspace.list` tells it.
    pub struct Info {
        /// Its name.
        pub name: String,
        /// Where it is mounted, or would be.
        pub mount: Bytes,
        /// The project's directory.
        pub base: Bytes,
        /// What it is doing.
        pub status: WorkspaceStatus,
        /// The mount's device, where it is mounted: whoever sees another one at `mount` sees something else.
        #[serde(default)]
        pub device: Option<Device>,
        /// It runs, but is not mounted: only requests of the protocol reach it.
        #[serde(default, skip_serializing_if = "is_not")]
        pub unmounted: bool,
    }

    /// A device's numbers, as statx(2) gives them.
    #[derive(Copy, Eq)]
    pub struct Device {
        /// The driver's.
        pub major: u32,
        /// Of those.
        pub minor: u32,
    }

    /// Answer of `workspace.list`.
    pub struct ListAnswer {
        /// By name.
        pub workspaces: Vec<Info>,
    }

    /// Answer of `workspace.init` and `workspace.start`.
    pub struct StartAnswer {
        /// The workspace.
        #[serde(rename = "workspace")]
        pub info: Info,
        /// How its import is doing; `null` where it is not running.
        pub import: Option<Import>,
        /// What the user should know though it went well.
        #[serde(default)]
        pub warnings: Vec<String>,
    }

    /// How an import is doing.
    pub struct Import {
        /// `running`, `done`, `paused` or `scanning`.
        pub state: String,
        /// Files stored.
        pub files_done: u64,
        /// Files known.
        pub files_total: u64,
        /// Bytes stored.
        pub bytes_done: u64,
        /// Bytes known.
        pub bytes_total: u64,
    }

    /// Parameters of `workspace.stop`.
    pub struct Stop {
        /// The workspace's name.
        pub workspace: String,
        /// Stop though processes use it.
        #[serde(default)]
        pub force: bool,
        /// Make a commit of what differs from the head.
        #[serde(default = "yes")]
        pub checkpoint: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `workspace.stop`.
    pub struct StopAnswer {
        /// The workspace's name.
        pub name: String,
        /// Where it was mounted.
        pub mount: Bytes,
        /// The commit that holds the last state; `null` without `checkpoint`.
        pub commit: Option<String>,
    }

    /// Parameters of `workspace.status`.
    pub struct StatusOf {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Say also what disk and memory are used.
        #[serde(default, skip_serializing_if = "is_not")]
        pub resources: bool,
    }

    /// What the daemon uses.
    #[derive(Copy, Eq)]
    pub struct Resources {
        /// Bytes that the home takes on its disk.
        pub used_bytes: u64,
        /// Bytes that are free there.
        pub free_bytes: u64,
        /// Bytes of memory that the daemon has, where the kernel says so.
        pub memory_bytes: Option<u64>,
        /// Milliseconds since the import began.
        pub import_ms: u64,
    }

    /// Answer of `workspace.status`.
    pub struct StatusAnswer {
        /// The workspace.
        #[serde(rename = "workspace")]
        pub info: Info,
        /// The branch that was asked about.
        pub branch: String,
        /// The daemon's process id.
        pub pid: u32,
        /// Whether all is well.
        pub healthy: bool,
        /// What is wrong, and what to do about it.
        pub troubles: Vec<String>,
        /// Facts about the branch; `null` where the workspace is not running.
        pub facts: Option<Facts>,
        /// What is used, where that was asked for and the workspace is running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resources: Option<Resources>,
    }

    /// Facts about a running branch.
    pub struct Facts {
        /// Its head.
        pub head: Option<String>,
        /// How the import is doing.
        pub import: Import,
        /// Files of the base that changed there while they were shown.
        pub base_changed: Vec<Bytes>,
        /// Paths that cannot be read in the project: commits are made without their content.
        pub unreadable: Vec<Bytes>,
        /// What a base that is not there has and the store has not; directories with a slash at the end.
        #[serde(default)]
        pub not_imported: Vec<Bytes>,
        /// Size of the journal.
        pub journal_bytes: u64,
        /// Files and directories.
        pub entries: u64,
        /// What recovery did at the last start after an accident.
        pub recovered: Option<String>,
        /// Requests of the kernel that the mount has answered, by kind.
        #[serde(default)]
        pub requests: BTreeMap<String, Requests>,
        /// The file that events are appended to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub audit: Option<Bytes>,
        /// Number of the branch, as events have it.
        #[serde(default)]
        pub branch_id: u64,
        /// Where events come from.
        #[serde(default)]
        pub telemetry: Vec<String>,
        /// Version of the policy that changes are judged by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub policy: Option<u64>,
        /// How the branch stands to those of its name in remotes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub remotes: Vec<RemoteStanding>,
        /// The remote from which files come when they are read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lazy: Option<LazyStanding>,
    }

    /// Requests of one kind.
    #[derive(Copy, Eq, Default)]
    pub struct Requests {
        /// How many were answered since the workspace was mounted.
        pub count: u64,
        /// Microseconds from decoding to answer, of all together.
        pub us: u64,
    }

    /// Parameters of `workspace.checkpoint`.
    pub struct Checkpoint {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Label for the commit.
        #[serde(default)]
        pub label: Option<String>,
        /// Message.
        #[serde(default)]
        pub message: String,
        /// Keys and values.
        #[serde(default)]
        pub meta: Vec<(String, String)>,
        /// Wait for the id.
        #[serde(default = "yes")]
        pub wait: bool,
        /// As a commit that nobody asked for: without label; the head stays, and it expires.
        #[serde(default)]
        pub automatic: bool,
        /// Key and value, with `automatic`: none where the newest commit with that metadata shows the same.
        #[serde(default)]
        pub unlike: Option<(String, String)>,
        /// A key, with `automatic`: where the newest automatic commit that has it shows the same, this one has its
        /// metadata, too, with numbered keys.
        #[serde(default)]
        pub joins: Option<String>,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `workspace.checkpoint`.
    #[derive(Default)]
    pub struct CheckpointAnswer {
        /// The commit.
        pub commit: Option<String>,
        /// Files that changed since the head.
        pub files_changed: u64,
        /// Bytes that changed since the head.
        pub bytes_changed: u64,
        /// What the label named before.
        pub moved_from: Option<String>,
        /// Whether a commit was made; otherwise the head got the label.
        pub new_commit: bool,
        /// Conflicts of the last merge that are not settled.
        #[serde(default)]
        pub unresolved: u64,
        /// Paths whose content the commit does not have, as it cannot be read in the project.
        #[serde(default)]
        pub unreadable: Vec<Bytes>,
    }

    /// What to go back to.
    #[serde(rename_all = "lowercase")]
    pub enum Target {
        /// The head.
        Head,
        /// A ref.
        Ref(String),
        /// The newest commit from before this moment.
        Before(Moment),
        /// The newest commit with this key and value.
        Meta(String, String),
    }

    /// A moment.
    #[derive(Copy, Eq)]
    pub struct Moment {
        /// Seconds since 1970.
        pub sec: i64,
        /// Nanoseconds past `sec`.
        pub nsec: u32,
    }

    /// Parameters of `workspace.rollback` and `workspace.rollback_plan`.
    pub struct Rollback {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// What to go back to.
        pub target: Target,
        /// Only these paths, relative to the workspace's root, and the head stays; empty: all.
        #[serde(default)]
        pub paths: Vec<Bytes>,
        /// The key-value state stays as it is.
        #[serde(default)]
        pub keep_kv: bool,
    }

    /// Parameters of `workspace.undo`.
    pub struct Undo {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Go back also over checkpoints and applies that came later.
        #[serde(default)]
        pub over_later_changes: bool,
    }

    /// Answer of `workspace.rollback`, `workspace.undo` and `workspace.redo`.
    pub struct RollbackAnswer {
        /// The commit now shown.
        pub commit: Option<String>,
        /// The automatic commit of what was there.
        pub replaced: Option<String>,
        /// Files that changed.
        pub files_changed: u64,
    }

    /// Answer of `workspace.rollback_plan`.
    pub struct PlanAnswer {
        /// What would change.
        pub changes: Vec<Changed>,
        /// Who holds those files open.
        pub holders: Vec<Holder>,
        /// Keys of the key-value state that would change.
        #[serde(default)]
        pub keys_changed: u64,
    }

    /// One path that differs.
    pub struct Changed {
        /// `A` added, `M` modified, `D` deleted, `R` renamed, `T` type changed.
        pub status: char,
        /// The path, relative to the workspace's root.
        pub path: Bytes,
        /// The path before, of a renamed one.
        pub old_path: Option<Bytes>,
        /// Lines added and removed, where they were asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lines: Option<LineCount>,
    }

    /// A process that holds a file open.
    pub struct Holder {
        /// Its id.
        pub pid: u32,
        /// What it runs.
        pub command: String,
        /// The file, relative to the workspace's root.
        pub path: Bytes,
    }

    /// Parameters of `workspace.log`.
    pub struct Log {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Also automatic commits.
        #[serde(default)]
        pub all: bool,
        /// How many at most, the newest first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u64>,
        /// Those after this one, which was the last of an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<LogCursor>,
        /// Say of each commit by how many digits it can be named.
        #[serde(default, skip_serializing_if = "is_not")]
        pub digits: bool,
        /// Say how many there are in all.
        #[serde(default, skip_serializing_if = "is_not")]
        pub count: bool,
    }

    /// A place in a log.
    #[derive(Copy)]
    pub struct LogCursor {
        /// `number` of a commit.
        pub number: u64,
        /// Its `time`.
        pub time: Moment,
    }

    /// Answer of `workspace.log`.
    pub struct LogAnswer {
        /// Newest first.
        pub commits: Vec<LogRow>,
        /// How many there are in all, where that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub total: Option<u64>,
    }

    /// One commit.
    pub struct LogRow {
        /// Its number in the branch, where a limit was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub number: Option<u64>,
        /// Its id.
        pub commit: Option<String>,
        /// When it was made.
        pub time: Moment,
        /// Its labels, newest first.
        pub labels: Vec<String>,
        /// Its message.
        pub message: String,
        /// Its keys and values.
        pub meta: Vec<(String, String)>,
        /// Whether nobody asked for it.
        pub automatic: bool,
        /// Whether it is the branch's head.
        pub head: bool,
        /// Its parents.
        pub parents: Vec<String>,
        /// What made it: `start`, `checkpoint`, `before-rollback`, `stop`, …
        pub kind: String,
        /// So many digits of its id are enough to name it, where that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub digits: Option<u32>,
    }

    /// One side of a comparison.
    #[serde(rename_all = "lowercase")]
    pub enum Side {
        /// The live tree.
        Live,
        /// The base as it was started from.
        Base,
        /// A commit.
        Ref(String),
    }

    /// Parameters of `workspace.diff` and `workspace.patch`.
    pub struct Diff {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// What to compare.
        pub from: Side,
        /// What to compare it with.
        pub to: Side,
        /// Only what lies at or below these paths, relative to the workspace's root; empty: all.
        #[serde(default)]
        pub paths: Vec<Bytes>,
        /// Count lines.
        #[serde(default)]
        pub stat: bool,
    }

    /// Answer of `workspace.diff`.
    pub struct DiffAnswer {
        /// By path.
        pub changes: Vec<Changed>,
    }

    /// Parameters of `workspace.has_ref`.
    pub struct HasRef {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// The ref.
        #[serde(rename = "ref")]
        pub name: String,
    }

    /// Answer of `workspace.has_ref`.
    pub struct HasRefAnswer {
        /// Whether it names one commit.
        pub exists: bool,
    }

    /// Parameters of the notification `progress`.
    #[derive(Copy, Eq)]
    pub struct Progress {
        /// Id of the request.
        pub id: i64,
        /// Done so far.
        pub done: u64,
        /// To be done in all.
        pub total: u64,
    }
}

fn yes() -> bool {
    true
}

/// What is false is not sent.
pub(super) fn is_not(value: &bool) -> bool {
    !value
}

impl WorkspaceStatus {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            WorkspaceStatus::Initialized => "initialized",
            WorkspaceStatus::Started => "started",
            WorkspaceStatus::Stopped => "stopped",
            WorkspaceStatus::Stale => "stale",
        }
    }
}
