//! Trees becoming objects in the store, and back.
//!
//! [`store_tree`] looks only at what differs from a *reference*, the tree that was stored last:
//! changed files are chunked where they changed, changed directories are edited. The result is the
//! same as if everything had been stored from nothing. [`load_tree`] is the way back: it builds the
//! tree of stored directories out of a reference, replacing only what differs.

use crate::data::{FileSource, Places};
use crate::error::{Error, Result};
use crate::import::Importer;
use crate::record::Counters;
use crate::tree::Tree;
use crate::tree::dirmap::{DirMap, Entry};
use crate::tree::file::{Body, FileData};
use crate::tree::inode::{Content, Dir, Inode, Links, Xattrs};
use crate::types::{Kind, Nid, Time};
use objstore::content::FileContent;
use objstore::{Body as StoredBody, Edit, Meta, ObjectStore, TreeEntry, TreeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Extended attribute by which a commit marks what could not be read in the base.
const UNREADABLE: &[u8] = b"trusted.agentvfs.unreadable";

/// A tree all of whose content is in the store, with the object of its root directory.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The tree.
    pub tree: Tree,
    /// Object of its root directory; `None` where that is empty.
    pub root: Option<TreeId>,
}

/// Stores `tree`, of which `reference` was stored before.
///
/// Nothing is synced. [`Error::BaseChanged`] where a base file is gone in the version that the tree
/// shows.
pub fn store_tree(
    places: &Places,
    importer: &Importer,
    reference: Option<&Reference>,
    tree: &Tree,
) -> Result<Reference> {
    let empty = Tree::default();
    let old = reference.map_or(&empty, |r| &r.tree);
    let mut job = Job {
        places,
        old,
        tree,
        stored: tree.clone(),
        dirty: HashSet::new(),
    };
    let changed = job.changed();
    importer.import_bodies(places, &changed)?;
    for (nid, inode) in &changed {
        if inode.file().is_some() {
            job.store_file(*nid, inode)?;
        }
    }
    job.mark_dirty(&changed);
    let root = job.store_dirs(reference)?;
    Ok(Reference {
        tree: job.stored,
        root,
    })
}

struct Job<'a> {
    places: &'a Places,
    old: &'a Tree,
    tree: &'a Tree,
    stored: Tree,
    /// Inodes that changed, and every directory above them.
    dirty: HashSet<Nid>,
}

