//! Deleting a branch.
//!
//! Order: what it shows becomes a commit, branches that read from its journal store what they need of it, others
//! take over the ancestors that they have from it, its timeline is kept, and only then its ref goes. So
//! whatever fails, the branch is there as it was, or gone with nothing of others and its timeline kept.

use super::Deleted;
use crate::branch::Branch;
use crate::clock;
use crate::error::Result;
use crate::record::{OpKind, encode};
use crate::types::Time;
use crate::verbs::Progress;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::{DeletedRecord, deleted_dir};
use objstore::CommitId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Workspace {
    /// Deletes a branch. What it showed last is kept as a commit until it is collected.
    pub fn delete_branch(&self, name: &str, progress: Progress<'_>) -> Result<Deleted> {
        let _one = self.views.changing();
        let branch = self.changeable(name)?;
        let _control = branch.control.lock();
        branch.cache().flush_dirty();
        let head = branch.lock().book.history.head;
        let before = branch.tree_of(head)?;
        let (author, kind) = (self.author(), OpKind::Stop);
        let state = branch.freeze_if_differs(&mut branch.lock(), &before, kind, author)?;
        let last = branch.wait_for_id(state, progress)?;
        // What its timeline mentions has commits then.
        branch.store_pending()?;
        let number = branch.places.journal.number();
        for user in self.views.branches() {
            let users = self.views.journals().users(number);
            if users.contains(&user.places.journal.number()) {
                user.seal()?;
            }
        }
        let others = self.views.branches().into_iter();
        for other in others.filter(|other| !Arc::ptr_eq(other, &branch)) {
            self.take_over_line(&other, &branch, None)?;
        }
        self.views.shared().store.sync()?;
        let now = clock::now();
        self.keep_timeline(&branch, now)?;
        self.forget_branch(&branch, name, (now, last))?;
        let others = self.views.branches();
        let has = |b: &Arc<Branch>| {
            let inner = b.lock();
            inner
                .book
                .history
                .states
                .values()
                .any(|s| s.info.id == Some(last))
        };
        Ok(Deleted {
            last,
            only_here: !others.iter().any(has),
        })
    }

    fn forget_branch(
        &self,
        branch: &Arc<Branch>,
        name: &str,
        (now, last): (Time, CommitId),
    ) -> Result<()> {
        let views = &self.views;
        let record = DeletedRecord::new(now, last);
        let (dir, when) = (deleted_dir(self.name()), now.sec);
        let kept = format!("{dir}/{name}-{when}");
        views.shared().refs.set(&kept, &encode(&record))?;
        views.shared().garbage.store(true, Ordering::Relaxed);
        views.unrecord(name)?;
        views.retire(branch.slot);
        branch.begin_closing();
        self.branches_changed(branch, name);
        views.remove_files(branch)
    }
}
