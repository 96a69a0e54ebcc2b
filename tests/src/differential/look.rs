//! What there is to see of a directory and of open files, in a form that two file systems share.
//!
//! Not compared, for each file system has its own: inode numbers, sizes of directories, allocated
//! blocks, access times. Compared by meaning: of the times that a clock gave, whether they changed; of
//! holes, that the mount has no data where the native file system has a hole.

use super::Octal;
use super::perform::{Side, list};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

const PAGE: u64 = 4096;

/// Times before this were set by a call; a clock gave the others.
const CLOCK_BEGINS: i64 = 1_500_000_000;

/// Contents up to this are read whole; of larger (sparse) files what their holes leave.
const READ_BYTES_MAX: u64 = 1 << 20;

/// What is seen of one inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Type and permissions.
    pub mode: Octal,
    /// Names.
    pub links: u64,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Device that it stands for.
    pub device: u64,
    /// Bytes, but for directories.
    pub size: u64,
    /// Modification time, where a call has set it.
    pub set: Option<(i64, i64)>,
    /// Whether modification and change time differ from the last look.
    pub moved: (bool, bool),
    /// Whether its number is new. The native file system gives numbers of removed files again.
    pub fresh: bool,
}

impl Seen {
    /// Without set-group-id of a file without group execution, which only stands for locking. Who loses it is
    /// `one-group` of `docs/semantics.md`, and compared by `fs_permissions`.
    pub fn but_for_locking(&self) -> Seen {
        let mode = self.mode.0;
        let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
        let locking = if is_file && mode & 0o010 == 0 {
            0o2000
        } else {
            0
        };
        Seen {
            mode: Octal(mode & !locking),
            ..self.clone()
        }
    }
}

/// Times of an inode at the last look.
type Times = ((i64, i64), (i64, i64));

/// The last look at a side.
#[derive(Default)]
pub struct Looker {
    times: HashMap<u64, Times>,
}

impl Looker {
    /// Everything that has a name, by path, then open files by `slot N`.
    pub fn look(&mut self, side: &Side) -> BTreeMap<Vec<u8>, Seen> {
        side.enter();
        let mut found = BTreeMap::new();
        let mut stats = Vec::new();
        walk(b".", &mut stats);
        for (slot, file) in side.slots.iter().enumerate() {
            if let Some(file) = file {
                let stat = rustix::fs::fstat(file).unwrap();
                stats.push((format!("slot {slot}").into_bytes(), stat));
            }
        }
        let mut now = HashMap::new();
        for (path, stat) in stats {
            found.insert(path, self.seen(&stat));
            now.insert(stat.st_ino, times(&stat));
        }
        self.times = now;
        found
    }

    fn seen(&self, stat: &Stat) -> Seen {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let (now, before) = (times(stat), self.times.get(&stat.st_ino));
        // Writing to a fifo moves its times on a native file system alone.
        let is_fifo = kind == FileType::Fifo;
        let set = (now.0.0 < CLOCK_BEGINS && !is_fifo).then_some(now.0);
        Seen {
            mode: Octal(stat.st_mode),
            links: stat.st_nlink,
            owner: (stat.st_uid, stat.st_gid),
            device: stat.st_rdev,
            size: match kind {
                FileType::Directory => 0,
                _ => stat.st_size as u64,
            },
            set,
            fresh: before.is_none(),
            moved: (
                !is_fifo && before.is_none_or(|t| t.0 != now.0),
                !is_fifo && before.is_none_or(|t| t.1 != now.1),
            ),
        }
    }
}

fn times(stat: &Stat) -> Times {
    (
        (stat.st_mtime, stat.st_mtime_nsec as i64),
        (stat.st_ctime, stat.st_ctime_nsec as i64),
    )
}

/// Every path below the working directory that may be looked at: who is not root may not everywhere.
fn walk(path: &[u8], found: &mut Vec<(Vec<u8>, Stat)>) {
    let Ok(stat) = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) else {
        return;
    };
    found.push((path.to_vec(), stat));
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        for (name, _) in list(path).unwrap_or_default() {
            walk(&[path, b"/", &name].concat(), found);
        }
    }
}

