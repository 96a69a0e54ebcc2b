//! What a journal record says: a [`Mutation`] of a live tree, or an [`Event`] between them.
//!
//! Both are made with everything decided (numbers, times, owners), so that applying them again gives
//! the same tree. Encoded by bincode's own derive in the one configuration of [`encode`].

use crate::base::{BaseEntry, Stamp};
use crate::kv::KvEntry;
use crate::merge::Conflict;
pub use crate::timeline::entry::What;
pub use crate::timeline::{CallOutcome, StateRef, SwitchWord};
use crate::types::Time;
use objstore::content::FileContent;
use objstore::{CommitId, TreeId};

/// Encodes a record, patch or state.
pub fn encode<T: bincode::Encode>(value: &T) -> Vec<u8> {
    objstore::codec::encode(value)
}

/// Decodes what [`encode`] made; trailing bytes are an error.
pub fn decode<T: bincode::Decode<()>>(bytes: &[u8]) -> Result<T, String> {
    objstore::codec::decode(bytes).map_err(|e| e.to_string())
}

/// A change of one tree. `now` is the time that the changed inodes get.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum Mutation {
    /// A new inode under a name.
    Create {
        /// Directory.
        parent: u64,
        /// Name.
        name: Vec<u8>,
        /// Number of the new inode.
        nid: u64,
        /// Its shown inode number.
        ino: u64,
        /// Type and permissions.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number.
        rdev: u32,
        /// Symbolic link's target.
        target: Vec<u8>,
        /// Extended attributes (inherited ACLs).
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Time.
        now: Time,
    },
    /// A further name of an inode.
    Link {
        /// The inode.
        nid: u64,
        /// Directory.
        parent: u64,
        /// Name.
        name: Vec<u8>,
        /// Hard-link group, used where the inode has none.
        group: u64,
        /// Time.
        now: Time,
    },
    /// A name goes (of a file or of an empty directory).
    Unlink {
        /// Directory.
        parent: u64,
        /// Name.
        name: Vec<u8>,
        /// Time.
        now: Time,
    },
    /// A name moves; what has the new name goes, or changes places.
    Rename {
        /// Old directory.
        parent: u64,
        /// Old name.
        name: Vec<u8>,
        /// New directory.
        new_parent: u64,
        /// New name.
        new_name: Vec<u8>,
        /// RENAME_EXCHANGE.
        exchange: bool,
        /// Time.
        now: Time,
    },
    /// Attributes.
    SetAttr {
        /// The inode.
        nid: u64,
        /// All permission bits.
        perm: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Length.
        size: Option<u64>,
        /// Access time.
        atime: Option<Time>,
        /// Modification time.
        mtime: Option<Time>,
        /// Change time.
        ctime: Time,
        /// Extended attributes that change with it; `None` removes.
        xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    },
    /// The record's payload at an offset.
    Write {
        /// The file.
        nid: u64,
        /// Offset in bytes.
        offset: u64,
        /// Permission bits afterwards, where set-id bits went.
        perm: Option<u32>,
        /// Time.
        now: Time,
    },
    /// Allocation, hole or zeros.
    Allocate {
        /// The file.
        nid: u64,
        /// Start.
        offset: u64,
        /// Length.
        len: u64,
        /// What becomes of the range.
        how: Allocation,
        /// Length of the file afterwards.
        size: u64,
        /// Permission bits afterwards, where set-id bits went.
        perm: Option<u32>,
        /// Time.
        now: Time,
    },
    /// A range shared from another file.
    Copy {
        /// Source file.
        src: u64,
        /// Offset there.
        src_offset: u64,
        /// Target file.
        dst: u64,
        /// Offset there.
        dst_offset: u64,
        /// Bytes.
        len: u64,
        /// Permission bits of the target afterwards, where set-id bits went.
        perm: Option<u32>,
        /// Time.
        now: Time,
    },
    /// A key of the key-value state.
    Kv {
        /// The key.
        key: String,
        /// What it has from now on; without one it goes.
        entry: Option<Box<KvEntry>>,
    },
}

/// What [`Mutation::Allocate`] does with its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub enum Allocation {
    /// Holes become allocated zeros.
    Fill,
    /// All becomes a hole.
    Punch,
    /// All becomes allocated zeros.
    Zero,
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
    /// The live tree was changed into another state; the payload is the [`TreePatch`].
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
    /// comes from the tree that was stored to the one that it shows. The payload is the [`TreePatch`].
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
    /// head. The payload is the [`TreePatch`].
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
    /// What one call changed was taken back; the payload is the [`TreePatch`].
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
}

