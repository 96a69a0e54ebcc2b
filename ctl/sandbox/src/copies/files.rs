//! Files of trees that a command in a sandbox could write, handled from outside.
//!
//! Invariant: no path in such a tree, and none in the directory that it was a copy of, is ever followed through a
//! symbolic link or out of the tree; only regular files are opened for reading or writing.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, fstat, mkdirat, openat,
    openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Depth to which a tree is walked with a descriptor for each directory.
const DEPTH_MAX: usize = 64;
/// Bytes that are compared at once.
const PIECE_BYTES: usize = 64 << 10;

const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A moment and place by which a change of a file is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Inode.
    pub ino: u64,
    /// Time of its last change: seconds and nanoseconds.
    pub changed: (i64, i64),
}

impl Stamp {
    /// Of a file.
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            ino: stat.st_ino,
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// What kind of file it is.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Overlayfs's mark of what was deleted.
pub fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// A directory of the machine, by a path without links.
pub fn open_top(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// A directory in a tree; `path` may be empty.
pub fn open_dir(top: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    match path.as_os_str().is_empty() {
        true => openat(top, c".", DIRECTORY, Mode::empty()),
        false => openat2(top, path, DIRECTORY, Mode::empty(), WITHIN),
    }
}

/// The same, with directories made that are missing.
pub fn make_dir(top: BorrowedFd<'_>, path: &Path, mode: u32) -> rustix::io::Result<OwnedFd> {
    let mut dir = openat(top, c".", DIRECTORY, Mode::empty())?;
    for part in path.components() {
        match mkdirat(&dir, part.as_os_str(), Mode::from_raw_mode(mode & 0o777)) {
            Err(errno) if errno != Errno::EXIST => return Err(errno),
            _ => {}
        }
        dir = openat(&dir, part.as_os_str(), DIRECTORY, Mode::empty())?;
    }
    Ok(dir)
}

/// A regular file in a tree, with what it is; none where something else is there, or nothing.
pub fn open_file(top: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Option<(File, Stat)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match openat2(top, path, flags, Mode::empty(), WITHIN) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::NODEV) => {
            return Ok(None);
        }
        fd => fd?,
    };
    let stat = fstat(&fd)?;
    Ok((kind(&stat) == FileType::RegularFile).then(|| (fd.into(), stat)))
}

/// What is at a path in a tree, itself.
pub fn look(top: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<Option<Stat>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(top, path, flags, Mode::empty(), WITHIN) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        fd => Ok(Some(fstat(&fd?)?)),
    }
}

/// Names in a directory, sorted.
pub fn names(dir: BorrowedFd<'_>) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether two files hold the same bytes.
pub fn is_same(a: &mut File, b: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    loop {
        let (n, m) = (fill(a, &mut left)?, fill(b, &mut right)?);
        if n != m || left[..n] != right[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Removes a directory with all that is in it, however deep, whatever its modes. What is missing is removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        parent => parent?,
    };
    let mut moved = 0;
    loop {
        let top = match enter(parent.as_fd(), name.as_bytes()) {
            Err(Errno::NOENT) => return Ok(()),
            top => top?,
        };
        empty(top.as_fd(), top.as_fd(), 0, &mut moved)?;
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            // What was too deep lies right in it now.
            Err(Errno::NOTEMPTY) => {}
            done => return Ok(done?),
        }
    }
}

/// Opens a directory that whoever made it may have locked.
fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    match openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let all = Mode::RWXU;
            rustix::fs::chmodat(parent, name, all, AtFlags::empty())?;
            openat(parent, name, DIRECTORY, Mode::empty())
        }
        opened => opened,
    }
}

fn empty(
    dir: BorrowedFd<'_>,
    top: BorrowedFd<'_>,
    depth: usize,
    moved: &mut u64,
) -> rustix::io::Result<()> {
    // One that cannot be written to is its owner's all the same.
    let _ = rustix::fs::fchmod(dir, Mode::RWXU);
    for name in names(dir)? {
        let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&stat) != FileType::Directory {
            unlinkat(dir, &name, AtFlags::empty())?;
            continue;
        }
        if depth == DEPTH_MAX {
            *moved += 1;
            let to = format!(".deep-{}-{moved}", std::process::id());
            renameat_with(dir, &name, top, &to, RenameFlags::NOREPLACE)?;
            continue;
        }
        let inner = enter(dir, name.as_bytes())?;
        empty(inner.as_fd(), top, depth + 1, moved)?;
        match unlinkat(dir, &name, AtFlags::REMOVEDIR) {
            // It is the top itself that got what was too deep.
            Err(Errno::NOTEMPTY) if depth == 0 => {}
            done => done?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nothing_is_followed_out_of_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        std::fs::create_dir_all(tree.join("in")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("f"), "secret").unwrap();
        std::fs::write(tree.join("in/f"), "x").unwrap();
        symlink(&other, tree.join("link")).unwrap();
        symlink(other.join("f"), tree.join("file")).unwrap();
        let top = open_top(&tree).unwrap();
        let open = |path: &str| open_file(top.as_fd(), Path::new(path));
        assert!(open("in/f").unwrap().is_some());
        for path in ["link/f", "file", "in", "missing"] {
            assert!(open(path).unwrap().is_none(), "{path}");
        }
        assert!(open("../other/f").is_err());
        assert!(make_dir(top.as_fd(), Path::new("link/new"), 0o700).is_err());
        assert!(!other.join("new").exists());
    }

    #[test]
    fn a_deep_and_locked_tree_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let mut at = tree.clone();
        for _ in 0..3 * DEPTH_MAX {
            at.push("d");
        }
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("f"), "x").unwrap();
        symlink("/", tree.join("link")).unwrap();
        std::fs::set_permissions(tree.join("d/d"), PermissionsExt::from_mode(0o0)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
