//! Single paths of the live tree as they are in another state.
//!
//! A switch like a rollback (what is replaced becomes an automatic commit, undo and redo go over it),
//! but to a mixture of two states, and the head stays.

use super::switch::To;
use super::{Change, RolledBack};
use crate::book::history::Turn;
use crate::branch::away;
use crate::branch::events;
use crate::branch::load::Rounds;
use crate::branch::states;
use crate::branch::states::Target;
use crate::branch::{Branch, Inner};
use crate::change::graft::{Blocked, Dirty, graft, graft_dirty};
use crate::change::transition::{FRESH_NID, differs, in_place, transition};
use crate::clock;
use crate::error::{Error, Result};
use crate::record::{Counters, SwitchKind};
use crate::stored::load::Numbers;
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::tree::lookups::Lookups;
use crate::types::Progress;
use crate::verbs::branches;
use crate::verbs::diff;
use crate::verbs::runs;
use crate::verbs::switch;
use crate::workspace::Workspace;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often numbers are given without the branch's lock, while its trees are rewritten meanwhile each time; after that it is
/// done under the lock.
const AHEAD_TRIES: usize = 3;

/// A state whose numbers were made those of the live tree, and where both differ: found without the lock, because it takes as
/// long as they differ.
struct Ahead {
    /// The live tree of then.
    live: Tree,
    /// The state.
    source: Tree,
    dirty: Dirty,
    /// [`Pins::steps`](crate::branch::pins::Pins::steps) of then.
    steps: u64,
}

impl Ahead {
    /// `None` where links are not known, and numbers stay as they are.
    fn of(branch: &Branch, state: u64, source: &Tree) -> Option<Ahead> {
        let (live, source, steps) = {
            let inner = branch.lock();
            if !inner.knows_links() {
                return None;
            }
            let kept = inner.book.history.tree(state).unwrap_or(source);
            let mut kept = kept.clone();
            inner.brought.catch_up(&mut kept);
            (inner.live.clone(), kept, inner.pins.steps())
        };
        let source = numbered(&live, &source, &mut branch.numbers());
        let dirty = Dirty::between(&live, &source);
        Some(Ahead {
            live,
            source,
            dirty,
            steps,
        })
    }

    /// The same for the live tree of now; `None` where trees were rewritten since, so that this one may point to what is gone.
    fn now(mut self, inner: &Inner, numbers: &mut dyn Numbers) -> Option<(Tree, Dirty)> {
        if inner.pins.steps() != self.steps {
            return None;
        }
        let (live, source) = (&inner.live, &self.source);
        // Each name that comes, goes or changes is a directory's change.
        let mut names_stay = true;
        Tree::diff(&self.live, live, &mut |nid, was, now| {
            let is_file = |i: Option<&Arc<Inode>>| i.is_some_and(|i| i.dir().is_none());
            names_stay &= is_file(was) && is_file(now);
            self.dirty.add(nid, [live, source]);
        });
        if names_stay {
            return Some((self.source, self.dirty));
        }
        let source = numbered(live, source, numbers);
        let dirty = Dirty::between(live, &source);
        Some((source, dirty))
    }
}

/// A state with the numbers of the live tree: one that comes from the store may have other ones for files that did not change.
/// Only once all links are known.
fn numbered(live: &Tree, source: &Tree, numbers: &mut dyn Numbers) -> Tree {
    transition(live, source, numbers, &Lookups::default()).tree
}

