//! Requests, as the rest of the front sees them.

use super::abi::{UNIQUE_RESENT, opcode};
use engine::types::{Caller, Fallocate, NodeId, Opening, RenameFlags, Seek, SetAttr, WriteFlags};
use rustix::io::Errno;

/// What every request begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is for.
    pub opcode: u32,
    /// Number of the request, which its answer repeats.
    pub unique: u64,
    /// The inode that it is about.
    pub node: NodeId,
    /// Who asks: user.
    pub uid: u32,
    /// Who asks: group.
    pub gid: u32,
    /// Who asks: task, as the daemon numbers it; 0 where it cannot see it.
    pub pid: u32,
}

impl Header {
    /// True if it was sent before, to who has not answered it.
    pub fn is_resent(&self) -> bool {
        self.unique & UNIQUE_RESENT != 0
    }

    /// Its number, the same each time that it is sent.
    pub fn number(&self) -> u64 {
        self.unique & !UNIQUE_RESENT
    }

    /// Who asks, in the engine's words. Every request's caller is made here. `umask` is 0 where a request
    /// has none.
    pub fn caller(&self, umask: u32) -> Caller {
        Caller {
            uid: self.uid,
            gid: self.gid,
            pid: self.pid,
            umask,
        }
    }

    /// True for requests that are answered: for the others the kernel takes no answer.
    pub fn is_answered(&self) -> bool {
        !matches!(
            self.opcode,
            opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY
        )
    }
}

/// What was agreed on about the layout of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// SETXATTR has a word more.
    pub long_setxattr: bool,
}

/// A request with its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The header.
    pub header: Header,
    /// What is asked for, or the errno to answer: ENOSYS for what is not known, EIO for what is no such
    /// request, else what is not offered.
    pub request: Result<Request<'a>, Errno>,
}

/// What the kernel offers when a mount begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Version of the protocol.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// Most bytes that it reads ahead.
    pub max_readahead: u32,
    /// What it knows ([`super::abi::init`]).
    pub flags: u64,
}

/// A request. Names and data lie in the bytes that it was decoded from. What a request says beyond
/// this (file handles, lock owners) has no meaning here: no file is ever opened.
#[allow(missing_docs)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    Init(Offer),
    Destroy,
    /// The request of this number need not be waited for any more.
    Interrupt {
        unique: u64,
    },
    NotifyReply,
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr,
    Setattr {
        set: SetAttr,
    },
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        perm: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: RenameFlags,
    },
    /// A further name, in the directory of the header.
    Link {
        node: NodeId,
        name: &'a [u8],
    },
    Open {
        how: Opening,
    },
    Opendir,
    Read {
        offset: u64,
        size: u32,
        /// The descriptor was opened with O_NOATIME.
        noatime: bool,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        flags: WriteFlags,
    },
    Flush,
    Release,
    Releasedir,
    Fsync,
    Fsyncdir,
    Statfs,
    /// `flags` as setxattr(2) has them, and [`engine::types::SETXATTR_KILL_SGID`].
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Readdir {
        cookie: u64,
        size: u32,
    },
    Readdirplus {
        cookie: u64,
        size: u32,
    },
    Lock,
    Access,
    Create {
        name: &'a [u8],
        perm: u32,
        umask: u32,
        exclusive: bool,
        truncate: bool,
        /// Where it empties a file, set-id bits go.
        kill_suidgid: bool,
    },
    /// As `Create`, without a name.
    Tmpfile {
        perm: u32,
        umask: u32,
    },
    Bmap,
    Ioctl,
    Poll,
    Fallocate {
        offset: u64,
        len: u64,
        mode: Fallocate,
    },
    Lseek {
        offset: u64,
        whence: Seek,
    },
    /// `wide`: the answer has 64 bits.
    CopyFileRange {
        offset: u64,
        to: NodeId,
        to_offset: u64,
        len: u64,
        wide: bool,
    },
}

impl Request<'_> {
    /// Whether the thread that asks executes nothing until it is answered. The kernel reads ahead and closes for a thread that goes
    /// on; a write that one does not wait for holds its execve(2) up all the same (exit_aio(), io_uring_task_cancel()).
    pub fn holds_its_thread(&self) -> bool {
        !matches!(
            self,
            Request::Read { .. }
                | Request::Release
                | Request::Releasedir
                | Request::Interrupt { .. }
                | Request::Init(_)
                | Request::Destroy
        )
    }
}

/// Inodes that the kernel forgets, each with how often it had looked it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgets<'a>(pub(super) &'a [[u8; 16]]);

impl Forgets<'_> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.0.iter().map(|both| {
            let (node, lookups) = both.split_at(8);
            (NodeId(word(node)), word(lookups))
        })
    }
}

/// Eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}
