//! Mounts whose daemon is gone: every access says "Transport endpoint is not connected" until they
//! are detached.

use crate::limits::DEAD_MOUNTS_MAX;
use crate::table;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::path::Path;
use std::process::{Command, Stdio};

/// True if `path` shows a mount whose daemon is gone. Attributes may still come from the kernel's
/// cache, so the mount is asked for something that is never cached.
pub fn is_dead_mount(path: &Path) -> bool {
    matches!(rustix::fs::statvfs(path), Err(Errno::NOTCONN))
}

/// True if everything that `path`'s mount is asked fails with EIO: a keeper refuses it.
pub fn is_refused_mount(path: &Path) -> bool {
    matches!(rustix::fs::statvfs(path), Err(Errno::IO))
}

/// Detaches the dead mounts at `path`, if any; programs that still use them keep seeing errors.
///
/// # Errors
/// What the system or `fusermount3` said, if a dead mount is still there.
pub fn detach_dead(path: &Path) -> std::io::Result<()> {
    for _ in 0..DEAD_MOUNTS_MAX {
        if !is_dead_mount(path) {
            return Ok(());
        }
        unmount(path, UnmountFlags::DETACH)?;
    }
    Err(std::io::Error::other(format!(
        "more than {DEAD_MOUNTS_MAX} dead mounts"
    )))
}

/// Leaves one dead mount at `path` where several lie over each other, so that what is below them stays covered.
pub(crate) fn detach_all_but_one(path: &Path) -> std::io::Result<()> {
    for _ in 0..DEAD_MOUNTS_MAX {
        if !is_dead_mount(path) || table::fuse_mounts_at(path)? < 2 {
            return Ok(());
        }
        unmount(path, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Unmounts what is at `path`: by the system call, or, where that needs more rights, by fusermount3.
pub(crate) fn unmount(path: &Path, flags: UnmountFlags) -> std::io::Result<()> {
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => unmount_by_helper(path, flags.contains(UnmountFlags::DETACH)),
        done => Ok(done?),
    }
}

/// Unmounts by `fusermount3 -u`, which may do it for the mount's owner.
fn unmount_by_helper(path: &Path, lazy: bool) -> std::io::Result<()> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(path)
        .stdin(Stdio::null());
    let output = command.env("LC_ALL", "C").output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match said.contains("busy") {
        true => Err(Errno::BUSY.into()),
        false => Err(std::io::Error::other(said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_directories_are_not_dead_mounts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_dead_mount(dir.path()));
        assert!(!is_dead_mount(&dir.path().join("missing")));
        detach_dead(dir.path()).unwrap();
    }
}
