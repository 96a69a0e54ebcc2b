//! Whether the base's path still leads to the directory that is open, and whether a directory is the one
//! that a workspace was started from.
//!
//! A project that is moved takes the open descriptor along: what is written through it lands where nobody
//! looks. A base that is not there has a stand-in: a [`Base`] that reads nothing and says why.

use super::Base;
use crate::error::{Error, Result};
use crate::types::Time;
use objstore::refs::RefStore;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Version of the record.
const VERSION: u16 = 1;
/// File systems on which a directory keeps its inode number and the time it was made at for as long as it
/// lives (statfs(2)): ext2 to ext4, XFS, btrfs, F2FS, ZFS, bcachefs, tmpfs.
const STEADY: [u64; 7] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x0102_1994,
];

/// What a directory is known by again. No device number: those change when a machine starts anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub(crate) struct BaseIdent {
    version: u16,
    ino: u64,
    /// When it was made, where the file system tells.
    born: Option<Time>,
}

fn ref_name(workspace: &str) -> String {
    format!("origin/{workspace}")
}

impl BaseIdent {
    /// Of the directory that a workspace was started from; `None` where that was not kept.
    pub fn load(refs: &RefStore, workspace: &str) -> Result<Option<BaseIdent>> {
        let name = ref_name(workspace);
        let Some(bytes) = refs.get(&name)? else {
            return Ok(None);
        };
        let damaged = |why: String| Error::Damaged {
            what: format!("the ref {name}"),
            why,
        };
        let ident: BaseIdent =
            objstore::codec::decode(&bytes).map_err(|e| damaged(e.to_string()))?;
        match ident.version {
            VERSION => Ok(Some(ident)),
            found => Err(damaged(format!("its version is {found}"))),
        }
    }

    /// Keeps it, durably.
    pub fn keep(&self, refs: &RefStore, workspace: &str) -> Result<()> {
        Ok(refs.set(&ref_name(workspace), &objstore::codec::encode(self))?)
    }

    /// Forgets what was kept.
    pub fn forget(refs: &RefStore, workspace: &str) -> Result<()> {
        refs.delete(&ref_name(workspace))?;
        Ok(())
    }

    /// Whether both are of one directory. Where the file system promises little, one sign is enough.
    fn is_of(&self, other: &BaseIdent, steady: bool) -> bool {
        let born = match (self.born, other.born) {
            (Some(a), Some(b)) => Some(a == b),
            _ => None,
        };
        let ino = self.ino == other.ino;
        match steady {
            true => ino && born != Some(false),
            false => ino || born == Some(true),
        }
    }
}

impl Base {
    /// Stands for the base at `path`, which cannot be used for this reason; `other` is any directory.
    pub(crate) fn stand_in(path: &Path, why: String, other: &Path) -> Result<Base> {
        let mut base = Base::open(other)?;
        path.clone_into(&mut base.path);
        base.missing = Some(why);
        Ok(base)
    }

    /// Why the base cannot be used, where it cannot.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// An error where this only stands for the base.
    pub(crate) fn check_there(&self) -> Result<()> {
        match &self.missing {
            None => Ok(()),
            Some(why) => Err(Error::BaseMissing {
                path: self.path.clone(),
                why: why.clone(),
            }),
        }
    }

    /// What the directory is known by again.
    pub(crate) fn ident(&self) -> Result<BaseIdent> {
        let found = status(self.root.as_fd(), "", AtFlags::EMPTY_PATH);
        let found = found.map_err(|e| self.error(b"", e))?;
        Ok(BaseIdent {
            version: VERSION,
            ino: found.ino,
            born: found.born,
        })
    }

    /// Whether this is the directory that `kept` is of.
    pub(crate) fn is(&self, kept: &BaseIdent) -> Result<bool> {
        let kind = fs::fstatfs(&self.root).map_err(|e| self.error(b"", e))?;
        Ok(self
            .ident()?
            .is_of(kept, STEADY.contains(&(kind.f_type as u64))))
    }

