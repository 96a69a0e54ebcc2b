//! Locks and leases on files of the mount, between processes: they are the kernel's own.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tests::env::Env;

/// Another process that wants a lock.
struct Locker {
    child: Child,
    said: String,
}

impl Locker {
    fn new(how: &str, path: &Path) -> Locker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_locker"))
            .arg(how)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        Locker { child, said }
    }

    fn holds(&self) -> bool {
        self.said == "held\n"
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn locks_exclude_other_processes_until_their_holder_ends_or_dies() {
    let Some(env) = Env::new() else { return };
    let file = env.start().join("file");
    fs::write(&file, [0; 100]).unwrap();
    for how in ["flock", "process", "open-file"] {
        let first = Locker::new(how, &file);
        assert!(first.holds(), "{how}: {}", first.said);
        let second = Locker::new(how, &file);
        assert!(!second.holds(), "{how}: two hold it");
        first.end();
        let third = Locker::new(how, &file);
        assert!(third.holds(), "{how}, after its holder has ended");
        third.kill();
        let fourth = Locker::new(how, &file);
        assert!(fourth.holds(), "{how}, after its holder was killed");
        fourth.end();
    }
}

#[test]
fn locks_of_processes_and_of_open_files_exclude_one_another() {
    let Some(env) = Env::new() else { return };
    let file = env.start().join("file");
    fs::write(&file, [0; 100]).unwrap();
    let first = Locker::new("process", &file);
    assert!(first.holds());
    assert!(!Locker::new("open-file", &file).holds());
    assert!(Locker::new("flock", &file).holds(), "flock is apart");
    first.end();
}

#[test]
fn lease_keeps_a_writer_out_that_will_not_wait() {
    let Some(env) = Env::new() else { return };
    let file = env.start().join("file");
    fs::write(&file, "x").unwrap();
    let lease = Locker::new("lease", &file);
    assert!(lease.holds(), "{}", lease.said);
    // With O_NONBLOCK a break of the lease is told, not waited for (fcntl(2)).
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let open = || {
        OpenOptions::new()
            .write(true)
            .custom_flags(nonblock)
            .open(&file)
    };
    assert_eq!(open().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    lease.end();
    open().unwrap();
}
