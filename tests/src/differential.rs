//! The same calls on two directories: what a mount does must be what the native file system does.
//!
//! [`steps`] makes a list of calls from a seed, [`compare`] makes them in two fresh directories and
//! looks at everything after each call, [`shrunk`] leaves out what a difference does not need.
//! What the two may differ in is listed in `docs/semantics.md`; calls that show such an exception are
//! not made, or their effect is compared by its meaning (`look.rs`).

mod choose;
mod look;
mod perform;
mod run;
mod shrink;

pub use choose::steps;
pub use run::{Failure, Pair, compare, compare_again, has_fine_clock};
pub use shrink::shrunk;

use crate::user::User;

/// Descriptors that a list of calls may hold open at once.
pub const SLOTS: usize = 4;

/// A call, and who makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Index into [`USERS`].
    pub user: usize,
    /// The call.
    pub op: Op,
}

/// Who calls: root (or who runs the test), and two users who share a group.
pub const USERS: [User; 3] = [
    user(0, 0, &[]),
    user(1501, 1501, &[]),
    user(1502, 1502, &[1501]),
];

const fn user(uid: u32, gid: u32, groups: &'static [u32]) -> User {
    User { uid, gid, groups }
}

/// One system call, or two that belong together. Paths are relative to the directory under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `open` into a slot: flags of open(2), mode.
    Open(usize, String, Octal, Octal),
    /// `close`
    Close(usize),
    /// `pwrite`: offset, length, seed of the bytes.
    Write(usize, u64, usize, u64),
    /// `write` at the descriptor's own position.
    Append(usize, usize, u64),
    /// `pread`: offset, length.
    Read(usize, u64, usize),
    /// `ftruncate`
    Resize(usize, u64),
    /// `truncate`
    Truncate(String, u64),
    /// `fallocate`: mode, offset, length.
    Allocate(usize, u32, u64, u64),
    /// `copy_file_range`: from slot and offset, to slot and offset, length.
    Copy((usize, u64), (usize, u64), usize),
    /// A write through a shared mapping: page (modulo those of the file), value.
    Map(usize, usize, u64),
    /// `fsync`
    Sync(usize),
    /// `lseek` to the end: the size that it finds.
    End(usize),
    /// `mkdir`
    Mkdir(String, Octal),
    /// `rmdir`
    Rmdir(String),
    /// `unlink`
    Unlink(String),
    /// `renameat2`: from, to, flags (1: NOREPLACE, 2: EXCHANGE, 4: WHITEOUT).
    Rename(String, String, u32),
    /// `linkat`, following a symbolic link or not.
    Link(String, String, bool),
    /// `linkat` of an open file, by its name in /proc.
    LinkOpen(usize, String),
    /// `symlink`: target, path.
    Symlink(String, String),
    /// `mkfifo`
    Fifo(String, Octal),
    /// `chmod`
    Chmod(String, Octal),
    /// `fchmod`
    ChmodOpen(usize, Octal),
    /// `lchown` or `chown`: owner, group, following.
    Chown(String, Option<u32>, Option<u32>, bool),
    /// `utimensat`: access time, modification time (seconds, nanoseconds), following.
    Times(String, Stamp, Stamp, bool),
    /// `lsetxattr`: name, value, flags (1: CREATE, 2: REPLACE).
    SetXattr(String, String, Blob, u32),
    /// `lremovexattr`
    RemoveXattr(String, String),
    /// `lgetxattr`
    GetXattr(String, String),
    /// `llistxattr`
    ListXattr(String),
    /// `faccessat` with the effective user: 4 read, 2 write, 1 execute.
    Access(String, u32),
    /// A listing: names and types.
    List(String),
    /// `readlink`
    Readlink(String),
    /// `umask`, for this and all later calls.
    Umask(Octal),
}

impl Step {
    /// Whether it makes a file without a name.
    pub fn is_nameless(&self) -> bool {
        matches!(&self.op, Op::Open(_, _, flags, _) if flags.0 & TMPFILE == TMPFILE)
    }
}

/// O_TMPFILE (asm-generic/fcntl.h), with O_DIRECTORY.
const TMPFILE: u32 = 0o20_200_000;

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The present.
    Now,
    /// None: it stays.
    Omit,
    /// Seconds, nanoseconds.
    At(i64, i64),
}

/// A value of an extended attribute, shown by its beginning.
#[derive(Clone, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.0[..self.0.len().min(48)];
        write!(f, "{} bytes {shown:02x?}", self.0.len())
    }
}

/// A mode or flags, shown as they are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Octal(pub u32);

impl std::fmt::Debug for Octal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#o}", self.0)
    }
}
