//! The fence of a rollback: to which state a page belongs that the kernel writes back.
//!
//! Between the swap and the end of an inode's invalidation the kernel still holds pages of the
//! replaced state, and writes the dirty ones back. It drops page after page, though, and a program
//! may touch a dropped one at once: the kernel then reads it, from the new state, and may write it
//! back, changed, while later pages of the same file are still being dropped. So the rule is by page:
//! one that was read, or written as a whole, since the swap is new; any other belongs to the replaced
//! state. The kernel reads no page that it holds, and reads none before an older write-back of it
//! was answered. (A direct read is taken for a reading of pages, which it is not; the kernel has
//! written them back before it.)
//!
//! A program that opened a file by its path before the kernel learned that the rollback has removed it
//! writes into the inode that vanished. What such writes bring while the fence stands belongs to the
//! replaced state, too: they are as good as made before the rollback.
//!
//! An append may come in parts (at the end of a page that the kernel has not read, after 1 MiB, or where the
//! memory that is written has to be brought in first). The kernel lets nobody else write to the file meanwhile,
//! so a next part is an append by the same thread, right behind the file's last one. Such a one goes where that
//! one went, until the kernel has shown that the write(2) that was under way is over
//! ([`super::Branch::wait_for_appends`]). A new record that looks the same is taken for one that was made before
//! the switch, which it may as well have been: the switch has not answered yet.

use super::carry::Carry;
use crate::tree::lookups::Appended;
use crate::types::Nid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Bytes of the kernel's smallest page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Stands while the kernel may still bring pages of a replaced state.
#[derive(Debug)]
pub(crate) struct Fence {
    /// The replaced state.
    pub state: u64,
    /// Its files whose pages may still come, each with what is new already.
    files: HashMap<Nid, Fresh>,
    /// For a merge: what it changed.
    pub carry: Option<Carry>,
    /// Its files that the kernel holds and that have no name any more.
    vanished: BTreeSet<Nid>,
    /// Its files to which the last write(2) was an append, of which a further part may follow.
    appends: HashMap<Nid, Appended>,
}

/// Disjoint ranges of page numbers, start → end.
type Fresh = BTreeMap<u64, u64>;

impl Fence {
    /// A fence for `files` of `state`, of which some have `vanished`.
    pub fn new(state: u64, files: impl Iterator<Item = Nid>, vanished: BTreeSet<Nid>) -> Fence {
        Fence {
            state,
            files: files.map(|nid| (nid, Fresh::new())).collect(),
            carry: None,
            vanished,
            appends: HashMap::new(),
        }
    }

    /// The replaced state has the beginning, or all, of this append.
    pub fn append_goes_on(&mut self, nid: Nid, append: Appended) {
        self.appends.insert(nid, append);
    }

    /// No part of an append to this file follows any more.
    pub fn append_is_over(&mut self, nid: Nid) {
        self.appends.remove(&nid);
    }

    /// Whether an append may be a further part of one that the replaced state has. Where one comes that
    /// cannot be, that one is over.
    pub fn continues(&mut self, nid: Nid, offset: u64, thread: u32) -> bool {
        let next = Appended {
            end: offset,
            thread,
        };
        let found = self.appends.get(&nid) == Some(&next);
        if !found {
            self.append_is_over(nid);
        }
        found
    }

    /// Files of which a further part of an append may follow.
    pub fn awaited(&self) -> Vec<Nid> {
        self.appends.keys().copied().collect()
    }

    /// Whether this file lost its last name by the switch.
    pub fn has_vanished(&self, nid: Nid) -> bool {
        self.vanished.contains(&nid)
    }

    /// Files that lost their last name by the switch.
    pub fn vanished(&self) -> impl Iterator<Item = Nid> {
        self.vanished.iter().copied()
    }

    /// The kernel holds no page of the replaced state of this file any more.
    pub fn lift(&mut self, nid: Nid) {
        self.files.remove(&nid);
    }

    /// The kernel reads this range from the new state.
    pub fn note_read(&mut self, nid: Nid, offset: u64, len: u64) {
        if let Some(fresh) = self.files.get_mut(&nid) {
            let end = offset.saturating_add(len).div_ceil(PAGE_BYTES);
            insert(fresh, offset / PAGE_BYTES..end);
        }
    }

    /// A program writes this range into the new state.
    pub fn note_write(&mut self, nid: Nid, offset: u64, len: u64) {
        if let Some(fresh) = self.files.get_mut(&nid) {
            insert(
                fresh,
                offset.div_ceil(PAGE_BYTES)..(offset + len) / PAGE_BYTES,
            );
        }
    }

