//! Requests that turn workspaces into single files and such files into workspaces.

use super::faults;
use super::mounts::Mounts;
use super::request::Watch;
use ::export::{Error, ExportRequest, ImportRequest, Imported};
use agentvfs_client::protocol::{
    Bytes, ExportAnswer, ExportFile, Fault, ImportAnswer, ImportFile, SkippedParts, code,
};
use agentvfs_client::quote::shown;
use engine::verbs;
use engine::{Calls, CommitId, CommitKind, MAIN, Workspace};
use std::os::unix::ffi::OsStrExt;

/// Writes a commit as a database.
pub fn export(mounts: &Mounts, ask: &ExportFile, watch: &Watch<'_>) -> Result<ExportAnswer, Fault> {
    let name = &ask.workspace;
    check_absolute(&ask.file)?;
    mounts.check_outside(ask.file.path())?;
    let workspace = mounts.to_read(name)?;
    let request = ExportRequest {
        branch: &ask.branch,
        reference: ask.reference.as_deref(),
        file: ask.file.path(),
        force: ask.force,
        history: ask.history,
    };
    let report = ::export::export(
        mounts.engine(),
        &workspace,
        &request,
        watch.progress,
        watch.cancel,
    );
    let report = report.map_err(|e| of_export(&e, name))?;
    Ok(ExportAnswer {
        commit: report.commit.to_string(),
        tree: report.root.map(|id| id.to_string()),
        names: report.names,
        bytes: report.bytes,
        renamed: report.renamed,
        commits: report.commits,
        file_bytes: report.file_bytes,
    })
}

/// A relative path would count from wherever the daemon is.
fn check_absolute(file: &Bytes) -> Result<(), Fault> {
    if file.path().is_absolute() {
        return Ok(());
    }
    let why = format!("file is {}, which is not an absolute path", shown(&file.0));
    Err(Fault::protocol(code::INVALID_PARAMS, why))
}

/// Makes a workspace, or a branch, of a database.
pub fn import(mounts: &Mounts, ask: &ImportFile, watch: &Watch<'_>) -> Result<ImportAnswer, Fault> {
    let name = &ask.workspace;
    let request = ImportRequest {
        file: ask.file.path(),
        base: ask.base.as_ref().map(Bytes::path),
        sparse: ask.sparse,
        skip_invalid: ask.skip_invalid,
        kind: match ask.branch {
            Some(_) => CommitKind::Asked,
            None => CommitKind::Start,
        },
    };
    let engine = mounts.engine();
    let heard = (watch.progress, watch.cancel);
    let done = match &ask.branch {
        None => {
            mounts.check_new(name)?;
            let make = |id, calls: Calls<'_>| {
                let made = mounts.make_of_commit(name, (id, None), calls);
                made.map_err(Error::Engine)
            };
            ::export::import(engine, &request, &|_| false, heard, make)
        }
        Some(branch) => {
            let workspace = mounts.to_read(name)?;
            let taken = verbs::list_branches(&workspace)
                .iter()
                .any(|b| b.name == *branch);
            if taken {
                let taken = engine::Error::BranchExists(branch.clone());
                return Err(faults::of_engine(&taken, name));
            }
            let known = |id| knows(&workspace, id);
            let make = |id, calls: Calls<'_>| {
                let made = verbs::create_branch_from(&workspace, branch, id, calls);
                made.map(|_| ()).map_err(Error::Engine)
            };
            ::export::import(engine, &request, &known, heard, make)
        }
    };
    let (imported, ()) = done.map_err(|e| of_export(&e, name))?;
    let branch = ask.branch.as_deref().unwrap_or(MAIN);
    Ok(answer(&imported, branch))
}

fn answer(imported: &Imported, branch: &str) -> ImportAnswer {
    let words = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    let (keys, calls) = (&imported.skipped_keys, &imported.skipped_calls);
    ImportAnswer {
        branch: branch.to_owned(),
        commit: imported.commit.to_string(),
        tree: imported.root.map(|id| id.to_string()),
        names: imported.names,
        bytes: imported.bytes,
        content: imported.compared.word().to_owned(),
        changed: words(&imported.compared.changed),
        unchecked: words(&imported.compared.unchecked),
        skipped: SkippedParts {
            keys_count: keys.count,
            keys: keys.named.clone(),
            calls_count: calls.count,
            calls: calls.named.clone(),
        },
    }
}

/// Whether a branch of the workspace has a commit.
fn knows(workspace: &Workspace, id: CommitId) -> bool {
    verbs::list_branches(workspace).iter().any(|branch| {
        let log = verbs::log(workspace, &branch.name, true);
        log.is_ok_and(|log| log.iter().any(|entry| entry.commit == Some(id)))
    })
}

/// An error of an export or import as it is told.
fn of_export(error: &Error, name: &str) -> Fault {
    let told = |kind, hint: String| Fault::failed(kind, error.to_string()).hint(hint);
    match error {
        Error::Engine(e) => faults::of_engine(e, name),
        Error::Exists(path) => told(
            "file-exists",
            format!(
                "--force replaces it; or use another name than {}",
                shown(path.as_os_str().as_bytes())
            ),
        ),
        Error::Busy(_) => told("busy", "wait until it ends, or use another name".to_owned()),
        Error::BadTarget(_) => told("bad-target", "name the file to write".to_owned()),
        Error::NoSpace { .. } => told(
            "no-space",
            "free space there, or write to another file system".to_owned(),
        ),
        Error::Io { .. } | Error::Write { .. } => told(
            "io",
            "check permissions and free space of the file's directory".to_owned(),
        ),
        Error::Refused { hint, .. } => told(
            "refused",
            hint.unwrap_or("nothing was imported; export the database again at its source")
                .to_owned(),
        ),
        Error::NeedsBase { .. } => told(
            "needs-base",
            "name that directory with --base DIR".to_owned(),
        ),
        Error::NoOverlay(_) => told("no-overlay", "leave out --base".to_owned()),
        _ => told("stopping", "try again".to_owned()),
    }
}
