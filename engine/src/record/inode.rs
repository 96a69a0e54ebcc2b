//! Inodes as recorded, and patches of a tree, in the payloads of events, in state files and tree files.
//!
//! A record stands by itself: stored content and directories by their ids, written data by its place in
//! the journal, what is in the base by its path. What is decoded is checked before it is used
//! ([`InodeRecord::check`]); `tree/patch.rs` turns trees into these and back.

use crate::base::Stamp;
use crate::kv::KvEntry;
use crate::types::Time;
use objstore::TreeId;
use objstore::content::FileContent;

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
    /// Directory whose entries are in this object, which was not looked into yet.
    Away(TreeId),
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
}
