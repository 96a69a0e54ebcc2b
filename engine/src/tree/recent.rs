//! Which inodes were looked up a short while ago.
//!
//! A FORGET may be read after a LOOKUP that the kernel made later: the kernel has a queue for each of them, and takes from
//! both by turns. So one that is read shortly after a LOOKUP of the same inode may be older than that.

use crate::types::Nid;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// For how long an inode counts as looked up recently, at least. What is in the kernel's queues is a few milliseconds old,
/// unless the daemon stands still.
const RECENT: Duration = Duration::from_secs(10);

/// Most inodes of one such time; more make it shorter.
const RECENT_MAX: usize = 1 << 16;

/// The inodes of this time and of the one before.
#[derive(Debug, Default)]
pub(super) struct Recent {
    begun: Option<Instant>,
    last: HashSet<Nid>,
    before: HashSet<Nid>,
}

impl Recent {
    /// It is looked up now.
    pub fn note(&mut self, nid: Nid, now: Instant) {
        self.turn(now);
        self.last.insert(nid);
    }

    /// Whether it was looked up a short while ago.
    pub fn has(&mut self, nid: Nid, now: Instant) -> bool {
        self.turn(now);
        self.last.contains(&nid) || self.before.contains(&nid)
    }

    /// Begins another time where the last one is over.
    fn turn(&mut self, now: Instant) {
        let age = self.begun.map(|begun| now.duration_since(begun));
        let is_over = age.is_none_or(|age| age >= RECENT);
        if !is_over && self.last.len() < RECENT_MAX {
            return;
        }
        self.before = std::mem::take(&mut self.last);
        if age.is_none_or(|age| age >= 2 * RECENT) {
            self.before = HashSet::new();
        }
        self.begun = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_counts_as_recent_for_a_time_and_two_at_most() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let (one, other) = (Nid(1), Nid(2));
        assert!(!recent.has(one, now));
        recent.note(one, now);
        recent.note(other, now + RECENT - Duration::from_secs(1));
        assert!(recent.has(one, now + RECENT) && recent.has(other, now + RECENT));
        assert!(!recent.has(one, now + 2 * RECENT));
        recent.note(one, now + 2 * RECENT);
        assert!(!recent.has(one, now + 9 * RECENT));
    }

    #[test]
    fn the_last_ones_are_known_however_many_there_are() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let most = RECENT_MAX as u64;
        (0..2 * most + 1).for_each(|n| recent.note(Nid(n), now));
        assert!((most..2 * most + 1).all(|n| recent.has(Nid(n), now)));
        assert!(!recent.has(Nid(0), now));
    }
}
