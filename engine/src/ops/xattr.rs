//! Extended attributes (xattr(7)).

use super::target;
use crate::branch::Branch;
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::{NAME_BYTES_MAX, XATTR_BYTES_MAX};
use crate::record::Mutation;
use crate::tree::acl::{self, Acl};
use crate::tree::inode::Inode;
use crate::types::{Kind, Nid, SETXATTR_KILL_SGID, Wait, mode};

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Value of an attribute.
pub(crate) fn getxattr(branch: &Branch, nid: Nid, name: &[u8]) -> Result<Vec<u8>> {
    check_space_of(name)?;
    let inner = branch.lock();
    inner
        .live
        .inode(nid)?
        .xattr(name)
        .cloned()
        .ok_or(Error::NoData)
}

/// Names of all attributes, each ended by NUL.
pub(crate) fn listxattr(branch: &Branch, nid: Nid) -> Result<Vec<u8>> {
    let inner = branch.lock();
    let inode = inner.live.inode(nid)?;
    let names = inode.xattrs.iter().flat_map(|x| x.keys());
    Ok(names.flat_map(|n| n.iter().copied().chain([0])).collect())
}

/// [`listxattr`] without what only root may see (xattr(7), trusted).
pub(crate) fn listxattr_of_others(branch: &Branch, nid: Nid) -> Result<Vec<u8>> {
    let names = listxattr(branch, nid)?;
    let each = names.split_inclusive(|byte| *byte == 0);
    let seen = each.filter(|name| !name.starts_with(b"trusted."));
    Ok(seen.flatten().copied().collect())
}

/// Sets an attribute.
pub(crate) fn setxattr(
    branch: &Branch,
    nid: Nid,
    name: &[u8],
    value: &[u8],
    flags: u32,
    wait: Wait,
) -> Result<()> {
    if name.len() > NAME_BYTES_MAX || value.len() > XATTR_BYTES_MAX {
        return Err(Error::TooBig);
    }
    branch.check_space(value.len() as u64)?;
    branch.request(wait, |inner| {
        let inode = target(inner, nid)?;
        check_space_of(name)?;
        match inode.xattr(name).is_some() {
            true if flags & CREATE != 0 => return Err(Error::Exists),
            false if flags & REPLACE != 0 => return Err(Error::NoData),
            _ => {}
        }
        let (mut perm, value) = access_list(inode, name, value)?;
        if flags & SETXATTR_KILL_SGID != 0 {
            perm = perm.map(|perm| perm & !mode::SGID);
        }
        let same_perm = perm.is_none_or(|perm| perm == inode.mode & 0o7777);
        if same_perm && inode.xattr(name) == value.as_ref() {
            // Nothing changes, so neither does the change time.
            return Ok(());
        }
        branch.change(inner, set(nid, perm, name, value), &[])
    })
}

/// Removes an attribute.
pub(crate) fn removexattr(branch: &Branch, nid: Nid, name: &[u8], wait: Wait) -> Result<()> {
    branch.request(wait, |inner| {
        let inode = target(inner, nid)?;
        check_space_of(name)?;
        if inode.xattr(name).is_none() {
            // Removing a list that is not there succeeds, as on other file systems.
            let list = name == acl::ACCESS || name == acl::DEFAULT;
            return if list { Ok(()) } else { Err(Error::NoData) };
        }
        branch.change(inner, set(nid, None, name, None), &[])
    })
}

fn set(nid: Nid, perm: Option<u32>, name: &[u8], value: Option<Vec<u8>>) -> Mutation {
    Mutation::SetAttr {
        nid: nid.0,
        perm,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        ctime: clock::now(),
        xattrs: vec![(name.to_vec(), value)],
    }
}

fn check_space_of(name: &[u8]) -> Result<()> {
    let known = [&b"user."[..], b"trusted.", b"security."];
    if known.contains(&name) {
        return Err(Error::Invalid);
    }
    let prefixed = known.iter().any(|p| name.starts_with(p));
    if prefixed || name == acl::ACCESS || name == acl::DEFAULT {
        Ok(())
    } else {
        Err(Error::NotSupported)
    }
}

/// An access list sets the mode bits too; one that says no more than they do is not kept.
fn access_list(inode: &Inode, name: &[u8], value: &[u8]) -> Result<(Option<u32>, Option<Vec<u8>>)> {
    if name == acl::DEFAULT && inode.kind() != Kind::Dir {
        return Err(Error::Access);
    }
    if name != acl::ACCESS && name != acl::DEFAULT {
        return Ok((None, Some(value.to_vec())));
    }
    let list = Acl::parse(value).ok_or(Error::Invalid)?;
    if name == acl::DEFAULT {
        return Ok((None, Some(value.to_vec())));
    }
    let kept = (!list.is_minimal()).then(|| value.to_vec());
    Ok((Some(acl::mode_with(inode, &list)), kept))
}
