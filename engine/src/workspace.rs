//! An open workspace: routes requests to the branch whose view they address, and serialises control.

pub(crate) mod branch_refs;
pub(crate) mod branches;
mod closing;
pub(crate) mod keeper;
pub(crate) mod kept;
pub(crate) mod lazy;
pub(crate) mod only;
mod remote_views;
pub(crate) mod remotes;
pub(crate) mod untrusted;
pub(crate) mod uses;
pub(crate) mod views;

use crate::branch::auto;
use crate::branch::seal;
use crate::ops;
pub use closing::{CloseMode, Closed};

use crate::branch::Branch;
use crate::branch::shared::SharedParts;
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::judge::Judges;
use crate::limits::RESERVED_NAME;
use crate::types::*;
use crate::workspace::branches::Views;
use crate::workspace::keeper::Keeper;
use crate::workspace::only::Identity;
use crate::workspace::untrusted::Untrusted;
use crate::workspace::views::is_virtual;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is remembered of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// Name.
    pub name: String,
    /// Directory that it was started from.
    pub base: PathBuf,
    /// Mount point that was asked for, if one was.
    pub mount: Option<PathBuf>,
    /// When it was made.
    pub created: Time,
    /// Where it is meant to be mounted now; still set where its daemon died.
    pub running: Option<PathBuf>,
}

/// An open workspace.
#[derive(Debug)]
pub struct Workspace {
    name: String,
    base: PathBuf,
    root: PathBuf,
    author: String,
    pub(crate) main: Arc<Branch>,
    pub(crate) views: Arc<Views>,
    keeper: Keeper,
    /// Held while the base is written or read for a merge.
    pub(crate) applying: parking_lot::Mutex<()>,
    /// Branches that show what a command in a sandbox wrote.
    pub(crate) untrusted: Untrusted,
}

