//! A tree: one persistent value that holds every inode of a branch at one moment, and its key-value
//! state.
//!
//! [`Tree::apply`] is the only function that carries out mutations, for live requests and for
//! recovery alike. It must never be given a mutation that was not validated (or recorded) before: it
//! then says [`Broken`] and may have changed half.

pub(crate) mod accessed;
pub mod acl;
mod apply;
pub mod away;
pub(crate) mod damage;
pub mod dirmap;
pub mod file;
mod from_end;
pub mod inode;
pub mod load;
pub(crate) mod lookups;
mod of_base;
pub mod patch;
pub mod radix;
mod recent;
mod sane;

use crate::error::{Error, Result};
use crate::kv::KvMap;
use crate::types::{Kind, Nid};
use damage::Damage;
use dirmap::Dentry;
use from_end::FromEnd;
use inode::{Dir, Inode};
use radix::Radix;
use radix::later::{BLOCK, Opening};
use std::sync::Arc;

pub use apply::{Broken, NewVersion};

/// Directories between the root and a path that is looked for upwards; more is a loop.
const DEPTH_MAX: usize = 1 << 20;

/// The persistent tree. Cloning is O(1).
///
/// Inodes of a tree that was read from a file are made when one of their block is first needed ([`Tree::set_block`]).
/// Invariant: those that are still to be made have names, hold no part of a journal, and nothing of the base.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    inodes: Radix<Inode>,
    /// Directories whose entries are away.
    away: usize,
    kv: KvMap,
    /// What could not be read of the files that it comes from.
    damage: Option<Arc<Damage>>,
}

/// Without keys; fastest where numbers ascend.
impl FromIterator<(Nid, Arc<Inode>)> for Tree {
    fn from_iter<I: IntoIterator<Item = (Nid, Arc<Inode>)>>(inodes: I) -> Tree {
        let mut away = 0;
        let inodes = inodes.into_iter().map(|(nid, inode)| {
            away += usize::from(inode.is_away());
            (nid.0, inode)
        });
        let inodes = inodes.collect();
        Tree {
            inodes,
            away,
            ..Tree::default()
        }
    }
}

impl Tree {
    /// A tree that holds only the given root directory.
    pub fn with_root(root: Inode) -> Tree {
        let mut tree = Tree::default();
        tree.set(Nid::ROOT, Arc::new(root));
        tree
    }

    /// Number of inodes, orphans included.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// True for a tree without even a root.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// True when both are the same value.
    pub fn same(&self, other: &Tree) -> bool {
        self.inodes.same(&other.inodes) && self.kv.same(&other.kv)
    }

    /// The key-value state.
    pub fn kv(&self) -> &KvMap {
        &self.kv
    }

    /// The key-value state, to change it.
    pub fn kv_mut(&mut self) -> &mut KvMap {
        &mut self.kv
    }

    /// An inode, if there is one of that number.
    pub fn get(&self, nid: Nid) -> Option<&Arc<Inode>> {
        self.inodes.get(nid.0)
    }

    /// An inode; [`Error::Stale`] where there is none, [`Error::Damaged`] where it may be that it cannot be read.
    pub fn inode(&self, nid: Nid) -> Result<&Arc<Inode>> {
        self.get(nid)
            .ok_or_else(|| self.check_whole().err().unwrap_or(Error::Stale))
    }

    /// An inode that need not be made first. All have a name that are still to be made.
    pub fn get_open(&self, nid: Nid) -> Option<&Arc<Inode>> {
        self.inodes.get_open(nid.0)
    }

    /// Has the inodes of a block be set over those that are there: at once, or when one of them is first needed. There will be
    /// `count`. Where a directory is away, or was in what is there, it must be at once.
    pub(crate) fn set_block(
        &mut self,
        block: u64,
        count: usize,
        opening: Opening<Inode>,
        at_once: bool,
    ) {
        let before = self.away_in(block);
        self.inodes.set_later(block, count, opening);
        if at_once {
            self.get(Nid(block * BLOCK));
        }
        self.away = self.away + self.away_in(block) - before;
    }

    /// How many directories of a block are away.
    fn away_in(&self, block: u64) -> usize {
        let nids = (0..BLOCK).map(|rest| Nid(block * BLOCK + rest));
        nids.filter(|nid| self.get_open(*nid).is_some_and(|i| i.is_away()))
            .count()
    }

