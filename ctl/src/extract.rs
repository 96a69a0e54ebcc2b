//! Files of a commit written to a directory of the machine.
//!
//! Invariant: nothing outside that directory is ever written and nothing that exists is changed.
//! Every step goes from a descriptor to a name without following a symbolic link, and files are made
//! anew or not at all. All names are looked at before the first is written; what was made is taken
//! away again where it fails on the way.

use crate::output::bar;
use agentvfs_client::context::Context;
use agentvfs_client::failure::{Failure, INTERRUPTED};
use agentvfs_client::files::TreeAt;
use agentvfs_client::protocol::{CANCELLED, FileKind, FileNode};
use agentvfs_client::quote::shown;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const WHAT: &str = "cannot write the files";

/// What is to be written where.
pub struct Extraction {
    directory: PathBuf,
    /// Paths below it with what they are to be, parents first.
    entries: Vec<(Vec<u8>, FileNode)>,
}

/// Takes away what was made.
struct Undo<'a> {
    root: &'a OwnedFd,
    made: Vec<(Vec<u8>, bool)>,
}

impl Extraction {
    /// Looks at everything first: fails where something exists already, and once `is_interrupted` says so.
    pub fn plan(
        state: &TreeAt,
        paths: &[Vec<u8>],
        directory: &Path,
        context: &mut Context,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Extraction, Failure> {
        let _bar = bar("listing");
        let mut entries = Vec::new();
        let mut known: HashSet<Vec<u8>> = HashSet::new();
        for path in paths {
            for parent in parents(path) {
                if known.insert(parent.to_vec()) {
                    entries.push((parent.to_vec(), state.stat(parent, context)?));
                }
            }
            state.walk(path, usize::MAX, context, &mut |path, node| {
                if is_interrupted() {
                    return Err(interrupted());
                }
                if !path.is_empty() && known.insert(path.to_vec()) {
                    entries.push((path.to_vec(), node.clone()));
                }
                Ok(())
            })?;
        }
        let plan = Extraction {
            directory: directory.to_owned(),
            entries,
        };
        plan.check()?;
        Ok(plan)
    }

    /// The paths that will be made, as they are in the commit.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(path, _)| path.as_slice())
    }

