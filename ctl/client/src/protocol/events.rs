//! Following what happens in a workspace: `events.subscribe`, and the line that an event is (docs/events.md).

use serde::{Deserialize, Serialize};

/// Values of `op`, in the order of docs/events.md.
pub const OPS: [&str; 29] = [
    "create",
    "write",
    "truncate",
    "unlink",
    "rename",
    "link",
    "symlink",
    "setattr",
    "setxattr",
    "rmdir",
    "checkpoint",
    "rollback",
    "undo",
    "redo",
    "restore",
    "merge",
    "update",
    "apply",
    "conflict",
    "branch",
    "tool",
    "run",
    "kv",
    "open",
    "read",
    "exec",
    "connect",
    "verdict",
    LOST,
];

/// The `op` of a line that stands for events which the subscriber does not get.
pub const LOST: &str = "lost";

/// Most entries of each list of a filter.
pub const FILTER_MAX: usize = 64;

/// Longest pattern of a filter, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4096;

fn follows() -> bool {
    true
}

fn is_so(value: &bool) -> bool {
    *value
}

wire! {
    /// Asks for events; they come as data before the answer, as lines of JSON.
    pub struct Subscribe {
        /// The workspace.
        pub workspace: String,
        /// Number of an event: those after it, as far as they are kept. Otherwise those from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub since: Option<u64>,
        /// Which ones.
        #[serde(default)]
        pub filter: EventFilter,
        /// Go on with what happens later; otherwise the answer comes after the events that there are.
        #[serde(default = "follows", skip_serializing_if = "is_so")]
        pub follow: bool,
    }

    /// Which events are wanted: those that fit each of these lists. An empty one fits all.
    #[derive(Default)]
    pub struct EventFilter {
        /// Names of branches.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub branches: Vec<String>,
        /// Of [`OPS`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ops: Vec<String>,
        /// Patterns: one of the event's paths, or a directory that it is in, fits one of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub paths: Vec<String>,
    }

    /// The end of the events.
    pub struct SubscribeAnswer {
        /// Number of the last event, wanted or not: `since` to go on after it.
        pub seq: u64,
        /// The workspace was stopped; otherwise there were no more events.
        pub stopped: bool,
    }
}

/// An event: ContextFS's sixteen fields by name, type and order, and further texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventLine {
    /// Nanoseconds since 1970.
    pub ts: u64,
    /// Number of the session: that of its branch.
    pub session_id: u64,
    /// Number of the branch.
    pub branch_id: u64,
    /// Version of the policy that was asked; 0 without one.
    pub policy_version: u64,
    /// One of [`OPS`].
    pub op: String,
    /// What was decided: `allow`.
    pub verdict: String,
    /// Device of the mount, as stat(2) returns it; 0 if it is not mounted.
    pub dev: u64,
    /// Number of the inode, as stat(2) returns it; 0 if the event is about none.
    pub ino: u64,
    /// Generation of the inode number: 0, as numbers are not used again.
    pub i_generation: u64,
    /// Path from the workspace's root.
    pub path: String,
    /// Process; 0 if it is not known.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes that were written.
    pub bytes: u64,
    /// Nanoseconds from the request to its end; 0 if there was none.
    pub latency_ns: u64,
    /// By which way it came: `fuse`, `control`, `engine`, `fanotify` or `ebpf`.
    pub backend: String,
    /// What ContextFS does not have.
    pub extra: EventExtra,
}

/// Texts beside ContextFS's fields; empty ones are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventExtra {
    /// Number of the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub seq: String,
    /// The workspace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    /// The branch's name when it happened.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Id of the tool call that it is part of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// Name of the process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comm: String,
    /// A second path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path2: String,
    /// `ok`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// The path in base64 if it is not UTF-8.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path_b64: String,
    /// The same of the second path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path2_b64: String,
    /// Of `lost`: how many, if that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub count: String,
    /// What else there is to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}
