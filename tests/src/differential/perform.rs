//! One directory under test, and how a call is made in it.

use super::{Octal, Op, SLOTS, Stamp, Step, USERS};
use crate::rng::Rng;
use crate::sys::{Mapping, PAGE};
use crate::user::act_as;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// `UTIME_NOW`, `UTIME_OMIT` (linux/stat.h).
const UTIME_NOW: i64 = (1 << 30) - 1;
const UTIME_OMIT: i64 = (1 << 30) - 2;

/// Name of the directory in which calls are made.
pub const INNER: &str = "inner";

/// The longest that a file can be on ext4, and in the mount.
const FILE_BYTES_MAX: u64 = (16 << 40) - PAGE as u64;

/// What a call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// It succeeded.
    Nothing,
    /// It was not made: the slot is empty, or the call would prove nothing.
    NotMade,
    /// A count, or a size.
    Number(u64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Names and types.
    Names(Vec<(Vec<u8>, u8)>),
}

/// A directory with open descriptors. Calls are made with it as working directory.
pub struct Side {
    root: OwnedFd,
    /// Open files.
    pub slots: [Option<OwnedFd>; SLOTS],
    direct: [bool; SLOTS],
}

impl Side {
    /// An empty directory in a new directory `place`, which all may write to. A path may lead out of
    /// the inner one, but not out of both.
    pub fn new(place: &Path) -> Side {
        for place in [place, &place.join(INNER)] {
            std::fs::create_dir(place).unwrap();
            rustix::fs::chmod(place, Mode::from_raw_mode(0o777)).unwrap();
        }
        Side::at(place)
    }