impl Workspace {
    /// Opens all branches of a workspace and puts them to work. `kept` is the connection by which it is still mounted,
    /// if it is.
    pub(crate) fn start(
        c: &WorkspaceConfig,
        root: PathBuf,
        author: String,
        shared: SharedParts,
        kept: Option<u64>,
    ) -> Result<Workspace> {
        let refs = shared.refs.clone();
        let views = Arc::new(Views::open(c.name.clone(), author.clone(), shared, kept)?);
        let names: Vec<String> = views.branches().iter().map(|b| b.name()).collect();
        let untrusted = Untrusted::load(refs, &c.name, &names)?;
        let all = views.clone();
        let keeper = Keeper::start(Arc::new(move || all.branches()), views.wake())?;
        Ok(Workspace {
            name: c.name.clone(),
            base: c.base.clone(),
            root,
            author,
            main: views.main(),
            views,
            keeper,
            applying: parking_lot::Mutex::new(()),
            untrusted,
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

    /// Another descriptor of the base's directory; `None` where the base is not there.
    pub fn base_directory(&self) -> Option<OwnedFd> {
        let base = &self.main.places.base;
        base.check_there().ok()?;
        base.root_fd().try_clone_to_owned().ok()
    }

    /// What happens in it, for those who follow that.
    pub fn feed(&self) -> Arc<Feed> {
        self.views.shared().feed.clone()
    }

    /// The rules that its changes are judged by.
    pub fn judges(&self) -> Arc<Judges> {
        self.views.shared().judges.clone()
    }

    /// The agentvfs home.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Who makes commits.
    pub(crate) fn author(&self) -> &str {
        &self.author
    }

    /// The branch (or snapshot) that a node belongs to. Nothing can be done with the directories of
    /// agentvfs itself but what has a case of its own.
    fn route(&self, node: NodeId) -> Result<(Arc<Branch>, Nid)> {
        if is_virtual(node) {
            return Err(Error::NotPermitted);
        }
        Ok((self.view(node.slot())?, node.nid()))
    }

    fn view(&self, slot: u16) -> Result<Arc<Branch>> {
        if slot == self.main.slot {
            Ok(self.main.clone())
        } else {
            self.views.by_slot(slot).ok_or(Error::Stale)
        }
    }

    /// Two nodes of one branch.
    fn route_both(&self, a: NodeId, b: NodeId) -> Result<(Arc<Branch>, Nid, Nid)> {
        let ((x, m), (y, n)) = (self.route(a)?, self.route(b)?);
        if Arc::ptr_eq(&x, &y) {
            Ok((x, m, n))
        } else {
            Err(Error::CrossDevice)
        }
    }

    /// The inode that a name stands for; counts a lookup of it.
    pub fn lookup(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<Attr> {
        if is_virtual(parent) || (parent.nid() == Nid::ROOT && name == RESERVED_NAME) {
            return self.lookup_virtual(parent, name, wait);
        }
        let (b, nid) = self.route(parent)?;
        ops::names::lookup(&b, nid, name, wait)
    }

    /// The kernel forgets a node that was looked up `lookups` times.
    pub fn forget(&self, node: NodeId, lookups: u64) {
        if is_virtual(node) {
            return self.views.virtual_forgotten(node, lookups);
        }
        match self.route(node) {
            Ok((b, nid)) => ops::names::forget(&b, nid, lookups),
            Err(_) => self.views.gone_forgotten(node, lookups),
        }
    }

    /// Attributes of a node.
    pub fn getattr(&self, node: NodeId) -> Result<Attr> {
        if is_virtual(node) {
            return self.virtual_attr(node);
        }
        let (b, nid) = self.route(node)?;
        ops::attr::getattr(&b, nid)
    }

    /// Changes attributes; returns them all.
    pub fn setattr(&self, who: &Caller, node: NodeId, set: &SetAttr, wait: Wait) -> Result<Attr> {
        let (b, nid) = self.route(node)?;
        ops::attr::setattr(&b, who, nid, set, wait)
    }

    /// Target of a symbolic link; that of `view` depends on who asks.
    pub fn readlink(&self, who: &Caller, node: NodeId) -> Result<Vec<u8>> {
        if is_virtual(node) {
            return self.virtual_link(who, node);
        }
        let (b, nid) = self.route(node)?;
        ops::names::readlink(&b, nid)
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
        if is_virtual(dir) {
            return self.list_virtual(dir, cookie, wait, emit);
        }
        let (b, nid) = self.route(dir)?;
        ops::list::readdir(&b, nid, cookie, plus, wait, emit)
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
        ops::names::mknod(&b, who, nid, name, mode, rdev, wait)
    }

    /// Makes a file without a name; counts a lookup. It goes when it is forgotten, unless [`Workspace::link`] gave it
    /// a name before.
    pub fn tmpfile(&self, who: &Caller, dir: NodeId, perm: u32, wait: Wait) -> Result<Attr> {
        let (b, nid) = self.route(dir)?;
        ops::names::tmpfile(&b, who, nid, perm, wait)
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
        ops::names::mkdir(&b, who, nid, name, mode, wait)
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
        ops::names::symlink(&b, who, nid, name, target, wait)
    }

    /// Gives an inode a further name, or one that never had any its first; counts a lookup.
    pub fn link(&self, node: NodeId, parent: NodeId, name: &[u8], wait: Wait) -> Result<Attr> {
        let (b, nid, dir) = self.route_both(node, parent)?;
        ops::names::link(&b, nid, dir, name, wait)
    }

    /// Removes a name of something that is no directory.
    pub fn unlink(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(parent)?;
        ops::names::unlink(&b, nid, name, wait)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(parent)?;
        ops::names::rmdir(&b, nid, name, By::Kernel, wait)
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
        ops::names::rename(&b, (from, name), (to, new_name), flags, By::Kernel, wait)
    }

    /// Reads up to `size` bytes; fewer at the end of the file.
    pub fn read(&self, node: NodeId, offset: u64, size: u32, wait: Wait) -> Result<Vec<u8>> {
        let (b, nid) = self.route(node)?;
        ops::data::read(&b, nid, offset, size, wait)
    }

    /// Reads into `buf`, and says how much; less than it holds at the end of the file. What is in `buf`
    /// after an error, or behind that length, has no meaning.
    pub fn read_into(
        &self,
        node: NodeId,
        offset: u64,
        buf: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        let (b, nid) = self.route(node)?;
        ops::data::read_into(&b, nid, offset, buf, wait)
    }

    /// Notes that a program reads a file; nothing where there is none.
    pub fn note_read(&self, node: NodeId) {
        if let Ok((b, nid)) = self.route(node) {
            ops::data::note_read(&b, nid);
        }
    }

    /// Writes `data`; gives how much of it, which is less only where the file reaches the longest length that
    /// one may have. On error nothing was written.
    pub fn write(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        wait: Wait,
    ) -> Result<u32> {
        let (b, nid) = self.route(node)?;
        let written = ops::data::write(&b, nid, offset, data, flags, wait);
        if b.read_only && flags.from_cache {
            // Stored through a mapping, into a page that others read.
            b.drop_pages(nid, offset..offset.saturating_add(data.len() as u64));
        }
        b.mend_later();
        written
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
        ops::data::fallocate(&b, nid, offset, len, mode, wait)
    }

    /// Finds data or holes (lseek(2)).
    pub fn lseek(&self, node: NodeId, offset: u64, whence: Seek, wait: Wait) -> Result<u64> {
        let (b, nid) = self.route(node)?;
        ops::data::lseek(&b, nid, offset, whence, wait)
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
        ops::data::copy_range(&b, (from, src_off), (to, dst_off), len, wait)
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
    pub fn getxattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        if is_virtual(node) {
            return Err(Error::NoData);
        }
        let (b, nid) = self.route(node)?;
        ops::xattr::getxattr(&b, nid, name)
    }

    /// Names of all extended attributes, each ended by NUL.
    pub fn listxattr(&self, node: NodeId) -> Result<Vec<u8>> {
        if is_virtual(node) {
            return Ok(Vec::new());
        }
        let (b, nid) = self.route(node)?;
        ops::xattr::listxattr(&b, nid)
    }

    /// Names of the extended attributes that `who` may see, each ended by NUL.
    pub fn listxattr_as(&self, who: &Caller, node: NodeId) -> Result<Vec<u8>> {
        if who.uid == 0 || is_virtual(node) {
            return self.listxattr(node);
        }
        let (b, nid) = self.route(node)?;
        ops::xattr::listxattr_of_others(&b, nid)
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
        ops::xattr::setxattr(&b, nid, name, value, flags, wait)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, _who: &Caller, node: NodeId, name: &[u8], wait: Wait) -> Result<()> {
        let (b, nid) = self.route(node)?;
        ops::xattr::removexattr(&b, nid, name, wait)
    }

    /// Tells the engine who keeps the kernel's caches.
    pub fn set_kernel_cache(&self, cache: Arc<dyn KernelCache>) {
        self.views.set_cache(cache);
    }

    /// Tells the engine that nothing is mounted any more.
    pub fn unmounted(&self) {
        self.views.unmounted();
    }

    pub(crate) fn all_branches(&self) -> Vec<Arc<Branch>> {
        self.views.branches()
    }

    pub(crate) fn branch(&self, name: &str) -> Result<Arc<Branch>> {
        let branch = self.views.by_name(name)?;
        let identity = || {
            let created = self.views.created().get(&branch.slot).copied()?;
            Some(Identity {
                number: branch.slot,
                created,
            })
        };
        match only::may_find(identity) {
            true => Ok(branch),
            false => Err(Error::NoSuchBranch(name.to_owned())),
        }
    }

    /// Waits until the import is done and every commit has its id (for tests and `stop`).
    pub fn settle(&self) -> Result<()> {
        let all = self.views.branches();
        all.iter().try_for_each(|b| seal::store_pending(b))
    }

    /// Lets go of automatic commits that have expired by now.
    pub fn expire_now(&self, branch: &str) -> Result<()> {
        auto::expire(self.branch(branch)?.as_ref(), crate::clock::now())
    }

    /// Folds the journals into the store now.
    pub fn seal(&self) -> Result<()> {
        self.views.branches().iter().try_for_each(|b| seal::seal(b))
    }
}
