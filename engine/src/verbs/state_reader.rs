//! Looking into a state of a branch without a mount: a commit, the base, or the live tree.
//!
//! Paths count from the workspace's root. Symbolic links on the way are followed as long as they stay
//! in the workspace.

use super::DiffSide;
use crate::branch::Branch;
use crate::branch::pins::Pinned;
use crate::branch::states;
use crate::branch::states::Target;
use crate::error::{Error, Result};
use crate::limits::SYMLINKS_MAX;
use crate::tree::Tree;
use crate::tree::file::FileData;
use crate::tree::inode::{Content, Dir, Inode};
use crate::types::{Kind, Nid, Time, Wait};
use crate::verbs::branches;
use crate::verbs::diff;
use crate::workspace::Workspace;
use std::sync::Arc;

/// What is known of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The name in its directory; empty for the root.
    pub name: Vec<u8>,
    /// Type.
    pub kind: Kind,
    /// Permission bits with set-id and sticky.
    pub perm: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Length in bytes (of the target for a symbolic link; 0 for a directory).
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Number by which further names of the same inode are known; unique in the state.
    pub inode: u64,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A stretch of a file's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins: at the offset that was asked for, or behind the hole that is there.
    pub offset: u64,
    /// The bytes; none at the end of the file.
    pub bytes: Vec<u8>,
    /// Length of the whole file.
    pub size: u64,
}

/// One state of a branch, which stays as it is while this lives.
#[derive(Debug)]
pub struct StateReader {
    pinned: Pinned,
}

/// A view of one state.
pub(crate) fn read_side(branch: &Arc<Branch>, side: &DiffSide) -> Result<StateReader> {
    if *side == DiffSide::Live {
        branch.cache().flush_dirty();
        let pinned = branch.pin(|inner| Ok(inner.live.clone()))?;
        return Ok(StateReader { pinned });
    }
    let state = diff::state_of(branch, side)?;
    loop {
        // Loading it keeps it in the history, from where it is pinned unless it was let go of
        // in between.
        let tree = states::tree_of(branch, state)?;
        let kept = |inner: &crate::branch::Inner| inner.book.history.tree(state).cloned();
        let pinned = branch.pin(|inner| Ok(kept(inner).unwrap_or_default()))?;
        if !pinned.tree()?.is_empty() || tree.is_empty() {
            return Ok(StateReader { pinned });
        }
    }
}

/// A view of a tree that is in the store as a whole.
pub(crate) fn read_tree(branch: &Arc<Branch>, tree: &Tree) -> Result<StateReader> {
    let pinned = branch.pin(|inner| {
        let mut tree = tree.clone();
        inner.brought.catch_up(&mut tree);
        Ok(tree)
    })?;
    Ok(StateReader { pinned })
}

impl StateReader {
    /// The tree as it is kept now.
    pub(crate) fn tree(&self) -> Result<Tree> {
        self.pinned.tree()
    }

    /// Runs `body` on the tree, again where a directory had to be read first or data has moved.
    pub(crate) fn with<R>(&self, body: impl FnMut(&Tree) -> Result<R>) -> Result<R> {
        self.pinned.with(body)
    }

    /// Its branch.
    pub(crate) fn branch(&self) -> &Branch {
        &self.pinned.branch
    }

    /// What is known of a path; with `follow` of what a symbolic link there leads to.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<NodeInfo> {
        self.pinned.with(|tree| {
            let nid = find(tree, path, follow)?;
            Ok(node(last(path), nid, tree.inode(nid)?))
        })
    }

    /// The entries of a directory, by name.
    pub fn list(&self, path: &[u8]) -> Result<Vec<NodeInfo>> {
        self.pinned.with(|tree| {
            let dir = known_dir(tree, find(tree, path, true)?)?;
            let mut out = Vec::with_capacity(dir.map.len());
            for e in dir.map.entries() {
                out.push(node(e.name, e.entry.nid, tree.inode(e.entry.nid)?));
            }
            out.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(out)
        })
    }

    /// Up to `len` bytes of a file from `offset` on, holes skipped.
    pub fn read(&self, path: &[u8], offset: u64, len: usize) -> Result<Stretch> {
        self.pinned.with(|tree| {
            let inode = tree.inode(find(tree, path, true)?)?;
            let size = inode.size;
            let file = file_of(inode)?;
            // Only in a sparse file is it worth looking for holes.
            let found = match file.allocated(size) < size {
                true => self.pinned.branch.places.data_at(file, size, offset)?,
                false => Some(offset..size).filter(|r| !r.is_empty()),
            };
            let Some(range) = found else {
                return Ok(Stretch {
                    offset: size.max(offset),
                    bytes: Vec::new(),
                    size,
                });
            };
            let from = range.start.max(offset);
            let count = (range.end - from).min(len as u64) as usize;
            let mut bytes = vec![0; count];
            self.fill(file, from, &mut bytes)?;
            Ok(Stretch {
                offset: from,
                bytes,
                size,
            })
        })
    }

    /// Up to `len` bytes of a file from `offset` on, holes as zeros, and the file's length.
    pub fn read_plain(&self, path: &[u8], offset: u64, len: usize) -> Result<(Vec<u8>, u64)> {
        self.pinned.with(|tree| {
            let inode = tree.inode(find(tree, path, true)?)?;
            let left = inode.size.saturating_sub(offset).min(len as u64);
            let mut bytes = vec![0; left as usize];
            self.fill(file_of(inode)?, offset, &mut bytes)?;
            Ok((bytes, inode.size))
        })
    }

    /// Fills `buf` from `offset` of the file `nid`, which must be long enough.
    pub(crate) fn read_at(&self, nid: Nid, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.pinned.with(|tree| {
            let inode = tree.inode(nid)?;
            if offset + buf.len() as u64 > inode.size {
                return Err(Error::Stale);
            }
            self.fill(file_of(inode)?, offset, buf)
        })
    }

    fn fill(&self, file: &FileData, offset: u64, buf: &mut [u8]) -> Result<()> {
        let places = &self.pinned.branch.places;
        places.read(file, offset, buf, Wait::Allowed)
    }
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

