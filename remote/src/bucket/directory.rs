//! A remote in a directory, which several machines may share (NFS): an object is a file of its name.
//!
//! **Whole or not at all**: a file is written beside its place under a name that begins with a dot, synced, and
//! linked or renamed to its place; then the directory is synced. **Absent**: link(2) makes the name or fails, in one
//! step of the file system's. **Matches**: whoever replaces a version holds the lock (flock(2) on the file `.lock` in
//! the remote, which the kernel releases for the dead, and NFS passes on to its server), compares, and renames. Who
//! creates needs no lock, since creating and replacing never succeed on the same state.
//!
//! Other users may write to the directory. So every name is resolved below it, without symbolic links (openat2), and
//! only regular files are read.

use super::{Bucket, Condition, Etag, Got, Listed, Put, check_name, check_prefix, etag_of};
use crate::error::{Error, Result};
use crate::limits::{LISTED_MAX, REPLACED_BYTES_MAX};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LOCK_FILE: &str = ".lock";
/// How long a replacement waits for the lock: one lasts as long as a small file takes to be written.
const LOCK_WAIT: Duration = Duration::from_secs(20);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Age at which a file that was never put in its place belongs to nobody any more.
const ABANDONED_SEC: i64 = 86_400;
/// Deepest nesting that a listing looks at; no name of the layout has so many parts.
const DEPTH_MAX: usize = 8;

const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// A remote in a directory.
#[derive(Debug)]
pub struct DirectoryBucket {
    root: OwnedFd,
    path: PathBuf,
    files: AtomicU64,
}

/// A directory of the remote, and the last part of the name of an object in it.
struct Place<'a> {
    dir: OwnedFd,
    file: &'a str,
}

