//! Attributes.

use super::{target, without_set_id};
use crate::branch::Branch;
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::FILE_BYTES_MAX;
use crate::record::Mutation;
use crate::tree::acl;
use crate::tree::inode::Inode;
use crate::types::{Attr, Caller, Kind, Nid, SetAttr, SetTime, Time, Wait, mode};

const CAPABILITY: &[u8] = b"security.capability";

/// What `stat` shows. A directory's link count and size need its entries.
pub(crate) fn getattr(branch: &Branch, nid: Nid) -> Result<Attr> {
    let inner = branch.lock();
    Ok(inner.attr(inner.live.inode(nid)?, branch.slot, nid))
}

/// Changes attributes; returns them all.
pub(crate) fn setattr(
    branch: &Branch,
    who: &Caller,
    nid: Nid,
    set: &SetAttr,
    wait: Wait,
) -> Result<Attr> {
    branch.request(wait, |inner| {
        let inode = target(inner, nid)?;
        if let Some(size) = set.size {
            check_size(inode, size)?;
            // By a path that a rollback has just taken away: the kernel looks the path up again.
            let fence = inner.fence.as_ref().filter(|_| set.by_path);
            if fence.is_some_and(|f| f.has_vanished(nid)) {
                return Err(Error::Stale);
            }
        }
        let m = mutation(who, nid, inode, set, clock::now());
        branch.change(inner, m, &[])?;
        if set.atime.is_some() {
            inner.accessed.forget(nid);
        }
        Ok(inner.attr(inner.live.inode(nid)?, branch.slot, nid))
    })
}

fn check_size(inode: &Inode, size: u64) -> Result<()> {
    match inode.kind() {
        Kind::File if size > FILE_BYTES_MAX => Err(Error::FileTooLarge),
        Kind::File => Ok(()),
        Kind::Dir => Err(Error::IsDir),
        _ => Err(Error::Invalid),
    }
}

fn mutation(who: &Caller, nid: Nid, inode: &Inode, set: &SetAttr, now: Time) -> Mutation {
    let at = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::At(t) => t,
    };
    let owner_changes = set.uid.is_some() || set.gid.is_some();
    let truncated_by_other = set.size.is_some() && set.kill_suidgid;
    let mut perm = set.perm.map(|p| p & 0o7777);
    let mut xattrs = Vec::new();
    // A change of nothing is how the kernel asks for set-id bits to go before a write. Root keeps them:
    // of a file with capabilities the kernel asks the same, and takes those away itself.
    let nothing = SetAttr {
        by_path: set.by_path,
        ..SetAttr::default()
    };
    let asked = who.uid != 0 && *set == nothing;
    let is_dir = inode.kind() == Kind::Dir;
    if !is_dir && (owner_changes || truncated_by_other || asked) {
        let is_outside = who.gid != inode.gid && (who.uid != 0 || truncated_by_other);
        let outside = is_outside || asked && is_asked_for_locking(inode);
        perm = perm.or_else(|| without_set_id(inode, outside));
        if inode.xattr(CAPABILITY).is_some() {
            xattrs.push((CAPABILITY.to_vec(), None));
        }
    }
    if let Some(acl) = perm.and_then(|p| acl::after_chmod(inode, p)) {
        xattrs.push((acl::ACCESS.to_vec(), Some(acl)));
    }
    Mutation::SetAttr {
        nid: nid.0,
        perm,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(at),
        mtime: set.mtime.map(at).or(set.size.map(|_| now)),
        ctime: set.ctime.unwrap_or(now),
        xattrs,
    }
}

/// Whether the kernel can only have asked for set-id bits to go because of set-group-id without group execution, which
/// stands for locking: so the caller is in none of the groups that may keep it, of which a request names one.
fn is_asked_for_locking(inode: &Inode) -> bool {
    inode.mode & mode::SUID == 0 && inode.xattr(CAPABILITY).is_none()
}
