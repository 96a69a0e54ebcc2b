//! The kernel's caches, on behalf of the engine: [`KernelCache`] over a mount.
//!
//! Every call here may wait for requests to be answered, so it must come from a control thread that
//! holds nothing a handler takes. Failures are logged: the mount is then gone or about to go.

use crate::announce::Announcer;
use crate::apart::Apart;
use crate::drain::Drain;
use crate::holders;
use crate::limits::{FLUSH_PASSES_MAX, REFRESH_WAIT_MAX};
use crate::transport::Notify;
use engine::types::{Announcement, KernelCache, NodeId};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, StatxFlags, openat2, statx};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The caches of one mount.
#[derive(Debug)]
pub(crate) struct MountCache {
    pub(crate) mountpoint: PathBuf,
    /// Device of the mount, to notice another one over it.
    pub(crate) dev: (u32, u32),
    /// By which the kernel is told.
    pub(crate) kernel: Arc<dyn Notify>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) announcer: Arc<Announcer>,
    /// Who asks the mount.
    pub(crate) apart: Apart,
}

impl KernelCache for MountCache {
    fn flush_dirty(&self) {
        let start = || {
            let (mountpoint, dev) = (self.mountpoint.clone(), self.dev);
            self.apart.run(move || start_writing(&mountpoint, dev))?
        };
        if let Err(error) = flush(&self.drain, start) {
            tracing::warn!(%error, "dirty mappings could not be flushed");
        }
    }

    fn inval_inode(&self, node: NodeId) {
        self.inval_inodes(&[node]);
    }

    fn inval_inodes(&self, nodes: &[NodeId]) {
        told("inode", self.kernel.inval_inodes(nodes));
    }

    fn inval_range(&self, node: NodeId, range: Range<u64>) {
        let both = i64::try_from(range.start).and_then(|at| {
            let len = i64::try_from(range.end.saturating_sub(range.start))?;
            Ok((at, len))
        });
        // Beyond what the kernel can name: all of it.
        let (at, len) = both.unwrap_or((0, 0));
        told("range", self.kernel.inval_range(node, at, len));
    }

    fn refresh_sizes(&self, paths: Vec<Vec<u8>>) -> Vec<Option<u64>> {
        let (mountpoint, dev, wanted) = (self.mountpoint.clone(), self.dev, paths.len());
        let ask = move || ask_sizes(&mountpoint, dev, &paths);
        let asked = self.apart.run_for(REFRESH_WAIT_MAX, ask);
        asked.and_then(|seen| seen).unwrap_or_else(|error| {
            tracing::warn!(%error, "the kernel cannot be made to ask for sizes");
            vec![None; wanted]
        })
    }

    fn wait_for_writers(&self, paths: Vec<Vec<u8>>) -> Vec<bool> {
        let (mountpoint, dev, wanted) = (self.mountpoint.clone(), self.dev, paths.len());
        let wait = move || await_writers(&mountpoint, dev, &paths);
        let waited = self.apart.run_for(REFRESH_WAIT_MAX, wait);
        waited.and_then(|over| over).unwrap_or_else(|error| {
            tracing::warn!(%error, "writers that a switch met cannot be waited for");
            vec![false; wanted]
        })
    }

    fn inval_entry(&self, parent: NodeId, name: &[u8]) {
        self.inval_entries(&[(parent, name)]);
    }

    fn inval_entries(&self, names: &[(NodeId, &[u8])]) {
        told("entry", self.kernel.inval_entries(names));
    }

    fn inval_all_entries(&self) -> bool {
        self.kernel.inval_all_entries().is_ok()
    }

    fn open_files(&self) -> HashSet<u64> {
        holders::open_files(self.dev)
    }

    fn announce(&self, changes: Vec<Announcement>) {
        self.announcer.announce(&self.mountpoint, self.dev, changes);
    }
}

fn told(what: &str, outcome: Result<(), Errno>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, what, "invalidation failed");
    }
}

/// Writes back all dirty pages of a mount: has the kernel send them, by `start`, and waits for what is still
/// being handled then, again until that brings none.
fn flush(drain: &Drain, start: impl Fn() -> std::io::Result<()>) -> std::io::Result<()> {
    for _ in 0..FLUSH_PASSES_MAX {
        let before = drain.cached_writes();
        start()?;
        if !drain.wait() {
            return Err(std::io::Error::other("requests in progress did not end"));
        }
        if drain.cached_writes() == before {
            break;
        }
    }
    Ok(())
}

