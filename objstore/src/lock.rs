//! One process owns a store: an exclusive `flock` on the file `lock` in its directory.
//!
//! The kernel releases it when the owner dies, so there is no stale lock. The file holds the owner's
//! process id for the message to a second one; it is never removed, since a removed file could be
//! locked twice.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Name of the lock file.
const LOCK_FILE: &str = "lock";

/// Ownership of a store until dropped.
#[derive(Debug)]
pub struct StoreLock {
    _file: File,
}

impl StoreLock {
    /// Takes the lock of the store in `root` (which must exist), or says who holds it.
    pub fn acquire(root: &Path) -> Result<StoreLock> {
        let path = root.join(LOCK_FILE);
        let io_error = |source: io::Error| Error::io(path.to_string_lossy(), source);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path).map_err(io_error)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked {
                    owner_pid: read_pid(&mut file),
                });
            }
            Err(error) => return Err(io_error(error.into())),
        }
        // The number is a courtesy: a full disk must not keep the store shut.
        let _ = write_pid(&mut file);
        Ok(StoreLock { _file: file })
    }
}

fn read_pid(file: &mut File) -> u32 {
    let mut text = String::new();
    match file.take(16).read_to_string(&mut text) {
        Ok(_) => text.trim().parse().unwrap_or(0),
        Err(_) => 0,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_owner_is_told_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = StoreLock::acquire(dir.path()).unwrap();
        match StoreLock::acquire(dir.path()) {
            Err(Error::Locked { owner_pid }) => assert_eq!(owner_pid, std::process::id()),
            other => panic!("{other:?}"),
        }
        drop(first);
        StoreLock::acquire(dir.path()).unwrap();
    }
}
