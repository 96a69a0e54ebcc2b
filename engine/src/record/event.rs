//! What happens between mutations: states are made, shown, named and let go of.
//!
//! A state is told of by number, which every branch gives by itself; [`StateInfo`] is all that is kept of
//! one but its tree. Where an event changes the live tree, the patch is the record's payload.

use super::{Counters, InodeRecord, What};
use crate::base::{BaseEntry, Stamp};
use crate::record::conflict::Conflict;
use crate::types::Time;
use objstore::content::FileContent;
use objstore::{CommitId, TreeId};

/// Why a commit was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub enum OpKind {
    /// The workspace was started on its base.
    Start,
    /// Asked for.
    Checkpoint,
    /// What a rollback replaced.
    BeforeRollback,
    /// What an undo replaced.
    BeforeUndo,
    /// What a redo replaced.
    BeforeRedo,
    /// At stop.
    Stop,
    /// What a branch was made of.
    BeforeBranch,
    /// What a merge was made of.
    BeforeMerge,
    /// Made by a merge.
    Merge,
    /// A commit of another branch that something here refers to.
    Foreign,
    /// After a rest, or now and then while there was none.
    Auto,
    /// What the branch was before or after a tool call.
    ToolCall,
    /// What was shown once paths were restored, or one call was taken back.
    Restored,
}

impl OpKind {
    /// True for commits that nobody asked for.
    pub fn is_automatic(self) -> bool {
        !matches!(self, OpKind::Start | OpKind::Checkpoint | OpKind::Merge)
    }

    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            OpKind::Start => "start",
            OpKind::Checkpoint => "checkpoint",
            OpKind::BeforeRollback => "before-rollback",
            OpKind::BeforeUndo => "before-undo",
            OpKind::BeforeRedo => "before-redo",
            OpKind::Stop => "stop",
            OpKind::BeforeBranch => "before-branch",
            OpKind::BeforeMerge => "before-merge",
            OpKind::Merge => "merge",
            OpKind::Foreign => "other-branch",
            OpKind::Auto => "auto",
            OpKind::ToolCall => "tool-call",
            OpKind::Restored => "restored",
        }
    }
}

/// A state of the branch: a frozen tree, or the commit made of it.
#[derive(Clone, PartialEq, Debug, bincode::Encode, bincode::Decode)]
pub struct StateInfo {
    /// Number, ascending in time within the branch.
    pub number: u64,
    /// Why it was made.
    pub kind: OpKind,
    /// Somebody chose it since (a rollback to an automatic commit): it counts as asked for.
    pub asked: bool,
    /// When it was frozen.
    pub time: Time,
    /// Who made it.
    pub author: String,
    /// Message.
    pub message: String,
    /// Metadata, sorted by key.
    pub meta: Vec<(String, String)>,
    /// Parents, first the head.
    pub parents: Vec<u64>,
    /// Commit id, once known.
    pub id: Option<CommitId>,
}

/// By what the live tree was switched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub enum SwitchKind {
    /// Rollback.
    Rollback,
    /// Undo.
    Undo,
    /// Redo.
    Redo,
    /// Merge.
    Merge,
    /// Some paths were taken from another state; the head stays.
    Restore,
}

/// One entry of a base directory with the numbers it got.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct Loaded {
    /// Number of the inode (an earlier one for a further hard link).
    pub nid: u64,
    /// Shown inode number.
    pub ino: u64,
    /// What the base has.
    pub entry: BaseEntry,
}

/// One entry of an away directory with the number it got.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct BroughtEntry {
    /// Number of the inode (an earlier one for a further hard link).
    pub nid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub inode: Box<InodeRecord>,
}

