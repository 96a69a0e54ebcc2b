//! Rollback: the live tree becomes a commit, which becomes the head.

use super::{Change, RolledBack, Target};
use crate::book::history::Turn;
use crate::branch::Branch;
use crate::error::Result;
use crate::kv::KvMap;
use crate::record::SwitchKind;
use crate::workspace::Workspace;

impl Branch {
    /// Sets the live tree to the target and makes it the head; with `keep_kv` the key-value state stays.
    pub fn rollback(&self, author: &str, target: &Target, keep_kv: bool) -> Result<RolledBack> {
        let state = self.resolve(target)?;
        let turn = Turn { state, head: state };
        self.switch(author, SwitchKind::Rollback, turn, keep_kv)
    }

    /// What [`Branch::rollback`] would change.
    pub fn rollback_plan(&self, target: &Target) -> Result<Vec<Change>> {
        let state = self.resolve(target)?;
        let tree = self.tree_of(state)?;
        self.cache().flush_dirty();
        let live = self.lock().live.clone();
        self.changes(&live, &tree, &[])
    }
}

impl Workspace {
    /// Sets the live tree to a commit; what was there becomes an automatic commit.
    pub fn rollback(&self, branch: &str, target: &Target) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let here = self.import_ref(&b, target)?;
        let back = b.rollback(self.author(), &here, false)?;
        self.take_over_target(&b, target, back.commit);
        Ok(back)
    }

    /// What [`Workspace::rollback`] would change.
    pub fn rollback_plan(&self, branch: &str, target: &Target) -> Result<Vec<Change>> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let target = self.import_ref(&b, target)?;
        b.rollback_plan(&target)
    }

    /// As [`Workspace::rollback`], but the key-value state stays as it is.
    pub fn rollback_keeping_kv(&self, branch: &str, target: &Target) -> Result<RolledBack> {
        let b = self.branch(branch)?;
        let _one = b.control.lock();
        let here = self.import_ref(&b, target)?;
        let back = b.rollback(self.author(), &here, true)?;
        self.take_over_target(&b, target, back.commit);
        Ok(back)
    }

    /// How many keys a rollback would change.
    pub fn rollback_keys(&self, branch: &str, target: &Target) -> Result<u64> {
        let (live, then) = (self.kv(branch)?, self.kv_at(branch, target)?);
        let mut differing = 0;
        KvMap::diff(&live, &then, &mut |_| differing += 1);
        Ok(differing)
    }
}
