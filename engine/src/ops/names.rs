//! Names: creating, linking, removing, renaming, looking up.

use super::{check_empty, check_name, dir_in, is_reserved, target};
use crate::branch::{Branch, Inner};
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::{LINKS_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX};
use crate::record::Mutation;
use crate::tree::acl;
use crate::tree::dirmap::{Dentry, name_hash};
use crate::tree::inode::{NEVER_NAMED, new_mode};
use crate::types::{Attr, By, Caller, Kind, Nid, RenameFlags, Wait};

/// What a new inode shall be.
struct New<'a> {
    kind: Kind,
    perm: u32,
    rdev: u32,
    target: &'a [u8],
}

/// The inode that a name stands for; counts a lookup.
pub(crate) fn lookup(branch: &Branch, parent: Nid, name: &[u8], wait: Wait) -> Result<Attr> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    branch.look(wait, |inner| {
        let entry = dir_in(inner, parent)?
            .map
            .get(name)
            .ok_or(Error::NotFound)?;
        found(branch, inner, entry.nid)
    })
}

/// Attributes of an inode that is handed to the kernel under a name.
fn found(branch: &Branch, inner: &mut Inner, nid: Nid) -> Result<Attr> {
    let attr = inner.attr(inner.live.inode(nid)?, branch.slot, nid);
    inner.lookups.add(nid);
    Ok(attr)
}

/// As [`found`], of an inode to which a request gave a name, whose answer did not reach the kernel.
pub(crate) fn handed_again(branch: &Branch, nid: Nid) -> Result<Attr> {
    let mut inner = branch.lock();
    found(branch, &mut inner, nid).map_err(|_| Error::Stale)
}

/// The same for one that the request made: in `parent` under a name, or without any.
pub(crate) fn made_again(
    branch: &Branch,
    parent: Nid,
    name: Option<&[u8]>,
    nid: Nid,
) -> Result<Attr> {
    let mut inner = branch.lock();
    let inode = inner.live.inode(nid)?;
    let is_as_made = match name {
        Some(name) => inode.nlink == 1 && (inode.parent, inode.hash) == (parent, name_hash(name)),
        None => inode.nlink == 0 && inode.hash == NEVER_NAMED,
    };
    if is_as_made {
        // Nobody else can have found it: the kernel looks nothing up in a directory in which it makes something. So what
        // it holds from now on is all that it holds.
        inner.lookups.was_not_held(nid);
    }
    found(branch, &mut inner, nid).map_err(|_| Error::Stale)
}

/// The kernel forgets an inode `n` times.
pub(crate) fn forget(branch: &Branch, nid: Nid, n: u64) {
    let mut inner = branch.lock();
    if inner.lookups.sub(nid, n) {
        inner.reap(nid);
        if inner.fence.as_ref().is_some_and(|f| f.has_vanished(nid)) {
            branch.signal_progress();
        }
    }
}

/// Makes a file, fifo, socket or device.
pub(crate) fn mknod(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: &[u8],
    mode: u32,
    rdev: u32,
    wait: Wait,
) -> Result<Attr> {
    let kind = Kind::of_mode(mode).ok_or(Error::Invalid)?;
    if matches!(kind, Kind::Dir | Kind::Symlink) {
        return Err(Error::Invalid);
    }
    create(
        branch,
        who,
        parent,
        name,
        &New {
            kind,
            perm: mode & 0o7777,
            rdev,
            target: b"",
        },
        wait,
    )
}

/// Makes a directory.
pub(crate) fn mkdir(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: &[u8],
    mode: u32,
    wait: Wait,
) -> Result<Attr> {
    create(
        branch,
        who,
        parent,
        name,
        &New {
            kind: Kind::Dir,
            perm: mode & 0o7777,
            rdev: 0,
            target: b"",
        },
        wait,
    )
}

/// Makes a symbolic link.
pub(crate) fn symlink(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: &[u8],
    target: &[u8],
    wait: Wait,
) -> Result<Attr> {
    if target.len() > SYMLINK_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    create(
        branch,
        who,
        parent,
        name,
        &New {
            kind: Kind::Symlink,
            perm: 0o777,
            rdev: 0,
            target,
        },
        wait,
    )
}

/// Makes a file without a name; it goes when the kernel forgets it, unless it got one.
pub(crate) fn tmpfile(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    perm: u32,
    wait: Wait,
) -> Result<Attr> {
    let new = New {
        kind: Kind::File,
        perm: perm & 0o7777,
        rdev: 0,
        target: b"",
    };
    make(branch, who, parent, None, &new, wait)
}

