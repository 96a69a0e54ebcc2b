//! States of a branch: frozen from the live tree, awaited until they are commits, loaded from the store.

use crate::branch::{Branch, Inner, Paused};
use crate::branch::{away, seal};
use crate::cancel::Cancel;
use crate::change::transition::differs;
use crate::clock;
use crate::error::{Error, Result};
use crate::record::call::StateRef;
use crate::record::{Event, OpKind, StateInfo};
use crate::stored::load::load_tree;
use crate::stored::store::Reference;
use crate::tree::Tree;
use crate::tree::dirmap::DirMap;
use crate::tree::inode::{Content, Dir};
use crate::types::{Nid, Progress, Time};
use objstore::{Commit, CommitId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// What to roll back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The head.
    Head,
    /// A label, commit id or prefix, `@`, `@~N`, or one of these after `BRANCH:`.
    Ref(String),
    /// The newest commit from before this moment.
    Before(Time),
    /// The newest commit with this metadata.
    Meta {
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
}

/// State that a target means.
pub(crate) fn resolve(branch: &Branch, target: &Target) -> Result<u64> {
    let inner = branch.lock();
    match target {
        Target::Head => Ok(inner.book.history.head),
        Target::Ref(text) => inner.book.history.resolve(&branch.name(), text),
        Target::Before(time) => inner.book.history.before(*time),
        Target::Meta { key, value } => inner.book.history.with_meta(key, value),
    }
}

/// What a new state of the live tree says of itself. Its parent is the head.
pub(crate) fn new_state(
    inner: &Inner,
    kind: OpKind,
    author: &str,
    message: String,
    meta: BTreeMap<String, String>,
) -> StateInfo {
    StateInfo {
        number: inner.book.counters.state,
        kind,
        asked: false,
        time: clock::now(),
        author: author.to_owned(),
        message,
        meta: meta.into_iter().collect(),
        parents: inner.book.history.parents(),
        id: None,
    }
}

/// Freezes the live tree as a state.
pub(crate) fn freeze(
    branch: &Branch,
    inner: &mut Inner,
    info: StateInfo,
    head: bool,
    label: Option<String>,
) -> Result<u64> {
    let number = info.number;
    branch.carry_out(inner, Event::Freeze { info, head, label }, &[])?;
    Ok(number)
}

/// Freezes the live tree as a state of this kind where it differs from the head's tree `before`;
/// returns the state that stands for it.
pub(crate) fn freeze_if_differs(
    branch: &Branch,
    inner: &mut Inner,
    before: &Tree,
    kind: OpKind,
    author: &str,
) -> Result<u64> {
    let head = inner.book.history.head;
    let stored = inner.book.history.tree(head).cloned();
    let before = stored.as_ref().unwrap_or(before);
    if !differs(before, &inner.live) {
        return Ok(head);
    }
    let info = new_state(inner, kind, author, String::new(), BTreeMap::new());
    freeze(branch, inner, info, false, None)
}

/// Waits until a state is a commit; stores it in this thread where nothing else does.
pub(crate) fn wait_for_id(branch: &Branch, state: u64, progress: Progress<'_>) -> Result<CommitId> {
    wait_for(branch, state, progress, None)
}

/// As [`wait_for_id`] until that is cancelled.
pub(crate) fn wait_for_id_unless(
    branch: &Branch,
    state: u64,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<CommitId> {
    wait_for(branch, state, progress, Some(cancel))
}

fn wait_for(
    branch: &Branch,
    state: u64,
    progress: Progress<'_>,
    cancel: Option<&Cancel>,
) -> Result<CommitId> {
    loop {
        if let Some(cancel) = cancel {
            cancel.check()?;
        }
        let durable = |inner: &Inner| {
            inner.book.history.state(state).map(|s| {
                s.info
                    .id
                    .filter(|_| inner.book.history.states.is_stored(state))
            })
        };
        if let Some(id) = durable(&branch.lock())? {
            return Ok(id);
        }
        // Whoever imports the base is at it for long, and hears of nothing else.
        let may_store = cancel.is_none() || branch.lock().reference.is_some();
        if !may_store {
            branch.wake.wake();
        } else if seal::try_store_pending(branch)? {
            continue;
        }
        let paused = branch.paused.lock().clone();
        if let Some(Paused { why, wants_space }) = paused {
            // It may be possible by now: whoever holds the lock may have begun before.
            match seal::store_pending(branch) {
                Ok(()) => continue,
                Err(Error::Closing) => return Err(Error::Closing),
                Err(_) => return Err(Error::ImportPaused { why, wants_space }),
            }
        }
        if branch.closing.load(Ordering::Relaxed) {
            return Err(Error::Closing);
        }
        let done = branch.importer.files_done.load(Ordering::Relaxed);
        progress(done, branch.importer.files_total.load(Ordering::Relaxed));
        let mut inner = branch.lock();
        if durable(&inner)?.is_none() {
            branch.wait_progress(&mut inner);
        }
    }
}

/// The tree of a state: kept, or loaded from the store.
pub(crate) fn tree_of(branch: &Branch, number: u64) -> Result<Tree> {
    away::with_dirs(branch, || load_state(branch, number))
}

fn load_state(branch: &Branch, number: u64) -> Result<Tree> {
    let _pin = branch.places.store.pin();
    let (id, reference) = {
        let inner = branch.lock();
        let state = inner.book.history.state(number)?;
        if let Some(tree) = inner.book.history.tree(number) {
            return Ok(tree.clone());
        }
        (state.info.id, inner.reference.clone())
    };
    let gone = || Error::Damaged {
        what: format!("state {number}"),
        why: "it was not stored".into(),
    };
    let id = id.ok_or_else(gone)?;
    let mut loaded = load_commit(branch, id, reference)?;
    let mut inner = branch.lock();
    inner.brought.catch_up(&mut loaded.tree);
    let tree = loaded.tree.clone();
    inner.book.history.states.keep_reference(number, loaded);
    Ok(tree)
}

/// The tree of a commit in the numbers of a branch, which need not know it.
pub(crate) fn tree_of_commit(branch: &Branch, id: CommitId) -> Result<Tree> {
    let _pin = branch.places.store.pin();
    away::with_dirs(branch, || {
        let reference = branch.lock().reference.clone();
        let mut loaded = load_commit(branch, id, reference)?;
        branch.lock().brought.catch_up(&mut loaded.tree);
        Ok(loaded.tree)
    })
}

fn load_commit(branch: &Branch, id: CommitId, reference: Option<Reference>) -> Result<Reference> {
    let store = &branch.places.store;
    let commit: Commit = store.get_object(&id)?;
    let reference = reference.map_or_else(|| empty_reference(branch), Ok)?;
    let now = Time {
        sec: commit.time_sec,
        nsec: commit.time_nsec,
    };
    let numbers = &mut branch.numbers();
    let root = (commit.root, &commit.root_meta);
    let knows_links = !branch.lock().brought.is_any_away;
    let loaded = load_tree(store, &reference, root, numbers, now, knows_links)?;
    loaded.with_kv(store, commit.kv)
}

/// An empty tree to load a commit into, where nothing of this branch was stored yet.
pub(crate) fn empty_reference(branch: &Branch) -> Result<Reference> {
    let mut root = (**branch.lock().live.inode(Nid::ROOT)?).clone();
    root.content = Content::Dir(Box::new(Dir::new(DirMap::default(), 0)));
    Ok(Reference {
        tree: Tree::with_root(root),
        root: None,
        kv: None,
    })
}

/// True where a commit that was known is to be stored once more: a crash took it, and the journal has what it
/// is made of.
fn stores_again(branch: &Branch, state: u64, id: &CommitId) -> bool {
    let inner = branch.lock();
    let states = &inner.book.history.states;
    states.is_pending(state) && inner.book.history.id_of(state) == Some(*id)
}

/// The commit of a state that a call mentions.
pub(crate) fn kept_commit(branch: &Branch, call: u64, state: StateRef) -> Result<CommitId> {
    let id = match state
        .commit
        .filter(|id| !stores_again(branch, state.state, id))
    {
        Some(id) => id,
        None => wait_for_id(branch, state.state, &|_, _| {})?,
    };
    let store = &branch.places.store;
    match store.contains(objstore::Kind::Commit, id.as_bytes()) {
        true => Ok(id),
        false => Err(Error::CallUnknown {
            call,
            why: format!("commit {id} is no longer kept"),
            pending: Vec::new(),
        }),
    }
}