impl DirectoryBucket {
    /// Opens the remote in a directory.
    pub fn open(path: &Path) -> Result<DirectoryBucket> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        let root = root.map_err(|e| Error::io(path.to_string_lossy())(e.into()))?;
        Ok(DirectoryBucket {
            root,
            path: path.to_owned(),
            files: AtomicU64::new(0),
        })
    }

    /// As [`DirectoryBucket::open`]; makes the directory, but not those above it.
    pub fn create(path: &Path) -> Result<DirectoryBucket> {
        match std::fs::create_dir(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io(path.to_string_lossy())(e))
            }
            _ => DirectoryBucket::open(path),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error where the path does not lead to the directory that is open: it was moved, or is not mounted any more.
    fn check_place(&self) -> Result<()> {
        let failed = |e: Errno| Error::io(self.path.to_string_lossy())(e.into());
        let there = rustix::fs::stat(&self.path).map_err(failed)?;
        let open = rustix::fs::fstat(&self.root).map_err(failed)?;
        match (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino) {
            true => Ok(()),
            false => Err(failed(Errno::STALE)),
        }
    }

    /// Opens something below the root; `None` where it is not there.
    fn below(&self, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
        self.check_place()?;
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), BELOW) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::io(path)(e.into())),
        }
    }

    /// The file of an object, and its length.
    fn file(&self, name: &str) -> Result<Option<(File, u64)>> {
        check_name(name)?;
        let Some(fd) = self.below(name, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let file = File::from(fd);
        let meta = file.metadata().map_err(Error::io(name))?;
        match meta.is_file() {
            true => Ok(Some((file, meta.len()))),
            false => Err(Error::Damaged {
                name: name.to_owned(),
                what: "it is not a file",
            }),
        }
    }

    /// The place of an object, whose directories are made.
    fn place<'a>(&self, name: &'a str) -> Result<Place<'a>> {
        check_name(name)?;
        let (dirs, file) = name.rsplit_once('/').unwrap_or(("", name));
        let mut dir = self.dir("")?;
        let mut so_far = String::new();
        for part in dirs.split('/').filter(|part| !part.is_empty()) {
            so_far.push_str(part);
            match rustix::fs::mkdirat(&dir, part, Mode::from_bits_truncate(0o777)) {
                Ok(()) => sync(&dir, &so_far)?,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(Error::io(so_far)(e.into())),
            }
            dir = self.dir(&so_far)?;
            so_far.push('/');
        }
        Ok(Place { dir, file })
    }

    fn dir(&self, path: &str) -> Result<OwnedFd> {
        let missing = || Error::Missing {
            name: path.to_owned(),
        };
        let dir = self.below(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        dir.ok_or_else(missing)
    }

    /// Writes bytes to a new file in a directory, durably but for its name, which it returns.
    fn write_beside(&self, name: &str, place: &Place<'_>, bytes: &[u8]) -> Result<String> {
        let count = self.files.fetch_add(1, Ordering::Relaxed);
        let chance = crate::chance::Chance::fresh().word();
        let beside = format!(".put-{chance:016x}-{count}");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let fd = rustix::fs::openat(&place.dir, &beside, flags, mode);
        let mut file = File::from(fd.map_err(|e| Error::io(name)(e.into()))?);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(e) = written {
            let _ = rustix::fs::unlinkat(&place.dir, &beside, AtFlags::empty());
            return Err(Error::io(name)(e));
        }
        Ok(beside)
    }

    /// Puts a file that is beside its place there, where no object of this name exists.
    fn link(&self, name: &str, place: &Place<'_>, beside: &str) -> Result<bool> {
        let to = (&place.dir, place.file);
        let linked = rustix::fs::linkat(&place.dir, beside, to.0, to.1, AtFlags::empty());
        let _ = rustix::fs::unlinkat(&place.dir, beside, AtFlags::empty());
        match linked {
            Ok(()) => sync(&place.dir, name).map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Err(Error::Unsupported {
                name: self.path.to_string_lossy().into_owned(),
                why: "its file system has no hard links, by which an object is put only once"
                    .into(),
            }),
            Err(e) => Err(Error::io(name)(e.into())),
        }
    }

    fn rename(name: &str, place: &Place<'_>, beside: &str) -> Result<()> {
        let renamed = rustix::fs::renameat(&place.dir, beside, &place.dir, place.file);
        if let Err(e) = renamed {
            let _ = rustix::fs::unlinkat(&place.dir, beside, AtFlags::empty());
            return Err(Error::io(name)(e.into()));
        }
        sync(&place.dir, name)
    }

    /// Replaces one version of an object.
    fn replace(&self, name: &str, bytes: &[u8], etag: &Etag) -> Result<bool> {
        let place = self.place(name)?;
        let _lock = self.lock()?;
        let now = self.get(name, REPLACED_BYTES_MAX as u64)?;
        if now.is_none_or(|now| now.etag != *etag) {
            return Ok(false);
        }
        let beside = self.write_beside(name, &place, bytes)?;
        DirectoryBucket::rename(name, &place, &beside)?;
        Ok(true)
    }

    /// The lock of whoever replaces; it ends with the descriptor.
    fn lock(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let opened = rustix::fs::openat2(&self.root, LOCK_FILE, flags, mode, BELOW);
        let file = opened.map_err(|e| Error::io(LOCK_FILE)(e.into()))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Transient {
                        name: LOCK_FILE.into(),
                        why: "another machine holds it".into(),
                    });
                }
                Err(e) => return Err(Error::io(LOCK_FILE)(e.into())),
            }
        }
    }

    fn list_dir(&self, path: &str, depth: usize, out: &mut Vec<Listed>) -> Result<()> {
        let Some(fd) = self.below(path, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(());
        };
        let entries = Dir::read_from(&fd).map_err(|e| Error::io(path)(e.into()))?;
        for entry in entries {
            let entry = entry.map_err(|e| Error::io(path)(e.into()))?;
            let Ok(part) = entry.file_name().to_str() else {
                continue;
            };
            if part.starts_with('.') {
                remove_abandoned(&fd, part);
                continue;
            }
            let name = if path.is_empty() {
                part.to_owned()
            } else {
                format!("{path}/{part}")
            };
            let Ok(stat) = rustix::fs::statat(&fd, part, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth > 0 => self.list_dir(&name, depth - 1, out)?,
                FileType::RegularFile if out.len() < LISTED_MAX && check_name(&name).is_ok() => {
                    out.push(Listed {
                        name,
                        bytes: stat.st_size as u64,
                        put_at: stat.st_mtime,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Bucket for DirectoryBucket {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>> {
        let Some((file, bytes)) = self.file(name)? else {
            return Ok(None);
        };
        let too_large = |bytes| Error::TooLarge {
            name: name.to_owned(),
            bytes,
            max,
        };
        if bytes > max {
            return Err(too_large(bytes));
        }
        let mut all = Vec::with_capacity(bytes as usize);
        // It may grow while it is read.
        let read = file.take(max.saturating_add(1)).read_to_end(&mut all);
        read.map_err(Error::io(name))?;
        if all.len() as u64 > max {
            return Err(too_large(all.len() as u64));
        }
        let etag = etag_of(&all);
        Ok(Some(Got { bytes: all, etag }))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let Some((file, bytes)) = self.file(name)? else {
            return Ok(None);
        };
        if range.start > range.end || range.end > bytes {
            return Err(Error::Damaged {
                name: name.to_owned(),
                what: "it is shorter than it must be",
            });
        }
        let mut part = vec![0; (range.end - range.start) as usize];
        let read = file.read_exact_at(&mut part, range.start);
        read.map_err(Error::io(name))?;
        Ok(Some(part))
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        let done = match condition {
            Condition::Matches(etag) => self.replace(name, bytes, etag)?,
            Condition::Absent => {
                let place = self.place(name)?;
                let beside = self.write_beside(name, &place, bytes)?;
                self.link(name, &place, &beside)?
            }
            Condition::Always => {
                let place = self.place(name)?;
                let beside = self.write_beside(name, &place, bytes)?;
                DirectoryBucket::rename(name, &place, &beside)?;
                true
            }
        };
        Ok(match done {
            true => Put::Done(etag_of(bytes)),
            false => Put::Refused,
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let (dir, file) = name.rsplit_once('/').unwrap_or(("", name));
        let Some(dir) = self.below(dir, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(());
        };
        match rustix::fs::unlinkat(&dir, file, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io(name)(e.into())),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        check_prefix(prefix)?;
        let mut out = Vec::new();
        self.list_dir(prefix.trim_end_matches('/'), DEPTH_MAX, &mut out)?;
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }
}

/// Brings the names in a directory to stable storage, where its file system knows such a thing.
fn sync(dir: &OwnedFd, name: &str) -> Result<()> {
    match rustix::fs::fsync(dir) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(e) => Err(Error::io(name)(e.into())),
    }
}

/// Removes a file that was written and never put in its place, once it is old.
fn remove_abandoned(dir: &OwnedFd, name: &str) {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let old = stat.is_ok_and(|s| now.saturating_sub(s.st_mtime) > ABANDONED_SEC);
    if old && name.starts_with(".put-") {
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
}
