//! File operations on a branch, one file for each kind.

pub(crate) mod attr;
pub(crate) mod data;
pub(crate) mod list;
pub(crate) mod names;
pub(crate) mod xattr;

use crate::branch::Inner;
use crate::error::{Error, Result};
use crate::limits::{NAME_BYTES_MAX, RESERVED_NAME};
use crate::tree::dirmap::Dentry;
use crate::tree::inode::{Dir, Inode};
use crate::types::{Kind, Nid, mode};
use std::sync::Arc;

/// A directory whose entries are known.
fn dir_in(inner: &Inner, nid: Nid) -> Result<&Dir> {
    let dir = inner.live.dir(nid)?;
    if dir.is_lazy() {
        return Err(Error::NeedsDir(nid));
    }
    if dir.unreadable {
        Err(Error::Access)
    } else {
        Ok(dir)
    }
}

/// An inode that may be changed: one of the base with several links only once all of them are known.
fn target(inner: &Inner, nid: Nid) -> Result<&Arc<Inode>> {
    let inode = inner.live.inode(nid)?;
    if inode.links.is_some() && !inner.knows_links() {
        return Err(Error::NeedsScan);
    }
    Ok(inode)
}

fn check_name(parent: Nid, name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(Error::Invalid);
    }
    if is_reserved(parent, name) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

fn is_reserved(parent: Nid, name: &[u8]) -> bool {
    parent == Nid::ROOT && name == RESERVED_NAME
}

/// Fails where `entry` is a directory that has entries.
fn check_empty(inner: &Inner, entry: Dentry) -> Result<()> {
    if entry.kind == Kind::Dir && !dir_in(inner, entry.nid)?.map.is_empty() {
        return Err(Error::NotEmpty);
    }
    Ok(())
}

/// Permission bits without set-id, where some go: set-user-id always, set-group-id where the group
/// may execute or the caller is `outside` of it (chown(2)).
fn without_set_id(inode: &Inode, outside: bool) -> Option<u32> {
    let bits = inode.mode & 0o7777;
    let mut cleared = bits & !mode::SUID;
    if bits & 0o010 != 0 || outside {
        cleared &= !mode::SGID;
    }
    (inode.kind() != Kind::Dir && cleared != bits).then_some(cleared)
}