/// Takes what lies at `paths` from the target into the live tree; what the target does not have
/// there goes. [`Error::NoSuchPath`] where neither has one, and then nothing is done.
pub(crate) fn restore_in(
    branch: &Branch,
    author: &str,
    target: &Target,
    paths: &[Vec<u8>],
    progress: Progress<'_>,
) -> Result<RolledBack> {
    events::check_journal(branch)?;
    let state = states::resolve(branch, target)?;
    let (mut rounds, mut tries) = (Rounds::default(), 0);
    let _pin = branch.places.store.pin();
    loop {
        let source = states::tree_of(branch, state)?;
        let ahead = (tries < AHEAD_TRIES).then(|| Ahead::of(branch, state, &source));
        branch.cache().flush_dirty();
        let blocked = {
            let mut inner = branch.lock_synced()?;
            let mut counters = inner.book.counters;
            let source = match ahead.flatten() {
                Some(ahead) => ahead.now(&inner, &mut counters),
                None => Some(source_in(&inner, state, &source, &mut counters)),
            };
            let Some((source, dirty)) = source else {
                tries += 1;
                continue;
            };
            let (now, scanned) = (clock::now(), inner.knows_links());
            let source = (&source, dirty);
            match graft_dirty(&inner.live, source, paths, &mut counters, now, scanned) {
                Err(blocked) => blocked,
                Ok(tree) if !differs(&inner.live, &tree) => {
                    return Ok(RolledBack {
                        commit: inner.book.history.id_of(state),
                        replaced: None,
                        files_changed: 0,
                    });
                }
                Ok(tree) => {
                    let (shown, head) = (inner.book.history.shown, inner.book.history.head);
                    let kernel = &inner.lookups;
                    let changes = in_place(&inner.live, &tree, &mut counters, kernel);
                    if inner.needs_links(&changes) {
                        drop(inner);
                        away::bring_all(branch)?;
                        continue;
                    }
                    let turn = Turn { state, head };
                    let to = To::State(SwitchKind::Restore, turn);
                    let before = inner.live.clone();
                    let replaced =
                        switch::swap(branch, &mut inner, author, to, &changes, counters)?;
                    drop(inner);
                    let how = (&before, &changes);
                    return switch::after_swap(branch, how, (replaced, shown), state, progress);
                }
            }
        };
        unblock(branch, blocked, &mut rounds)?;
    }
}

/// What [`restore_in`] would change.
pub(crate) fn restore_plan_in(
    branch: &Branch,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let state = states::resolve(branch, target)?;
    branch.cache().flush_dirty();
    let mut rounds = Rounds::default();
    loop {
        let source = states::tree_of(branch, state)?;
        let (live, scanned) = {
            let inner = branch.lock();
            (inner.live.clone(), inner.knows_links())
        };
        let mut unused = Counters {
            nid: FRESH_NID,
            ino: FRESH_NID,
            state: 0,
        };
        let source = match scanned {
            true => numbered(&live, &source, &mut unused),
            false => source,
        };
        match graft(&live, &source, paths, &mut unused, clock::now(), scanned) {
            Ok(tree) => return diff::changes(branch, &live, &tree, &[]),
            Err(blocked) => unblock(branch, blocked, &mut rounds)?,
        }
    }
}

/// The state as it is kept now, in the numbers of the live tree where all links are known, and where both differ.
fn source_in(inner: &Inner, state: u64, source: &Tree, numbers: &mut dyn Numbers) -> (Tree, Dirty) {
    let mut source = inner.book.history.tree(state).unwrap_or(source).clone();
    inner.brought.catch_up(&mut source);
    if inner.knows_links() {
        source = numbered(&inner.live, &source, numbers);
    }
    let dirty = Dirty::between(&inner.live, &source);
    (source, dirty)
}

/// Sees to what a graft has to wait for.
fn unblock(branch: &Branch, blocked: Blocked, rounds: &mut Rounds) -> Result<()> {
    match blocked {
        Blocked::Failed(e) => Err(e),
        Blocked::Dirs(dirs) => dirs
            .into_iter()
            .try_for_each(|nid| rounds.load_dir(branch, nid)),
        Blocked::Scan if branch.closing.load(Ordering::Relaxed) => Err(Error::Closing),
        Blocked::Scan if branch.lock().scan_done => away::bring_all(branch),
        Blocked::Scan => {
            branch.wait_progress(&mut branch.lock());
            Ok(())
        }
    }
}

/// Takes what lies at `paths` from a commit into the live tree; the head stays, and what was there
/// becomes an automatic commit.
pub fn restore(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<RolledBack> {
    restore_with(ws, branch, target, paths, &|_, _| ())
}

/// As [`restore`]; `progress` hears of how many files the kernel has forgotten what it knew.
pub fn restore_with(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
    progress: Progress<'_>,
) -> Result<RolledBack> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    runs::shows_again(ws, &b, &target)?;
    restore_in(&b, ws.author(), &target, paths, progress)
}

