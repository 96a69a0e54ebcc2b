//! Requests that concern the store as a whole.

use super::faults;
use super::mounts::{Mounts, Progress};
use super::request::Watch;
use crate::settings::{KEYS, set, show};
use agentvfs_client::protocol::{
    AffectedRow, BranchStats, Bytes, Config, ConfigAnswer, Fault, FsckAnswer, FsckFinding, Gc,
    GcAnswer, KindStats, OnlyRemote, Resources, StatsAnswer, WorkspaceStats,
};
use engine::{Affected, Engine, FsckReport, GcReport, GcRequest};
use std::sync::Arc;
use std::time::Duration;

/// How often it is asked whether gc is worthwhile.
const GC_ROUND: Duration = Duration::from_secs(60);

/// Collects what nothing needs now and then, in a thread of its own, until the process ends.
pub fn keep_house(engine: Arc<Engine>) {
    let spawned = std::thread::Builder::new()
        .name("housekeeping".into())
        .spawn(move || {
            loop {
                std::thread::sleep(GC_ROUND);
                match engine.gc_if_worthwhile() {
                    Ok(_) => {}
                    Err(engine::Error::Store(e)) if e.is_damage() => {
                        tracing::error!(
                            "gc does not run on a damaged store: {e}; see agentvfs fsck"
                        );
                    }
                    Err(error) => tracing::warn!(%error, "gc stopped"),
                }
            }
        });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread for gc: it runs only on request");
    }
}

/// Collects what nothing needs.
pub fn gc(mounts: &Mounts, ask: &Gc, progress: Progress<'_>) -> Result<GcAnswer, Fault> {
    let request = GcRequest {
        grace: ask.grace_ms.map(Duration::from_millis),
        dead_percent: None,
        dry_run: ask.dry_run,
    };
    let report = mounts.engine().gc(request, progress);
    report.map(of_gc).map_err(|e| faults::of_gc(&e))
}

/// Checks the store as it is, beside all work.
pub fn fsck(mounts: &Mounts, watch: &Watch<'_>) -> Result<FsckAnswer, Fault> {
    let report = mounts.engine().fsck_unless(watch.progress, watch.cancel);
    let report = report.map_err(|e| faults::of_gc(&e))?;
    Ok(fsck_answer(&report))
}

/// What a check found, as it is told.
pub fn fsck_answer(report: &FsckReport) -> FsckAnswer {
    let findings = report.findings.iter().map(|f| FsckFinding {
        place: f.place.clone(),
        what: f.what.clone(),
        affects: f.affects.iter().map(of_affected).collect(),
        affects_more: f.affects_more,
    });
    FsckAnswer {
        findings: findings.collect(),
        plan: report.steps.iter().map(ToString::to_string).collect(),
        repaired: Vec::new(),
        left: None,
        records: report.records,
        bytes: report.bytes,
        branches: report.branches,
        commits: report.commits,
        only_remote: of_only_remote(report.only_remote),
        unasked: report.unasked.clone(),
    }
}

fn of_only_remote(found: engine::OnlyRemote) -> OnlyRemote {
    OnlyRemote {
        objects: found.objects,
        bytes: found.bytes,
        unknown: found.unknown,
    }
}

fn of_affected(a: &Affected) -> AffectedRow {
    AffectedRow {
        workspace: a.workspace.clone(),
        branch: a.branch.clone(),
        commit: a.commit.map(|id| id.to_string()),
        labels: a.labels.clone(),
        path: Bytes(a.path.clone()),
    }
}

/// Adds up what takes the space.
pub fn stats(mounts: &Mounts) -> Result<StatsAnswer, Fault> {
    let f = mounts.engine().figures().map_err(|e| faults::of_gc(&e))?;
    Ok(StatsAnswer {
        used_bytes: f.used_bytes,
        free_bytes: f.free_bytes,
        quota: f.quota,
        packs: f.packs,
        pack_bytes: f.pack_bytes,
        objects: f.objects,
        needed_bytes: f.needed_bytes,
        unneeded_bytes: f.unneeded_bytes,
        journal_bytes: f.journal_bytes,
        state_bytes: f.state_bytes,
        logical_bytes: f.logical_bytes,
        chunk_bytes: f.chunk_bytes,
        chunk_stored_bytes: f.chunk_stored_bytes,
        meta_stored_bytes: f.meta_stored_bytes,
        workspaces: f.workspaces.into_iter().map(of_workspace).collect(),
        kinds: f.kinds.into_iter().map(of_kind).collect(),
    })
}

fn of_workspace(w: engine::WorkspaceFigures) -> WorkspaceStats {
    let branches = w.branches.into_iter().map(|b| BranchStats {
        name: b.name,
        files: b.files,
        bytes: b.bytes,
        commits: b.commits,
        keys: b.keys,
        automatic_commits: b.automatic,
        journal_bytes: b.journal_bytes,
        state_bytes: b.state_bytes,
    });
    WorkspaceStats {
        name: w.name,
        needed_bytes: w.needed_bytes,
        own_bytes: w.own_bytes,
        branches: branches.collect(),
    }
}

fn of_kind(k: engine::KindFigures) -> KindStats {
    KindStats {
        extension: k.extension,
        bytes: k.bytes,
        stored_bytes: k.stored_bytes,
    }
}

fn of_gc(r: GcReport) -> GcAnswer {
    GcAnswer {
        freed_bytes: r.freed_bytes,
        objects: r.objects,
        packs: r.packs,
        copied_bytes: r.copied_bytes,
        store_bytes: r.store_bytes,
        needed_bytes: r.needed_bytes,
        left_bytes: r.left_bytes,
        damaged_packs: r.damaged_packs,
        dropped_bytes: r.dropped_bytes,
        cache_bytes: r.cache_bytes,
        only_remote: of_only_remote(r.only_remote),
        unasked: r.unasked,
    }
}

/// What the daemon uses; the import began so long ago.
pub fn resources(mounts: &Mounts, import: Duration) -> Result<Resources, Fault> {
    let (used_bytes, free_bytes) = mounts.engine().disk().map_err(|e| faults::of_gc(&e))?;
    Ok(Resources {
        used_bytes,
        free_bytes,
        memory_bytes: memory_bytes(),
        import_ms: u64::try_from(import.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Bytes of this process that are in memory (proc(5)).
fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Changes settings, all or none, and tells all of them.
pub fn config(mounts: &Mounts, ask: &Config) -> Result<ConfigAnswer, Fault> {
    let engine = mounts.engine();
    let mut settings = engine.settings();
    for (key, value) in &ask.set {
        set(&mut settings, key, value).map_err(|why| Fault::failed("bad-setting", why))?;
    }
    if !ask.set.is_empty() {
        engine
            .set_settings(settings)
            .map_err(|e| faults::of_engine(&e, ""))?;
    }
    let shown = KEYS.iter().filter_map(|key| {
        let value = show(&settings, key)?;
        Some(((*key).to_owned(), value))
    });
    Ok(ConfigAnswer {
        settings: shown.collect(),
    })
}
