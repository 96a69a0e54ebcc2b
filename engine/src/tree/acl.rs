//! POSIX access control lists, as the kernel passes them in extended attributes.
//!
//! Layout (linux/posix_acl_xattr.h): version 2 as a little-endian u32, then entries of tag u16,
//! permissions u16, id u32. The kernel checks access; what is left to do here is to keep mode bits
//! and access list in step, and to let new files inherit the default list.

use crate::tree::inode::{Inode, Xattrs};
use crate::types::{Kind, mode};

/// Name of the access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default list.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A decoded list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// Decodes a list; `None` where it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Acl> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || rest.len() % 8 != 0 {
            return None;
        }
        let entry = |e: &[u8]| AclEntry {
            tag: u16::from_le_bytes([e[0], e[1]]),
            perm: u16::from_le_bytes([e[2], e[3]]),
            id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        };
        Some(Acl(rest.chunks_exact(8).map(entry).collect()))
    }

    /// Encodes the list.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend_from_slice(&e.tag.to_le_bytes());
            out.extend_from_slice(&e.perm.to_le_bytes());
            out.extend_from_slice(&e.id.to_le_bytes());
        }
        out
    }

    fn perm(&self, tag: u16) -> Option<u32> {
        self.0
            .iter()
            .find(|e| e.tag == tag)
            .map(|e| u32::from(e.perm & 7))
    }

    fn set(&mut self, tag: u16, perm: u32) {
        for e in self.0.iter_mut().filter(|e| e.tag == tag) {
            e.perm = perm as u16;
        }
    }

    /// The nine permission bits that the list stands for.
    pub fn mode_bits(&self) -> u32 {
        let group = self.perm(MASK).or(self.perm(GROUP_OBJ)).unwrap_or(0);
        (self.perm(USER_OBJ).unwrap_or(0) << 6) | (group << 3) | self.perm(OTHER).unwrap_or(0)
    }

    /// True where the list says no more than mode bits can.
    pub fn is_minimal(&self) -> bool {
        self.0
            .iter()
            .all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Puts new permission bits into the list (chmod(2)).
    pub fn chmod(&mut self, bits: u32) {
        self.set(USER_OBJ, (bits >> 6) & 7);
        let group = if self.perm(MASK).is_some() {
            MASK
        } else {
            GROUP_OBJ
        };
        self.set(group, (bits >> 3) & 7);
        self.set(OTHER, bits & 7);
    }

    /// Narrows an inherited list by the bits that a creator asked for (acl(5), "object creation").
    fn narrow(&mut self, bits: u32) {
        let narrowed = self.mode_bits() & bits;
        self.chmod(narrowed);
    }
}

/// What a new inode starts with: permission bits and lists, from the directory's default list or,
/// without one, from the umask.
pub fn inherit(parent: &Inode, kind: Kind, bits: u32, umask: u32) -> (u32, Xattrs) {
    let mut lists = Xattrs::new();
    if kind == Kind::Symlink {
        return (bits, lists);
    }
    let default = parent
        .xattr(DEFAULT)
        .and_then(|v| Some((v, Acl::parse(v)?)));
    let Some((raw, mut acl)) = default else {
        return (bits & !(umask & 0o777), lists);
    };
    acl.narrow(bits);
    if !acl.is_minimal() {
        lists.insert(ACCESS.to_vec(), acl.to_bytes());
    }
    if kind == Kind::Dir {
        lists.insert(DEFAULT.to_vec(), raw.clone());
    }
    ((bits & !0o777) | acl.mode_bits(), lists)
}

/// The access list after a chmod to `bits`, where the inode has one.
pub fn after_chmod(inode: &Inode, bits: u32) -> Option<Vec<u8>> {
    let mut acl = Acl::parse(inode.xattr(ACCESS)?)?;
    acl.chmod(bits);
    Some(acl.to_bytes())
}

/// Permission bits of an inode once `acl` is its access list.
pub fn mode_with(inode: &Inode, acl: &Acl) -> u32 {
    (inode.mode & !mode::FMT & !0o777) | acl.mode_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|&(tag, perm, id)| AclEntry { tag, perm, id })
            .collect())
    }

    #[test]
    fn encodes_and_decodes() {
        let a = acl(&[
            (USER_OBJ, 7, u32::MAX),
            (2, 5, 1000),
            (GROUP_OBJ, 5, u32::MAX),
            (MASK, 5, u32::MAX),
            (OTHER, 0, u32::MAX),
        ]);
        assert_eq!(Acl::parse(&a.to_bytes()), Some(a.clone()));
        assert_eq!(a.mode_bits(), 0o750);
        assert!(!a.is_minimal());
        assert!(Acl::parse(&[2, 0, 0, 0, 1]).is_none());
        assert!(Acl::parse(&[3, 0, 0, 0]).is_none());
    }

    #[test]
    fn chmod_changes_the_mask_not_the_named_users() {
        let mut a = acl(&[
            (USER_OBJ, 6, 0),
            (2, 7, 5),
            (GROUP_OBJ, 7, 0),
            (MASK, 7, 0),
            (OTHER, 4, 0),
        ]);
        a.chmod(0o640);
        assert_eq!(a.mode_bits(), 0o640);
        assert_eq!(a.perm(2), Some(7));
        assert_eq!(a.perm(GROUP_OBJ), Some(7));
    }
}
