//! The base as it is now, as a tree in the store, and which versions of its files that is.

use crate::base::{BaseDir, BaseEntry, BaseFile, Stamp};
use crate::branch::Branch;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::merge::Root;
use crate::stored::store::{UNREADABLE, meta_of};
use crate::tree::load::inode_of;
use crate::types::{Kind, Nid, Progress};
use crate::verbs::show_merged;
use objstore::content::FileContent;
use objstore::{Body, Edit, TreeEntry, TreeId, edit_tree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Times that a file which changes while it is read is looked at again.
const TRIES: usize = 5;

/// What a scan found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The tree.
    pub root: Root,
    /// Version of everything but directories, by path.
    pub stamps: HashMap<Vec<u8>, Stamp>,
    /// A path of each inode that has several in the base, by link group.
    pub links: HashMap<u64, Vec<u8>>,
}

/// Where an entry is, and what is known of it.
struct Looked<'a> {
    path: &'a [u8],
    dir: &'a Arc<BaseDir>,
    /// Of a directory: what is below it.
    tree: Option<TreeId>,
    /// Names that its inode has in the base, where that may have several.
    several: Option<u32>,
    cancel: &'a Cancel,
}

/// Directories with their entries, parents before children.
type Listing = BTreeMap<Vec<u8>, (Arc<BaseDir>, Vec<BaseEntry>)>;

/// Reads all of the base. Files whose version was imported before are not read again. `progress` hears of entries.
pub(crate) fn scan_base(branch: &Branch, progress: Progress<'_>, cancel: &Cancel) -> Result<Scan> {
    let listing = list_base(branch, cancel)?;
    let total: usize = listing.values().map(|(_, entries)| entries.len()).sum();
    let mut done = 0;
    let mut names: HashMap<(u64, u64), u32> = HashMap::new();
    for entry in listing.values().flat_map(|(_, entries)| entries) {
        if entry.nlink > 1 && Kind::of_mode(entry.mode) != Some(Kind::Dir) {
            *names.entry((entry.stamp.dev, entry.stamp.ino)).or_default() += 1;
        }
    }
    let mut scan = Scan {
        root: Root {
            meta: meta_of(&base_inode(branch, &branch.places.base.root_entry()?)),
            tree: None,
        },
        stamps: HashMap::new(),
        links: HashMap::new(),
    };
    let mut dirs: HashMap<Vec<u8>, Option<TreeId>> = HashMap::new();
    // Children first: a path is longer than that of its directory.
    for (path, (dir, entries)) in listing.iter().rev() {
        let mut edits = Vec::with_capacity(entries.len());
        for entry in entries {
            let below = join(path, &entry.name);
            let tree = dirs.remove(&below).flatten();
            let several = names.get(&(entry.stamp.dev, entry.stamp.ino)).copied();
            cancel.check()?;
            progress(done, total as u64);
            done += 1;
            let looked = Looked {
                path: &below,
                dir,
                tree,
                several,
                cancel,
            };
            let found = scan_entry(branch, looked, entry, &mut scan)?;
            edits.extend(found.map(Edit::Put));
        }
        let tree = edit_tree(&branch.places.store, None, edits)?;
        dirs.insert(path.clone(), tree);
    }
    scan.root.tree = dirs.remove(&b""[..]).flatten();
    show_merged::mark_unsynced(branch);
    Ok(scan)
}

fn base_inode(_branch: &Branch, entry: &BaseEntry) -> crate::tree::inode::Inode {
    inode_of(entry, None, &BaseDir::root(), Nid::ROOT, 1)
}

fn list_base(branch: &Branch, cancel: &Cancel) -> Result<Listing> {
    let mut found = Listing::new();
    let mut work = vec![(Vec::new(), BaseDir::root())];
    while let Some((path, dir)) = work.pop() {
        cancel.check()?;
        let entries = match branch.places.base.read_dir(&dir) {
            Err(Error::Access) => Vec::new(),
            other => other?,
        };
        for entry in &entries {
            if Kind::of_mode(entry.mode) == Some(Kind::Dir) {
                let below = BaseDir::child(&dir, &entry.name);
                work.push((join(&path, &entry.name), below));
            }
        }
        found.insert(path, (dir, entries));
    }
    Ok(found)
}

/// An entry of the tree; `None` for what vanished meanwhile.
fn scan_entry(
    branch: &Branch,
    at: Looked<'_>,
    entry: &BaseEntry,
    scan: &mut Scan,
) -> Result<Option<TreeEntry>> {
    let mut entry = entry.clone();
    let mut meta = meta_of(&base_inode(branch, &entry));
    let body = match Kind::of_mode(entry.mode) {
        Some(Kind::Dir) => Body::Dir(at.tree),
        Some(Kind::Symlink) => Body::Symlink(entry.target.clone()),
        Some(Kind::File) => match scan_file(branch, at.dir, &mut entry, at.cancel)? {
            Some(content) => {
                meta = meta_of(&base_inode(branch, &entry));
                Body::File(content)
            }
            None => {
                let size = entry.stamp.size.to_le_bytes().to_vec();
                meta.xattrs.retain(|(name, _)| name != UNREADABLE);
                meta.xattrs.push((UNREADABLE.to_vec(), size));
                meta.xattrs.sort();
                Body::File(FileContent::Empty)
            }
        },
        _ => Body::None,
    };
    if !matches!(body, Body::Dir(_)) {
        scan.stamps.insert(at.path.to_vec(), entry.stamp);
        if at.several.is_some_and(|names| names > 1) {
            meta.link_group = entry.stamp.ino;
            scan.links.insert(entry.stamp.ino, at.path.to_vec());
        }
    }
    Ok(Some(TreeEntry {
        name: entry.name,
        meta,
        body,
    }))
}

/// The content of a file; `None` where it may not be read.
fn scan_file(
    branch: &Branch,
    dir: &Arc<BaseDir>,
    entry: &mut BaseEntry,
    cancel: &Cancel,
) -> Result<Option<FileContent>> {
    for _ in 0..TRIES {
        let file = BaseFile::new(dir.clone(), &entry.name, entry.stamp, entry.alloc);
        match branch
            .importer
            .import_unless(&branch.places, &file, Some(cancel))
        {
            Ok(content) => return Ok(Some(content)),
            Err(Error::Access | Error::BaseUnreadable { .. }) => return Ok(None),
            Err(Error::BaseChanged(_)) => match branch.places.base.current(&file)? {
                Some(now) => *entry = now,
                None => break,
            },
            Err(e) => return Err(e),
        }
    }
    Err(Error::BaseInUse(join(&dir.path(), &entry.name)))
}

/// A name in a directory, as a path.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}
