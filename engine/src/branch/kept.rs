//! A branch of a mount that outlived the daemon: what the kernel holds of it, as far as that can be known.
//!
//! The kernel's own marks are gone with the daemon that had them. So every inode counts as held until the kernel says
//! that it is not, and every removed directory as one that the kernel itself removed.

use super::outcomes::Outcomes;
use super::{Inner, drop_orphans};
use crate::tree::lookups::Lookups;
use crate::types::Kind;

impl Inner {
    /// Nothing is mounted: nobody holds removed files, no request comes again.
    pub(super) fn begin_unmounted(&mut self) {
        drop_orphans(&mut self.live);
        self.outcomes = Outcomes::default();
    }

    /// The branch is still mounted by this connection.
    pub(super) fn take_up(&mut self, connection: u64) {
        self.outcomes.keep_of(connection);
        self.lookups = Lookups::taken_over(self.book.counters.nid);
        let mut removed = Vec::new();
        self.live.for_each(&mut |nid, inode| {
            if inode.nlink == 0 && inode.kind() == Kind::Dir {
                removed.push(nid);
            }
        });
        for dir in removed {
            self.lookups.removed_by_kernel(dir);
        }
        if self.switch_replayed {
            self.doubt_sizes();
        }
    }

    /// The kernel held nothing of the branch before: what has no name goes, but for what it got since.
    pub fn held_nothing(&mut self) {
        self.lookups.held_nothing();
        let mut removed = Vec::new();
        self.live.for_each(&mut |nid, inode| {
            if inode.nlink == 0 {
                removed.push(nid);
            }
        });
        removed.into_iter().for_each(|nid| self.reap(nid));
    }

    /// The kernel may take each file's size for that of before a switch.
    fn doubt_sizes(&mut self) {
        let mut files = Vec::new();
        self.live.for_each(&mut |nid, inode| {
            if inode.file().is_some() {
                files.push(nid);
            }
        });
        for file in files {
            self.lookups.doubt_size(file);
        }
    }
}
