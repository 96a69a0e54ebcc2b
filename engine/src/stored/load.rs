//! Stored directories becoming a tree again.
//!
//! [`load_tree`] builds the tree of a commit out of a reference, a tree that was stored before: only
//! directories that differ are read, and what they agree on keeps its inodes.

use crate::error::{Error, Result};
use crate::record::Counters;
use crate::stored::store::{Reference, UNREADABLE, meta_of};
use crate::tree::Tree;
use crate::tree::dirmap::{Dentry, DirMap};
use crate::tree::file::{Body, FileData};
use crate::tree::inode::{Content, Dir, Inode, Links, Xattrs};
use crate::types::{Kind, Nid, Time};
use objstore::content::FileContent;
use objstore::elsewhere::only_here;
use objstore::{Body as StoredBody, Meta, ObjectStore, TreeEntry, TreeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Gives numbers to inodes that come from the store.
pub trait Numbers {
    /// The next inode number within the branch, and the next shown one.
    fn next(&mut self) -> (Nid, u64);
}

impl Numbers for Counters {
    fn next(&mut self) -> (Nid, u64) {
        self.nid += 1;
        self.ino += 1;
        (Nid(self.nid - 1), self.ino - 1)
    }
}

/// Builds the tree whose root directory is `root` with attributes `meta` out of `reference`, whose
/// key-value state it keeps. `knows_links` says whether all trees of the branch know all names of every inode.
///
/// # Errors
/// `NeedsDir` and `NeedsScan` where directories that are away must be brought first.
pub fn load_tree(
    store: &ObjectStore,
    reference: &Reference,
    (root, meta): (Option<TreeId>, &Meta),
    numbers: &mut dyn Numbers,
    now: Time,
    knows_links: bool,
) -> Result<Reference> {
    let mut loader = Loader {
        store,
        before: &reference.tree,
        tree: reference.tree.clone(),
        knows_links,
        numbers,
        now,
        groups: HashMap::new(),
        index: None,
    };
    let have = reference.tree.inode(Nid::ROOT)?;
    if meta_of(have) != *meta {
        loader.set_meta(Nid::ROOT, meta);
    }
    let mut work = vec![(Nid::ROOT, reference.root, root)];
    while let Some((nid, from, to)) = work.pop() {
        loader.directory(nid, from, to, &mut work)?;
    }
    Ok(Reference {
        tree: loader.tree,
        root,
        kv: reference.kv,
    })
}

/// The tree whose root directory is `root` with attributes `meta`, of objects alone.
pub fn stored_tree(
    store: &ObjectStore,
    root: Option<TreeId>,
    meta: &Meta,
    numbers: &mut dyn Numbers,
    now: Time,
) -> Result<Reference> {
    let time = Time {
        sec: meta.mtime_sec,
        nsec: meta.mtime_nsec,
    };
    let empty = Inode {
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        nlink: 1,
        rdev: 0,
        ino: 1,
        size: 0,
        atime: time,
        mtime: time,
        ctime: now,
        parent: Nid::ROOT,
        hash: 0,
        links: None,
        xattrs: None,
        content: Content::Dir(Box::new(Dir::new(DirMap::default(), 0))),
    };
    let none = Reference {
        tree: Tree::with_root(empty),
        root: None,
        kv: None,
    };
    load_tree(store, &none, (root, meta), numbers, now, true)
}

/// As [`load_tree`] of a reference that is empty, with a root directory that is away.
pub fn away_tree(
    mut none: Reference,
    root: Option<TreeId>,
    meta: &Meta,
    now: Time,
) -> Result<Reference> {
    none.tree.inode(Nid::ROOT)?;
    none.tree.update(Nid::ROOT, |i| {
        set_meta_of(i, meta, now);
        if let Some(d) = i.dir_mut() {
            (d.stored, d.away) = (root, root.is_some());
        }
    });
    Ok(Reference { root, ..none })
}

/// The inode of an entry of an away directory, which has no other name yet. How much of a file is allocated is not looked
/// at, since that is in its manifest.
pub fn inode_of_entry(e: &TreeEntry, parent: Nid, ino: u64, now: Time) -> Result<Inode> {
    Kind::of_mode(e.meta.mode).ok_or_else(|| no_type(e))?;
    let time = Time {
        sec: e.meta.mtime_sec,
        nsec: e.meta.mtime_nsec,
    };
    let unreadable = e.meta.xattrs.iter().find(|(k, _)| k == UNREADABLE);
    let content = match &e.body {
        StoredBody::Dir(id) => {
            let mut d = Dir::new(DirMap::default(), 0);
            (d.stored, d.away, d.unreadable) = (*id, id.is_some(), unreadable.is_some());
            Content::Dir(Box::new(d))
        }
        StoredBody::Symlink(t) => Content::Symlink(t.as_slice().into()),
        StoredBody::None => Content::Special,
        StoredBody::File(c) => Content::File(data_of(
            c,
            unreadable.map(|(_, v)| v.as_slice()),
            FileContent::len,
        )),
    };
    let mut inode = Inode {
        mode: e.meta.mode,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        ino,
        size: match &content {
            Content::File(f) => f.body().1,
            _ => 0,
        },
        atime: time,
        mtime: time,
        ctime: now,
        parent,
        hash: crate::tree::dirmap::name_hash(&e.name),
        links: None,
        xattrs: None,
        content,
    };
    set_meta_of(&mut inode, &e.meta, now);
    Ok(inode)
}

fn no_type(e: &TreeEntry) -> Error {
    Error::Damaged {
        what: "a stored directory".into(),
        why: format!("entry {:?} has no type", String::from_utf8_lossy(&e.name)),
    }
}

fn set_meta_of(i: &mut Inode, meta: &Meta, now: Time) {
    i.mode = meta.mode;
    (i.uid, i.gid) = (meta.uid, meta.gid);
    i.mtime = Time {
        sec: meta.mtime_sec,
        nsec: meta.mtime_nsec,
    };
    i.rdev = meta.rdev as u32;
    i.ctime = now;
    let xattrs: Xattrs = meta
        .xattrs
        .iter()
        .filter(|(k, _)| k != UNREADABLE)
        .cloned()
        .collect();
    i.xattrs = (!xattrs.is_empty()).then(|| Arc::new(xattrs));
    if meta.link_group != 0 {
        let more = i
            .links
            .as_ref()
            .map_or_else(BTreeMap::new, |l| l.more.clone());
        i.links = Some(Arc::new(Links {
            group: meta.link_group,
            more,
        }));
    }
}

fn data_of(
    c: &FileContent,
    unreadable: Option<&[u8]>,
    alloc: impl Fn(&FileContent) -> u64,
) -> FileData {
    if let Some(size) = unreadable {
        let mut le = [0; 8];
        le.iter_mut().zip(size).for_each(|(a, b)| *a = *b);
        return FileData::new(Body::Unreadable, u64::from_le_bytes(le), 0);
    }
    if c.is_empty() {
        return FileData::default();
    }
    FileData::new(Body::Stored(*c), c.len(), alloc(c))
}

struct Loader<'a> {
    store: &'a ObjectStore,
    /// The reference's tree as it was.
    before: &'a Tree,
    tree: Tree,
    /// No directory of any tree of the branch is away, in which a hard link may have further names.
    knows_links: bool,
    numbers: &'a mut dyn Numbers,
    now: Time,
    /// Inode of each hard-link group that was met.
    groups: HashMap<u64, Nid>,
    /// Inodes of the reference's hard-link groups, once needed.
    index: Option<HashMap<u64, Nid>>,
}

