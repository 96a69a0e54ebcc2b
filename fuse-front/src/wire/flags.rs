//! What the kernel's numbers mean in the engine's words, for whoever has decoded a request.

use super::abi::{self, open};
use engine::types::{
    Caller, Fallocate, Opening, RenameFlags, SETXATTR_KILL_SGID, Seek, WriteFlags, mode,
};
use rustix::io::Errno;

/// Permission bits of a mode, set-id and sticky included.
pub(crate) fn permissions(bits: u32) -> u32 {
    bits & (mode::SUID | mode::SGID | mode::VTX | 0o777)
}

/// A position in a file: the kernel's are signed.
pub(crate) fn position(position: u64) -> Result<u64, Errno> {
    i64::try_from(position)
        .map(|_| position)
        .map_err(|_| Errno::INVAL)
}

/// Flags of a rename, and who asks for it.
pub(crate) fn rename(flags: u32, who: Caller) -> Result<RenameFlags, Errno> {
    let known = abi::RENAME_NOREPLACE | abi::RENAME_EXCHANGE | abi::RENAME_WHITEOUT;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    Ok(RenameFlags {
        noreplace: flags & abi::RENAME_NOREPLACE != 0,
        exchange: flags & abi::RENAME_EXCHANGE != 0,
        whiteout: (flags & abi::RENAME_WHITEOUT != 0).then_some(who),
    })
}

/// How a file is opened.
pub(crate) fn opening(descriptor: u32) -> Opening {
    let access = descriptor & open::ACCMODE;
    let exec = descriptor & open::EXEC != 0;
    Opening {
        read: access != open::WRONLY && !exec,
        write: access != open::RDONLY,
        append: descriptor & open::APPEND != 0,
        exec,
    }
}

/// Flags of a WRITE and of the descriptor, and the thread that writes.
pub(crate) fn write(flags: u32, descriptor: u32, thread: u32) -> WriteFlags {
    WriteFlags {
        from_cache: flags & abi::write::CACHE != 0,
        kill_suidgid: flags & abi::write::KILL_SUIDGID != 0,
        append: descriptor & open::APPEND != 0,
        thread,
    }
}

/// Flags of a SETXATTR, of which one of ours is none of the system call's.
pub(crate) fn setxattr(flags: u32) -> Result<u32, Errno> {
    match flags & SETXATTR_KILL_SGID {
        0 => Ok(flags),
        _ => Err(Errno::INVAL),
    }
}

/// The modes of fallocate(2) that are offered (linux/falloc.h).
pub(crate) fn fallocate(mode: u32) -> Result<Fallocate, Errno> {
    Ok(match mode {
        0 => Fallocate::Allocate { keep_size: false },
        1 => Fallocate::Allocate { keep_size: true },
        3 => Fallocate::PunchHole,
        0x10 => Fallocate::ZeroRange { keep_size: false },
        0x11 => Fallocate::ZeroRange { keep_size: true },
        _ => return Err(Errno::OPNOTSUPP),
    })
}

/// The ways of lseek(2) that are asked for; the kernel does the others itself.
pub(crate) fn whence(whence: u32) -> Result<Seek, Errno> {
    match whence {
        abi::SEEK_DATA => Ok(Seek::Data),
        abi::SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno::INVAL),
    }
}
