//! gc: which objects of the store are needed is known here, objstore takes the rest away.
//!
//! Order: expired commits are let go of, and none expires until all is marked; the run begins (from then
//! on nothing that is put or found goes); the roots of each branch and snapshot are taken under its
//! lock, the journals are synced (so that what expired stays so), all roots are walked, packs are swept. A root that cannot be read as a whole ends the run
//! before anything goes.

mod cache;
pub(crate) mod roots;
mod sizes;
pub(crate) mod stats;
pub(crate) mod timelines;
pub(crate) mod tombs;

use crate::branch::auto;
pub use stats::{BranchFigures, KindFigures, StoreFigures, WorkspaceFigures};

use crate::branch::Branch;
use crate::branch::inspect::inspect;
use crate::branch::tree_file::Trees;
use crate::clock;
use crate::engine::Engine;
use crate::engine::away::{OnlyRemote, Remotes};
use crate::error::{Error, Result};
use crate::types::Progress;
use crate::types::Time;
use crate::workspace::branch_refs;
use crate::workspace::keeper::lower_priority;
use crate::workspace::lazy::lazy_names;
use crate::workspace::remotes::tracked_commits;
use objstore::CommitId;
use objstore::elsewhere::only_here;
use objstore::gc::{Collection, Met, Plan, Swept, Walk};
use objstore::limits::REWRITE_DEAD_PERCENT;
use parking_lot::{MutexGuard, RwLockWriteGuard};
use roots::Roots;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Name of the ref that notes the last run.
const NOTE_REF: &str = "gc";
const NOTE_VERSION: u16 = 1;
/// Least time between two runs that nobody asked for.
const PAUSE: Duration = Duration::from_secs(3600);
/// Least growth of the packs since the last run that makes another worthwhile.
const GROWTH_MIN: u64 = 64 << 20;
/// How often progress is told.
const PROGRESS_PAUSE: Duration = Duration::from_millis(20);

/// What gc is asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcRequest {
    /// Age up to which what nothing needs stays; `None`: as the settings say.
    pub grace: Option<Duration>,
    /// Share of a pack that nothing needs from which on it is rewritten; `None`: a fifth.
    pub dead_percent: Option<u8>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What gc did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Bytes that the disk got back.
    pub freed_bytes: u64,
    /// Objects that are gone.
    pub objects: u64,
    /// Packs that are gone.
    pub packs: u64,
    /// Bytes that were copied out of them.
    pub copied_bytes: u64,
    /// Bytes that all packs took on the disk before.
    pub store_bytes: u64,
    /// Bytes of objects that are needed.
    pub needed_bytes: u64,
    /// Bytes that nothing needs and that stay: too young, or too few in their pack.
    pub left_bytes: u64,
    /// Packs that stay because a record that is needed cannot be read.
    pub damaged_packs: u64,
    /// Of the bytes that were freed, those that lazy workspaces can fetch again.
    pub dropped_bytes: u64,
    /// Bytes that they could fetch again and that stay, where the store exceeds the setting `cache`.
    pub cache_bytes: u64,
    /// What they lack, as far as what is here refers to it.
    pub only_remote: OnlyRemote,
    /// Why it was not known what their remotes have.
    pub unasked: Option<String>,
}

/// What must not change while gc looks at what is needed.
struct Still<'a> {
    /// Branches and snapshots that there were when it began.
    branches: Vec<Arc<Branch>>,
    /// Names of all workspaces.
    names: Vec<String>,
    /// Workspaces of which a part is only in a remote.
    lazy: HashSet<String>,
    _expiry: RwLockWriteGuard<'a, ()>,
}

/// When gc ran last, and how large the packs were afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct GcNote {
    version: u16,
    /// When it ended.
    pub time: Time,
    /// Bytes that all packs took on the disk then.
    pub bytes: u64,
}

