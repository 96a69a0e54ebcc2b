//! Requests about branches.

use super::moments::{moment, time};
use super::mounts::{Mounts, Progress};
use super::request::{Watch, bare, of_change, on};
use super::{faults, holders};
use agentvfs_client::protocol::*;
use engine::verbs;
use engine::{MAIN, MergeRequest, Resolution};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Where a branch is in a mount.
fn place(mountpoint: &Path, branch: &str) -> PathBuf {
    if branch == MAIN {
        mountpoint.to_owned()
    } else {
        below(mountpoint, branch)
    }
}

/// Where a branch is below a place that has the directory of branches.
pub fn below(place: &Path, branch: &str) -> PathBuf {
    place.join(".agentvfs/branches").join(branch)
}

fn mountpoint(mounts: &Mounts, workspace: &str) -> Result<PathBuf, Fault> {
    let place = mounts.mounted_at(workspace);
    place.ok_or_else(|| faults::not_running(workspace))
}

/// Makes a branch; from inside the sandbox of a branch, if one is given.
pub fn create(
    mounts: &Mounts,
    ask: &BranchCreate,
    sandbox: Option<&SandboxOf>,
) -> Result<BranchRow, Fault> {
    let of = (ask.branch.as_str(), ask.from.as_deref());
    let made = on(mounts, &ask.workspace, |w| match sandbox {
        Some(sandbox) => {
            let sandbox = (sandbox.branch.as_str(), time(sandbox.created));
            verbs::create_branch_in_sandbox(w, &ask.name, of, sandbox)
        }
        None => verbs::create_branch(w, &ask.name, of.0, of.1),
    })?;
    let rows = rows(mounts, &ask.workspace)?.branches;
    let row = rows.into_iter().find(|row| row.name == made.name);
    let mut row =
        row.ok_or_else(|| Fault::failed("no-such-branch", "it was deleted in the meantime"))?;
    row.commit = made.commit.map(|id| id.to_string());
    Ok(row)
}

/// The branches of a workspace.
pub fn list(mounts: &Mounts, ask: &BranchList) -> Result<BranchListAnswer, Fault> {
    let mut answer = rows(mounts, &ask.workspace)?;
    if ask.standing {
        let all = on(mounts, &ask.workspace, |w| Ok(verbs::branch_standings(w)))?;
        let mut by_name: HashMap<String, engine::Standing> =
            all.into_iter().map(|s| (s.name.clone(), s)).collect();
        for row in &mut answer.branches {
            row.standing = by_name.remove(&row.name).map(of_standing);
        }
    }
    Ok(answer)
}

fn of_standing(s: engine::Standing) -> BranchStanding {
    BranchStanding {
        made_of: s.made_of,
        ahead: s.ahead,
        behind: s.behind,
        changed: moment(s.changed),
        conflicts: s.conflicts,
        digits: s.digits,
    }
}

fn rows(mounts: &Mounts, workspace: &str) -> Result<BranchListAnswer, Fault> {
    let all = on(mounts, workspace, |w| Ok(verbs::list_branches(w)))?;
    let mountpoint = mountpoint(mounts, workspace)?;
    let row = |b: engine::BranchInfo| BranchRow {
        path: Bytes::from(place(&mountpoint, &b.name).as_path()),
        name: b.name,
        commit: b.head.map(|id| id.to_string()),
        created: moment(b.created),
        standing: None,
    };
    Ok(BranchListAnswer {
        branches: all.into_iter().map(row).collect(),
    })
}

/// Deletes a branch that nobody uses.
pub fn delete(
    mounts: &Mounts,
    ask: &OnBranch,
    progress: Progress<'_>,
) -> Result<BranchDeleteAnswer, Fault> {
    let mut closing = None;
    if ask.branch != MAIN {
        let sessions = mounts.sessions();
        closing = Some(sessions.close_branch(&ask.workspace, &ask.branch)?);
        let at = place(&mountpoint(mounts, &ask.workspace)?, &ask.branch);
        let users = holders::below(&at, mounts.device(&ask.workspace));
        if !users.is_empty() {
            let pids: Vec<String> = users.iter().map(ToString::to_string).collect();
            let why = format!(
                "branch {} is used by processes {}",
                ask.branch,
                pids.join(", ")
            );
            return Err(Fault::failed("branch-in-use", why)
                .hint("wait until they end or leave the branch, then try again"));
        }
    }
    let gone = on(mounts, &ask.workspace, |w| {
        verbs::delete_branch(w, &ask.branch, progress)
    })?;
    drop(closing);
    Ok(BranchDeleteAnswer {
        commit: gone.last.to_string(),
        only_here: gone.only_here,
    })
}

