//! What the kernel holds: how often it knows each inode (four bytes for each), and of the few where it
//! matters, what it takes them for. Beside it, which files are open by handles, which keep a file as a descriptor
//! of the kernel's does.
//!
//! All of this is about the inodes of one mount in the kernel's memory, so none of it is journaled. An
//! inode that the kernel has forgotten is in none of the sets.

use super::recent::Recent;
use crate::types::Nid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Instant;

const PAGE: usize = 1024;
/// Set in a count that began before this daemon: the kernel may hold the inode besides what was counted since.
const BEFORE: u32 = 1 << 31;

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

impl Page {
    fn of(count: u32) -> Box<Page> {
        Box::new(Page {
            counts: [count; PAGE],
            known: if count == 0 { 0 } else { PAGE as u32 },
        })
    }
}

/// The counts of a page.
#[derive(Debug, Default)]
struct Counts {
    /// What all of them are where there is no page: 0 or [`BEFORE`].
    all: u32,
    page: Option<Box<Page>>,
}

impl Counts {
    /// So many of them are [`BEFORE`], the others 0.
    fn before(known: usize) -> Counts {
        let mut counts = Counts {
            all: BEFORE,
            page: None,
        };
        for slot in known..PAGE {
            counts.set(slot, 0);
        }
        counts
    }

    fn get(&self, slot: usize) -> u32 {
        self.page.as_ref().map_or(self.all, |p| p.counts[slot])
    }

    /// Sets a count; gives the one before.
    fn set(&mut self, slot: usize, count: u32) -> u32 {
        let page = self.page.get_or_insert_with(|| Page::of(self.all));
        let before = std::mem::replace(&mut page.counts[slot], count);
        page.known = page.known + u32::from(count != 0) - u32::from(before != 0);
        if page.known == 0 {
            *self = Counts::default();
        }
        before
    }
}

/// Lookup counts by inode number, and what goes with them.
#[derive(Debug, Default)]
pub struct Lookups {
    pages: Vec<Counts>,
    /// Inodes whose count is not 0.
    known: u64,
    /// Directories that the kernel itself removed: it has marked them dead for good.
    dead: BTreeSet<Nid>,
    /// By the number of such a directory: that under which it came back last.
    stand_ins: BTreeMap<Nid, Nid>,
    /// Files whose size may be another one than the kernel takes it for.
    doubted: BTreeSet<Nid>,
    /// The same holds of every file that the kernel may have held before, but for those that it has shown to know since.
    doubts_before: bool,
    trusted: BTreeSet<Nid>,
    /// Ranges of the kernel's pages that hold what was appended elsewhere in the file.
    misplaced: BTreeMap<Nid, Vec<Range<u64>>>,
    /// Files of which the last write(2) was an append, with that.
    appended: HashMap<Nid, Appended>,
    /// How often files are open by handles.
    opened: BTreeMap<Nid, u32>,
    /// How often all was forgotten: a handle of before is stale.
    epoch: u64,
    /// Inodes with a lower number may be held by the kernel, whatever their count is ([`Lookups::may_know`]).
    end_of_before: u64,
    /// What the kernel held before was found out.
    is_settled: bool,
    /// Looked up lately, of those that may have been held before.
    recent: Recent,
}

impl Lookups {
    fn place(nid: Nid) -> (usize, usize) {
        (nid.0 as usize / PAGE, nid.0 as usize % PAGE)
    }

    /// Those of a daemon that took a mount over: the kernel may hold every inode with a number below `end`.
    pub fn taken_over(end: u64) -> Lookups {
        let (whole, rest) = Self::place(Nid(end));
        let pages = (0..whole).map(|_| Counts::before(PAGE));
        let last = (rest > 0).then(|| Counts::before(rest));
        Lookups {
            pages: pages.chain(last).collect(),
            known: end,
            end_of_before: end,
            ..Lookups::default()
        }
    }

    /// What the kernel held before was found out, as far as that can be.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Whether the kernel may have pages, attributes or names of an inode. Of those that a daemon before handed out it may,
    /// whatever it said when it was asked: an answer of that daemon may not have reached its reader by then.
    pub fn may_know(&self, nid: Nid) -> bool {
        nid.0 < self.end_of_before || self.get(nid) > 0
    }