fn create(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: &[u8],
    new: &New<'_>,
    wait: Wait,
) -> Result<Attr> {
    make(branch, who, parent, Some(name), new, wait)
}

/// Makes an inode in a directory, under a name or (a file) without any.
fn make(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: Option<&[u8]>,
    new: &New<'_>,
    wait: Wait,
) -> Result<Attr> {
    branch.check_space(0)?;
    branch.request(wait, |inner| {
        match name {
            Some(name) => check_new_name(inner, parent, name, new.kind)?,
            None => drop(inner.live.dir(parent)?),
        }
        let dir = inner.live.inode(parent)?;
        let (bits, gid) = new_mode(new.kind, new.perm, dir);
        let (mode, xattrs) = acl::inherit(dir, new.kind, bits, who.umask);
        let (nid, ino) = (inner.book.counters.nid, inner.book.counters.ino);
        let (parent, uid, gid) = (parent.0, who.uid, gid.unwrap_or(who.gid));
        let (xattrs, now) = (xattrs.into_iter().collect(), clock::now());
        let m = match name {
            Some(name) => Mutation::Create {
                parent,
                name: name.to_vec(),
                nid,
                ino,
                mode,
                uid,
                gid,
                rdev: new.rdev,
                target: new.target.to_vec(),
                xattrs,
                now,
            },
            None => Mutation::Nameless {
                parent,
                nid,
                ino,
                mode,
                uid,
                gid,
                xattrs,
                now,
            },
        };
        branch.change(inner, m, &[])?;
        inner.book.counters.nid += 1;
        inner.book.counters.ino += 1;
        found(branch, inner, Nid(nid))
    })
}

