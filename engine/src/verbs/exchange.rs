//! What goes out of a workspace as a whole, and what comes in: commits to export, and branches that begin with a
//! commit that was put together elsewhere.

use super::Created;
use crate::branch::Branch;
use crate::branch::create;
use crate::branch::create::Origin;
use crate::branch::states;
use crate::branch::states::Target;
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::names::check_branch_name;
use crate::record::OpKind;
use crate::types::Progress;
use crate::types::SLOT_SHIFT;
use crate::verbs::branches;
use crate::verbs::timeline::imported;
use crate::verbs::timeline::imported::TakenOver;
use crate::workspace::Workspace;
use crate::workspace::branch_refs::{deleted_dir, deleted_record};
use objstore::{CommitId, HexPrefix};
use std::collections::BTreeSet;

/// Gives timelines and calls to take over, some at a time and none at the end.
pub type Calls<'a> = &'a mut dyn FnMut() -> Result<TakenOver>;

/// The commit of what a reference names, or of what a branch shows now (frozen as an automatic commit
/// where it differs from the head).
pub fn commit_of(
    ws: &Workspace,
    branch: &str,
    reference: Option<&str>,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<CommitId> {
    let b = ws.branch(branch)?;
    let state = {
        let _one = b.control.lock();
        match reference {
            None => freeze_now(&b, ws.author())?,
            Some(text) => {
                let target = branches::import_ref(ws, &b, &Target::Ref(text.to_owned()))?;
                states::resolve(&b, &target)?
            }
        }
    };
    states::wait_for_id_unless(&b, state, progress, cancel)
}

/// Makes a branch that begins with a commit that is in the store as a whole; `calls` are added to the
/// timeline that it has of `main`, up to the state that the commit was made from. Durable after `Ok`.
pub fn create_branch_from(
    ws: &Workspace,
    name: &str,
    commit: CommitId,
    calls: Calls<'_>,
) -> Result<Created> {
    check_branch_name(name)?;
    let _one = ws.views.changing();
    if ws.branch(name).is_ok() {
        return Err(Error::BranchExists(name.to_owned()));
    }
    ws.untrusted.forget(name)?;
    let parent = ws.main.clone();
    let _control = parent.control.lock();
    let _pin = parent.places.store.pin();
    parent.places.store.sync()?;
    let state = parent.know(commit)?;
    let mut origin = create::origin_at(&parent, state)?;
    origin.begin_as_asked_for();
    // What the branch begins with of the timeline was stored just now.
    parent.places.store.sync()?;
    parent.sync()?;
    branches::add_branch(ws, name, (origin, None), calls)
}

/// Removes a branch that nothing names yet.
pub(crate) fn discard(_ws: &Workspace, branch: &Branch) -> Result<()> {
    let dir = &branch.dir;
    let removed = branch.storage.remove_dir_all(dir);
    removed.map_err(Error::io(dir))
}

/// The last commit of a branch that was deleted, by its id or a unique prefix.
pub(crate) fn stored_commit(ws: &Workspace, text: &str) -> Result<Option<CommitId>> {
    let Ok(prefix) = HexPrefix::parse(text) else {
        return Ok(None);
    };
    let shared = ws.views.shared();
    let mut found = BTreeSet::new();
    for name in shared.refs.list(&deleted_dir(ws.name()))? {
        let Some(bytes) = shared.refs.get(&name)? else {
            continue;
        };
        let Some(record) = deleted_record(&name, &bytes)? else {
            continue;
        };
        if prefix.matches(record.last.as_bytes()) {
            found.insert(record.last);
        }
    }
    if found.len() > 1 {
        return Err(Error::AmbiguousRef {
            prefix: text.to_owned(),
            count: found.len(),
        });
    }
    Ok(found.pop_first())
}

/// Takes calls over from elsewhere.
pub(crate) fn take_over(branch: &Branch, calls: Calls<'_>) -> Result<()> {
    loop {
        let some = calls()?;
        if some.is_empty() {
            return Ok(());
        }
        imported::import(branch, some)?;
    }
}

/// State of what the live tree is now, made where it differs from the head.
fn freeze_now(branch: &Branch, author: &str) -> Result<u64> {
    branch.cache().flush_dirty();
    let head = branch.lock().book.history.head;
    let before = states::tree_of(branch, head)?;
    let state =
        states::freeze_if_differs(branch, &mut branch.lock(), &before, OpKind::Auto, author)?;
    branch.signal();
    Ok(state)
}

impl Origin {
    /// The commit that it begins with counts as asked for.
    fn begin_as_asked_for(&mut self) {
        let inner = self.inner_mut();
        let head = inner.book.history.head;
        inner.book.history.states.set_asked(head);
        self.keep_off_groups();
    }

    /// Numbers that are given later differ from those of hard-link groups.
    pub(crate) fn keep_off_groups(&mut self) {
        let inner = self.inner_mut();
        let mut groups = Vec::new();
        inner.live.for_each(&mut |_, i| {
            if i.group() != 0 {
                groups.push(i.group());
            }
        });
        inner.book.counters.ino = widest_gap(groups, inner.book.counters.ino);
    }
}

/// The first number of the widest range, of those that counting from `from` on can give, that holds none
/// of `groups`. Merges and bases may have groups beyond what counting ever reaches.
fn widest_gap(mut groups: Vec<u64>, from: u64) -> u64 {
    const END: u64 = 1 << SLOT_SHIFT;
    groups.retain(|group| (from..END).contains(group));
    groups.sort_unstable();
    let starts = std::iter::once(from).chain(groups.iter().map(|group| group + 1));
    let ends = groups.iter().copied().chain(std::iter::once(END));
    let gaps = starts.zip(ends);
    // Of ranges of one width the last.
    let widest = gaps.max_by_key(|(start, end)| end.saturating_sub(*start));
    widest.map_or(from, |(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_groups_leave_most_room() {
        const END: u64 = 1 << SLOT_SHIFT;
        assert_eq!(widest_gap(vec![], 7), 7);
        assert_eq!(widest_gap(vec![3, 9, 9], 7), 10);
        assert_eq!(widest_gap(vec![1 << 62 | 5, u64::MAX, END], 7), 7);
        assert_eq!(widest_gap(vec![END - 1, 8], 7), 9);
    }
}
