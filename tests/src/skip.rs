//! Tests that cannot be run on this machine: why is printed, and noted for whoever counts them.
//!
//! A skipped test passes, so it must be seen by other means: with `AGENTVFS_SKIPPED=FILE` a line is added to FILE for
//! each, what it wants, its name and why, separated by tabs.

use std::fs::OpenOptions;
use std::io::Write;

/// What a test wants and does not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// `/dev/fuse`, and the right to mount.
    Fuse,
    /// To be run by root.
    Root,
    /// The program git.
    Git,
    /// The program make.
    Make,
    /// Something that a machine need not have.
    Machine,
}

impl Want {
    fn word(self) -> &'static str {
        match self {
            Want::Fuse => "fuse",
            Want::Root => "root",
            Want::Git => "git",
            Want::Make => "make",
            Want::Machine => "machine",
        }
    }
}

/// Says that the test of this thread is skipped.
pub fn skip(want: Want, why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os("AGENTVFS_SKIPPED") else {
        return;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let line = format!("{}\t{test}\t{}\n", want.word(), why.replace('\n', " "));
    // In one write, so that lines of tests beside each other do not mix.
    let opened = OpenOptions::new().append(true).create(true).open(file);
    if let Err(error) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("$AGENTVFS_SKIPPED cannot be written to: {error}");
    }
}
