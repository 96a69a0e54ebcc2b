//! Merging one branch into another.
//!
//! Both live trees are frozen as commits, the commits are merged in the store, and what that changes is
//! done to the live tree under its lock, as a switch that can be undone. Where the live tree was changed
//! meanwhile at a path that the merge touches, all of it is done again.

use super::switch::{Made, To};
use super::{Change, DiffSide, Progress, RolledBack};
use crate::branch::Branch;
use crate::clock;
use crate::error::{Error, Result};
use crate::history::Turn;
use crate::kv::KvMap;
use crate::load_tree::load_tree;
use crate::merge::{
    Conflict, KeysMerged, Labels, MergeOptions, MergeResult, OnConflict, Outcome, Root,
    merge_commits, merge_keys,
};
use crate::names::check_label;
use crate::record::{OpKind, StateInfo, SwitchKind, encode};
use crate::store_tree::meta_of;
use crate::transition::{in_place, transition};
use crate::tree::Tree;
use crate::tree::inode::Inode;
use crate::types::Nid;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, CommitKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Times that a merge is made again because what it touches was changed meanwhile.
const TRIES: usize = 5;
/// Metadata of a merge commit that holds its conflicts: the encoded list in hex digits.
const CONFLICTS_KEY: &str = "agentvfs.conflicts";

/// What to merge.
#[derive(Clone, Debug, Default)]
pub struct MergeRequest {
    /// Branch that is merged.
    pub from: String,
    /// Branch that is changed.
    pub into: String,
    /// Commit conflicts with markers, rather than change nothing.
    pub keep_conflicts: bool,
    /// Say what would happen.
    pub dry_run: bool,
    /// Label for the commit.
    pub label: Option<String>,
    /// Message; empty: which branches.
    pub message: String,
}

/// What a merge did.
#[derive(Clone, Debug)]
pub struct MergeReport {
    /// How it went.
    pub outcome: Outcome,
    /// The commit now shown; `None` where nothing was done.
    pub commit: Option<CommitId>,
    /// What could not be settled.
    pub conflicts: Vec<Conflict>,
    /// Inodes that changed.
    pub files_changed: u64,
    /// For a dry run: what would change, by path.
    pub changes: Vec<Change>,
}

/// Ours and theirs, frozen.
struct Sides<'a> {
    ours: &'a Arc<Branch>,
    our_state: u64,
    our_id: CommitId,
    their_id: CommitId,
}

/// Merged files and keys.
struct Joined {
    files: MergeResult,
    keys: KeysMerged,
    /// Theirs is what was made.
    is_theirs: bool,
}

impl Workspace {
    /// Merges a branch into another. Durable after `Ok`; on error nothing was changed.
    pub fn merge_branch(&self, req: &MergeRequest, progress: Progress<'_>) -> Result<MergeReport> {
        if let Some(label) = &req.label {
            check_label(label)?;
        }
        let (ours, theirs) = (self.branch(&req.into)?, self.branch(&req.from)?);
        if Arc::ptr_eq(&ours, &theirs) {
            return Err(Error::MergeWithItself(req.into.clone()));
        }
        let (first, second) = if ours.slot < theirs.slot {
            (&ours, &theirs)
        } else {
            (&theirs, &ours)
        };
        let _locks = (first.control.lock(), second.control.lock());
        let their_id = theirs.frozen(self.author(), progress)?.1;
        self.merge_commit(req, &ours, their_id, true, progress)
    }

    /// Merges a commit into a branch, `with_keys` its key-value state too. The caller holds the branch's
    /// control lock.
    pub(crate) fn merge_commit(
        &self,
        req: &MergeRequest,
        ours: &Arc<Branch>,
        their_id: CommitId,
        with_keys: bool,
        progress: Progress<'_>,
    ) -> Result<MergeReport> {
        for _ in 0..TRIES {
            let (our_state, our_id) = ours.frozen(self.author(), progress)?;
            let sides = Sides {
                ours,
                our_state,
                our_id,
                their_id,
            };
            if let Some(report) = self.merge_frozen(req, &sides, with_keys)? {
                self.snapshots_changed(ours);
                return Ok(report);
            }
        }
        Err(Error::KeepsChanging(req.into.clone()))
    }