type DirWork = Vec<(Nid, Option<TreeId>, Option<TreeId>)>;

impl Loader<'_> {
    fn directory(
        &mut self,
        nid: Nid,
        from: Option<TreeId>,
        to: Option<TreeId>,
        work: &mut DirWork,
    ) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if self.tree.away(nid).is_some() {
            return Err(Error::NeedsDir(nid));
        }
        let mut changes: Vec<(Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
        objstore::diff_trees(self.store, from, to, &mut |a, b| {
            changes.push((a.cloned(), b.cloned()));
            Ok(())
        })?;
        for (a, b) in changes {
            match (a, b) {
                (a, Some(b)) => self.put(nid, a.as_ref(), b, work)?,
                (Some(a), None) => self.drop_name(nid, &a.name)?,
                (None, None) => {}
            }
        }
        self.tree
            .update(nid, |i| i.dir_mut().map(|d| d.stored = to));
        Ok(())
    }

    fn put(
        &mut self,
        dir: Nid,
        old: Option<&TreeEntry>,
        new: TreeEntry,
        work: &mut DirWork,
    ) -> Result<()> {
        let here = self
            .tree
            .get(dir)
            .and_then(|i| i.dir())
            .and_then(|d| d.map.get(&new.name));
        let kind = Kind::of_mode(new.meta.mode).ok_or_else(|| no_type(&new))?;
        let grouped = new.meta.link_group != 0 || old.is_some_and(|o| o.meta.link_group != 0);
        if grouped && !self.knows_links {
            return Err(Error::NeedsScan);
        }
        let keep = here.filter(|e| e.kind == kind && !grouped);
        if let Some(e) = keep {
            self.fill(e.nid, old, &new, work);
            return Ok(());
        }
        if here.is_some() {
            self.drop_name(dir, &new.name)?;
        }
        if let Some(first) = self.group_inode(&new) {
            self.add_name(dir, &new.name, first, new.meta.link_group);
            return Ok(());
        }
        let nid = self.fresh(dir, &new);
        if new.meta.link_group != 0 {
            self.groups.insert(new.meta.link_group, nid);
        }
        self.fill(nid, None, &new, work);
        Ok(())
    }

    /// The inode that a further name of a hard-link group joins, if that is there already: met before,
    /// or in the reference with the same attributes and content.
    fn group_inode(&mut self, e: &TreeEntry) -> Option<Nid> {
        let group = e.meta.link_group;
        if group == 0 {
            return None;
        }
        if let Some(nid) = self.groups.get(&group) {
            return Some(*nid);
        }
        // Names go as the trees are compared, so a group is looked for as it was.
        let before = self.before;
        let index = self.index.get_or_insert_with(|| {
            let mut index = HashMap::new();
            before.for_each(&mut |nid, i| {
                if i.group() != 0 {
                    index.insert(i.group(), nid);
                }
            });
            index
        });
        let nid = *index.get(&group)?;
        self.tree.get(nid)?;
        let inode = before.get(nid)?;
        let same_body = match (&inode.content, &e.body) {
            (Content::File(f), StoredBody::File(c)) => *f == self.file_data(c, None),
            (Content::Symlink(t), StoredBody::Symlink(u)) => t[..] == u[..],
            (Content::Special, StoredBody::None) => true,
            _ => false,
        };
        let same = same_body && meta_of(inode) == e.meta;
        same.then(|| {
            self.groups.insert(group, nid);
            nid
        })
    }

    /// A new inode under a name.
    fn fresh(&mut self, dir: Nid, e: &TreeEntry) -> Nid {
        let (nid, ino) = self.numbers.next();
        let inode = Inode {
            mode: e.meta.mode,
            uid: 0,
            gid: 0,
            nlink: 0,
            rdev: 0,
            ino,
            size: 0,
            atime: Time {
                sec: e.meta.mtime_sec,
                nsec: e.meta.mtime_nsec,
            },
            mtime: Time::default(),
            ctime: self.now,
            parent: dir,
            hash: 0,
            links: None,
            xattrs: None,
            content: match e.body {
                StoredBody::Dir(_) => Content::Dir(Box::new(Dir::new(DirMap::default(), 0))),
                _ => Content::Special,
            },
        };
        self.tree.set(nid, Arc::new(inode));
        self.add_name(dir, &e.name, nid, e.meta.link_group);
        nid
    }

    fn add_name(&mut self, dir: Nid, name: &[u8], nid: Nid, group: u64) {
        let hash = crate::tree::dirmap::name_hash(name);
        let Some(kind) = self.tree.update(nid, |i| {
            i.add_name(dir, hash, group);
            i.kind()
        }) else {
            return;
        };
        self.tree.update(dir, |i| {
            if let Some(d) = i.dir_mut() {
                d.map.insert(name, Dentry { nid, kind });
                d.subdirs += u32::from(kind == Kind::Dir);
            }
        });
    }

    fn drop_name(&mut self, dir: Nid, name: &[u8]) -> Result<()> {
        let removed = self.tree.update(dir, |i| {
            let d = i.dir_mut()?;
            let e = d.map.remove(name)?;
            d.subdirs = d.subdirs.saturating_sub(u32::from(e.kind == Kind::Dir));
            Some(e)
        });
        let Some(Some(e)) = removed else {
            return Ok(());
        };
        if e.kind != Kind::Dir {
            return self.drop_names(e.nid, &[(dir, crate::tree::dirmap::name_hash(name))]);
        }
        // Directories of the subtree go first (parents before children), so that a file's names below
        // them can be told from names elsewhere.
        let below = self.tree.subtree(e.nid);
        let is_dir = |tree: &Tree, nid: Nid| tree.get(nid).is_some_and(|i| i.dir().is_some());
        let (dirs, files): (Vec<Nid>, Vec<Nid>) =
            below.into_iter().partition(|n| is_dir(&self.tree, *n));
        for nid in dirs {
            self.tree.remove(nid);
        }
        for nid in files {
            let names = self.tree.get(nid).map_or_else(Vec::new, |i| i.names());
            let gone: Vec<_> = names
                .into_iter()
                .filter(|(p, _)| self.tree.get(*p).is_none())
                .collect();
            self.drop_names(nid, &gone)?;
        }
        Ok(())
    }

    /// One of several names goes only once all are known.
    fn drop_names(&mut self, nid: Nid, names: &[(Nid, u64)]) -> Result<()> {
        if !self.knows_links && self.tree.get(nid).is_some_and(|i| i.links.is_some()) {
            return Err(Error::NeedsScan);
        }
        let left = self.tree.update(nid, |i| {
            names.iter().for_each(|(p, h)| i.drop_name(*p, *h));
            i.nlink
        });
        if left == Some(0) {
            self.tree.remove(nid);
        }
        Ok(())
    }

    fn set_meta(&mut self, nid: Nid, meta: &Meta) {
        let now = self.now;
        self.tree.update(nid, |i| set_meta_of(i, meta, now));
    }

    fn fill(&mut self, nid: Nid, old: Option<&TreeEntry>, e: &TreeEntry, work: &mut DirWork) {
        let same_meta = |i: &Arc<Inode>| meta_of(i) == e.meta;
        if !self.tree.get(nid).is_some_and(same_meta) || !matches!(e.body, StoredBody::Dir(_)) {
            self.set_meta(nid, &e.meta);
        }
        let unreadable = e.meta.xattrs.iter().find(|(k, _)| k == UNREADABLE);
        let content = match &e.body {
            StoredBody::Dir(id) => {
                let from = match old.map(|o| &o.body) {
                    Some(StoredBody::Dir(from)) => *from,
                    _ => None,
                };
                work.push((nid, from, *id));
                self.tree.update(nid, |i| {
                    i.dir_mut().map(|d| d.unreadable = unreadable.is_some())
                });
                return;
            }
            StoredBody::Symlink(t) => Content::Symlink(t.as_slice().into()),
            StoredBody::None => Content::Special,
            StoredBody::File(c) => {
                Content::File(self.file_data(c, unreadable.map(|(_, v)| v.as_slice())))
            }
        };
        let len = if let Content::File(f) = &content {
            f.body().1
        } else {
            0
        };
        self.tree.update(nid, |i| {
            i.size = len;
            i.content = content;
        });
    }

    fn file_data(&self, c: &FileContent, unreadable: Option<&[u8]>) -> FileData {
        // A manifest that is away tells it once somebody reads the file.
        let _here = only_here();
        data_of(c, unreadable, |c| {
            objstore::data_bytes(self.store, c).unwrap_or(c.len())
        })
    }
}
