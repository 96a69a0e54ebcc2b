//! What programs hold while the daemon is killed: open files, directories, mappings, locks, working directories.

#![allow(clippy::unwrap_used)]

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use tests::env::Env;
use tests::sys::{Mapping, RangeLock, try_lock};

/// An environment whose mounts outlive their daemons; none, with the reason printed, where that cannot be.
fn kept() -> Option<Env> {
    let mut env = Env::new()?;
    env.keep_mounts();
    Some(env)
}

#[test]
fn what_programs_hold_goes_on() {
    let Some(env) = kept() else { return };
    fs::write(env.path("project/base"), b"of the project").unwrap();
    let root = env.start();
    let (gone, dir) = (root.join("gone"), root.join("dir"));
    let open = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path).unwrap()
    };
    let mut held = open(&gone);
    held.write_all(b"held").unwrap();
    fs::remove_file(&gone).unwrap();
    fs::create_dir(&dir).unwrap();
    let inside = File::open(&dir).unwrap();
    let locked = open(&root.join("locked"));
    flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    let numbers = [&held, &inside, &locked].map(|f| f.metadata().unwrap().ino());
    for round in 0..5u64 {
        env.kill_daemon();
        held.seek(SeekFrom::Start(0)).unwrap();
        let mut read = String::new();
        held.read_to_string(&mut read).unwrap();
        assert_eq!(read, format!("held{}", "x".repeat(round as usize)));
        held.write_all(b"x").unwrap();
        let name = format!("{round}");
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::openat(&inside, name.as_str(), flags, mode).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count() as u64, round + 1);
        assert_eq!(fs::read(root.join("base")).unwrap(), b"of the project");
        let again = File::open(root.join("locked")).unwrap();
        assert!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err());
        assert_eq!(
            [&held, &inside, &locked].map(|f| f.metadata().unwrap().ino()),
            numbers
        );
        assert_eq!(env.workspace(&["status", "project"]).status, 0);
    }
    drop((held, inside, locked));
    env.workspace(&["stop"]).ok();
}

#[test]
fn mappings_locks_of_ranges_and_working_directories_go_on() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(root.join(name)).unwrap()
    };
    let ranged = open("ranged");
    lock_range(&ranged).unwrap();
    let stored = open("stored");
    stored.set_len(4096).unwrap();
    let mapping = Mapping::new(&stored, 1).unwrap();
    let mut shell = Shell::within(&dir);
    let place = dir.canonicalize().unwrap().display().to_string();
    for round in 1..=5 {
        mapping.word(0).store(round, Ordering::SeqCst);
        env.kill_daemon();
        assert_eq!(mapping.get(0), round);
        stored.sync_all().unwrap();
        assert!(lock_range(&open("ranged")).is_err());
        assert_eq!(shell.says("pwd -P"), place);
        assert_eq!(shell.says("echo x > a; x=$(cat a); rm a; echo $x"), "x");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
    drop((ranged, mapping, stored));
    shell.end();
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    let mut seen = [0; 8];
    open("stored").read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(u64::from_ne_bytes(seen), 5, "stored by the mapping");
}

/// A lock of fcntl(2) on a part of a file, which belongs to the descriptor.
fn lock_range(file: &File) -> io::Result<()> {
    let (of_open_file, exclusive) = (true, true);
    let lock = RangeLock {
        of_open_file,
        exclusive,
        start: 10,
        len: 5,
    };
    try_lock(file, lock)
}

/// A shell whose working directory is in the mount.
struct Shell {
    process: std::process::Child,
    out: io::BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn within(dir: &Path) -> Shell {
        let mut command = Command::new("sh");
        let command = command
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let out = io::BufReader::new(process.stdout.take().unwrap());
        Shell { process, out }
    }

    /// The line that a command prints.
    fn says(&mut self, command: &str) -> String {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}
