//! Merging one branch into another.
//!
//! Both live trees are frozen as commits, the commits are merged in the store, and what that changes is
//! done to the live tree under its lock, as a switch that can be undone (`show_merged`). Where the live tree
//! was changed meanwhile at a path that the merge touches, all of it is done again, while whoever
//! changes the target waits, for a bounded time. A page that the kernel brought while the merge was shown,
//! and that the merge had changed, is merged in after it, as a change that came too late.

use super::show_merged::{Frozen, Late};
use super::switch::{Made, To};
use super::{Change, DiffSide, Watch};
use crate::book::history::Turn;
use crate::branch::Branch;
use crate::branch::states;
use crate::cancel::Cancel;
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::MERGE_HOLD_MAX;
use crate::merge::{
    Conflict, KeysMerged, Labels, MergeOptions, MergeResult, OnConflict, Outcome, Root,
    merge_commits, merge_keys,
};
use crate::names::check_label;
use crate::record::{OpKind, StateInfo, SwitchKind, encode};
use crate::tree::Tree;
use crate::types::Progress;
use crate::verbs::branches;
use crate::verbs::diff;
use crate::verbs::lineage;
use crate::verbs::runs;
use crate::verbs::show_merged;
use crate::verbs::state_reader;
use crate::workspace::Workspace;
use objstore::{Commit, CommitId, CommitKind};
use std::sync::Arc;

/// Times that a merge is made, again where what it touches was changed meanwhile. But for the first time
/// changes of the target wait for it: later there would only be more of them to store first.
const TRIES: usize = 3;
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
    /// Names whose entry or content differs: rows of a diff without those of directories.
    pub files_changed: u64,
    /// For a dry run: what would change, by path.
    pub changes: Vec<Change>,
}

/// Ours and theirs, frozen.
struct Sides<'a> {
    ours: &'a Arc<Branch>,
    frozen: Frozen,
    their_id: CommitId,
    /// Conflicts of the merge that this one follows.
    before: &'a [Conflict],
}

/// What a merge did, and what came too late for it.
struct Merged {
    report: MergeReport,
    late: Option<Late>,
}

impl Merged {
    fn only(report: MergeReport) -> Merged {
        Merged { report, late: None }
    }
}

/// Merged files and keys.
struct Joined {
    files: MergeResult,
    keys: KeysMerged,
    /// Theirs is what was made.
    is_theirs: bool,
}

/// Merges a branch into another. Durable after `Ok`; on error nothing was changed.
pub fn merge_branch(
    ws: &Workspace,
    req: &MergeRequest,
    progress: Progress<'_>,
) -> Result<MergeReport> {
    merge_branch_unless(ws, req, progress, &Cancel::new())
}

