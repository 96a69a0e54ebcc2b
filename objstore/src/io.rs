//! The one way to the disk for the store and for the engine's journals.
//!
//! Two traits: [`Storage`], a tree of files named by `/`-separated relative paths, and [`Segment`], one
//! append-only file of it. There are two kinds of implementation: files below a directory
//! ([`crate::file_storage::FileStorage`]) and a simulated disk that keeps what was written and what
//! was synced apart ([`crate::crash_storage::CrashStorage`]), for crash tests.
//!
//! Invariant: whoever uses these traits never learns whether a file is mapped or read.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::Frozen;

/// An append-only file.
///
/// Appends from several threads are serialised; each is placed whole, one after the other.
pub trait Segment: Send + Sync + Debug {
    /// Appends the concatenation of `parts` and returns the offset of its first byte.
    ///
    /// After `Ok` the bytes survive the death of this process, not yet a power cut. On `Err` the
    /// segment's length is what it was before (nothing half written stays visible).
    fn append(&self, parts: &[&[u8]]) -> io::Result<u64>;

    /// Fills `buf` from `offset`; `UnexpectedEof` where the segment is shorter.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// As [`Segment::read_at`], but `Ok(false)` (and `buf` undefined) where the disk would have to
    /// be waited for. An implementation that cannot tell reads and answers `Ok(true)`.
    fn try_read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool>;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// True when nothing was appended yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the segment to `len` bytes. For recovery only: nobody reads or appends meanwhile.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Overwrites existing bytes in place. For marks of at most 512 bytes that carry a checksum:
    /// after a power cut any mixture of old and new may be there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// True where [`Segment::punch_hole`] gives space back here. Changes nothing.
    fn can_punch(&self) -> bool;

    /// Gives the disk the space of a range of existing bytes back: they read as zeros from now on,
    /// the length stays. `Unsupported` where the file system cannot. Not durable before a sync: after
    /// a power cut each sector of the range is what it was or zeros. Bytes outside are left alone
    /// where the range begins and ends with a sector of 512 bytes.
    fn punch_hole(&self, range: Range<u64>) -> io::Result<()>;

    /// Ranges that take no space, ascending; none where the file system does not tell. A hole reads
    /// as zeros, but zeros need not have been punched.
    fn holes(&self) -> io::Result<Vec<Range<u64>>>;

    /// Brings everything appended and overwritten so far to stable storage (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// A tree of files on which a store lives. Paths are relative, `/`-separated, without `.` and `..`.
pub trait Storage: Send + Sync + Debug {
    /// Makes a new, empty segment; `AlreadyExists` where the path is taken. The name survives a
    /// power cut after [`Storage::sync_dir`] of its directory.
    fn create(&self, path: &str) -> io::Result<Arc<dyn Segment>>;

    /// Opens an existing segment for reading and appending.
    fn open(&self, path: &str) -> io::Result<Arc<dyn Segment>>;

    /// The whole of a small file, or `None` where it does not exist.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// The whole of a file that only [`Storage::replace`] changes, or `None` where it does not exist. It may be
    /// mapped: what was read once is not kept in memory of this process.
    fn read_frozen(&self, path: &str) -> io::Result<Option<Frozen>> {
        Ok(self.read(path)?.map(Frozen::from))
    }

    /// Replaces (or makes) a file atomically and durably: after `Ok` the new content survives a
    /// power cut, and at any moment a reader sees the old or the new content whole.
    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file; `Ok` where there is none.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes a directory and all below it; `Ok` where there is none.
    fn remove_dir_all(&self, path: &str) -> io::Result<()>;

    /// Names in a directory, sorted; empty where it does not exist. Temporary files of
    /// [`Storage::replace`] are left out.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Makes a directory and its parents (mode 0700), durably.
    fn create_dir_all(&self, dir: &str) -> io::Result<()>;

    /// Brings the names in a directory to stable storage.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Bytes that this process may still write on the file system of the store.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Gives back a piece of the space that is kept for what must go on when the disk is full; false
    /// where nothing is left. See [`crate::reserve`]; a storage without a reserve leaves this and what
    /// follows as it is.
    fn give_reserve(&self) -> bool {
        false
    }

    /// Bytes that [`Storage::give_reserve`] can still give.
    fn reserve_bytes(&self) -> u64 {
        0
    }

    /// True from when a piece was given until the disk has room again. Whoever need not go on takes
    /// no space meanwhile.
    fn is_reserve_in_use(&self) -> bool {
        false
    }

    /// Gives a piece where the disk has next to no space: for small files beside the store.
    fn make_room(&self) {}

    /// Makes the reserve whole again where the disk has room for it; true where it is whole.
    fn restore_reserve(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Bytes that all files take, what is mounted below and the reserve left out.
    fn used_bytes(&self) -> io::Result<u64>;

    /// How long ago a file was changed last; none at all where the clock says that it will be.
    fn age(&self, path: &str) -> io::Result<Duration>;
}
