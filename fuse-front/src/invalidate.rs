//! The kernel's caches, on behalf of the engine: [`KernelCache`] over a mount.
//!
//! Every call here may wait for requests to be answered, so it must come from a control thread that
//! holds nothing a handler takes. Failures are logged: the mount is then gone or about to go.

use crate::announce::Announcer;
use crate::apart::Apart;
use crate::drain::Drain;
use crate::limits::FLUSH_PASSES_MAX;
use engine::types::{Announcement, KernelCache, NodeId};
use fuser::{INodeNo, Notifier};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// FUSE_NOTIFY_INC_EPOCH (linux/fuse.h): all names of the mount must be asked for again.
const NOTIFY_INC_EPOCH: i32 = 8;

/// The caches of one mount.
#[derive(Debug)]
pub(crate) struct MountCache {
    pub(crate) mountpoint: PathBuf,
    /// Device of the mount, to notice another one over it.
    pub(crate) dev: (u32, u32),
    pub(crate) notifier: Notifier,
    /// The device, for the notification that the FUSE library lacks.
    pub(crate) device: OwnedFd,
    pub(crate) drain: Arc<Drain>,
    pub(crate) announcer: Arc<Announcer>,
    /// Who asks the mount.
    pub(crate) apart: Apart,
}

impl KernelCache for MountCache {
    fn flush_dirty(&self) {
        for _ in 0..FLUSH_PASSES_MAX {
            let before = self.drain.cached_writes();
            if let Err(error) = self.flush_pass() {
                tracing::warn!(%error, "dirty mappings could not be flushed");
                return;
            }
            if self.drain.cached_writes() == before {
                return;
            }
        }
    }

    fn inval_inode(&self, node: NodeId) {
        log(self.notifier.inval_inode(INodeNo(node.0), 0, 0), "inode");
    }

    fn inval_entry(&self, parent: NodeId, name: &[u8]) {
        log(
            self.notifier
                .inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)),
            "entry",
        );
    }

    fn inval_all_entries(&self) -> bool {
        rustix::io::write(&self.device, &header_only(NOTIFY_INC_EPOCH)).is_ok()
    }

    fn announce(&self, changes: Vec<Announcement>) {
        self.announcer.announce(&self.mountpoint, self.dev, changes);
    }
}

impl MountCache {
    /// Writes back all dirty pages of the mount. `syncfs` starts all of that but does not wait for
    /// it; a STATFS after it is read after all of it; then what is still being handled is awaited.
    fn flush_pass(&self) -> std::io::Result<()> {
        let (mountpoint, dev) = (self.mountpoint.clone(), self.dev);
        self.apart.run(move || start_writing(&mountpoint, dev))??;
        match self.drain.wait() {
            true => Ok(()),
            false => Err(std::io::Error::other("requests in progress do not end")),
        }
    }
}

/// Has the kernel send what is dirty of the mount, and what it sent before that answered.
fn start_writing(mountpoint: &Path, dev: (u32, u32)) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, flags, Mode::empty())?;
    let stat = statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    if (stat.stx_dev_major, stat.stx_dev_minor) != dev {
        return Err(std::io::Error::other("another mount lies over it"));
    }
    rustix::fs::syncfs(&root)?;
    rustix::fs::fstatvfs(&root)?;
    Ok(())
}

/// A notification without content: length, code, and 0 for "no request".
fn header_only(code: i32) -> [u8; 16] {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&16u32.to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header
}

fn log(sent: std::io::Result<()>, what: &str) {
    if let Err(error) = sent {
        tracing::warn!(%error, what, "invalidation failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_has_the_kernels_layout() {
        let header = header_only(NOTIFY_INC_EPOCH);
        assert_eq!(&header[..8], [16, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(&header[8..], [0; 8]);
    }
}
