//! A closed branch as opening it would show it, read from its files without changing them.

use super::Inner;
use super::left::Remains;
use super::notable::Notable;
use super::open::{first_head, new_inner};
use super::replay::Replay;
use super::state_file::{LoadedState, StateFile, StateMore};
use super::tree_file::Trees;
use crate::book::history::History;
use crate::error::Result;
use crate::journal::{self, Journal};
use crate::kv::stored;
use crate::record::{Event, OpKind, Record, decode};
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::tree::patch::BaseDirs;
use objstore::io::Storage;
use objstore::{Commit, CommitId, ObjectStore};

/// A branch that was looked at.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub inner: Inner,
    /// Commits of the state file; some may have expired since.
    pub sealed_commits: Vec<CommitId>,
    pub journal: journal::Inspected,
}

/// Looks at the branch whose files are in `dir`; `None` where it was never made whole. `trees` are the
/// tree files of its workspace.
pub(crate) fn inspect(
    storage: &dyn Storage,
    store: &ObjectStore,
    trees: &Trees,
    dir: &str,
    boot: u64,
) -> Result<Option<Inspected>> {
    let mut dirs = BaseDirs::default();
    let file = state_file(storage, trees, dir);
    let Some(state) = file.read(&mut dirs)? else {
        return file.check_never_made(boot).map(|()| None);
    };
    replayed(storage, dir, boot, state.with_kv(store)?, dirs).map(Some)
}

/// What a journal makes of a state.
fn replayed(
    storage: &dyn Storage,
    dir: &str,
    boot: u64,
    state: LoadedState,
    dirs: BaseDirs,
) -> Result<Inspected> {
    let LoadedState {
        head, more, tree, ..
    } = state;
    let states = head.history.states.iter();
    let sealed_commits = states.filter_map(|s| s.id).collect();
    let mut history = History::from_record(head.history);
    (history.later, history.shown) = (more.later, more.shown);
    let mut inner = new_inner(tree.clone(), head.counters, history);
    let (kv, timeline) = (more.kv, more.timeline);
    (inner.book.anchors.root, inner.book.anchors.kv) = (head.root.flatten(), kv);
    inner.book.anchors.timeline = timeline.stored;
    inner.book.timeline = timeline;
    inner.reference = head.root.map(|root| Reference { tree, root, kv });
    let mut replay = Replay::new(&mut inner, dirs);
    let journal_dir = format!("{dir}/journal");
    let journal = Journal::inspect(storage, &journal_dir, head.next_seq, boot, &mut |r| {
        replay.take(r)
    })?;
    replay.finish(&|p, buf| Ok(journal.read(p, 0, buf)?))?;
    super::drop_orphans(&mut inner.live);
    Ok(Inspected {
        inner,
        sealed_commits,
        journal,
    })
}

/// True where the journal in `dir` has all that was ever done to its branch, which began with the base
/// whose root directory is `root`, and makes of that what can be shown.
pub(crate) fn is_all_in_journal(
    storage: &dyn Storage,
    dir: &str,
    boot: u64,
    root: &Inode,
) -> Result<bool> {
    let journal = format!("{dir}/journal");
    let mut begins = false;
    Journal::inspect(storage, &journal, 1, boot, &mut |r| {
        if r.seq == 1
            && let Ok(Record::Event(Event::Freeze { info, .. })) = decode(r.meta)
        {
            begins = info.kind == OpKind::Start && info.number == 1 && info.id.is_none();
        }
        Ok(())
    })?;
    if !begins {
        return Ok(false);
    }
    let state = LoadedState {
        head: first_head(),
        more: StateMore::default(),
        tree: Tree::with_root(root.clone()),
        shared: Tree::default(),
        notable: Notable::default(),
    };
    replayed(storage, dir, boot, state, BaseDirs::default()).map(|_| true)
}

/// What is left of a branch whose state may be damaged.
pub(crate) fn left_of(storage: &dyn Storage, trees: &Trees, dir: &str, boot: u64) -> Remains {
    Remains::read(&state_file(storage, trees, dir), boot)
}

/// First journal record that the state file in `dir` does not have.
pub(crate) fn first_needed_record(storage: &dyn Storage, trees: &Trees, dir: &str) -> Result<u64> {
    state_file(storage, trees, dir).first_needed_record()
}

/// Has the state file in `dir` name the keys of the newest commit of which they can be read, in the place of
/// those that cannot.
pub(crate) fn take_older_keys(
    storage: &dyn Storage,
    store: &ObjectStore,
    trees: &Trees,
    dir: &str,
) -> Result<()> {
    state_file(storage, trees, dir).replace_kv(&|head| {
        let commits = head.history.states.iter().rev().filter_map(|s| s.id);
        let mut read = commits.filter_map(|id| {
            let commit: Commit = store.get_object(&id).ok()?;
            stored::load(store, commit.kv.as_ref()).ok()?;
            Some(commit.kv)
        });
        read.next().flatten()
    })
}

/// Path of the state file that counts in `dir`.
pub(crate) fn state_path(
    storage: &dyn Storage,
    trees: &Trees,
    dir: &str,
) -> Result<Option<String>> {
    state_file(storage, trees, dir).current_path()
}

/// The state files of a branch that is only looked at. Which branch that is does not matter: no tree
/// file is written.
pub(crate) fn state_file<'a>(
    storage: &'a dyn Storage,
    trees: &'a Trees,
    dir: &'a str,
) -> StateFile<'a> {
    StateFile {
        storage,
        dir,
        trees,
        branch: 0,
    }
}
