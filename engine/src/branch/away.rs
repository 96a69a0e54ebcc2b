//! Directories of a lazy workspace coming when they are looked into.
//!
//! The object is read first, which may wait for a remote, and under no lock. Then its entries get numbers, are journalled,
//! and come into all trees of the branch. Trees that are made meanwhile of older ones, without the lock, are brought up to
//! date when they are kept ([`Brought::catch_up`]).
//!
//! Tests: `engine/tests/away.rs`, `tests/tests/lazy.rs`.

use super::{Branch, Inner};
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{BroughtEntry, Event};
use crate::stored::load::inode_of_entry;
use crate::tree::Tree;
use crate::tree::away::Load;
use crate::tree::patch::{BaseDirs, inode_of, record_of};
use crate::types::{Nid, Time};
use objstore::{TreeEntry, TreeId, read_tree};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// Entries in one journal record (extended attributes can make one large).
const PART: usize = 32;

/// What came of away directories.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// In the order in which they came: what lies above others first.
    loads: Vec<Load>,
    known: HashSet<(Nid, TreeId)>,
    /// Inodes of hard-link groups, once that is needed.
    groups: Option<HashMap<u64, Nid>>,
    /// Some directory may still be away.
    pub is_any_away: bool,
}

impl Brought {
    /// For another view of the same trees.
    pub fn again(&self) -> Brought {
        Brought {
            is_any_away: self.is_any_away,
            ..Brought::default()
        }
    }

    /// Gives a tree that was made of an older one what came since.
    pub fn catch_up(&self, tree: &mut Tree) {
        for load in &self.loads {
            load.apply(std::iter::once(&mut *tree));
        }
    }
}

impl Inner {
    /// All names of every inode are known.
    pub fn knows_links(&self) -> bool {
        self.scan_done && !self.brought.is_any_away
    }

    /// Gives a directory its entries in all trees; gives inodes that have a further name now.
    pub fn bring(&mut self, load: Load) -> Vec<Nid> {
        if let Some(groups) = &mut self.brought.groups {
            let linked = load.inodes();
            groups.extend(linked.filter_map(|(nid, i)| Some((i.links.as_ref()?.group, nid))));
        }
        let relinked = load.apply(self.trees_mut().into_iter());
        if self.brought.known.insert(load.key()) {
            self.brought.loads.push(load);
        }
        relinked
    }

    /// The same of what a record says.
    pub fn bring_recorded(
        &mut self,
        (dir, id): (u64, TreeId),
        entries: &[BroughtEntry],
    ) -> std::result::Result<(), crate::tree::Broken> {
        let mut made = Vec::with_capacity(entries.len());
        for entry in entries {
            let inode = inode_of(&entry.inode, &mut BaseDirs::default())?;
            made.push((Nid(entry.nid), entry.name.clone(), inode));
        }
        self.bring(Load::new(Nid(dir), id, made));
        Ok(())
    }

