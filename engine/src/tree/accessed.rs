//! Access times that reads have moved.
//!
//! They are no part of a commit and not worth a journal record, so they are kept in memory, beside the
//! tree, until the workspace is closed. As with `relatime` of other file systems (mount(8)) a read
//! moves the time only where it would not be later than the last change, or is a day old.

use crate::limits::ACCESSED_MAX;
use crate::tree::inode::Inode;
use crate::types::{Nid, Time};
use std::collections::HashMap;

/// Age in seconds at which a read moves an access time in any case.
const DAY: i64 = 86_400;

/// Access times by inode, where they are not those of the tree.
#[derive(Debug, Default)]
pub struct Accessed(HashMap<Nid, Time>);

impl Accessed {
    /// The access time to show.
    pub fn of(&self, nid: Nid, inode: &Inode) -> Time {
        self.0.get(&nid).copied().unwrap_or(inode.atime)
    }

    /// The inode is read at `now`.
    pub fn read(&mut self, nid: Nid, inode: &Inode, now: Time) {
        let last = self.of(nid, inode);
        let is_due = last <= inode.mtime || last <= inode.ctime || now.sec - last.sec >= DAY;
        if is_due && (self.0.len() < ACCESSED_MAX || self.0.contains_key(&nid)) {
            self.0.insert(nid, now);
        }
    }

    /// The tree's own time counts again: it was set, or the inode is gone.
    pub fn forget(&mut self, nid: Nid) {
        self.0.remove(&nid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::inode::Content;

    fn at(sec: i64) -> Time {
        Time { sec, nsec: 0 }
    }

    fn inode(sec: i64) -> Inode {
        Inode {
            mode: 0o100_644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            ino: 9,
            size: 0,
            atime: at(sec),
            mtime: at(sec),
            ctime: at(sec),
            parent: Nid::ROOT,
            hash: 0,
            links: None,
            xattrs: None,
            content: Content::Special,
        }
    }

    #[test]
    fn a_read_moves_the_time_where_it_is_due() {
        let (nid, inode) = (Nid(7), inode(100));
        let mut accessed = Accessed::default();
        accessed.read(nid, &inode, at(200));
        assert_eq!(accessed.of(nid, &inode), at(200));
        accessed.read(nid, &inode, at(300));
        assert_eq!(accessed.of(nid, &inode), at(200), "read since the change");
        accessed.read(nid, &inode, at(200 + DAY));
        assert_eq!(accessed.of(nid, &inode), at(200 + DAY), "a day old");
        accessed.forget(nid);
        assert_eq!(accessed.of(nid, &inode), at(100));
    }
}