impl Job<'_> {
    fn changed(&self) -> Vec<(Nid, Arc<Inode>)> {
        let mut changed = Vec::new();
        Tree::diff(self.old, self.tree, &mut |nid, _, new| {
            if let Some(inode) = new {
                changed.push((nid, inode.clone()));
            }
        });
        changed
    }

    fn store_file(&mut self, nid: Nid, inode: &Arc<Inode>) -> Result<()> {
        let Some(file) = inode.file() else {
            return Ok(());
        };
        // A stored file that was truncated has the longer content as its body still.
        let whole = match file.body().0 {
            Body::Stored(c) => c.len() == inode.size,
            Body::Unreadable => true,
            _ => false,
        };
        if file.is_plain() && whole && file.body().1 == inode.size {
            return Ok(());
        }
        if file.is_plain() && inode.size == 0 {
            return Ok(());
        }
        let (content, alloc) = stored_content(self.places, file, inode.size)?;
        let mut after = (**inode).clone();
        after.content = Content::File(FileData::new(Body::Stored(content), inode.size, alloc));
        self.stored.set(nid, Arc::new(after));
        Ok(())
    }

    fn mark_dirty(&mut self, changed: &[(Nid, Arc<Inode>)]) {
        for (nid, inode) in changed {
            self.dirty.insert(*nid);
            for (parent, _) in inode.names() {
                let mut at = parent;
                while self.dirty.insert(at) && at != Nid::ROOT {
                    let Some(up) = self.tree.get(at).map(|i| i.parent) else {
                        break;
                    };
                    at = up;
                }
            }
        }
    }

    /// Stores the dirty directories, the deepest first; returns the root's object.
    fn store_dirs(&mut self, reference: Option<&Reference>) -> Result<Option<TreeId>> {
        let mut dirs: Vec<(usize, Nid)> = Vec::new();
        let mut depths = HashMap::from([(Nid::ROOT, 0usize)]);
        for nid in &self.dirty {
            let live_dir = |i: &Arc<Inode>| i.dir().is_some() && i.nlink > 0;
            if self.tree.get(*nid).is_some_and(live_dir) {
                dirs.push((self.depth(*nid, &mut depths), *nid));
            }
        }
        dirs.sort_unstable_by(|a, b| b.cmp(a));
        let children = self.dirty_children();
        for (_, nid) in &dirs {
            let id = self.store_dir(*nid, children.get(nid).map_or(&[], |c| c))?;
            self.stored.update(*nid, |i| {
                if let Some(d) = i.dir_mut() {
                    d.stored = id;
                }
            });
        }
        match self.stored.get(Nid::ROOT).and_then(|r| r.dir()) {
            Some(root) if self.dirty.contains(&Nid::ROOT) => Ok(root.stored),
            _ => Ok(reference.and_then(|r| r.root)),
        }
    }

    fn depth(&self, nid: Nid, known: &mut HashMap<Nid, usize>) -> usize {
        let mut chain = Vec::new();
        let mut at = nid;
        let base = loop {
            if let Some(d) = known.get(&at) {
                break *d;
            }
            chain.push(at);
            match self.tree.get(at) {
                Some(i) => at = i.parent,
                None => break 0,
            }
        };
        for (i, n) in chain.iter().rev().enumerate() {
            known.insert(*n, base + i + 1);
        }
        known.get(&nid).copied().unwrap_or(0)
    }

    /// Dirty inodes by the directory that names them.
    fn dirty_children(&self) -> HashMap<Nid, Vec<(u64, Nid)>> {
        let mut out: HashMap<Nid, Vec<(u64, Nid)>> = HashMap::new();
        for nid in self.dirty.iter().filter(|n| **n != Nid::ROOT) {
            for (parent, hash) in self.tree.get(*nid).map_or_else(Vec::new, |i| i.names()) {
                out.entry(parent).or_default().push((hash, *nid));
            }
        }
        out
    }

    fn store_dir(&self, nid: Nid, dirty_children: &[(u64, Nid)]) -> Result<Option<TreeId>> {
        let Some(dir) = self.tree.get(nid).and_then(|i| i.dir()) else {
            return Ok(None);
        };
        let before = self
            .old
            .get(nid)
            .filter(|i| i.nlink > 0)
            .and_then(|i| i.dir());
        let none = DirMap::default();
        let mut edits: BTreeMap<Vec<u8>, Edit> = BTreeMap::new();
        let mut failed = None;
        DirMap::diff(
            before.map_or(&none, |d| &d.map),
            &dir.map,
            &mut |name, _, now| {
                let edit = match now {
                    None => Ok(Edit::Remove(name.to_vec())),
                    Some(e) => self.entry(name, e).map(Edit::Put),
                };
                match edit {
                    Ok(edit) => {
                        edits.insert(name.to_vec(), edit);
                    }
                    Err(e) => failed = Some(e),
                }
            },
        );
        if let Some(e) = failed {
            return Err(e);
        }
        for (hash, child) in dirty_children {
            if let Some(name) = dir.map.name_of(*hash, *child)
                && !edits.contains_key(name)
                && let Some(e) = dir.map.get_hashed(*hash, name)
            {
                edits.insert(name.to_vec(), Edit::Put(self.entry(name, e)?));
            }
        }
        let base = before.and_then(|d| d.stored);
        Ok(objstore::edit_tree(
            &self.places.store,
            base,
            edits.into_values().collect(),
        )?)
    }

    fn entry(&self, name: &[u8], e: Entry) -> Result<TreeEntry> {
        let inode = self.stored.inode(e.nid)?;
        let body = match &inode.content {
            Content::Dir(d) => StoredBody::Dir(d.stored),
            Content::Symlink(t) => StoredBody::Symlink(t.to_vec()),
            Content::Special => StoredBody::None,
            Content::File(f) => match f.body().0 {
                Body::Stored(c) if inode.size > 0 => StoredBody::File(*c),
                _ => StoredBody::File(FileContent::Empty),
            },
        };
        Ok(TreeEntry {
            name: name.to_vec(),
            meta: meta_of(inode),
            body,
        })
    }
}

/// Stores the content of a file; returns it with its allocated bytes.
fn stored_content(places: &Places, file: &FileData, size: u64) -> Result<(FileContent, u64)> {
    let (body, body_len) = file.body();
    let old = match body {
        Body::Stored(c) => Some(*c),
        Body::Base(b) => b.stored(),
        _ => None,
    };
    if let (Some(c), true) = (old, file.is_plain() && body_len == size)
        && c.len() == size
    {
        return Ok((c, file.body_alloc()));
    }
    let data = places.data_ranges(file, size)?;
    let alloc = data.iter().map(|r| r.end - r.start).sum();
    let mut changed: Vec<_> = file.extents().map(|p| p.range).collect();
    let old_len = old.map_or(0, |c| c.len());
    if body_len < old_len.max(size) {
        changed.push(body_len..old_len.max(size));
    }
    let source = FileSource {
        places,
        file,
        failed: Default::default(),
    };
    let stored = objstore::store_content(
        &places.store,
        old.as_ref(),
        &merged(changed),
        &data,
        size,
        &source,
    );
    match stored {
        Ok(content) => Ok((content, alloc)),
        Err(e) => Err(source.failed.into_inner().unwrap_or(Error::Store(e))),
    }
}

