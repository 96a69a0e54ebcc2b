//! `export`: a commit becomes a database.

use crate::calls;
use crate::commits;
use crate::error::{Error, Result};
use crate::history;
use crate::keys;
use crate::schema::{FORMAT, ROOT_INO};
use crate::steps::Order;
use crate::sums;
use crate::survey::Survey;
use crate::target::Target;
use crate::timelines;
use crate::walk::{Batch, walk};
use crate::write::Writer;
use engine::verbs;
use engine::{Cancel, Engine, Progress, Workspace};
use objstore::{Commit, CommitId, TreeId};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

/// Batches on their way from who reads to who writes.
const BATCHES: usize = 4;
/// Bytes that the rows of one name take beside its data, about.
const NAME_BYTES: u64 = 256;

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportRequest<'a> {
    /// The branch.
    pub branch: &'a str,
    /// What to export of it; `None`: what it shows now.
    pub reference: Option<&'a str>,
    /// File to write.
    pub file: &'a Path,
    /// Replace a file that is there.
    pub force: bool,
    /// All commits of the branch with what they changed, and the timelines of branches merged into it.
    pub history: bool,
}

/// What was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// The commit.
    pub commit: CommitId,
    /// Its root directory; `None` where that is empty.
    pub root: Option<TreeId>,
    /// Names, of files, directories and all else.
    pub names: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Names and targets of links that are not UTF-8, and are shown otherwise in AgentFS's tables.
    pub renamed: u64,
    /// Commits whose changes are in it.
    pub commits: u64,
    /// Bytes of the database.
    pub file_bytes: u64,
}

/// Writes a commit as a database. After `Ok` it is on stable storage; on error nothing is left. It can be
/// cancelled until the file gets its name.
pub fn export(
    engine: &Engine,
    workspace: &Workspace,
    request: &ExportRequest<'_>,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<ExportReport> {
    let done = write(engine, workspace, request, progress, cancel);
    done.map_err(|error| or_cancelled(error, cancel))
}

/// What fails because it is cancelled may say something else.
pub(crate) fn or_cancelled(error: Error, cancel: &Cancel) -> Error {
    match cancel.is_cancelled() {
        true => Error::Engine(engine::Error::Cancelled),
        false => error,
    }
}

fn write(
    engine: &Engine,
    workspace: &Workspace,
    request: &ExportRequest<'_>,
    progress: Progress<'_>,
    cancel: &Cancel,
) -> Result<ExportReport> {
    let target = Target::begin(request.file, request.force)?;
    let store = engine.objects();
    // What is exported may expire meanwhile.
    let _pin = store.pin();
    let id = verbs::commit_of(
        workspace,
        request.branch,
        request.reference,
        progress,
        cancel,
    )?;
    let commit: Commit = store.get_object(&id)?;
    let survey = Survey::of(store, commit.root, cancel)?;
    check_room(&target, request.file, &survey)?;
    let mut writer = Writer::begin(target.partial(), cancel)?;
    let (send, receive) = sync_channel::<Batch>(BATCHES);
    let is_canonical = std::thread::scope(|scope| {
        let walked = scope.spawn(|| walk(store, &commit, &survey, send));
        let taken = take_all(&mut writer, receive, survey.bytes, (progress, cancel));
        // Who writes has failed first where the walk was only stopped.
        match (taken, walked.join().unwrap_or(Err(Error::Stopped))) {
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(is_canonical)) => Ok(is_canonical),
        }
    })?;
    keys::write(&writer, store, &commit)?;
    commits::write_one(&writer, store, workspace, request.branch, id)?;
    let branch = request.branch;
    let mut order = request.history.then(Order::default);
    let last_call = calls::write(&writer, store, workspace, branch, order.as_mut())?;
    writer.info("last_call", &last_call.to_string())?;
    let mut commits = 0;
    if let Some(order) = &order {
        timelines::write(&writer, store, workspace, branch)?;
        let heard = (progress, cancel);
        commits = history::write(&writer, (store, workspace, branch), id, order, heard)?;
    }
    describe(&writer, workspace, request, id)?;
    if is_canonical {
        let root = commit.root.map(|id| id.to_string()).unwrap_or_default();
        writer.info("root", &root)?;
    }
    sums::write(&writer)?;
    let mut report = ExportReport {
        commit: id,
        root: commit.root,
        names: writer.names,
        bytes: writer.bytes,
        renamed: writer.renamed,
        commits,
        file_bytes: 0,
    };
    writer.finish()?;
    let meta = target.file().metadata();
    report.file_bytes = meta.map_err(Error::io(request.file))?.len();
    target.finish(cancel)?;
    Ok(report)
}

fn check_room(target: &Target, path: &Path, survey: &Survey) -> Result<()> {
    let need = survey.bytes.saturating_add(survey.names * NAME_BYTES);
    let free = target.free_bytes()?;
    if need <= free {
        return Ok(());
    }
    let path = path.to_owned();
    Err(Error::NoSpace { path, need, free })
}

fn take_all(
    writer: &mut Writer,
    batches: Receiver<Batch>,
    total: u64,
    (progress, cancel): (Progress<'_>, &Cancel),
) -> Result<()> {
    for batch in batches {
        cancel.check()?;
        writer.take(batch)?;
        progress(writer.bytes, total);
    }
    Ok(())
}

fn describe(
    writer: &Writer,
    workspace: &Workspace,
    request: &ExportRequest<'_>,
    id: CommitId,
) -> Result<()> {
    let facts = [
        ("format", FORMAT.to_string()),
        ("agentvfs", env!("CARGO_PKG_VERSION").to_owned()),
        ("workspace", workspace.name().to_owned()),
        ("branch", request.branch.to_owned()),
        ("commit", id.to_string()),
        ("root_ino", ROOT_INO.to_string()),
    ];
    facts
        .iter()
        .try_for_each(|(key, value)| writer.info(key, value))
}
