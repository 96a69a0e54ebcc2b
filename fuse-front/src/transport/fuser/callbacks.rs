//! The crate's callbacks, each as the request that it is.

use super::answers::{Pending, Reply};
use super::{Room, Serve, agree, words};
use crate::limits::ANSWER_BYTES_MAX;
use crate::transport::Build;
use crate::wire::abi::{opcode, open};
use crate::wire::{Request, flags};
use ::fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request as From, TimeOrNow, WriteFlags,
};
use engine::types::{NodeId, SetAttr};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

thread_local! {
    /// Memory for answers of the thread, which is one of the crate's.
    static ROOM: RefCell<Room> = RefCell::default();
}

/// What the crate calls.
#[derive(Debug)]
pub(crate) struct Callbacks<S> {
    server: S,
    permissions: bool,
}

impl<S: Serve> Callbacks<S> {
    pub(super) fn new(server: S, permissions: bool) -> Callbacks<S> {
        Callbacks {
            server,
            permissions,
        }
    }

    /// Has a request carried out that has names or data.
    fn with(
        &self,
        (from, code, node): (&From, u32, INodeNo),
        texts: [&[u8]; 2],
        build: impl Build,
        reply: impl Into<Reply>,
    ) {
        let header = words::header(from, code, node);
        let reply = Pending::new(reply, header.unique);
        ROOM.with_borrow_mut(|room| {
            self.server.carry_out(&header, texts, build, reply, room);
        });
    }

    /// Has one carried out that has neither.
    fn plain(
        &self,
        from: (&From, u32, INodeNo),
        request: Result<Request<'static>, Errno>,
        reply: impl Into<Reply>,
    ) {
        self.with(from, [&[], &[]], move |_| request, reply);
    }

    /// Has one carried out that has a name.
    fn named(
        &self,
        from: (&From, u32, INodeNo),
        name: &OsStr,
        build: impl for<'a> Fn(&'a [u8]) -> Request<'a> + Send + 'static,
        reply: impl Into<Reply>,
    ) {
        let texts = [name.as_bytes(), &[]];
        self.with(from, texts, move |[name, _]| Ok(build(name)), reply);
    }
}

/// The bits of flags that the crate takes for a signed number.
fn bits(flags: i32) -> u32 {
    flags as u32
}

impl<S: Serve> Filesystem for Callbacks<S> {
    fn init(&mut self, _from: &From, config: &mut KernelConfig) -> std::io::Result<()> {
        agree(config, self.permissions)
    }

    fn lookup(&self, from: &From, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let from = (from, opcode::LOOKUP, parent);
        self.named(from, name, |name| Request::Lookup { name }, reply);
    }

    fn forget(&self, _from: &From, node: INodeNo, lookups: u64) {
        self.server.forget(NodeId(node.0), lookups);
    }

    fn getattr(&self, from: &From, node: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        self.plain((from, opcode::GETATTR, node), Ok(Request::Getattr), reply);
    }