    /// A directory that was made so.
    pub fn at(place: &Path) -> Side {
        let place = &place.join(INNER);
        if std::fs::read_dir(place).is_err() {
            // Who is not root has shut himself out, on both sides.
            rustix::fs::chmod(place, Mode::from_raw_mode(0o700)).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Side {
            root: rustix::fs::open(place, flags, Mode::empty()).unwrap(),
            slots: Default::default(),
            direct: [false; SLOTS],
        }
    }

    /// Makes this side's directory the working directory.
    pub fn enter(&self) {
        if rustix::process::fchdir(&self.root).is_err() {
            // Who is not root has shut himself out, on both sides.
            rustix::fs::fchmod(&self.root, Mode::from_raw_mode(0o700)).unwrap();
            rustix::process::fchdir(&self.root).unwrap();
        }
    }

    /// Makes a call as its user.
    pub fn perform(&mut self, step: &Step) -> Result<Value> {
        self.enter();
        if !proves_something(step) {
            return Ok(Value::NotMade);
        }
        match step.user {
            0 => self.call(&step.op),
            user => act_as(USERS[user], || self.call(&step.op)),
        }
    }

    fn call(&mut self, op: &Op) -> Result<Value> {
        match op {
            Op::Open(slot, path, flags, mode) => return self.open(*slot, path, flags.0, mode.0),
            Op::Close(slot) => drop(self.slots[*slot].take()),
            Op::Write(..)
            | Op::Append(..)
            | Op::Read(..)
            | Op::Resize(..)
            | Op::Allocate(..)
            | Op::Copy(..)
            | Op::Map(..)
            | Op::Sync(..)
            | Op::End(..)
            | Op::LinkOpen(..)
            | Op::ChmodOpen(..) => return self.on_open(op),
            Op::GetXattr(..) | Op::ListXattr(..) | Op::List(..) | Op::Readlink(..) => {
                return asked(op);
            }
            Op::Umask(mask) => drop(rustix::process::umask(Mode::from_raw_mode(mask.0))),
            _ => changed(op)?,
        }
        Ok(Value::Nothing)
    }

    fn open(&mut self, slot: usize, path: &str, flags: u32, mode: u32) -> Result<Value> {
        self.slots[slot] = None;
        if is_device(path) {
            // Mounts differ in whether they let devices be opened.
            return Ok(Value::NotMade);
        }
        let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
        self.direct[slot] = flags.contains(OFlags::DIRECT);
        self.slots[slot] = Some(file);
        Ok(Value::Nothing)
    }

    /// A call on an open file.
    fn on_open(&self, op: &Op) -> Result<Value> {
        let slot = slot_of(op);
        let Some(file) = &self.slots[slot] else {
            return Ok(Value::NotMade);
        };
        match op {
            Op::Write(_, at, len, seed) => self.write(slot, file, *at, (*len, *seed)),
            Op::Append(_, len, seed) => self.append(slot, file, (*len, *seed)),
            Op::Read(_, at, len) => self.read(slot, file, (*at, *len)),
            Op::Resize(_, len) => rustix::fs::ftruncate(file, *len).map(|()| Value::Nothing),
            Op::Allocate(_, mode, at, len) => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                rustix::fs::fallocate(file, mode, *at, *len).map(|()| Value::Nothing)
            }
            Op::Map(_, page, value) => map(file, *page, *value),
            Op::Sync(_) => rustix::fs::fsync(file).map(|()| Value::Nothing),
            Op::End(_) => end(file),
            Op::LinkOpen(_, path) => {
                let open = format!("/proc/self/fd/{}", file.as_raw_fd());
                let linked = rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW);
                linked.map(|()| Value::Nothing)
            }
            Op::ChmodOpen(_, mode) => {
                let mode = Mode::from_raw_mode(mode.0);
                rustix::fs::fchmod(file, mode).map(|()| Value::Nothing)
            }
            Op::Copy((_, at), (to, to_at), len) => self.copy((slot, *at), (*to, *to_at), *len),
            other => unreachable!("{other:?}"),
        }
    }

    /// A write, given by length and seed of its bytes. One that ends behind the longest length is made
    /// by root alone, not directly, and not on a file with capabilities, which the kernel's FUSE takes
    /// away before it asks: see [`proves_something`].
    fn write(
        &self,
        slot: usize,
        file: &OwnedFd,
        at: u64,
        (len, seed): (usize, u64),
    ) -> Result<Value> {
        let mut data = Data::new(len, self.direct[slot]);
        data.fill(seed);
        let at = data.place(at);
        let end = appended_at(file)?.unwrap_or(at) + data.bytes().len() as u64;
        let is_plain = !self.direct[slot] && crate::mount::is_root() && !has_capabilities(file);
        if end > FILE_BYTES_MAX && !is_plain {
            return Ok(Value::NotMade);
        }
        let written = rustix::io::pwrite(file, data.bytes(), at)?;
        Ok(Value::Number(written as u64))
    }

    /// A read. Directly past the longest length ext4 refuses it, though there are bytes before.
    fn read(&self, slot: usize, file: &OwnedFd, (at, len): (u64, usize)) -> Result<Value> {
        let mut data = Data::new(len, self.direct[slot]);
        let at = data.place(at);
        if self.direct[slot] && at + data.bytes().len() as u64 > FILE_BYTES_MAX {
            return Ok(Value::NotMade);
        }
        let count = rustix::io::pread(file, data.bytes_mut(), at)?;
        Ok(Value::Bytes(data.bytes()[..count].to_vec()))
    }

    /// A write at the descriptor's position, which for O_DIRECT must be a block's edge on ext4.
    fn append(&self, slot: usize, file: &OwnedFd, (len, seed): (usize, u64)) -> Result<Value> {
        let mut data = Data::new(len, self.direct[slot]);
        data.fill(seed);
        let at = position(file)?;
        let is_aligned = !self.direct[slot] || at.is_multiple_of(PAGE as u64);
        if !is_aligned || at + data.bytes().len() as u64 > FILE_BYTES_MAX {
            return Ok(Value::NotMade);
        }
        let written = rustix::io::write(file, data.bytes())?;
        Ok(Value::Number(written as u64))
    }

    /// The native file system copies through its page cache, which O_DIRECT does not mix with. To
    /// copy nothing to behind the longest length fails there alone: FUSE does not tell the kernel
    /// how long a file may be.
    fn copy(&self, from: (usize, u64), to: (usize, u64), len: usize) -> Result<Value> {
        let (Some(source), Some(target)) = (&self.slots[from.0], &self.slots[to.0]) else {
            return Ok(Value::NotMade);
        };
        if self.direct[from.0] || self.direct[to.0] || to.1 >= FILE_BYTES_MAX {
            return Ok(Value::NotMade);
        }
        let (mut at, mut to_at) = (from.1, to.1);
        let copied =
            rustix::fs::copy_file_range(source, Some(&mut at), target, Some(&mut to_at), len)?;
        Ok(Value::Number(copied as u64))
    }
}

