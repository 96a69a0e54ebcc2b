//! The crate's replies, one type for each kind of request, as one.

use super::{Room, words};
use crate::transport::{Duty, List, Lists, Space};
use crate::wire::{Answer, Plus, blank};
use ::fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use engine::types::{Attr, DirEntry, Kind, NodeId};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// There is but one generation, as in our own answers.
const GENERATION: Generation = Generation(0);

macro_rules! replies {
    ($($kind:ident $reply:ident,)*) => {
        /// A reply of the crate's.
        #[derive(Debug)]
        pub(super) enum Reply { $($kind($reply),)* }

        $(impl From<$reply> for Reply {
            fn from(reply: $reply) -> Reply {
                Reply::$kind(reply)
            }
        })*

        impl Reply {
            fn error(self, errno: ::fuser::Errno) {
                match self { $(Reply::$kind(reply) => reply.error(errno),)* }
            }
        }
    };
}

replies! {
    Attr ReplyAttr,
    Bmap ReplyBmap,
    Create ReplyCreate,
    Data ReplyData,
    Directory ReplyDirectory,
    DirectoryPlus ReplyDirectoryPlus,
    Empty ReplyEmpty,
    Entry ReplyEntry,
    Ioctl ReplyIoctl,
    Lock ReplyLock,
    Lseek ReplyLseek,
    Open ReplyOpen,
    Poll ReplyPoll,
    Statfs ReplyStatfs,
    Write ReplyWrite,
    Xattr ReplyXattr,
}

/// The duty to answer a request. The crate answers EIO for one that is dropped, too.
#[derive(Debug)]
pub(super) struct Pending {
    reply: Option<Reply>,
    unique: u64,
}

impl Pending {
    pub(super) fn new(reply: impl Into<Reply>, unique: u64) -> Pending {
        let reply = Some(reply.into());
        Pending { reply, unique }
    }
}

impl Duty for Pending {
    fn answer(mut self, answer: Answer, room: &mut Room) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        if let Err(reply) = say(reply, &answer, room) {
            tracing::error!(?answer, "the request has no such answer");
            reply.error(::fuser::Errno::EIO);
        }
    }

    fn fail(mut self, errno: Errno) {
        if let Some(reply) = self.reply.take() {
            reply.error(::fuser::Errno::from_i32(errno.raw_os_error()));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.reply.is_some() {
            let unique = self.unique;
            tracing::error!(unique, "a request was dropped, it fails with EIO");
        }
    }
}

/// Sends the answer; gives the reply back where there is no such answer to its request.
fn say(reply: Reply, answer: &Answer, room: &mut Room) -> Result<(), Reply> {
    match (reply, answer) {
        (Reply::Empty(reply), Answer::Done) => reply.ok(),
        (Reply::Entry(reply), Answer::Entry(attr, keep)) => {
            reply.entry(keep, &words::attributes(attr), GENERATION);
        }
        (Reply::Entry(reply), Answer::Absent(keep)) => {
            reply.entry(keep, &nobody(0, Kind::File), GENERATION);
        }
        (Reply::Attr(reply), Answer::Attributes(attr, keep)) => {
            reply.attr(keep, &words::attributes(attr));
        }
        (Reply::Create(reply), Answer::Created(attr, keep)) => {
            let (attr, flags) = (words::attributes(attr), FopenFlags::FOPEN_KEEP_CACHE);
            reply.created(keep, &attr, GENERATION, FileHandle(0), flags);
        }
        (Reply::Open(reply), Answer::Opened) => {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
        (Reply::Write(reply), Answer::Written(size)) => reply.written(*size),
        (Reply::Lseek(reply), Answer::Found(offset)) => reply.offset(*offset as i64),
        (Reply::Xattr(reply), Answer::Length(size)) => reply.size(*size),
        (Reply::Xattr(reply), Answer::Data(data)) => reply.data(data),
        (Reply::Data(reply), Answer::Data(data)) => reply.data(data),
        (Reply::Data(reply), Answer::Room(len)) => reply.data(room.first(*len)),
        (Reply::Statfs(reply), Answer::Figures(s)) => reply.statfs(
            s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.bsize,
        ),
        (Reply::Directory(reply), Answer::Room(_)) => reply.ok(),
        (Reply::DirectoryPlus(reply), Answer::Room(_)) => reply.ok(),
        (reply, _) => return Err(reply),
    }
    Ok(())
}

/// Attributes of an inode of which only number and type are known.
fn nobody(number: u64, kind: Kind) -> ::fuser::FileAttr {
    words::attributes(&Attr {
        node: NodeId(number),
        ..blank(number, kind)
    })
}

impl Lists for Pending {
    fn space<'a>(&'a mut self, room: &'a mut Room) -> impl Space {
        Target {
            pending: self,
            room,
        }
    }
}

/// Where an answer's data goes: a listing into the crate's reply, other bytes into memory.
struct Target<'a> {
    pending: &'a mut Pending,
    room: &'a mut Room,
}

impl Space for Target<'_> {
    type List<'b>
        = Entries<'b>
    where
        Self: 'b;

    fn first(&mut self, len: usize) -> &mut [u8] {
        self.room.first(len)
    }

    /// The crate knows by itself how much there is room for.
    fn list(&mut self, _size: usize, plus: Plus) -> Entries<'_> {
        Entries {
            reply: self.pending.reply.as_mut(),
            plus,
            count: 0,
        }
    }
}

/// A listing in the crate's reply.
struct Entries<'a> {
    reply: Option<&'a mut Reply>,
    plus: Plus,
    count: usize,
}

impl List for Entries<'_> {
    fn add(&mut self, item: &DirEntry<'_>) -> bool {
        let (node, name) = (INodeNo(item.node.0), OsStr::from_bytes(item.name));
        let is_full = match (&mut self.reply, self.plus) {
            (Some(Reply::Directory(reply)), Plus::No) => {
                reply.add(node, item.cookie, words::file_type(item.kind), name)
            }
            (Some(Reply::DirectoryPlus(reply)), Plus::Keep(keep)) => {
                let attr = match &item.attr {
                    Some(attr) => words::attributes(attr),
                    // The kernel takes neither for an inode that it now knows.
                    None if matches!(item.name, b"." | b"..") => nobody(node.0, item.kind),
                    // It would, so the entry has no number.
                    None => nobody(0, item.kind),
                };
                reply.add(attr.ino, item.cookie, name, &keep, &attr, GENERATION)
            }
            _ => true,
        };
        self.count += usize::from(!is_full);
        !is_full
    }

    fn len(&self) -> usize {
        self.count
    }
}
