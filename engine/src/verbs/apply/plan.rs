//! What has to be done to the base: the difference of two trees as steps in an order that works.

use super::scan::{Scan, join};
use crate::error::{Error, Result};
use crate::merge::Root;
use crate::stored::store::UNREADABLE;
use crate::types::mode;
use objstore::{Body, Meta, ObjectStore, TreeEntry, TreeId, diff_trees};
use std::collections::{BTreeMap, BTreeSet};

/// Extended attributes that only a privileged process sets, or that give privileges.
const PRIVILEGED_XATTRS: [&[u8]; 2] = [b"security.", b"trusted."];
const SET_ID_BITS: u32 = 0o6000;

/// A file to be written.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub path: Vec<u8>,
    pub entry: TreeEntry,
    /// Something that is no directory has the path now.
    pub replaces: bool,
}

/// New attributes of a directory.
#[derive(Clone, Debug)]
pub(super) struct DirMeta {
    pub path: Vec<u8>,
    /// Attributes now; `None` for a directory that is made.
    pub old: Option<Meta>,
    pub new: Meta,
}

/// All changes, each list in the order in which it is carried out, the lists as they stand here.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Files that go.
    pub removes: Vec<Vec<u8>>,
    /// Directories that go, the deepest first.
    pub rmdirs: Vec<Vec<u8>>,
    /// Directories that are made, parents first.
    pub mkdirs: Vec<Vec<u8>>,
    pub puts: Vec<Put>,
    /// Directories whose attributes change, or whose entries do, the deepest first.
    pub dirs: Vec<DirMeta>,
    /// Attributes now of all directories that are touched, those that go too: the way back.
    pub before: Vec<(Vec<u8>, Meta)>,
    /// What could not be read in the base and is left alone.
    pub left_alone: Vec<Vec<u8>>,
}

impl Plan {
    /// True where nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.removes.is_empty()
            && self.rmdirs.is_empty()
            && self.mkdirs.is_empty()
            && self.puts.is_empty()
            && self.dirs.is_empty()
    }

    /// Paths that only a caller who says so may write: set-id bits, devices, capabilities, owners other
    /// than this process and than what the base has there.
    pub fn privileged(&self, scan: &Owners) -> Vec<Vec<u8>> {
        let is_odd = |put: &&Put| {
            let meta = &put.entry.meta;
            let kind = meta.mode & mode::FMT;
            let file = matches!(put.entry.body, Body::File(_));
            let device = kind == mode::CHR || kind == mode::BLK;
            let xattr = |(name, _): &(Vec<u8>, Vec<u8>)| {
                PRIVILEGED_XATTRS
                    .iter()
                    .any(|start| name.starts_with(start))
            };
            (file && meta.mode & SET_ID_BITS != 0)
                || device
                || meta.xattrs.iter().any(xattr)
                || !scan.has(meta)
        };
        let files = self.puts.iter().filter(is_odd).map(|put| &put.path);
        let dirs = self.dirs.iter().filter(|dir| {
            let same = |old: &Meta| (old.uid, old.gid) == (dir.new.uid, dir.new.gid);
            !scan.has(&dir.new) && !dir.old.as_ref().is_some_and(same)
        });
        files.chain(dirs.map(|dir| &dir.path)).cloned().collect()
    }
}

/// Whose files are nothing special: those of this process, and of whom the base belongs to.
#[derive(Debug)]
pub(super) struct Owners {
    pub ours: u32,
    pub base: u32,
}

impl Owners {
    fn has(&self, meta: &Meta) -> bool {
        meta.uid == self.ours || meta.uid == self.base
    }
}

struct Work {
    path: Vec<u8>,
    from: Option<TreeId>,
    to: Option<TreeId>,
}

/// What makes `to` of the base as scanned.
pub(super) fn plan(store: &ObjectStore, scan: &Scan, to: &Root) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut metas: BTreeMap<Vec<u8>, DirMeta> = BTreeMap::new();
    if scan.root.meta != to.meta {
        metas.insert(Vec::new(), dir_meta(b"", Some(&scan.root.meta), &to.meta));
    }
    let mut work = vec![Work {
        path: Vec::new(),
        from: scan.root.tree,
        to: to.tree,
    }];
    while let Some(dir) = work.pop() {
        let mut changes: Vec<(Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
        diff_trees(store, dir.from, dir.to, &mut |a, b| {
            changes.push((a.cloned(), b.cloned()));
            Ok(())
        })?;
        for (old, new) in changes {
            let name = old.as_ref().or(new.as_ref()).map_or(&b""[..], |e| &e.name);
            let path = join(&dir.path, name);
            entry(&mut plan, &mut metas, &mut work, path, old, new)?;
        }
    }
    touched_parents(store, scan, to, &mut plan, &mut metas)?;
    plan.removes.sort();
    plan.rmdirs.sort_by(|a, b| b.cmp(a));
    plan.mkdirs.sort();
    plan.puts.sort_by(|a, b| a.path.cmp(&b.path));
    plan.dirs = metas.into_values().rev().collect();
    Ok(plan)
}

