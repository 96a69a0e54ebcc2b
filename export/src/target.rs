//! The file that an export makes: under a temporary name beside it until it is whole.
//!
//! The temporary name follows from the target's, so that the next export to the same name finds what a
//! killed one left, and a lock on it says whether somebody is at work. Invariant: the target's name
//! never stands for anything but what was there before, or a whole export that is on stable storage.

use crate::error::{Error, Result};
use engine::Cancel;
use rustix::fs::{self, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What SQLite keeps beside a database; of an older one it would be taken for the new one's.
const SIDECARS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A file that is being made.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    dir: PathBuf,
    partial: PathBuf,
    file: File,
    force: bool,
    done: bool,
}

impl Target {
    /// Begins to make `path`, which must not exist without `force`.
    pub fn begin(path: &Path, force: bool) -> Result<Target> {
        let name = path.file_name();
        let name = name.ok_or_else(|| Error::BadTarget(path.to_owned()))?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let partial = dir.join(format!(".agentvfs-export-{}.partial", &hash[..16]));
        check_free(path, force)?;
        let file = lock(path, &partial)?;
        let target = Target {
            path: path.to_owned(),
            dir,
            partial,
            file,
            force,
            done: false,
        };
        // What a killed export left.
        target.file.set_len(0).map_err(Error::io(&target.partial))?;
        Ok(target)
    }

    /// The temporary name, under which it is written.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// The file under its temporary name.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that are free where it is made.
    pub fn free_bytes(&self) -> Result<u64> {
        let s = fs::fstatvfs(&self.file).map_err(|e| Error::io(&self.partial)(e.into()))?;
        Ok(s.f_bavail.saturating_mul(s.f_frsize))
    }

    /// Gives it its name, durably. From then on it cannot be cancelled.
    pub fn finish(mut self, cancel: &Cancel) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.partial))?;
        cancel.decide()?;
        if self.force {
            // First: the old log under the new file's name would be replayed into it.
            for sidecar in sidecars(&self.path) {
                remove(&sidecar)?;
            }
            std::fs::rename(&self.partial, &self.path).map_err(Error::io(&self.path))?;
        } else {
            self.rename_new()?;
        }
        self.done = true;
        let dir = File::open(&self.dir).map_err(Error::io(&self.dir))?;
        dir.sync_all().map_err(Error::io(&self.dir))
    }

    fn rename_new(&self) -> Result<()> {
        let (from, to) = (&self.partial, &self.path);
        match fs::renameat_with(fs::CWD, from, fs::CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Error::Exists(to.clone())),
            // A file system without that: a link fails where the name is taken.
            Err(Errno::INVAL | Errno::NOSYS) => {
                std::fs::hard_link(from, to).map_err(|e| match e.kind() {
                    std::io::ErrorKind::AlreadyExists => Error::Exists(to.clone()),
                    _ => Error::io(to)(e),
                })?;
                remove(from)
            }
            Err(e) => Err(Error::io(to)(e.into())),
        }
    }
}

impl Drop for Target {
    /// Leaves nothing of what was not finished.
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = remove(&self.partial)
        {
            tracing::warn!("an unfinished export is left: {error}");
        }
    }
}

fn sidecars(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    SIDECARS
        .into_iter()
        .map(beside)
        .collect::<Vec<_>>()
        .into_iter()
}

fn check_free(path: &Path, force: bool) -> Result<()> {
    let found = |path: &Path| std::fs::symlink_metadata(path);
    match found(path) {
        Ok(there) if there.is_dir() => return Err(Error::BadTarget(path.to_owned())),
        Ok(_) if !force => return Err(Error::Exists(path.to_owned())),
        _ => {}
    }
    match sidecars(path).find(|sidecar| found(sidecar).is_ok()) {
        Some(sidecar) if !force => Err(Error::Exists(sidecar)),
        _ => Ok(()),
    }
}

/// Opens the temporary file and locks it, so that no other export uses it.
fn lock(path: &Path, partial: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |e: Errno| Error::io(partial)(e.into());
    loop {
        let file = fs::open(partial, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy(path.to_owned())),
            Err(e) => return Err(failed(e)),
        }
        // Whoever held the lock may have renamed or removed it in between.
        let held = fs::fstat(&file).map_err(failed)?;
        if let Ok(now) = fs::lstat(partial)
            && (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)
        {
            return Ok(File::from(file));
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_unfinished_file_leaves_nothing_and_a_finished_one_only_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let path = dir.path().join("x.db");
        drop(Target::begin(&path, false).unwrap());
        assert_eq!(names(), 0);
        let target = Target::begin(&path, false).unwrap();
        assert!(matches!(Target::begin(&path, false), Err(Error::Busy(_))));
        target.file().write_all(b"whole").unwrap();
        target.finish(&Cancel::new()).unwrap();
        assert_eq!(
            (names(), std::fs::read(&path).unwrap()),
            (1, b"whole".to_vec())
        );
        assert!(matches!(Target::begin(&path, false), Err(Error::Exists(_))));
    }

    #[test]
    fn cancelled_before_it_has_its_name_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let cancel = Cancel::new();
        let target = Target::begin(&dir.path().join("x.db"), false).unwrap();
        assert!(cancel.cancel());
        assert!(target.finish(&cancel).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_export_left_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let partial = Target::begin(&path, false).unwrap().partial().to_owned();
        std::fs::write(&partial, b"half").unwrap();
        let target = Target::begin(&path, false).unwrap();
        assert_eq!(target.file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn the_log_of_a_database_that_is_replaced_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let log = dir.path().join("x.db-wal");
        std::fs::write(&log, b"old").unwrap();
        assert!(matches!(Target::begin(&path, false), Err(Error::Exists(_))));
        Target::begin(&path, true)
            .unwrap()
            .finish(&Cancel::new())
            .unwrap();
        assert!(!log.exists() && path.exists());
    }
}
