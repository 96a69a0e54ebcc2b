//! One inode of a live tree.

use crate::base::BaseDir;
use crate::tree::dirmap::DirMap;
use crate::tree::file::{Body, FileData, Piece, Src};
use crate::types::{Attr, Kind, Nid, NodeId, SLOT_SHIFT, Time, mode};
use objstore::TreeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Extended attributes, sorted by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A directory.
#[derive(Clone, Debug)]
pub struct Dir {
    /// Entries; empty while `lazy`.
    pub map: DirMap,
    /// Entries that are directories.
    pub subdirs: u32,
    /// The directory of the base whose entries were not read yet.
    pub lazy: Option<Arc<BaseDir>>,
    /// Object of this directory in the state that was last stored. The truth only for directories
    /// that are unchanged since, with all below.
    pub stored: Option<TreeId>,
    /// A directory of the base that this process may not read.
    pub unreadable: bool,
    /// Its entries are in the object `stored`, which was not looked into yet: `map` is empty.
    pub away: bool,
}

impl Dir {
    /// True where its entries are not known yet.
    pub fn is_lazy(&self) -> bool {
        self.away || self.lazy.is_some()
    }

    /// A directory with these entries.
    pub fn new(map: DirMap, subdirs: u32) -> Dir {
        Dir {
            map,
            subdirs,
            lazy: None,
            stored: None,
            unreadable: false,
            away: false,
        }
    }
}

/// What an inode holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Regular file.
    File(FileData),
    /// Directory.
    Dir(Box<Dir>),
    /// Symbolic link's target.
    Symlink(Arc<[u8]>),
    /// Fifo, socket or device.
    Special,
}

/// The further names of an inode with several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// Number of the hard-link group in commits; not 0.
    pub group: u64,
    /// Names beside the first: (parent, name hash) → how many.
    pub more: BTreeMap<(u64, u64), u32>,
}

/// In the place of a name's hash: of a file that never had a name and can get one. No name has it, since hashes have
/// 62 bits.
pub const NEVER_NAMED: u64 = u64::MAX;

/// An inode. Its number is the key under which the tree holds it.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; for directories 1 (0 once removed).
    pub nlink: u32,
    /// Device number.
    pub rdev: u32,
    /// `st_ino` without the view slot.
    pub ino: u64,
    /// Length of a regular file.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
    /// Directory of the first name.
    pub parent: Nid,
    /// Hash of the first name in it; of the last one where none is left.
    pub hash: u64,
    /// Set once the inode had more than one name.
    pub links: Option<Arc<Links>>,
    /// Extended attributes.
    pub xattrs: Option<Arc<Xattrs>>,
    /// What it holds.
    pub content: Content,
}

/// With the counts of an `Arc` an inode is in the allocation class of 192 bytes.
const _: () = assert!(size_of::<Inode>() <= 176);

impl Inode {
    /// Type.
    pub fn kind(&self) -> Kind {
        match &self.content {
            Content::File(_) => Kind::File,
            Content::Dir(_) => Kind::Dir,
            Content::Symlink(_) => Kind::Symlink,
            Content::Special => Kind::of_mode(self.mode).unwrap_or(Kind::Fifo),
        }
    }

    /// The directory, if it is one.
    pub fn dir(&self) -> Option<&Dir> {
        match &self.content {
            Content::Dir(d) => Some(d),
            _ => None,
        }
    }

    /// The directory, to change it.
    pub fn dir_mut(&mut self) -> Option<&mut Dir> {
        match &mut self.content {
            Content::Dir(d) => Some(d),
            _ => None,
        }
    }

    /// True for a directory whose entries are away.
    pub fn is_away(&self) -> bool {
        self.dir().is_some_and(|dir| dir.away)
    }

    /// The file content, if it is a regular file.
    pub fn file(&self) -> Option<&FileData> {
        match &self.content {
            Content::File(f) => Some(f),
            _ => None,
        }
    }