/// The root of the mount of device `dev`.
fn open_root(mountpoint: &Path, dev: (u32, u32)) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, flags, Mode::empty())?;
    let stat = statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    if (stat.stx_dev_major, stat.stx_dev_minor) != dev {
        return Err(std::io::Error::other("another mount covers it"));
    }
    Ok(root)
}

/// Has the kernel send what is dirty of the mount. `syncfs` starts all of that but does not wait for it; a STATFS
/// after it is read after all of it.
fn start_writing(mountpoint: &Path, dev: (u32, u32)) -> std::io::Result<()> {
    let root = open_root(mountpoint, dev)?;
    rustix::fs::syncfs(&root)?;
    rustix::fs::fstatvfs(&root)?;
    Ok(())
}

/// Has the kernel ask for the sizes of files, and gives what it takes them for then.
///
/// First GETATTR for each file: the kernel takes the size in without waiting for anybody. But it heeds no size
/// that it asked for while it wrote to the file, and an append that has looked up the end before, and has not
/// written yet, still goes there. So then SEEK_END for each ([`size_without_writers`]), which may take long.
fn ask_sizes(
    mountpoint: &Path,
    dev: (u32, u32),
    paths: &[Vec<u8>],
) -> std::io::Result<Vec<Option<u64>>> {
    let root = open_root(mountpoint, dev)?;
    let told: Vec<_> = paths.iter().map(|path| told_size(&root, path)).collect();
    let all = paths.iter().zip(told);
    let size = all.map(|(path, told)| match size_without_writers(&root, path).or(told) {
        Ok(size) => Some(size),
        Err(error) => {
            // It may have gone meanwhile, or lie where this user may not look.
            tracing::debug!(%error, path = %path.escape_ascii(), "the kernel was not made to ask");
            None
        }
    });
    Ok(size.collect())
}

/// Waits for those who write to files; false for a file that cannot be opened for that.
fn await_writers(
    mountpoint: &Path,
    dev: (u32, u32),
    paths: &[Vec<u8>],
) -> std::io::Result<Vec<bool>> {
    let root = open_root(mountpoint, dev)?;
    let over = |path: &Vec<u8>| {
        let end = size_without_writers(&root, path);
        if let Err(error) = &end {
            tracing::debug!(%error, path = %path.escape_ascii(), "writers cannot be waited for");
        }
        end.is_ok()
    };
    Ok(paths.iter().map(over).collect())
}

/// Opens what leaves the mount neither by a link nor by another mount.
fn open_within(root: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), within)
}

/// What the kernel takes a file's size for once it has asked for it, whoever writes to the file.
fn told_size(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<u64> {
    let file = open_within(root, path, OFlags::PATH)?;
    let size = |how| Ok(statx(&file, "", AtFlags::EMPTY_PATH | how, StatxFlags::SIZE)?.stx_size);
    size(AtFlags::STATX_FORCE_SYNC)?;
    size(AtFlags::STATX_DONT_SYNC)
}

/// What the kernel takes a file's size for while nobody writes to it. SEEK_END takes the lock under which the
/// kernel carries out a write(2) from beginning to end, looking up the end for an append included. It needs
/// the file open, of which watchers are told, and the right to read it.
fn size_without_writers(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<u64> {
    let file = open_within(root, path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    rustix::fs::seek(&file, SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_flush_waits_for_a_page_that_is_being_written() {
        let drain = Arc::new(Drain::default());
        let page = drain.enter();
        drain.count_cached_write();
        let flushing = std::thread::spawn({
            let drain = drain.clone();
            move || flush(&drain, || Ok(()))
        });
        while drain.waits() == 0 && !flushing.is_finished() {
            std::thread::yield_now();
        }
        assert!(!flushing.is_finished(), "the page is not in the tree yet");
        drain.leave(page);
        flushing.join().unwrap().unwrap();
    }

    #[test]
    fn a_flush_goes_on_until_the_kernel_sends_nothing() {
        let (drain, passes) = (Drain::default(), AtomicUsize::new(0));
        let start = || {
            if passes.fetch_add(1, Ordering::Relaxed) < 2 {
                let page = drain.enter();
                drain.count_cached_write();
                drain.leave(page);
            }
            Ok(())
        };
        flush(&drain, start).unwrap();
        assert_eq!(passes.into_inner(), 3);
    }
}