    /// Present count; one more where the kernel may have held the inode before, and one for each handle.
    pub fn get(&self, nid: Nid) -> u32 {
        let count = self.count(nid);
        let handles = match self.opened.is_empty() {
            true => 0,
            false => self.opened.get(&nid).copied().unwrap_or(0),
        };
        ((count & !BEFORE) + u32::from(count & BEFORE != 0)).saturating_add(handles)
    }

    /// Whether the kernel may hold the inode, whoever else does.
    pub fn is_with_kernel(&self, nid: Nid) -> bool {
        self.count(nid) != 0
    }

    /// A handle opens a file; gives what tells whether it is still open later.
    pub fn open(&mut self, file: Nid) -> u64 {
        *self.opened.entry(file).or_default() += 1;
        self.epoch
    }

    /// Whether a handle has a file open.
    pub fn is_open(&self, file: Nid) -> bool {
        self.opened.contains_key(&file)
    }

    /// Whether a handle that was opened then counts.
    pub fn is_open_since(&self, epoch: u64) -> bool {
        self.epoch == epoch
    }

    /// A handle that was opened then is closed; true where nobody holds the file any more.
    pub fn close(&mut self, file: Nid, epoch: u64) -> bool {
        if self.epoch != epoch {
            return false;
        }
        let left = self.opened.get(&file).map_or(0, |n| n.saturating_sub(1));
        match left {
            0 => drop(self.opened.remove(&file)),
            left => drop(self.opened.insert(file, left)),
        }
        self.get(file) == 0
    }

    fn count(&self, nid: Nid) -> u32 {
        let (page, slot) = Self::place(nid);
        self.pages.get(page).map_or(0, |counts| counts.get(slot))
    }

