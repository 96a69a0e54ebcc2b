//! From a request to the engine and back.
//!
//! No decisions here: parameters become the engine's types, its results become the wire's.

use super::moments::{moment, time};
use super::mounts::{Mounts, Progress, base_trouble, of_import};
use super::request::{Watch, bare, looking_into, of_change, on, side};
use super::sessions::requests as sessions;
use super::{
    apply, branches, events, exchange, files, holders, kv, open_files, policy, remotes, store,
    timeline,
};
use agentvfs_client::protocol::*;
use engine::verbs;
use engine::{AutomaticRequest, CheckpointRequest, DiffSide, Error};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Carries out one request.
pub fn dispatch(mounts: &Mounts, call: &Call, watch: &Watch<'_>) -> Result<Value, Fault> {
    let (progress, open) = (watch.progress, watch.handles);
    // Records of mounts and of sessions are written on a full disk too.
    mounts.engine().make_room();
    match call {
        Call::Hello(_) => hello(watch.in_flight),
        Call::List(_) => reply(&ListAnswer {
            workspaces: mounts.list()?,
        }),
        Call::Init(ask) => reply(&mounts.init(ask)?),
        Call::Start(ask) => reply(&mounts.start(ask)?),
        Call::Stop(ask) => reply(&mounts.stop(ask, progress)?),
        Call::Status(ask) => reply(&status(mounts, ask)?),
        Call::Delete(ask) => mounts.delete(ask).and_then(|()| reply(&Nothing {})),
        Call::Checkpoint(ask) => reply(&checkpoint(mounts, ask, progress)?),
        Call::Rollback(ask) => reply(&rollback(mounts, ask, progress)?),
        Call::RollbackPlan(ask) => reply(&plan(mounts, ask)?),
        Call::Undo(ask) => on(mounts, &ask.workspace, |w| {
            let over_later = ask.over_later_changes;
            reply_back(verbs::undo_with(w, &ask.branch, over_later, progress)?)
        }),
        Call::Redo(ask) => on(mounts, &ask.workspace, |w| {
            reply_back(verbs::redo_with(w, &ask.branch, progress)?)
        }),
        Call::Log(ask) => reply(&log(mounts, ask)?),
        Call::Diff(ask) => reply(&diff(mounts, ask, watch)?),
        Call::BranchCreate(ask) => reply(&branches::create(mounts, ask, None)?),
        Call::BranchList(ask) => reply(&branches::list(mounts, ask)?),
        Call::BranchDelete(ask) => reply(&branches::delete(mounts, ask, progress)?),
        Call::BranchRename(ask) => reply(&branches::rename(mounts, ask)?),
        Call::BranchMerge(ask) => reply(&branches::merge(mounts, ask, watch)?),
        Call::BranchConflicts(ask) => reply(&branches::conflicts(mounts, ask)?),
        Call::BranchResolve(ask) => reply(&branches::resolve(mounts, ask)?),
        Call::BranchDiff(ask) => reply(&branches::diff(mounts, ask)?),
        Call::Apply(ask) => reply(&apply::apply(mounts, ask, watch)?),
        Call::ApplyPatch(ask) => reply(&apply::patch(mounts, ask, watch)?),
        Call::Update(ask) => reply(&apply::update(mounts, ask, watch)?),
        Call::HasRef(ask) => reply(&has_ref(mounts, ask)?),
        Call::HandOver(_) => reply(&mounts.hand_over()?),
        Call::Patch(ask) => reply(&files::patch(mounts, ask, watch)?),
        Call::FsStat(ask) => reply(&files::stat(mounts, ask)?),
        Call::FsList(ask) => reply(&files::list(mounts, ask)?),
        Call::FsRead(ask) => reply(&files::read(mounts, ask)?),
        Call::FsWrite(ask) => reply(&files::write(mounts, ask)?),
        Call::FsMkdir(ask) => files::mkdir(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsRemove(ask) => files::remove(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsRename(ask) => files::rename(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsCopy(ask) => reply(&files::copy(mounts, ask)?),
        Call::FsSymlink(ask) => files::symlink(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsTruncate(ask) => files::truncate(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsChmod(ask) => files::chmod(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::FsStatfs(ask) => reply(&files::statfs(mounts, ask)?),
        Call::FsOpen(ask) => reply(&open_files::open(mounts, open, ask)?),
        Call::FsPread(ask) => reply(&open_files::read(mounts, open, ask)?),
        Call::FsPwrite(ask) => reply(&open_files::write(mounts, open, ask)?),
        Call::FsFtruncate(ask) => {
            open_files::resize(mounts, open, ask).and_then(|()| reply(&Nothing {}))
        }
        Call::FsFstat(ask) => reply(&open_files::stat(mounts, open, ask)?),
        Call::FsFsync(ask) => open_files::sync(mounts, open, ask).and_then(|()| reply(&Nothing {})),
        Call::FsClose(ask) => open.close(ask.handle).and_then(|()| reply(&Nothing {})),
        Call::Sync(ask) => on(mounts, &ask.workspace, |w| verbs::sync(w, &ask.branch))
            .and_then(|()| reply(&Nothing {})),
        Call::Fsck(_) => reply(&store::fsck(mounts, watch)?),
        Call::Stats(_) => reply(&store::stats(mounts)?),
        Call::Gc(ask) => reply(&store::gc(mounts, ask, progress)?),
        Call::Config(ask) => reply(&store::config(mounts, ask)?),
        Call::SessionRegister(ask) => reply(&sessions::register(mounts, ask)?),
        Call::SessionList(ask) => reply(&sessions::list(mounts, ask)?),
        Call::SessionUnregister(ask) => reply(&sessions::unregister(mounts, ask)?),
        Call::RunBegin(ask) => reply(&run_begin(mounts, ask, watch)?),
        Call::RunWroteNothing(ask) => on(mounts, &ask.workspace, |w| {
            verbs::run_wrote_nothing(w, &ask.branch, &ask.run)
        })
        .and_then(|()| reply(&Nothing {})),
        Call::Export(ask) => reply(&exchange::export(mounts, ask, watch)?),
        Call::Import(ask) => reply(&exchange::import(mounts, ask, watch)?),
        Call::KvSet(ask) => reply(&kv::set(mounts, ask)?),
        Call::KvGet(ask) => reply(&kv::get(mounts, ask)?),
        Call::KvList(ask) => reply(&kv::list(mounts, ask)?),
        Call::KvDelete(ask) => reply(&kv::delete(mounts, ask)?),
        Call::ToolStart(ask) => reply(&timeline::start(mounts, ask, watch.caller)?),
        Call::ToolFinish(ask) => reply(&timeline::finish(mounts, ask, None)?),
        Call::ToolGiveUp(ask) => reply(&timeline::give_up(mounts, ask, None)?),
        Call::ToolRecord(ask) => reply(&timeline::record(mounts, ask)?),
        Call::ToolShow(ask) => reply(&timeline::show(mounts, ask)?),
        Call::ToolUndo(ask) => reply(&timeline::undo(mounts, ask)?),
        Call::Timeline(ask) => reply(&timeline::list(mounts, ask)?),
        Call::TimelineStats(ask) => reply(&timeline::stats(mounts, ask)?),
        Call::TimelineVerify(ask) => reply(&timeline::verify(mounts, ask)?),
        Call::Blame(ask) => reply(&timeline::blame(mounts, ask)?),
        Call::Subscribe(ask) => reply(&events::subscribe(mounts, ask, watch, None)?),
        Call::PolicySet(ask) => reply(&policy::set(mounts, ask)?),
        Call::PolicyShow(ask) => reply(&policy::show(mounts, ask)?),
        Call::JudgeTool(ask) => reply(&policy::judge_tool(mounts, ask)?),
        Call::RemoteAdd(ask) => reply(&remotes::add(mounts, ask)?),
        Call::RemoteList(ask) => reply(&remotes::list(mounts, ask)?),
        Call::RemoteRemove(ask) => remotes::remove(mounts, ask).and_then(|()| reply(&Nothing {})),
        Call::RemotePush(ask) => reply(&remotes::push(mounts, ask, watch)?),
        Call::RemoteFetch(ask) => reply(&remotes::fetch(mounts, ask, watch)?),
        Call::RemoteClone(ask) => reply(&remotes::clone(mounts, ask, watch)?),
        Call::RemotePrefetch(ask) => reply(&remotes::prefetch(mounts, ask, watch)?),
        Call::RemoteGc(ask) => reply(&remotes::gc(mounts, ask, watch)?),
    }
}

/// Whether a request wants to hear of progress.
pub fn wants_progress(call: &Call) -> bool {
    match call {
        Call::Checkpoint(ask) => ask.progress,
        Call::Stop(ask) => ask.progress,
        Call::BranchMerge(ask) => ask.progress,
        Call::Apply(ask) | Call::ApplyPatch(ask) => ask.progress,
        Call::Update(ask) => ask.progress,
        Call::Gc(ask) => ask.progress,
        Call::Export(ask) => ask.progress,
        Call::Import(ask) => ask.progress,
        Call::RemotePush(ask) => ask.progress,
        Call::RemoteFetch(ask) => ask.progress,
        Call::RemoteClone(ask) => ask.progress,
        Call::RemotePrefetch(ask) => ask.progress,
        Call::RemoteGc(ask) => ask.progress,
        _ => false,
    }
}

fn reply(answer: &impl Serialize) -> Result<Value, Fault> {
    serde_json::to_value(answer)
        .map_err(|e| Fault::failed("failed", format!("cannot encode the answer: {e}")))
}

/// The answer to a hello of the right version.
fn hello(in_flight: u32) -> Result<Value, Fault> {
    reply(&HelloAnswer {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: agentvfs_client::identity::build().to_owned(),
        pid: std::process::id(),
        in_flight,
    })
}

fn reply_back(back: engine::RolledBack) -> Result<Value, Error> {
    Ok(serde_json::to_value(of_rollback(&back)).unwrap_or_default())
}

fn of_rollback(back: &engine::RolledBack) -> RollbackAnswer {
    RollbackAnswer {
        commit: back.commit.map(|id| id.to_string()),
        replaced: back.replaced.map(|id| id.to_string()),
        files_changed: back.files_changed,
    }
}

fn checkpoint(
    mounts: &Mounts,
    ask: &Checkpoint,
    progress: Progress<'_>,
) -> Result<CheckpointAnswer, Fault> {
    let request = CheckpointRequest {
        label: ask.label.clone(),
        message: ask.message.clone(),
        meta: ask.meta.clone(),
        wait: ask.wait,
    };
    let wrong = match ask.automatic {
        true if ask.label.is_some() => Some("an automatic commit has no label"),
        false if ask.unlike.is_some() => Some("unlike is for automatic commits"),
        false if ask.joins.is_some() => Some("joins is for automatic commits"),
        _ => None,
    };
    if let Some(why) = wrong {
        return Err(Fault::protocol(code::INVALID_PARAMS, why));
    }
    let made = on(mounts, &ask.workspace, |w| match ask.automatic {
        true => {
            let request = AutomaticRequest {
                commit: request,
                unlike: ask.unlike.clone(),
                joins: ask.joins.clone(),
            };
            verbs::commit_automatically(w, &ask.branch, request, progress)
        }
        false => verbs::checkpoint(w, &ask.branch, request, progress).map(Some),
    })?;
    let Some(made) = made else {
        return Ok(CheckpointAnswer::default());
    };
    Ok(CheckpointAnswer {
        commit: made.commit.map(|id| id.to_string()),
        files_changed: made.files_changed,
        bytes_changed: made.bytes_changed,
        moved_from: made.moved_from.map(|id| id.to_string()),
        new_commit: made.new_commit,
        unresolved: made.unresolved as u64,
        unreadable: made.unreadable.into_iter().map(Bytes).collect(),
    })
}

fn run_begin(mounts: &Mounts, ask: &RunBegin, watch: &Watch<'_>) -> Result<RunBeginAnswer, Fault> {
    let made_of = on(mounts, &ask.workspace, |w| {
        verbs::run_begins(w, &ask.branch, &ask.run, ask.made_of.as_deref())
    })?;
    if let Some(process) = watch.caller {
        mounts.run_begins(&ask.workspace, &ask.branch, process, watch.is_inside);
    }
    Ok(RunBeginAnswer { made_of })
}

fn target(target: &Target) -> engine::Target {
    match target {
        Target::Head => engine::Target::Head,
        Target::Ref(name) => engine::Target::Ref(name.clone()),
        Target::Before(moment) => engine::Target::Before(time(*moment)),
        Target::Meta(key, value) => engine::Target::Meta {
            key: key.clone(),
            value: value.clone(),
        },
    }
}

fn rollback(
    mounts: &Mounts,
    ask: &Rollback,
    progress: Progress<'_>,
) -> Result<RollbackAnswer, Fault> {
    let to = target(&ask.target);
    let paths = bare(&ask.paths);
    let back = on(mounts, &ask.workspace, |w| match paths.as_slice() {
        [] => verbs::rollback_with(w, &ask.branch, &to, ask.keep_kv, progress),
        some => verbs::restore_with(w, &ask.branch, &to, some, progress),
    })?;
    Ok(of_rollback(&back))
}

fn plan(mounts: &Mounts, ask: &Rollback) -> Result<PlanAnswer, Fault> {
    let to = target(&ask.target);
    let paths = bare(&ask.paths);
    let changes = on(mounts, &ask.workspace, |w| match paths.as_slice() {
        [] => verbs::rollback_plan(w, &ask.branch, &to),
        some => verbs::restore_plan(w, &ask.branch, &to, some),
    })?;
    let changes = changes.into_iter().map(of_change).collect::<Vec<_>>();
    let place = mounts.mounted_at(&ask.workspace);
    let holders = place
        .map(|place| holders::of_changed(&place, &changes))
        .unwrap_or_default();
    let keys_changed = match ask.keep_kv || !ask.paths.is_empty() {
        true => 0,
        false => on(mounts, &ask.workspace, |w| {
            verbs::rollback_keys(w, &ask.branch, &to)
        })?,
    };
    Ok(PlanAnswer {
        changes,
        holders,
        keys_changed,
    })
}

fn log(mounts: &Mounts, ask: &Log) -> Result<LogAnswer, Fault> {
    let page = engine::LogPage {
        limit: ask.limit,
        after: ask.after.map(|after| engine::LogCursor {
            number: after.number,
            time: time(after.time),
        }),
    };
    let is_of_remote = ask.branch.contains('/');
    let entries = looking_into(mounts, &ask.workspace, |w| match is_of_remote {
        true => verbs::remotes::remote_log(w, &ask.branch, ask.all, page),
        false => verbs::page_of_log(w, &ask.branch, ask.all, page),
    })?;
    let digits = match ask.digits {
        true => Some(looking_into(mounts, &ask.workspace, |w| {
            let shown = entries.iter().filter_map(|entry| entry.commit);
            let of = if is_of_remote { MAIN } else { &ask.branch };
            verbs::unique_digits(w, of, shown)
        })?),
        false => None,
    };
    let row = |entry: engine::LogEntry| {
        let id = entry.commit;
        let digits = digits.as_ref().and_then(|digits| Some(digits.of(&id?)));
        LogRow {
            number: ask.limit.map(|_| entry.number),
            digits,
            ..of_entry(entry)
        }
    };
    let total = match ask.count {
        true => Some(looking_into(
            mounts,
            &ask.workspace,
            |w| match is_of_remote {
                true => verbs::remotes::count_of_remote_log(w, &ask.branch, ask.all),
                false => verbs::count_of_log(w, &ask.branch, ask.all),
            },
        )?),
        false => None,
    };
    Ok(LogAnswer {
        commits: entries.into_iter().map(row).collect(),
        total,
    })
}

fn of_entry(entry: engine::LogEntry) -> LogRow {
    LogRow {
        number: None,
        commit: entry.commit.map(|id| id.to_string()),
        time: moment(entry.time),
        labels: entry.labels,
        message: entry.message,
        meta: entry.meta,
        automatic: entry.automatic,
        head: entry.is_head,
        parents: entry.parents.iter().map(ToString::to_string).collect(),
        kind: entry.kind.to_owned(),
        digits: None,
    }
}

fn diff(mounts: &Mounts, ask: &Diff, watch: &Watch<'_>) -> Result<DiffAnswer, Fault> {
    let (from, to) = (side(&ask.from), side(&ask.to));
    if ask.stat {
        return files::counted(mounts, ask, watch);
    }
    let changes = looking_into(mounts, &ask.workspace, |w| {
        verbs::diff(w, &ask.branch, &from, &to, &bare(&ask.paths))
    })?;
    Ok(DiffAnswer {
        changes: changes.into_iter().map(of_change).collect(),
    })
}

/// A ref names something where it can be compared with itself.
fn has_ref(mounts: &Mounts, ask: &HasRef) -> Result<HasRefAnswer, Fault> {
    let itself = DiffSide::Ref(ask.name.clone());
    let workspace = mounts.to_read(&ask.workspace)?;
    let compared = verbs::diff(&workspace, &ask.branch, &itself, &itself, &[]);
    Ok(HasRefAnswer {
        exists: compared.is_ok(),
    })
}

fn status(mounts: &Mounts, ask: &StatusOf) -> Result<StatusAnswer, Fault> {
    let info = mounts.get(&ask.workspace)?;
    let mut answer = StatusAnswer {
        info,
        branch: ask.branch.clone(),
        pid: std::process::id(),
        healthy: false,
        troubles: Vec::new(),
        facts: None,
        resources: None,
    };
    match answer.info.status {
        WorkspaceStatus::Started => {
            let mut status = on(mounts, &ask.workspace, |w| verbs::status(w, &ask.branch))?;
            if let Some(recovered) = &mut status.recovered {
                recovered.push_str(&until_now(mounts));
            }
            answer.healthy = status.poisoned.is_none() && status.not_imported.is_empty();
            let base = answer.info.base.path();
            answer.troubles.extend(base_trouble(base, &status));
            answer.troubles.extend(troubles(&status));
            if ask.resources {
                answer.resources = Some(store::resources(mounts, status.import.since)?);
            }
            let requests = mounts.requests(&ask.workspace);
            let audit = mounts.audit(&ask.workspace);
            if let Some((path, Some(why))) = &audit {
                let path = path.display();
                let trouble = format!("events are not appended to {path}: {why}");
                answer.troubles.push(trouble);
            }
            answer.troubles.extend(mounts.deaf(&ask.workspace));
            answer
                .troubles
                .extend(remotes::lazy_trouble(mounts, &ask.workspace));
            let policies = mounts.policies();
            answer.troubles.extend(policies.trouble(&ask.workspace));
            answer.facts = Some(Facts {
                audit: audit.map(|(path, _)| Bytes::from(path.as_path())),
                telemetry: mounts.telemetry(&ask.workspace),
                policy: on(mounts, &ask.workspace, |w| Ok(policy::version(w)))?,
                remotes: remotes::standings(mounts, &ask.workspace, &ask.branch)?,
                lazy: remotes::lazy(mounts, &ask.workspace),
                ..of_status(status, requests)
            });
        }
        WorkspaceStatus::Stale => answer.troubles.push(format!(
            "its daemon crashed{}; no acknowledged write is lost: \
             agentvfs start {} recovers it",
            refused(mounts, &ask.workspace),
            ask.workspace
        )),
        WorkspaceStatus::Initialized | WorkspaceStatus::Stopped => {}
    }
    for dir in mounts.aside(&ask.workspace) {
        answer.troubles.push(format!(
            "files written at the mount point while it was not mounted are in {}",
            dir.display()
        ));
    }
    Ok(answer)
}

/// Why what is asked of a mount fails although a keeper holds it; empty where it does not.
fn refused(mounts: &Mounts, workspace: &str) -> String {
    if !mounts.keeping().is_refused(workspace) {
        return String::new();
    }
    let why = mounts.keeping().given_up().map_or("unknown", str::trim_end);
    format!("; its mount answers EIO ({why})")
}

/// Why what is asked of mounts failed until this daemon took them; empty where it did not.
fn until_now(mounts: &Mounts) -> String {
    let why = mounts.keeping().given_up().map(str::trim_end);
    why.map(|why| format!("; mounts answered EIO until then ({why})"))
        .unwrap_or_default()
}

fn troubles(status: &engine::Status) -> Vec<String> {
    let mut troubles = Vec::new();
    if let Some(why) = &status.poisoned {
        troubles.push(format!(
            "writes are refused: {why}; stop and start it to check the store"
        ));
    }
    let is_paused = matches!(status.import.state, engine::ImportState::Paused);
    if is_paused && status.base_missing.is_none() {
        let why = status.import.why.as_deref().unwrap_or("it was stopped");
        let hint = match status.import.wants_space {
            true => "; free space on the disk",
            false => "",
        };
        troubles.push(format!("the import of the project is paused: {why}{hint}"));
    }
    if !status.unreadable.is_empty() {
        let named = agentvfs_client::quote::some_paths(status.unreadable.iter().map(Vec::as_slice));
        troubles.push(format!(
            "commits leave out {named}, which cannot be read in the project; \
             agentvfs update adds them when they can be read"
        ));
    }
    troubles
}

fn of_status(status: engine::Status, requests: BTreeMap<String, Requests>) -> Facts {
    Facts {
        head: status.head.map(|id| id.to_string()),
        import: of_import(&status.import),
        base_changed: status.base_changed.into_iter().map(Bytes).collect(),
        unreadable: status.unreadable.into_iter().map(Bytes).collect(),
        not_imported: status.not_imported.into_iter().map(Bytes).collect(),
        journal_bytes: status.journal_bytes,
        entries: status.entries,
        recovered: status.recovered,
        requests,
        audit: None,
        branch_id: u64::from(status.number),
        telemetry: Vec::new(),
        policy: None,
        remotes: Vec::new(),
        lazy: None,
    }
}
