//! What the workspace asks of a branch beside file operations: commits of other branches, its place in
//! the mount.

use super::Branch;
use crate::error::Result;
use crate::record::{Event, OpKind, StateInfo};
use crate::types::{Attr, Nid, NodeId, Time};
use objstore::{Commit, CommitId};

impl Branch {
    /// Makes a commit that is in the store a state of this branch; returns its number.
    pub(crate) fn know(&self, id: CommitId) -> Result<u64> {
        let commit: Commit = self.places.store.get_object(&id)?;
        let mut inner = self.lock_synced()?;
        let known = |id: &CommitId| {
            let mut all = inner.book.history.states.with_id(id);
            all.next().map(|s| s.info.number)
        };
        if let Some(number) = known(&id) {
            return Ok(number);
        }
        let info = StateInfo {
            number: inner.book.counters.state,
            kind: OpKind::Foreign,
            asked: false,
            time: Time {
                sec: commit.time_sec,
                nsec: commit.time_nsec,
            },
            author: commit.author,
            message: commit.message,
            meta: commit.meta,
            parents: commit.parents.iter().filter_map(known).collect(),
            id: Some(id),
        };
        let number = info.number;
        self.carry_out(&mut inner, Event::Known { info }, &[])?;
        Ok(number)
    }

    /// Attributes of the root directory; counts a lookup of it.
    pub(crate) fn root_attr(&self) -> Result<Attr> {
        let mut inner = self.lock();
        let attr = inner.live.inode(Nid::ROOT)?.attr(self.slot, Nid::ROOT);
        inner.lookups.add(Nid::ROOT);
        Ok(attr)
    }

    /// Where the mount shows it, from its root; `None` for `main`, which is the root.
    pub(crate) fn view_path(&self) -> Option<Vec<u8>> {
        let path = format!(".agentvfs/branches/{}", self.name());
        (self.slot != NodeId::ROOT.slot()).then(|| path.into_bytes())
    }

    /// True where the kernel knows no inode of it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.lock().lookups.is_empty()
    }
}
