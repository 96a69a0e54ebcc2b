//! Carrying out mutations.

use super::Tree;
use super::dirmap::{Dentry, DirMap, name_hash};
use super::file::{Body, FileData, Src};
use super::inode::{Content, Dir, Inode, NEVER_NAMED, Xattrs};
use crate::base::Stamp;
use crate::journal::PayloadRef;
use crate::record::{Allocation, Mutation};
use crate::types::{Kind, Nid, Time, mode};
use std::sync::Arc;

/// A mutation that does not fit the tree: a damaged journal, or our bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the change does not fit the tree: {0}")]
pub struct Broken(pub &'static str);

/// Attributes of a version of a base file that was taken anew.
#[derive(Debug, Clone, Copy)]
pub struct NewVersion {
    /// Length in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub alloc: u64,
    /// Modification time.
    pub mtime: Time,
    /// Change time.
    pub ctime: Time,
}

const NO_INODE: Broken = Broken("no such inode");
const NOT_DIR: Broken = Broken("not a directory");
const NOT_FILE: Broken = Broken("not a regular file");
const NO_NAME: Broken = Broken("no such name");

type Applied = Result<(), Broken>;

impl Tree {
    /// Carries out a mutation. `payload` is the record's, for [`Mutation::Write`].
    pub fn apply(&mut self, m: &Mutation, payload: Option<PayloadRef>) -> Applied {
        match m {
            Mutation::Create { .. } => self.create(m),
            Mutation::Link {
                nid,
                parent,
                name,
                group,
                now,
            } => self.link(Nid(*nid), (Nid(*parent), name), *group, *now),
            Mutation::Unlink { parent, name, now } => self.unlink(Nid(*parent), name, *now),
            Mutation::Rename {
                parent,
                name,
                new_parent,
                new_name,
                exchange,
                now,
            } => {
                let (from, to) = ((Nid(*parent), &name[..]), (Nid(*new_parent), &new_name[..]));
                if *exchange {
                    self.exchange(from, to, *now)
                } else {
                    self.rename(from, to, *now)
                }
            }
            Mutation::SetAttr { .. } => self.set_attr(m),
            Mutation::Write {
                nid,
                offset,
                perm,
                now,
            } => {
                let payload = payload.ok_or(Broken("a write without data"))?;
                self.write(Nid(*nid), *offset, payload, *perm, *now)
            }
            Mutation::Allocate {
                nid,
                offset,
                len,
                how,
                size,
                perm,
                now,
            } => {
                let range = *offset..offset.saturating_add(*len);
                self.allocate(Nid(*nid), range, *how, *size)?;
                self.touch(Nid(*nid), *perm, *now)
            }
            Mutation::Copy {
                src,
                src_offset,
                dst,
                dst_offset,
                len,
                perm,
                now,
            } => {
                self.copy((Nid(*src), *src_offset), (Nid(*dst), *dst_offset), *len)?;
                self.touch(Nid(*dst), *perm, *now)
            }
            Mutation::Nameless { .. } => self.create_nameless(m),
            Mutation::Whiteout { .. } => self.rename_leaving_whiteout(m),
            Mutation::Kv { key, entry } => {
                let entry = entry.as_ref().map(|e| Arc::new((**e).clone()));
                self.kv_mut().set(key, entry);
                Ok(())
            }
        }
    }

    /// Lays a payload into a file and sets its times.
    pub fn write(
        &mut self,
        nid: Nid,
        offset: u64,
        payload: PayloadRef,
        perm: Option<u32>,
        now: Time,
    ) -> Applied {
        let end = offset
            .checked_add(u64::from(payload.len))
            .ok_or(Broken("a write beyond all sizes"))?;
        self.change_file(nid, |i, f| {
            f.set(offset..end, Src::Journal { payload, from: 0 });
            i.size = i.size.max(end);
        })?;
        self.touch(nid, perm, now)
    }

    /// Replaces the body of a file where it is the base version `old`: by `body`, `size` bytes long; and
    /// what the file shares with that version by what `body` has there. True where it had any of it.
    pub fn take_anew(&mut self, nid: Nid, old: &Stamp, body: Body, new: NewVersion) -> bool {
        let is_old = |f: &FileData| matches!(f.body().0, Body::Base(b) if b.stamp() == old);
        let Some(file) = self
            .get(nid)
            .and_then(|i| i.file())
            .filter(|f| f.is_of(old))
        else {
            return false;
        };
        if !is_old(file) {
            let shared = self.change_file(nid, |_, f| f.share_anew(old, &body, new.size));
            return shared.is_ok();
        }
        self.change_file(nid, |i, f| {
            f.share_anew(old, &body, new.size);
            // What was done to the old version is done to the new one: writes, a shorter or longer
            // end, times.
            let written: Vec<_> = f.extents().collect();
            let (kept, plain) = (f.body().1, f.is_plain());
            *f = FileData::new(body, new.size, new.alloc);
            if kept < old.size {
                f.truncate(kept);
            }
            written.into_iter().for_each(|p| f.set(p.range, p.src));
            if (i.size, kept) == (old.size, old.size) {
                i.size = new.size.max(f.extents().last().map_or(0, |p| p.range.end));
            }
            f.truncate(i.size);
            if plain && i.mtime == old.mtime {
                i.mtime = new.mtime;
            }
            if plain && i.ctime == old.ctime {
                i.ctime = new.ctime;
            }
        })
        .is_ok()
    }

    fn change<R>(&mut self, nid: Nid, f: impl FnOnce(&mut Inode) -> R) -> Result<R, Broken> {
        self.update(nid, f).ok_or(NO_INODE)
    }

    fn change_dir<R>(
        &mut self,
        nid: Nid,
        f: impl FnOnce(&mut Inode, &mut Dir) -> R,
    ) -> Result<R, Broken> {
        self.change(nid, |i| {
            let Content::Dir(mut dir) = std::mem::replace(&mut i.content, Content::Special) else {
                return Err(NOT_DIR);
            };
            let r = f(i, &mut dir);
            i.content = Content::Dir(dir);
            Ok(r)
        })?
    }

    fn change_file<R>(
        &mut self,
        nid: Nid,
        f: impl FnOnce(&mut Inode, &mut FileData) -> R,
    ) -> Result<R, Broken> {
        if self.get(nid).ok_or(NO_INODE)?.file().is_none() {
            return Err(NOT_FILE);
        }
        self.change(nid, |i| {
            let Content::File(mut file) = std::mem::replace(&mut i.content, Content::Special)
            else {
                return Err(NOT_FILE);
            };
            let r = f(i, &mut file);
            i.content = Content::File(file);
            Ok(r)
        })?
    }

    /// Content changed: times, and set-id bits where they go.
    fn touch(&mut self, nid: Nid, perm: Option<u32>, now: Time) -> Applied {
        self.change(nid, |i| {
            (i.mtime, i.ctime) = (now, now);
            if let Some(p) = perm {
                i.mode = (i.mode & mode::FMT) | p;
            }
        })
    }

    /// Adds a name to a directory; returns its hash.
    fn add_entry(&mut self, parent: Nid, name: &[u8], nid: Nid, now: Time) -> Result<u64, Broken> {
        let kind = self.get(nid).ok_or(NO_INODE)?.kind();
        if self
            .get(parent)
            .and_then(|p| p.dir())
            .ok_or(NOT_DIR)?
            .map
            .get(name)
            .is_some()
        {
            return Err(Broken("the name exists"));
        }
        self.change_dir(parent, |i, d| {
            d.map.insert(name, Dentry { nid, kind });
            d.subdirs += u32::from(kind == Kind::Dir);
            (i.mtime, i.ctime) = (now, now);
        })?;
        Ok(name_hash(name))
    }

    /// Takes a name from a directory; returns what it named.
    fn take_entry(&mut self, parent: Nid, name: &[u8], now: Time) -> Result<Dentry, Broken> {
        self.change_dir(parent, |i, d| {
            let entry = d.map.remove(name).ok_or(NO_NAME)?;
            d.subdirs = d.subdirs.saturating_sub(u32::from(entry.kind == Kind::Dir));
            (i.mtime, i.ctime) = (now, now);
            Ok(entry)
        })?
    }

    /// A new inode under a name.
    fn create(&mut self, m: &Mutation) -> Applied {
        let Mutation::Create {
            parent,
            name,
            nid,
            ino,
            mode,
            uid,
            gid,
            rdev,
            target,
            xattrs,
            now,
        } = m
        else {
            return Err(Broken("not a creation"));
        };
        let content = new_content(*mode, target)?;
        let inode = Inode {
            rdev: *rdev,
            ..new_inode(*mode, (*uid, *gid), *ino, xattrs, (content, *now))
        };
        self.put_new(Nid(*nid), inode)?;
        self.name_new((Nid(*parent), name), Nid(*nid), *now)
    }

    /// A file that has no name and may get one.
    fn create_nameless(&mut self, m: &Mutation) -> Applied {
        let Mutation::Nameless {
            parent,
            nid,
            ino,
            mode,
            uid,
            gid,
            xattrs,
            now,
        } = m
        else {
            return Err(Broken("not a creation"));
        };
        let content = new_content(*mode, b"")?;
        if !matches!(content, Content::File(_)) {
            return Err(NOT_FILE);
        }
        let inode = Inode {
            parent: Nid(*parent),
            hash: NEVER_NAMED,
            ..new_inode(*mode, (*uid, *gid), *ino, xattrs, (content, *now))
        };
        self.put_new(Nid(*nid), inode)
    }

    fn rename_leaving_whiteout(&mut self, m: &Mutation) -> Applied {
        let Mutation::Whiteout {
            parent,
            name,
            new_parent,
            new_name,
            nid,
            ino,
            uid,
            gid,
            xattrs,
            now,
        } = m
        else {
            return Err(Broken("not a renaming"));
        };
        let (from, to) = ((Nid(*parent), &name[..]), (Nid(*new_parent), &new_name[..]));
        if from == to {
            return Err(Broken("a name moves to itself"));
        }
        let device = (Content::Special, *now);
        let inode = new_inode(mode::CHR, (*uid, *gid), *ino, xattrs, device);
        self.put_new(Nid(*nid), inode)?;
        self.rename(from, to, *now)?;
        self.name_new(from, Nid(*nid), *now)
    }

    /// Puts in an inode that has no name yet.
    fn put_new(&mut self, nid: Nid, inode: Inode) -> Applied {
        if self.get(nid).is_some() {
            return Err(Broken("the inode number is taken"));
        }
        self.set(nid, Arc::new(inode));
        Ok(())
    }

    /// Gives an inode its first name.
    fn name_new(&mut self, name: (Nid, &[u8]), nid: Nid, now: Time) -> Applied {
        let hash = self.add_entry(name.0, name.1, nid, now)?;
        self.change(nid, |i| i.add_name(name.0, hash, 0))
    }

    fn link(&mut self, nid: Nid, name: (Nid, &[u8]), group: u64, now: Time) -> Applied {
        let hash = self.add_entry(name.0, name.1, nid, now)?;
        self.change(nid, |i| {
            i.add_name(name.0, hash, group);
            i.ctime = now;
        })
    }

    fn unlink(&mut self, parent: Nid, name: &[u8], now: Time) -> Applied {
        let entry = self.take_entry(parent, name, now)?;
        self.drop_link(entry.nid, (parent, name_hash(name)), now)
    }

    fn drop_link(&mut self, nid: Nid, name: (Nid, u64), now: Time) -> Applied {
        self.change(nid, |i| {
            i.drop_name(name.0, name.1);
            i.ctime = now;
        })
    }

    fn rename(&mut self, from: (Nid, &[u8]), to: (Nid, &[u8]), now: Time) -> Applied {
        let moved = self
            .get(from.0)
            .and_then(|p| p.dir())
            .and_then(|d| d.map.get(from.1))
            .ok_or(NO_NAME)?;
        let replaced = self
            .get(to.0)
            .and_then(|p| p.dir())
            .ok_or(NOT_DIR)?
            .map
            .get(to.1);
        if replaced.is_some() {
            self.unlink(to.0, to.1, now)?;
        }
        self.take_entry(from.0, from.1, now)?;
        let hash = self.add_entry(to.0, to.1, moved.nid, now)?;
        self.change(moved.nid, |i| {
            i.move_name((from.0, name_hash(from.1)), (to.0, hash));
            i.ctime = now;
        })
    }

    fn exchange(&mut self, a: (Nid, &[u8]), b: (Nid, &[u8]), now: Time) -> Applied {
        let x = self.take_entry(a.0, a.1, now)?;
        let y = self.take_entry(b.0, b.1, now)?;
        let (ha, hb) = (name_hash(a.1), name_hash(b.1));
        self.add_entry(a.0, a.1, y.nid, now)?;
        self.add_entry(b.0, b.1, x.nid, now)?;
        if x.nid == y.nid {
            return Ok(());
        }
        for (nid, old, new) in [(x.nid, (a.0, ha), (b.0, hb)), (y.nid, (b.0, hb), (a.0, ha))] {
            self.change(nid, |i| {
                i.move_name(old, new);
                i.ctime = now;
            })?;
        }
        Ok(())
    }

    fn set_attr(&mut self, m: &Mutation) -> Applied {
        let Mutation::SetAttr {
            nid,
            perm,
            uid,
            gid,
            size,
            atime,
            mtime,
            ctime,
            xattrs,
        } = m
        else {
            return Err(Broken("not an attribute change"));
        };
        if let Some(size) = size {
            self.change_file(Nid(*nid), |i, f| {
                if *size < i.size {
                    f.truncate(*size);
                }
                i.size = *size;
            })?;
        }
        self.change(Nid(*nid), |i| {
            if let Some(p) = perm {
                i.mode = (i.mode & mode::FMT) | (p & 0o7777);
            }
            i.uid = uid.unwrap_or(i.uid);
            i.gid = gid.unwrap_or(i.gid);
            i.atime = atime.unwrap_or(i.atime);
            i.mtime = mtime.unwrap_or(i.mtime);
            i.ctime = *ctime;
            for (name, value) in xattrs {
                i.set_xattr(name, value.clone());
            }
        })
    }

    fn allocate(
        &mut self,
        nid: Nid,
        range: std::ops::Range<u64>,
        how: Allocation,
        size: u64,
    ) -> Applied {
        self.change_file(nid, |i, f| {
            i.size = size;
            // With KEEP_SIZE all of the range may lie beyond the end.
            let end = range.end.min(size);
            let inside = range.start.min(end)..end;
            match how {
                Allocation::Punch => f.punch(inside),
                Allocation::Zero => f.set(inside, Src::Zero),
                Allocation::Fill => {
                    for piece in f.pieces(inside) {
                        if piece.src == Src::Hole {
                            f.set(piece.range, Src::Zero);
                        }
                    }
                }
            }
        })
    }

    fn copy(&mut self, src: (Nid, u64), dst: (Nid, u64), len: u64) -> Applied {
        let from = self.get(src.0).ok_or(NO_INODE)?.file().ok_or(NOT_FILE)?;
        let end = dst
            .1
            .checked_add(len)
            .ok_or(Broken("a copy beyond all sizes"))?;
        let pieces = from.pieces(src.1..src.1.saturating_add(len));
        self.change_file(dst.0, |i, f| {
            for p in pieces {
                let start = dst.1 + (p.range.start - src.1);
                let range = start..start + (p.range.end - p.range.start);
                match p.src {
                    Src::Hole => f.punch(range),
                    src => f.set(range, src),
                }
            }
            i.size = i.size.max(end);
        })
    }
}

/// What a new inode of a type holds.
fn new_content(mode: u32, target: &[u8]) -> Result<Content, Broken> {
    let kind = Kind::of_mode(mode).ok_or(Broken("no such type"))?;
    Ok(match kind {
        Kind::File => Content::File(FileData::default()),
        Kind::Dir => Content::Dir(Box::new(Dir::new(DirMap::default(), 0))),
        Kind::Symlink => Content::Symlink(target.into()),
        _ => Content::Special,
    })
}

/// An inode without a name.
fn new_inode(
    mode: u32,
    (uid, gid): (u32, u32),
    ino: u64,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    (content, now): (Content, Time),
) -> Inode {
    let xattrs: Xattrs = xattrs.iter().cloned().collect();
    Inode {
        mode,
        uid,
        gid,
        nlink: 0,
        rdev: 0,
        ino,
        size: 0,
        atime: now,
        mtime: now,
        ctime: now,
        parent: Nid::ROOT,
        hash: 0,
        links: None,
        xattrs: (!xattrs.is_empty()).then(|| Arc::new(xattrs)),
        content,
    }
}

impl Inode {
    /// Sets (or with `None` removes) an extended attribute.
    pub fn set_xattr(&mut self, name: &[u8], value: Option<Vec<u8>>) {
        let mut all = self
            .xattrs
            .take()
            .map(Arc::unwrap_or_clone)
            .unwrap_or_default();
        match value {
            Some(v) => {
                all.insert(name.to_vec(), v);
            }
            None => {
                all.remove(name);
            }
        }
        self.xattrs = (!all.is_empty()).then(|| Arc::new(all));
    }
}
