//! The file that teaches the kernel what it need not ask.
//!
//! The kernel stops sending OPEN, OPENDIR and FLUSH once it got ENOSYS to one of each. To have that
//! settled before any program comes (files created earlier would send RELEASE), the front opens one
//! file itself right after mounting. A tree may have no file, so one is made up: a name that exists
//! only while [`Probe`] is armed, is not listed, and that the kernel may not cache.

use crate::apart::Apart;
use crate::attr::blank_attr;
use fuser::{FileAttr, FileType, INodeNo, ReplyEntry};
use rustix::fs::{Mode, OFlags, open};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Name of the probe in the root directory.
const NAME: &str = ".agentvfs-probe";

/// Addresses from here on are made up: they lie in view slots that are never given out.
const MADE_UP: u64 = 1 << 62;

/// Address of the probe.
const NODE: INodeNo = INodeNo(MADE_UP | 1);

/// Whether the probe's name exists.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    armed: AtomicBool,
}

impl Probe {
    /// True if this LOOKUP is for the probe.
    pub(crate) fn wanted(&self, parent: INodeNo, name: &std::ffi::OsStr) -> bool {
        self.armed.load(SeqCst) && parent == INodeNo::ROOT && name == NAME
    }

    /// Opens the root directory and the probe below `mountpoint`, and closes them.
    pub(crate) fn prime(&self, apart: &Apart, mountpoint: &Path) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let look =
            |path: PathBuf, flags| apart.run(move || open(path, flags, Mode::empty()).map(drop));
        look(mountpoint.to_owned(), flags | OFlags::DIRECTORY)??;
        self.armed.store(true, SeqCst);
        let opened = look(mountpoint.join(NAME), flags);
        self.armed.store(false, SeqCst);
        Ok(opened??)
    }
}

/// True for the probe's address, which the engine does not know.
pub(crate) fn is_probe(node: INodeNo) -> bool {
    node == NODE
}

/// A made-up address that is not the probe's.
pub(crate) fn made_up(number: u64) -> INodeNo {
    INodeNo(MADE_UP + 2 + number)
}

/// True for addresses that the engine does not know.
pub(crate) fn is_made_up(node: INodeNo) -> bool {
    node.0 >= MADE_UP
}

/// Answers a LOOKUP of the probe: it exists, but the name must be asked for again.
pub(crate) fn answer_lookup(reply: ReplyEntry) {
    reply.entry_with_nodeid(
        NODE,
        &Duration::ZERO,
        &probe_attr(),
        crate::serve::GENERATION,
    );
}

/// An empty file of the daemon's own user, so that opening it needs no permission check by ACL.
pub(crate) fn probe_attr() -> FileAttr {
    FileAttr {
        perm: 0o400,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..blank_attr(NODE, FileType::RegularFile)
    }
}