/// What is in a file, and where.
pub struct Content {
    /// Hash of the bytes, or a link's target.
    pub hash: String,
    /// Pages that hold data, by number.
    pub pages: Vec<u64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The contents of everything that has a name or is open for reading.
pub fn contents(side: &Side) -> BTreeMap<Vec<u8>, Content> {
    side.enter();
    let mut paths = Vec::new();
    walk(b".", &mut paths);
    let named = paths.into_iter().map(|(path, stat)| {
        let content = content(&path, &stat);
        (path, content)
    });
    let mut all: BTreeMap<_, _> = named.collect();
    for (slot, file) in side.slots.iter().enumerate() {
        let Some(file) = file else { continue };
        let stat = rustix::fs::fstat(file).unwrap();
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        let readable = !flags.intersects(OFlags::WRONLY | OFlags::DIRECT);
        if readable && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let (hash, pages) = bytes(file);
            let xattrs = BTreeMap::new();
            let content = Content {
                hash,
                pages,
                xattrs,
            };
            all.insert(format!("slot {slot}").into_bytes(), content);
        }
    }
    all
}

fn content(path: &[u8], stat: &Stat) -> Content {
    let (hash, pages) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(file) => bytes(&file),
                Err(errno) => (errno.to_string(), Vec::new()),
            }
        }
        FileType::Symlink => {
            let target = rustix::fs::readlink(path, Vec::new()).unwrap();
            (format!("{target:?}"), Vec::new())
        }
        _ => (String::new(), Vec::new()),
    };
    Content {
        hash,
        pages,
        xattrs: xattrs(path),
    }
}

/// Hash of all bytes, zeros between pieces of data left out where they are many, and the pages with data.
fn bytes(file: &OwnedFd) -> (String, Vec<u64>) {
    let size = rustix::fs::fstat(file).unwrap().st_size as u64;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes());
    let pages = pages(file, size);
    let read: Vec<u64> = match size <= READ_BYTES_MAX {
        true => (0..size.div_ceil(PAGE)).collect(),
        false => pages.clone(),
    };
    let mut buffer = [0; PAGE as usize];
    for page in read {
        let mut count = 0;
        while let Ok(more @ 1..) =
            rustix::io::pread(file, &mut buffer[count..], page * PAGE + count as u64)
        {
            count += more;
        }
        // What is zeros may be a hole on one side.
        if buffer[..count].iter().any(|byte| *byte != 0) {
            hasher.update(&page.to_le_bytes());
            hasher.update(&buffer[..count]);
        }
    }
    (hasher.finalize().to_string(), pages)
}

fn pages(file: &OwnedFd, size: u64) -> Vec<u64> {
    let position = rustix::fs::tell(file).unwrap();
    let mut pages = Vec::new();
    let mut at = 0;
    // ENXIO: no data behind `at`.
    while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
        assert!(
            start < at && at <= size,
            "data from {start} to {at} of {size}"
        );
        pages.extend(start / PAGE..at.div_ceil(PAGE));
    }
    rustix::fs::seek(file, SeekFrom::Start(position)).unwrap();
    pages.dedup();
    pages
}

fn xattrs(path: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut buffer = vec![0; 66_000];
    let Ok(count) = rustix::fs::llistxattr(path, &mut buffer[..]) else {
        return BTreeMap::new();
    };
    let names: Vec<Vec<u8>> = buffer[..count]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let value = |name: Vec<u8>| {
        let mut buffer = vec![0; 66_000];
        let value = match rustix::fs::lgetxattr(path, &name, &mut buffer[..]) {
            Ok(count) => buffer[..count].to_vec(),
            Err(errno) => errno.to_string().into_bytes(),
        };
        (name, value)
    };
    names.into_iter().map(value).collect()
}
