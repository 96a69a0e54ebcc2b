//! Space that is kept for what must go on when the disk is full: deleting, going back, collecting.
//!
//! It is one preallocated file, `reserve`, in the directory of the store. An operation that must go on
//! and meets a full disk has a piece of it given back ([`Reserve::give`]) and is tried again. Once there
//! is room, the file is made whole again ([`Reserve::restore`]). Free space that is merely not used
//! would not do: other programs fill the disk too.
//!
//! Invariant: from the first piece on that is given back until the disk has room again,
//! [`Reserve::is_in_use`] is true, and whoever need not go on takes nothing.
//!
//! A program that writes at that very moment may take a piece before the operation does. Then the
//! next one is given, twice as large.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, StatVfs, fallocate};
use rustix::io::Errno;

use crate::io::Storage;
use crate::limits::{
    FREE_BYTES_MIN, RESERVE_BYTES_MAX, RESERVE_DISK_PART, RESERVE_PIECE_BYTES, ROOM_BYTES,
};

/// Name of the file, in the directory of the store.
const RESERVE_FILE: &str = "reserve";

/// True for the errors of a disk, or of its quota, that is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Does `work`, again as long as it fails for want of space and there is reserve to give.
pub fn with_reserve<T, E>(
    storage: &dyn Storage,
    wants_space: impl Fn(&E) -> bool,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        match work() {
            Err(error) if wants_space(&error) && storage.give_reserve() => {}
            done => return done,
        }
    }
}

/// The reserve of a store.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    /// Held while the file changes: size of the next piece, 0 where the file is whole.
    piece: Mutex<u64>,
    /// Length of the file as far as it is known.
    len: AtomicU64,
    is_whole: AtomicBool,
    is_in_use: AtomicBool,
}

impl Reserve {
    /// The reserve of the store in `root`. Nothing is made.
    pub fn of(root: &Path) -> Reserve {
        let path = root.join(RESERVE_FILE);
        let len = path.metadata().map_or(0, |meta| meta.len());
        Reserve {
            path,
            piece: Mutex::new(0),
            len: AtomicU64::new(len),
            is_whole: AtomicBool::new(false),
            is_in_use: AtomicBool::new(false),
        }
    }

    /// Gives a piece back to the disk; false where nothing is left.
    pub fn give(&self) -> bool {
        let mut piece = self.piece.lock();
        let len = self.len.load(Ordering::Acquire);
        if len == 0 {
            return false;
        }
        *piece = (*piece * 2).max(RESERVE_PIECE_BYTES);
        let left = len.saturating_sub(*piece);
        self.is_in_use.store(true, Ordering::Release);
        self.is_whole.store(false, Ordering::Release);
        let file = OpenOptions::new().write(true).open(&self.path);
        match file.and_then(|file| file.set_len(left)) {
            Ok(()) => {
                self.len.store(left, Ordering::Release);
                tracing::info!(left, "the disk is full, the reserve is used");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the reserve cannot be used");
                self.len.store(0, Ordering::Release);
                false
            }
        }
    }

    /// Bytes that can still be given.
    pub fn bytes(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes that the file takes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        const BLOCK_BYTES: u64 = 512;
        let taken = self.path.metadata().map(|meta| meta.blocks() * BLOCK_BYTES);
        taken.unwrap_or(0)
    }

    /// True from when a piece was given until the disk has room again.
    pub fn is_in_use(&self) -> bool {
        self.is_in_use.load(Ordering::Acquire)
    }

    /// Gives a piece where the disk has next to no space for this process: for small files of others.
    pub fn make_room(&self) {
        let Ok(disk) = self.disk() else { return };
        let blocks = match rustix::process::geteuid().is_root() {
            true => disk.f_bfree,
            false => disk.f_bavail,
        };
        if blocks.saturating_mul(disk.f_frsize) < ROOM_BYTES {
            self.give();
        }
    }

    /// Makes the reserve whole where the disk has room: it never takes more than half of what is free.
    /// Costs nothing where it is whole. True where it is whole afterwards.
    pub fn restore(&self) -> io::Result<bool> {
        if self.is_whole.load(Ordering::Acquire) {
            return Ok(true);
        }
        let mut piece = self.piece.lock();
        let disk = self.disk()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        let wanted = RESERVE_BYTES_MAX.min(total / RESERVE_DISK_PART);
        let missing = wanted.saturating_sub(self.bytes());
        if missing > 0 && free / 2 >= missing {
            let file = self.file()?;
            match fallocate(&file, FallocateFlags::empty(), 0, wanted) {
                Ok(()) => self.len.store(wanted, Ordering::Release),
                // A file system that cannot is asked once.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    tracing::info!("this file system keeps no reserve");
                }
                Err(error) => return Err(error.into()),
            }
        } else if missing > 0 {
            if free >= FREE_BYTES_MIN {
                self.is_in_use.store(false, Ordering::Release);
            }
            return Ok(false);
        }
        *piece = 0;
        self.is_in_use.store(false, Ordering::Release);
        self.is_whole.store(true, Ordering::Release);
        Ok(true)
    }

    fn file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(&self.path)
    }

    fn disk(&self) -> io::Result<StatVfs> {
        let root = self.path.parent().unwrap_or(Path::new("."));
        Ok(rustix::fs::statvfs(root)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_given_until_nothing_is_left_and_all_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(dir.path());
        assert!(!reserve.give(), "nothing was made yet");
        reserve.restore().unwrap();
        let whole = reserve.bytes();
        let disk_has_room = whole > 0;
        if !disk_has_room {
            eprintln!("skipped: the disk for temporary files keeps no reserve");
            return;
        }
        assert!(reserve.disk_bytes() >= whole && !reserve.is_in_use());
        let mut given = Vec::new();
        while reserve.give() {
            assert!(reserve.is_in_use() && reserve.disk_bytes() <= reserve.bytes() + 4096);
            given.push(reserve.bytes());
        }
        assert_eq!(given.last(), Some(&0));
        assert!(given.len() < 20, "pieces grow: {given:?}");
        // Whoever comes after a restart finds what is left.
        assert_eq!(Reserve::of(dir.path()).bytes(), 0);
        reserve.restore().unwrap();
        assert!(reserve.bytes() == whole && !reserve.is_in_use());
    }
}
