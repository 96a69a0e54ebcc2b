//! Between a branch and its base: `apply` writes a branch's changes to the base, `update` brings what
//! was changed in the base into a branch.
//!
//! Both are merges of commits. The base has a line of commits of its own: the start commit, then one for
//! each state in which an apply or update found it, then what an apply made of it, whose second parent is
//! the branch's commit. So the common ancestor is what both had in common last, whichever branch did it,
//! and nothing is applied twice or taken back. The ref `base/WORKSPACE` names the newest one.
//!
//! Steps of an apply: [`scan`] the base, merge, [`plan`] what is to be done, [`stage`] what is new, [`carry`]
//! it out under an [`intent`] record. Invariant: the base is as before or as wanted, whatever fails; what
//! somebody else changes meanwhile is never overwritten; nothing outside of the base is written
//! ([`names`]).

mod carry;
mod intent;
mod names;
mod plan;
mod scan;
mod stage;
mod trust;

use crate::base::Base;
use crate::branch::Branch;
use crate::branch::states;
use crate::branch::telling::as_update;
use crate::cancel::Cancel;
use crate::clock;
use crate::error::{Error, Result};
use crate::merge::{
    BASE_LINE, Conflict, ConflictKind, ConflictSide, Labels, MergeOptions, OnConflict, Outcome,
    Root, merge_bases, merge_commits,
};
use crate::types::Progress;
use crate::verbs::merging;
use crate::verbs::show_merged;
use crate::verbs::state_reader;
use crate::verbs::undo;
use crate::verbs::{Change, MergeReport, MergeRequest, Watch};
use crate::workspace::Workspace;
pub use carry::{Fault, Faults};
use carry::{Site, carry_out, recover};
use objstore::io::Storage;
use objstore::{Commit, CommitId, CommitKind, ObjectStore, TreeEntry};
use plan::{Owners, Plan, check_privileges, plan};
use scan::Scan;

/// State of `main` that the workspace was started from.
const START_STATE: u64 = 1;

/// What to apply.
#[derive(Clone, Debug, Default)]
pub struct ApplyRequest {
    /// The branch.
    pub branch: String,
    /// Say what would be done.
    pub dry_run: bool,
    /// Write set-id bits, devices, capabilities and files of other owners too.
    pub privileged: bool,
    /// Write files that run by themselves, though a command in a sandbox may have written them.
    pub trust: bool,
    /// A command in a sandbox may be writing in the branch now.
    pub in_use: bool,
}

/// What an apply did, or would do.
#[derive(Clone, Debug)]
pub struct ApplyReport {
    /// [`Outcome::Merged`] where the base was changed, [`Outcome::UpToDate`] where there was nothing to
    /// do, [`Outcome::Conflicts`] where nothing was done for them.
    pub outcome: Outcome,
    /// What changed in the base, by path.
    pub changes: Vec<Change>,
    /// What could not be settled.
    pub conflicts: Vec<Conflict>,
    /// What could not be read in the base and was left alone.
    pub left_alone: Vec<Vec<u8>>,
    /// Changed files that run by themselves, where a command in a sandbox may have written them.
    pub untrusted: Vec<Vec<u8>>,
    /// Commit of the base as it was before.
    pub before: CommitId,
}

/// What to update.
#[derive(Clone, Debug, Default)]
pub struct UpdateRequest {
    /// The branch.
    pub branch: String,
    /// Commit conflicts with markers, rather than change nothing.
    pub keep_conflicts: bool,
    /// Say what would happen.
    pub dry_run: bool,
}

/// The base as it is now.
struct BaseNow {
    scan: Scan,
    commit: CommitId,
}

/// Where the refs are that name what was last applied to, or taken from, each base.
pub(crate) const REF_DIR: &str = "base";

/// The ref that names the newest commit of a workspace's base.
pub(crate) fn ref_name(workspace: &str) -> String {
    format!("{REF_DIR}/{workspace}")
}

/// What the base is to become, and the commit of the branch that makes it so.
struct Ready {
    root: Root,
    theirs: CommitId,
}

fn record_path(workspace: &str) -> String {
    format!("workspaces/{workspace}/apply")
}