    /// The objects that trees have under this number as an away directory.
    fn away(&mut self, nid: Nid) -> Vec<TreeId> {
        let trees = self.trees_mut();
        let mut ids: Vec<TreeId> = trees.iter().filter_map(|tree| tree.away(nid)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn all_away(&mut self) -> Vec<(Nid, TreeId)> {
        let trees = self.trees_mut();
        let mut all: Vec<_> = trees.iter().flat_map(|tree| tree.all_away()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn groups(&mut self) -> &mut HashMap<u64, Nid> {
        if self.brought.groups.is_none() {
            let mut groups = HashMap::new();
            for tree in self.trees_mut() {
                tree.for_each(&mut |nid, i| {
                    groups.extend(i.links.as_ref().map(|links| (links.group, nid)));
                });
            }
            self.brought.groups = Some(groups);
        }
        self.brought.groups.get_or_insert_default()
    }

    /// Gives numbers to the entries of a directory; further links of one file get the first's.
    fn number(
        &mut self,
        dir: Nid,
        entries: Vec<TreeEntry>,
        now: Time,
    ) -> Result<Vec<BroughtEntry>> {
        let mut out = Vec::with_capacity(entries.len());
        for entry in entries {
            let group = entry.meta.link_group;
            let known = match group {
                0 => None,
                group => self.groups().get(&group).copied(),
            };
            let counters = &mut self.book.counters;
            let nid = known.unwrap_or(Nid(counters.nid));
            counters.nid += u64::from(known.is_none());
            counters.ino += 1;
            if group != 0 {
                self.groups().insert(group, nid);
            }
            let inode = inode_of_entry(&entry, dir, self.book.counters.ino - 1, now)?;
            out.push(BroughtEntry {
                nid: nid.0,
                name: entry.name,
                inode: Box::new(record_of(&inode)),
            });
        }
        Ok(out)
    }
}

/// Brings the entries of a directory that trees have away; false where none has. Harmless where that was done meanwhile.
pub(crate) fn bring_dir(branch: &Branch, nid: Nid) -> Result<bool> {
    let ids = {
        let mut inner = branch.lock();
        match inner.brought.is_any_away {
            true => inner.away(nid),
            false => Vec::new(),
        }
    };
    for id in &ids {
        bring(branch, nid, *id)?;
    }
    Ok(!ids.is_empty())
}

/// Brings the entries of a directory whose object this is.
pub(crate) fn bring(branch: &Branch, nid: Nid, id: TreeId) -> Result<()> {
    let _pin = branch.places.store.pin();
    let mut entries = Vec::new();
    read_tree(&branch.places.store, Some(id), &mut |entry| {
        entries.push(entry);
        Ok(())
    })?;
    let _one = branch.loading.lock();
    let relinked = {
        let mut inner = branch.lock();
        if inner.brought.known.contains(&(nid, id)) {
            return Ok(());
        }
        let time = inner.trees_mut().into_iter().find_map(|tree| {
            let dir = tree.get(nid).filter(|_| tree.away(nid) == Some(id));
            dir.map(|dir| dir.ctime)
        });
        let entries = inner.number(nid, entries, time.unwrap_or_else(clock::now))?;
        if !branch.read_only {
            match record(branch, (nid, id), &entries) {
                // No record can follow that would need these numbers, and reading is to go on.
                Err(_) if branch.places.journal.poisoned().is_some() => {}
                recorded => recorded?,
            }
        }
        let mut made = Vec::with_capacity(entries.len());
        for BroughtEntry { nid, name, inode } in entries {
            let inode =
                inode_of(&inode, &mut BaseDirs::default()).map_err(|broken| Error::Damaged {
                    what: "a stored directory".into(),
                    why: broken.to_string(),
                })?;
            made.push((Nid(nid), name, inode));
        }
        inner.bring(Load::new(nid, id, made))
    };
    if !relinked.is_empty() {
        branch.stale.lock().extend(relinked);
        branch.wake.changed();
    }
    Ok(())
}

/// Journals the entries of a directory, in parts where they are many.
fn record(branch: &Branch, (dir, id): (Nid, TreeId), entries: &[BroughtEntry]) -> Result<()> {
    let mut rest = entries;
    loop {
        let (part, after) = rest.split_at(rest.len().min(PART));
        let event = Event::Brought {
            dir: dir.0,
            id,
            entries: part.to_vec(),
            more: !after.is_empty(),
        };
        branch.record(event, &[])?;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}

/// Brings all directories that are away: afterwards all names of every inode are known.
pub(crate) fn bring_all(branch: &Branch) -> Result<()> {
    loop {
        let all = {
            let mut inner = branch.lock();
            let all = inner.all_away();
            if all.is_empty() {
                inner.brought.is_any_away = false;
                return Ok(());
            }
            all
        };
        for (nid, id) in all {
            if branch.closing.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            bring(branch, nid, id)?;
        }
    }
}

/// Does what needs directories of trees of this branch, which are brought.
pub(crate) fn with_dirs<R>(branch: &Branch, mut work: impl FnMut() -> Result<R>) -> Result<R> {
    loop {
        match work() {
            Err(Error::NeedsDir(nid)) => super::load::load_dir(branch, nid)?,
            Err(Error::NeedsScan) if branch.lock().scan_done => bring_all(branch)?,
            done => return done,
        }
    }
}
