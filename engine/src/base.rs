//! The base: the project directory that a workspace was started from. Only read, never written.
//!
//! It is opened once; everything below is reached from that descriptor (so a mount may cover the
//! path) without following a symbolic link. Bytes of a file count only while its [`Stamp`] is the one
//! that was shown; otherwise [`Base`] says [`ReadOutcome::Changed`] and the caller takes the file anew.

mod file;
mod whereabouts;

pub use file::{BaseDir, BaseFile};
pub(crate) use whereabouts::BaseIdent;

use crate::error::{Error, Result};
use crate::types::{Kind, Time};
use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Open files that are kept for the next read.
const OPEN_FILES_MAX: usize = 32;
/// Longest path given to one system call; deeper directories are opened step by step.
const PATH_BYTES_MAX: usize = 3800;

/// Identity of one version of a base file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub struct Stamp {
    /// Device.
    pub dev: u64,
    /// Inode number in the base's file system.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
}

/// One entry of a base directory.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct BaseEntry {
    /// Name.
    pub name: Vec<u8>,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links in the base's file system.
    pub nlink: u32,
    /// Device number.
    pub rdev: u32,
    /// Version.
    pub stamp: Stamp,
    /// Allocated bytes.
    pub alloc: u64,
    /// Last access.
    pub atime: Time,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// This process may not read it.
    pub unreadable: bool,
}

/// What a read of a base file gave.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The buffer is filled.
    Done,
    /// The disk would have to be waited for.
    WouldBlock,
    /// The file is not (any more) the version that was asked for.
    Changed,
}

/// Opens a directory below what lies over it.
type OpenBeneath = fn(&Path) -> std::io::Result<OwnedFd>;

static OPEN_BENEATH: OnceLock<OpenBeneath> = OnceLock::new();

/// Says, once for the process, how a base is opened over which a dead mount lies: that of a workspace that
/// is mounted over its own project, whose daemon died. Without it such a base cannot be opened. The mount
/// has to stay until the next one takes its place, so that nobody writes to the project meanwhile.
pub fn open_dead_bases_with(open: OpenBeneath) {
    // Whoever comes second brings the same.
    let _ = OPEN_BENEATH.set(open);
}

fn beneath(path: &Path) -> std::io::Result<OwnedFd> {
    match OPEN_BENEATH.get() {
        Some(open) => open(path),
        None => Err(Errno::NOTCONN.into()),
    }
}

/// The opened base directory.
#[derive(Debug)]
pub struct Base {
    path: PathBuf,
    root: OwnedFd,
    dev: u64,
    /// Why the directory cannot be used; then nothing is read, and `root` is of another one.
    missing: Option<String>,
    open: Mutex<VecDeque<(Stamp, Arc<OwnedFd>)>>,
}

fn device(major: u32, minor: u32) -> u64 {
    fs::makedev(major, minor)
}

