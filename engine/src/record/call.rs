//! What an entry of the timeline says, and how entries are chained.
//!
//! Invariant: an entry is never changed once it was pushed; what becomes known later (the end of a call,
//! a commit's id) is a further entry.

use crate::record::{SwitchKind, encode};
use crate::types::Time;
use objstore::CommitId;

/// Longest name of a tool, in bytes.
pub const TOOL_NAME_BYTES_MAX: usize = 255;
/// Longest parameters, result or error of a call, in bytes.
pub const CALL_TEXT_BYTES_MAX: usize = 1 << 20;
/// Calls that one call is said to have overlapped with, at most.
pub const OVERLAPS_MAX: usize = 256;

/// Calls of processes that run at once on a branch, at most: as many can be told to be no part of another.
pub const PROCESS_CALLS_MAX: usize = 4096;

/// A process, told apart from all others that ever were on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bincode::Encode, bincode::Decode)]
pub struct Process {
    /// Its id, as the daemon sees it.
    pub pid: u32,
    /// When it was started, in clock ticks since the machine was.
    pub started: u64,
    /// What tells this start of the machine from others.
    pub boot: u64,
}

/// Longest key of a call, in bytes.
pub const CALL_KEY_BYTES_MAX: usize = 512;

/// Whose a call is that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum Owner {
    /// Whoever knows its id.
    #[default]
    Anybody,
    /// A process: the call ends when that does.
    Process(Process),
    /// Whoever knows this key, which its beginner chose: programs that are gone between a call's beginning and its end
    /// need to remember nothing.
    Key(String),
}

/// By whom it was told that a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum EndedBy {
    /// By who began it, or who knew its id.
    Told,
    /// By the end of its process.
    Died,
    /// By nobody: it was given up, or this is a branch that was made while it ran. When it ended is not known.
    Nobody,
}

/// A state that an entry mentions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct StateRef {
    /// Its number on the branch.
    pub state: u64,
    /// Its commit, where that was known; else a later entry tells it.
    pub commit: Option<CommitId>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum CallOutcome {
    /// It worked; its result, JSON text.
    Success(Option<String>),
    /// It failed; why.
    Error(String),
}

/// By what the live tree was switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum SwitchWord {
    /// Rollback.
    Rollback,
    /// Undo.
    Undo,
    /// Redo.
    Redo,
    /// Merge.
    Merge,
    /// Paths were restored, or a conflict resolved.
    Restore,
    /// What one call changed was taken back.
    ToolUndo,
}

impl SwitchWord {
    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            SwitchWord::Rollback => "rollback",
            SwitchWord::Undo => "undo",
            SwitchWord::Redo => "redo",
            SwitchWord::Merge => "merge",
            SwitchWord::Restore => "restore",
            SwitchWord::ToolUndo => "tool-undo",
        }
    }
}