fn dir_meta(path: &[u8], old: Option<&Meta>, new: &Meta) -> DirMeta {
    DirMeta {
        path: path.to_vec(),
        old: old.cloned(),
        new: new.clone(),
    }
}

fn entry(
    plan: &mut Plan,
    metas: &mut BTreeMap<Vec<u8>, DirMeta>,
    work: &mut Vec<Work>,
    path: Vec<u8>,
    old: Option<TreeEntry>,
    new: Option<TreeEntry>,
) -> Result<()> {
    let unreadable = |e: &Option<TreeEntry>| {
        let marked = |e: &TreeEntry| e.meta.xattrs.iter().any(|(name, _)| name == UNREADABLE);
        e.as_ref().is_some_and(marked)
    };
    if unreadable(&old) || unreadable(&new) {
        plan.left_alone.push(path);
        return Ok(());
    }
    let tree = |e: &Option<TreeEntry>| match e.as_ref().map(|e| &e.body) {
        Some(Body::Dir(tree)) => Some(*tree),
        _ => None,
    };
    let (from, to) = (tree(&old), tree(&new));
    if from.is_some() || to.is_some() {
        work.push(Work {
            path: path.clone(),
            from: from.flatten(),
            to: to.flatten(),
        });
    }
    match (from.is_some(), to.is_some()) {
        (true, false) => plan.rmdirs.push(path.clone()),
        (false, true) => {
            plan.mkdirs.push(path.clone());
            if old.is_some() {
                plan.removes.push(path.clone());
            }
        }
        (false, false) if new.is_none() => plan.removes.push(path.clone()),
        _ => {}
    }
    match new {
        Some(new) if to.is_some() => {
            let before = old.as_ref().filter(|_| from.is_some()).map(|e| &e.meta);
            if before != Some(&new.meta) {
                metas.insert(path.clone(), dir_meta(&path, before, &new.meta));
            }
        }
        Some(entry) => plan.puts.push(Put {
            path,
            entry,
            replaces: old.is_some() && from.is_none(),
        }),
        None => {}
    }
    Ok(())
}

/// Directories whose entries change get their time set again.
fn touched_parents(
    store: &ObjectStore,
    scan: &Scan,
    to: &Root,
    plan: &mut Plan,
    metas: &mut BTreeMap<Vec<u8>, DirMeta>,
) -> Result<()> {
    let puts = plan.puts.iter().map(|put| &put.path);
    let names = plan.removes.iter().chain(&plan.rmdirs).chain(&plan.mkdirs);
    let parents: BTreeSet<&[u8]> = names.chain(puts).map(|path| parent_of(path)).collect();
    let mut before: BTreeMap<Vec<u8>, Meta> = BTreeMap::new();
    for parent in parents {
        let (old, new) = match parent {
            b"" => (Some(scan.root.meta.clone()), Some(to.meta.clone())),
            _ => (
                dir_at(store, scan.root.tree, parent)?,
                dir_at(store, to.tree, parent)?,
            ),
        };
        if let Some(new) = new.filter(|_| !metas.contains_key(parent)) {
            metas.insert(parent.to_vec(), dir_meta(parent, old.as_ref(), &new));
        }
        before.extend(old.map(|old| (parent.to_vec(), old)));
    }
    let changed = metas
        .values()
        .filter_map(|dir| Some((dir.path.clone(), dir.old.clone()?)));
    before.extend(changed);
    plan.before = before.into_iter().collect();
    Ok(())
}

/// The entry at a path of a tree.
pub(super) fn entry_at(
    store: &ObjectStore,
    root: Option<TreeId>,
    path: &[u8],
) -> Result<Option<TreeEntry>> {
    let mut tree = root;
    let mut found = None;
    for name in path.split(|byte| *byte == b'/') {
        let Some(id) = tree else { return Ok(None) };
        found = objstore::tree_entry(store, id, name)?;
        tree = match found.as_ref().map(|entry| &entry.body) {
            Some(Body::Dir(tree)) => *tree,
            _ => None,
        };
    }
    Ok(found)
}

fn dir_at(store: &ObjectStore, root: Option<TreeId>, path: &[u8]) -> Result<Option<Meta>> {
    let entry = entry_at(store, root, path)?;
    Ok(entry
        .filter(|e| matches!(e.body, Body::Dir(_)))
        .map(|e| e.meta))
}

/// The directory that a path is in.
pub(super) fn parent_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}

/// Fails where a caller who did not ask for it would write what needs privileges.
pub(super) fn check_privileges(plan: &Plan, owners: &Owners, privileged: bool) -> Result<()> {
    if privileged {
        return Ok(());
    }
    let paths = plan.privileged(owners);
    match paths.is_empty() {
        true => Ok(()),
        false => Err(Error::NeedsPrivilege { paths }),
    }
}
