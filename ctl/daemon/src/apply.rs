//! Requests that go between a branch and its base.

use super::branches::{of_conflict, of_merge};
use super::mounts::Mounts;
use super::request::{Watch, of_change, on};
use agentvfs_client::protocol::{
    Apply, ApplyAnswer, BranchMergeAnswer, Bytes, Fault, PIECE_BYTES, Update,
};
use engine::verbs;
use engine::{ApplyReport, ApplyRequest, Error, UpdateRequest};

fn request(ask: &Apply) -> ApplyRequest {
    ApplyRequest {
        branch: ask.branch.clone(),
        dry_run: ask.dry_run,
        privileged: ask.privileged,
    }
}

/// Writes a branch's changes to the base.
pub fn apply(mounts: &Mounts, ask: &Apply, watch: &Watch<'_>) -> Result<ApplyAnswer, Fault> {
    let report = on(mounts, &ask.workspace, |w| {
        verbs::apply_unless(w, &request(ask), watch.progress, watch.cancel)
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
        verbs::apply_patch(w, &request(ask), watch.progress, watch.cancel, &mut send)
    })?;
    Ok(answer(report, left_out))
}

fn answer(report: ApplyReport, left_out: Vec<Vec<u8>>) -> ApplyAnswer {
    ApplyAnswer {
        status: report.outcome.word().to_owned(),
        changes: report.changes.into_iter().map(of_change).collect(),
        conflicts: report.conflicts.iter().map(of_conflict).collect(),
        left_out: left_out.into_iter().map(Bytes).collect(),
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
