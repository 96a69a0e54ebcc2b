//! What a request's arguments mean, in the engine's words. Numbers are the kernel's (asm-generic).
//!
//! What is not offered decodes to `None`; the caller refuses it. Nothing here has a side effect but
//! [`Create::call`], which is open(2)'s "make it or take what is there".

use engine::types::{
    Attr, Caller, Fallocate, NodeId, RenameFlags, Seek, SetAttr, Wait, WriteFlags,
};
use engine::{Error, Workspace};
use fuser::Request;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Permission bits of a mode, set-id and sticky included.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// O_EXCL and O_TRUNC as the kernel numbers them (asm-generic/fcntl.h).
pub(crate) const O_EXCL: i32 = 0o200;
pub(crate) const O_TRUNC: i32 = 0o1000;

/// O_APPEND as the kernel numbers it.
pub(crate) const O_APPEND: i32 = 0o2000;

/// O_NOATIME as the kernel numbers it.
pub(crate) const O_NOATIME: i32 = 0o1_000_000;

/// SEEK_DATA and SEEK_HOLE (lseek(2)).
pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;

/// Who asks, with a umask where one was sent.
pub(crate) fn caller(req: &Request, umask: u32) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
        pid: req.pid(),
        umask,
    }
}

/// An owned name: a request may outlive the buffer it was read into.
pub(crate) fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// The modes of fallocate(2) that are offered (linux/falloc.h).
pub(crate) fn fallocate_mode(mode: i32) -> Option<Fallocate> {
    Some(match mode {
        0 => Fallocate::Allocate { keep_size: false },
        1 => Fallocate::Allocate { keep_size: true },
        3 => Fallocate::PunchHole,
        0x10 => Fallocate::ZeroRange { keep_size: false },
        0x11 => Fallocate::ZeroRange { keep_size: true },
        _ => return None,
    })
}

/// The ways of lseek(2) that are asked for; the kernel does the others itself.
pub(crate) fn seek(whence: i32) -> Option<Seek> {
    match whence {
        SEEK_DATA => Some(Seek::Data),
        SEEK_HOLE => Some(Seek::Hole),
        _ => None,
    }
}

/// The flags of renameat2(2) that are offered.
pub(crate) fn rename_flags(flags: fuser::RenameFlags) -> Option<RenameFlags> {
    let known = fuser::RenameFlags::RENAME_NOREPLACE | fuser::RenameFlags::RENAME_EXCHANGE;
    known.contains(flags).then(|| RenameFlags {
        noreplace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
        exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
    })
}

/// Flags of a write, and of the descriptor that it comes through, and who writes.
pub(crate) fn write_flags(
    req: &Request,
    flags: fuser::WriteFlags,
    open: fuser::OpenFlags,
) -> WriteFlags {
    WriteFlags {
        from_cache: flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE),
        kill_suidgid: flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        outside_group: false,
        append: open.0 & O_APPEND != 0,
        thread: req.pid(),
    }
}

/// A CREATE.
pub(crate) struct Create {
    pub(crate) who: Caller,
    pub(crate) parent: NodeId,
    pub(crate) name: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) flags: i32,
}

impl Create {
    /// Makes the file; one that came into being since the kernel looked is opened, as open(2) does.
    pub(crate) fn call(&self, ws: &Workspace, wait: Wait) -> Result<Attr, Error> {
        match ws.mknod(&self.who, self.parent, &self.name, self.mode, 0, wait) {
            Err(Error::Exists) if self.flags & O_EXCL == 0 => self.open_existing(ws, wait),
            made => made,
        }
    }

    fn open_existing(&self, ws: &Workspace, wait: Wait) -> Result<Attr, Error> {
        let attr = ws.lookup(self.parent, &self.name, wait)?;
        if self.flags & O_TRUNC == 0 {
            return Ok(attr);
        }
        let empty = SetAttr {
            size: Some(0),
            by_path: true,
            ..SetAttr::default()
        };
        ws.setattr(&self.who, attr.node, &empty, wait)
            .inspect_err(|_| ws.forget(attr.node, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offered_modes_are_decoded() {
        assert_eq!(fallocate_mode(3), Some(Fallocate::PunchHole));
        assert_eq!(
            fallocate_mode(0x11),
            Some(Fallocate::ZeroRange { keep_size: true })
        );
        assert_eq!(fallocate_mode(8), None);
        assert_eq!(seek(SEEK_HOLE), Some(Seek::Hole));
        assert_eq!(seek(0), None);
    }

    #[test]
    fn whiteouts_are_not_offered() {
        let exchange = rename_flags(fuser::RenameFlags::RENAME_EXCHANGE);
        assert_eq!(
            exchange,
            Some(RenameFlags {
                noreplace: false,
                exchange: true
            })
        );
        assert_eq!(rename_flags(fuser::RenameFlags::RENAME_WHITEOUT), None);
    }
}
