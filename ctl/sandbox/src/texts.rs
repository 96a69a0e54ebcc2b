//! Files that the sandbox's user owns, with bytes that the caller gives.
//!
//! Invariant: they lie in a file system of their own, which is seen nowhere but at their places, and in which nothing can be
//! written once they are there.

use crate::error::{Doing, Result};
use crate::pieces::{READ_ONLY, memory, take, with};
use crate::plan::{PathRule, What};
use rustix::fd::OwnedFd;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where they are made; what is there is covered meanwhile.
const AT: &str = "/tmp";

/// The files of a plan as detached mounts, each with its place. This process must be alone with its mounts.
pub fn texts(places: &[PathRule]) -> Result<Vec<(PathBuf, OwnedFd)>> {
    let text = |place: &PathRule| match &place.what {
        What::Text(text) => Some((place.at.clone(), text.clone())),
        _ => None,
    };
    let all: Vec<(PathBuf, Vec<u8>)> = places.iter().filter_map(text).collect();
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let dir = Path::new(AT);
    memory(dir, 0o755)?;
    let made = all.into_iter().enumerate();
    let made: Result<Vec<(PathBuf, OwnedFd)>> = made
        .map(|(number, (at, text))| Ok((at, made_at(&dir.join(number.to_string()), &text)?)))
        .collect();
    unmount(dir, UnmountFlags::DETACH).doing(|| format!("leaving {AT}"))?;
    made
}

fn made_at(path: &Path, text: &[u8]) -> Result<OwnedFd> {
    let doing = || "making a file of the user's".to_owned();
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o444);
    let mut file = options.open(path).doing(doing)?;
    file.write_all(text).doing(doing)?;
    with(
        take(path, false)?,
        READ_ONLY | libc::MOUNT_ATTR_NOEXEC,
        path,
    )
}