/// Gives a branch another name.
pub fn rename(mounts: &Mounts, ask: &BranchRename) -> Result<BranchRow, Fault> {
    let names = (ask.branch.as_str(), ask.name.as_str());
    // Asked for before, as bringing a workspace back looks at the sessions.
    let workspace = mounts.workspace(&ask.workspace)?;
    let rename = || {
        let done = verbs::rename_branch(&workspace, names.0, names.1);
        done.map_err(|e| faults::of_engine(&e, &ask.workspace))
    };
    mounts
        .sessions()
        .rename_branch(&ask.workspace, names, rename)?;
    let rows = rows(mounts, &ask.workspace)?.branches;
    let row = rows.into_iter().find(|row| row.name == ask.name);
    row.ok_or_else(|| Fault::failed("no-such-branch", "it was deleted in the meantime"))
}

/// Merges a branch into another.
pub fn merge(
    mounts: &Mounts,
    ask: &BranchMerge,
    watch: &Watch<'_>,
) -> Result<BranchMergeAnswer, Fault> {
    let request = MergeRequest {
        from: ask.from.clone(),
        into: ask.into.clone(),
        keep_conflicts: ask.keep_conflicts,
        dry_run: ask.dry_run,
        label: ask.label.clone(),
        message: ask.message.clone(),
    };
    let report = on(mounts, &ask.workspace, |w| match ask.from.contains('/') {
        true => verbs::remotes::merge_tracking(w, &request, watch.progress, watch.cancel),
        false => verbs::merge_branch_unless(w, &request, watch.progress, watch.cancel),
    })?;
    Ok(of_merge(report))
}

/// What a merge did, as it is told.
pub fn of_merge(report: engine::MergeReport) -> BranchMergeAnswer {
    BranchMergeAnswer {
        status: report.outcome.word().to_owned(),
        commit: report.commit.map(|id| id.to_string()),
        conflicts: report.conflicts.iter().map(of_conflict).collect(),
        files_changed: report.files_changed,
        changes: report.changes.into_iter().map(of_change).collect(),
    }
}

/// A conflict, as it is told.
pub fn of_conflict(c: &engine::merge::Conflict) -> ConflictRow {
    ConflictRow {
        path: Bytes(c.path.clone()),
        kind: c.kind.word().to_owned(),
    }
}

/// Conflicts that are not settled.
pub fn conflicts(mounts: &Mounts, ask: &OnBranch) -> Result<ConflictsAnswer, Fault> {
    let all = on(mounts, &ask.workspace, |w| verbs::conflicts(w, &ask.branch))?;
    Ok(ConflictsAnswer {
        conflicts: all.iter().map(of_conflict).collect(),
    })
}

/// Settles a conflict.
pub fn resolve(mounts: &Mounts, ask: &BranchResolve) -> Result<BranchResolveAnswer, Fault> {
    let how = match ask.by {
        Version::Ours => Resolution::Ours,
        Version::Theirs => Resolution::Theirs,
        Version::Base => Resolution::Base,
        Version::Working => Resolution::Working,
    };
    let (left, back) = on(mounts, &ask.workspace, |w| {
        verbs::resolve_conflict(w, &ask.branch, &ask.path.0, how)
    })?;
    Ok(BranchResolveAnswer {
        left: left as u64,
        files_changed: back.map_or(0, |back| back.files_changed),
    })
}

/// What differs between two branches.
pub fn diff(mounts: &Mounts, ask: &BranchDiff) -> Result<DiffAnswer, Fault> {
    let changes = on(mounts, &ask.workspace, |w| {
        verbs::diff_branches(w, &ask.from, &ask.to, &bare(&ask.paths))
    })?;
    Ok(DiffAnswer {
        changes: changes.into_iter().map(of_change).collect(),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_branch_that_every_workspace_has_is_the_engines() {
        assert_eq!(agentvfs_client::protocol::MAIN, engine::MAIN);
    }
}
