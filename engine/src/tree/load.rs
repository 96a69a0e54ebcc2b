//! Entries of base directories becoming inodes, in every tree that still holds the directory lazy.

use super::Tree;
use super::dirmap::{Dentry, DirMap, name_hash};
use super::file::{Body, FileData};
use super::inode::{Content, Dir, Inode, Links, Xattrs};
use crate::base::{BaseDir, BaseEntry, BaseFile};
use crate::record::Loaded;
use crate::types::{Kind, Nid};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Makes the inode of a base entry named in `parent` of the base directory `dir`. `file` is that entry,
/// where it is a file with data that can be read ([`has_data`]).
pub fn inode_of(
    e: &BaseEntry,
    file: Option<BaseFile>,
    dir: &Arc<BaseDir>,
    parent: Nid,
    ino: u64,
) -> Inode {
    let kind = Kind::of_mode(e.mode).unwrap_or(Kind::Fifo);
    let xattrs: Xattrs = e.xattrs.iter().cloned().collect();
    let content = match kind {
        Kind::File if e.unreadable => {
            Content::File(FileData::new(Body::Unreadable, e.stamp.size, e.alloc))
        }
        Kind::File => match file {
            Some(file) => Content::File(FileData::new(Body::Base(file), e.stamp.size, e.alloc)),
            None => Content::File(FileData::default()),
        },
        Kind::Dir => {
            let mut d = Dir::new(DirMap::default(), 0);
            d.lazy = Some(if e.name.is_empty() {
                dir.clone()
            } else {
                BaseDir::child(dir, &e.name)
            });
            Content::Dir(Box::new(d))
        }
        Kind::Symlink => Content::Symlink(e.target.as_slice().into()),
        _ => Content::Special,
    };
    let many = e.nlink > 1 && kind != Kind::Dir;
    Inode {
        mode: e.mode,
        uid: e.uid,
        gid: e.gid,
        nlink: 1,
        rdev: e.rdev,
        ino,
        size: if kind == Kind::File { e.stamp.size } else { 0 },
        atime: e.atime,
        mtime: e.stamp.mtime,
        ctime: e.stamp.ctime,
        parent,
        hash: name_hash(&e.name),
        links: many.then(|| {
            Arc::new(Links {
                group: e.stamp.ino,
                more: BTreeMap::new(),
            })
        }),
        xattrs: (!xattrs.is_empty()).then(|| Arc::new(xattrs)),
        content,
    }
}

/// True for a regular file that is not empty and can be read.
fn has_data(e: &BaseEntry) -> bool {
    Kind::of_mode(e.mode) == Some(Kind::File) && !e.unreadable && e.stamp.size > 0
}

/// Gives the lazy directory `dir` its entries in all `trees` in which it is lazy. Inodes that are the
/// same in several trees stay the same. Returns the inodes that got a further name.
pub fn load_dir(
    trees: &mut [&mut Tree],
    dir: Nid,
    entries: &[Loaded],
    unreadable: bool,
) -> Vec<Nid> {
    let lazy_in = |t: &Tree| {
        t.get(dir)
            .and_then(|i| i.dir())
            .and_then(|d| d.lazy.clone())
    };
    let Some(base) = trees.iter().find_map(|t| lazy_in(t)) else {
        return Vec::new();
    };
    let map = DirMap::from_entries(entries.iter().map(|l| {
        let kind = Kind::of_mode(l.entry.mode).unwrap_or(Kind::Fifo);
        (
            l.entry.name.as_slice(),
            Dentry {
                nid: Nid(l.nid),
                kind,
            },
        )
    }));
    let with_data = entries.iter().map(|l| &l.entry).filter(|e| has_data(e));
    let versions = with_data.map(|e| (e.name.as_slice(), e.stamp, e.alloc));
    let mut found = BaseFile::all(&base, versions).into_iter();
    let files = entries
        .iter()
        .map(|l| has_data(&l.entry).then(|| found.next()).flatten());
    let mut loader = Loader {
        dir,
        files: files.collect(),
        base,
        unreadable,
        map,
        relinked: Vec::new(),
        made: HashMap::new(),
        kept: Vec::new(),
    };
    for tree in trees.iter_mut().filter(|t| lazy_in(t).is_some()) {
        loader.load(tree, entries);
    }
    loader.relinked
}

/// One directory on its way into several trees.
struct Loader {
    dir: Nid,
    base: Arc<BaseDir>,
    /// The entries that are files with data.
    files: Vec<Option<BaseFile>>,
    unreadable: bool,
    map: DirMap,
    relinked: Vec<Nid>,
    /// (number, address of the inode before) → inode after: trees go on sharing what they shared.
    made: HashMap<(u64, usize), Arc<Inode>>,
    /// Keeps those addresses from being used again.
    kept: Vec<Arc<Inode>>,
}

impl Loader {
    fn load(&mut self, tree: &mut Tree, entries: &[Loaded]) {
        for (at, l) in entries.iter().enumerate() {
            let nid = Nid(l.nid);
            let before = tree.get(nid).cloned();
            let key = (
                l.nid,
                before.as_ref().map_or(0, |b| Arc::as_ptr(b) as usize),
            );
            let after = match self.made.get(&key) {
                Some(made) => made.clone(),
                None => {
                    let made = Arc::new(self.named(l, at, before.as_deref()));
                    self.made.insert(key, made.clone());
                    made
                }
            };
            self.kept.extend(before);
            tree.set(nid, after);
        }
        self.fill_dir(tree, entries);
    }

    fn named(&mut self, l: &Loaded, at: usize, before: Option<&Inode>) -> Inode {
        match before {
            Some(b) => {
                self.relinked.push(Nid(l.nid));
                let mut inode = b.clone();
                inode.add_name(self.dir, name_hash(&l.entry.name), l.entry.stamp.ino);
                inode
            }
            None => {
                let file = self.files[at].clone();
                inode_of(&l.entry, file, &self.base, self.dir, l.ino)
            }
        }
    }

    fn fill_dir(&mut self, tree: &mut Tree, entries: &[Loaded]) {
        let Some(before) = tree.get(self.dir).cloned() else {
            return;
        };
        let key = (self.dir.0, Arc::as_ptr(&before) as usize);
        let after = self.made.entry(key).or_insert_with(|| {
            let mut inode = (*before).clone();
            if let Some(d) = inode.dir_mut() {
                d.lazy = None;
                d.unreadable = self.unreadable;
                d.map = self.map.clone();
                d.subdirs = entries
                    .iter()
                    .filter(|l| Kind::of_mode(l.entry.mode) == Some(Kind::Dir))
                    .count() as u32;
            }
            Arc::new(inode)
        });
        let after = after.clone();
        self.kept.push(before);
        tree.set(self.dir, after);
    }
}
