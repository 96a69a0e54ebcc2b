//! The words that the engine and its callers share: inode numbers, attributes, requests, events.
//!
//! Nothing here depends on FUSE or on the store's layout.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// Bits of a [`NodeId`] and of an inode number below the view slot.
pub const SLOT_SHIFT: u32 = 40;

/// Number of an inode within one branch: dense, given in order, never reused. The root is 1.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, bincode::Encode, bincode::Decode,
)]
pub struct Nid(pub u64);

impl Nid {
    /// The root directory of every branch.
    pub const ROOT: Nid = Nid(1);
}

/// What a front addresses: a view slot (which branch or snapshot) in the high bits, a [`Nid`] below.
/// The root of the mount is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount: slot 0 (branch `main`), root inode.
    pub const ROOT: NodeId = NodeId(1);

    /// The node `nid` as seen through view `slot`.
    pub fn new(slot: u16, nid: Nid) -> NodeId {
        NodeId((u64::from(slot) << SLOT_SHIFT) | nid.0)
    }

    /// View slot.
    pub fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    /// Inode within the view.
    pub fn nid(self) -> Nid {
        Nid(self.0 & ((1 << SLOT_SHIFT) - 1))
    }
}

/// A moment, to the nanosecond, from 292 thousand million years before 1970 to as long after it.
///
/// Packed into 12 bytes: an inode has three, and with 16 bytes each it would be of the next larger
/// allocation class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(C, packed(4))]
pub struct Time {
    /// Seconds since the epoch; negative before 1970.
    pub sec: i64,
    /// Nanoseconds past `sec`, 0..1_000_000_000, also before 1970.
    pub nsec: u32,
}

impl bincode::Encode for Time {
    fn encode<E: bincode::enc::Encoder>(
        &self,
        encoder: &mut E,
    ) -> Result<(), bincode::error::EncodeError> {
        let (sec, nsec) = (self.sec, self.nsec);
        (sec, nsec).encode(encoder)
    }
}

impl<Context> bincode::Decode<Context> for Time {
    fn decode<D: bincode::de::Decoder<Context = Context>>(
        decoder: &mut D,
    ) -> Result<Time, bincode::error::DecodeError> {
        let (sec, nsec) = bincode::Decode::decode(decoder)?;
        Ok(Time { sec, nsec })
    }
}

bincode::impl_borrow_decode!(Time);

/// Type of an inode, from the `S_IFMT` bits of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    Char,
    /// Block device.
    Block,
}

/// `S_IFMT` and the types in it (inode(7)).
pub mod mode {
    #![allow(missing_docs)]
    pub const FMT: u32 = 0o170000;
    pub const SOCK: u32 = 0o140000;
    pub const LNK: u32 = 0o120000;
    pub const REG: u32 = 0o100000;
    pub const BLK: u32 = 0o060000;
    pub const DIR: u32 = 0o040000;
    pub const CHR: u32 = 0o020000;
    pub const FIFO: u32 = 0o010000;
    pub const SUID: u32 = 0o4000;
    pub const SGID: u32 = 0o2000;
    pub const VTX: u32 = 0o1000;
}

impl Kind {
    /// The kind that a mode's type bits name; `None` for bits that name none.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & mode::FMT {
            mode::REG => Kind::File,
            mode::DIR => Kind::Dir,
            mode::LNK => Kind::Symlink,
            mode::FIFO => Kind::Fifo,
            mode::SOCK => Kind::Socket,
            mode::CHR => Kind::Char,
            mode::BLK => Kind::Block,
            _ => return None,
        })
    }

    /// Type bits for a mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => mode::REG,
            Kind::Dir => mode::DIR,
            Kind::Symlink => mode::LNK,
            Kind::Fifo => mode::FIFO,
            Kind::Socket => mode::SOCK,
            Kind::Char => mode::CHR,
            Kind::Block => mode::BLK,
        }
    }
}

/// What `stat` shows of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Address of the inode.
    pub node: NodeId,
    /// `st_ino`: unique in the mount, stable, below 2^53.
    pub ino: u64,
    /// Type.
    pub kind: Kind,
    /// Permission bits with set-id and sticky (no type bits).
    pub perm: u16,
    /// Link count; directories: 2 + subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `makedev(3)` gives it (kernel's 32-bit encoding).
    pub rdev: u32,
    /// Length in bytes (of the target for a symbolic link).
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes or content.
    pub ctime: Time,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process (task) id in the daemon's pid namespace; 0 when unknown.
    pub pid: u32,
    /// The caller's umask, for default ACLs.
    pub umask: u32,
}

/// A time to set: a moment, or now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The daemon's clock.
    Now,
    /// This moment.
    At(Time),
}

/// Attributes to change; `None` leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub perm: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New length of a file.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time, where the front sets it itself.
    pub ctime: Option<Time>,
    /// With a length: the caller may not keep set-id bits and capabilities (it has no CAP_FSETID).
    pub kill_suidgid: bool,
    /// The caller has come by a path just now, not through a descriptor: it can be told to look again.
    pub by_path: bool,
}

/// A flag beside those of setxattr(2), for access control lists: the caller is not in the file's group,
/// so the list takes its set-group-id bit away (`posix_acl_update_mode` in the kernel).
pub const SETXATTR_KILL_SGID: u32 = 1 << 16;

/// Flags of a rename (renameat2(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail with EEXIST where the new name exists.
    pub noreplace: bool,
    /// Swap both names.
    pub exchange: bool,
    /// Leave a character device 0:0 of this caller's under the old name (RENAME_WHITEOUT).
    pub whiteout: Option<Caller>,
}