/// Whether something of a kind can be made under a name.
fn check_new_name(inner: &Inner, parent: Nid, name: &[u8], kind: Kind) -> Result<()> {
    let dir = dir_in(inner, parent)?;
    if dir.map.get(name).is_some() {
        return Err(Error::Exists);
    }
    check_name(parent, name)?;
    if kind == Kind::Dir && dir.subdirs >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// Gives an inode a further name, or one without any its first.
pub(crate) fn link(
    branch: &Branch,
    nid: Nid,
    parent: Nid,
    name: &[u8],
    wait: Wait,
) -> Result<Attr> {
    branch.check_space(0)?;
    branch.request(wait, |inner| {
        let inode = target(inner, nid)?;
        if inode.dir().is_some() {
            return Err(Error::NotPermitted);
        }
        if !inode.can_be_linked() {
            return Err(Error::NotFound);
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        if dir_in(inner, parent)?.map.get(name).is_some() {
            return Err(Error::Exists);
        }
        check_name(parent, name)?;
        let group = inner.book.counters.ino;
        let m = Mutation::Link {
            nid: nid.0,
            parent: parent.0,
            name: name.to_vec(),
            group,
            now: clock::now(),
        };
        branch.change(inner, m, &[])?;
        inner.book.counters.ino += 1;
        found(branch, inner, nid)
    })
}

/// Removes a name of something that is no directory.
pub(crate) fn unlink(branch: &Branch, parent: Nid, name: &[u8], wait: Wait) -> Result<()> {
    branch.request(wait, |inner| {
        let entry = removable(branch, inner, parent, name)?;
        if entry.kind == Kind::Dir {
            return Err(Error::IsDir);
        }
        target(inner, entry.nid)?;
        remove(branch, inner, parent, name, entry)
    })
}

/// Removes an empty directory.
pub(crate) fn rmdir(branch: &Branch, parent: Nid, name: &[u8], by: By, wait: Wait) -> Result<()> {
    branch.request(wait, |inner| {
        let entry = removable(branch, inner, parent, name)?;
        if entry.kind != Kind::Dir {
            return Err(Error::NotDir);
        }
        check_empty(inner, entry)?;
        remove(branch, inner, parent, name, entry)?;
        if by == By::Kernel {
            inner.lookups.removed_by_kernel(entry.nid);
        }
        Ok(())
    })
}

fn removable(_branch: &Branch, inner: &Inner, parent: Nid, name: &[u8]) -> Result<Dentry> {
    if is_reserved(parent, name) {
        return Err(Error::NotPermitted);
    }
    dir_in(inner, parent)?.map.get(name).ok_or(Error::NotFound)
}

fn remove(
    branch: &Branch,
    inner: &mut Inner,
    parent: Nid,
    name: &[u8],
    entry: Dentry,
) -> Result<()> {
    branch.change(
        inner,
        Mutation::Unlink {
            parent: parent.0,
            name: name.to_vec(),
            now: clock::now(),
        },
        &[],
    )?;
    inner.reap(entry.nid);
    Ok(())
}

/// Moves a name (renameat2(2)).
pub(crate) fn rename(
    branch: &Branch,
    from: (Nid, &[u8]),
    to: (Nid, &[u8]),
    flags: RenameFlags,
    by: By,
    wait: Wait,
) -> Result<()> {
    if flags.whiteout.is_some() {
        branch.check_space(0)?;
    }
    branch.request(wait, |inner| {
        let moved = removable(branch, inner, from.0, from.1)?;
        let replaced = dir_in(inner, to.0)?.map.get(to.1);
        check_name(to.0, to.1)?;
        if flags.noreplace && replaced.is_some() {
            return Err(Error::Exists);
        }
        if replaced.is_some_and(|r| r.nid == moved.nid) {
            // Two names of one inode: nothing is done (rename(2)).
            return Ok(());
        }
        if flags.exchange && flags.whiteout.is_some() {
            return Err(Error::Invalid);
        }
        if flags.exchange {
            let other = replaced.ok_or(Error::NotFound)?;
            target(inner, other.nid)?;
            if other.kind == Kind::Dir && inner.live.is_within(from.0, other.nid) {
                return Err(Error::Invalid);
            }
        } else if let Some(r) = replaced {
            check_replaceable(inner, moved, r)?;
        }
        target(inner, moved.nid)?;
        if moved.kind == Kind::Dir && inner.live.is_within(to.0, moved.nid) {
            return Err(Error::Invalid);
        }
        let m = renaming(inner, from, to, flags)?;
        branch.change(inner, m, &[])?;
        if flags.whiteout.is_some() {
            inner.book.counters.nid += 1;
            inner.book.counters.ino += 1;
        }
        if let Some(r) = replaced {
            inner.reap(r.nid);
        }
        if by == By::Kernel && !flags.exchange {
            note_renamed_over(inner, to, replaced);
        }
        Ok(())
    })
}

fn renaming(
    inner: &Inner,
    from: (Nid, &[u8]),
    to: (Nid, &[u8]),
    flags: RenameFlags,
) -> Result<Mutation> {
    let (parent, name) = (from.0.0, from.1.to_vec());
    let (new_parent, new_name) = (to.0.0, to.1.to_vec());
    let Some(who) = flags.whiteout else {
        return Ok(Mutation::Rename {
            parent,
            name,
            new_parent,
            new_name,
            exchange: flags.exchange,
            now: clock::now(),
        });
    };
    let dir = inner.live.inode(from.0)?;
    let (bits, gid) = new_mode(Kind::Char, 0, dir);
    let (_, xattrs) = acl::inherit(dir, Kind::Char, bits, who.umask);
    Ok(Mutation::Whiteout {
        parent,
        name,
        new_parent,
        new_name,
        nid: inner.book.counters.nid,
        ino: inner.book.counters.ino,
        uid: who.uid,
        gid: gid.unwrap_or(who.gid),
        xattrs: xattrs.into_iter().collect(),
        now: clock::now(),
    })
}

/// Target of a symbolic link.
pub(crate) fn readlink(branch: &Branch, nid: Nid) -> Result<Vec<u8>> {
    match &branch.lock().live.inode(nid)?.content {
        crate::tree::inode::Content::Symlink(t) => Ok(t.to_vec()),
        _ => Err(Error::Invalid),
    }
}

/// The kernel has renamed something over a directory, which it thereby marks dead. It may have found there
/// what a rollback has just removed.
fn note_renamed_over(inner: &mut Inner, to: (Nid, &[u8]), replaced: Option<Dentry>) {
    let state = inner.fence.as_ref().map(|f| f.state);
    let before = state.and_then(|state| inner.book.history.tree(state)?.lookup(to.0, to.1).ok());
    for entry in replaced.into_iter().chain(before) {
        let is_gone = inner.live.get(entry.nid).is_none_or(|i| i.nlink == 0);
        if entry.kind == Kind::Dir && is_gone {
            inner.lookups.removed_by_kernel(entry.nid);
        }
    }
}

/// Whether `moved` may take the place of `replaced`.
fn check_replaceable(inner: &Inner, moved: Dentry, replaced: Dentry) -> Result<()> {
    match (moved.kind, replaced.kind) {
        (Kind::Dir, Kind::Dir) => check_empty(inner, replaced),
        (Kind::Dir, _) => Err(Error::NotDir),
        (_, Kind::Dir) => Err(Error::IsDir),
        _ => target(inner, replaced.nid).map(|_| ()),
    }
}