    /// Sets a count.
    fn set(&mut self, nid: Nid, count: u32) {
        let (at, slot) = Self::place(nid);
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, Counts::default);
        }
        let before = self.pages[at].set(slot, count);
        self.known = self.known + u64::from(count != 0) - u64::from(before != 0);
    }

    /// One more.
    pub fn add(&mut self, nid: Nid) {
        let count = self.count(nid);
        if count & !BEFORE < BEFORE - 1 {
            self.set(nid, count + 1);
        }
        if count & BEFORE != 0 {
            self.recent.note(nid, Instant::now());
        }
    }

    /// `n` fewer; true where none is left. The kernel forgets an inode as a whole, but for lookups of which it could
    /// not use the answer: what it held before goes with more than what was counted since, unless some of that may have
    /// been counted after the kernel forgot the inode.
    pub fn sub(&mut self, nid: Nid, n: u64) -> bool {
        let count = self.count(nid);
        let (since, before) = (u64::from(count & !BEFORE), count & BEFORE);
        let left = since.saturating_sub(n) as u32;
        let left = match before != 0 && (n <= since || self.may_be_held_again(nid, since)) {
            true => left | before,
            false => left,
        };
        self.leave(nid, left)
    }

    /// Whether the kernel may hold an inode again that it has just forgotten as a whole, with all that it held before: by
    /// a LOOKUP which was read before that FORGET. A daemon before may have answered that; then the kernel is asked later.
    fn may_be_held_again(&mut self, nid: Nid, since: u64) -> bool {
        !self.is_settled || (since > 0 && self.recent.has(nid, Instant::now()))
    }

    /// The kernel did not hold the inode before; true where it does not hold it now.
    pub fn was_not_held(&mut self, nid: Nid) -> bool {
        self.leave(nid, self.count(nid) & !BEFORE)
    }

    /// The kernel held nothing before.
    pub fn held_nothing(&mut self) {
        self.end_of_before = 0;
        let untouched = |counts: &&mut Counts| counts.page.is_none() && counts.all == BEFORE;
        for counts in self.pages.iter_mut().filter(untouched) {
            *counts = Counts::default();
            self.known -= PAGE as u64;
        }
        let mut from = 0;
        while let Some((found, next)) = self.maybe_held(from) {
            for nid in found {
                self.was_not_held(nid);
            }
            from = next;
        }
    }

    /// Sets a count that does not grow; true where none is left.
    fn leave(&mut self, nid: Nid, count: u32) -> bool {
        if self.count(nid) != count {
            self.set(nid, count);
        }
        if count == 0 {
            self.dead.remove(&nid);
            self.stand_ins.retain(|_, is| *is != nid);
            self.doubted.remove(&nid);
            self.trusted.remove(&nid);
            self.misplaced.remove(&nid);
            self.appended.remove(&nid);
        }
        count == 0
    }

    /// Inodes that the kernel may have held before, of the numbers from `from` on: those of the next page that has any,
    /// and where to go on; `None` where there are no more.
    pub fn maybe_held(&self, from: u64) -> Option<(Vec<Nid>, u64)> {
        let first = from as usize / PAGE;
        for (at, counts) in self.pages.iter().enumerate().skip(first) {
            let numbers = (at * PAGE) as u64..((at + 1) * PAGE) as u64;
            let end = numbers.end;
            let held = |n: &u64| counts.get(*n as usize % PAGE) & BEFORE != 0;
            let found: Vec<Nid> = numbers.filter(held).map(Nid).collect();
            if !found.is_empty() {
                return Some((found, end));
            }
        }
        None
    }

    /// The kernel itself removes this directory (RMDIR, or RENAME over it). As long as it knows the inode
    /// nothing can be done in it, whatever the tree says, so it can stand for no directory that comes back.
    pub fn removed_by_kernel(&mut self, dir: Nid) {
        if self.is_with_kernel(dir) {
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
        if self.is_with_kernel(file) {
            self.doubted.insert(file);
        }
    }

    /// The sizes of all files that the kernel may have held before may have changed behind its back.
    pub fn doubt_before(&mut self) {
        self.doubts_before = true;
        self.trusted.clear();
    }

    /// Whether the kernel may take the file's size for another one.
    pub fn is_doubted(&self, file: Nid) -> bool {
        let since_before = || self.count(file) & BEFORE != 0 && !self.trusted.contains(&file);
        (!self.doubted.is_empty() && self.doubted.contains(&file))
            || (self.doubts_before && since_before())
    }

    /// The kernel has shown that it knows the file's size.
    pub fn trust_size(&mut self, file: Nid) {
        self.doubted.remove(&file);
        if self.doubts_before {
            self.trusted.insert(file);
        }
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
        match append.filter(|_| self.is_with_kernel(file)) {
            Some(append) => drop(self.appended.insert(file, append)),
            None if self.appended.is_empty() => {}
            None => drop(self.appended.remove(&file)),
        }
    }

    /// The last write(2) into a file, if it was an append; it is forgotten here.
    pub fn take_appended(&mut self, file: Nid) -> Option<Appended> {
        self.appended.remove(&file)
    }

    /// True where the kernel knows none, and no handle has one open.
    pub fn is_empty(&self) -> bool {
        self.known == 0 && self.opened.is_empty()
    }

    /// Forgets all, handles too: nothing is mounted any more.
    pub fn clear(&mut self) {
        let epoch = self.epoch + 1;
        *self = Lookups {
            epoch,
            ..Lookups::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_holds_a_file_beside_the_kernel_until_all_is_forgotten() {
        let (mut l, file) = (Lookups::default(), Nid(5));
        let epoch = l.open(file);
        assert_eq!(l.get(file), 1);
        assert!(!l.is_with_kernel(file) && !l.is_empty());
        l.doubt_size(file);
        assert!(!l.is_doubted(file), "the kernel has no size in mind");
        l.add(file);
        assert_eq!(l.get(file), 2);
        l.sub(file, 1);
        assert_eq!(l.get(file), 1);
        l.open(file);
        assert!(!l.close(file, epoch));
        assert!(l.close(file, epoch) && l.is_empty());
        let before = l.open(file);
        l.clear();
        assert!(!l.is_open_since(before));
        let after = l.open(file);
        assert!(!l.close(file, before), "it is not open any more");
        assert!(l.is_open_since(after) && l.get(file) == 1);
    }

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
    fn what_may_be_held_since_before_is_held_until_it_is_forgotten_or_found_not_to_be() {
        let end = 2 * PAGE as u64 + 10;
        let mut l = Lookups::taken_over(end);
        assert_eq!([0, 5, end - 1, end].map(|n| l.get(Nid(n))), [1, 1, 1, 0]);
        assert_eq!(l.known, end);
        l.settle();
        l.add(Nid(5));
        assert_eq!(l.get(Nid(5)), 2);
        assert!(!l.sub(Nid(5), 1), "an answer that the kernel could not use");
        assert!(l.sub(Nid(5), 1), "it had one from before");
        assert!(l.sub(Nid(6), 2));
        assert!(l.was_not_held(Nid(7)) && l.get(Nid(7)) == 0);
        l.add(Nid(8));
        assert!(!l.was_not_held(Nid(8)) && l.get(Nid(8)) == 1);
        assert!(l.sub(Nid(8), 1));
        l.removed_by_kernel(Nid(9));
        assert!(l.was_not_held(Nid(9)) && l.dead().is_empty());
        let (mut from, mut left) = (0, Vec::new());
        while let Some((found, next)) = l.maybe_held(from) {
            left.extend(found);
            from = next;
        }
        let gone = [5, 6, 7, 8, 9];
        let expected: Vec<Nid> = (0..end).filter(|n| !gone.contains(n)).map(Nid).collect();
        assert_eq!(left, expected);
        assert!(left.into_iter().all(|nid| l.was_not_held(nid)));
        assert!(l.is_empty() && l.pages.iter().all(|c| c.page.is_none()));
        let mut l = Lookups::taken_over(end);
        l.add(Nid(5));
        l.add(Nid(end));
        l.held_nothing();
        assert_eq!([0, 5, 9, end].map(|n| l.get(Nid(n))), [0, 1, 0, 1]);
        assert_eq!(l.known, 2);
    }

    #[test]
    fn sizes_of_before_are_doubted_until_they_are_known_or_the_inode_is_forgotten() {
        let (mut l, end) = (Lookups::taken_over(10), 10);
        assert!(!l.is_doubted(Nid(3)));
        l.settle();
        l.add(Nid(end));
        l.doubt_before();
        assert_eq!(
            [3, 4, 9, end].map(|n| l.is_doubted(Nid(n))),
            [true, true, true, false]
        );
        l.trust_size(Nid(3));
        l.add(Nid(4));
        assert!(!l.is_doubted(Nid(3)) && l.is_doubted(Nid(4)));
        assert!(l.is_doubted(Nid(5)) && l.sub(Nid(5), 1));
        l.add(Nid(5));
        assert!(!l.is_doubted(Nid(5)), "it was looked up since");
        l.doubt_size(Nid(3));
        assert!(l.is_doubted(Nid(3)));
        l.trust_size(Nid(3));
        l.held_nothing();
        assert!((0..=end).all(|n| !l.is_doubted(Nid(n))));
    }

    #[test]
    fn what_was_looked_up_before_an_older_forget_was_read_is_held() {
        let mut l = Lookups::taken_over(10);
        assert!(
            !l.sub(Nid(4), 3),
            "a daemon before may have handed it out since"
        );
        l.settle();
        assert!(l.sub(Nid(4), 3));
        l.add(Nid(5));
        assert!(!l.sub(Nid(5), 3) && l.get(Nid(5)) == 1);
        assert!(l.sub(Nid(5), 1), "that was all");
        l.add(Nid(5));
        assert!(l.sub(Nid(5), 3), "it is counted from the beginning");
        assert!([0, 5, 9].into_iter().all(|n| l.may_know(Nid(n))));
        assert!(!l.may_know(Nid(10)));
        l.held_nothing();
        assert!(!l.may_know(Nid(5)));
    }

    #[test]
    fn a_page_in_which_nothing_is_known_is_freed() {
        let is_page = |counts: &&Counts| counts.page.is_some();
        let pages = |l: &Lookups| l.pages.iter().filter(is_page).count();
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