    /// Whether no inode of a block is still to be made.
    pub(crate) fn is_block_open(&self, block: u64) -> bool {
        self.inodes.is_block_open(block)
    }

    /// How many inodes a block has.
    pub(crate) fn count_of_block(&self, block: u64) -> usize {
        self.inodes.count_of_block(block)
    }

    /// Where it will say what could not be read of its files.
    pub(crate) fn set_damage(&mut self, damage: Arc<Damage>) {
        self.damage = Some(damage);
    }

    /// # Errors
    /// `Damaged` where an inode that it should have could not be read.
    pub fn check_whole(&self) -> Result<()> {
        self.damage.as_ref().map_or(Ok(()), |damage| damage.check())
    }

    /// Makes all inodes that are still to be made and whose block has one of these, on all cores.
    pub fn open_those(&self, nids: impl Iterator<Item = Nid>) {
        self.inodes.open_those(nids.map(|nid| nid.0));
    }

    /// Makes all inodes that are still to be made, on all cores: to be called without locks before something under one
    /// visits them all.
    pub fn open(&self) {
        self.inodes.open();
    }

    /// A directory that still has a name (or is the root); [`Error::NotFound`] for a removed one.
    pub fn dir(&self, nid: Nid) -> Result<&Dir> {
        let inode = self.inode(nid)?;
        let dir = inode.dir().ok_or(Error::NotDir)?;
        if inode.nlink == 0 {
            Err(Error::NotFound)
        } else {
            Ok(dir)
        }
    }

    /// The entry of a name.
    pub fn lookup(&self, dir: Nid, name: &[u8]) -> Result<Dentry> {
        self.dir(dir)?.map.get(name).ok_or(Error::NotFound)
    }

    /// Sets an inode.
    pub fn set(&mut self, nid: Nid, inode: Arc<Inode>) {
        let is_away = inode.is_away();
        let before = self.inodes.insert(nid.0, inode);
        self.count_away(before.is_some_and(|i| i.is_away()), is_away);
    }

    /// Removes an inode.
    pub fn remove(&mut self, nid: Nid) -> Option<Arc<Inode>> {
        let before = self.inodes.remove(nid.0);
        self.count_away(before.as_ref().is_some_and(|i| i.is_away()), false);
        before
    }

    /// Changes an inode in place; `None` where there is none.
    pub fn update<R>(&mut self, nid: Nid, change: impl FnOnce(&mut Inode) -> R) -> Option<R> {
        let (result, was, is) = self.inodes.update(nid.0, |inode| {
            let was = inode.is_away();
            let result = change(inode);
            (result, was, inode.is_away())
        })?;
        self.count_away(was, is);
        Some(result)
    }

    fn count_away(&mut self, was: bool, is: bool) {
        self.away = (self.away + usize::from(is)).saturating_sub(usize::from(was));
    }

    /// Calls `each` for every inode in ascending order.
    pub fn for_each(&self, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        self.inodes.for_each(&mut |k, v| each(Nid(k), v));
    }

    /// As [`Tree::for_each`], without those that are still to be made.
    pub fn for_each_open(&self, each: &mut dyn FnMut(Nid, &Arc<Inode>)) {
        self.inodes.for_each_open(&mut |k, v| each(Nid(k), v));
    }

