//! Read-only covers of directories: a directory mounted over itself so that nobody, not even root, writes
//! into it by its path. What is mounted inside lies on the cover and is not affected.
//!
//! For directories that mount points lie in: whoever writes there by path while nothing is mounted would
//! write what no workspace has. Only who may mount can make a cover; for others there are mode bits.
//! Invariant: a cover never hides anything, since it shows the same directory.

use crate::{stale, table};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, OpenTreeFlags, UnmountFlags};
use std::io::Result;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Covers `dir`, unless it is covered already.
///
/// # Errors
/// What the system said; the directory is as it was. A directory in which something is mounted is
/// refused: the cover would hide that.
pub fn cover(dir: &Path) -> Result<()> {
    if table::is_covered(dir)? {
        return Ok(());
    }
    if table::is_used_at_or_below(dir)? {
        return Err(rustix::io::Errno::BUSY.into());
    }
    // Without this there would be no way to make anything in it.
    drop(behind_covers(dir)?);
    rustix::mount::mount_bind(dir, dir)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(dir, flags, "").or_else(|error| {
        stale::unmount(dir, UnmountFlags::DETACH)?;
        Err(error.into())
    })
}

/// Takes a cover away, if there is one and nothing is mounted on it.
///
/// # Errors
/// What the system said; the cover is still there.
pub fn uncover(dir: &Path) -> Result<()> {
    match table::is_covered(dir)? && !table::is_used_at_or_below(dir)? {
        // Programs that stand in it do not matter.
        true => stale::unmount(dir, UnmountFlags::DETACH),
        false => Ok(()),
    }
}

/// True if `dir` is covered, be it under other mounts.
///
/// # Errors
/// The kernel's table cannot be read.
pub fn is_covered(dir: &Path) -> Result<bool> {
    table::is_covered(dir)
}

/// A descriptor of `dir` that shows it without what is mounted below it, covers among that.
///
/// # Errors
/// What the system said; EPERM for who may not mount.
pub fn behind_covers(dir: &Path) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(CWD, dir, flags)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
    use rustix::io::Errno;
    use std::fs;

    #[test]
    fn nobody_writes_into_a_covered_directory_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let inner = root.join("inner");
        fs::create_dir(&inner).unwrap();
        match cover(&inner) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: only who may mount can cover a directory");
                return;
            }
            done => done.unwrap(),
        }
        cover(&inner).unwrap();
        assert!(is_covered(&inner).unwrap());
        let refused = fs::create_dir(inner.join("new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        let behind = behind_covers(&root).unwrap();
        mkdirat(&behind, "inner/new", Mode::RWXU).unwrap();
        assert!(inner.join("new").is_dir());
        unlinkat(&behind, "inner/new", AtFlags::REMOVEDIR).unwrap();
        drop(behind);
        uncover(&inner).unwrap();
        uncover(&inner).unwrap();
        assert!(!is_covered(&inner).unwrap());
        fs::create_dir(inner.join("new")).unwrap();
    }
}