    /// Objects of the store with which its content begins; more than one where ranges of other files were copied.
    pub fn stored(&self) -> impl Iterator<Item = objstore::Key> + '_ {
        let of = |body: &Body| match body {
            Body::Stored(content) => objstore::exchange::content_key(content),
            _ => None,
        };
        let shared = move |piece: Piece| match piece.src {
            Src::Shared { body, .. } => of(&body),
            _ => None,
        };
        let file = self.file().into_iter();
        file.flat_map(move |file| {
            let shared = file.extents().filter_map(shared);
            of(file.body().0).into_iter().chain(shared)
        })
    }

    /// Value of an extended attribute.
    pub fn xattr(&self, name: &[u8]) -> Option<&Vec<u8>> {
        self.xattrs.as_ref()?.get(name)
    }

    /// Every name: (parent, name hash), each as often as it has names with that hash there.
    pub fn names(&self) -> Vec<(Nid, u64)> {
        if self.nlink == 0 {
            return Vec::new();
        }
        let more = self.links.iter().flat_map(|l| l.more.iter());
        let more = more.flat_map(|(&(p, h), &n)| std::iter::repeat_n((Nid(p), h), n as usize));
        std::iter::once((self.parent, self.hash))
            .chain(more)
            .collect()
    }

    /// True for what may get a name: what has one, or never had one. What lost all its names stays without.
    pub fn can_be_linked(&self) -> bool {
        self.nlink > 0 || self.hash == NEVER_NAMED
    }

    /// Number of the hard-link group in a commit, 0 for an inode with one name. All must be known:
    /// [`Tree::group_of`](super::Tree::group_of) is for any tree.
    pub fn group(&self) -> u64 {
        match &self.links {
            Some(l) if self.nlink > 1 => l.group,
            _ => 0,
        }
    }

    /// Whether it has a name, and is of this hard-link group.
    pub fn is_linked_as(&self, group: u64) -> bool {
        let is_of = |links: &Arc<Links>| links.group == group;
        group != 0 && self.nlink > 0 && self.links.as_ref().is_some_and(is_of)
    }

    /// Adds a name. `group` is used where the inode has none yet.
    pub fn add_name(&mut self, parent: Nid, hash: u64, group: u64) {
        if self.nlink == 0 {
            (self.parent, self.hash) = (parent, hash);
        } else {
            let links = Arc::make_mut(self.links.get_or_insert_with(|| {
                Arc::new(Links {
                    group,
                    more: BTreeMap::new(),
                })
            }));
            *links.more.entry((parent.0, hash)).or_default() += 1;
        }
        self.nlink += 1;
    }

    /// Takes a name away.
    pub fn drop_name(&mut self, parent: Nid, hash: u64) {
        self.nlink = self.nlink.saturating_sub(1);
        let first = (self.parent, self.hash) == (parent, hash);
        let Some(links) = self.links.as_mut().map(Arc::make_mut) else {
            return;
        };
        let gone = if first {
            links.more.first_key_value().map(|(k, _)| *k)
        } else {
            Some((parent.0, hash))
        };
        let Some(key) = gone else { return };
        if let Some(n) = links.more.get_mut(&key) {
            *n -= 1;
            if *n == 0 {
                links.more.remove(&key);
            }
            if first {
                (self.parent, self.hash) = (Nid(key.0), key.1);
            }
        }
    }

    /// Replaces the name (`from` → `to`) without changing the count.
    pub fn move_name(&mut self, from: (Nid, u64), to: (Nid, u64)) {
        if (self.parent, self.hash) == from {
            (self.parent, self.hash) = to;
            return;
        }
        let group = self.links.as_ref().map_or(0, |l| l.group);
        self.drop_name(from.0, from.1);
        self.add_name(to.0, to.1, group);
    }

    /// Allocated 512-byte blocks.
    pub fn blocks(&self) -> u64 {
        match &self.content {
            Content::File(f) => f.allocated(self.size).div_ceil(4096) * 8,
            Content::Dir(_) => 8,
            Content::Symlink(_) | Content::Special => 0,
        }
    }

    /// What `stat` shows, in view `slot`.
    pub fn attr(&self, slot: u16, nid: Nid) -> Attr {
        let (size, nlink) = match &self.content {
            Content::File(_) => (self.size, self.nlink),
            Content::Symlink(t) => (t.len() as u64, self.nlink),
            Content::Dir(d) if self.nlink > 0 => (4096.max(d.map.len() as u64 * 32), 2 + d.subdirs),
            Content::Dir(_) => (4096, 0),
            Content::Special => (0, self.nlink),
        };
        Attr {
            node: NodeId::new(slot, nid),
            ino: self.shown_ino(slot),
            kind: self.kind(),
            perm: (self.mode & 0o7777) as u16,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks: self.blocks(),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// `st_ino` in view `slot`.
    pub fn shown_ino(&self, slot: u16) -> u64 {
        (u64::from(slot) << SLOT_SHIFT) | self.ino
    }

    /// True where it cannot be read in the base, or a part of it.
    pub fn is_unreadable(&self) -> bool {
        match &self.content {
            Content::File(file) => file.is_unreadable(self.size),
            Content::Dir(dir) => dir.unreadable,
            _ => false,
        }
    }

    /// As [`Tree::commit_alike`](super::Tree::commit_alike), whatever their hard links.
    pub fn alike_but_links(&self, other: &Inode) -> bool {
        self.mode == other.mode
            && (self.uid, self.gid) == (other.uid, other.gid)
            && self.mtime == other.mtime
            && self.rdev == other.rdev
            && self.xattrs_alike(other)
            && self.content_alike(other)
    }

    /// True where both have the same extended attributes.
    pub fn xattrs_alike(&self, other: &Inode) -> bool {
        let none = Xattrs::new();
        let of = |i: &Inode| i.xattrs.clone().unwrap_or_default();
        match (&self.xattrs, &other.xattrs) {
            (None, None) => true,
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
            _ => *of(self) == *of(other) || (of(self).is_empty() && *of(other) == none),
        }
    }

    /// True where the content is the same by its sources; false may also mean "not known".
    pub fn content_alike(&self, other: &Inode) -> bool {
        match (&self.content, &other.content) {
            (Content::File(a), Content::File(b)) => self.size == other.size && a == b,
            (Content::Dir(a), Content::Dir(b)) => {
                a.map.alike(&b.map)
                    && a.lazy.is_some() == b.lazy.is_some()
                    && a.away == b.away
                    && (!a.away || a.stored == b.stored)
                    && a.unreadable == b.unreadable
            }
            (Content::Symlink(a), Content::Symlink(b)) => a == b,
            (Content::Special, Content::Special) => true,
            _ => false,
        }
    }
}

/// Permission bits with which a new file starts, before umask or default ACL.
pub fn new_mode(kind: Kind, requested: u32, parent: &Inode) -> (u32, Option<u32>) {
    let mut bits = kind.mode_bits() | (requested & 0o7777);
    let mut gid = None;
    if parent.mode & mode::SGID != 0 {
        gid = Some(parent.gid);
        if kind == Kind::Dir {
            bits |= mode::SGID;
        }
    }
    (bits, gid)
}
