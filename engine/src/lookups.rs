//! How often the kernel knows each inode: four bytes for each.

use crate::types::Nid;

const PAGE: usize = 1024;

/// Lookup counts by inode number.
#[derive(Debug, Default)]
pub struct Lookups {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    /// Inodes whose count is not 0.
    known: u64,
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
            .map_or(0, |p| p[slot])
    }

    /// One more.
    pub fn add(&mut self, nid: Nid) {
        let (page, slot) = Self::place(nid);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let counts = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]));
        self.known += u64::from(counts[slot] == 0);
        counts[slot] = counts[slot].saturating_add(1);
    }

    /// `n` fewer; true where none is left.
    pub fn sub(&mut self, nid: Nid, n: u64) -> bool {
        let (page, slot) = Self::place(nid);
        let Some(Some(counts)) = self.pages.get_mut(page) else {
            return true;
        };
        let before = counts[slot];
        counts[slot] = before.saturating_sub(n.min(u64::from(u32::MAX)) as u32);
        let gone = counts[slot] == 0;
        self.known -= u64::from(gone && before > 0);
        gone
    }

    /// True where the kernel knows none.
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Forgets all: nothing is mounted any more.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.known = 0;
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
}