impl Engine {
    /// Takes away what nothing needs any more, beside all other work and at low priority. `progress`
    /// hears how many bytes of how many are done.
    pub fn gc(&self, req: GcRequest, progress: Progress<'_>) -> Result<GcReport> {
        // First: nobody who waits for the run waits for the network.
        let remotes = Remotes::ask(self)?;
        let _one = alone(self)?;
        let (done, total) = (&AtomicU64::new(0), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (running, ended) = mpsc::channel::<()>();
            let run = scope.spawn(move || {
                let _running = running;
                lower_priority();
                run_gc(self, req, &remotes, &|so_far, all| {
                    done.store(so_far, Ordering::Relaxed);
                    total.store(all, Ordering::Relaxed);
                })
            });
            while ended.recv_timeout(PROGRESS_PAUSE) == Err(RecvTimeoutError::Timeout) {
                progress(done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
            }
            progress(done.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
            run.join().unwrap_or(Err(Error::Closing))
        })
    }

    /// When gc ran last.
    pub fn last_gc(&self) -> Option<GcNote> {
        let bytes = self.refs.get(NOTE_REF).ok()??;
        let note: GcNote = crate::record::decode(&bytes).ok()?;
        (note.version == NOTE_VERSION).then_some(note)
    }

    /// Runs gc where that is worthwhile and the settings do not forbid it: an hour or more after the last
    /// run, and the packs have grown by a quarter (and 64 MiB) since, or a workspace was deleted.
    pub fn gc_if_worthwhile(&self) -> Result<Option<GcReport>> {
        if !self.settings().gc_auto || !is_gc_worthwhile(self, clock::now()) {
            return Ok(None);
        }
        self.gc(GcRequest::default(), &|_, _| ()).map(Some)
    }
}

/// The right to look at all of the store with nothing taken away meanwhile, or to take it away: waits until
/// whoever has it is done.
pub(crate) fn alone(engine: &Engine) -> Result<MutexGuard<'_, ()>> {
    loop {
        if let Some(alone) = engine.collecting.try_lock_for(PROGRESS_PAUSE) {
            return Ok(alone);
        }
        if engine.stop.load(Ordering::Relaxed) {
            return Err(Error::Store(objstore::Error::Stopped));
        }
    }
}

fn run_gc(
    engine: &Engine,
    req: GcRequest,
    remotes: &Remotes,
    progress: Progress<'_>,
) -> Result<GcReport> {
    let _here = only_here();
    let now = clock::now();
    let grace = req.grace.unwrap_or(engine.settings().gc_grace);
    if !req.dry_run {
        // First: who read one of these refs before has a pin, which is waited for.
        tombs::bury(engine, now, grace)?;
    }
    expire_all(engine, now);
    let timelines = timelines::timelines_to_forget(engine, now, grace);
    let timelines = match req.dry_run {
        true => timelines,
        false => timelines::forget_timelines(engine, timelines)?,
    };
    let (run, still) = begin(engine)?;
    let times = (now, grace, &timelines[..]);
    mark_all(engine, &run, &still, times, &mut |_| ())?;
    let only_remote = check_missing(engine, &run, remotes)?;
    let shed = cache::shed(engine, &run, remotes, &still, times)?;
    drop(still);
    if shed.objects > 0 && !cache::holds(engine, &run, remotes)? {
        run.shed_none();
    }
    let dead = req.dead_percent.map_or(REWRITE_DEAD_PERCENT, u64::from);
    let plan = run.plan(grace, dead)?;
    let dropped_bytes = run.shed_by(&plan);
    let report = match req.dry_run {
        true => planned(&plan),
        false => {
            let total = plan.work_bytes();
            let swept = run.sweep(&plan, &|done| progress(done, total))?;
            drop(run);
            note_gc(engine, now)?;
            engine.restore_reserve();
            tracing::info!(freed = swept.freed_bytes, objects = swept.objects, "gc");
            done(&plan, &swept)
        }
    };
    Ok(GcReport {
        dropped_bytes,
        cache_bytes: shed.bytes.saturating_sub(dropped_bytes),
        only_remote,
        unasked: remotes.why.clone(),
        ..report
    })
}

/// Counts what lazy workspaces lack; an object that is lost is an error, as below it nothing was marked.
fn check_missing(engine: &Engine, run: &Collection<'_>, remotes: &Remotes) -> Result<OnlyRemote> {
    let (found, lost) = remotes.judge(engine, run.take_missing())?;
    match lost.first() {
        None => Ok(found),
        Some((kind, id)) => Err(Error::Store(objstore::Error::ObjectMissing {
            kind: *kind,
            id: objstore::exchange::key_hex(id),
        })),
    }
}

