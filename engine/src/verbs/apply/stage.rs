//! Making files in the staging directory as they are to be in the base, and on stable storage.

use super::intent::Ident;
use super::names::failed;
use crate::base::{Base, stamp_at};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::stored::store::UNREADABLE;
use crate::types::{Time, mode};
use objstore::content::FileContent;
use objstore::{Body, Meta, ObjectStore, TreeEntry, data_ranges, read_content};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// Files that are put on stable storage together, open until then. One by one each would cost a commit of the file
/// system's journal.
const SYNCED_TOGETHER: usize = 128;
/// Permission bits.
const PERM_BITS: u32 = 0o7777;

/// The staging directory.
pub(super) struct Staging<'a> {
    pub base: &'a Base,
    pub store: &'a ObjectStore,
    pub dir: OwnedFd,
    pub cancel: &'a Cancel,
    /// Files that were made and are not on stable storage yet, with their paths.
    unsynced: Vec<(OwnedFd, Vec<u8>)>,
}

/// Name of a slot.
pub(super) fn slot_name(slot: u32) -> Vec<u8> {
    slot.to_string().into_bytes()
}

impl<'a> Staging<'a> {
    /// The empty directory `dir`.
    pub fn new(base: &'a Base, store: &'a ObjectStore, dir: OwnedFd, cancel: &'a Cancel) -> Self {
        Staging {
            base,
            store,
            dir,
            cancel,
            unsynced: Vec::new(),
        }
    }

