//! Databases of AgentFS's overlay: they hold what differs from a directory, which is read beside them.
//!
//! A name is the database's where it has that, else the directory's where no whiteout hides it.
//! Directories that both have show both, unless a whiteout of the directory itself says that the
//! database's is another one. The directory is only read, through one descriptor, and no symbolic link
//! in it is followed.

use crate::check::Shape;
use crate::error::{Error, Result};
use crate::plan::{Plan, Target};
use crate::source::Source;
use objstore::Meta;
use rusqlite::{Connection, OptionalExtension};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name in the root that belongs to agentvfs.
const RESERVED_NAME: &[u8] = b".agentvfs";

/// The directory below a database, and what of it is hidden.
#[derive(Debug)]
pub(crate) struct Overlay {
    path: PathBuf,
    root: OwnedFd,
    whiteouts: HashSet<Vec<u8>>,
    /// Names that were met of files with several links.
    links: RefCell<HashMap<(u64, u64), u32>>,
}

/// A name that shows through.
#[derive(Debug)]
pub(crate) struct BaseNode {
    /// Path in the directory.
    pub path: Vec<u8>,
    /// Attributes, but for links.
    pub meta: Meta,
    /// Length of a file.
    pub size: u64,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Tells files with several links apart.
    pub identity: (u64, u64),
}

/// The base that a database names; `None` for one that is a whole tree.
pub(crate) fn base_of(source: &Source, db: &Connection, shape: &Shape) -> Result<Option<String>> {
    let first = |sql: &str| -> Result<Option<String>> {
        let found = db.query_row(sql, [], |row| row.get(0)).optional();
        found.map_err(|e| source.sql(e))
    };
    if shape.has("fs_overlay_config") {
        let sql = "SELECT value FROM fs_overlay_config WHERE key = 'base_path'";
        if let Some(base) = first(sql)? {
            return Ok(Some(base));
        }
    }
    let rows = [
        ("fs_whiteout", "SELECT path FROM fs_whiteout LIMIT 1"),
        ("fs_origin", "SELECT 'x' FROM fs_origin LIMIT 1"),
    ];
    for (table, sql) in rows {
        if shape.has(table) && first(sql)?.is_some() {
            return Ok(Some("a directory that it does not name".to_owned()));
        }
    }
    Ok(None)
}

