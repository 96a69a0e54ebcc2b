//! Pages that the kernel brings late while a merge is shown: to which state they belong.
//!
//! A rollback leaves such a page in the replaced state (see [`super::fence`]). A merge keeps what programs
//! do meanwhile: a page that it left as it was is written into what it shows as well. One that it changed
//! stays in the replaced state alone, and the file counts as *overtaken*: whoever merges then merges that
//! state, too.
//!
//! Whether a page was left as it was is found by its bytes, when the kernel brings it, without a lock.

use super::Branch;
use super::fence::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::types::{Nid, Wait};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// What a merge changed, as far as somebody asked.
#[derive(Debug)]
pub(crate) struct Carry {
    before: Tree,
    after: Tree,
    /// Pages of which it is known whether the merge left them as they were.
    known: HashMap<Nid, HashMap<u64, bool>>,
    /// Files of which a page came that the merge had changed.
    overtaken: BTreeSet<Nid>,
}

/// Pages that have to be compared.
pub(crate) struct Unsettled {
    nid: Nid,
    before: Arc<Inode>,
    after: Arc<Inode>,
    pages: Vec<u64>,
}

impl Carry {
    /// For a merge that makes `after` of `before`.
    pub fn new(before: Tree, after: Tree) -> Carry {
        Carry {
            before,
            after,
            known: HashMap::new(),
            overtaken: BTreeSet::new(),
        }
    }

    /// Splits a range of old pages into parts, each with whether the merge left it as it was; the pages
    /// that have to be compared first where that is not known.
    pub fn parts(&self, nid: Nid, range: Range<u64>) -> Result<Vec<(Range<u64>, bool)>, Unsettled> {
        let (Some(before), Some(after)) = (self.before.get(nid), self.after.get(nid)) else {
            return Ok(vec![(range, false)]);
        };
        if after.nlink == 0 || before.nlink == 0 {
            // Removed by the merge, which then is a change of the same file; or nobody's before.
            return Ok(vec![(range, before.nlink == 0)]);
        }
        let known = self.known.get(&nid);
        let (mut parts, mut pages): (Vec<(Range<u64>, bool)>, Vec<u64>) = Default::default();
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            let part = range.start.max(page * PAGE_BYTES)..range.end.min((page + 1) * PAGE_BYTES);
            match (known.and_then(|k| k.get(&page)), parts.last_mut()) {
                (None, _) => pages.push(page),
                (Some(same), Some((last, left))) if left == same => last.end = part.end,
                (Some(same), _) => parts.push((part, *same)),
            }
        }
        if pages.is_empty() {
            return Ok(parts);
        }
        Err(Unsettled {
            nid,
            before: before.clone(),
            after: after.clone(),
            pages,
        })
    }

    /// A page of this file came that the merge had changed.
    pub fn overtakes(&mut self, nid: Nid) {
        self.overtaken.insert(nid);
    }

    /// True where a page came that the merge had changed.
    pub fn is_overtaken(&self) -> bool {
        !self.overtaken.is_empty()
    }
}

impl Branch {
    /// Compares pages, and notes what was found where their merge is still being shown.
    pub(crate) fn settle_pages(&self, state: u64, u: &Unsettled, wait: Wait) -> Result<()> {
        let mut found = Vec::with_capacity(u.pages.len());
        for page in &u.pages {
            found.push((*page, self.same_page(u, *page, wait)?));
        }
        let mut inner = self.lock();
        let fence = inner.fence.as_mut().filter(|f| f.state == state);
        if let Some(carry) = fence.and_then(|f| f.carry.as_mut()) {
            carry.known.entry(u.nid).or_default().extend(found);
        }
        Ok(())
    }

    /// Whether a page has the same bytes before and after. What cannot be read counts as changed.
    fn same_page(&self, u: &Unsettled, page: u64, wait: Wait) -> Result<bool> {
        let (Some(before), Some(after)) = (u.before.file(), u.after.file()) else {
            return Ok(false);
        };
        let (old, new) = (u.before.size, u.after.size);
        let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        if old != new && end > old.min(new) {
            return Ok(false);
        }
        if old == new && before == after {
            return Ok(true);
        }
        let len = old.min(end).saturating_sub(start) as usize;
        let (mut x, mut y) = (vec![0; len], vec![0; len]);
        let read = |file, buf: &mut [u8]| self.places.read(file, start, buf, wait);
        match read(before, &mut x).and_then(|()| read(after, &mut y)) {
            Ok(()) => Ok(x == y),
            Err(Error::WouldBlock) => Err(Error::WouldBlock),
            Err(e) => {
                tracing::warn!("{}: a page to merge could not be read: {e}", self.name());
                Ok(false)
            }
        }
    }
}
