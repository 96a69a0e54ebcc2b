//! Names in the base: every path is opened from the base's own descriptor, beneath it, through no
//! symbolic link, on one file system. So whatever stands in the tree or is swapped while this runs,
//! nothing outside of the base can be written.

use crate::base::{Base, Stamp, split_path, stamp_at};
use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;

/// A directory that is open, and a name in it.
#[derive(Debug)]
pub(super) struct NameInDir {
    pub dir: OwnedFd,
    pub name: Vec<u8>,
}

/// An error at a path of the base.
pub(super) fn failed(base: &Base, path: &[u8], e: Errno) -> Error {
    Error::Io {
        path: base.path().join(std::ffi::OsStr::from_bytes(path)),
        source: e.into(),
    }
}

/// Opens a directory of the base.
pub(super) fn open_dir(base: &Base, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let open = |from: BorrowedFd<'_>, step: &[u8]| {
        fs::openat2(from, step, flags, Mode::empty(), resolve).map_err(|e| failed(base, path, e))
    };
    let mut dir = open(base.root_fd(), b".")?;
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = split_path(rest);
        dir = open(dir.as_fd(), step)?;
        rest = after;
    }
    Ok(dir)
}

impl NameInDir {
    /// The name that a path ends in, its directory opened.
    pub fn of(base: &Base, path: &[u8]) -> Result<NameInDir> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match slash {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        Ok(NameInDir {
            dir: open_dir(base, parent)?,
            name: name.to_vec(),
        })
    }

    /// What is there; `None` for nothing.
    pub fn stamp(&self) -> Result<Option<Stamp>, Errno> {
        match stamp_at(self.dir.as_fd(), &self.name) {
            Ok(stamp) => Ok(Some(stamp)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// True where the path still leads to the directory that is open.
    pub fn is_still(&self, base: &Base, path: &[u8]) -> bool {
        let again = NameInDir::of(base, path).ok();
        let inode = |dir: &OwnedFd| stamp_at(dir.as_fd(), b"").ok().map(|s| (s.dev, s.ino));
        again.is_some_and(|again| inode(&again.dir) == inode(&self.dir))
    }
}