    /// An error where the base's path does not lead to the directory that is open. Where a mount of ours
    /// `covers` the path that is not looked into: only the directory's own name counts.
    pub(crate) fn check_place(&self, covers: bool) -> Result<()> {
        self.check_there()?;
        let now = self.name_now();
        if covers && now.as_ref() == Some(&self.path) {
            return Ok(());
        }
        let moved = |is_gone| {
            Err(Error::BaseMoved {
                path: self.path.clone(),
                is_gone,
                now: now.clone().filter(|now| *now != self.path),
            })
        };
        let open = status(self.root.as_fd(), "", AtFlags::EMPTY_PATH);
        let open = open.map_err(|e| self.error(b"", e))?;
        match status(fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.dev, there.ino) == (open.dev, open.ino) => Ok(()),
            // Opened beneath a dead mount it has no name that says anything; our new one is there.
            Ok(there) if covers && there.dev != open.dev => Ok(()),
            Ok(_) => moved(false),
            Err(Errno::NOENT | Errno::NOTDIR) => moved(true),
            Err(e) => Err(self.error(b"", e)),
        }
    }

    /// Where the open directory is now; `None` where it was deleted or that cannot be told.
    fn name_now(&self) -> Option<PathBuf> {
        let own = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        let name = fs::readlink(own, Vec::new()).ok()?.into_bytes();
        let links = fs::fstat(&self.root).ok()?.st_nlink;
        (links > 0).then(|| PathBuf::from(OsString::from_vec(name)))
    }
}

/// What tells directories apart.
struct Found {
    dev: u64,
    ino: u64,
    born: Option<Time>,
}

/// Looks without asking a file system that it has to wait for: the path may lead to a mount of ours.
fn status(
    dir: BorrowedFd<'_>,
    path: impl rustix::path::Arg,
    flags: AtFlags,
) -> Result<Found, Errno> {
    let flags = flags | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let s = fs::statx(dir, path, flags, StatxFlags::INO | StatxFlags::BTIME)?;
    let told = StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::BTIME);
    Ok(Found {
        dev: super::device(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
        born: told.then_some(Time {
            sec: s.stx_btime.tv_sec,
            nsec: s.stx_btime.tv_nsec,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(ino: u64, born: Option<i64>) -> BaseIdent {
        BaseIdent {
            version: VERSION,
            ino,
            born: born.map(|sec| Time { sec, nsec: 7 }),
        }
    }

    #[test]
    fn a_directory_is_known_again_and_another_is_not() {
        let a = made(5, Some(1));
        assert!(a.is_of(&a, true) && a.is_of(&made(5, None), true));
        assert!(
            !a.is_of(&made(5, Some(2)), true),
            "the number was given again"
        );
        assert!(!a.is_of(&made(6, Some(1)), true));
        assert!(a.is_of(&made(6, Some(1)), false) && a.is_of(&made(5, Some(2)), false));
        assert!(!a.is_of(&made(6, Some(2)), false) && !a.is_of(&made(6, None), false));
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_noticed_and_both_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("p"), dir.path().join("p.old"));
        std::fs::create_dir(&path).unwrap();
        let base = Base::open(&path).unwrap();
        base.check_place(false).unwrap();
        base.check_place(true).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        let error = base.check_place(true).unwrap_err();
        assert!(
            matches!(&error, Error::BaseMoved { is_gone: true, now: Some(now), .. } if *now == moved)
        );
        std::fs::create_dir(&path).unwrap();
        let error = base.check_place(false).unwrap_err().to_string();
        let named = |at: &Path| error.contains(&format!("{}", at.display()));
        assert!(named(&path) && named(&moved), "{error}");
        std::fs::remove_dir(&moved).unwrap();
        let error = base.check_place(false).unwrap_err();
        assert!(matches!(
            error,
            Error::BaseMoved {
                is_gone: false,
                now: None,
                ..
            }
        ));
    }

    #[test]
    fn a_stand_in_reads_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let base = Base::stand_in(&gone, "it is gone".into(), dir.path()).unwrap();
        assert_eq!(base.path(), gone);
        let root = super::super::BaseDir::root();
        let missing = |e: Error| matches!(e, Error::BaseMissing { .. });
        assert!(missing(base.read_dir(&root).unwrap_err()));
        assert!(missing(base.root_entry().unwrap_err()));
        assert!(missing(base.check_place(false).unwrap_err()));
    }
}
