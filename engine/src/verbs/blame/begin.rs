//! Where blame begins: the commit that the live tree was last, and what it has of the path.

use crate::book::states::State;
use crate::branch::Branch;
use crate::branch::states;
use crate::error::Result;
use crate::verbs::blame::trees::Moment;
use crate::verbs::blame::trees::Trees;
use crate::verbs::diff;
use crate::verbs::find;
use objstore::{CommitId, ObjectStore};

/// A state that is stored.
type Stored = (u64, CommitId);

/// What the commit that the live tree was last has of a path of the live tree; `None` where the branch has
/// no commit.
pub(crate) fn blame_begin(
    branch: &Branch,
    store: &ObjectStore,
    path: &[u8],
    follow: bool,
) -> Result<Option<Moment>> {
    let Some((state, commit)) = shown_last(branch) else {
        return Ok(None);
    };
    let mut trees = Trees::new(store, follow);
    let entry = trees.entry(commit, path)?.flatten();
    let mut moment = Moment {
        commit,
        name: path.to_vec(),
        entry,
    };
    if moment.entry.is_none() && follow && find(&branch.lock().live, path, false).is_ok() {
        // It may have been renamed since.
        let tree = states::tree_of(branch, state)?;
        let live = branch.lock().live.clone();
        let changes = diff::changes(branch, &tree, &live, &[])?;
        let renames = changes
            .into_iter()
            .filter_map(|c| Some((c.path, c.old_path?)));
        if let Some(name) = was_called(path, &renames.collect::<Vec<_>>()) {
            moment.entry = trees.entry(commit, &name)?.flatten();
            moment.name = name;
        }
    }
    Ok(Some(moment))
}

/// The state that the live tree was frozen as or set to last. It may be another branch's (of a merge that was a
/// fast-forward), or an older one (of a rollback). Where that is not known, as of state files of before version 9, or
/// is not stored, the newest state that is: a head with a higher number than all own ones is what the branch was made
/// of, or set to, since.
fn shown_last(branch: &Branch) -> Option<Stored> {
    let inner = branch.lock();
    let history = &inner.book.history;
    let stored = |n: u64| {
        let is_stored = |_: &&State| history.states.is_stored(n);
        let state = history.states.get(&n).filter(is_stored)?;
        Some((n, state.info.id?))
    };
    let newest = || {
        let own = history.states.own().rev();
        let own = own.map(|s| s.info.number).find_map(stored);
        own.max(stored(history.head))
    };
    history.shown.and_then(stored).or_else(newest)
}

/// What a path was called, by renames of files and of directories (new name, old name).
fn was_called(path: &[u8], renames: &[(Vec<u8>, Vec<u8>)]) -> Option<Vec<u8>> {
    let exact = renames.iter().find(|(new, _)| new == path);
    if let Some((_, old)) = exact {
        return Some(old.clone());
    }
    // A directory: where something below it was.
    let below = |(new, old): &(Vec<u8>, Vec<u8>)| {
        let rest = new
            .strip_prefix(path)
            .filter(|rest| rest.starts_with(b"/"))?;
        let dir = old.strip_suffix(rest)?;
        (!dir.is_empty()).then(|| dir.to_vec())
    };
    renames.iter().find_map(below)
}
