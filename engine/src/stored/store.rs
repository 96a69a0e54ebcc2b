//! Trees becoming objects in the store.
//!
//! [`store_tree`] looks only at what differs from a *reference*, the tree that was stored last:
//! changed files are chunked where they changed, changed directories are edited. The result is the
//! same as if everything had been stored from nothing. A file with a part that cannot be read is left
//! out: its entry has no content and a mark ([`UNREADABLE`]).

use crate::error::{Error, Result};
use crate::kv::{KvMap, stored};
use crate::stored::data::{FileSource, Places};
use crate::stored::import::Importer;
use crate::tree::Tree;
use crate::tree::dirmap::{Dentry, DirMap};
use crate::tree::file::{Body, FileData};
use crate::tree::inode::{Content, Inode};
use crate::types::Nid;
use objstore::content::FileContent;
use objstore::{Body as StoredBody, Edit, Meta, ObjectStore, TreeEntry, TreeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files or directories for each further thread that stores them.
const ITEMS_PER_THREAD_MIN: usize = 16;

/// Extended attribute by which a commit marks what could not be read in the base.
pub const UNREADABLE: &[u8] = b"trusted.agentvfs.unreadable";

/// A tree all of whose content is in the store, with the object of its root directory.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The tree.
    pub tree: Tree,
    /// Object of its root directory; `None` where that is empty.
    pub root: Option<TreeId>,
    /// Its key-value state; `None` where that is empty.
    pub kv: Option<FileContent>,
}

impl Reference {
    /// The key-value state `kv` of the store, taken from this tree where it is its own.
    pub fn kv_map(&self, store: &ObjectStore, kv: Option<&FileContent>) -> Result<KvMap> {
        match self.kv.as_ref() == kv {
            true => Ok(self.tree.kv().clone()),
            false => stored::load(store, kv),
        }
    }

    /// With the key-value state `kv` of the store.
    pub fn with_kv(mut self, store: &ObjectStore, kv: Option<FileContent>) -> Result<Reference> {
        *self.tree.kv_mut() = self.kv_map(store, kv.as_ref())?;
        self.kv = kv;
        Ok(self)
    }
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
    let mut job = Storing {
        places,
        old,
        tree,
        stored: tree.clone(),
        dirty: HashSet::new(),
    };
    let changed = job.changed();
    importer.import_bodies(places, &changed)?;
    job.store_files(&changed)?;
    job.mark_dirty(&changed);
    let root = job.store_dirs(reference)?;
    let kv = match reference.filter(|r| r.tree.kv().same(tree.kv())) {
        Some(reference) => reference.kv,
        None => stored::store(&places.store, tree.kv())?,
    };
    // What could not be decoded on the way is not in what was stored.
    tree.check_whole()?;
    Ok(Reference {
        tree: job.stored,
        root,
        kv,
    })
}

/// `each` of all items, in their order, by several threads where there are many.
fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return Ok(done);
            };
            done.push((at, each(item)?));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let helpers = (cores - 1).min(items.len() / ITEMS_PER_THREAD_MIN);
    let parts: Vec<Result<Vec<(usize, R)>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let mut all = vec![work()];
        let joined = threads.into_iter().map(|t| t.join());
        all.extend(joined.map(|r| r.unwrap_or(Err(Error::Closing))));
        all
    });
    let mut done = Vec::with_capacity(items.len());
    for part in parts {
        done.extend(part?);
    }
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

struct Storing<'a> {
    places: &'a Places,
    old: &'a Tree,
    tree: &'a Tree,
    stored: Tree,
    /// Inodes that changed, and every directory above them.
    dirty: HashSet<Nid>,
}

impl Storing<'_> {
    fn changed(&self) -> Vec<(Nid, Arc<Inode>)> {
        let mut changed = Vec::new();
        Tree::diff(self.old, self.tree, &mut |nid, _, new| {
            if let Some(inode) = new {
                changed.push((nid, inode.clone()));
            }
        });
        changed
    }

    fn store_files(&mut self, changed: &[(Nid, Arc<Inode>)]) -> Result<()> {
        let stored = on_all_cores(changed, |(_, inode)| stored_file(self.places, inode))?;
        for ((nid, _), after) in changed.iter().zip(stored) {
            if let Some(inode) = after {
                self.stored.set(*nid, inode);
            }
        }
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
        for level in dirs.chunk_by(|a, b| a.0 == b.0) {
            let stored = on_all_cores(level, |(_, nid)| {
                self.store_dir(*nid, children.get(nid).map_or(&[], |c| c))
            })?;
            for ((_, nid), id) in level.iter().zip(stored) {
                self.stored.update(*nid, |i| {
                    if let Some(d) = i.dir_mut() {
                        d.stored = id;
                    }
                });
            }
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
        if dir.away {
            return Ok(dir.stored);
        }
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

    fn entry(&self, name: &[u8], e: Dentry) -> Result<TreeEntry> {
        let inode = self.stored.inode(e.nid)?;
        let body = match &inode.content {
            Content::Dir(d) => StoredBody::Dir(d.stored),
            Content::Symlink(t) => StoredBody::Symlink(t.to_vec()),
            Content::Special => StoredBody::None,
            Content::File(f) => match f.body().0 {
                Body::Stored(c) if inode.size > 0 && !f.is_unreadable(inode.size) => {
                    StoredBody::File(*c)
                }
                _ => StoredBody::File(FileContent::Empty),
            },
        };
        let mut meta = meta_of(inode);
        meta.link_group = self.stored.group_of(inode);
        let name = name.to_vec();
        Ok(TreeEntry { name, meta, body })
    }
}

/// A regular file with its content in the store; `None` where it is there already, or is no file.
fn stored_file(places: &Places, inode: &Arc<Inode>) -> Result<Option<Arc<Inode>>> {
    let Some(file) = inode.file() else {
        return Ok(None);
    };
    if file.is_unreadable(inode.size) {
        return Ok(None);
    }
    // A stored file that was truncated has the longer content as its body still.
    let whole = matches!(file.body().0, Body::Stored(c) if c.len() == inode.size);
    if file.is_plain() && ((whole && file.body().1 == inode.size) || inode.size == 0) {
        return Ok(None);
    }
    let (content, alloc) = stored_content(places, file, inode.size)?;
    let mut after = (**inode).clone();
    after.content = Content::File(FileData::new(Body::Stored(content), inode.size, alloc));
    Ok(Some(Arc::new(after)))
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
        Ok(content) => {
            let alloc = objstore::data_bytes(&places.store, &content)?;
            Ok((content, alloc))
        }
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

/// Attributes as a commit keeps them, for a tree that knows all links.
pub fn meta_of(i: &Inode) -> Meta {
    let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = i
        .xattrs
        .iter()
        .flat_map(|x| x.iter())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if i.is_unreadable() {
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
