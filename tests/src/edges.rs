//! Calls at the edges of what a file system offers, always the same, and what each gave: as lines that two mounts
//! can be compared by.
//!
//! Left out of the lines is what no two mounts share: inode and device numbers, times that a clock gave, free space.

mod data;
mod names;
mod others;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Result;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Times before this were set by a call; a clock gave the others.
const CLOCK_BEGINS: i64 = 1_500_000_000;

/// What was called so far.
pub struct Script {
    dir: OwnedFd,
    lines: Vec<String>,
}

/// Makes all calls in a new directory `place`, and gives what they gave.
pub fn play(place: &Path) -> Vec<String> {
    std::fs::create_dir(place).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut script = Script {
        dir: rustix::fs::open(place, flags, Mode::empty()).unwrap(),
        lines: Vec::new(),
    };
    names::play(&mut script);
    data::play(&mut script);
    others::play(&mut script);
    script.lines
}

impl Script {
    /// Notes what a call gave.
    fn say(&mut self, what: &str, gave: impl Debug) {
        self.lines.push(format!("{what}: {gave:?}"));
    }

    /// Opens a file below.
    fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o644))
    }

    /// Makes an empty file that is open for both.
    fn make(&self, name: &str) -> OwnedFd {
        self.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)
            .unwrap()
    }

    /// Notes what stat says of a name.
    fn stat(&mut self, name: &str) {
        let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let seen = stat.map(|stat| seen(&stat));
        self.say(&format!("stat {}", short(name)), seen);
    }
}

/// What two mounts share of a stat.
fn seen(stat: &Stat) -> String {
    let time = |sec: i64, nsec: i64| match sec {
        CLOCK_BEGINS..4_000_000_000 => "now".to_owned(),
        _ => format!("{sec}.{nsec:09}"),
    };
    format!(
        "{:o} links {} owner {}:{} rdev {:x} size {} block {} atime {} mtime {}",
        stat.st_mode,
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_rdev,
        stat.st_size,
        stat.st_blksize,
        time(stat.st_atime, stat.st_atime_nsec as i64),
        time(stat.st_mtime, stat.st_mtime_nsec as i64),
    )
}

/// A name in a line.
fn short(name: &str) -> String {
    match name.len() {
        0..=40 => name.to_owned(),
        len => format!("{}... ({len})", &name[..8]),
    }
}
