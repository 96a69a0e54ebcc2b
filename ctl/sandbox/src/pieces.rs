//! What a sandbox's mounts are put together from: trees that are taken as detached mounts, and file systems in memory.

use crate::error::{Doing, Error, Result};
use crate::sys::set_mount;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Flags of what is writable in a sandbox.
pub const HARMLESS: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
/// Flags of what is not.
pub const READ_ONLY: u64 = HARMLESS | libc::MOUNT_ATTR_RDONLY;

/// A path as the kernel takes it.
pub fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Missing(path.to_owned()))
}

/// A tree as a detached mount.
pub fn take(path: &Path, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).doing(|| format!("taking {}", path.display()))
}

/// A detached mount with these flags, and all that is mounted in it; `path` is where it comes from.
pub fn with(tree: OwnedFd, flags: u64, path: &Path) -> Result<OwnedFd> {
    set_mount(Some(tree.as_fd()), c"", flags, true)
        .doing(|| format!("setting the flags of {}", path.display()))?;
    Ok(tree)
}

/// Places a detached mount.
pub fn attach(tree: BorrowedFd<'_>, at: &Path) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, c"", CWD, at, flags).doing(|| format!("placing {}", at.display()))
}

/// Mounts an empty file system in memory.
pub fn memory(at: &Path, mode: u32) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let data = CString::new(format!("mode={mode:o}")).map_err(|_| Error::Lost)?;
    let data: &CStr = &data;
    mount(c"tmpfs", at, c"tmpfs", flags, data)
        .doing(|| format!("mounting a file system in memory at {}", at.display()))
}