    fn setattr(
        &self,
        from: &From,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.map(flags::permissions),
            uid,
            gid,
            size,
            atime: atime.map(words::set_time),
            mtime: mtime.map(words::set_time),
            ctime: ctime.map(words::time),
            // The crate does not say whether the caller may keep them.
            kill_suidgid: size.is_some() && from.uid() != 0,
            by_path: file.is_none(),
        };
        let request = Ok(Request::Setattr { set });
        self.plain((from, opcode::SETATTR, node), request, reply);
    }

    fn readlink(&self, from: &From, node: INodeNo, reply: ReplyData) {
        self.plain((from, opcode::READLINK, node), Ok(Request::Readlink), reply);
    }

    fn mknod(
        &self,
        from: &From,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.named(
            (from, opcode::MKNOD, parent),
            name,
            move |name| Request::Mknod {
                name,
                mode,
                rdev,
                umask,
            },
            reply,
        );
    }

    fn mkdir(
        &self,
        from: &From,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let perm = flags::permissions(mode);
        self.named(
            (from, opcode::MKDIR, parent),
            name,
            move |name| Request::Mkdir { name, perm, umask },
            reply,
        );
    }

    fn unlink(&self, from: &From, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let from = (from, opcode::UNLINK, parent);
        self.named(from, name, |name| Request::Unlink { name }, reply);
    }

    fn rmdir(&self, from: &From, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let from = (from, opcode::RMDIR, parent);
        self.named(from, name, |name| Request::Rmdir { name }, reply);
    }

    fn symlink(
        &self,
        from: &From,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let texts = [name.as_bytes(), target.as_os_str().as_bytes()];
        let from = (from, opcode::SYMLINK, parent);
        self.with(
            from,
            texts,
            |[name, target]| Ok(Request::Symlink { name, target }),
            reply,
        );
    }

    fn rename(
        &self,
        from: &From,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (new_parent, flags) = (NodeId(new_parent.0), flags.bits());
        let texts = [name.as_bytes(), new_name.as_bytes()];
        let who = words::header(from, opcode::RENAME2, parent).caller(0);
        self.with(
            (from, opcode::RENAME2, parent),
            texts,
            move |[name, new_name]| {
                let flags = flags::rename(flags, who)?;
                Ok(Request::Rename {
                    name,
                    new_parent,
                    new_name,
                    flags,
                })
            },
            reply,
        );
    }

    fn link(&self, from: &From, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = NodeId(node.0);
        self.named(
            (from, opcode::LINK, parent),
            name,
            move |name| Request::Link { node, name },
            reply,
        );
    }

    fn open(&self, from: &From, node: INodeNo, open: OpenFlags, reply: ReplyOpen) {
        let how = flags::opening(open.0 as u32);
        self.plain((from, opcode::OPEN, node), Ok(Request::Open { how }), reply);
    }

    fn read(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let noatime = bits(flags.0) & open::NOATIME != 0;
        let request = flags::position(offset).map(|offset| Request::Read {
            offset,
            size,
            noatime,
        });
        self.plain((from, opcode::READ, node), request, reply);
    }

    fn write(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = flags::write(write_flags.bits(), bits(flags.0), from.pid());
        self.with(
            (from, opcode::WRITE, node),
            [data, &[]],
            move |[data, _]| {
                let offset = flags::position(offset)?;
                Ok(Request::Write {
                    offset,
                    data,
                    flags,
                })
            },
            reply,
        );
    }

    fn flush(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.plain((from, opcode::FLUSH, node), Ok(Request::Flush), reply);
    }

    fn release(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.plain((from, opcode::RELEASE, node), Ok(Request::Release), reply);
    }

    fn fsync(&self, from: &From, node: INodeNo, _file: FileHandle, _data: bool, reply: ReplyEmpty) {
        self.plain((from, opcode::FSYNC, node), Ok(Request::Fsync), reply);
    }

    fn opendir(&self, from: &From, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.plain((from, opcode::OPENDIR, node), Ok(Request::Opendir), reply);
    }

    fn readdir(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        cookie: u64,
        reply: ReplyDirectory,
    ) {
        let request = Request::Readdir {
            cookie,
            size: ANSWER_BYTES_MAX,
        };
        self.plain((from, opcode::READDIR, node), Ok(request), reply);
    }

    fn readdirplus(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        cookie: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let request = Request::Readdirplus {
            cookie,
            size: ANSWER_BYTES_MAX,
        };
        self.plain((from, opcode::READDIRPLUS, node), Ok(request), reply);
    }

    fn releasedir(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.plain(
            (from, opcode::RELEASEDIR, node),
            Ok(Request::Releasedir),
            reply,
        );
    }

    fn fsyncdir(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        self.plain((from, opcode::FSYNCDIR, node), Ok(Request::Fsyncdir), reply);
    }

    fn statfs(&self, from: &From, node: INodeNo, reply: ReplyStatfs) {
        self.plain((from, opcode::STATFS, node), Ok(Request::Statfs), reply);
    }

    fn setxattr(
        &self,
        from: &From,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let texts = [name.as_bytes(), value];
        self.with(
            (from, opcode::SETXATTR, node),
            texts,
            move |[name, value]| {
                let flags = flags::setxattr(bits(flags))?;
                Ok(Request::Setxattr { name, value, flags })
            },
            reply,
        );
    }

    fn getxattr(&self, from: &From, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let from = (from, opcode::GETXATTR, node);
        self.named(
            from,
            name,
            move |name| Request::Getxattr { name, size },
            reply,
        );
    }

    fn listxattr(&self, from: &From, node: INodeNo, size: u32, reply: ReplyXattr) {
        let from = (from, opcode::LISTXATTR, node);
        self.plain(from, Ok(Request::Listxattr { size }), reply);
    }

    fn removexattr(&self, from: &From, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let from = (from, opcode::REMOVEXATTR, node);
        self.named(from, name, |name| Request::Removexattr { name }, reply);
    }

    fn access(&self, from: &From, node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        self.plain((from, opcode::ACCESS, node), Ok(Request::Access), reply);
    }

    fn create(
        &self,
        from: &From,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (perm, flags) = (flags::permissions(mode), bits(flags));
        let (exclusive, truncate) = (flags & open::EXCL != 0, flags & open::TRUNC != 0);
        // As with SETATTR.
        let kill_suidgid = from.uid() != 0;
        self.named(
            (from, opcode::CREATE, parent),
            name,
            move |name| Request::Create {
                name,
                perm,
                umask,
                exclusive,
                truncate,
                kill_suidgid,
            },
            reply,
        );
    }

    fn getlk(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _owner: LockOwner,
        _start: u64,
        _end: u64,
        _kind: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        self.plain((from, opcode::GETLK, node), Ok(Request::Lock), reply);
    }

    fn setlk(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _owner: LockOwner,
        _start: u64,
        _end: u64,
        _kind: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.plain((from, opcode::SETLK, node), Ok(Request::Lock), reply);
    }

    fn bmap(&self, from: &From, node: INodeNo, _size: u32, _block: u64, reply: ReplyBmap) {
        self.plain((from, opcode::BMAP, node), Ok(Request::Bmap), reply);
    }

    fn ioctl(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _size: u32,
        reply: ReplyIoctl,
    ) {
        self.plain((from, opcode::IOCTL, node), Ok(Request::Ioctl), reply);
    }

    fn poll(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        self.plain((from, opcode::POLL, node), Ok(Request::Poll), reply);
    }

    fn fallocate(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let request = || {
            let (offset, len) = (flags::position(offset)?, flags::position(len)?);
            let mode = flags::fallocate(bits(mode))?;
            Ok(Request::Fallocate { offset, len, mode })
        };
        self.plain((from, opcode::FALLOCATE, node), request(), reply);
    }

    fn lseek(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let request = || {
            let offset = flags::position(offset as u64)?;
            let whence = flags::whence(bits(whence))?;
            Ok(Request::Lseek { offset, whence })
        };
        self.plain((from, opcode::LSEEK, node), request(), reply);
    }

    fn copy_file_range(
        &self,
        from: &From,
        node: INodeNo,
        _file: FileHandle,
        offset: u64,
        to: INodeNo,
        _to_file: FileHandle,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let request = || {
            let (offset, to_offset) = (flags::position(offset)?, flags::position(to_offset)?);
            let to = NodeId(to.0);
            Ok(Request::CopyFileRange {
                offset,
                to,
                to_offset,
                len,
                wide: false,
            })
        };
        self.plain((from, opcode::COPY_FILE_RANGE, node), request(), reply);
    }
}