/// What [`restore`] would change.
pub fn restore_plan(
    ws: &Workspace,
    branch: &str,
    target: &Target,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let target = branches::import_ref(ws, &b, target)?;
    restore_plan_in(&b, &target, paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Nid, NodeId, Wait, WriteFlags, mode};
    use crate::verbs::checkpoint;
    use crate::{Caller, CheckpointRequest, Engine, EngineConfig, MAIN};
    use objstore::crash_storage::CrashStorage;

    const W: Wait = Wait::Allowed;

    fn place(w: &Workspace) -> NodeId {
        w.lookup(NodeId::ROOT, b"d", W).unwrap().node
    }

    fn file(w: &Workspace, name: &[u8], data: &[u8]) -> NodeId {
        let made = w.lookup(place(w), name, W).or_else(|_| {
            let mode = mode::REG | 0o644;
            w.mknod(&Caller::default(), place(w), name, mode, 0, W)
        });
        let node = made.unwrap().node;
        w.write(node, 0, data, WriteFlags::default(), W).unwrap();
        w.forget(node, 1);
        node
    }

    fn stored(w: &Workspace, label: &str) {
        let request = CheckpointRequest {
            label: Some(label.into()),
            wait: true,
            ..CheckpointRequest::default()
        };
        checkpoint(w, MAIN, request, &|_, _| ()).unwrap();
    }

    /// Restores `d` beside what `meanwhile` does after numbers were given; false where they have to be given again.
    fn restored(w: &Workspace, meanwhile: &dyn Fn(&Workspace)) -> bool {
        let branch = w.branch(MAIN).unwrap();
        let state = states::resolve(&branch, &Target::Ref("then".into())).unwrap();
        let source = states::tree_of(&branch, state).unwrap();
        let ahead = Ahead::of(&branch, state, &source).unwrap();
        meanwhile(w);
        let inner = branch.lock();
        let mut numbers = inner.book.counters;
        let Some(ahead) = ahead.now(&inner, &mut numbers) else {
            return false;
        };
        let under_lock = source_in(&inner, state, &source, &mut numbers);
        let now = clock::now();
        let [ahead, under_lock] = [ahead, under_lock].map(|(source, dirty)| {
            let paths = [b"d".to_vec()];
            graft_dirty(
                &inner.live,
                (&source, dirty),
                &paths,
                &mut numbers.clone(),
                now,
                true,
            )
            .unwrap()
        });
        ahead.check().unwrap();
        assert!(!differs(&ahead, &under_lock));
        for name in [b"a", b"b"] {
            let dir = |tree: &Tree| tree.lookup(Nid::ROOT, b"d").unwrap().nid;
            let nid = |tree: &Tree| tree.lookup(dir(tree), name).unwrap().nid;
            let is = ahead.get(nid(&ahead)).unwrap();
            assert!(is.alike_but_links(source.get(nid(&source)).unwrap()));
        }
        true
    }

    #[test]
    fn what_changes_after_numbers_were_given_is_restored_too() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("base")).unwrap();
        let config = EngineConfig {
            root: dir.path().to_owned(),
            author: "test".into(),
        };
        let engine = Engine::on_storage(config, Arc::new(CrashStorage::new())).unwrap();
        engine.create("w", &dir.path().join("base"), None).unwrap();
        let w = engine.open_workspace("w").unwrap();
        w.mkdir(&Caller::default(), NodeId::ROOT, b"d", 0o755, W)
            .unwrap();
        for name in [&b"a"[..], b"b", b"c"] {
            file(&w, name, b"then\n");
        }
        stored(&w, "then");
        let unlink = |w: &Workspace, name: &[u8]| w.unlink(place(w), name, W).unwrap();
        assert!(restored(&w, &|_| ()));
        assert!(restored(&w, &|w| _ = file(w, b"a", b"now\n")));
        stored(&w, "now");
        assert!(restored(&w, &|w| _ = file(w, b"b", b"now, too\n")));
        assert!(restored(&w, &|w| {
            unlink(w, b"a");
            file(w, b"a", b"another\n");
        }));
        assert!(restored(&w, &|w| {
            unlink(w, b"b");
            let a = w.lookup(place(w), b"a", W).unwrap().node;
            w.link(a, place(w), b"b", W).unwrap();
        }));
        // What numbers were given to may point into what is dropped.
        assert!(!restored(&w, &|w| w.seal().unwrap()));
    }
}