    /// Makes a file, symbolic link or special file in a slot; `path` is for errors. A file is on stable storage after
    /// [`Staging::sync`].
    pub fn make(&mut self, slot: u32, path: &[u8], entry: &TreeEntry) -> Result<Ident> {
        let name = slot_name(slot);
        let at = |e: Errno| failed(self.base, path, e);
        let dir = self.dir.as_fd();
        match &entry.body {
            Body::File(content) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let perm = Mode::from_raw_mode(0o600);
                let file = fs::openat(dir, &name, flags, perm).map_err(at)?;
                self.fill(&file, content, path)?;
                set_attributes(dir, &name, &entry.meta).map_err(at)?;
                self.unsynced.push((file, path.to_vec()));
                if self.unsynced.len() >= SYNCED_TOGETHER {
                    self.sync_files()?;
                }
            }
            Body::Symlink(target) => {
                fs::symlinkat(&target[..], dir, &name).map_err(at)?;
                set_attributes(dir, &name, &entry.meta).map_err(at)?;
            }
            Body::None => {
                let kind = FileType::from_raw_mode(entry.meta.mode);
                let perm = Mode::from_raw_mode(0o600);
                fs::mknodat(dir, &name, kind, perm, entry.meta.rdev).map_err(at)?;
                set_attributes(dir, &name, &entry.meta).map_err(at)?;
            }
            Body::Dir(_) => return Err(at(Errno::ISDIR)),
        }
        self.ident(slot, path)
    }

    /// Puts all that was made on stable storage.
    pub fn sync(&mut self) -> Result<()> {
        self.sync_files()?;
        fs::fsync(&self.dir).map_err(|e| failed(self.base, b"", e))
    }

    fn sync_files(&mut self) -> Result<()> {
        for (file, path) in self.unsynced.drain(..) {
            fs::fsync(&file).map_err(|e| failed(self.base, &path, e))?;
        }
        Ok(())
    }

    /// Makes an empty directory in a slot. Its attributes are set once it is full.
    pub fn make_dir(&self, slot: u32, path: &[u8]) -> Result<Ident> {
        let made = fs::mkdirat(&self.dir, slot_name(slot), Mode::from_raw_mode(0o700));
        made.map_err(|e| failed(self.base, path, e))?;
        self.ident(slot, path)
    }

    /// Makes a further link of a file that is staged already.
    pub fn link(&self, from: u32, slot: u32, path: &[u8]) -> Result<Ident> {
        let (old, new) = (slot_name(from), slot_name(slot));
        let linked = fs::linkat(&self.dir, old, &self.dir, new, AtFlags::empty());
        linked.map_err(|e| failed(self.base, path, e))?;
        self.ident(slot, path)
    }

    /// Makes a further link of a file of the base.
    pub fn link_from(&self, dir: BorrowedFd<'_>, name: &[u8], slot: u32) -> Result<Ident, Errno> {
        fs::linkat(dir, name, &self.dir, slot_name(slot), AtFlags::empty())?;
        let stamp = stamp_at(self.dir.as_fd(), &slot_name(slot))?;
        Ok(Ident {
            dev: stamp.dev,
            ino: stamp.ino,
        })
    }

    fn ident(&self, slot: u32, path: &[u8]) -> Result<Ident> {
        let stamp = stamp_at(self.dir.as_fd(), &slot_name(slot));
        let stamp = stamp.map_err(|e| failed(self.base, path, e))?;
        Ok(Ident {
            dev: stamp.dev,
            ino: stamp.ino,
        })
    }

    fn fill(&self, file: &OwnedFd, content: &FileContent, path: &[u8]) -> Result<()> {
        let at = |e: Errno| failed(self.base, path, e);
        fs::ftruncate(file, content.len()).map_err(at)?;
        let mut buf = vec![0; COPY_BYTES.min(content.len() as usize)];
        for range in data_ranges(self.store, content)? {
            let mut pos = range.start;
            while pos < range.end {
                self.cancel.check()?;
                let len = (range.end - pos).min(buf.len() as u64) as usize;
                read_content(self.store, content, pos, &mut buf[..len]).map_err(Error::Store)?;
                write_all(file, &buf[..len], pos).map_err(at)?;
                pos += len as u64;
            }
        }
        Ok(())
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Sets owner, permissions, extended attributes and time of a name in a directory that nobody else can
/// reach, or (an empty name) of the directory itself.
pub(super) fn set_attributes(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> Result<(), Errno> {
    let name = if name.is_empty() { b"." } else { name };
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let now = fs::statat(dir, name, nofollow)?;
    if (now.st_uid, now.st_gid) != (meta.uid, meta.gid) {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        fs::chownat(dir, name, Some(uid), Some(gid), nofollow)?;
    }
    if meta.mode & mode::FMT != mode::LNK {
        let path = [
            b"/proc/self/fd/",
            dir.as_raw_fd().to_string().as_bytes(),
            b"/",
            name,
        ]
        .concat();
        let perm = Mode::from_raw_mode(meta.mode & PERM_BITS);
        fs::chmodat(dir, name, perm, AtFlags::empty())?;
        set_xattrs(&path, meta)?;
    }
    set_time(dir, name, mtime_of(meta))
}

/// Modification time of stored attributes.
pub(super) fn mtime_of(meta: &Meta) -> Time {
    Time {
        sec: meta.mtime_sec,
        nsec: meta.mtime_nsec,
    }
}

/// Sets the modification time of a name in a directory.
pub(super) fn set_time(dir: BorrowedFd<'_>, name: &[u8], time: Time) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: time.sec,
            tv_nsec: time.nsec.into(),
        },
    };
    fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn set_xattrs(path: &[u8], meta: &Meta) -> Result<(), Errno> {
    let mut names = vec![0; 65536];
    let have = match fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e),
    };
    let wanted = |name: &[u8]| meta.xattrs.iter().any(|(n, _)| n == name);
    for name in names[..have].split(|byte| *byte == 0) {
        if !name.is_empty() && name != b"security.selinux" && !wanted(name) {
            fs::lremovexattr(path, name)?;
        }
    }
    for (name, value) in meta.xattrs.iter().filter(|(name, _)| name != UNREADABLE) {
        fs::lsetxattr(path, &name[..], value, XattrFlags::empty())?;
    }
    Ok(())
}
