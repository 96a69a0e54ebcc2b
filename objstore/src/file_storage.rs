//! [`Storage`] over files below a directory. Files are made with mode 0600, directories with 0700.
//!
//! Appends go by `pwritev` at the length that this process knows, so a segment that failed to grow is
//! cut back to what it was.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags};

use crate::Frozen;
use crate::atomic_file;
use crate::io::{Segment, Storage};
use crate::reserve::{Reserve, is_full, with_reserve};

/// Most slices that one `pwritev` takes (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// Locks that keep replacements of one name apart; names share them by hash.
const REPLACE_LOCKS: usize = 16;

/// Where a hole is tried: beyond the end of every segment, where there is nothing to lose.
const PROBE_OFFSET: u64 = 1 << 40;

/// Where workspaces are mounted. What is below must never be asked for anything: whoever serves the
/// mount may be the one who asks.
const MOUNT_DIR: &str = "mnt";

/// Files below a directory.
#[derive(Debug)]
pub struct FileStorage {
    root: PathBuf,
    replace_locks: [Mutex<()>; REPLACE_LOCKS],
    reserve: Reserve,
}

impl FileStorage {
    /// Uses `root`, which is made (mode 0700) where it does not exist.
    pub fn open(root: &Path) -> crate::Result<FileStorage> {
        let made = make_dirs(root);
        made.map_err(|source| crate::Error::io(root.to_string_lossy(), source))?;
        Ok(FileStorage {
            root: root.to_path_buf(),
            replace_locks: Default::default(),
            reserve: Reserve::of(root),
        })
    }

    /// The directory that the storage lives in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        debug_assert!(is_plain(path), "{path}");
        self.root.join(path)
    }

    fn open_segment(&self, path: &str, create: bool) -> io::Result<Arc<dyn Segment>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(create)
            .mode(0o600);
        let file = options.open(self.path(path))?;
        let len = file.metadata()?.len();
        Ok(Arc::new(FileSegment {
            file,
            append: Mutex::new(()),
            len: AtomicU64::new(len),
        }))
    }

    fn replace_lock(&self, path: &str) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(path);
        &self.replace_locks[hash as usize % REPLACE_LOCKS]
    }
}

fn is_plain(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| part != "." && part != "..")
}

fn make_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    make_dirs(parent)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    atomic_file::sync_dir(parent)
}

/// Bytes allocated for everything below `dir`, and below those of its directories that `enter` names.
fn disk_usage(dir: &Path, enter: &dyn Fn(&OsStr) -> bool) -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // The type is that of the directory's entry: nothing is asked of what is mounted there.
        let kind = entry.file_type()?;
        if kind.is_dir() && enter(&entry.file_name()) {
            bytes += disk_usage(&entry.path(), &|_| true)?;
        } else if kind.is_file() {
            // What vanishes meanwhile takes nothing.
            bytes += entry
                .metadata()
                .map_or(0, |meta| meta.blocks() * BLOCK_BYTES);
        }
    }
    Ok(bytes)
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn ok_if_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Storage for FileStorage {
    fn create(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        self.open_segment(path, true)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        self.open_segment(path, false)
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        none_if_missing(fs::read(self.path(path)))
    }

    fn read_frozen(&self, path: &str) -> io::Result<Option<Frozen>> {
        none_if_missing(File::open(self.path(path)).and_then(Frozen::of_file))
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let _alone = self.replace_lock(path).lock();
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.path(dir);
        with_reserve(self, is_full, || {
            atomic_file::replace_file(&dir, name, bytes)
        })
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        ok_if_missing(fs::remove_file(self.path(path)))
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        ok_if_missing(fs::remove_dir_all(self.path(path)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // Nothing of the store has a name that is not UTF-8.
            if let Ok(name) = entry?.file_name().into_string()
                && !atomic_file::is_tmp_name(&name)
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let dir = self.path(dir);
        with_reserve(self, is_full, || make_dirs(&dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        atomic_file::sync_dir(&self.path(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn give_reserve(&self) -> bool {
        self.reserve.give()
    }

    fn reserve_bytes(&self) -> u64 {
        self.reserve.bytes()
    }

    fn is_reserve_in_use(&self) -> bool {
        self.reserve.is_in_use()
    }

    fn make_room(&self) {
        self.reserve.make_room();
    }

    fn restore_reserve(&self) -> io::Result<bool> {
        self.reserve.restore()
    }

    fn used_bytes(&self) -> io::Result<u64> {
        let all = disk_usage(&self.root, &|name| name != MOUNT_DIR)?;
        Ok(all.saturating_sub(self.reserve.disk_bytes()))
    }

    fn age(&self, path: &str) -> io::Result<Duration> {
        let changed = fs::metadata(self.path(path))?.modified()?;
        Ok(SystemTime::now()
            .duration_since(changed)
            .unwrap_or_default())
    }
}

/// One open file.
#[derive(Debug)]
struct FileSegment {
    file: File,
    append: Mutex<()>,
    /// Length that is visible; only changed under `append`.
    len: AtomicU64,
}

impl FileSegment {
    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> io::Result<u64> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        let mut end = offset;
        // Empty slices would look like a write that makes no progress.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(SLICES_MAX)];
            let written = match rustix::io::pwritev(&self.file, batch, end) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                written => written?,
            };
            IoSlice::advance_slices(&mut rest, written);
            end += written as u64;
        }
        Ok(end)
    }

    fn punch(&self, range: Range<u64>) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = range.end.saturating_sub(range.start);
        loop {
            match fallocate(&self.file, flags, range.start, len) {
                Err(Errno::INTR) => {}
                punched => return punched,
            }
        }
    }
}

impl Segment for FileSegment {
    fn append(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let _alone = self.append.lock();
        let offset = self.len.load(Ordering::Acquire);
        match self.write_parts(parts, offset) {
            Ok(end) => {
                self.len.store(end, Ordering::Release);
                Ok(offset)
            }
            Err(error) => {
                // Where even this fails the next append overwrites the leftovers.
                let _ = self.file.set_len(offset);
                Err(error)
            }
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn try_read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        if offset.saturating_add(buf.len() as u64) > self.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let wanted = buf.len();
        let mut slices = [IoSliceMut::new(buf)];
        match rustix::io::preadv2(&self.file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == wanted),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.read_at(offset, buf).map(|()| true)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let _alone = self.append.lock();
        self.file.set_len(len)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.saturating_add(bytes.len() as u64) > self.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn can_punch(&self) -> bool {
        self.punch(PROBE_OFFSET..PROBE_OFFSET + 4096).is_ok()
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        if range.end > self.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.punch(range).map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::NOSYS => ErrorKind::Unsupported.into(),
            other => other.into(),
        })
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        let end = self.len();
        let mut holes = Vec::new();
        let mut at = 0;
        while at < end {
            let start = match seek(&self.file, SeekFrom::Hole(at)) {
                Ok(start) if start < end => start,
                // What cannot tell has no holes; and there is one behind the end of every file.
                Ok(_) | Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            };
            at = match seek(&self.file, SeekFrom::Data(start)) {
                Ok(data) => data.min(end),
                Err(Errno::NXIO) => end,
                Err(error) => return Err(error.into()),
            };
            holes.push(start..at);
        }
        Ok(holes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