/// Sorted, with overlapping and touching ranges joined.
fn merged(mut ranges: Vec<std::ops::Range<u64>>) -> Vec<std::ops::Range<u64>> {
    ranges.sort_by_key(|r| r.start);
    let mut out: Vec<std::ops::Range<u64>> = Vec::with_capacity(ranges.len());
    for r in ranges {
        match out.last_mut() {
            Some(last) if last.end >= r.start => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    out
}

/// Attributes as a commit keeps them.
pub fn meta_of(i: &Inode) -> Meta {
    let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = i
        .xattrs
        .iter()
        .flat_map(|x| x.iter())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let unreadable = match &i.content {
        Content::File(f) => *f.body().0 == Body::Unreadable,
        Content::Dir(d) => d.unreadable,
        _ => false,
    };
    if unreadable {
        xattrs.push((UNREADABLE.to_vec(), i.size.to_le_bytes().to_vec()));
        xattrs.sort();
    }
    Meta {
        mode: i.mode,
        uid: i.uid,
        gid: i.gid,
        mtime_sec: i.mtime.sec,
        mtime_nsec: i.mtime.nsec,
        rdev: u64::from(i.rdev),
        link_group: i.group(),
        xattrs,
    }
}

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

/// Builds the tree whose root directory is `root` with attributes `meta` out of `reference`.
pub fn load_tree(
    store: &ObjectStore,
    reference: &Reference,
    root: Option<TreeId>,
    meta: &Meta,
    numbers: &mut dyn Numbers,
    now: Time,
) -> Result<Reference> {
    let mut loader = Loader {
        store,
        before: &reference.tree,
        tree: reference.tree.clone(),
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
    })
}

struct Loader<'a> {
    store: &'a ObjectStore,
    /// The reference's tree as it was.
    before: &'a Tree,
    tree: Tree,
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
        let mut changes: Vec<(Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
        objstore::diff_trees(self.store, from, to, &mut |a, b| {
            changes.push((a.cloned(), b.cloned()));
            Ok(())
        })?;
        for (a, b) in changes {
            match (a, b) {
                (a, Some(b)) => self.put(nid, a.as_ref(), b, work)?,
                (Some(a), None) => self.drop_name(nid, &a.name),
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
        let kind = Kind::of_mode(new.meta.mode).ok_or(Error::Damaged {
            what: "a stored directory".into(),
            why: format!("entry {:?} has no type", String::from_utf8_lossy(&new.name)),
        })?;
        let grouped = new.meta.link_group != 0 || old.is_some_and(|o| o.meta.link_group != 0);
        let keep = here.filter(|e| e.kind == kind && !grouped);
        if let Some(e) = keep {
            self.fill(e.nid, old, &new, work);
            return Ok(());
        }
        if here.is_some() {
            self.drop_name(dir, &new.name);
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
                d.map.insert(name, Entry { nid, kind });
                d.subdirs += u32::from(kind == Kind::Dir);
            }
        });
    }

    fn drop_name(&mut self, dir: Nid, name: &[u8]) {
        let removed = self.tree.update(dir, |i| {
            let d = i.dir_mut()?;
            let e = d.map.remove(name)?;
            d.subdirs = d.subdirs.saturating_sub(u32::from(e.kind == Kind::Dir));
            Some(e)
        });
        let Some(Some(e)) = removed else { return };
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
            self.drop_names(nid, &gone);
        }
    }

    fn drop_names(&mut self, nid: Nid, names: &[(Nid, u64)]) {
        let left = self.tree.update(nid, |i| {
            names.iter().for_each(|(p, h)| i.drop_name(*p, *h));
            i.nlink
        });
        if left == Some(0) {
            self.tree.remove(nid);
        }
    }

    fn set_meta(&mut self, nid: Nid, meta: &Meta) {
        let now = self.now;
        self.tree.update(nid, |i| {
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
        });
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
        if let Some(size) = unreadable {
            let mut le = [0; 8];
            le.iter_mut().zip(size).for_each(|(a, b)| *a = *b);
            return FileData::new(Body::Unreadable, u64::from_le_bytes(le), 0);
        }
        if c.is_empty() {
            return FileData::default();
        }
        let alloc = match c {
            FileContent::Manifest { .. } => objstore::data_ranges(self.store, c)
                .map_or(c.len(), |ranges| {
                    ranges.iter().map(|r| r.end - r.start).sum()
                }),
            _ => c.len(),
        };
        FileData::new(Body::Stored(*c), c.len(), alloc)
    }
}
