//! Directories in memory that a sandbox has for itself, or together with the others of its session.
//!
//! They are in one file system, which has half of the machine's memory at most. Invariant: it is mounted in the sandboxes
//! that show it and nowhere else, so the kernel lets go of it with the last of them.

use crate::error::{Doing, Result};
use crate::reach::{self, Namespaces};
use crate::{pieces, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitOptions, waitpid};
use std::path::{Path, PathBuf};

/// Where they are, and their names in the file system.
const DIRECTORIES: [(&str, &str); 3] = [
    ("/tmp", "tmp"),
    ("/var/tmp", "var-tmp"),
    (SHARED_MEMORY, "shm"),
];
/// TMPFS_MAGIC (statfs(2)).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
/// Where shm_open(3) looks.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The directories as detached mounts, each with where it belongs.
pub type Directories = Vec<(&'static str, OwnedFd)>;

/// Whether what is placed at one of these paths takes the place of one of the directories: then they are not another
/// sandbox's to have.
pub fn are_replaced_by<'a>(mut at: impl Iterator<Item = &'a Path>) -> bool {
    let named = DIRECTORIES.map(|(dir, _)| PathBuf::from(dir));
    let real = named.iter().filter_map(|dir| dir.canonicalize().ok());
    let all: Vec<PathBuf> = real.chain(named.iter().cloned()).collect();
    at.any(|at| all.iter().any(|dir| dir.starts_with(at)))
}

/// Makes new ones. Their file system stays mounted at `/tmp`, where something else is placed later.
pub(crate) fn made() -> Result<Directories> {
    let root = Path::new("/tmp");
    pieces::memory(root, 0o755)?;
    let one = |(at, name)| {
        let path = root.join(name);
        let doing = || format!("making {at}");
        std::fs::create_dir(&path).doing(doing)?;
        // Whatever the mask is.
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o1777)).doing(doing)?;
        Ok((
            at,
            pieces::with(pieces::take(&path, false)?, pieces::HARMLESS, &path)?,
        ))
    };
    DIRECTORIES.into_iter().map(one).collect()
}

/// Those of a sandbox that stands. A process of its own enters it, and hands them over.
pub(crate) fn of(namespaces: &Namespaces) -> Result<Directories> {
    let doing = || "taking the directories in memory of another run".to_owned();
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).doing(doing)?;
    let Some(child) = sys::fork().doing(doing)? else {
        let sent = namespaces.enter().and_then(|()| {
            DIRECTORIES.iter().try_for_each(|(at, _)| {
                let at = Path::new(at);
                let tree = pieces::with(pieces::take(at, false)?, pieces::HARMLESS, at)?;
                reach::send(there.as_fd(), tree.as_fd()).doing(doing)
            })
        });
        sys::exit(i32::from(sent.is_err()));
    };
    drop(there);
    let one = |(at, _)| match reach::received(here.as_fd()) {
        Ok(Some(tree)) => Ok((at, tree)),
        Ok(None) => Err(Errno::IO).doing(doing),
        Err(errno) => Err(errno).doing(doing),
    };
    let taken: Result<Directories> = DIRECTORIES.into_iter().map(one).collect();
    drop(here);
    while let Err(Errno::INTR) = waitpid(Some(child), WaitOptions::empty()) {}
    let taken = taken?;
    match are_in_one_memory(&taken).doing(doing)? {
        true => Ok(taken),
        // It does not stand yet, or somebody else has the process's number.
        false => Err(Errno::STALE).doing(doing),
    }
}

/// Whether directories are in one file system in memory, which this process does not see: what it sees there is the
/// machine's.
fn are_in_one_memory(directories: &Directories) -> rustix::io::Result<bool> {
    let mut devices = Vec::new();
    for (at, tree) in directories {
        let is_memory = rustix::fs::fstatfs(tree)?.f_type == TMPFS;
        let device = rustix::fs::fstat(tree)?.st_dev;
        let seen = rustix::fs::stat(*at).is_ok_and(|seen| seen.st_dev == device);
        if !is_memory || seen {
            return Ok(false);
        }
        devices.push(device);
    }
    devices.dedup();
    Ok(devices.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_never_shared() {
        let open = |at| (at, std::fs::File::open(at).unwrap().into());
        let machines: Directories = DIRECTORIES.iter().map(|(at, _)| open(*at)).collect();
        assert!(!are_in_one_memory(&machines).unwrap());
        assert!(!are_in_one_memory(&vec![("/nonexistent", open("/").1)]).unwrap());
    }

    #[test]
    fn what_is_around_one_of_them_replaces_it_and_what_is_in_it_does_not() {
        for (at, is) in [
            ("/tmp", true),
            ("/var", true),
            ("/dev/shm", true),
            ("/tmp/x", false),
            ("/srv", false),
        ] {
            let places = [Path::new("/nowhere"), Path::new(at)];
            assert_eq!(are_replaced_by(places.into_iter()), is, "{at}");
        }
    }
}