fn file_of(inode: &Inode) -> Result<&FileData> {
    match &inode.content {
        Content::File(f) => Ok(f),
        Content::Dir(_) => Err(Error::IsDir),
        _ => Err(Error::Invalid),
    }
}

pub(super) fn known_dir(tree: &Tree, nid: Nid) -> Result<&Dir> {
    let dir = tree.dir(nid)?;
    if dir.is_lazy() {
        return Err(Error::NeedsDir(nid));
    }
    if dir.unreadable {
        return Err(Error::Access);
    }
    Ok(dir)
}

pub(super) fn node(name: &[u8], nid: Nid, inode: &Inode) -> NodeInfo {
    let target = match &inode.content {
        Content::Symlink(t) => Some(t.to_vec()),
        _ => None,
    };
    let xattrs = inode.xattrs.iter().flat_map(|x| x.iter());
    let attr = inode.attr(0, nid);
    NodeInfo {
        name: name.to_vec(),
        kind: inode.kind(),
        perm: inode.mode & 0o7777,
        nlink: attr.nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: if inode.dir().is_some() { 0 } else { attr.size },
        mtime: inode.mtime,
        inode: nid.0,
        target,
        xattrs: xattrs.map(|(k, v)| (k.clone(), v.clone())).collect(),
    }
}

/// The inode at a path; with `follow` what a symbolic link there leads to.
pub(crate) fn find(tree: &Tree, path: &[u8], follow: bool) -> Result<Nid> {
    // Directories from the root to where the walk is.
    let mut chain = vec![Nid::ROOT];
    let mut rest: Vec<Vec<u8>> = parts(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let here = chain.last().copied().unwrap_or(Nid::ROOT);
        match name.as_slice() {
            b"." => continue,
            b".." if chain.len() > 1 => {
                chain.pop();
                continue;
            }
            b".." => return Err(Error::LeadsOut(path.to_vec())),
            _ => {}
        }
        let entry = known_dir(tree, here)?
            .map
            .get(&name)
            .ok_or(Error::NotFound)?;
        if entry.kind != Kind::Symlink || (rest.is_empty() && !follow) {
            chain.push(entry.nid);
            continue;
        }
        links += 1;
        let Content::Symlink(target) = &tree.inode(entry.nid)?.content else {
            return Err(Error::Invalid);
        };
        if links > SYMLINKS_MAX {
            return Err(Error::LinkLoop(path.to_vec()));
        }
        if target.starts_with(b"/") {
            return Err(Error::LeadsOut(path.to_vec()));
        }
        rest.extend(parts(target));
    }
    Ok(chain.last().copied().unwrap_or(Nid::ROOT))
}

/// The components, the last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|b| *b == b'/').filter(|p| !p.is_empty());
    names.rev().map(<[u8]>::to_vec).collect()
}

/// A state to look into, which stays as it is meanwhile.
pub fn read_state(ws: &Workspace, branch: &str, side: &DiffSide) -> Result<StateReader> {
    let b = ws.branch(branch)?;
    let DiffSide::Ref(text) = side else {
        return read_side(&b, side);
    };
    let target = Target::Ref(text.clone());
    let is_own = text.split_once(':').is_none_or(|(of, _)| of == b.name());
    if is_own && states::resolve(&b, &target).is_ok() {
        // Nothing is taken in, so a checkpoint that waits for an import is not waited for.
        return read_side(&b, side);
    }
    let _one = b.control.lock();
    match branches::import_ref(ws, &b, &target)? {
        Target::Ref(text) => read_side(&b, &DiffSide::Ref(text)),
        _ => read_side(&b, side),
    }
}
