//! Trees and differences between trees as records, for the journal and the state file.

use super::dirmap::{Dentry, DirMap};
use super::file::{Body, FileData, Src};
use super::inode::{Content, Dir, Inode, Links};
use super::sane::check_entry;
use super::{Broken, Tree};
use crate::base::{BaseDir, BaseFile};
use crate::journal::PayloadRef;
use crate::kv::KvMap;
use crate::record::{BodyRecord, ContentRecord, InodeRecord, SrcRecord, TreePatch, decode, encode};
use crate::types::{Kind, Nid};
use objstore::codec::{decode_prefix, encode_into};
use std::collections::HashMap;
use std::sync::Arc;

impl TreePatch {
    /// The patch as a payload. Keys follow only where there are some: so patches of trees without keys
    /// are what they were before there were any.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = encode(&self.inodes);
        if !self.kv.is_empty() {
            encode_into(&self.kv, &mut bytes);
        }
        bytes
    }

    /// The patch of a payload; trailing bytes are an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<TreePatch, String> {
        let (inodes, read) = decode_prefix(bytes).map_err(|e| e.to_string())?;
        let kv = match &bytes[read..] {
            [] => Vec::new(),
            rest => decode::<Vec<_>>(rest).and_then(|kv| {
                if kv.is_empty() {
                    Err("no keys".into())
                } else {
                    Ok(kv)
                }
            })?,
        };
        Ok(TreePatch { inodes, kv })
    }

    /// What makes `b` of `a`.
    pub fn between(a: &Tree, b: &Tree) -> TreePatch {
        let mut inodes = Vec::new();
        Tree::diff(a, b, &mut |nid, _, new| {
            inodes.push((nid.0, new.map(|i| Box::new(record_of(i)))))
        });
        let mut kv = Vec::new();
        KvMap::diff(a.kv(), b.kv(), &mut |(key, _, new)| {
            kv.push((key.to_owned(), new.map(|e| Box::new((**e).clone()))))
        });
        TreePatch { inodes, kv }
    }

    /// Carries the patch out on `tree`.
    pub fn apply(&self, tree: &mut Tree, dirs: &mut BaseDirs) -> Result<(), Broken> {
        for (nid, record) in &self.inodes {
            match record {
                Some(r) => tree.set(Nid(*nid), Arc::new(inode_of(r, dirs)?)),
                None => {
                    tree.remove(Nid(*nid));
                }
            }
        }
        for (key, entry) in &self.kv {
            check_entry(key, entry.as_deref())?;
            let entry = entry.as_ref().map(|e| Arc::new((**e).clone()));
            tree.kv_mut().set(key, entry);
        }
        Ok(())
    }
}

/// Base directories by path, so that decoded records share them.
#[derive(Debug, Default)]
pub struct BaseDirs {
    by_path: HashMap<Vec<u8>, Arc<BaseDir>>,
}

impl BaseDirs {
    /// The base directory at `path`.
    pub fn get(&mut self, path: &[u8]) -> Arc<BaseDir> {
        if let Some(d) = self.by_path.get(path) {
            return d.clone();
        }
        // Missing ancestors first, from the top.
        let mut dir = self
            .by_path
            .entry(Vec::new())
            .or_insert_with(BaseDir::root)
            .clone();
        let mut end = 0;
        for part in path.split(|&b| b == b'/').filter(|p| !p.is_empty()) {
            end += part.len() + usize::from(end > 0);
            let child = self.by_path.entry(path[..end].to_vec());
            dir = child.or_insert_with(|| BaseDir::child(&dir, part)).clone();
        }
        dir
    }

    /// Has those that another one has, too.
    pub fn take_in(&mut self, other: BaseDirs) {
        for (path, dir) in other.by_path {
            self.by_path.entry(path).or_insert(dir);
        }
    }
}

fn body_record(body: &Body) -> BodyRecord {
    match body {
        Body::None => BodyRecord::None,
        Body::Stored(c) => BodyRecord::Stored(*c),
        Body::Base(f) => BodyRecord::Base(f.dir().path(), f.name().to_vec(), *f.stamp(), f.alloc()),
        Body::Unreadable => BodyRecord::Unreadable,
    }
}

fn body_of(record: &BodyRecord, dirs: &mut BaseDirs) -> Body {
    match record {
        BodyRecord::None => Body::None,
        BodyRecord::Stored(c) => Body::Stored(*c),
        BodyRecord::Base(dir, name, stamp, alloc) => {
            Body::Base(BaseFile::new(dirs.get(dir), name, *stamp, *alloc))
        }
        BodyRecord::Unreadable => Body::Unreadable,
    }
}

fn src_record(src: &Src) -> SrcRecord {
    match src {
        Src::Journal { payload: p, from } => SrcRecord::Journal(p.segment, p.offset, p.len, *from),
        Src::Hole => SrcRecord::Hole,
        Src::Zero => SrcRecord::Zero,
        Src::Shared { body, at } => SrcRecord::Shared(body_record(body), *at),
    }
}