    fn check(&self) -> Result<(), Failure> {
        let root = match open_root(&self.directory) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(|e| self.failed(b"", e))?,
        };
        let mut taken = Vec::new();
        for (path, node) in &self.entries {
            match kind_at(&root, path) {
                None => {}
                Some(FileType::Directory) if node.kind == FileKind::Directory => {}
                Some(_) => taken.push(shown(path)),
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        let more = taken.len().saturating_sub(3);
        let mut shown = taken[..taken.len() - more].join(", ");
        if more > 0 {
            shown.push_str(&format!(" and {more} more"));
        }
        let why = format!("{} already has {shown}", self.directory.display());
        Err(Failure::new(WHAT, why).hint("nothing was written; use another directory: --to DIR"))
    }

    /// Writes everything; gives what could not be kept of it (owners, devices, attributes).
    /// Once `is_interrupted` says so, takes away what it wrote.
    pub fn write(
        &self,
        state: &TreeAt,
        context: &mut Context,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, Failure> {
        std::fs::create_dir_all(&self.directory)
            .map_err(|e| Failure::new(WHAT, format!("{}: {e}", self.directory.display())))?;
        let root = open_root(&self.directory).map_err(|e| self.failed(b"", e))?;
        // Permissions are those of the commit, whatever this process's mask.
        rustix::process::umask(Mode::empty());
        let mut undo = Undo {
            root: &root,
            made: Vec::new(),
        };
        let written = self.write_all(state, context, &mut undo, is_interrupted);
        if written.is_err() {
            undo.take_away();
        }
        written
    }

    fn write_all(
        &self,
        state: &TreeAt,
        context: &mut Context,
        undo: &mut Undo<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, Failure> {
        let root = undo.root;
        let mut lost = Vec::new();
        let mut links: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut directories = Vec::new();
        let mut bar = bar("writing");
        for (at, (path, node)) in self.entries.iter().enumerate() {
            bar.set(at as u64, self.entries.len() as u64);
            if is_interrupted() {
                return Err(interrupted());
            }
            let first = links.get(&node.inode).filter(|_| node.nlink > 1);
            if let (Some(first), false) = (first, node.kind == FileKind::Directory) {
                link(root, first, path).map_err(|e| self.failed(path, e))?;
                undo.made.push((path.clone(), false));
                continue;
            }
            let (dir, name) = self.parent(root, path)?;
            match node.kind {
                FileKind::Directory => {
                    match rustix::fs::mkdirat(&dir, name, Mode::RWXU) {
                        Ok(()) => {
                            undo.made.push((path.clone(), true));
                            directories.push((path, node));
                        }
                        // It was there before, and stays as it is.
                        Err(Errno::EXIST) => {}
                        Err(e) => return Err(self.failed(path, e)),
                    }
                    continue;
                }
                FileKind::File => {
                    undo.made.push((path.clone(), false));
                    let file = create(&dir, name)
                        .inspect_err(|_| drop(undo.made.pop()))
                        .map_err(|e| self.failed(path, e))?;
                    if node.size > 0 {
                        self.fill(&file, path, state, context, is_interrupted)?;
                    }
                    self.dress_file(&file, path, node, &mut lost)?;
                }
                _ if !self.make_special(&dir, name, path, node, &mut lost)? => continue,
                _ => undo.made.push((path.clone(), false)),
            }
            links.insert(node.inode, path.clone());
        }
        for (path, node) in directories.into_iter().rev() {
            let dir = open_dir(root, path).map_err(|e| self.failed(path, e))?;
            self.dress_file(&dir, path, node, &mut lost)?;
        }
        Ok(lost)
    }

    fn fill(
        &self,
        file: &OwnedFd,
        path: &[u8],
        state: &TreeAt,
        context: &mut Context,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let size = state.read(path, context, &mut |offset, bytes| {
            if is_interrupted() {
                return Err(interrupted());
            }
            let mut rest = bytes;
            let mut at = offset;
            while !rest.is_empty() {
                let n = rustix::io::pwrite(file, rest, at).map_err(|e| self.failed(path, e))?;
                rest = &rest[n..];
                at += n as u64;
            }
            Ok(())
        })?;
        rustix::fs::ftruncate(file, size).map_err(|e| self.failed(path, e))
    }

    /// Links, pipes, sockets, devices; false where this user may not make it.
    fn make_special(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        path: &[u8],
        node: &FileNode,
        lost: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let made = match (node.kind, &node.target) {
            (FileKind::Symlink, Some(target)) => {
                rustix::fs::symlinkat(OsStr::from_bytes(&target.0), dir, name)
            }
            (kind, _) => {
                let perm = Mode::from_raw_mode(node.perm & 0o777);
                rustix::fs::mknodat(dir, name, file_type(kind), perm, u64::from(node.rdev))
            }
        };
        match made {
            Ok(()) => {}
            Err(Errno::PERM) if node.kind != FileKind::Symlink => {
                lost.push(format!("{}: only root may create a device", shown(path)));
                return Ok(false);
            }
            Err(e) => return Err(self.failed(path, e)),
        }
        let (uid, gid) = owner(node);
        if rustix::process::geteuid().is_root() {
            let chown =
                rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
            chown.map_err(|e| self.failed(path, e))?;
        }
        let times = times(node);
        rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| self.failed(path, e))?;
        Ok(true)
    }

    /// Owner, extended attributes, permissions, time: in this order, as each may change the next.
    fn dress_file(
        &self,
        file: &OwnedFd,
        path: &[u8],
        node: &FileNode,
        lost: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = owner(node);
            rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(|e| self.failed(path, e))?;
        }
        for (name, value) in &node.xattrs {
            let name = OsStr::from_bytes(&name.0);
            if let Err(e) = rustix::fs::fsetxattr(file, name, &value.0, XattrFlags::empty()) {
                lost.push(format!(
                    "{}: attribute {}: {e}",
                    shown(path),
                    shown(name.as_bytes())
                ));
            }
        }
        rustix::fs::fchmod(file, Mode::from_raw_mode(node.perm))
            .and_then(|()| rustix::fs::futimens(file, &times(node)))
            .map_err(|e| self.failed(path, e))
    }

    /// The directory of a path, opened step by step, and the name in it.
    fn parent<'p>(&self, root: &OwnedFd, path: &'p [u8]) -> Result<(OwnedFd, &'p OsStr), Failure> {
        let (dir, name) = split(path);
        let dir = open_dir(root, dir).map_err(|e| self.failed(path, e))?;
        Ok((dir, OsStr::from_bytes(name)))
    }