    /// Merges what was frozen; `None` where what it touches was changed since.
    fn merge_frozen(
        &self,
        req: &MergeRequest,
        sides: &Sides<'_>,
        with_keys: bool,
    ) -> Result<Option<MergeReport>> {
        let store = &*sides.ours.places.store;
        // Until it is shown, nothing refers to what is stored here.
        let _pin = store.pin();
        let frozen = sides.ours.tree_of(sides.our_state)?;
        let joined = self.join(req, sides, &frozen, with_keys)?;
        let result = &joined.files;
        sides.ours.mark_unsynced();
        let nothing = |commit, changes| MergeReport {
            outcome: result.outcome,
            commit,
            conflicts: result.conflicts.clone(),
            files_changed: 0,
            changes,
        };
        let Some(root) = result.root.clone() else {
            return Ok(Some(nothing(None, Vec::new())));
        };
        if result.outcome == Outcome::UpToDate {
            return Ok(Some(nothing(Some(sides.our_id), Vec::new())));
        }
        let mut merged = sides.ours.load_root(&root)?;
        *merged.kv_mut() = joined.keys.map.clone();
        if req.dry_run {
            let changes = sides.ours.changes(&frozen, &merged, &[])?;
            return Ok(Some(nothing(None, changes)));
        }
        let to = self.shown_as(req, sides, &root, &joined)?;
        let shown = sides
            .ours
            .show_merged(self.author(), &frozen, &merged, to)?;
        Ok(shown.map(|back| MergeReport {
            outcome: result.outcome,
            commit: back.commit,
            conflicts: result.conflicts.clone(),
            files_changed: back.files_changed,
            changes: Vec::new(),
        }))
    }

    /// Merges files, and keys where they are wanted; else ours stay.
    fn join(
        &self,
        req: &MergeRequest,
        sides: &Sides<'_>,
        frozen: &Tree,
        with_keys: bool,
    ) -> Result<Joined> {
        let store = &*sides.ours.places.store;
        let (ours, theirs) = (&sides.our_id, &sides.their_id);
        let options = options(req);
        let mut files = merge_commits(store, store, ours, theirs, &options)?;
        let kv_of = |id: &CommitId| Ok::<_, Error>(store.get_object::<Commit>(id)?.kv);
        let (our_kv, their_kv) = (kv_of(ours)?, kv_of(theirs)?);
        let keys = match with_keys {
            true => {
                let keep = options.on_conflict == OnConflict::Keep;
                merge_keys(store, store, (ours, frozen.kv()), theirs, keep)?
            }
            false => KeysMerged {
                map: frozen.kv().clone(),
                kv: our_kv,
                conflicts: Vec::new(),
            },
        };
        if !keys.conflicts.is_empty() {
            files.outcome = Outcome::Conflicts;
            files.root = files.root.filter(|_| req.keep_conflicts);
            files.conflicts.extend(keys.conflicts.iter().cloned());
            files.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        }
        files.outcome = match files.outcome {
            Outcome::UpToDate if keys.kv != our_kv => Outcome::Merged,
            Outcome::FastForward if keys.kv != their_kv => Outcome::Merged,
            other => other,
        };
        let is_theirs = files.outcome == Outcome::FastForward;
        Ok(Joined {
            files,
            keys,
            is_theirs,
        })
    }

    /// The state that stands for what was merged: theirs, or a new commit.
    fn shown_as(
        &self,
        req: &MergeRequest,
        sides: &Sides<'_>,
        root: &Root,
        joined: &Joined,
    ) -> Result<To> {
        let result = &joined.files;
        if joined.is_theirs && req.label.is_none() && req.message.is_empty() {
            let state = sides.ours.know(sides.their_id)?;
            return Ok(To::State(SwitchKind::Merge, Turn { state, head: state }));
        }
        let time = clock::now();
        let message = if req.message.is_empty() {
            format!("merge {} into {}", req.from, req.into)
        } else {
            req.message.clone()
        };
        let mut meta = Vec::new();
        if !result.conflicts.is_empty() {
            meta.push((CONFLICTS_KEY.to_owned(), hex(&encode(&result.conflicts))));
        }
        let commit = Commit {
            root_meta: root.meta.clone(),
            root: root.tree,
            parents: vec![sides.our_id, sides.their_id],
            time_sec: time.sec,
            time_nsec: time.nsec,
            author: self.author().to_owned(),
            message: message.clone(),
            meta: meta.clone(),
            kind: CommitKind::Asked,
            kv: joined.keys.kv,
            timeline: sides.ours.lock().timeline.head(),
        };
        let id = sides.ours.places.store.put_object(&commit)?;
        sides.ours.mark_unsynced();
        let theirs = sides.ours.know(sides.their_id)?;
        let info = StateInfo {
            number: 0,
            kind: OpKind::Merge,
            asked: true,
            time,
            author: self.author().to_owned(),
            message,
            meta,
            parents: vec![sides.our_state, theirs],
            id: Some(id),
        };
        Ok(To::Merge(Box::new(Made {
            info,
            tree: Tree::default(),
            label: req.label.clone(),
            conflicts: result.conflicts.clone(),
        })))
    }

    /// Differences between the live trees of two branches, sorted by path.
    pub fn diff_branches(&self, from: &str, to: &str, paths: &[Vec<u8>]) -> Result<Vec<Change>> {
        let live = |name: &str| self.view_of(name, &DiffSide::Live);
        live(from)?.changes(&live(to)?, paths)
    }

    /// Conflicts of a branch's last merge that are not settled.
    pub fn conflicts(&self, branch: &str) -> Result<Vec<Conflict>> {
        Ok(self.branch(branch)?.lock().history.conflicts.clone())
    }
}

