//! Requests that go between a branch and its base.

use super::branches::{of_conflict, of_merge};
use super::mounts::Mounts;
use super::request::{Watch, of_change, on};
use agentvfs_client::protocol::{
    Apply, ApplyAnswer, BranchMergeAnswer, Bytes, Fault, PIECE_BYTES, Update,
};
use agentvfs_client::runs::{self, RunRecord};
use engine::verbs;
use engine::{ApplyReport, ApplyRequest, Error, UpdateRequest};

fn request(mounts: &Mounts, ask: &Apply) -> ApplyRequest {
    ApplyRequest {
        branch: ask.branch.clone(),
        dry_run: ask.dry_run,
        privileged: ask.privileged,
        trust: ask.trust,
        in_use: is_run_in(mounts, ask),
    }
}

/// Whether a command in a sandbox may be writing in the branch. If that cannot be told, it may.
fn is_run_in(mounts: &Mounts, ask: &Apply) -> bool {
    let branches = on(mounts, &ask.workspace, |w| Ok(verbs::list_branches(w)));
    let names: Vec<String> =
        branches.map_or(Vec::new(), |all| all.into_iter().map(|b| b.name).collect());
    match runs::alive(mounts.home()) {
        Ok(alive) => {
            // A branch that there is not has another name by now.
            let is_here = |run: &RunRecord| {
                run.workspace == ask.workspace
                    && (run.branch == ask.branch || !names.contains(&run.branch))
            };
            alive.iter().any(is_here)
        }
        Err(error) => {
            tracing::warn!("cannot look for runs: {error}");
            true
        }
    }
}

/// Writes a branch's changes to the base.
pub fn apply(mounts: &Mounts, ask: &Apply, watch: &Watch<'_>) -> Result<ApplyAnswer, Fault> {
    let report = on(mounts, &ask.workspace, |w| {
        verbs::apply_unless(w, &request(mounts, ask), watch.progress, watch.cancel)
    })?;
    let left_alone = report.left_alone.clone();
    Ok(answer(report, left_alone))
}

/// Sends what an apply would change as a patch.
pub fn patch(mounts: &Mounts, ask: &Apply, watch: &Watch<'_>) -> Result<ApplyAnswer, Fault> {
    let (report, left_out) = on(mounts, &ask.workspace, |w| {
        let mut send = |bytes: &[u8]| match bytes.chunks(PIECE_BYTES).all(watch.data) {
            true => Ok(()),
            false => Err(Error::Closing),
        };
        verbs::apply_patch(
            w,
            &request(mounts, ask),
            watch.progress,
            watch.cancel,
            &mut send,
        )
    })?;
    Ok(answer(report, left_out))
}

fn answer(report: ApplyReport, left_out: Vec<Vec<u8>>) -> ApplyAnswer {
    ApplyAnswer {
        status: report.outcome.word().to_owned(),
        changes: report.changes.into_iter().map(of_change).collect(),
        conflicts: report.conflicts.iter().map(of_conflict).collect(),
        left_out: left_out.into_iter().map(Bytes).collect(),
        untrusted: report.untrusted.into_iter().map(Bytes).collect(),
        before: report.before.to_string(),
    }
}

/// Merges what was changed in the base into a branch.
pub fn update(
    mounts: &Mounts,
    ask: &Update,
    watch: &Watch<'_>,
) -> Result<BranchMergeAnswer, Fault> {
    let request = UpdateRequest {
        branch: ask.branch.clone(),
        keep_conflicts: ask.keep_conflicts,
        dry_run: ask.dry_run,
    };
    let report = on(mounts, &ask.workspace, |w| {
        verbs::update_unless(w, &request, watch.progress, watch.cancel)
    })?;
    Ok(of_merge(report))
}
