//! The file that teaches the kernel what it need not ask.
//!
//! The kernel stops sending OPEN, OPENDIR and FLUSH once it got ENOSYS to one of each. To have that
//! settled before any program comes (files created earlier would send RELEASE), the front opens one
//! file itself right after mounting. A tree may have no file, so one is made up: a name that exists
//! only while [`Probe`] is armed, is not listed, and that the kernel may not cache.

use crate::apart::Apart;
use crate::wire::blank;
use engine::types::{Attr, Kind, NodeId};
use rustix::fs::{Mode, OFlags, open};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Name of the probe in the root directory.
const NAME: &str = ".agentvfs-probe";

/// Addresses from here on are made up: they lie in view slots that are never given out.
const MADE_UP: u64 = 1 << 62;

/// Address of the probe.
const NODE: NodeId = NodeId(MADE_UP | 1);

/// Whether the probe's name exists.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    armed: AtomicBool,
}

impl Probe {
    /// True if this LOOKUP is for the probe.
    pub(crate) fn wanted(&self, parent: NodeId, name: &[u8]) -> bool {
        self.armed.load(SeqCst) && parent == NodeId::ROOT && name == NAME.as_bytes()
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
pub(crate) fn is_probe(node: NodeId) -> bool {
    node == NODE
}

/// A made-up address that is not the probe's.
pub(crate) fn made_up(number: u64) -> NodeId {
    NodeId(MADE_UP + 2 + number)
}

/// True for addresses that the engine does not know.
pub(crate) fn is_made_up(node: NodeId) -> bool {
    node.0 >= MADE_UP
}

/// An empty file of the daemon's own user, so that opening it needs no permission check by ACL.
pub(crate) fn probe_attr() -> Attr {
    Attr {
        node: NODE,
        perm: 0o400,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..blank(NODE.0, Kind::File)
    }
}