fn stamp_of(s: &fs::Statx) -> Stamp {
    let time = |t: fs::StatxTimestamp| Time {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    Stamp {
        dev: device(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
        size: s.stx_size,
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
    }
}

const STATX: StatxFlags = StatxFlags::BASIC_STATS;

/// Version of what a name in a directory stands for; an empty name: of the directory.
pub(crate) fn stamp_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stamp, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    fs::statx(dir, name, flags, STATX).map(|s| stamp_of(&s))
}

fn stat_fd(fd: BorrowedFd<'_>) -> Result<Stamp, Errno> {
    fs::statx(fd, "", AtFlags::EMPTY_PATH, STATX).map(|s| stamp_of(&s))
}

impl Base {
    /// Opens the directory at `path`.
    pub fn open(path: &Path) -> Result<Base> {
        let bad = |why: String| Error::BadBase {
            path: path.to_owned(),
            why,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A dead mount may let itself be opened, and tells of itself only where it is asked.
        let opened = fs::open(path, flags, Mode::empty());
        let root = match opened.map(|root| (fs::fstatfs(&root), root)) {
            Err(Errno::NOTCONN) | Ok((Err(Errno::NOTCONN), _)) => beneath(path),
            opened => opened.map(|(_, root)| root).map_err(Into::into),
        };
        let root = root.map_err(|e: std::io::Error| bad(e.to_string()))?;
        Base::at(path, root)
    }

    /// The directory that is open as `root`, and was found at `path`.
    pub fn at(path: &Path, root: OwnedFd) -> Result<Base> {
        let bad = |e: Errno| Error::BadBase {
            path: path.to_owned(),
            why: e.to_string(),
        };
        let dev = stat_fd(root.as_fd()).map_err(bad)?.dev;
        Ok(Base {
            path: path.to_owned(),
            root,
            dev,
            missing: None,
            open: Mutex::default(),
        })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device of the base directory itself.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// The base directory itself.
    pub(crate) fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The base directory itself as an entry with an empty name.
    pub fn root_entry(&self) -> Result<BaseEntry> {
        self.check_there()?;
        self.entry(self.root.as_fd(), b"")
            .map_err(|e| self.error(b"", e))
    }

    fn error(&self, path: &[u8], e: Errno) -> Error {
        let full = self.path.join(std::ffi::OsStr::from_bytes(path));
        Error::Io {
            path: full,
            source: e.into(),
        }
    }

    fn open_below(
        &self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let with_noatime = fs::openat2(dir, path, flags | OFlags::NOATIME, Mode::empty(), resolve);
        match with_noatime {
            Err(Errno::PERM) => fs::openat2(dir, path, flags, Mode::empty(), resolve),
            other => other,
        }
    }

    fn open_dir(&self, dir: &BaseDir) -> Result<OwnedFd, Errno> {
        let path = dir.path();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if path.is_empty() {
            return self.open_below(self.root.as_fd(), b".", flags);
        }
        let mut fd: Option<OwnedFd> = None;
        let mut rest = path.as_slice();
        while !rest.is_empty() {
            let (step, after) = split_path(rest);
            let from = fd.as_ref().map_or(self.root.as_fd(), |f| f.as_fd());
            fd = Some(self.open_below(from, step, flags)?);
            rest = after;
        }
        fd.ok_or(Errno::NOENT)
    }

    /// Entries of a base directory. An entry that vanishes meanwhile is left out; a directory that may not be
    /// read gives [`Error::Access`].
    pub fn read_dir(&self, dir: &BaseDir) -> Result<Vec<BaseEntry>> {
        self.check_there()?;
        let fd = match self.open_dir(dir) {
            Err(Errno::ACCESS | Errno::PERM) => return Err(Error::Access),
            other => other.map_err(|e| self.error(&dir.path(), e))?,
        };
        let mut out = Vec::new();
        let listing = fs::Dir::read_from(&fd).map_err(|e| self.error(&dir.path(), e))?;
        for item in listing {
            let item = item.map_err(|e| self.error(&dir.path(), e))?;
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match self.entry(fd.as_fd(), name) {
                Ok(e) => out.push(e),
                Err(Errno::NOENT) => {}
                Err(Errno::ACCESS | Errno::PERM) => return Err(Error::Access),
                Err(e) => return Err(self.error(&dir.path(), e)),
            }
        }
        Ok(out)
    }

    fn entry(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<BaseEntry, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let s = match fs::statx(dir, name, flags, STATX) {
            // The root of a dead mount: what the kernel knows of it without asking who served it.
            Err(Errno::NOTCONN) => fs::statx(dir, name, flags | AtFlags::STATX_DONT_SYNC, STATX)?,
            looked_at => looked_at?,
        };
        let mode = u32::from(s.stx_mode);
        let kind = Kind::of_mode(mode).ok_or(Errno::INVAL)?;
        let target = match kind {
            Kind::Symlink => fs::readlinkat(dir, name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        };
        Ok(BaseEntry {
            name: name.to_vec(),
            mode,
            uid: s.stx_uid,
            gid: s.stx_gid,
            nlink: s.stx_nlink,
            rdev: device(s.stx_rdev_major, s.stx_rdev_minor) as u32,
            stamp: stamp_of(&s),
            alloc: s.stx_blocks * 512,
            atime: Time {
                sec: s.stx_atime.tv_sec,
                nsec: s.stx_atime.tv_nsec,
            },
            target,
            xattrs: read_xattrs(dir, name),
            unreadable: false,
        })
    }

    /// True where its own directory can be listed.
    pub fn is_readable(&self) -> bool {
        self.read_dir(&BaseDir::root()).is_ok()
    }

    /// Opens a base file if it still is the version asked for; `None` where it is not.
    pub fn open_file(&self, file: &BaseFile) -> Result<Option<Arc<OwnedFd>>> {
        self.check_there()?;
        if let Some(fd) = self.kept(file.stamp()) {
            return Ok(Some(fd));
        }
        let opened = self.open_dir(file.dir()).and_then(|d| {
            self.open_below(d.as_fd(), file.name(), OFlags::RDONLY | OFlags::NONBLOCK)
        });
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                return Ok(None);
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(Error::Access),
            Err(e) => return Err(self.error(&file.path(), e)),
        };
        if stat_fd(fd.as_fd()) != Ok(*file.stamp()) {
            return Ok(None);
        }
        let fd = Arc::new(fd);
        let mut open = self.open.lock();
        open.push_back((*file.stamp(), fd.clone()));
        if open.len() > OPEN_FILES_MAX {
            open.pop_front();
        }
        Ok(Some(fd))
    }

    fn kept(&self, stamp: &Stamp) -> Option<Arc<OwnedFd>> {
        let open = self.open.lock();
        open.iter()
            .rev()
            .find(|(s, _)| s == stamp)
            .map(|(_, fd)| fd.clone())
    }

    fn forget(&self, stamp: &Stamp) {
        self.open.lock().retain(|(s, _)| s != stamp);
    }

    /// Fills `buf` from `offset` of this version of a base file.
    pub fn read(
        &self,
        file: &BaseFile,
        offset: u64,
        buf: &mut [u8],
        may_wait: bool,
    ) -> Result<ReadOutcome> {
        let Some(fd) = self.open_file(file)? else {
            return Ok(ReadOutcome::Changed);
        };
        let mut done = 0;
        while done < buf.len() {
            match read_some(fd.as_fd(), &mut buf[done..], offset + done as u64, may_wait) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !may_wait => return Ok(ReadOutcome::WouldBlock),
                Err(e) => return Err(self.error(&file.path(), e)),
            }
        }
        if done < buf.len() || stat_fd(fd.as_fd()) != Ok(*file.stamp()) {
            self.forget(file.stamp());
            return Ok(ReadOutcome::Changed);
        }
        Ok(ReadOutcome::Done)
    }

    /// The file as it is now, by name; `None` where it is gone or not a regular file.
    pub fn current(&self, file: &BaseFile) -> Result<Option<BaseEntry>> {
        self.check_there()?;
        self.forget(file.stamp());
        let found = self
            .open_dir(file.dir())
            .and_then(|d| self.entry(d.as_fd(), file.name()));
        match found {
            Ok(e) if e.mode & crate::types::mode::FMT == crate::types::mode::REG => Ok(Some(e)),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(self.error(&file.path(), e)),
        }
    }

    /// Ranges of a base file that are not holes.
    pub fn data_ranges(&self, file: &BaseFile) -> Result<Vec<std::ops::Range<u64>>> {
        Ok(self.data_from(file, 0)?.collect())
    }

    /// Ranges of a base file that are not holes, from `offset` on, looked for as far as they are asked for.
    pub fn data_from(
        &self,
        file: &BaseFile,
        offset: u64,
    ) -> Result<impl Iterator<Item = std::ops::Range<u64>> + use<>> {
        let size = file.stamp().size;
        let fd = match file.alloc() >= size {
            true => None,
            false => self.open_file(file)?,
        };
        let mut at = offset;
        Ok(std::iter::from_fn(move || {
            if at >= size {
                return None;
            }
            let (start, end) = match &fd {
                // Without holes, or gone: as data, which reading finds out.
                None => (at, size),
                Some(fd) => {
                    let start = fs::seek(fd, fs::SeekFrom::Data(at)).ok()?;
                    let end = fs::seek(fd, fs::SeekFrom::Hole(start)).unwrap_or(size);
                    (start, end.min(size))
                }
            };
            at = end;
            (start < end).then_some(start..end)
        }))
    }
}

fn read_some(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    offset: u64,
    may_wait: bool,
) -> Result<usize, Errno> {
    if may_wait {
        return rustix::io::pread(fd, buf, offset);
    }
    let mut parts = [std::io::IoSliceMut::new(buf)];
    match rustix::io::preadv2(fd, &mut parts, offset, rustix::io::ReadWriteFlags::NOWAIT) {
        // File systems without NOWAIT: their reads are local all the same.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(Errno::AGAIN),
        other => other,
    }
}

/// First part of a path that one call can take, and the rest.
pub(crate) fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PATH_BYTES_MAX {
        return (path, &[]);
    }
    let cut = path[..PATH_BYTES_MAX]
        .iter()
        .rposition(|&b| b == b'/')
        .unwrap_or(PATH_BYTES_MAX);
    (&path[..cut], &path[cut + 1..])
}

/// Extended attributes of an entry; those that cannot be read are left out.
fn read_xattrs(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(if name.is_empty() { b"." } else { name });
    let mut small = [0u8; 512];
    let names = match fs::llistxattr(path.as_slice(), &mut small) {
        Ok(0) => return Vec::new(),
        Ok(n) => small[..n].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0; 65536];
            match fs::llistxattr(path.as_slice(), &mut large[..]) {
                Ok(n) => large[..n].to_vec(),
                Err(_) => return Vec::new(),
            }
        }
        Err(_) => return Vec::new(),
    };
    let mut out: Vec<(Vec<u8>, Vec<u8>)> = names
        .split(|&b| b == 0)
        .filter(|n| !n.is_empty() && *n != b"security.selinux")
        .filter_map(|n| {
            let mut value = vec![0; 65536];
            let len = fs::lgetxattr(path.as_slice(), n, &mut value[..]).ok()?;
            value.truncate(len);
            Some((n.to_vec(), value))
        })
        .collect();
    out.sort();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(base: &Base, name: &[u8]) -> BaseFile {
        let root = BaseDir::root();
        let e = base
            .read_dir(&root)
            .unwrap()
            .into_iter()
            .find(|e| e.name == name)
            .unwrap();
        BaseFile::new(root, name, e.stamp, e.alloc)
    }

    #[test]
    fn reads_a_version_and_notices_another() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"hello").unwrap();
        let base = Base::open(dir.path()).unwrap();
        let f = file_of(&base, b"a");
        let mut buf = [0; 3];
        assert_eq!(base.read(&f, 1, &mut buf, true).unwrap(), ReadOutcome::Done);
        assert_eq!(&buf, b"ell");
        std::fs::write(dir.path().join("a"), b"other!").unwrap();
        assert_eq!(
            base.read(&f, 1, &mut buf, true).unwrap(),
            ReadOutcome::Changed
        );
        std::fs::remove_file(dir.path().join("a")).unwrap();
        assert!(base.current(&f).unwrap().is_none());
    }

    #[test]
    fn does_not_follow_a_symlink_that_replaces_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(outside.path().join("secret"), b"x").unwrap();
        let base = Base::open(dir.path()).unwrap();
        let d = BaseDir::child(&BaseDir::root(), b"d");
        std::fs::remove_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("d")).unwrap();
        assert!(base.read_dir(&d).is_err());
    }

    #[test]
    fn deep_paths_are_opened_in_steps() {
        let path = vec![b"x".repeat(200); 60].join(&b'/');
        let (first, rest) = split_path(&path);
        assert!(first.len() <= PATH_BYTES_MAX && !rest.is_empty());
        assert_eq!([first, rest].join(&b'/'), path);
    }
}