/// Something between mutations.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum Event {
    /// The live tree as it is now is a state; with `head` it is the new head, and `label` names it.
    Freeze {
        /// The state.
        info: StateInfo,
        /// Becomes the head (a checkpoint).
        head: bool,
        /// Label.
        label: Option<String>,
    },
    /// The checkpoint that was frozen last could not be stored and is taken back.
    Withdraw {
        /// Its state.
        state: u64,
    },
    /// A label names a state.
    Label {
        /// Label.
        label: String,
        /// State.
        state: u64,
    },
    /// The live tree was changed into another state; the payload is the [`TreePatch`](super::TreePatch).
    Switch {
        /// By what.
        kind: SwitchKind,
        /// State that keeps what was replaced.
        replaced: u64,
        /// State now shown, or from which paths were taken.
        target: u64,
        /// Head afterwards.
        head: u64,
        /// Counters afterwards.
        counters: Counters,
    },
    /// The record's payload is a page of a replaced state that the kernel still held.
    Fenced {
        /// The state.
        state: u64,
        /// The file there.
        nid: u64,
        /// Offset.
        offset: u64,
        /// Time.
        now: Time,
    },
    /// A base directory was read.
    LoadDir {
        /// The directory.
        dir: u64,
        /// Its entries.
        entries: Vec<Loaded>,
        /// It could not be read.
        unreadable: bool,
        /// The next record has more entries of it.
        more: bool,
    },
    /// The record's payload is a further part of the patch of the switch that follows.
    SwitchPart,
    /// A file of the base was found changed; wherever its old version is the body, it is shown in the
    /// new one from now on.
    TakeAnew {
        /// The file.
        nid: u64,
        /// Version that is gone.
        old: Stamp,
        /// Its new content; `None` where nothing can be read any more.
        content: Option<FileContent>,
        /// Length in bytes.
        size: u64,
        /// Allocated bytes.
        alloc: u64,
        /// Its modification time.
        mtime: Time,
        /// Its change time.
        ctime: Time,
    },
    /// The commit id of a state became known.
    Named {
        /// State.
        state: u64,
        /// Commit.
        id: CommitId,
    },
    /// What a switch replaced was nothing but a state that there is already; that one stands for it.
    Same {
        /// The state that is not kept.
        state: u64,
        /// The one that it equals.
        kept: u64,
    },
    /// The live tree is changed without a trace in the history: how a branch that was made from another
    /// comes from the tree that was stored to the one that it shows. The payload is the
    /// [`TreePatch`](super::TreePatch).
    Patched {
        /// Counters afterwards.
        counters: Counters,
    },
    /// A commit that is in the store already is a state of this branch, too.
    Known {
        /// The state; its id is set.
        info: StateInfo,
    },
    /// The live tree was changed into what a merge made; that state, whose commit is in the store, is the
    /// head. The payload is the [`TreePatch`](super::TreePatch).
    Merged {
        /// State that keeps what was replaced.
        replaced: u64,
        /// The merge's state.
        info: StateInfo,
        /// Label.
        label: Option<String>,
        /// Paths in conflict.
        conflicts: Vec<Conflict>,
        /// Counters afterwards.
        counters: Counters,
    },
    /// A conflict was settled.
    Resolved {
        /// Its path.
        path: Vec<u8>,
    },
    /// Automatic commits that are not kept any longer.
    Expired {
        /// Their states.
        states: Vec<u64>,
        /// Steps of undo that go with them, from the oldest on.
        undo: u64,
        /// Steps of redo that go with them, from the oldest on.
        redo: u64,
    },
    /// The timeline has a further entry.
    Timeline {
        /// When it happened.
        time: Time,
        /// What happened.
        what: What,
    },
    /// The timeline's log was stored up to some byte of what was not stored yet.
    TimelineStored {
        /// The log.
        stored: FileContent,
        /// Bytes that were added to it.
        bytes: u64,
    },
    /// What a pending state that a new branch took over has as the timeline's head.
    Headed {
        /// The state.
        state: u64,
        /// Entries; 0: none, then the hash says nothing.
        entries: u64,
        /// Hash of the last one.
        hash: [u8; 32],
    },
    /// What one call changed was taken back; the payload is the [`TreePatch`](super::TreePatch).
    CallUndone {
        /// The call.
        call: u64,
        /// State that keeps what was replaced.
        replaced: u64,
        /// State that is frozen of what is shown since.
        after: u64,
        /// Counters afterwards.
        counters: Counters,
    },
    /// A label that a state has from another branch; one that the branch has already stays.
    Inherited {
        /// Label.
        label: String,
        /// State.
        state: u64,
    },
    /// What the branch showed was applied to the base.
    Applied {
        /// When.
        time: Time,
    },
    /// What the branch showed some time before is a state; the payload is the [`TreePatch`](super::TreePatch) that makes
    /// it of the live tree, which stays.
    Kept {
        /// The state.
        info: StateInfo,
    },
    /// An away directory was looked into: its entries come wherever it is away.
    Brought {
        /// The directory.
        dir: u64,
        /// The object that it is.
        id: TreeId,
        /// Its entries.
        entries: Vec<BroughtEntry>,
        /// The next record has more entries of it.
        more: bool,
    },
}

impl Event {
    /// True where the record's payload, after those of the [`Event::SwitchPart`]s right before it, is a patch of the live
    /// tree.
    pub fn has_patch(&self) -> bool {
        self.patches_live() || matches!(self, Event::Kept { .. })
    }

    /// True where the live tree is another one afterwards, which the record's patch makes of it.
    pub fn patches_live(&self) -> bool {
        matches!(
            self,
            Event::Switch { .. }
                | Event::Patched { .. }
                | Event::Merged { .. }
                | Event::CallUndone { .. }
        )
    }
}
