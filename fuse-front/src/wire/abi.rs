//! Numbers of the FUSE protocol (`include/uapi/linux/fuse.h`), by the names that they have there
//! without the prefix. Those that nothing here uses are left out.

/// Version of the protocol that is spoken: the major number, which has been 7 since 2006.
pub const MAJOR: u32 = 7;
/// Newest minor version whose messages are known.
pub const MINOR: u32 = 45;
/// Oldest minor version whose messages are read (Linux 3.15): from there on no message that is decoded
/// has changed its layout but by a flag that both sides agree on.
pub const MINOR_MIN: u32 = 23;

/// Length of the header of a request (`fuse_in_header`).
pub const IN_HEADER_BYTES: usize = 40;
/// Length of the header of an answer or notification (`fuse_out_header`).
pub const OUT_HEADER_BYTES: usize = 16;
/// Length of what comes before the data of a WRITE (`fuse_write_in`).
pub const WRITE_IN_BYTES: usize = 40;
/// Length of the attributes of an inode (`fuse_attr`).
pub const ATTR_BYTES: usize = 88;
/// Length of an answer that names an inode (`fuse_entry_out`).
pub const ENTRY_BYTES: usize = 128;
/// Length of an entry of a listing before its name (`fuse_dirent`).
pub const DIRENT_BYTES: usize = 24;

/// What a request is for (`enum fuse_opcode`).
#[allow(missing_docs)]
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    /// CREATE of a file without a name (7.37).
    pub const TMPFILE: u32 = 51;
    /// As COPY_FILE_RANGE, with 64 bits for how much was copied (7.45).
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// What both sides agree on when a mount begins; from bit 32 on they are sent in a second word.
pub mod init {
    /// Reads may be sent while others are under way.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes may be longer than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Modes come without the umask applied.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Listings bring attributes.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// Lookups and listings in one directory may be sent at the same time.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel checks access control lists.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// The answer says how many pages a request may have.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Cached pages are dropped on request alone.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// Who answers takes set-id bits away, and is told whether the caller may keep them.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR has a word more.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// There is a second word of flags.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The kernel can send requests again that were not answered (7.40).
    pub const HAS_RESEND: u64 = 1 << 39;
}

/// Which fields of a SETATTR count.
#[allow(missing_docs)]
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Set in the number of a request that is sent again.
pub const UNIQUE_RESENT: u64 = 1 << 63;

/// Flags of a WRITE.
pub mod write {
    /// Pages of the kernel's cache, not a write(2).
    pub const CACHE: u32 = 1 << 0;
    /// Set-id bits are to go.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// Flag of a CREATE: set-id bits are to go where it empties a file.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;

/// Flag of a SETXATTR: the access control list takes the set-group-id bit away.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Flag of an opened file: its cached pages stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;

/// What a notification is for (`enum fuse_notify_code`).
pub mod notify_code {
    /// Drop an inode's attributes and pages.
    pub const INVAL_INODE: i32 = 2;
    /// Drop a name.
    pub const INVAL_ENTRY: i32 = 3;
    /// Send again what was not answered (7.40).
    pub const RESEND: i32 = 7;
    /// Drop all names (7.44).
    pub const INC_EPOCH: i32 = 8;
}

/// Flags of open(2) and write(2) as the kernel numbers them (asm-generic/fcntl.h).
pub mod open {
    /// O_ACCMODE.
    pub const ACCMODE: u32 = 3;
    /// O_RDONLY.
    pub const RDONLY: u32 = 0;
    /// O_WRONLY.
    pub const WRONLY: u32 = 1;
    /// To be executed: the kernel's own `__FMODE_EXEC` (linux/fs.h).
    pub const EXEC: u32 = 0o40;
    /// O_EXCL.
    pub const EXCL: u32 = 0o200;
    /// O_TRUNC.
    pub const TRUNC: u32 = 0o1000;
    /// O_APPEND.
    pub const APPEND: u32 = 0o2000;
    /// O_NOATIME.
    pub const NOATIME: u32 = 0o1_000_000;
}

/// SEEK_DATA and SEEK_HOLE (lseek(2)).
pub const SEEK_DATA: u32 = 3;
/// See [`SEEK_DATA`].
pub const SEEK_HOLE: u32 = 4;

/// RENAME_NOREPLACE (renameat2(2)).
pub const RENAME_NOREPLACE: u32 = 1 << 0;
/// RENAME_EXCHANGE (renameat2(2)).
pub const RENAME_EXCHANGE: u32 = 1 << 1;
/// RENAME_WHITEOUT (renameat2(2)).
pub const RENAME_WHITEOUT: u32 = 1 << 2;
