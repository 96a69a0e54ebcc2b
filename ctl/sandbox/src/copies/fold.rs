//! Puts what one overlay's upper directory holds over what another one of the same lower directory holds.
//!
//! Each step is a rename, after which the two show the same together as before: a crash in between loses nothing, and
//! the next one goes on. Neither may be in use.

use super::files::{is_whiteout, kind, remove_tree};
use rustix::fs::{CWD, FileType, Stat, XattrFlags};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Overlayfs's mark of a directory that hides what is below it.
const OPAQUE: &str = "user.overlay.opaque";

/// Moves what is in the directory `from` into `to`, over what is there.
pub fn fold(from: &Path, to: &Path) -> io::Result<()> {
    for entry in from.read_dir()? {
        let name = entry?.file_name();
        let (new, old) = (from.join(&name), to.join(&name));
        let (Some(stat), there) = (look(&new)?, look(&old)?) else {
            continue;
        };
        let is_dir = |stat: &Stat| kind(stat) == FileType::Directory;
        match there {
            Some(there) if is_dir(&there) && is_dir(&stat) && !is_opaque(&new)? => {
                fold(&new, &old)?;
                std::fs::remove_dir(&new)?;
                continue;
            }
            Some(there) if is_dir(&there) => remove_tree(&old)?,
            // What it deleted is still deleted for what comes over it.
            Some(there) if is_whiteout(&there) && is_dir(&stat) => {
                set_opaque(&new)?;
                std::fs::remove_file(&old)?;
            }
            Some(_) if is_dir(&stat) => std::fs::remove_file(&old)?,
            _ => {}
        }
        std::fs::rename(&new, &old)?;
    }
    Ok(())
}

fn look(path: &Path) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        stat => Ok(Some(stat?)),
    }
}

fn is_opaque(path: &Path) -> io::Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::lgetxattr(path, OPAQUE, &mut value) {
        Ok(length) => Ok(length == 1 && value[0] == b'y'),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn set_opaque(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(
        path,
        OPAQUE,
        b"y",
        XattrFlags::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn whiteout(path: &Path) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, 0).unwrap();
    }

    #[test]
    fn what_is_newer_lies_over_what_is_older() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        for path in [
            "new/both",
            "old/both",
            "old/gone",
            "new/opaque",
            "old/opaque",
            "new/back",
        ] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for (path, text) in [
            ("new/both/f", "new"),
            ("old/both/f", "old"),
            ("old/both/g", "old"),
            ("old/gone/f", ""),
            ("new/opaque/f", "new"),
            ("old/opaque/g", "old"),
            ("new/back/f", "new"),
        ] {
            fs::write(dir.path().join(path), text).unwrap();
        }
        set_opaque(&new.join("opaque")).unwrap();
        whiteout(&new.join("gone"));
        whiteout(&old.join("back"));
        fold(&new, &old).unwrap();
        let text = |path: &str| fs::read_to_string(old.join(path)).unwrap();
        assert_eq!(
            (text("both/f"), text("both/g")),
            ("new".into(), "old".into())
        );
        assert_eq!(
            (text("opaque/f"), text("back/f")),
            ("new".into(), "new".into())
        );
        assert!(!old.join("opaque/g").exists() && is_opaque(&old.join("back")).unwrap());
        assert!(is_whiteout(&look(&old.join("gone")).unwrap().unwrap()));
        assert_eq!(new.read_dir().unwrap().count(), 0);
    }
}
