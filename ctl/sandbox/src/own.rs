//! `/dev` and `/proc` of a sandbox.
//!
//! Invariant: what they show is the sandbox's own; of the machine they have a few devices that nobody can do harm with.

use crate::error::{Doing, Error, Result};
use crate::pieces::{attach, take, with};
use crate::private::SHARED_MEMORY;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mount::{MountFlags, mount};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Devices of the sandbox.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// The PID namespace's own `/proc`, as it is told.
pub const OWN_PROC: &str = "own-proc";

/// Takes the devices while they are seen.
pub fn take_devices() -> Result<Vec<(&'static str, OwnedFd)>> {
    let take = |name: &'static str| Ok((name, take(&Path::new("/dev").join(name), false)?));
    DEVICES.into_iter().map(take).collect()
}

/// Mounts a `/proc` of the PID namespace that this process is in.
pub fn mount_proc() -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let none: Option<&CStr> = None;
    mount(c"proc", "/proc", c"proc", flags, none)
}

/// The PID namespace's own `/proc`. Without one the machine's stays, read-only, which has these processes too; gives
/// why, if that may be.
pub fn own_proc(root: bool, may_lack: bool) -> Result<Vec<String>> {
    match mount_proc() {
        Ok(()) if root => restrict_proc(Path::new("/proc")).map(|()| Vec::new()),
        Ok(()) => Ok(Vec::new()),
        Err(errno) if may_lack => Ok(vec![format!("{OWN_PROC}: {errno}")]),
        Err(errno) => Err(Error::Lacking(format!("{OWN_PROC}: {errno}"))),
    }
}

/// What in a new `/proc` changes the machine is read-only for root, who owns it.
fn restrict_proc(at: &Path) -> Result<()> {
    let doing = || "making parts of /proc read-only".to_owned();
    for entry in std::fs::read_dir(at).doing(doing)? {
        let entry = entry.doing(doing)?;
        let name = entry.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if is_process {
            continue;
        }
        let meta = entry.metadata().doing(doing)?;
        // Files without any such bit have nothing behind them that writes.
        let is_writable = meta.is_dir() || meta.is_file() && meta.mode() & 0o222 != 0;
        if !is_writable {
            continue;
        }
        let path = entry.path();
        let tree = with(take(&path, false)?, libc::MOUNT_ATTR_RDONLY, &path)?;
        attach(tree.as_fd(), &path)?;
    }
    Ok(())
}

/// A `/dev` with what programs need and nothing of the machine.
pub fn own_devices(devices: Vec<(&'static str, OwnedFd)>, memory: Option<OwnedFd>) -> Result<()> {
    let at = Path::new("/dev");
    let doing = || "making /dev".to_owned();
    mount(c"tmpfs", at, c"tmpfs", MountFlags::NOSUID, c"mode=755").doing(doing)?;
    for (name, tree) in devices {
        let path = at.join(name);
        std::fs::write(&path, b"").doing(doing)?;
        attach(tree.as_fd(), &path)?;
    }
    for (name, to) in LINKS {
        std::os::unix::fs::symlink(to, at.join(name)).doing(doing)?;
    }
    std::fs::create_dir(at.join("pts")).doing(doing)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let data = c"newinstance,ptmxmode=0666,mode=620";
    mount(c"devpts", at.join("pts"), c"devpts", flags, data).doing(doing)?;
    std::fs::create_dir(at.join("shm")).doing(doing)?;
    memory.map_or(Ok(()), |tree| {
        attach(tree.as_fd(), Path::new(SHARED_MEMORY))
    })
}