/// How a file is opened (open(2), execve(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    /// To be read.
    pub read: bool,
    /// To be written.
    pub write: bool,
    /// Each write goes to its end.
    pub append: bool,
    /// To be executed.
    pub exec: bool,
}

/// Flags of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// Pages of the kernel's cache (a shared mapping), not a write(2).
    pub from_cache: bool,
    /// The kernel asks for set-id bits to be cleared (FUSE_WRITE_KILL_SUIDGID).
    pub kill_suidgid: bool,
    /// The offset is what the kernel takes for the end of the file (O_APPEND).
    pub append: bool,
    /// The thread that calls write(2), as the kernel numbers it.
    pub thread: u32,
}

/// Who removes a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The kernel, on behalf of a program: it marks a directory that goes as dead.
    Kernel,
    /// The daemon: the kernel only finds the name gone.
    Daemon,
}

/// Modes of fallocate(2) that are supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Allocate; grow the file unless `keep_size`.
    Allocate {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Make a hole (FALLOC_FL_PUNCH_HOLE, always with KEEP_SIZE).
    PunchHole,
    /// Zeros that count as allocated (FALLOC_FL_ZERO_RANGE).
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// Where lseek(2) shall look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// Whether a request may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// No: [`crate::Error::WouldBlock`] where the disk must be waited for; ask again with `Allowed`
    /// from a thread that may wait.
    Never,
    /// Yes.
    Allowed,
}

/// One entry of a directory listing.
#[derive(Clone, Debug)]
pub struct DirEntry<'a> {
    /// Name; `.` and `..` are the first two.
    pub name: &'a [u8],
    /// Where the listing goes on after this entry; never 0, below 2^63.
    pub cookie: u64,
    /// Address of the inode.
    pub node: NodeId,
    /// `st_ino`.
    pub ino: u64,
    /// Type.
    pub kind: Kind,
    /// Attributes; `Some` only where they were asked for and the entry is not `.` or `..`.
    pub attr: Option<Attr>,
}

/// Figures for statfs(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Block size in bytes.
    pub bsize: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Blocks free for ordinary users.
    pub bavail: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name.
    pub namelen: u32,
}

/// What a front must do for the engine with the kernel's caches.
///
/// Called from control threads that hold no lock which a request handler takes. Each call returns
/// when the kernel has carried it out.
pub trait KernelCache: Send + Sync {
    /// Brings dirty pages of shared mappings into the engine (as writes), as far as it can.
    fn flush_dirty(&self);

    /// Drops cached pages and attributes of an inode. A node the kernel does not know is no error.
    fn inval_inode(&self, node: NodeId);

    /// The same for several, which costs less than one by one.
    fn inval_inodes(&self, nodes: &[NodeId]) {
        nodes.iter().for_each(|node| self.inval_inode(*node));
    }

    /// Drops a cached name (also a cached "no such name").
    fn inval_entry(&self, parent: NodeId, name: &[u8]);

    /// The same for several, which costs less than one by one.
    fn inval_entries(&self, names: &[(NodeId, &[u8])]) {
        let each = |(parent, name): &(NodeId, &[u8])| self.inval_entry(*parent, name);
        names.iter().for_each(each);
    }

    /// Drops cached pages of a range of a file.
    fn inval_range(&self, node: NodeId, _range: Range<u64>) {
        self.inval_inode(node);
    }

    /// Has the kernel ask for the sizes of files, by their paths from the mount's root, and waits for those who
    /// write to them: dropping attributes alone leaves the size that it appends at, maps up to and copies up
    /// to. Gives what it takes them for then; `None` where it could not be made to ask.
    fn refresh_sizes(&self, paths: Vec<Vec<u8>>) -> Vec<Option<u64>> {
        vec![None; paths.len()]
    }

    /// Waits until each write(2) that is under way into one of these files, by their paths from the mount's
    /// root, has come to its end; false for those of which that cannot be told.
    fn wait_for_writers(&self, paths: Vec<Vec<u8>>) -> Vec<bool> {
        vec![false; paths.len()]
    }

    /// Drops every cached name of the mount at once, where the kernel can; false where it cannot.
    fn inval_all_entries(&self) -> bool;

    /// Numbers (`st_ino`) of the files of the mount that programs have open, mapped or run, as far as that can be seen.
    fn open_files(&self) -> HashSet<u64> {
        HashSet::new()
    }

    /// Whether programs can have files open through a mount.
    fn is_mounted(&self) -> bool {
        true
    }

    /// Tells those who watch the mount what has changed behind the kernel's back, as far as it lets
    /// that be told. Does not wait.
    fn announce(&self, _changes: Vec<Announcement>) {}
}

/// A change to tell watchers of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Path of the directory from the mount's root; empty for the root.
    pub dir: Vec<u8>,
    /// Name in it.
    pub name: Vec<u8>,
    /// What happened to it.
    pub what: Happened,
}

/// What happened to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// It came, with this type.
    Made(Kind),
    /// It went, and had this type.
    Removed(Kind),
    /// It names what it did; content or attributes are others.
    Changed,
}

/// A [`KernelCache`] for trees that nothing has mounted.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoKernelCache;

impl KernelCache for NoKernelCache {
    fn is_mounted(&self) -> bool {
        false
    }

    fn flush_dirty(&self) {}
    fn inval_inode(&self, _node: NodeId) {}
    fn inval_entry(&self, _parent: NodeId, _name: &[u8]) {}
    fn inval_all_entries(&self) -> bool {
        true
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.slot(), self.nid())
    }
}

/// How far something is: done, of how many.
pub type Progress<'a> = &'a dyn Fn(u64, u64);
