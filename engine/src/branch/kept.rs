//! A branch of a mount that outlived the daemon: what the kernel holds of it, as far as that can be known.
//!
//! The kernel's own marks are gone with the daemon that had them. So every inode counts as held until the kernel says
//! that it is not, and every removed directory as one that the kernel itself removed.

use super::Inner;
use super::notable::Notable;
use super::outcomes::Outcomes;
use crate::tree::lookups::Lookups;
use crate::types::{Kind, Nid};

impl Inner {
    /// Nothing is mounted: nobody holds removed files, no request comes again.
    pub(super) fn begin_unmounted(&mut self, notable: &Notable) {
        for (nid, _) in self.nameless(notable) {
            self.live.remove(nid);
        }
        self.outcomes = Outcomes::default();
        self.cut_off.clear();
    }

    /// The branch is still mounted by this connection.
    pub(super) fn take_up(&mut self, connection: u64, notable: &Notable) {
        self.outcomes.keep_of(connection);
        self.lookups = Lookups::taken_over(self.book.counters.nid);
        for (nid, kind) in self.nameless(notable) {
            if kind == Kind::Dir {
                self.lookups.removed_by_kernel(nid);
            }
        }
        if !self.cut_off.is_empty() {
            self.doubt_sizes();
        }
    }

    /// Inodes of the live tree that have no name.
    fn nameless(&self, notable: &Notable) -> Vec<(Nid, Kind)> {
        let mut nameless = Vec::new();
        notable.each(&self.live, &mut |nid, inode| {
            if inode.nlink == 0 {
                nameless.push((nid, inode.kind()));
            }
        });
        nameless
    }

    /// The kernel held nothing of the branch before: what has no name goes, but for what it got since.
    pub fn held_nothing(&mut self) {
        self.lookups.held_nothing();
        let mut removed = Vec::new();
        self.live.for_each_open(&mut |nid, inode| {
            if inode.nlink == 0 {
                removed.push(nid);
            }
        });
        removed.into_iter().for_each(|nid| self.reap(nid));
    }

    /// The kernel may take each file's size for another one, as that of before a switch.
    pub fn doubt_sizes(&mut self) {
        self.lookups.doubt_before();
    }
}
