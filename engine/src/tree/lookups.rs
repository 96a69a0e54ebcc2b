//! What the kernel holds: how often it knows each inode (four bytes for each), and of the few where it
//! matters, what it takes them for.
//!
//! All of this is about the inodes of one mount in the kernel's memory, so none of it is journaled. An
//! inode that the kernel has forgotten is in none of the sets.

use crate::types::Nid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

const PAGE: usize = 1024;

/// Where an append ended, in the kernel's eyes, and which of its threads made it. If that was one part of a
/// longer write(2), the next part comes there, from the same thread, before anybody else's write(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset behind it.
    pub end: u64,
    /// The thread.
    pub thread: u32,
}

/// Counts of neighbouring inode numbers.
#[derive(Debug)]
struct Page {
    counts: [u32; PAGE],
    /// How many of them are not 0.
    known: u32,
}

/// Lookup counts by inode number, and what goes with them.
#[derive(Debug, Default)]
pub struct Lookups {
    /// There is none where all counts are 0.
    pages: Vec<Option<Box<Page>>>,
    /// Inodes whose count is not 0.
    known: u64,
    /// Directories that the kernel itself removed: it has marked them dead for good.
    dead: BTreeSet<Nid>,
    /// By the number of such a directory: that under which it came back last.
    stand_ins: BTreeMap<Nid, Nid>,
    /// Files whose size may be another one than the kernel takes it for.
    doubted: BTreeSet<Nid>,
    /// Ranges of the kernel's pages that hold what was appended elsewhere in the file.
    misplaced: BTreeMap<Nid, Vec<Range<u64>>>,
    /// Files of which the last write(2) was an append, with that.
    appended: HashMap<Nid, Appended>,
}

impl Lookups {
    fn place(nid: Nid) -> (usize, usize) {
        (nid.0 as usize / PAGE, nid.0 as usize % PAGE)
    }

    /// Present count.
    pub fn get(&self, nid: Nid) -> u32 {
        let (page, slot) = Self::place(nid);
        self.pages
            .get(page)
            .and_then(|p| p.as_ref())
            .map_or(0, |p| p.counts[slot])
    }

    /// One more.
    pub fn add(&mut self, nid: Nid) {
        let (page, slot) = Self::place(nid);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let none = || {
            Box::new(Page {
                counts: [0; PAGE],
                known: 0,
            })
        };
        let page = self.pages[page].get_or_insert_with(none);
        let is_new = page.counts[slot] == 0;
        page.known += u32::from(is_new);
        self.known += u64::from(is_new);
        page.counts[slot] = page.counts[slot].saturating_add(1);
    }

    /// `n` fewer; true where none is left.
    pub fn sub(&mut self, nid: Nid, n: u64) -> bool {
        let (at, slot) = Self::place(nid);
        let Some(Some(page)) = self.pages.get_mut(at) else {
            return true;
        };
        let before = page.counts[slot];
        page.counts[slot] = before.saturating_sub(n.min(u64::from(u32::MAX)) as u32);
        let gone = page.counts[slot] == 0;
        let newly = gone && before > 0;
        page.known -= u32::from(newly);
        self.known -= u64::from(newly);
        if page.known == 0 {
            self.pages[at] = None;
        }
        if gone {
            self.dead.remove(&nid);
            self.stand_ins.retain(|_, is| *is != nid);
            self.doubted.remove(&nid);
            self.misplaced.remove(&nid);
            self.appended.remove(&nid);
        }
        gone
    }

    /// The kernel itself removes this directory (RMDIR, or RENAME over it). As long as it knows the inode
    /// nothing can be done in it, whatever the tree says, so it can stand for no directory that comes back.
    pub fn removed_by_kernel(&mut self, dir: Nid) {
        if self.get(dir) > 0 {
            self.dead.insert(dir);
        }
    }

    /// A directory that the kernel had removed came back under another number.
    pub fn came_back_as(&mut self, dir: Nid, number: Nid) {
        self.stand_ins.insert(dir, number);
    }

    /// Directories that must not come back under their own number, each with the one that it had last
    /// instead: who stands in that one is to be back with it.
    pub fn dead(&self) -> Vec<(Nid, Option<Nid>)> {
        let alive = |nid: &Nid| !self.dead.contains(nid);
        let all = self.dead.iter().chain(self.stand_ins.keys());
        let all: BTreeSet<Nid> = all.copied().collect();
        let stand_in = |nid: &Nid| self.stand_ins.get(nid).copied().filter(alive);
        let all = all.into_iter().map(|nid| (nid, stand_in(&nid)));
        all.filter(|(nid, other)| other.is_some() || !alive(nid))
            .collect()
    }

    /// The file's size changes behind the kernel's back.
    pub fn doubt_size(&mut self, file: Nid) {
        if self.get(file) > 0 {
            self.doubted.insert(file);
        }
    }

    /// Whether the kernel may take the file's size for another one.
    pub fn is_doubted(&self, file: Nid) -> bool {
        !self.doubted.is_empty() && self.doubted.contains(&file)
    }

    /// The kernel has shown that it knows the file's size.
    pub fn trust_size(&mut self, file: Nid) {
        self.doubted.remove(&file);
    }

