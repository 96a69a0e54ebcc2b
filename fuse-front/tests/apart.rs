//! A process that is killed while it waits for an answer of its own mount ends, if what waits is a thread that
//! has left the process's files.
//!
//! Needs /dev/fuse and the right to mount; without them it says so and passes.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use fuse_front::leave_files;
use fuser::{Config, Filesystem, INodeNo, ReplyStatfs, Request};
use rustix::mount::{UnmountFlags, unmount};
use skip::{Want, skip};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the child is to mount.
const MOUNT: &str = "AGENTVFS_TEST_MOUNT";
/// What it says once it has read the request.
const ASKED: &str = "it was asked";
/// What it says where it cannot mount.
const REFUSED: &str = "it cannot mount";
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Never says how full it is.
struct Silent;

impl Filesystem for Silent {
    fn statfs(&self, _: &Request, _: INodeNo, _reply: ReplyStatfs) {
        println!("{ASKED}");
        loop {
            std::thread::park();
        }
    }
}

/// What the child does; nothing in the parent.
#[test]
fn child() {
    let Some(mountpoint) = std::env::var_os(MOUNT) else {
        return;
    };
    match fuser::spawn_mount(Silent, &mountpoint, &Config::default()) {
        Ok(_session) => {
            let ask = move || {
                leave_files().unwrap();
                rustix::fs::statvfs(Path::new(&mountpoint))
            };
            let _ = std::thread::spawn(ask).join();
        }
        Err(error) => println!("{REFUSED}: {error}"),
    }
}

/// What a child says, up to one of its two words.
fn said(child: &mut Child) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut words = lines.map_while(Result::ok);
    let word = words.find(|line| line.contains(ASKED) || line.contains(REFUSED));
    word.unwrap_or_default()
}

#[test]
fn a_process_that_is_killed_while_it_asks_its_own_mount_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(MOUNT, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let word = said(&mut child);
    child.kill().unwrap();
    let since = Instant::now();
    // It is not reaped before its last thread has ended.
    let mut ended = false;
    while !ended && since.elapsed() < WAIT_MAX {
        ended = child.try_wait().unwrap().is_some();
        std::thread::sleep(Duration::from_millis(10));
    }
    // By force: that ends a connection that nobody else would.
    let flags = UnmountFlags::DETACH | UnmountFlags::FORCE;
    let _ = unmount(dir.path(), flags);
    assert!(ended, "it does not end");
    if word.contains(REFUSED) {
        skip(Want::Fuse, &word);
        return;
    }
    assert!(word.contains(ASKED), "{word:?}");
}