    fn failed(&self, path: &[u8], error: Errno) -> Failure {
        let place = self.directory.join(OsStr::from_bytes(path));
        let why = std::io::Error::from(error);
        let failure = Failure::new(WHAT, format!("{}: {why}", place.display()));
        match error {
            Errno::EXIST | Errno::LOOP | Errno::NOTDIR => {
                failure.hint("another process writes there; use another directory: --to DIR")
            }
            Errno::NOSPC | Errno::DQUOT => failure.hint("free space on that disk, then try again"),
            _ => failure.hint("use a writable directory: --to DIR"),
        }
    }
}

impl Undo<'_> {
    fn take_away(&self) {
        let mut bar = bar("removing");
        for (at, (path, is_dir)) in self.made.iter().rev().enumerate() {
            bar.set(at as u64, self.made.len() as u64);
            let (dir, name) = split(path);
            let flags = if *is_dir {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            if let Ok(dir) = open_dir(self.root, dir) {
                // Where somebody else put something in it, it stays.
                let _ = rustix::fs::unlinkat(&dir, OsStr::from_bytes(name), flags);
            }
        }
    }
}

/// The directories above a path, from the root on.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(at, _)| &path[..at])
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn interrupted() -> Failure {
    Failure {
        exit: INTERRUPTED,
        ..Failure::new(WHAT, "it was interrupted; nothing was kept of it").kind(CANCELLED)
    }
}

fn open_root(directory: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, directory, DIRECTORY, Mode::empty())
}

/// A directory below `root`, no step of which is a symbolic link.
fn open_dir(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut dir = rustix::fs::openat(root, c".", DIRECTORY, Mode::empty())?;
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        let name = OsStr::from_bytes(name);
        dir = rustix::fs::openat(&dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(dir)
}

fn create(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
}

fn link(root: &OwnedFd, first: &[u8], path: &[u8]) -> rustix::io::Result<()> {
    let ((from, old), (to, new)) = (split(first), split(path));
    rustix::fs::linkat(
        open_dir(root, from)?,
        OsStr::from_bytes(old),
        open_dir(root, to)?,
        OsStr::from_bytes(new),
        AtFlags::empty(),
    )
}

/// What is at a path, links not followed; a parent that is no directory counts as something.
fn kind_at(root: &OwnedFd, path: &[u8]) -> Option<FileType> {
    let (dir, name) = split(path);
    let dir = match open_dir(root, dir) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return None,
        Err(_) => return Some(FileType::Unknown),
    };
    let stat = rustix::fs::statat(&dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
    match stat {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => None,
        Err(_) => Some(FileType::Unknown),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

fn owner(node: &FileNode) -> (Uid, Gid) {
    (Uid::from_raw(node.uid), Gid::from_raw(node.gid))
}

fn times(node: &FileNode) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: node.mtime.sec,
            tv_nsec: i64::from(node.mtime.nsec),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_named_from_the_root_on() {
        let found: Vec<&[u8]> = parents(b"a/b/c").collect();
        assert_eq!(found, [&b"a"[..], b"a/b"]);
        assert_eq!(parents(b"a").count(), 0);
    }

    #[test]
    fn no_step_follows_a_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let root = open_root(dir.path()).unwrap();
        assert!(open_dir(&root, b"real").is_ok());
        assert!(open_dir(&root, b"link").is_err());
        assert_eq!(kind_at(&root, b"link"), Some(FileType::Symlink));
        assert_eq!(kind_at(&root, b"link/x"), Some(FileType::Unknown));
        assert_eq!(kind_at(&root, b"none/x"), None);
    }
}
