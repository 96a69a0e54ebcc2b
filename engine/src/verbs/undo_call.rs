//! Taking back what one tool call changed, in files and keys, and nothing else.
//!
//! A three-way merge in the store: from what the call left to what it found, on what is there now. What
//! does not fit is a conflict, and then nothing changes. The result is a switch like a restore: the head
//! stays, and undo takes it back.

use super::switch::To;
use super::{Change, RolledBack};
use crate::branch::Branch;
use crate::branch::calls;
use crate::branch::states;
use crate::cancel::Cancel;
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::MERGE_HOLD_MAX;
use crate::merge::{
    Conflict, Labels, MergeOptions, MergeResult, OnConflict, Root, merge_maps, merge_roots,
};
use crate::record::call::StateRef;
use crate::verbs::blame::differ_in_content;
use crate::verbs::diff;
use crate::verbs::show_merged;
use crate::verbs::timeline::certain;
use crate::verbs::timeline::certain::Certain;
use crate::verbs::timeline::certain::Doubt;
use crate::verbs::timeline::own::Whole;
use crate::verbs::timeline::read;
use crate::verbs::timeline::read::TimelineItem;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, ObjectStore};
use std::sync::Arc;

/// Times that it is done, again where what it touches was changed meanwhile. But for the first time changes
/// of the branch wait for it.
const TRIES: usize = 3;

/// What taking a call back did.
#[derive(Clone, Debug)]
pub struct CallUndone {
    /// The switch; nothing was done where there are conflicts, for a dry run, and where nothing of the
    /// call was left to take back.
    pub back: RolledBack,
    /// What could not be taken back.
    pub conflicts: Vec<Conflict>,
    /// For a dry run: what would change, by path.
    pub changes: Vec<Change>,
}

/// Takes back what a call changed. Durable after `Ok`; with conflicts nothing is done.
/// [`Error::CallUnknown`] where it cannot be told what that was.
pub fn undo_call(ws: &Workspace, branch: &str, id: u64, dry_run: bool) -> Result<CallUndone> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    // What the call mentions may not be this branch's own.
    let _pin = b.places.store.pin();
    let item = read::call_of(&b, id)?;
    let (before, after) = certain(&b, id, &item)?;
    let found = (&before, &after);
    if !dry_run {
        ws.untrusted.shows_again(branch, false)?;
    }
    for n in 0..TRIES {
        match n {
            0 => b.cache().flush_dirty(),
            _ => b.hold(MERGE_HOLD_MAX),
        }
        let done = undo_once(&b, ws.author(), (id, found), dry_run);
        b.release();
        if let Some(done) = done? {
            return Ok(done);
        }
    }
    Err(Error::KeepsChanging(branch.to_owned()))
}

/// What there was before a call and what it left, where what it changed is certain. Where others ran at the same
/// time, what they did then is in the first, too.
fn certain(branch: &Branch, id: u64, item: &TimelineItem) -> Result<(Whole, Whole)> {
    let unknown = |doubt: Doubt| Error::CallUnknown {
        call: id,
        why: doubt.why,
        pending: doubt.pending,
    };
    let certain = certain::certain_of(branch, id, item)?.map_err(unknown)?;
    let store = &branch.places.store;
    let whole = |state: Option<StateRef>| {
        let state = state.ok_or_else(|| Error::CallUnknown {
            call: id,
            why: "it has no states".into(),
            pending: Vec::new(),
        })?;
        let commit: Commit = store.get_object(&states::kept_commit(branch, id, state)?)?;
        Whole::of(store, &commit)
    };
    let before = match certain {
        Certain::All => whole(item.before)?,
        Certain::But(others) => certain::before_own(branch, id, item, &others)?.map_err(unknown)?,
    };
    Ok((before, whole(item.after)?))
}

/// `None` where what it touches was changed meanwhile.
fn undo_once(
    branch: &Arc<Branch>,
    author: &str,
    (call, (before, after)): (u64, (&Whole, &Whole)),
    dry_run: bool,
) -> Result<Option<CallUndone>> {
    let (now, pinned) = calls::state_of_now(branch, author)?;
    let ours = states::wait_for_id(branch, now, &|_, _| {})?;
    let result = without(branch, call, &after.root, &ours, &before.root)?;
    show_merged::mark_unsynced(branch);
    let nothing = |conflicts, changes| CallUndone {
        back: RolledBack {
            commit: Some(ours),
            replaced: None,
            files_changed: 0,
        },
        conflicts,
        changes,
    };
    let store = &branch.places.store;
    let frozen = pinned.tree()?;
    let (keys, unsettled) = merge_maps(&after.kv, frozen.kv(), &before.kv)?;
    let Some(root) = result.root.filter(|_| unsettled.is_empty()) else {
        let conflicts = result.conflicts.into_iter().chain(unsettled);
        return Ok(Some(nothing(conflicts.collect(), Vec::new())));
    };
    let same_keys = keys.equals(frozen.kv());
    if same_keys && !differ_in_content(store, &root_of(store, &ours)?, &root)? {
        return Ok(Some(nothing(Vec::new(), Vec::new())));
    }
    let mut merged = show_merged::load_root(branch, &root)?;
    *merged.kv_mut() = keys;
    if dry_run {
        let changes = diff::changes(branch, &frozen, &merged, &[])?;
        return Ok(Some(nothing(Vec::new(), changes)));
    }
    let shown = show_merged::show_merged(
        branch,
        author,
        &pinned,
        &merged,
        To::Undone(call),
        &Cancel::new(),
    )?;
    Ok(shown.map(|shown| CallUndone {
        back: shown.back,
        conflicts: Vec::new(),
        changes: Vec::new(),
    }))
}

fn without(
    branch: &Branch,
    call: u64,
    base: &Root,
    ours: &CommitId,
    theirs: &Root,
) -> Result<MergeResult> {
    let store = &branch.places.store;
    let now = clock::now();
    let options = MergeOptions {
        labels: Labels {
            base: format!("after call {call}"),
            ours: branch.name(),
            theirs: format!("before call {call}"),
        },
        on_conflict: OnConflict::Abort,
        now: (now.sec, now.nsec),
    };
    merge_roots(store, base, &root_of(store, ours)?, theirs, &options)
}

fn root_of(store: &ObjectStore, id: &CommitId) -> Result<Root> {
    let commit: Commit = store.get_object(id)?;
    Ok(Root {
        meta: commit.root_meta,
        tree: commit.root,
    })
}