fn options(req: &MergeRequest) -> MergeOptions {
    let now = clock::now();
    MergeOptions {
        labels: Labels {
            base: String::new(),
            ours: req.into.clone(),
            theirs: req.from.clone(),
        },
        on_conflict: match req.keep_conflicts {
            true => OnConflict::Keep,
            false => OnConflict::Abort,
        },
        now: (now.sec, now.nsec),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Branch {
    /// What the live tree is now as a commit: its state and id.
    pub(crate) fn frozen(&self, author: &str, progress: Progress<'_>) -> Result<(u64, CommitId)> {
        self.cache().flush_dirty();
        let head = self.lock().history.head;
        let before = self.tree_of(head)?;
        let kind = OpKind::BeforeMerge;
        let state = self.freeze_if_differs(&mut self.lock(), &before, kind, author)?;
        Ok((state, self.wait_for_id(state, progress)?))
    }

    /// Trees may refer to stored content that no sync has covered.
    pub(crate) fn mark_unsynced(&self) {
        self.unsynced.store(true, Ordering::SeqCst);
    }

    /// The tree of a root directory in the store, in this branch's numbers.
    pub(crate) fn load_root(&self, root: &Root) -> Result<Tree> {
        let reference = self.lock().reference.clone();
        let reference = reference.map_or_else(|| self.empty_reference(), Ok)?;
        let (tree, now) = (root.tree, clock::now());
        let store = &self.places.store;
        Ok(load_tree(
            store,
            &reference,
            tree,
            &root.meta,
            &mut self.numbers(),
            now,
        )?
        .tree)
    }

    /// Does to the live tree what makes `merged` of `frozen`; `None`, with nothing done, where what that
    /// touches is not as it was frozen.
    pub(super) fn show_merged(
        &self,
        author: &str,
        frozen: &Tree,
        merged: &Tree,
        mut to: To,
    ) -> Result<Option<RolledBack>> {
        let undoes = matches!(to, To::Undone(_));
        let state = match &to {
            To::State(_, turn) => Some(turn.state),
            To::Merge(_) | To::Undone(_) => None,
        };
        let (shown, replaced, changes, before, state) = {
            let mut inner = self.lock_synced()?;
            let lookups = &inner.lookups;
            let mut counters = inner.counters;
            let known = |nid: Nid| lookups.get(nid) > 0;
            let target = transition(frozen, merged, &mut counters, &known).tree;
            if let To::Merge(made) = &mut to {
                made.tree = target.clone();
            }
            let Some(target) = overlaid(&inner.live, frozen, &target) else {
                return Ok(None);
            };
            let shown = inner.history.shown;
            let changes = in_place(&inner.live, &target, &|nid| inner.lookups.get(nid) > 0);
            let before = inner.live.clone();
            let replaced = self.swap(&mut inner, author, to, &changes, counters)?;
            let head = inner.history.head;
            let made = if undoes { replaced + 1 } else { head };
            (shown, replaced, changes, before, state.unwrap_or(made))
        };
        let mut back = self.after_swap(&before, &changes, replaced, shown, state)?;
        if undoes && back.commit.is_none() {
            // What was there was stored already, so this does not take long.
            back.commit = self.wait_for_id(state, &|_, _| {}).ok();
        }
        Ok(Some(back))
    }
}

/// `live` with what makes `target` of `frozen`; `None` where an inode or a key that this changes is not
/// as it was frozen.
fn overlaid(live: &Tree, frozen: &Tree, target: &Tree) -> Option<Tree> {
    let mut out = live.clone();
    let mut fits = true;
    Tree::diff(frozen, target, &mut |nid, was, now| {
        let same = match (live.get(nid), was) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || alike(a, b),
            (Some(a), None) => a.nlink == 0,
            (None, Some(b)) => b.nlink == 0,
        };
        fits &= same;
        match now {
            Some(inode) => out.set(nid, inode.clone()),
            None => drop(out.remove(nid)),
        }
    });
    KvMap::diff(frozen.kv(), target.kv(), &mut |(key, was, now)| {
        fits &= live.kv().get(key) == was;
        out.kv_mut().set(key, now.cloned());
    });
    fits.then_some(out)
}

/// True where a commit would record both inodes the same, under the same names.
fn alike(a: &Inode, b: &Inode) -> bool {
    let names = |i: &Inode| (i.nlink, i.parent, i.hash);
    let same_entries = match (a.dir(), b.dir()) {
        (Some(x), Some(y)) => {
            let mut same = true;
            crate::tree::dirmap::DirMap::diff(&x.map, &y.map, &mut |_, _, _| same = false);
            same
        }
        (None, None) => true,
        _ => false,
    };
    same_entries
        && names(a) == names(b)
        && a.links == b.links
        && a.commits_alike(b)
        && meta_of(a) == meta_of(b)
}