    /// The kernel's pages have something in this range that is elsewhere in the file.
    pub fn misplace(&mut self, file: Nid, range: Range<u64>) {
        self.misplaced.entry(file).or_default().push(range);
    }

    /// Ranges of the file in which the kernel's pages are wrong.
    pub fn misplaced(&self, file: Nid) -> &[Range<u64>] {
        self.misplaced.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Files whose pages are wrong somewhere, with the ranges.
    pub fn all_misplaced(&self) -> Vec<(Nid, Vec<Range<u64>>)> {
        let all = self.misplaced.iter();
        all.map(|(nid, ranges)| (*nid, ranges.clone())).collect()
    }

    /// The kernel has dropped the pages of these ranges.
    pub fn dropped(&mut self, file: Nid, ranges: &[Range<u64>]) {
        if let Some(left) = self.misplaced.get_mut(&file) {
            left.retain(|range| !ranges.contains(range));
            if left.is_empty() {
                self.misplaced.remove(&file);
            }
        }
    }

    /// Takes down the last write(2) into a file: where it ended, if it was an append.
    pub fn note_write(&mut self, file: Nid, append: Option<Appended>) {
        match append.filter(|_| self.get(file) > 0) {
            Some(append) => drop(self.appended.insert(file, append)),
            None if self.appended.is_empty() => {}
            None => drop(self.appended.remove(&file)),
        }
    }

    /// The last write(2) into a file, if it was an append; it is forgotten here.
    pub fn take_appended(&mut self, file: Nid) -> Option<Appended> {
        self.appended.remove(&file)
    }

    /// True where the kernel knows none.
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Forgets all: nothing is mounted any more.
    pub fn clear(&mut self) {
        *self = Lookups::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let mut l = Lookups::default();
        assert_eq!(l.get(Nid(5_000_000)), 0);
        l.add(Nid(5_000));
        l.add(Nid(5_000));
        assert!(!l.sub(Nid(5_000), 1));
        assert!(l.sub(Nid(5_000), 9));
        assert!(l.sub(Nid(77), 1));
    }

    #[test]
    fn a_page_in_which_nothing_is_known_is_freed() {
        let pages = |l: &Lookups| l.pages.iter().flatten().count();
        let mut l = Lookups::default();
        for nid in 0..5 * PAGE as u64 {
            l.add(Nid(nid));
        }
        assert_eq!(pages(&l), 5);
        for nid in (0..5 * PAGE as u64).filter(|nid| *nid != 3000) {
            assert!(l.sub(Nid(nid), 1) && l.sub(Nid(nid), 1), "{nid}");
        }
        assert_eq!((pages(&l), l.get(Nid(3000)), l.known), (1, 1, 1));
        assert!(l.sub(Nid(3000), 1) && l.is_empty() && pages(&l) == 0);
    }

    #[test]
    fn what_goes_with_an_inode_is_forgotten_with_it() {
        let mut l = Lookups::default();
        l.removed_by_kernel(Nid(3));
        l.doubt_size(Nid(3));
        assert!(l.dead().is_empty() && !l.is_doubted(Nid(3)), "unknown");
        l.add(Nid(3));
        l.removed_by_kernel(Nid(3));
        l.doubt_size(Nid(3));
        l.misplace(Nid(3), 4..9);
        let append = Appended { end: 9, thread: 7 };
        l.note_write(Nid(3), Some(append));
        assert_eq!(l.take_appended(Nid(3)), Some(append));
        l.note_write(Nid(3), Some(append));
        assert_eq!(l.dead(), [(Nid(3), None)]);
        assert!(l.is_doubted(Nid(3)) && l.misplaced(Nid(3)).contains(&(4..9)));
        l.sub(Nid(3), 1);
        assert!(l.dead().is_empty() && !l.is_doubted(Nid(3)));
        assert!(l.misplaced(Nid(3)).is_empty());
        assert_eq!(l.take_appended(Nid(3)), None);
    }

    #[test]
    fn a_directory_comes_back_under_its_last_number_until_that_is_dead_or_forgotten() {
        let mut l = Lookups::default();
        [3, 4].into_iter().for_each(|n| l.add(Nid(n)));
        l.removed_by_kernel(Nid(3));
        l.came_back_as(Nid(3), Nid(4));
        assert_eq!(l.dead(), [(Nid(3), Some(Nid(4)))]);
        l.sub(Nid(3), 1);
        assert_eq!(
            l.dead(),
            [(Nid(3), Some(Nid(4)))],
            "somebody may stand in it"
        );
        l.removed_by_kernel(Nid(4));
        assert_eq!(l.dead(), [(Nid(4), None)]);
        l.sub(Nid(4), 1);
        assert!(l.dead().is_empty());
    }

    #[test]
    fn dropped_ranges_are_right_again() {
        let mut l = Lookups::default();
        l.misplace(Nid(1), 0..4);
        l.misplace(Nid(1), 6..8);
        l.dropped(Nid(1), &[0..4, 0..2]);
        let (nid, left) = l.all_misplaced().remove(0);
        assert!(nid == Nid(1) && left.len() == 1 && left.contains(&(6..8)));
        l.dropped(Nid(1), &[6..8, 9..10]);
        assert!(l.all_misplaced().is_empty());
    }
}