fn has_capabilities(file: &OwnedFd) -> bool {
    rustix::fs::fgetxattr(file, "security.capability", &mut [0; 64][..]).is_ok()
}

/// The slot of a call on an open file.
fn slot_of(op: &Op) -> usize {
    match op {
        Op::Write(slot, ..)
        | Op::Append(slot, ..)
        | Op::Read(slot, ..)
        | Op::Resize(slot, ..)
        | Op::Allocate(slot, ..)
        | Op::Map(slot, ..)
        | Op::Sync(slot)
        | Op::End(slot)
        | Op::LinkOpen(slot, ..)
        | Op::ChmodOpen(slot, ..)
        | Op::Copy((slot, _), ..) => *slot,
        other => unreachable!("{other:?}"),
    }
}

/// Where write(2) will write.
fn position(file: &OwnedFd) -> Result<u64> {
    match (appended_at(file)?, kind_of(file)?) {
        (Some(end), _) => Ok(end),
        (None, FileType::RegularFile) => rustix::fs::tell(file),
        _ => Ok(0),
    }
}

/// The end of a file that is open for appending.
fn appended_at(file: &OwnedFd) -> Result<Option<u64>> {
    let appends = rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND);
    let is_file = kind_of(file)? == FileType::RegularFile;
    let size = rustix::fs::fstat(file)?.st_size as u64;
    Ok((appends && is_file).then_some(size))
}

fn kind_of(file: &OwnedFd) -> Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode))
}

/// Calls of which the kernel's FUSE does a part before it asks the daemon, and does not take that
/// back: set-id bits go though the call then fails for the file's length (so does a write, see there,
/// and with O_DIRECT it moves times, too). And chown(2) that names nobody, which looks to the daemon
/// as what the kernel sends before a write.
fn proves_something(step: &Step) -> bool {
    match &step.op {
        Op::Allocate(_, _, at, len) => at + len <= FILE_BYTES_MAX,
        Op::Chown(_, None, None, _) => false,
        // Where it fails for that, ext4 has moved the times of the directory (`ext4_resetent`).
        Op::Rename(_, to, flags) if flags & RenameFlags::WHITEOUT.bits() != 0 => !is_full(to),
        _ => true,
    }
}

/// Whether a path leads to a directory with entries.
fn is_full(path: &str) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

/// Whether a path leads to what a renaming has left.
fn is_device(path: &str) -> bool {
    let stat = rustix::fs::stat(path);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

/// Each file system has its own idea of a directory's end.
fn end(file: &OwnedFd) -> Result<Value> {
    match kind_of(file)? {
        FileType::Directory => Ok(Value::NotMade),
        _ => rustix::fs::seek(file, SeekFrom::End(0)).map(Value::Number),
    }
}

/// Makes calls that change something and give nothing.
fn changed(op: &Op) -> Result<()> {
    let mode = |bits: &Octal| Mode::from_raw_mode(bits.0);
    match op {
        Op::Truncate(path, _) if is_device(path) => Ok(()),
        Op::Truncate(path, len) => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            rustix::fs::ftruncate(rustix::fs::open(path, flags, Mode::empty())?, *len)
        }
        Op::Mkdir(path, bits) => rustix::fs::mkdir(path, mode(bits)),
        Op::Rmdir(path) => rustix::fs::rmdir(path),
        Op::Unlink(path) => rustix::fs::unlink(path),
        Op::Rename(from, to, flags) => {
            let flags = RenameFlags::from_bits_retain(*flags);
            rustix::fs::renameat_with(CWD, from, CWD, to, flags)
        }
        Op::Link(from, to, follow) => {
            let flags = match follow {
                true => AtFlags::SYMLINK_FOLLOW,
                false => AtFlags::empty(),
            };
            rustix::fs::linkat(CWD, from, CWD, to, flags)
        }
        Op::Symlink(target, path) => rustix::fs::symlink(target, path),
        Op::Fifo(path, bits) => rustix::fs::mknodat(CWD, path, FileType::Fifo, mode(bits), 0),
        Op::Chmod(path, bits) => rustix::fs::chmod(path, mode(bits)),
        Op::Chown(path, uid, gid, follow) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, nofollow(*follow))
        }
        Op::Times(path, access, modification, follow) => {
            let times = Timestamps {
                last_access: stamp(*access),
                last_modification: stamp(*modification),
            };
            rustix::fs::utimensat(CWD, path, &times, nofollow(*follow))
        }
        Op::SetXattr(path, name, value, flags) => {
            rustix::fs::lsetxattr(path, name, &value.0, XattrFlags::from_bits_retain(*flags))
        }
        Op::RemoveXattr(path, name) => rustix::fs::lremovexattr(path, name),
        Op::Access(path, bits) => {
            let access = Access::from_bits_retain(*bits);
            rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS)
        }
        other => unreachable!("{other:?}"),
    }
}