    /// Calls `each` for every inode that is not the same in both, with both. Keys: [`KvMap::diff`].
    pub fn diff<'a>(
        a: &'a Tree,
        b: &'a Tree,
        each: &mut dyn FnMut(Nid, Option<&'a Arc<Inode>>, Option<&'a Arc<Inode>>),
    ) {
        Radix::diff(&a.inodes, &b.inodes, &mut |k, x, y| each(Nid(k), x, y));
    }

    /// Inodes without a name that another tree does not have.
    pub fn nameless_since(&self, before: &Tree) -> Vec<Nid> {
        let mut nameless = Vec::new();
        Radix::diff_open(&before.inodes, &self.inodes, &mut |k, _, now| {
            if now.is_some_and(|inode| inode.nlink == 0) {
                nameless.push(Nid(k));
            }
        });
        nameless
    }

    /// Path of a name (parent, hash) of `nid`, without a leading slash; empty for the root. `None`
    /// where a link of the chain is gone.
    pub fn path_of_name(&self, nid: Nid, name: (Nid, u64)) -> Option<Vec<u8>> {
        self.path_up(nid, name, None)
    }

    /// Path of a name in a directory, whether there is one or not; `None` where the directory has no path.
    pub fn path_below(&self, dir: Nid, name: &[u8]) -> Option<Vec<u8>> {
        let inode = self.get(dir)?;
        if inode.nlink == 0 {
            return None;
        }
        self.path_up(dir, (inode.parent, inode.hash), Some(name))
    }

    /// Path of a name of an inode, with `last` behind it.
    fn path_up(&self, nid: Nid, name: (Nid, u64), last: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut path = FromEnd::new();
        last.into_iter().for_each(|last| path.push(last));
        let (mut nid, mut name) = (nid, name);
        for _ in 0..=DEPTH_MAX {
            if nid == Nid::ROOT {
                return Some(path.into_bytes());
            }
            let parent = self.get(name.0)?;
            path.push(parent.dir()?.map.name_of(name.1, nid)?);
            nid = name.0;
            name = (parent.parent, parent.hash);
        }
        None
    }

    /// Path of the inode's first name.
    pub fn path(&self, nid: Nid) -> Option<Vec<u8>> {
        let inode = self.get(nid)?;
        if inode.nlink == 0 {
            return None;
        }
        self.path_of_name(nid, (inode.parent, inode.hash))
    }

    /// The inode at a path without a leading slash.
    pub fn resolve(&self, path: &[u8]) -> Result<Nid> {
        let parts = path
            .split(|&b| b == b'/')
            .filter(|p| !p.is_empty() && *p != b".");
        parts
            .into_iter()
            .try_fold(Nid::ROOT, |dir, name| self.lookup(dir, name).map(|e| e.nid))
    }

    /// True where `dir` is `ancestor` or lies below it.
    pub fn is_within(&self, dir: Nid, ancestor: Nid) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == ancestor {
                return true;
            }
            match self.get(at) {
                Some(inode) if at != Nid::ROOT => at = inode.parent,
                _ => return false,
            }
        }
        false
    }

    /// Every inode with a name below (and with) `nid`, parents before children.
    pub fn subtree(&self, nid: Nid) -> Vec<Nid> {
        let mut out = vec![nid];
        let mut next = 0;
        while let Some(&at) = out.get(next) {
            next += 1;
            if let Some(dir) = self.get(at).and_then(|i| i.dir()) {
                dir.map.scan(0, &mut |e| {
                    out.push(e.entry.nid);
                    true
                });
            }
        }
        out
    }

    /// Directories whose entries were not read from the base yet.
    pub fn lazy_dirs(&self) -> Vec<Nid> {
        let mut out = Vec::new();
        self.for_each_open(&mut |nid, inode| {
            if inode.dir().is_some_and(|d| d.lazy.is_some()) {
                out.push(nid);
            }
        });
        out
    }

    /// Checks what must hold between inodes (for tests): counts, parents, types.
    pub fn check(&self) -> Result<(), String> {
        let mut named = std::collections::HashMap::<u64, (u32, u32)>::new();
        let mut wrong = Vec::new();
        self.for_each(&mut |nid, inode| {
            let Some(dir) = inode.dir() else { return };
            let mut subdirs = 0;
            for e in dir.map.entries() {
                match self.get(e.entry.nid) {
                    Some(child) if child.kind() == e.entry.kind => {
                        named.entry(e.entry.nid.0).or_default().0 += 1;
                        subdirs += u32::from(e.entry.kind == Kind::Dir);
                        if !child.names().contains(&(nid, e.hash)) {
                            wrong.push(format!("{} does not know its name in {nid}", e.entry.nid));
                        }
                    }
                    other => wrong.push(format!(
                        "{nid} names {} as {:?}, is {:?}",
                        e.entry.nid,
                        e.entry.kind,
                        other.map(|c| c.kind())
                    )),
                }
            }
            if subdirs != dir.subdirs {
                wrong.push(format!(
                    "{nid} has {subdirs} subdirectories, says {}",
                    dir.subdirs
                ));
            }
        });
        self.for_each(&mut |nid, inode| {
            let names = named.get(&nid.0).map_or(0, |n| n.0);
            let want = if nid == Nid::ROOT {
                inode.nlink.saturating_sub(1)
            } else {
                inode.nlink
            };
            if names != want {
                wrong.push(format!("{nid} has {names} names, nlink {}", inode.nlink));
            }
        });
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }
}