/// As [`merge_branch`]. Cancelled before the branch shows the merge it changes nothing;
/// afterwards it cannot be cancelled.
pub fn merge_branch_unless(
    ws: &Workspace,
    req: &MergeRequest,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<MergeReport> {
    let watch = Watch { progress, cancel };
    if let Some(label) = &req.label {
        check_label(label)?;
    }
    let (ours, theirs) = (ws.branch(&req.into)?, ws.branch(&req.from)?);
    if Arc::ptr_eq(&ours, &theirs) {
        return Err(Error::MergeWithItself(req.into.clone()));
    }
    let (first, second) = if ours.slot < theirs.slot {
        (&ours, &theirs)
    } else {
        (&theirs, &ours)
    };
    let _locks = (first.control.lock(), second.control.lock());
    let their_id = show_merged::frozen(&theirs, ws.author(), watch)?;
    // Its commit holds entries of its timeline, which are to be there as long as the commit is.
    theirs.sync()?;
    let report = runs::merging(ws, req, || {
        merge_commit(ws, req, &ours, their_id, true, watch)
    })?;
    if report.commit.is_some() && report.outcome != Outcome::UpToDate {
        lineage::take_over_line_of(ws, &ours, &theirs, their_id);
    }
    Ok(report)
}

/// Merges a commit into a branch, `with_keys` its key-value state too. The caller holds the branch's
/// control lock.
pub(crate) fn merge_commit(
    ws: &Workspace,
    req: &MergeRequest,
    ours: &Arc<Branch>,
    their_id: CommitId,
    with_keys: bool,
    watch: Watch<'_>,
) -> Result<MergeReport> {
    let mut done = merge_tries(ws, req, (ours, their_id), with_keys, &[], watch)?;
    // Where nothing is shown, that is what was decided.
    watch.cancel.decide()?;
    let first = done.report.outcome;
    for n in 0..TRIES {
        let Some(late) = done.late.take() else {
            let conflicts = done.report.outcome == Outcome::Conflicts;
            done.report.outcome = if conflicts {
                done.report.outcome
            } else {
                first
            };
            if req.dry_run {
                // What the branch shows is frozen for the comparison alone.
                done.report.commit = None;
            }
            return Ok(done.report);
        };
        // Undone is what one merge did.
        let undoable = n == 0 && !req.keep_conflicts;
        done = merge_late(ws, req, ours, (done.report, late), undoable, watch)?;
    }
    Err(Error::KeepsChanging(req.into.clone()))
}

/// Merges what programs stored through mappings into what a merge changed while it was shown. Where that
/// does not fit, the merge is taken back if it is `undoable` and nothing was built on it; else the
/// conflicts are kept.
fn merge_late(
    ws: &Workspace,
    req: &MergeRequest,
    ours: &Arc<Branch>,
    (first, late): (MergeReport, Late),
    undoable: bool,
    watch: Watch<'_>,
) -> Result<Merged> {
    let id = states::wait_for_id(ours, late.replaced, watch.progress)?;
    let mut again = MergeRequest {
        from: format!("{} (stored meanwhile)", req.into),
        ..req.clone()
    };
    let sides = (ours, id);
    let mut next = merge_tries(ws, &again, sides, false, &first.conflicts, watch)?;
    if next.report.outcome == Outcome::Conflicts && next.report.commit.is_none() {
        if undoable && take_back(ws, ours, &late, watch.cancel)? {
            return Ok(next);
        }
        again.keep_conflicts = true;
        next = merge_tries(ws, &again, sides, false, &first.conflicts, watch)?;
    }
    let report = &mut next.report;
    report.files_changed += first.files_changed;
    if report.conflicts.is_empty() {
        (report.outcome, report.conflicts) = (first.outcome, first.conflicts);
    }
    Ok(next)
}

/// Takes back what a merge shows; false where others built on it.
fn take_back(ws: &Workspace, ours: &Arc<Branch>, late: &Late, cancel: &Cancel) -> Result<bool> {
    let turn = ours.lock().book.history.next_undo()?;
    let before = states::tree_of(ours, late.replaced)?;
    ours.cache().flush_dirty();
    let to = To::State(SwitchKind::Undo, turn);
    let back = show_merged::show_merged(ours, ws.author(), &late.merged, &before, to, cancel)?;
    Ok(back.is_some())
}

/// Merges a commit into a branch, again and again while what that touches is changed.
fn merge_tries(
    ws: &Workspace,
    req: &MergeRequest,
    (ours, their_id): (&Arc<Branch>, CommitId),
    with_keys: bool,
    before: &[Conflict],
    watch: Watch<'_>,
) -> Result<Merged> {
    for n in 0..TRIES {
        if n == 0 {
            ours.cache().flush_dirty();
        } else {
            let (into, at_most) = (&req.into, MERGE_HOLD_MAX.as_secs());
            tracing::info!("{into}: changes wait for a merge now, {at_most} s at most");
            ours.hold(MERGE_HOLD_MAX);
        }
        let once = || {
            let sides = Sides {
                ours,
                frozen: show_merged::frozen_tree(ours, ws.author(), watch)?,
                their_id,
                before,
            };
            merge_frozen(ws, req, &sides, with_keys, watch.cancel)
        };
        let done = once();
        ours.release();
        if let Some(done) = done? {
            branches::snapshots_changed(ws, ours);
            return Ok(done);
        }
    }
    Err(Error::KeepsChanging(req.into.clone()))
}

/// Merges what was frozen; `None` where what it touches was changed since.
fn merge_frozen(
    ws: &Workspace,
    req: &MergeRequest,
    sides: &Sides<'_>,
    with_keys: bool,
    cancel: &Cancel,
) -> Result<Option<Merged>> {
    let store = &*sides.ours.places.store;
    // Until it is shown, nothing refers to what is stored here.
    let _pin = store.pin();
    let frozen = sides.frozen.tree.tree()?;
    let joined = join(ws, req, sides, &frozen, with_keys)?;
    cancel.check()?;
    let result = &joined.files;
    show_merged::mark_unsynced(sides.ours);
    let report = |commit, files_changed, changes| MergeReport {
        outcome: result.outcome,
        commit,
        conflicts: result.conflicts.clone(),
        files_changed,
        changes,
    };
    let nothing = |commit, changes| Ok(Some(Merged::only(report(commit, 0, changes))));
    let Some(root) = result.root.clone() else {
        return nothing(None, Vec::new());
    };
    if result.outcome == Outcome::UpToDate {
        return nothing(Some(sides.frozen.id), Vec::new());
    }
    let mut merged = show_merged::load_root(sides.ours, &root)?;
    *merged.kv_mut() = joined.keys.map.clone();
    if req.dry_run {
        return nothing(None, diff::changes(sides.ours, &frozen, &merged, &[])?);
    }
    let to = shown_as(ws, req, sides, &root, &joined)?;
    let (author, before) = (ws.author(), &sides.frozen.tree);
    let shown = show_merged::show_merged(sides.ours, author, before, &merged, to, cancel)?;
    Ok(shown.map(|shown| Merged {
        report: report(shown.back.commit, shown.back.files_changed, Vec::new()),
        late: shown.late,
    }))
}

/// Merges files, and keys where they are wanted; else ours stay.
fn join(
    _ws: &Workspace,
    req: &MergeRequest,
    sides: &Sides<'_>,
    frozen: &Tree,
    with_keys: bool,
) -> Result<Joined> {
    let store = &*sides.ours.places.store;
    let (ours, theirs) = (&sides.frozen.id, &sides.their_id);
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
    if files.outcome != Outcome::UpToDate && !sides.before.is_empty() {
        files.outcome = Outcome::Conflicts;
        files.conflicts.extend(sides.before.iter().cloned());
        files.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let is_theirs = files.outcome == Outcome::FastForward;
    Ok(Joined {
        files,
        keys,
        is_theirs,
    })
}

/// The state that stands for what was merged: theirs, or a new commit.
fn shown_as(
    ws: &Workspace,
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
        parents: vec![sides.frozen.id, sides.their_id],
        time_sec: time.sec,
        time_nsec: time.nsec,
        author: ws.author().to_owned(),
        message: message.clone(),
        meta: meta.clone(),
        kind: CommitKind::Asked,
        kv: joined.keys.kv,
        timeline: sides.ours.lock().book.timeline.head(),
    };
    let id = sides.ours.places.store.put_object(&commit)?;
    show_merged::mark_unsynced(sides.ours);
    let theirs = sides.ours.know(sides.their_id)?;
    let info = StateInfo {
        number: 0,
        kind: OpKind::Merge,
        asked: true,
        time,
        author: ws.author().to_owned(),
        message,
        meta,
        parents: vec![sides.frozen.state, theirs],
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
pub fn diff_branches(
    ws: &Workspace,
    from: &str,
    to: &str,
    paths: &[Vec<u8>],
) -> Result<Vec<Change>> {
    let live = |name: &str| state_reader::read_state(ws, name, &DiffSide::Live);
    live(from)?.changes(&live(to)?, paths)
}

/// Conflicts of a branch's last merge that are not settled.
pub fn conflicts(ws: &Workspace, branch: &str) -> Result<Vec<Conflict>> {
    Ok(ws.branch(branch)?.lock().book.history.conflicts.clone())
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
