//! Rollback: the live tree becomes a commit, which becomes the head.

use super::{Change, RolledBack};
use crate::book::history::Turn;
use crate::branch::Branch;
use crate::branch::states;
use crate::branch::states::Target;
use crate::error::Result;
use crate::kv::KvMap;
use crate::record::SwitchKind;
use crate::types::Progress;
use crate::verbs::branches;
use crate::verbs::diff;
use crate::verbs::kv;
use crate::verbs::lineage;
use crate::verbs::runs;
use crate::verbs::switch;
use crate::workspace::Workspace;

/// Sets the live tree to the target and makes it the head; with `keep_kv` the key-value state stays.
pub(crate) fn rollback_in(
    branch: &Branch,
    author: &str,
    target: &Target,
    keep_kv: bool,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let state = states::resolve(branch, target)?;
    let turn = Turn { state, head: state };
    switch::switch(
        branch,
        author,
        SwitchKind::Rollback,
        turn,
        keep_kv,
        progress,
    )
}

/// What [`rollback_in`] would change.
pub(crate) fn rollback_plan_in(branch: &Branch, target: &Target) -> Result<Vec<Change>> {
    let state = states::resolve(branch, target)?;
    let tree = states::tree_of(branch, state)?;
    branch.cache().flush_dirty();
    let live = branch.lock().live.clone();
    diff::changes(branch, &live, &tree, &[])
}

/// Sets the live tree to a commit; what was there becomes an automatic commit.
pub fn rollback(ws: &Workspace, branch: &str, target: &Target) -> Result<RolledBack> {
    rollback_with(ws, branch, target, false, &|_, _| ())
}

/// What [`rollback`] would change.
pub fn rollback_plan(ws: &Workspace, branch: &str, target: &Target) -> Result<Vec<Change>> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    rollback_plan_in(&b, &target)
}

/// As [`rollback`]; with `keep_kv` the key-value state stays as it is. `progress` hears of how many files the kernel
/// has forgotten what it knew.
pub fn rollback_with(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    keep_kv: bool,
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let here = branches::import_ref(ws, &b, target)?;
    runs::shows_again(ws, &b, &here)?;
    let back = rollback_in(&b, ws.author(), &here, keep_kv, progress)?;
    lineage::take_over_target(ws, &b, target, back.commit);
    Ok(back)
}

/// As [`rollback`], but the key-value state stays as it is.
pub fn rollback_keeping_kv(ws: &Workspace, branch: &str, target: &Target) -> Result<RolledBack> {
    rollback_with(ws, branch, target, true, &|_, _| ())
}

/// How many keys a rollback would change.
pub fn rollback_keys(ws: &Workspace, branch: &str, target: &Target) -> Result<u64> {
    let (live, then) = (kv::kv(ws, branch)?, kv::kv_at(ws, branch, target)?);
    let mut differing = 0;
    KvMap::diff(&live, &then, &mut |_| differing += 1);
    Ok(differing)
}
