//! What was written into a mount point while nothing was mounted there: it is moved aside into the home, into
//! a directory of its own for each time, and stays there until somebody removes it.
//!
//! Invariant: nothing is copied or removed, only renamed, so nothing can be lost half-way.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Directory in the home: in it one for each workspace, in that one for each time.
const NAME: &str = "aside";

/// Most names that are tried for one moment.
const TRIES_MAX: u32 = 1000;

/// Where a home keeps what was moved aside of a workspace.
pub fn place(home: &Path, workspace: &str) -> PathBuf {
    home.join(NAME).join(workspace)
}

/// What was moved aside of a workspace and is still there, oldest first.
pub fn list(home: &Path, workspace: &str) -> Vec<PathBuf> {
    let Ok(entries) = place(home, workspace).read_dir() else {
        return Vec::new();
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// Moves what is in `from` to a new directory below `to`, or, where that is on another file system, to
/// one beside `from`. Gives that directory; none where there was nothing.
///
/// # Errors
/// What could not be moved stays where it is; the rest was moved.
pub fn take(from: &Path, to: &Path) -> io::Result<Option<PathBuf>> {
    let mut entries = from.read_dir()?.peekable();
    if entries.peek().is_none() {
        return Ok(None);
    }
    let mut target = fresh(to)?;
    for entry in entries {
        let entry = entry?;
        match std::fs::rename(entry.path(), target.join(entry.file_name())) {
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                // Nothing was moved yet: all of it is on one file system.
                std::fs::remove_dir(&target)?;
                target = fresh(&beside(from))?;
                std::fs::rename(entry.path(), target.join(entry.file_name()))?;
            }
            done => done?,
        }
    }
    Ok(Some(target))
}

/// A name beside a directory.
fn beside(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".aside");
    PathBuf::from(name)
}

/// A new directory below `parent`, named by the time.
fn fresh(parent: &Path) -> io::Result<PathBuf> {
    let mut make = std::fs::DirBuilder::new();
    make.mode(0o700);
    make.recursive(true).create(parent)?;
    make.recursive(false);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis());
    for n in 0..TRIES_MAX {
        let dir = parent.join(format!("{millis}-{n}"));
        match make.create(&dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_moved_and_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let (from, home) = (dir.path().join("from"), dir.path().join("home"));
        std::fs::create_dir(&from).unwrap();
        assert_eq!(take(&from, &place(&home, "w")).unwrap(), None);
        assert_eq!(list(&home, "w"), Vec::<PathBuf>::new());
        let mut moved = Vec::new();
        for round in ["one", "two"] {
            std::fs::create_dir_all(from.join("dir/sub")).unwrap();
            std::fs::write(from.join("dir/sub/file"), round).unwrap();
            std::fs::write(from.join(".hidden"), round).unwrap();
            let to = take(&from, &place(&home, "w")).unwrap().unwrap();
            assert_eq!(
                std::fs::read(to.join("dir/sub/file")).unwrap(),
                round.as_bytes()
            );
            assert!(to.join(".hidden").exists());
            assert_eq!(from.read_dir().unwrap().count(), 0);
            moved.push(to);
        }
        moved.sort();
        assert_eq!(list(&home, "w"), moved);
    }
}