impl From<SwitchKind> for SwitchWord {
    fn from(kind: SwitchKind) -> SwitchWord {
        match kind {
            SwitchKind::Rollback => SwitchWord::Rollback,
            SwitchKind::Undo => SwitchWord::Undo,
            SwitchKind::Redo => SwitchWord::Redo,
            SwitchKind::Merge => SwitchWord::Merge,
            SwitchKind::Restore => SwitchWord::Restore,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum What {
    /// A call began; so up to version 0.1: whose it is was not told.
    Started {
        /// Its id.
        call: u64,
        /// Name of the tool.
        name: String,
        /// Parameters, JSON text.
        parameters: Option<String>,
        /// The branch as it was then.
        before: StateRef,
    },
    /// A call ended; so up to version 0.1: what it was part of was not told.
    Ended {
        /// Its id.
        call: u64,
        /// How.
        outcome: CallOutcome,
        /// The branch as it was then.
        after: StateRef,
        /// Calls that ran at the same time, those that are part of it too, ascending.
        overlaps: Vec<u64>,
        /// Numbers of entries by which the live tree was switched meanwhile.
        switches: Vec<u64>,
    },
    /// A call that was over when it was told of; up to version 0.1 also one that was taken over from elsewhere.
    Recorded {
        /// Its id.
        call: u64,
        /// Name of the tool.
        name: String,
        /// Parameters, JSON text.
        parameters: Option<String>,
        /// How it ended; `None`: it is not known to have ended (taken over from elsewhere).
        outcome: Option<CallOutcome>,
        /// When it began.
        started: Time,
        /// When it ended.
        completed: Option<Time>,
        /// The branch before it; `None` where that is not known (taken over from elsewhere).
        before: Option<StateRef>,
        /// The branch after it.
        after: Option<StateRef>,
        /// Calls that ran at the same time, ascending.
        overlaps: Vec<u64>,
    },
    /// The live tree was switched.
    Switched {
        /// By what.
        by: SwitchWord,
        /// The call that was taken back.
        call: Option<u64>,
        /// What was replaced.
        before: StateRef,
        /// What is shown since.
        after: Option<StateRef>,
    },
    /// The commit of a state that was mentioned before.
    Named {
        /// The state.
        state: u64,
        /// Its commit.
        commit: CommitId,
    },
    /// A state that was mentioned before equals another, which stands for it.
    Same {
        /// The state that is not kept.
        state: u64,
        /// The one that is.
        kept: StateRef,
    },
    /// A call began.
    Begun {
        /// Its id.
        call: u64,
        /// Name of the tool.
        name: String,
        /// Parameters, JSON text.
        parameters: Option<String>,
        /// The branch as it was then.
        before: StateRef,
        /// Whose it is.
        owner: Owner,
        /// Calls that ran then and of which it is known not to be part, ascending.
        apart: Vec<u64>,
    },
    /// A call ended.
    Over {
        /// Its id.
        call: u64,
        /// How.
        outcome: CallOutcome,
        /// The branch as it was then.
        after: StateRef,
        /// The innermost call that it lay inside.
        parent: Option<u64>,
        /// Calls that ran at the same time and are neither part of it nor around it, ascending.
        overlaps: Vec<u64>,
        /// Numbers of entries by which the live tree was switched meanwhile.
        switches: Vec<u64>,
        /// Who told of its end.
        by: EndedBy,
    },
    /// A timeline of another branch was taken over from elsewhere; calls of it follow.
    Elsewhere {
        /// Number of the timeline among those that were taken over.
        timeline: u64,
        /// The branch that it was of.
        branch: String,
        /// When that was deleted; `None`: it was there when the timeline was taken over.
        deleted: Option<Time>,
    },
    /// A call was taken over from elsewhere: of the states before and after it nothing is known.
    Imported {
        /// The timeline that it is of, where that is of another branch.
        timeline: Option<u64>,
        /// Its id in that timeline.
        call: u64,
        /// Name of the tool.
        name: String,
        /// Parameters, JSON text.
        parameters: Option<String>,
        /// How it ended; `None`: it is not known to have ended.
        outcome: Option<CallOutcome>,
        /// When it began.
        started: Time,
        /// When it ended.
        completed: Option<Time>,
        /// The innermost call that it lay inside.
        parent: Option<u64>,
        /// Calls that ran at the same time and are neither part of it nor around it, ascending.
        overlaps: Vec<u64>,
    },
    /// Whose the changes were while a call ran that ends now; directly before [`What::Over`] of the call, with the same time. All that was
    /// changed while it ran together with another one is known to be its own, or that of others.
    Others {
        /// Its id.
        call: u64,
        /// What others changed meanwhile, ascending: paths; with a slash at the end, with all below; with one at the
        /// beginning, keys.
        paths: Vec<Vec<u8>>,
        /// Why it is not known; there are no paths then.
        doubt: Option<String>,
    },
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct TimelineEntry {
    /// Number in the timeline, from 1 on without gaps.
    pub number: u64,
    /// When it happened.
    pub time: Time,
    /// What happened.
    pub what: What,
}

/// Hash of an entry: it covers the entry and, by the hash before it, all before.
pub fn chained(before: &[u8; 32], entry: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(entry);
    *hasher.finalize().as_bytes()
}

/// An entry as it stands in the log: length, entry, hash, length again, so that it is read from both ends.
pub fn framed(entry: &TimelineEntry, before: &[u8; 32]) -> (Vec<u8>, [u8; 32]) {
    let body = encode(entry);
    let hash = chained(before, &body);
    // Names and texts are bounded, so this is far below the limit.
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = Vec::with_capacity(body.len() + FRAME_EXTRA_BYTES);
    out.extend_from_slice(&len);
    out.extend_from_slice(&body);
    out.extend_from_slice(&hash);
    out.extend_from_slice(&len);
    (out, hash)
}

/// Bytes of a frame beside the entry.
pub const FRAME_EXTRA_BYTES: usize = 4 + 32 + 4;