/// Finishes or reverses an apply that was interrupted.
pub(crate) fn finish_interrupted(
    workspace: &str,
    base: &Base,
    store: &ObjectStore,
    storage: &dyn Storage,
) -> Result<()> {
    recover(&Site {
        base,
        store,
        storage,
        record: &record_path(workspace),
        faults: &|| Fault::Go,
        progress: &|_, _| (),
        cancel: &Cancel::new(),
    })
}

/// Forgets an apply that was interrupted in another directory than `base`, which is gone.
pub(crate) fn forget_interrupted(
    workspace: &str,
    base: &Base,
    storage: &dyn Storage,
) -> Result<()> {
    carry::forget_elsewhere(base, storage, &record_path(workspace))
}

/// Writes a branch's changes to the base: all of them, or on error none. Durable after `Ok`.
pub fn apply(ws: &Workspace, req: &ApplyRequest, progress: Progress<'_>) -> Result<ApplyReport> {
    apply_unless(ws, req, progress, &Cancel::new())
}

/// As [`apply`]. Cancelled before the first file of the base is replaced it leaves nothing;
/// afterwards it cannot be cancelled.
pub fn apply_unless(
    ws: &Workspace,
    req: &ApplyRequest,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<ApplyReport> {
    apply_with(ws, req, progress, &|| Fault::Go, cancel)
}

/// As [`apply`], with failures where a test wants them.
pub fn apply_with(
    ws: &Workspace,
    req: &ApplyRequest,
    progress: Progress<'_>,
    faults: Faults<'_>,
    cancel: &Cancel,
) -> Result<ApplyReport> {
    ws.check_has_base()?;
    ws.check_base_place()?;
    let branch = ws.branch(&req.branch)?;
    let _one = ws.applying.lock();
    let _control = branch.control.lock();
    // Nothing refers to what is stored here until the base's line does.
    let _pin = branch.places.store.pin();
    let record = record_path(ws.name());
    let store = &*branch.places.store;
    let site = Site {
        base: &branch.places.base,
        store,
        storage: &*branch.storage,
        record: &record,
        faults,
        progress,
        cancel,
    };
    recover(&site)?;
    let shown = ws.untrusted.shown(&req.branch);
    let merged = merged_with_base(ws, req, &branch, progress, cancel);
    let (now, ready, mut report) = merged?;
    let Some(ready) = ready else {
        return Ok(report);
    };
    let plan = plan(store, &now.scan, &ready.root)?;
    report.changes = changes(&plan);
    report.left_alone.clone_from(&plan.left_alone);
    report.untrusted = trust::untrusted(ws, &req.branch, &plan);
    report.outcome = match plan.is_empty() {
        true => Outcome::UpToDate,
        false => Outcome::Merged,
    };
    let owners = Owners {
        ours: rustix::process::geteuid().as_raw(),
        base: now.scan.root.meta.uid,
    };
    if !req.trust && !req.dry_run && !report.untrusted.is_empty() {
        return Err(Error::NeedsTrust {
            paths: report.untrusted,
        });
    }
    check_privileges(&plan, &owners, req.privileged)?;
    if req.dry_run || plan.is_empty() {
        return Ok(report);
    }
    // The way back is in the store before anything is changed.
    store.sync()?;
    set_base_line(ws, now.commit)?;
    // So that it can be named, to take things back from it.
    branch.know(now.commit)?;
    carry_out(&site, &now.scan, &plan)?;
    let parents = vec![now.commit, ready.theirs];
    let after = base_commit(ws, &branch, &ready.root, parents, "apply")?;
    store.sync()?;
    set_base_line(ws, after)?;
    undo::note_applied(&branch);
    if !req.in_use {
        trust::note_applied(ws, &req.branch, shown);
    }
    Ok(report)
}

/// Writes what [`apply`] would change as a patch, until that is cancelled; gives what a patch
/// cannot express, too.
pub fn apply_patch(
    ws: &Workspace,
    req: &ApplyRequest,
    progress: Progress<'_>,
    cancel: &Cancel,
    out: crate::verbs::patch::Sink<'_>,
) -> Result<(ApplyReport, Vec<Vec<u8>>)> {
    ws.check_has_base()?;
    ws.check_base_place()?;
    let branch = ws.branch(&req.branch)?;
    let _one = ws.applying.lock();
    let _control = branch.control.lock();
    // Nothing refers to what is stored here until the base's line does.
    let _pin = branch.places.store.pin();
    let (base, store) = (&branch.places.base, &branch.places.store);
    finish_interrupted(ws.name(), base, store, &*branch.storage)?;
    let merged = merged_with_base(ws, req, &branch, progress, cancel);
    let (now, ready, mut report) = merged?;
    let Some(ready) = ready else {
        return Ok((report, Vec::new()));
    };
    let old = state_reader::read_tree(&branch, &show_merged::load_root(&branch, &now.scan.root)?)?;
    let new = state_reader::read_tree(&branch, &show_merged::load_root(&branch, &ready.root)?)?;
    report.changes = old.changes(&new, &[])?;
    let left_out = crate::verbs::patch::write(&old, &new, &report.changes, &mut |bytes| {
        cancel.check()?;
        out(bytes)
    })?;
    Ok((report, left_out))
}

/// The base as it is now, and what a branch makes of it; nothing where there are conflicts.
fn merged_with_base(
    ws: &Workspace,
    req: &ApplyRequest,
    branch: &Branch,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<(BaseNow, Option<Ready>, ApplyReport)> {
    cancel.check()?;
    let state = show_merged::frozen_state(branch, ws.author())?;
    let theirs = states::wait_for_id_unless(branch, state, progress, cancel)?;
    let now = base_now(ws, branch, progress, cancel)?;
    let store = &*branch.places.store;
    let options = apply_options(ws, &req.branch);
    let mut result = merge_commits(store, store, &now.commit, &theirs, &options)?;
    let unknown = without_ancestor(ws, branch, &now.commit, &theirs)?;
    if !unknown.is_empty() {
        result.root = None;
        result.outcome = Outcome::Conflicts;
        result.conflicts.extend(unknown);
    }
    let report = ApplyReport {
        outcome: result.outcome,
        changes: Vec::new(),
        conflicts: result.conflicts,
        left_alone: Vec::new(),
        untrusted: Vec::new(),
        before: now.commit,
    };
    let ready = result.root.map(|root| Ready { root, theirs });
    Ok((now, ready, report))
}

/// Merges what was changed in the base into a branch. It can be undone like any merge.
pub fn update(ws: &Workspace, req: &UpdateRequest, progress: Progress<'_>) -> Result<MergeReport> {
    update_unless(ws, req, progress, &Cancel::new())
}

/// As [`update`]. Cancelled before the branch shows the merge it changes nothing; afterwards
/// it cannot be cancelled.
pub fn update_unless(
    ws: &Workspace,
    req: &UpdateRequest,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<MergeReport> {
    let watch = Watch { progress, cancel };
    ws.check_has_base()?;
    ws.check_base_place()?;
    let branch = ws.branch(&req.branch)?;
    let _one = ws.applying.lock();
    let _control = branch.control.lock();
    // Nothing refers to what is stored here until the base's line does.
    let _pin = branch.places.store.pin();
    let base = &branch.places.base;
    let store = &*branch.places.store;
    finish_interrupted(ws.name(), base, store, &*branch.storage)?;
    let now = base_now(ws, &branch, progress, cancel)?;
    store.sync()?;
    set_base_line(ws, now.commit)?;
    let ours = show_merged::frozen(&branch, ws.author(), watch)?;
    let conflicts = without_ancestor(ws, &branch, &now.commit, &ours)?;
    if !conflicts.is_empty() {
        cancel.decide()?;
        return Ok(MergeReport {
            outcome: Outcome::Conflicts,
            commit: None,
            conflicts,
            files_changed: 0,
            changes: Vec::new(),
        });
    }
    let merge = MergeRequest {
        from: "base".into(),
        into: req.branch.clone(),
        keep_conflicts: req.keep_conflicts,
        dry_run: req.dry_run,
        label: None,
        message: String::new(),
    };
    as_update(|| merging::merge_commit(ws, &merge, &branch, now.commit, false, watch))
}

fn apply_options(_ws: &Workspace, branch: &str) -> MergeOptions {
    let now = clock::now();
    MergeOptions {
        labels: Labels {
            base: String::new(),
            ours: "base".into(),
            theirs: branch.to_owned(),
        },
        on_conflict: OnConflict::Abort,
        now: (now.sec, now.nsec),
    }
}

/// The base as it is now, and its commit: the newest of its line, or a new one after that.
fn base_now(
    ws: &Workspace,
    branch: &Branch,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<BaseNow> {
    let last = match base_line(ws)? {
        Some(id) => id,
        None => states::wait_for_id_unless(&ws.main, START_STATE, progress, cancel)?,
    };
    let scan = scan::scan_base(branch, progress, cancel)?;
    let known: Commit = branch.places.store.get_object(&last)?;
    let same = known.root == scan.root.tree && known.root_meta == scan.root.meta;
    let commit = match same {
        true => last,
        false => base_commit(ws, branch, &scan.root, vec![last], "base")?,
    };
    Ok(BaseNow { scan, commit })
}

/// Files that were changed in the base before they were imported, and in the branch too: what both
/// had in common is gone, so they cannot be merged.
fn without_ancestor(
    ws: &Workspace,
    branch: &Branch,
    base: &CommitId,
    theirs: &CommitId,
) -> Result<Vec<Conflict>> {
    let mut paths = ws.main.lock().book.base_changed.clone();
    paths.extend(branch.lock().book.base_changed.iter().cloned());
    let store = &*branch.places.store;
    let start = states::wait_for_id(&ws.main, START_STATE, &|_, _| ())?;
    if paths.is_empty() || merge_bases(store, base, theirs)? != [start] {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for path in paths {
        let side = |id: &CommitId| side_at(store, id, &path);
        let (was, ours, theirs) = (side(&start)?, side(base)?, side(theirs)?);
        let entry = |side: &Option<ConflictSide>| side.as_ref().map(|s| alike(&s.entry));
        if entry(&theirs) != entry(&was) && entry(&theirs) != entry(&ours) {
            found.push(Conflict {
                path,
                kind: ConflictKind::Content,
                base: None,
                ours,
                theirs,
            });
        }
    }
    Ok(found)
}

fn base_commit(
    ws: &Workspace,
    branch: &Branch,
    root: &Root,
    parents: Vec<CommitId>,
    message: &str,
) -> Result<CommitId> {
    let time = clock::now();
    let commit = Commit {
        root_meta: root.meta.clone(),
        root: root.tree,
        parents,
        time_sec: time.sec,
        time_nsec: time.nsec,
        author: ws.author().to_owned(),
        message: message.to_owned(),
        meta: vec![(BASE_LINE.to_owned(), message.to_owned())],
        kind: CommitKind::Automatic,
        kv: None,
        timeline: None,
    };
    Ok(branch.places.store.put_object(&commit)?)
}

fn base_line(ws: &Workspace) -> Result<Option<CommitId>> {
    let name = ref_name(ws.name());
    let Some(bytes) = ws.views.shared().refs.get(&name)? else {
        return Ok(None);
    };
    let id: [u8; 32] = bytes.try_into().map_err(|_| Error::Damaged {
        what: format!("the ref {name}"),
        why: "it is not a commit id".into(),
    })?;
    Ok(Some(CommitId::from_bytes(id)))
}

fn set_base_line(ws: &Workspace, id: CommitId) -> Result<()> {
    let refs = &ws.views.shared().refs;
    Ok(refs.set(&ref_name(ws.name()), id.as_bytes())?)
}

/// What a commit has at a path.
fn side_at(store: &ObjectStore, id: &CommitId, path: &[u8]) -> Result<Option<ConflictSide>> {
    let commit: Commit = store.get_object(id)?;
    let entry = plan::entry_at(store, commit.root, path)?;
    Ok(entry.map(|entry| ConflictSide {
        path: path.to_vec(),
        entry,
    }))
}

/// What counts as a change of an entry: not its time.
fn alike(entry: &TreeEntry) -> TreeEntry {
    let mut entry = entry.clone();
    (entry.meta.mtime_sec, entry.meta.mtime_nsec) = (0, 0);
    entry
}

/// A plan as a list of changed paths.
fn changes(plan: &Plan) -> Vec<Change> {
    let change = |path: &Vec<u8>, status: char| Change {
        path: path.clone(),
        status,
        old_path: None,
    };
    let puts = plan.puts.iter().map(|put| match put.replaces {
        true => change(&put.path, 'M'),
        false => change(&put.path, 'A'),
    });
    let gone = plan.removes.iter().chain(&plan.rmdirs);
    let mut all: Vec<Change> = puts.collect();
    all.extend(gone.map(|path| change(path, 'D')));
    all.extend(plan.mkdirs.iter().map(|path| change(path, 'A')));
    all.sort();
    all
}
