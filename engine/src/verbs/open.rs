//! Files of the live tree that are open by a handle, without the mount.
//!
//! A handle is to a file what a descriptor of the mount is: it stays usable when the file loses its name, and follows
//! it over renaming and rollback. Invariant: what it reads or writes is what a descriptor would at that moment. It is
//! stale once its workspace was closed or unmounted, or its branch deleted.

use super::state_reader::{find, node};
use super::write::{self, Made};
use super::{NodeInfo, announce, names};
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::ops;
use crate::types::{Caller, Kind, Nid, Wait};
use crate::workspace::Workspace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// How a file is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenAs {
    /// The file; symbolic links are followed.
    pub path: Vec<u8>,
    /// Make it where it does not exist.
    pub create: bool,
    /// With `create`: it must not exist, not even as a symbolic link.
    pub exclusive: bool,
    /// Its content goes.
    pub truncate: bool,
    /// Permission bits of a file that is made.
    pub perm: u32,
}

/// An open file. It is closed when this is dropped.
#[derive(Debug)]
pub struct OpenFile {
    branch: Weak<Branch>,
    nid: Nid,
    epoch: u64,
    /// It was written, and watchers have not heard of that.
    changed: AtomicBool,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(branch) = self.branch.upgrade() else {
            return;
        };
        self.tell(&branch);
        let mut inner = branch.lock();
        if inner.lookups.close(self.nid, self.epoch) {
            inner.reap(self.nid);
        }
    }
}

/// Opens a file of the live tree; gives what is known of it, too.
pub fn open_file(
    ws: &Workspace,
    branch: &str,
    who: &Caller,
    ask: &OpenAs,
) -> Result<(OpenFile, NodeInfo)> {
    let branch = ws.branch(branch)?;
    branch.cache().flush_dirty();
    let mut made = Vec::new();
    let opened = open_or_make(&branch, who, ask, &mut made);
    names::show_made(&branch, &made);
    let file = opened?;
    if ask.truncate && made.is_empty() {
        write::resize(&branch, who, file.nid, 0)?;
        file.changed.store(true, Ordering::Relaxed);
    }
    let info = file.known(&branch)?;
    Ok((file, info))
}

fn open_or_make(
    branch: &Arc<Branch>,
    who: &Caller,
    ask: &OpenAs,
    made: &mut Vec<Made>,
) -> Result<OpenFile> {
    let exclusive = ask.create && ask.exclusive;
    let found = match exclusive {
        true => Err(Error::NotFound),
        false => opened(branch, |tree| find(tree, &ask.path, true)),
    };
    match found {
        Err(Error::NotFound) if ask.create => {}
        other => return other,
    }
    let nid = match write::make_file(branch, who, (&ask.path, ask.perm), false, made) {
        // Somebody else was faster; where it is a link to nothing that is found again.
        Err(Error::Exists) if !exclusive => {
            return opened(branch, |tree| find(tree, &ask.path, true));
        }
        made => made?,
    };
    let file = opened(branch, |_| Ok(nid));
    // Making it counted a lookup, which nobody but this thread knows of.
    ops::names::forget(branch, nid, 1);
    file
}

/// Opens the file that `choose` finds, before it can go.
fn opened(
    branch: &Arc<Branch>,
    choose: impl Fn(&crate::tree::Tree) -> Result<Nid>,
) -> Result<OpenFile> {
    branch.request(Wait::Allowed, |inner| {
        let nid = choose(&inner.live)?;
        match inner.live.inode(nid)?.kind() {
            Kind::File => {}
            Kind::Dir => return Err(Error::IsDir),
            _ => return Err(Error::Invalid),
        }
        Ok(OpenFile {
            branch: Arc::downgrade(branch),
            nid,
            epoch: inner.lookups.open(nid),
            changed: AtomicBool::new(false),
        })
    })
}

impl OpenFile {
    /// Up to `len` bytes from `offset` on, holes as zeros, and the file's length.
    pub fn read(&self, ws: &Workspace, offset: u64, len: u32) -> Result<(Vec<u8>, u64)> {
        let branch = self.branch(ws)?;
        branch.cache().flush_dirty();
        let bytes = ops::data::read(&branch, self.nid, offset, len, Wait::Allowed)?;
        Ok((bytes, ops::attr::getattr(&branch, self.nid)?.size))
    }

    /// Writes at an offset, or at the file's end; gives the file's length afterwards.
    pub fn write(
        &self,
        ws: &Workspace,
        who: &Caller,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<u64> {
        let branch = self.branch(ws)?;
        branch.cache().flush_dirty();
        // Before: an append that is under way must not go over what is written here.
        write::doubts_size(&branch, self.nid);
        write::write_at(&branch, who, self.nid, offset, data)?;
        write::show_size(&branch, self.nid);
        self.changed.store(true, Ordering::Relaxed);
        Ok(ops::attr::getattr(&branch, self.nid)?.size)
    }

    /// Gives the file another length.
    pub fn resize(&self, ws: &Workspace, who: &Caller, size: u64) -> Result<()> {
        let branch = self.branch(ws)?;
        branch.cache().flush_dirty();
        write::resize(&branch, who, self.nid, size)?;
        self.changed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What is known of the file, without a name.
    pub fn stat(&self, ws: &Workspace) -> Result<NodeInfo> {
        let branch = self.branch(ws)?;
        branch.cache().flush_dirty();
        self.known(&branch)
    }

    /// Brings everything answered so far on the branch to stable storage.
    pub fn sync(&self, ws: &Workspace) -> Result<()> {
        let branch = self.branch(ws)?;
        branch.cache().flush_dirty();
        self.tell(&branch);
        branch.sync()
    }

    fn known(&self, branch: &Branch) -> Result<NodeInfo> {
        let inner = branch.lock();
        Ok(node(b"", self.nid, inner.live.inode(self.nid)?))
    }

    /// Its branch, while the file is open there.
    fn branch(&self, ws: &Workspace) -> Result<Arc<Branch>> {
        let branch = self.branch.upgrade().ok_or(Error::Stale)?;
        let is_there = ws.all_branches().iter().any(|b| Arc::ptr_eq(b, &branch));
        let is_open = branch.lock().lookups.is_open_since(self.epoch);
        match is_there && is_open {
            true => Ok(branch),
            false => Err(Error::Stale),
        }
    }

    /// Tells watchers that the file was written.
    fn tell(&self, branch: &Branch) {
        if self.changed.swap(false, Ordering::Relaxed) {
            announce::announce_changed(branch, self.nid);
        }
    }
}