/// Lets go of what has expired.
fn expire_all(engine: &Engine, now: Time) {
    for branch in all_open(engine).iter().filter(|b| !b.read_only) {
        if let Err(e) = auto::expire(branch, now) {
            tracing::debug!("{}: nothing expires now: {e}", branch.name());
        }
    }
}

/// Begins a run. From before its begin to the end of marking nothing expires, and the branches that
/// there were are looked at though they are deleted meanwhile: else a commit could pass from one that
/// is still to be looked at to one that was.
fn begin(engine: &Engine) -> Result<(Collection<'_>, Still<'_>)> {
    let expiry = engine.expiry.write();
    let branches = all_open(engine);
    let mut lazy = lazy_names(&engine.refs)?;
    let run = engine.store.collect(&engine.stop)?;
    // Work that was in progress has ended. A workspace that was being made is among the names, and one that is lazy has
    // said so before it was; one that has gone since is among the branches.
    let names = engine.names()?;
    lazy.extend(lazy_names(&engine.refs)?);
    let still = Still {
        branches,
        names,
        lazy,
        _expiry: expiry,
    };
    Ok((run, still))
}

/// Branches and snapshots of all open workspaces.
fn all_open(engine: &Engine) -> Vec<Arc<Branch>> {
    let open = engine.all_opened();
    open.iter().flat_map(|w| w.views.all()).collect()
}

