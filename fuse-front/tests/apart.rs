//! A process that is killed while it waits for an answer of its own mount ends, if what waits is a thread that
//! has left the process's files.
//!
//! Needs /dev/fuse and the right to mount; without them it says so and passes.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use fuse_front::leave_files;
use fuse_front::wire::{Head, Layout, Request, Settled, decode};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, write};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use skip::{Want, skip};
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
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

/// What the smallest of mounts needs.
const SETTLED: Settled = Settled {
    flags: 0,
    max_readahead: 4096,
    max_background: 1,
    congestion_threshold: 1,
    max_write: 4096,
    max_pages: 1,
};

/// Mounts a device.
fn mounted(mountpoint: &Path) -> rustix::io::Result<OwnedFd> {
    let device = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("silent", mountpoint, "fuse", flags, &*options)?;
    Ok(device)
}

/// Serves a mount that never says how full it is.
fn serve(device: &OwnedFd) -> rustix::io::Result<()> {
    let mut message = Vec::with_capacity(1 << 16);
    loop {
        message.clear();
        read(device, spare_capacity(&mut message))?;
        let asked = decode(&message, Layout::default()).unwrap();
        let unique = asked.header.unique;
        match asked.request {
            Ok(Request::Init(_)) => {
                write(device, Head::settled(&SETTLED).finish(unique, 0, 0))?;
            }
            Ok(Request::Statfs) => {
                println!("{ASKED}");
                loop {
                    std::thread::park();
                }
            }
            _ => {
                let code = -Errno::NOSYS.raw_os_error();
                write(device, Head::default().finish(unique, code, 0))?;
            }
        }
    }
}

/// What the child does; nothing in the parent.
#[test]
fn child() {
    let Some(mountpoint) = std::env::var_os(MOUNT) else {
        return;
    };
    match mounted(Path::new(&mountpoint)) {
        Ok(device) => {
            std::thread::spawn(move || serve(&device).unwrap());
            let ask = move || {
                leave_files(None).unwrap();
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
