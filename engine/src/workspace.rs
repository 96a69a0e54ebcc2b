//! An open workspace: routes requests to the branch whose view they address, and serialises control.

use crate::branch::{Branch, drop_orphans};
use crate::control::{
    Change, CheckpointRequest, Checkpointed, DiffSide, LogEntry, Progress, RolledBack, Status,
    Target, differs,
};
use crate::error::{Error, Result};
use crate::record::OpKind;
use crate::types::*;
use objstore::CommitId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// How a workspace is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseMode {
    /// With an automatic commit of what differs from the head.
    Checkpoint,
    /// Without; the journal keeps what is not in a commit.
    NoCheckpoint,
}

/// What closing did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// The automatic commit, or the head where nothing had changed; `None` without a checkpoint.
    pub commit: Option<CommitId>,
    /// An automatic commit was made.
    pub new_commit: bool,
}

/// An open workspace.
#[derive(Debug)]
pub struct Workspace {
    name: String,
    base: PathBuf,
    root: PathBuf,
    author: String,
    main: Arc<Branch>,
    control: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workspace {
    /// Puts an opened branch to work.
    pub(crate) fn start(
        name: String,
        base: PathBuf,
        root: PathBuf,
        author: String,
        main: Branch,
    ) -> Result<Workspace> {
        let main = Arc::new(main);
        let threads = main.start_threads()?;
        Ok(Workspace {
            name,
            base,
            root,
            author,
            main,
            control: Mutex::new(()),
            threads: Mutex::new(threads),
        })
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Directory that it was started from.
    pub fn base(&self) -> &Path {
        &self.base
    }

    fn route(&self, node: NodeId) -> Result<(&Branch, Nid)> {
        if node.slot() == self.main.slot {
            Ok((&self.main, node.nid()))
        } else {
            Err(Error::Stale)
        }
    }

    /// Two nodes of one branch.
    fn route_both(&self, a: NodeId, b: NodeId) -> Result<(&Branch, Nid, Nid)> {
        let ((x, m), (y, n)) = (self.route(a)?, self.route(b)?);
        if std::ptr::eq(x, y) {
            Ok((x, m, n))
        } else {
            Err(Error::CrossDevice)
        }
    }

    /// The inode that a name stands for; counts a lookup of it.
    pub fn lookup(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<Attr> {
        let (b, nid) = self.route(parent)?;
        b.lookup(nid, name, wait)
    }

    /// The kernel forgets a node that was looked up `lookups` times.
    pub fn forget(&self, node: NodeId, lookups: u64) {
        if let Ok((b, nid)) = self.route(node) {
            b.forget(nid, lookups);
        }
    }

    /// Attributes of a node.
    pub fn getattr(&self, node: NodeId, wait: Wait) -> Result<Attr> {
        let (b, nid) = self.route(node)?;
        b.getattr(nid, wait)
    }

    /// Changes attributes; returns them all.
    pub fn setattr(&self, who: &Caller, node: NodeId, set: &SetAttr, wait: Wait) -> Result<Attr> {
        let (b, nid) = self.route(node)?;
        b.setattr(who, nid, set, wait)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        let (b, nid) = self.route(node)?;
        b.readlink(nid)
    }

    /// Calls `emit` for each entry after `cookie` (0: from the start) until it returns false; that
    /// entry comes again. With `plus`, entries have attributes and each that is taken counts a lookup.
    pub fn readdir(
        &self,
        dir: NodeId,
        cookie: u64,
        plus: bool,
        wait: Wait,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let (b, nid) = self.route(dir)?;
        b.readdir(nid, cookie, plus, wait, emit)
    }

    /// Makes a file, fifo, socket or device (`mode` with type bits); counts a lookup.
    pub fn mknod(
        &self,
        who: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        rdev: u32,
        wait: Wait,
    ) -> Result<Attr> {
        let (b, nid) = self.route(parent)?;
        b.mknod(who, nid, name, mode, rdev, wait)
    }

    /// Makes a directory; counts a lookup.
    pub fn mkdir(
        &self,
        who: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        wait: Wait,
    ) -> Result<Attr> {
        let (b, nid) = self.route(parent)?;
        b.mkdir(who, nid, name, mode, wait)
    }

    /// Makes a symbolic link; counts a lookup.
    pub fn symlink(
        &self,
        who: &Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
        wait: Wait,
    ) -> Result<Attr> {
        let (b, nid) = self.route(parent)?;
        b.symlink(who, nid, name, target, wait)
    }

    /// Gives an inode a further name; counts a lookup.
    pub fn link(&self, node: NodeId, parent: NodeId, name: &[u8], wait: Wait) -> Result<Attr> {
        let (b, nid, dir) = self.route_both(node, parent)?;
        b.link(nid, dir, name, wait)
    }

    /// Removes a name of something that is no directory.
    pub fn unlink(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(parent)?;
        b.unlink(nid, name, wait)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(parent)?;
        b.rmdir(nid, name, wait)
    }

    /// Moves a name.
    pub fn rename(
        &self,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: RenameFlags,
        wait: Wait,
    ) -> Result<()> {
        let (b, from, to) = self.route_both(parent, new_parent)?;
        b.rename((from, name), (to, new_name), flags, wait)
    }

    /// Reads up to `size` bytes; fewer at the end of the file.
    pub fn read(&self, node: NodeId, offset: u64, size: u32, wait: Wait) -> Result<Vec<u8>> {
        let (b, nid) = self.route(node)?;
        b.read(nid, offset, size, wait)
    }

    /// Writes all of `data`, or nothing.
    pub fn write(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        wait: Wait,
    ) -> Result<u32> {
        let (b, nid) = self.route(node)?;
        b.write(nid, offset, data, flags, wait)
    }

    /// Allocates, punches or zeroes a range.
    pub fn fallocate(
        &self,
        node: NodeId,
        offset: u64,
        len: u64,
        mode: Fallocate,
        wait: Wait,
    ) -> Result<()> {
        let (b, nid) = self.route(node)?;
        b.fallocate(nid, offset, len, mode, wait)
    }

    /// Finds data or holes (lseek(2)). May read a manifest from the disk.
    pub fn lseek(&self, node: NodeId, offset: u64, whence: Seek, _wait: Wait) -> Result<u64> {
        let (b, nid) = self.route(node)?;
        b.lseek(nid, offset, whence)
    }

    /// Shares a range of `src` with `dst`; returns how many bytes that were.
    pub fn copy_range(
        &self,
        src: NodeId,
        src_off: u64,
        dst: NodeId,
        dst_off: u64,
        len: u64,
        wait: Wait,
    ) -> Result<u64> {
        let (b, from, to) = self.route_both(src, dst)?;
        b.copy_range((from, src_off), (to, dst_off), len, wait)
    }

    /// Brings everything answered so far on the node's branch to stable storage. Waits for the disk.
    pub fn fsync(&self, node: NodeId) -> Result<()> {
        self.route(node)?.0.sync()
    }

    /// Figures of the file system that holds the store.
    pub fn statfs(&self) -> Result<StatFs> {
        let s = rustix::fs::statvfs(&self.root).map_err(|e| Error::Io {
            path: self.root.clone(),
            source: e.into(),
        })?;
        let entries = self.main.lock().live.len() as u64;
        Ok(StatFs {
            bsize: 4096,
            blocks: s.f_blocks * s.f_frsize / 4096,
            bfree: s.f_bfree * s.f_frsize / 4096,
            bavail: s.f_bavail * s.f_frsize / 4096,
            files: entries + s.f_ffree,
            ffree: s.f_ffree,
            namelen: crate::limits::NAME_BYTES_MAX as u32,
        })
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, node: NodeId, name: &[u8], _wait: Wait) -> Result<Vec<u8>> {
        let (b, nid) = self.route(node)?;
        b.getxattr(nid, name)
    }

    /// Names of all extended attributes, each ended by NUL.
    pub fn listxattr(&self, node: NodeId, _wait: Wait) -> Result<Vec<u8>> {
        let (b, nid) = self.route(node)?;
        b.listxattr(nid)
    }

    /// Sets an extended attribute; `flags` as setxattr(2) has them.
    pub fn setxattr(
        &self,
        _who: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        wait: Wait,
    ) -> Result<()> {
        let (b, nid) = self.route(node)?;
        b.setxattr(nid, name, value, flags, wait)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, _who: &Caller, node: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(node)?;
        b.removexattr(nid, name, wait)
    }

    /// Tells the engine who keeps the kernel's caches.
    pub fn set_kernel_cache(&self, cache: Arc<dyn KernelCache>) {
        self.main.set_cache(cache);
    }

    /// Tells the engine that nothing is mounted any more.
    pub fn unmounted(&self) {
        self.main.forget_kernel();
    }

    /// All branches.
    pub(crate) fn branches(&self) -> Vec<Arc<Branch>> {
        vec![self.main.clone()]
    }

    fn branch(&self, name: &str) -> Result<&Branch> {
        if name == self.main.name {
            Ok(&self.main)
        } else {
            Err(Error::NoSuchBranch(name.to_owned()))
        }
    }

    /// Makes a checkpoint; after `Ok` it survives a power cut.
    pub fn checkpoint(
        &self,
        branch: &str,
        req: CheckpointRequest,
        progress: Progress<'_>,
    ) -> Result<Checkpointed> {
        let _one = self.control.lock();
        self.branch(branch)?.checkpoint(&self.author, req, progress)
    }

    /// Sets the live tree to a commit; what was there becomes an automatic commit.
    pub fn rollback(&self, branch: &str, target: &Target) -> Result<RolledBack> {
        let _one = self.control.lock();
        self.branch(branch)?.rollback(&self.author, target)
    }

    /// What [`Workspace::rollback`] would change.
    pub fn rollback_plan(&self, branch: &str, target: &Target) -> Result<Vec<Change>> {
        let _one = self.control.lock();
        self.branch(branch)?.rollback_plan(target)
    }

    /// Takes the last rollback back.
    pub fn undo(&self, branch: &str) -> Result<RolledBack> {
        let _one = self.control.lock();
        self.branch(branch)?.undo(&self.author)
    }

    /// Takes the last undo back.
    pub fn redo(&self, branch: &str) -> Result<RolledBack> {
        let _one = self.control.lock();
        self.branch(branch)?.redo(&self.author)
    }

    /// Commits, the newest first; with `all` the automatic ones too.
    pub fn log(&self, branch: &str, all: bool) -> Result<Vec<LogEntry>> {
        Ok(self.branch(branch)?.log(all))
    }

    /// Differences between two sides, sorted by path.
    pub fn diff(
        &self,
        branch: &str,
        from: &DiffSide,
        to: &DiffSide,
        paths: &[Vec<u8>],
    ) -> Result<Vec<Change>> {
        let _one = self.control.lock();
        self.branch(branch)?.diff(from, to, paths)
    }

    /// How a branch is.
    pub fn status(&self, branch: &str) -> Result<Status> {
        Ok(self.branch(branch)?.status())
    }

    /// Waits until the import is done and every commit has its id (for tests and `stop`).
    pub fn settle(&self) -> Result<()> {
        self.main.store_pending()
    }

    /// Lets go of automatic commits that have expired by now.
    pub fn expire_now(&self, branch: &str) -> Result<()> {
        self.branch(branch)?.expire(crate::clock::now())
    }

    /// Folds the journal into the store now.
    pub fn seal(&self) -> Result<()> {
        self.main.seal()
    }

    /// Closes the workspace, after it was unmounted. On error it stays open, nothing is lost.
    pub(crate) fn close(&self, mode: CloseMode, progress: Progress<'_>) -> Result<Closed> {
        let _one = self.control.lock();
        let b = &self.main;
        let closed = match mode {
            CloseMode::Checkpoint => self.close_with_commit(progress)?,
            CloseMode::NoCheckpoint => Closed {
                commit: None,
                new_commit: false,
            },
        };
        b.sync()?;
        b.stop_threads(std::mem::take(&mut *self.threads.lock()));
        b.places.journal.mark_clean()?;
        Ok(closed)
    }

    fn close_with_commit(&self, progress: Progress<'_>) -> Result<Closed> {
        let b = &self.main;
        let head = b.lock().history.head;
        let before = b.tree_of(head)?;
        let (state, new_commit) = {
            let mut inner = b.lock();
            drop_orphans(&mut inner.live);
            if differs(&before, &inner.live) {
                let info = b.new_state(
                    &inner,
                    OpKind::Stop,
                    &self.author,
                    String::new(),
                    BTreeMap::new(),
                );
                (b.freeze(&mut inner, info, false, None)?, true)
            } else {
                (head, false)
            }
        };
        let commit = b.wait_for_id(state, progress)?;
        b.seal()?;
        Ok(Closed {
            commit: Some(commit),
            new_commit,
        })
    }
}