/// Marks all that is needed.
fn mark_all(
    engine: &Engine,
    run: &Collection<'_>,
    still: &Still<'_>,
    times: (Time, Duration, &[String]),
    met: &mut dyn FnMut(Met<'_>),
) -> Result<()> {
    let mut walk = Walk::new(run, met);
    let mut maybe = Vec::new();
    // What must be there as a whole comes first: below what was met nothing is looked at again.
    for is_lazy in [false, true] {
        let is_next = |name: &str| still.lazy.contains(name) == is_lazy;
        let branches = still.branches.iter();
        for branch in branches.filter(|b| is_next(branch_refs::workspace_of(&b.dir))) {
            mark_branch(branch, is_lazy, &mut walk, &mut maybe)?;
        }
        for name in still.names.iter().filter(|name| is_next(name)) {
            mark_workspace(engine, name, still, &mut walk, &mut maybe)?;
        }
    }
    mark_rest(engine, times, &mut walk, &mut maybe)?;
    maybe.extend(tracked_commits(&engine.refs, None)?);
    Roots::walk_rest(&maybe, &mut walk)?;
    Ok(walk.finish()?)
}

/// Marks what no branch needs that there is, after these: what was deleted since the branches were counted is here.
fn mark_rest(
    engine: &Engine,
    (now, grace, but): (Time, Duration, &[String]),
    walk: &mut Walk<'_>,
    maybe: &mut Vec<CommitId>,
) -> Result<()> {
    maybe.extend(tombs::tombs(engine, now, grace)?);
    maybe.extend(timelines::mark_timelines(engine, now, but, walk)?);
    maybe.extend(base_commits(engine)?);
    Ok(())
}

/// Commits that stand for what was applied to bases, and all before them: the ground on which the
/// next apply and update merge.
fn base_commits(engine: &Engine) -> Result<HashSet<CommitId>> {
    let mut found = HashSet::new();
    for name in engine.refs.list(crate::verbs::apply::REF_DIR)? {
        let bytes = engine.refs.get(&name)?.unwrap_or_default();
        let newest = <[u8; 32]>::try_from(&bytes[..]).map(CommitId::from_bytes);
        let mut next: Vec<CommitId> = newest.into_iter().collect();
        while let Some(id) = next.pop() {
            if !found.insert(id) {
                continue;
            }
            // What is missing was collected before, or belongs to what has expired.
            if let Ok(commit) = engine.store.get_object::<objstore::Commit>(&id) {
                next.extend(commit.parents);
            }
        }
    }
    Ok(found)
}

/// Marks what one workspace needs, open or not, but for the branches that were looked at; `maybe`
/// gets what need not be there as a whole.
fn mark_workspace(
    engine: &Engine,
    name: &str,
    still: &Still<'_>,
    walk: &mut Walk<'_>,
    maybe: &mut Vec<CommitId>,
) -> Result<()> {
    let is_lazy = still.lazy.contains(name);
    loop {
        if let Some(w) = engine.opened(name) {
            let known = |b: &Arc<Branch>| still.branches.iter().any(|s| Arc::ptr_eq(s, b));
            for branch in w.views.all().iter().filter(|b| !known(b)) {
                mark_branch(branch, is_lazy, walk, maybe)?;
            }
            return Ok(());
        }
        let marked = mark_closed(engine, name, is_lazy, walk, maybe);
        // It may have been opened or deleted meanwhile, its files changing under the reader.
        if marked.is_ok() || !engine.names()?.iter().any(|n| n == name) {
            return Ok(());
        }
        if engine.opened(name).is_none() {
            return marked;
        }
    }
}

fn mark_closed(
    engine: &Engine,
    name: &str,
    is_lazy: bool,
    walk: &mut Walk<'_>,
    maybe: &mut Vec<CommitId>,
) -> Result<()> {
    let trees = look_at_trees(engine, name);
    for (_, dir) in branch_dirs(engine, name)? {
        if let Some(found) = inspect(&*engine.storage, &engine.store, &trees, &dir, engine.boot)? {
            let roots = Roots::of(&found.inner).lazy(is_lazy);
            roots.walk(walk)?;
            maybe.extend(roots.maybe);
            maybe.extend(found.sealed_commits);
        }
    }
    Ok(())
}

/// The tree files of a workspace that is not open.
pub(crate) fn look_at_trees(engine: &Engine, workspace: &str) -> Trees {
    Trees::look(engine.storage.clone(), branch_refs::trees_dir(workspace))
}

/// Names and directories of a workspace's branches on disk, `main` first.
pub(crate) fn branch_dirs(engine: &Engine, workspace: &str) -> Result<Vec<(String, String)>> {
    branch_refs::on_disk(&engine.refs, workspace)
}

fn note_gc(engine: &Engine, time: Time) -> Result<()> {
    let note = GcNote {
        version: NOTE_VERSION,
        time,
        bytes: engine.store.stats().bytes,
    };
    let bytes = crate::record::encode(&note);
    engine.garbage.store(false, Ordering::Relaxed);
    engine.refs.set(NOTE_REF, &bytes).map_err(Error::Store)
}

fn is_gc_worthwhile(engine: &Engine, now: Time) -> bool {
    let bytes = engine.store.stats().bytes;
    let (since, before) = match engine.last_gc() {
        // A clock that was put back must not keep gc away for ever.
        Some(note) => (now.sec.abs_diff(note.time.sec), note.bytes),
        None => (u64::MAX, 0),
    };
    let grown = bytes.saturating_sub(before);
    let worth = grown >= GROWTH_MIN.max(before / 4) || engine.garbage.load(Ordering::Relaxed);
    since >= PAUSE.as_secs() && (worth || cache::exceeds(engine, bytes, grown))
}

/// Marks what an open branch, or a snapshot, needs.
fn mark_branch(
    branch: &Arc<Branch>,
    is_lazy: bool,
    walk: &mut Walk<'_>,
    maybe: &mut Vec<CommitId>,
) -> Result<()> {
    let roots = Roots::of(&branch.lock()).lazy(is_lazy);
    // So that what expired stays so. What was deleted or closed meanwhile needs none.
    if !branch.read_only && !branch.is_closing() {
        branch.sync()?;
    }
    roots.walk(walk)?;
    maybe.extend(roots.maybe);
    Ok(())
}

fn planned(plan: &Plan) -> GcReport {
    GcReport {
        freed_bytes: plan.freed_bytes(),
        objects: planned_objects(plan),
        packs: plan.packs.len() as u64,
        copied_bytes: plan.packs.iter().map(|p| p.needed_bytes).sum(),
        ..done(plan, &Swept::default())
    }
}

fn planned_objects(plan: &Plan) -> u64 {
    let packs = plan.packs.iter().map(|p| p.unneeded);
    packs.sum::<u64>() + plan.holes.iter().map(|h| h.records).sum::<u64>()
}

fn done(plan: &Plan, swept: &Swept) -> GcReport {
    GcReport {
        freed_bytes: swept.freed_bytes,
        objects: swept.objects,
        packs: swept.packs,
        copied_bytes: swept.copied_bytes,
        store_bytes: plan.total_bytes,
        needed_bytes: plan.needed_bytes,
        left_bytes: plan.left_bytes,
        damaged_packs: swept.damaged_packs,
        ..GcReport::default()
    }
}
