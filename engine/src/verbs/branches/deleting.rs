//! Deleting a branch.
//!
//! Order: what it shows becomes a commit, branches that read from its journal store what they need of it, others
//! take over the ancestors that they have from it, its timeline is kept, and only then its ref goes. So
//! whatever fails, the branch is there as it was, or gone with nothing of others and its timeline kept.

use super::Deleted;
use crate::branch::Branch;
use crate::branch::seal;
use crate::branch::states;
use crate::clock;
use crate::error::Result;
use crate::feed::FeedOp;
use crate::record::{OpKind, encode};
use crate::types::Progress;
use crate::types::Time;
use crate::verbs::branches;
use crate::verbs::lineage;
use crate::verbs::runs;
use crate::verbs::timeline::kept;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::{DeletedRecord, deleted_dir};
use objstore::CommitId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Deletes a branch. What it showed last is kept as a commit until it is collected.
pub fn delete_branch(ws: &Workspace, name: &str, progress: Progress<'_>) -> Result<Deleted> {
    let _one = ws.views.changing();
    let branch = branches::changeable(ws, name)?;
    let _control = branch.control.lock();
    branch.cache().flush_dirty();
    let head = branch.lock().book.history.head;
    let before = states::tree_of(&branch, head)?;
    let (author, kind) = (ws.author(), OpKind::Stop);
    let state = states::freeze_if_differs(&branch, &mut branch.lock(), &before, kind, author)?;
    let last = states::wait_for_id(&branch, state, progress)?;
    // What its timeline mentions has commits then.
    seal::store_pending(&branch)?;
    let number = branch.places.journal.number();
    for user in ws.views.branches() {
        let users = ws.views.journals().users(number);
        if users.contains(&user.places.journal.number()) {
            seal::seal(&user)?;
        }
    }
    let others = ws.views.branches().into_iter();
    for other in others.filter(|other| !Arc::ptr_eq(other, &branch)) {
        lineage::take_over_line(ws, &other, &branch, None)?;
    }
    ws.views.shared().store.sync()?;
    let now = clock::now();
    kept::keep_timeline(ws, &branch, now)?;
    forget_branch(ws, &branch, name, (now, last))?;
    let others = ws.views.branches();
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
    ws: &Workspace,
    branch: &Arc<Branch>,
    name: &str,
    (now, last): (Time, CommitId),
) -> Result<()> {
    let views = &ws.views;
    let record = DeletedRecord::new(now, last);
    let (dir, when) = (deleted_dir(ws.name()), now.sec);
    let kept = format!("{dir}/{name}-{when}");
    views.shared().refs.set(&kept, &encode(&record))?;
    views.shared().garbage.store(true, Ordering::Relaxed);
    views.unrecord(name)?;
    views.retire(branch.slot);
    runs::forget(ws, name);
    branch.tell_of(FeedOp::Branch, &|| "delete".to_owned());
    branch.begin_closing();
    branches::branches_changed(ws, branch, name);
    views.remove_files(branch)
}