fn src_of(record: &SrcRecord, dirs: &mut BaseDirs) -> Src {
    match record {
        SrcRecord::Journal(segment, offset, len, from) => Src::Journal {
            payload: PayloadRef {
                segment: *segment,
                offset: *offset,
                len: *len,
            },
            from: *from,
        },
        SrcRecord::Hole => Src::Hole,
        SrcRecord::Zero => Src::Zero,
        SrcRecord::Shared(body, at) => Src::Shared {
            body: Arc::new(body_of(body, dirs)),
            at: *at,
        },
    }
}

fn content_record(inode: &Inode) -> ContentRecord {
    match &inode.content {
        Content::File(f) => {
            let (body, len) = f.body();
            let extents = f.extents().map(|p| {
                (
                    p.range.start,
                    p.range.end - p.range.start,
                    src_record(&p.src),
                )
            });
            ContentRecord::File(body_record(body), len, f.body_alloc(), extents.collect())
        }
        Content::Dir(d) => match &d.lazy {
            None if let (true, Some(id)) = (d.away, d.stored) => ContentRecord::Away(id),
            Some(base) => ContentRecord::LazyDir(base.path()),
            None => {
                let entries = d.map.entries();
                let entries = entries
                    .iter()
                    .map(|e| (e.name.to_vec(), e.entry.nid.0, e.entry.kind.mode_bits()));
                ContentRecord::Dir(entries.collect(), d.stored, d.unreadable)
            }
        },
        Content::Symlink(t) => ContentRecord::Symlink(t.to_vec()),
        Content::Special => ContentRecord::Special,
    }
}

fn content_of(record: &ContentRecord, dirs: &mut BaseDirs) -> Result<Content, Broken> {
    Ok(match record {
        ContentRecord::File(body, len, alloc, extents) => {
            let mut f = FileData::new(body_of(body, dirs), *len, *alloc);
            for (start, len, src) in extents {
                let end = start
                    .checked_add(*len)
                    .ok_or(Broken("an extent beyond all sizes"))?;
                f.set(*start..end, src_of(src, dirs));
            }
            Content::File(f)
        }
        ContentRecord::Dir(entries, stored, unreadable) => {
            let known = entries.iter().map(|(name, nid, bits)| {
                let kind = Kind::of_mode(*bits).ok_or(Broken("no such type"))?;
                let fits = name.len() <= 255 && *nid < 1 << 40;
                if fits {
                    Ok((
                        name.as_slice(),
                        Dentry {
                            nid: Nid(*nid),
                            kind,
                        },
                    ))
                } else {
                    Err(Broken("a bad entry"))
                }
            });
            let known = known.collect::<Result<Vec<_>, Broken>>()?;
            let subdirs = known.iter().filter(|(_, e)| e.kind == Kind::Dir).count() as u32;
            let mut d = Dir::new(DirMap::from_entries(known), subdirs);
            (d.stored, d.unreadable) = (*stored, *unreadable);
            Content::Dir(Box::new(d))
        }
        ContentRecord::LazyDir(path) => {
            let mut d = Dir::new(DirMap::default(), 0);
            d.lazy = Some(dirs.get(path));
            Content::Dir(Box::new(d))
        }
        ContentRecord::Away(id) => {
            let mut d = Dir::new(DirMap::default(), 0);
            (d.stored, d.away) = (Some(*id), true);
            Content::Dir(Box::new(d))
        }
        ContentRecord::Symlink(t) => Content::Symlink(t.as_slice().into()),
        ContentRecord::Special => Content::Special,
    })
}

/// The record of an inode.
pub fn record_of(i: &Inode) -> InodeRecord {
    let links = i.links.as_ref().map(|l| {
        (
            l.group,
            l.more.iter().map(|(&(p, h), &n)| (p, h, n)).collect(),
        )
    });
    InodeRecord {
        mode: i.mode,
        uid: i.uid,
        gid: i.gid,
        nlink: i.nlink,
        rdev: i.rdev,
        ino: i.ino,
        size: i.size,
        atime: i.atime,
        mtime: i.mtime,
        ctime: i.ctime,
        parent: i.parent.0,
        hash: i.hash,
        links,
        xattrs: i
            .xattrs
            .iter()
            .flat_map(|x| x.iter())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        content: content_record(i),
    }
}

/// The inode of a record.
pub fn inode_of(r: &InodeRecord, dirs: &mut BaseDirs) -> Result<Inode, Broken> {
    r.check()?;
    let links = r.links.as_ref().map(|(group, more)| {
        Arc::new(Links {
            group: *group,
            more: more.iter().map(|&(p, h, n)| ((p, h), n)).collect(),
        })
    });
    Ok(Inode {
        mode: r.mode,
        uid: r.uid,
        gid: r.gid,
        nlink: r.nlink,
        rdev: r.rdev,
        ino: r.ino,
        size: r.size,
        atime: r.atime,
        mtime: r.mtime,
        ctime: r.ctime,
        parent: Nid(r.parent),
        hash: r.hash,
        links,
        xattrs: (!r.xattrs.is_empty()).then(|| Arc::new(r.xattrs.iter().cloned().collect())),
        content: content_of(&r.content, dirs)?,
    })
}
