//! Making commits.

use super::diff::files_changed;
use super::{AutomaticRequest, CheckpointRequest, Checkpointed};
use crate::book::joined::joined;
use crate::book::states::State;
use crate::branch::Branch;
use crate::branch::seal;
use crate::branch::states;
use crate::branch::states::Target;
use crate::change::transition::differs;
use crate::error::{Error, Result};
use crate::record::{Event, OpKind};
use crate::tree::Tree;
use crate::types::Progress;
use crate::verbs::branches;
use crate::verbs::report;
use crate::workspace::Workspace;
use objstore::CommitId;
use std::collections::BTreeMap;

/// Makes a checkpoint of the live tree, durably.
///
/// Where nothing changed and neither message nor metadata is given, the head gets the label.
pub(crate) fn checkpoint_in(
    branch: &Branch,
    author: &str,
    req: CheckpointRequest,
    progress: Progress<'_>,
) -> Result<Checkpointed> {
    commit_in(branch, author, OpKind::Checkpoint, req, progress)
}

fn commit_in(
    branch: &Branch,
    author: &str,
    kind: OpKind,
    req: CheckpointRequest,
    progress: Progress<'_>,
) -> Result<Checkpointed> {
    if let Some(label) = &req.label {
        crate::names::check_label(label)?;
    }
    branch.cache().flush_dirty();
    let head = branch.lock().book.history.head;
    let before = states::tree_of(branch, head)?;
    let wait = req.wait;
    let mut done = freeze_or_label(branch, author, kind, req, &before)?;
    if wait {
        let named = sync_and_name(branch, done.state, progress);
        let failed = !matches!(named, Ok(_) | Err(Error::Closing));
        if done.new_commit && failed && kind == OpKind::Checkpoint {
            withdraw(branch, done.state)?;
        }
        done.commit = Some(named?);
    } else {
        if kind == OpKind::Checkpoint {
            branch.sync()?;
        }
        done.commit = branch.lock().book.history.id_of(done.state);
    }
    done.unreadable = report::left_out(branch);
    Ok(done)
}

/// Makes a state durable and waits for its id, both at once.
fn sync_and_name(branch: &Branch, state: u64, progress: Progress<'_>) -> Result<CommitId> {
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| branch.sync());
        let stored = seal::try_store_pending(branch);
        synced.join().unwrap_or(Err(Error::Closing))?;
        stored?;
        states::wait_for_id(branch, state, progress)
    })
}

/// Takes back a checkpoint that could not be stored: all is as it was before.
fn withdraw(branch: &Branch, state: u64) -> Result<()> {
    let mut inner = branch.lock();
    if !inner.book.history.can_withdraw(state) {
        return Ok(());
    }
    let withdrawn = branch.carry_out(&mut inner, Event::Withdraw { state }, &[]);
    if withdrawn.is_err() {
        // The caller hears of a failure, so it is gone all the same; a crash brings it back.
        inner.book.history.withdraw(state);
    }
    withdrawn
}

fn freeze_or_label(
    branch: &Branch,
    author: &str,
    kind: OpKind,
    req: CheckpointRequest,
    before: &Tree,
) -> Result<Checkpointed> {
    let mut inner = branch.lock();
    // The head may have been stored meanwhile, and the live tree refers to the store since then.
    let stored = inner.book.history.tree(inner.book.history.head).cloned();
    let before = stored.as_ref().unwrap_or(before);
    let label = req.label.clone();
    let old = label.as_ref().and_then(|l| inner.book.history.labelled(l));
    let (before, now) = (before.clone(), inner.live.clone());
    let plain = req.message.is_empty() && req.meta.is_empty();
    let new_commit = !plain || differs(&before, &now);
    let state = if new_commit {
        let meta: BTreeMap<String, String> = req.meta.into_iter().collect();
        let info = states::new_state(&inner, kind, author, req.message, meta);
        let head = kind == OpKind::Checkpoint;
        states::freeze(branch, &mut inner, info, head, req.label)?
    } else {
        let head = inner.book.history.head;
        if let Some(label) = req.label {
            branch.carry_out(&mut inner, Event::Label { label, state: head }, &[])?;
        }
        head
    };
    let moved_from = old
        .filter(|o| *o != state)
        .and_then(|o| inner.book.history.id_of(o));
    let unresolved = inner.book.history.conflicts.len();
    drop(inner);
    if new_commit {
        branch.signal();
    }
    Ok(Checkpointed {
        commit: None,
        state,
        files_changed: files_changed(&before, &now),
        bytes_changed: bytes_changed(&before, &now),
        moved_from,
        new_commit,
        unresolved,
        unreadable: Vec::new(),
    })
}

/// Bytes that were written of the files that differ between two trees of a branch.
fn bytes_changed(before: &Tree, now: &Tree) -> u64 {
    let mut bytes = 0;
    Tree::diff(before, now, &mut |_, was, is| {
        let Some(inode) = is.filter(|i| i.nlink > 0) else {
            return;
        };
        let Some(file) = inode.file() else { return };
        let was = was.filter(|i| i.nlink > 0);
        if was.is_some_and(|was| Tree::commit_alike((before, was), (now, inode))) {
            return;
        }
        let over: u64 = file.extents().map(|p| p.range.end - p.range.start).sum();
        bytes += if file.is_plain() { inode.size } else { over };
    });
    bytes
}

/// Makes a checkpoint; after `Ok` it survives a power cut.
pub fn checkpoint(
    ws: &Workspace,
    branch: &str,
    req: CheckpointRequest,
    progress: Progress<'_>,
) -> Result<Checkpointed> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let done = checkpoint_in(&b, ws.author(), req, progress)?;
    branches::snapshots_changed(ws, &b);
    Ok(done)
}

/// Makes a commit that nobody asked for, with metadata, such as before and after a run; the head stays. After `Ok`
/// it survives a power cut if it was waited for, else as what programs write does. `None` where it would be like
/// another one.
pub fn commit_automatically(
    ws: &Workspace,
    branch: &str,
    req: AutomaticRequest,
    progress: Progress<'_>,
) -> Result<Option<Checkpointed>> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let AutomaticRequest {
        mut commit,
        unlike,
        joins,
    } = req;
    if let Some((key, value)) = unlike {
        let like = states::resolve(&b, &Target::Meta { key, value });
        if let Ok(state) = like
            && shows(&b, state)?
        {
            return Ok(None);
        }
    }
    let before = joins.and_then(|key| newest_with_key(&b, &key));
    if let Some((state, meta)) = before
        && shows(&b, state)?
    {
        commit.meta = joined(commit.meta, &meta);
    }
    let done = commit_in(&b, ws.author(), OpKind::Auto, commit, progress)?;
    branches::snapshots_changed(ws, &b);
    Ok(Some(done))
}

/// The newest automatic commit of the branch that has a value for a key, with its metadata.
fn newest_with_key(branch: &Branch, key: &str) -> Option<(u64, Vec<(String, String)>)> {
    let inner = branch.lock();
    let mut states = inner.book.history.states.own().rev();
    let has = |s: &&State| s.info.kind == OpKind::Auto && s.info.meta.iter().any(|(k, _)| k == key);
    let info = &states.find(has)?.info;
    Some((info.number, info.meta.clone()))
}

/// Whether a branch shows what a state has.
fn shows(branch: &Branch, state: u64) -> Result<bool> {
    branch.cache().flush_dirty();
    let tree = states::tree_of(branch, state)?;
    let live = branch.lock().live.clone();
    Ok(!differs(&tree, &live))
}
