//! Mount points: which directories may be one, making them, and removing what was made.
//!
//! Invariant: nothing is made inside a base, and nothing is removed that was not made here or that is
//! not empty.

use crate::home::Home;
use crate::protocol::{Bytes, Fault};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Refuses a place that a workspace of `base` must not be mounted at, whatever is there.
pub fn check_place(place: &Path, base: &Path, home: &Home) -> Result<(), Fault> {
    if place == base {
        return Ok(());
    }
    let why = if place.starts_with(base) {
        "it lies inside the project's directory"
    } else if base.starts_with(place) {
        "the project's directory lies inside it"
    } else if home.root().starts_with(place) {
        "the agentvfs home lies inside it"
    } else if place.starts_with(home.root()) && !place.starts_with(home.mounts()) {
        "it lies inside the agentvfs home"
    } else {
        return Ok(());
    };
    Err(unusable(place, why))
}

/// Makes a directory ready to be mounted at: the base itself, an empty one, or one that does not
/// exist. A dead mount there is detached. Gives the directories that were made, outermost first.
pub fn prepare(place: &Path, base: &Path) -> Result<Vec<Bytes>, Fault> {
    detach_dead(place)?;
    if place == base {
        return Ok(Vec::new());
    }
    match place.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => Err(unusable(place, "it is not empty")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => make(place),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            Err(unusable(place, "it is not a directory"))
        }
        Err(e) => Err(unusable(place, &e.to_string())),
    }
}

/// Detaches a mount whose daemon died.
pub fn detach_dead(place: &Path) -> Result<(), Fault> {
    if !fuse_front::is_dead_mount(place) {
        return Ok(());
    }
    tracing::info!(place = %place.display(), "detaching a dead mount");
    fuse_front::detach_dead(place).map_err(|e| {
        let message = format!(
            "the dead mount at {} cannot be detached: {e}",
            place.display()
        );
        Fault::failed("dead-mount", message).hint(format!("umount -l {}", place.display()))
    })
}

fn make(place: &Path) -> Result<Vec<Bytes>, Fault> {
    let missing: Vec<PathBuf> = place
        .ancestors()
        .take_while(|dir| !dir.exists())
        .map(Path::to_owned)
        .collect();
    let mut made = Vec::new();
    for dir in missing.iter().rev() {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => made.push(Bytes::from(dir.as_path())),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                remove(&made);
                return Err(unusable(dir, &format!("it cannot be made: {e}")));
            }
        }
    }
    Ok(made)
}

/// Removes directories that were made, as far as they are empty.
pub fn remove(made: &[Bytes]) {
    for dir in made.iter().rev() {
        // Somebody may have put something in; then it is theirs.
        let _ = std::fs::remove_dir(dir.path());
    }
}

fn unusable(place: &Path, why: &str) -> Fault {
    Fault::failed(
        "bad-mount",
        format!("{} cannot be a mount point: {why}", place.display()),
    )
    .hint("give --mount an empty or new directory, or the project's directory itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_would_overlap_are_refused() {
        let home = Home::find(Some(Path::new("/h")), &|_| None).unwrap();
        let ok = |place: &str| check_place(Path::new(place), Path::new("/src/p"), &home).is_ok();
        for place in ["/src/p", "/src/q", "/src/p2", "/h/mnt/p", "/x"] {
            assert!(ok(place), "{place}");
        }
        for place in ["/src/p/m", "/src", "/", "/h/packs"] {
            assert!(!ok(place), "{place}");
        }
    }

    #[test]
    fn what_was_made_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        let made = prepare(&dir.path().join("a/b"), &base).unwrap();
        assert_eq!(made.len(), 2);
        remove(&made);
        assert!(!dir.path().join("a").exists());
        assert!(dir.path().exists());
        let made = prepare(&dir.path().join("a/b"), &base).unwrap();
        std::fs::write(dir.path().join("a/theirs"), "").unwrap();
        remove(&made);
        assert!(dir.path().join("a/theirs").exists());
    }

    #[test]
    fn only_empty_directories_are_covered() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(prepare(dir.path(), Path::new("/b")).unwrap(), []);
        std::fs::write(dir.path().join("f"), "").unwrap();
        assert!(prepare(dir.path(), Path::new("/b")).is_err());
        assert!(prepare(&dir.path().join("f"), Path::new("/b")).is_err());
        assert_eq!(prepare(dir.path(), dir.path()).unwrap(), []);
    }
}
