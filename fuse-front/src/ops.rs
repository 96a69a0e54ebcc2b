//! FUSE requests to engine calls: decode, call, encode.
//!
//! No decisions: what the arguments mean is `decode.rs`, how a request is carried out `serve.rs`,
//! listings are `dirstream.rs`, errors `errno.rs`. OPEN, OPENDIR, FLUSH and ACCESS get ENOSYS, which
//! the kernel remembers: it then opens and closes by itself, keeping its caches, and checks
//! permissions itself.

use crate::attr::{engine_time, node, set_time};
use crate::decode::{Create, O_NOATIME, PERMISSIONS, caller, fallocate_mode, owned};
use crate::decode::{rename_flags, seek, write_flags};
use crate::groups;
use crate::limits::COPY_RANGE_MAX;
use crate::probe;
use crate::serve::{Front, LookupReply, PassingReply, XattrReply};
use crate::stats::Op;
use engine::Error;
use engine::types::{SetAttr, Wait, mode};
use fuser::*;
use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

impl Filesystem for Front {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        crate::session::negotiate(config, self.0.permissions);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.0.probe.wanted(parent, name) {
            return probe::answer_lookup(reply);
        }
        let (parent, name) = (node(parent), owned(name));
        let Some(reply) = self.lookup_own(self.own(req), parent, &name, reply) else {
            return;
        };
        if !engine::names_last(parent) {
            let reply = PassingReply(reply);
            return self.serve(Op::Lookup, reply, move |ws, wait| {
                ws.lookup(parent, &name, wait)
            });
        }
        let reply = LookupReply(reply);
        self.serve(Op::Lookup, reply, move |ws, wait| {
            ws.lookup(parent, &name, wait)
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        if probe::is_made_up(ino) {
            return;
        }
        let ticket = self.0.begin(Op::Forget);
        // Nobody waits for an answer; a panic was logged.
        let _ = self.0.guarded(|ws| {
            ws.forget(node(ino), lookups);
            Ok(())
        });
        self.0.end(ticket);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if probe::is_probe(ino) {
            return reply.attr(&crate::limits::FOREVER, &probe::probe_attr());
        }
        self.serve(Op::Getattr, reply, move |ws, _| ws.getattr(node(ino)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if self.own(req).is_some() {
            return self.touch_own(node(ino), reply);
        }
        // With no field at all it is the kernel's wish, before a write by a caller without
        // CAP_FSETID, that set-id bits be cleared; it takes the new mode from the answer.
        let who = caller(req, 0);
        let set = SetAttr {
            perm: mode.map(|mode| mode & PERMISSIONS),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(engine_time),
            outside_group: groups::is_outside(req, &self.0.ws.0, node(ino)),
            by_path: fh.is_none(),
        };
        self.serve(Op::Setattr, reply, move |ws, wait| {
            ws.setattr(&who, node(ino), &set, wait)
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let who = caller(req, 0);
        self.serve(Op::Readlink, reply, move |ws, _| {
            ws.readlink(&who, node(ino))
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (who, parent, name) = (caller(req, umask), node(parent), owned(name));
        if self.own(req).is_some() {
            return self.make_own(Op::Mknod, parent, name, mode, reply);
        }
        self.serve(Op::Mknod, reply, move |ws, wait| {
            ws.mknod(&who, parent, &name, mode, rdev, wait)
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (who, parent, name) = (caller(req, umask), node(parent), owned(name));
        if self.own(req).is_some() {
            return self.make_own(Op::Mkdir, parent, name, mode::DIR, reply);
        }
        let mode = mode & PERMISSIONS;
        self.serve(Op::Mkdir, reply, move |ws, wait| {
            ws.mkdir(&who, parent, &name, mode, wait)
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (node(parent), owned(name));
        if let Some(own) = self.own(req) {
            return self.remove_own(own, Op::Unlink, parent, &name, reply);
        }
        self.serve(Op::Unlink, reply, move |ws, wait| {
            ws.unlink(parent, &name, wait)
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (node(parent), owned(name));
        if let Some(own) = self.own(req) {
            return self.remove_own(own, Op::Rmdir, parent, &name, reply);
        }
        self.serve(Op::Rmdir, reply, move |ws, wait| {
            ws.rmdir(parent, &name, wait)
        });
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (who, parent, name) = (caller(req, 0), node(parent), owned(name));
        if self.own(req).is_some() {
            return self.make_own(Op::Symlink, parent, name, mode::LNK, reply);
        }
        let target = owned(target.as_os_str());
        self.serve(Op::Symlink, reply, move |ws, wait| {
            ws.symlink(&who, parent, &name, &target, wait)
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(flags) = rename_flags(flags) else {
            return self.refuse(Op::Rename, reply, Errno::EINVAL);
        };
        let (from, name) = (node(parent), owned(name));
        let (to, new_name) = (node(new_parent), owned(new_name));
        self.serve(Op::Rename, reply, move |ws, wait| {
            ws.rename(from, &name, to, &new_name, flags, wait)
        });
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (parent, name) = (node(new_parent), owned(new_name));
        self.serve(Op::Link, reply, move |ws, wait| {
            ws.link(node(ino), parent, &name, wait)
        });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let ticket = self.0.begin(Op::Open);
        reply.error(Errno::ENOSYS);
        self.0.end(ticket);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let moves_time = flags.0 & O_NOATIME == 0;
        self.serve(Op::Read, reply, move |ws, wait| {
            let data = ws.read(node(ino), offset, size, wait)?;
            if moves_time {
                ws.note_read(node(ino));
            }
            Ok(data)
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        flags: fuser::WriteFlags,
        open_flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ticket = self.0.begin(Op::Write);
        let (ino, mut flags) = (node(ino), write_flags(req, flags, open_flags));
        flags.outside_group = flags.kill_suidgid && groups::is_outside(req, &self.0.ws.0, ino);
        if flags.from_cache {
            self.0.drain.count_cached_write();
        }
        // Not `serve`: the data is copied only where the request has to wait.
        let outcome = self
            .0
            .guarded(|ws| Ok(ws.write(ino, offset, data, flags, Wait::Never)?));
        match outcome {
            Err(failure) if failure.would_block() => {
                let data = data.to_vec();
                self.later(ticket, reply, move |ws| {
                    Ok(ws.write(ino, offset, &data, flags, Wait::Allowed)?)
                });
            }
            outcome => self.0.finish(ticket, reply, outcome),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.refuse(Op::Flush, reply, Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.done(Op::Release, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve_waiting(Op::Fsync, reply, move |ws| ws.fsync(node(ino)));
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let ticket = self.0.begin(Op::Opendir);
        reply.error(Errno::ENOSYS);
        self.0.end(ticket);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.list(Op::Readdir, ino, offset, reply);
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.list(Op::Readdirplus, ino, offset, reply);
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.done(Op::Releasedir, reply);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve_waiting(Op::Fsyncdir, reply, move |ws| ws.fsync(node(ino)));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.serve(Op::Statfs, reply, |ws, _| ws.statfs());
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (who, name, value) = (caller(req, 0), owned(name), value.to_vec());
        let flags = flags as u32 | groups::list_flag(req, &self.0.ws.0, node(ino), &name);
        self.serve(Op::Setxattr, reply, move |ws, wait| {
            ws.setxattr(&who, node(ino), &name, &value, flags, wait)
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = owned(name);
        let reply = XattrReply { reply, size };
        self.serve(Op::Getxattr, reply, move |ws, _| {
            ws.getxattr(node(ino), &name)
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let who = caller(req, 0);
        let reply = XattrReply { reply, size };
        self.serve(Op::Listxattr, reply, move |ws, _| {
            ws.listxattr_as(&who, node(ino))
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (who, name) = (caller(req, 0), owned(name));
        self.serve(Op::Removexattr, reply, move |ws, wait| {
            ws.removexattr(&who, node(ino), &name, wait)
        });
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        self.refuse(Op::Access, reply, Errno::ENOSYS);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = (mode & PERMISSIONS) | mode::REG;
        let (who, parent, name) = (caller(req, umask), node(parent), owned(name));
        let create = Create {
            who,
            parent,
            name,
            mode,
            flags,
        };
        self.serve(Op::Create, reply, move |ws, wait| create.call(ws, wait));
    }

    fn getlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.refuse(Op::Lock, reply, Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        let ticket = self.0.begin(Op::Bmap);
        reply.error(Errno::ENOSYS);
        self.0.end(ticket);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let ticket = self.0.begin(Op::Ioctl);
        reply.error(Errno::ENOSYS);
        self.0.end(ticket);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let ticket = self.0.begin(Op::Poll);
        reply.error(Errno::ENOSYS);
        self.0.end(ticket);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = fallocate_mode(mode) else {
            return self.refuse(Op::Fallocate, reply, Errno::EOPNOTSUPP);
        };
        self.serve(Op::Fallocate, reply, move |ws, wait| {
            ws.fallocate(node(ino), offset, length, mode, wait)
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (Some(whence), Ok(offset)) = (seek(whence), u64::try_from(offset)) else {
            return self.refuse(Op::Lseek, reply, Errno::EINVAL);
        };
        self.serve(Op::Lseek, reply, move |ws, wait| {
            let found = ws.lseek(node(ino), offset, whence, wait)?;
            i64::try_from(found).map_err(|_| Error::Invalid)
        });
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (src, dst, len) = (node(ino_in), node(ino_out), len.min(COPY_RANGE_MAX));
        self.serve(Op::CopyFileRange, reply, move |ws, wait| {
            let copied = ws.copy_range(src, offset_in, dst, offset_out, len, wait)?;
            Ok(copied as u32)
        });
    }
}
