//! Where blame begins: the commit that the live tree was last, and what it has of the path.

use crate::book::timeline::log::Log;
use crate::book::timeline::log::Newest;
use crate::branch::Branch;
use crate::branch::states;
use crate::error::Result;
use crate::record::call::What;
use crate::verbs::blame::trees::Moment;
use crate::verbs::blame::trees::Trees;
use crate::verbs::diff;
use crate::verbs::find;
use objstore::{Commit, CommitId, ObjectStore};

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
    let Some((state, commit)) = shown_last(branch, store)? else {
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

/// The state that the live tree was frozen as or set to last, of those that are stored. It may be another
/// branch's (of a merge that was a fast-forward), or an older one (of a rollback).
fn shown_last(branch: &Branch, store: &ObjectStore) -> Result<Option<Stored>> {
    let (own, newest, noted, mut log) = {
        let inner = branch.lock();
        let history = &inner.book.history;
        let stored = |n: u64| {
            let state = history
                .states
                .get(&n)
                .filter(|_| history.states.is_stored(n))?;
            Some((n, state.info.id?))
        };
        if let Some(shown) = history.shown.and_then(stored) {
            return Ok(Some(shown));
        }
        let own = history
            .states
            .own()
            .rev()
            .find_map(|s| stored(s.info.number));
        let head = stored(history.head);
        // A head with a higher number than all own ones is what the branch was made of, or set to, since.
        let newest = own
            .into_iter()
            .chain(head)
            .max_by_key(|(number, _)| *number);
        let noted = inner.book.timeline.last.and_then(stored);
        // What is noted of the newest own one may come from the branch that this one was made of.
        let noted = noted.filter(|n| Some(*n) != newest && Some(*n) != own);
        let (Some(newest), Some(noted)) = (newest, noted) else {
            return Ok(newest.or(noted));
        };
        let log = Log::of(&inner.book.timeline, store, store.pin());
        (own.unwrap_or(newest), newest, noted, Newest::of(log))
    };
    // What the commit of the newest own one holds of the timeline tells whether it was frozen before the live
    // tree was noted as the other one.
    let commit: Commit = store.get_object(&own.1)?;
    let known = commit.timeline.map_or(0, |head| head.entries);
    while let Some(frame) = log.take()? {
        let entry = frame.entry()?;
        let notes = !matches!(
            entry.what,
            What::Started { .. }
                | What::Begun { .. }
                | What::Named { .. }
                | What::Same { .. }
                | What::Others { .. }
        );
        if entry.number <= known {
            break;
        }
        if notes {
            return Ok(Some(noted));
        }
    }
    Ok(Some(newest))
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