/// Content of a journal record.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum Record {
    /// A change of the live tree.
    Mutation(Mutation),
    /// Something else.
    Event(Event),
}

/// Numbers that are given once and never again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub struct Counters {
    /// Next inode number within the branch.
    pub nid: u64,
    /// Next shown inode number for inodes without a base number.
    pub ino: u64,
    /// Next state number.
    pub state: u64,
}

/// Body of a file, as recorded.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum BodyRecord {
    /// Zeros.
    None,
    /// Stored content.
    Stored(FileContent),
    /// A file of the base: directory path, name, version, allocated bytes.
    Base(Vec<u8>, Vec<u8>, Stamp, u64),
    /// A file of the base that may not be read.
    Unreadable,
}

/// Source of an extent, as recorded.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum SrcRecord {
    /// Journal payload: segment, offset, length, first byte.
    Journal(u32, u64, u32, u32),
    /// Hole.
    Hole,
    /// Allocated zeros.
    Zero,
    /// Range of a body.
    Shared(BodyRecord, u64),
}

/// Content of an inode, as recorded.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum ContentRecord {
    /// Regular file: body, its length, its allocation, extents (start, length, source).
    File(BodyRecord, u64, u64, Vec<(u64, u64, SrcRecord)>),
    /// Directory: entries (name, inode, type bits), stored object.
    Dir(Vec<(Vec<u8>, u64, u32)>, Option<TreeId>, bool),
    /// Directory of the base, not read yet: its path.
    LazyDir(Vec<u8>),
    /// Symbolic link.
    Symlink(Vec<u8>),
    /// Fifo, socket or device.
    Special,
}

/// Further names of an inode as recorded: group, then (parent, name hash, how many).
pub type LinksRecord = (u64, Vec<(u64, u64, u32)>);

/// An inode, as recorded.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct InodeRecord {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// Device number.
    pub rdev: u32,
    /// Shown number.
    pub ino: u64,
    /// Length.
    pub size: u64,
    /// Access time.
    pub atime: Time,
    /// Modification time.
    pub mtime: Time,
    /// Change time.
    pub ctime: Time,
    /// Directory of the first name.
    pub parent: u64,
    /// Hash of the first name.
    pub hash: u64,
    /// Further names.
    pub links: Option<LinksRecord>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Content.
    pub content: ContentRecord,
}

/// A difference between two trees: inodes and keys to set, or to remove.
#[derive(Clone, Debug, Default)]
pub struct TreePatch {
    /// (number, inode or gone), ascending.
    ///
    /// Boxed, as what is removed takes nine bytes: decoding refuses a list whose entries would take far
    /// more in memory than they have bytes.
    pub inodes: Vec<(u64, Option<Box<InodeRecord>>)>,
    /// (key, entry or gone), ascending.
    pub kv: Vec<(String, Option<Box<KvEntry>>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_that_only_remove_come_back_whatever_their_number() {
        for n in 0..5000 {
            let patch = TreePatch {
                inodes: (0..n).map(|i| (i, None)).collect(),
                kv: (0..n % 700).map(|i| (format!("{i}"), None)).collect(),
            };
            let back = TreePatch::from_bytes(&patch.to_bytes()).unwrap();
            assert_eq!(back.inodes.len() as u64, n);
            assert_eq!(back.kv.len() as u64, n % 700);
        }
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_allocate_without_bound() {
        let record = Record::Mutation(Mutation::Unlink {
            parent: 1,
            name: b"abc".to_vec(),
            now: Time::default(),
        });
        let good = encode(&record);
        for i in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[i] ^= 1 << bit;
                let _ = decode::<Record>(&bad);
            }
            assert!(decode::<Record>(&good[..i]).is_err());
        }
        // A length of 2^60 in a name of which nothing follows.
        let mut huge = encode(&2u32);
        huge.extend([0; 12]);
        huge.extend(u64::MAX.to_le_bytes());
        assert!(decode::<Record>(&huge).is_err());
        let mut trailing = good;
        trailing.push(0);
        assert!(decode::<Record>(&trailing).is_err());
    }
}