    /// Splits a range that comes from the kernel's cache into parts, each with whether it belongs to
    /// the replaced state. Nothing where this file is not (any more) fenced.
    pub fn parts(&self, nid: Nid, offset: u64, len: u64) -> Option<Vec<(Range<u64>, bool)>> {
        let fresh = self.files.get(&nid)?;
        let end = offset + len;
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        let mut at = offset;
        while at < end {
            let (until, fenced) = stretch(fresh, at / PAGE_BYTES);
            let until = until.saturating_mul(PAGE_BYTES).min(end);
            parts.push((at..until, fenced));
            at = until;
        }
        Some(parts)
    }
}

/// The page up to which all pages from `page` on are fenced, or up to which none is.
fn stretch(fresh: &Fresh, page: u64) -> (u64, bool) {
    let before = fresh.range(..=page).next_back();
    if let Some((_, end)) = before.filter(|(_, end)| **end > page) {
        return (*end, false);
    }
    let next = fresh.range(page..).next();
    (next.map_or(u64::MAX, |(start, _)| *start), true)
}

fn insert(fresh: &mut Fresh, mut pages: Range<u64>) {
    if pages.is_empty() {
        return;
    }
    let touching: Vec<u64> = fresh
        .range(..=pages.end)
        .rev()
        .take_while(|(_, end)| **end >= pages.start)
        .map(|(start, _)| *start)
        .collect();
    for start in touching {
        if let Some(end) = fresh.remove(&start) {
            pages = pages.start.min(start)..pages.end.max(end);
        }
    }
    fresh.insert(pages.start, pages.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_BYTES;

    #[test]
    fn page_that_was_read_since_is_new() {
        let mut fence = Fence::new(7, [Nid(1)].into_iter(), BTreeSet::new());
        assert_eq!(fence.parts(Nid(2), 0, P), None);
        assert_eq!(fence.parts(Nid(1), 10, P), Some(vec![(10..P + 10, true)]));
        fence.note_read(Nid(1), P, P);
        fence.note_read(Nid(1), 3 * P, 1);
        let parts = fence.parts(Nid(1), 0, 5 * P).unwrap();
        let wanted = [
            (0..P, true),
            (P..2 * P, false),
            (2 * P..3 * P, true),
            (3 * P..4 * P, false),
            (4 * P..5 * P, true),
        ];
        assert_eq!(parts, wanted);
        fence.lift(Nid(1));
        assert_eq!(fence.parts(Nid(1), 0, P), None);
    }

    #[test]
    fn write_makes_only_whole_pages_new() {
        let mut fence = Fence::new(7, [Nid(1)].into_iter(), BTreeSet::new());
        fence.note_write(Nid(1), 1, 2 * P);
        let parts = fence.parts(Nid(1), 0, 3 * P).unwrap();
        assert_eq!(
            parts,
            [(0..P, true), (P..2 * P, false), (2 * P..3 * P, true)]
        );
        fence.note_write(Nid(1), 5, 10);
        assert_eq!(fence.parts(Nid(1), 0, P), Some(vec![(0..P, true)]));
    }

    #[test]
    fn next_part_of_an_append_is_known_by_place_and_thread() {
        let mut fence = Fence::new(7, [Nid(1)].into_iter(), BTreeSet::new());
        let append = |end, thread| Appended { end, thread };
        fence.append_goes_on(Nid(1), append(P, 5));
        assert!(!fence.continues(Nid(2), P, 5));
        assert!(fence.continues(Nid(1), P, 5));
        fence.append_goes_on(Nid(1), append(P + 9, 5));
        assert!(fence.continues(Nid(1), P + 9, 5));
        assert_eq!(fence.awaited(), [Nid(1)]);
        for (offset, thread) in [(P, 5), (P + 9, 6)] {
            fence.append_goes_on(Nid(1), append(P + 9, 5));
            assert!(!fence.continues(Nid(1), offset, thread));
            assert!(!fence.continues(Nid(1), P + 9, 5), "it is over");
        }
    }

    #[test]
    fn ranges_grow_together() {
        let mut fresh = Fresh::new();
        for range in [0..2, 6..8, 4..5, 2..4, 20..30, 5..6, 1..3] {
            insert(&mut fresh, range);
        }
        assert_eq!(fresh, Fresh::from([(0, 8), (20, 30)]));
        insert(&mut fresh, 0..40);
        assert_eq!(fresh, Fresh::from([(0, 40)]));
    }
}
