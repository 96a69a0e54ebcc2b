//! The directory that a dead mount lies over, without taking the mount away.
//!
//! No path leads below a mount. But a thread can have a copy of all mounts for itself, take the dead one away
//! there, and hand out a descriptor: nobody else sees any of it.

use crate::{stale, sys};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount_change, open_tree, unmount,
};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Opens the directory below the dead mounts at `path`, with what is mounted in it.
///
/// # Errors
/// What the system said; EPERM for who may not mount.
pub fn open_beneath_dead(path: &Path) -> Result<OwnedFd> {
    let path = path.to_owned();
    let thread = std::thread::Builder::new()
        .name("beneath".to_owned())
        .spawn(move || open_here(&path))?;
    thread
        .join()
        .map_err(|_| Error::other("a thread has ended"))?
}

/// In a thread that ends afterwards.
fn open_here(path: &PathBuf) -> Result<OwnedFd> {
    sys::leave_mounts()?;
    // What is done to the copy must not reach the original.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    while stale::is_dead_mount(path) {
        unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    }
    // The copy's mounts end with it; these do not.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&tree, ".", flags, Mode::empty())?)
}