/// Makes calls that give something and change nothing.
fn asked(op: &Op) -> Result<Value> {
    let mut buffer = vec![0; 66_000];
    match op {
        Op::GetXattr(path, name) => {
            let count = rustix::fs::lgetxattr(path, name, &mut buffer[..])?;
            Ok(Value::Bytes(buffer[..count].to_vec()))
        }
        Op::ListXattr(path) => {
            let count = rustix::fs::llistxattr(path, &mut buffer[..])?;
            let names = buffer[..count].split(|byte| *byte == 0);
            let mut names: Vec<_> = names.map(|name| (name.to_vec(), 0)).collect();
            names.sort();
            Ok(Value::Names(names))
        }
        Op::List(path) => list(path.as_bytes()).map(Value::Names),
        Op::Readlink(path) => {
            let target = rustix::fs::readlink(path, Vec::new())?;
            Ok(Value::Bytes(target.into_bytes()))
        }
        other => unreachable!("{other:?}"),
    }
}

/// Names (but `.` and `..`) and types below `path`, sorted.
pub fn list(path: &[u8]) -> Result<Vec<(Vec<u8>, u8)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), kind(entry.file_type())));
        }
    }
    names.sort();
    Ok(names)
}

fn kind(kind: FileType) -> u8 {
    match kind {
        FileType::RegularFile => b'f',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::Fifo => b'p',
        _ => b'?',
    }
}

fn nofollow(follow: bool) -> AtFlags {
    match follow {
        true => AtFlags::empty(),
        false => AtFlags::SYMLINK_NOFOLLOW,
    }
}

fn stamp(stamp: Stamp) -> Timespec {
    let (sec, nsec) = match stamp {
        Stamp::Now => (0, UTIME_NOW),
        Stamp::Omit => (0, UTIME_OMIT),
        Stamp::At(sec, nsec) => (sec, nsec),
    };
    Timespec {
        tv_sec: sec,
        tv_nsec: nsec as _,
    }
}

/// Writes a word to a page of the file; a page that the file does not have would be SIGBUS.
fn map(file: impl AsFd, page: usize, value: u64) -> Result<Value> {
    let stat = rustix::fs::fstat(&file)?;
    let size = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_size as u64,
        _ => 0,
    };
    let pages = size.div_ceil(PAGE as u64).min(64) as usize;
    // What becomes of bytes that are stored beyond the file's end is unspecified (mmap(2)).
    let is_inside = |page: usize| (page * PAGE + size_of::<u64>()) as u64 <= size;
    if pages == 0 || !is_inside(page % pages) {
        return Ok(Value::NotMade);
    }
    let file = File::from(rustix::io::dup(file)?);
    let mapping = Mapping::new(&file, pages);
    let mapping = mapping.map_err(|e| Errno::from_io_error(&e).unwrap())?;
    mapping
        .word(page % pages)
        .store(value, std::sync::atomic::Ordering::SeqCst);
    Ok(Value::Nothing)
}

/// Bytes to read or write; of whole pages and page-aligned where O_DIRECT wants that.
struct Data {
    bytes: Vec<u8>,
    range: std::ops::Range<usize>,
    direct: bool,
}

impl Data {
    fn new(len: usize, direct: bool) -> Data {
        if !direct {
            return Data {
                bytes: vec![0; len],
                range: 0..len,
                direct,
            };
        }
        let len = len.next_multiple_of(PAGE);
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Data {
            bytes,
            range: start..start + len,
            direct,
        }
    }

    fn fill(&mut self, seed: u64) {
        let random = Rng::new(seed).bytes(self.range.len());
        self.bytes_mut().copy_from_slice(&random);
    }

    fn place(&self, at: u64) -> u64 {
        match self.direct {
            true => at / PAGE as u64 * PAGE as u64,
            false => at,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.range.clone()]
    }
}
