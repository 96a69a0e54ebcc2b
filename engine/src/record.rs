//! What a journal record says: a [`Mutation`] of a live tree, or an [`Event`] between them.
//!
//! Both are made with everything decided (numbers, times, owners), so that applying them again gives
//! the same tree. Encoded by bincode's own derive in the one configuration of [`encode`].
//!
//! Invariant: the order of variants and fields is the format (`docs/format.md`); a new variant comes last.
//!
//! Tests: beside the parts; `fuzz/tests/format.rs` (the bytes).

pub(crate) mod call;
pub(crate) mod conflict;
mod event;
mod inode;
mod outcome;

use crate::kv::KvEntry;
use crate::limits::FIRST_NEW_INO;
use crate::types::Time;
pub use call::{CallOutcome, EndedBy, Owner, Process, StateRef, SwitchWord, What};
pub use event::{BroughtEntry, Event, Loaded, OpKind, StateInfo, SwitchKind};
pub use inode::{BodyRecord, ContentRecord, InodeRecord, LinksRecord, SrcRecord, TreePatch};
pub use outcome::Outcome;

/// Encodes a record, patch or state.
pub fn encode<T: bincode::Encode>(value: &T) -> Vec<u8> {
    objstore::codec::encode(value)
}

/// Decodes what [`encode`] made; trailing bytes are an error.
pub fn decode<T: bincode::Decode<()>>(bytes: &[u8]) -> Result<T, String> {
    objstore::codec::decode(bytes).map_err(|e| e.to_string())
}

/// Content of a journal record.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub enum Record {
    /// A change of the live tree.
    Mutation(Mutation),
    /// Something else.
    Event(Event),
    /// A change of the live tree that the kernel asked for, on a connection that outlives the daemon.
    Requested {
        /// The connection, where it is another one than that of the branch's `Requested` record before.
        connection: Option<u64>,
        /// Number of the request on that connection.
        unique: u64,
        /// The change.
        mutation: Mutation,
    },
}

impl Record {
    /// The change, where it is one.
    pub fn mutation(&self) -> Option<&Mutation> {
        match self {
            Record::Mutation(mutation) | Record::Requested { mutation, .. } => Some(mutation),
            Record::Event(_) => None,
        }
    }
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

impl Counters {
    /// Gives nothing below `to` any more.
    pub fn raise(&mut self, to: Counters) {
        self.nid = self.nid.max(to.nid);
        self.ino = self.ino.max(to.ino);
        self.state = self.state.max(to.state);
    }

    /// A state has this number.
    pub fn pass_state(&mut self, number: u64) {
        self.state = self.state.max(number.saturating_add(1));
    }

    /// An inode has these numbers.
    fn pass_inode(&mut self, nid: u64, ino: u64) {
        self.nid = self.nid.max(nid.saturating_add(1));
        self.ino = self.ino.max(ino.saturating_add(1));
    }

    /// Inodes of a base directory have the numbers that these say.
    pub fn pass_loaded(&mut self, entries: &[Loaded]) {
        for l in entries {
            let given = if l.ino >= FIRST_NEW_INO { l.ino } else { 0 };
            self.pass_inode(l.nid, given);
        }
    }

    /// Inodes of an away directory have the numbers that these say.
    pub fn pass_brought(&mut self, entries: &[BroughtEntry]) {
        for entry in entries {
            self.pass_inode(entry.nid, entry.inode.ino);
        }
    }

    /// The numbers that a mutation gave.
    pub fn pass_given(&mut self, m: &Mutation) {
        match m {
            Mutation::Create { nid, ino, .. }
            | Mutation::Nameless { nid, ino, .. }
            | Mutation::Whiteout { nid, ino, .. } => self.pass_inode(*nid, *ino),
            Mutation::Link { group, .. } => self.pass_inode(0, *group),
            _ => {}
        }
    }
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
    /// A new file without a name, which can get one.
    Nameless {
        /// Directory in whose place it is.
        parent: u64,
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
        /// Extended attributes (inherited ACLs).
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Time.
        now: Time,
    },
    /// As [`Mutation::Rename`]; the old name stands for a new character device 0:0 without permissions.
    Whiteout {
        /// Old directory.
        parent: u64,
        /// Old name.
        name: Vec<u8>,
        /// New directory.
        new_parent: u64,
        /// New name.
        new_name: Vec<u8>,
        /// Number of the new inode.
        nid: u64,
        /// Its shown inode number.
        ino: u64,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its extended attributes (inherited ACLs).
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Time.
        now: Time,
    },
}

impl Mutation {
    /// The numbers of inodes that it names; what it finds under a name is not among them.
    pub fn inodes(&self) -> [Option<u64>; 2] {
        match self {
            Mutation::Create { parent, .. }
            | Mutation::Unlink { parent, .. }
            | Mutation::Nameless { parent, .. } => [Some(*parent), None],
            Mutation::Link { nid, parent, .. } => [Some(*nid), Some(*parent)],
            Mutation::Rename {
                parent, new_parent, ..
            }
            | Mutation::Whiteout {
                parent, new_parent, ..
            } => [Some(*parent), Some(*new_parent)],
            Mutation::SetAttr { nid, .. }
            | Mutation::Write { nid, .. }
            | Mutation::Allocate { nid, .. } => [Some(*nid), None],
            Mutation::Copy { src, dst, .. } => [Some(*src), Some(*dst)],
            Mutation::Kv { .. } => [None, None],
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