impl Overlay {
    /// Opens the directory and reads what is hidden of it.
    pub fn open(source: &Source, db: &Connection, shape: &Shape, base: &Path) -> Result<Overlay> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(base, flags, Mode::empty()).map_err(|e| Error::io(base)(e.into()))?;
        let mut whiteouts = HashSet::new();
        if shape.has("fs_whiteout") {
            let mut select = db
                .prepare("SELECT path FROM fs_whiteout")
                .map_err(|e| source.sql(e))?;
            let mut rows = select.query([]).map_err(|e| source.sql(e))?;
            while let Some(row) = rows.next().map_err(|e| source.sql(e))? {
                let path: String = row.get(0).map_err(|e| source.sql(e))?;
                whiteouts.insert(path.trim_matches('/').as_bytes().to_vec());
            }
        }
        Ok(Overlay {
            path: base.to_owned(),
            root,
            whiteouts,
            links: RefCell::default(),
        })
    }

    /// Where a directory of the database lies in the base, where that shows through.
    pub fn below(&self, parent: Option<&[u8]>, name: &[u8]) -> Option<Vec<u8>> {
        let path = joined(parent?, name);
        let shows = !self.whiteouts.contains(&path) && self.open_dir(&path).is_ok();
        shows.then_some(path)
    }

    /// Adds what shows through in the directory `below` to its entries.
    pub fn show_through(
        &self,
        plan: &mut Plan,
        at: usize,
        below: &[u8],
        entries: &mut Vec<(Vec<u8>, Target)>,
    ) -> Result<()> {
        let dir = self.open_dir(below).map_err(|e| self.io(below, e))?;
        let own: HashSet<Vec<u8>> = entries.iter().map(|(name, _)| name.clone()).collect();
        for entry in Dir::read_from(&dir).map_err(|e| self.io(below, e))? {
            let entry = entry.map_err(|e| self.io(below, e))?;
            let name = entry.file_name().to_bytes().to_vec();
            let path = joined(below, &name);
            let skipped = matches!(&name[..], b"." | b"..")
                || own.contains(&name)
                || self.whiteouts.contains(&path)
                || (below.is_empty() && name == RESERVED_NAME);
            if skipped {
                continue;
            }
            let node = self.node(dir.as_fd(), &name, path)?;
            let node = match node.meta.mode & 0o170000 {
                0o040000 => Target::Dir(plan.add_base_dir(at, node.path)),
                _ => {
                    plan.bytes += node.size;
                    Target::Base(Box::new(node))
                }
            };
            entries.push((name, node));
        }
        Ok(())
    }

    /// Attributes of a directory of the base.
    pub fn dir_meta(&self, path: &[u8]) -> Result<Meta> {
        let dir = self.open_dir(path).map_err(|e| self.io(path, e))?;
        let stat = fs::fstat(&dir).map_err(|e| self.io(path, e))?;
        self.meta(&stat, path)
    }

    /// A file of the base.
    pub fn open_file(&self, path: &[u8]) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = self.open_at(path, flags).map_err(|e| self.io(path, e))?;
        Ok(File::from(file))
    }

    /// True where several names of the tree lead to that file.
    pub fn is_linked(&self, identity: (u64, u64)) -> bool {
        self.links.borrow().get(&identity).is_some_and(|n| *n > 1)
    }

    fn node(&self, dir: impl AsFd, name: &[u8], path: Vec<u8>) -> Result<BaseNode> {
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|e| self.io(&path, e))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let target = match kind {
            FileType::Symlink => {
                let target = fs::readlinkat(&dir, name, Vec::new());
                Some(target.map_err(|e| self.io(&path, e))?.into_bytes())
            }
            _ => None,
        };
        let identity = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 1 && kind != FileType::Directory {
            *self.links.borrow_mut().entry(identity).or_default() += 1;
        }
        Ok(BaseNode {
            meta: self.meta(&stat, &path)?,
            size: if kind == FileType::RegularFile {
                stat.st_size as u64
            } else {
                0
            },
            target,
            identity,
            path,
        })
    }

    fn meta(&self, stat: &Stat, path: &[u8]) -> Result<Meta> {
        let is_device = matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::CharacterDevice | FileType::BlockDevice
        );
        Ok(Meta {
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime_sec: stat.st_mtime,
            mtime_nsec: stat.st_mtime_nsec as u32,
            rdev: if is_device { stat.st_rdev } else { 0 },
            link_group: 0,
            xattrs: self.xattrs(path)?,
        })
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let place = self.path.join(OsStr::from_bytes(path));
        let mut names = vec![0; 65_536];
        let found = match fs::llistxattr(&place, &mut names[..]) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP | Errno::ACCESS) => 0,
            Err(e) => return Err(self.io(path, e)),
        };
        let mut xattrs = Vec::new();
        for name in names[..found].split(|b| *b == 0).filter(|n| !n.is_empty()) {
            let mut value = vec![0; 65_536];
            match fs::lgetxattr(&place, OsStr::from_bytes(name), &mut value[..]) {
                Ok(len) => {
                    value.truncate(len);
                    xattrs.push((name.to_vec(), value));
                }
                Err(Errno::NODATA) => {}
                Err(e) => return Err(self.io(path, e)),
            }
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn open_dir(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        fs::openat2(
            &self.root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }

    fn io(&self, path: &[u8], error: Errno) -> Error {
        Error::io(&self.path.join(OsStr::from_bytes(path)))(error.into())
    }
}

fn joined(parent: &[u8], name: &[u8]) -> Vec<u8> {
    match parent {
        [] => name.to_vec(),
        parent => [parent, b"/", name].concat(),
    }
}
