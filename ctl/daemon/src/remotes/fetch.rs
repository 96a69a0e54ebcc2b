//! Bringing branches of a remote, for a workspace that there is and for one that is made of them.

use super::super::faults;
use super::super::moments::moment;
use super::super::mounts::Mounts;
use super::super::request::Watch;
use super::faults::{no_branch, no_project, of_remote};
use super::open::{At, open_at};
use super::transfer::{ORIGIN, check, check_room, chosen, decide, opened};
use agentvfs_client::protocol::{
    Fault, FetchedRow, Named, RemoteClone, RemoteCloneAnswer, RemoteFetch, RemoteFetchAnswer,
};
use engine::verbs::remotes::{self, CarriedTimeline, Incoming, RemoteConfig};
use engine::{CommitId, MAIN, TakenOver, Time, Workspace, verbs};
use remote::fetch::refs::{fetch_refs, mentioned_by};
use remote::fetch::{Context, Depth, Fetched};
use remote::layout::reference::RemoteRef;
use remote::{Error, Remote};

/// A branch of a remote, by name.
type Branch = (String, RemoteRef);

/// Fetches branches of a remote.
pub fn fetch(
    mounts: &Mounts,
    ask: &RemoteFetch,
    watch: &Watch<'_>,
) -> Result<RemoteFetchAnswer, Fault> {
    let name = &ask.workspace;
    let of_engine = |e: engine::Error| faults::of_engine(&e, name);
    let workspace = mounts.workspace(name)?;
    let config = chosen(&workspace, ask.remote.as_deref())?;
    let remote = opened(mounts, &config, &ask.access)?;
    let found =
        branches(&remote, &config.project, &ask.branches, watch).map_err(|e| of_remote(e, name))?;
    if let Some(missing) = ask
        .branches
        .iter()
        .find(|wanted| !found.iter().any(|(branch, _)| branch == *wanted))
    {
        return Err(no_branch(&config, missing));
    }
    // Until something refers to what comes, gc takes nothing of it.
    let _pin = mounts.engine().objects().pin();
    let complete = remotes::complete_commits(&workspace).map_err(of_engine)?;
    let needed = remotes::lazy_remote(&workspace).map_err(of_engine)?;
    let depth = match needed.as_deref() == Some(&config.name) {
        true => Depth::Commits,
        false => Depth::Whole,
    };
    let complete = |id: &CommitId| complete.contains(id);
    let done = bring(mounts, &remote, &found, (&complete, depth), watch);
    let done = done.map_err(|e| of_remote(e, name))?;
    let mut rows = Vec::new();
    for (branch, reference) in &found {
        rows.push(keep(mounts, &workspace, &config, branch, reference)?);
    }
    let requests = remote.traffic().requests;
    if depth == Depth::Commits {
        mounts.needs_remote(name, &config, &ask.access, Some(remote));
    }
    Ok(RemoteFetchAnswer {
        remote: config.name,
        branches: rows,
        objects: done.objects,
        bytes: done.bytes,
        requests,
    })
}

/// The branches that are wanted, all where none is named.
fn branches(
    remote: &Remote,
    project: &str,
    wanted: &[String],
    watch: &Watch<'_>,
) -> Result<Vec<Branch>, Error> {
    let check = || check(watch.cancel);
    let names = match wanted {
        [] => {
            let mut all = remote.branches(project)?;
            all.retain(|name| {
                let is_name = engine::names::check_branch_name(name).is_ok();
                if !is_name {
                    tracing::warn!(
                        "a branch of a remote is left out: {name:?} is no branch's name"
                    );
                }
                is_name
            });
            all
        }
        some => some.to_vec(),
    };
    remote.references(project, &names, &check)
}

/// Brings what refs name, up to where it is to be kept.
fn bring(
    mounts: &Mounts,
    remote: &Remote,
    found: &[Branch],
    (complete, depth): (&dyn Fn(&CommitId) -> bool, Depth),
    watch: &Watch<'_>,
) -> Result<Fetched, Error> {
    let engine = mounts.engine();
    let room = |bytes| check_room(engine, bytes);
    let context = Context {
        progress: watch.progress,
        check: &|| check(watch.cancel),
        room: &room,
        complete,
        directory: engine.root(),
        depth,
    };
    let refs: Vec<&RemoteRef> = found.iter().map(|(_, reference)| reference).collect();
    let done = fetch_refs(remote, engine.objects(), &refs, &context)?;
    decide(watch.cancel)?;
    Ok(done)
}

/// Keeps what a branch of a remote has, all of which is here.
fn keep(
    mounts: &Mounts,
    workspace: &Workspace,
    config: &RemoteConfig,
    branch: &str,
    reference: &RemoteRef,
) -> Result<FetchedRow, Fault> {
    let of_engine = |e: engine::Error| faults::of_engine(&e, workspace.name());
    let store = mounts.engine().objects();
    let name = format!("{}/{branch}", config.name);
    let before = remotes::tracking(workspace, &name).map_err(of_engine)?;
    let mut timelines = Vec::new();
    for timeline in &reference.timelines {
        let mentioned = mentioned_by(store, timeline);
        timelines.push(CarriedTimeline {
            branch: timeline.branch.clone(),
            head: timeline.head,
            log: timeline.log,
            commits: timeline.commits,
            first: timeline.first,
            mentioned: mentioned.map_err(|e| of_remote(e, workspace.name()))?,
        });
    }
    let incoming = Incoming {
        commit: reference.commit,
        labels: reference.labels.iter().cloned().collect(),
        timelines,
    };
    let kept = remotes::set_tracking(workspace, &config.name, branch, &incoming);
    kept.map_err(of_engine)?;
    Ok(FetchedRow {
        commit: reference.commit.to_string(),
        before: before.map(|t| t.commit.to_string()),
        by: reference.by.clone(),
        time: moment(Time {
            sec: reference.time_sec,
            nsec: reference.time_nsec,
        }),
        labels_differ: remotes::labels_differ(workspace, branch, &name).map_err(of_engine)?,
        name,
    })
}

/// Makes a workspace of what a remote has of a project.
pub fn clone(
    mounts: &Mounts,
    ask: &RemoteClone,
    watch: &Watch<'_>,
) -> Result<RemoteCloneAnswer, Fault> {
    let name = &ask.workspace;
    let of_engine = |e: engine::Error| faults::of_engine(&e, name);
    engine::names::check_workspace_name(name).map_err(of_engine)?;
    mounts.check_new(name).map_err(|fault| match fault.kind {
        ref kind if kind == "workspace-exists" => {
            let all = mounts.engine().cut_off_clones().unwrap_or_default();
            let is_cut_off = all.iter().any(|(workspace, _)| workspace == name);
            fault.hint(match is_cut_off {
                true => {
                    format!("agentvfs delete {name} removes what a clone left that was cut off")
                }
                false => "use another name: -w NAME".to_owned(),
            })
        }
        _ => fault,
    })?;
    super::check_options(&ask.url, &ask.options)?;
    let config = RemoteConfig {
        name: ORIGIN.to_owned(),
        url: ask.url.clone(),
        project: ask.project.clone(),
        options: ask.options.clone(),
    };
    let remote = open_at(mounts, At::of(&config, &ask.access))?;
    let found = branches(&remote, &ask.project, &[], watch).map_err(|e| of_remote(e, name))?;
    let commit = beginning(&config, &found, ask.branch.as_deref())?;
    let _pin = mounts.engine().objects().pin();
    let depth = match ask.full {
        true => Depth::Whole,
        false => Depth::Commits,
    };
    let done = bring(mounts, &remote, &found, (&|_| false, depth), watch);
    let done = done.map_err(|e| of_remote(e, name))?;
    let whole = RemoteCloneAnswer {
        commit: commit.to_string(),
        branches: Vec::new(),
        objects: done.objects,
        bytes: done.bytes,
        requests: remote.traffic().requests,
    };
    if !ask.full {
        mounts.needs_remote(name, &config, &ask.access, Some(remote));
    }
    let made = make(mounts, ask, &config, commit, &found);
    let branches = made.inspect_err(|_| mounts.needs_no_remote(name))?;
    let came = mounts.lazy_standing(name);
    Ok(RemoteCloneAnswer {
        branches,
        objects: whole.objects + came.as_ref().map_or(0, |came| came.objects),
        bytes: whole.bytes + came.as_ref().map_or(0, |came| came.bytes),
        requests: came.map_or(whole.requests, |came| came.requests),
        ..whole
    })
}

/// Makes the workspace of a clone, or nothing.
fn make(
    mounts: &Mounts,
    ask: &RemoteClone,
    config: &RemoteConfig,
    commit: CommitId,
    found: &[Branch],
) -> Result<Vec<FetchedRow>, Fault> {
    let name = &ask.workspace;
    let nothing = &mut || Ok(TakenOver::Calls(Vec::new()));
    let lazy = (!ask.full).then_some(ORIGIN);
    let made = mounts.make_of_commit(name, (commit, lazy), nothing);
    made.map_err(|e| faults::of_engine(&e, name))?;
    furnish(mounts, ask, config, found).inspect_err(|_| {
        let name = name.clone();
        if let Err(fault) = mounts.delete(&Named { workspace: name }) {
            tracing::error!("what a clone made stays: {}", fault.message);
        }
    })
}

/// The commit that `main` begins with: that of the remote's `main`, else of the branch that is asked for, else of the only
/// one.
fn beginning(
    config: &RemoteConfig,
    found: &[Branch],
    wanted: Option<&str>,
) -> Result<CommitId, Fault> {
    let of = |name: &str| found.iter().find(|(branch, _)| branch == name);
    if let Some(wanted) = wanted.filter(|wanted| of(wanted).is_none()) {
        return Err(no_branch(config, wanted));
    }
    let only = || match found {
        [only] => Some(only),
        _ => None,
    };
    let chosen = of(MAIN).or_else(|| wanted.and_then(of)).or_else(only);
    let commit = chosen.map(|(_, reference)| reference.commit);
    commit.ok_or_else(|| no_project(config, found.iter().map(|(branch, _)| &**branch)))
}

/// Gives a new workspace its remote, what is known of that, and the branch that is asked for.
fn furnish(
    mounts: &Mounts,
    ask: &RemoteClone,
    config: &RemoteConfig,
    found: &[Branch],
) -> Result<Vec<FetchedRow>, Fault> {
    let of_engine = |e: engine::Error| faults::of_engine(&e, &ask.workspace);
    let workspace = mounts.to_read(&ask.workspace)?;
    remotes::add_remote(&workspace, config.clone()).map_err(of_engine)?;
    let mut rows = Vec::new();
    for (branch, reference) in found {
        rows.push(keep(mounts, &workspace, config, branch, reference)?);
    }
    let origin = |branch: &str| format!("{}/{branch}", config.name);
    let main = found.iter().any(|(branch, _)| branch == MAIN);
    let began = match (main, &ask.branch, found) {
        (true, _, _) => MAIN,
        (false, Some(wanted), _) => wanted,
        (false, None, [(only, _), ..]) => only,
        (false, None, []) => MAIN,
    };
    remotes::know_tracking(&workspace, MAIN, &origin(began)).map_err(of_engine)?;
    if let Some(branch) = ask.branch.as_deref().filter(|branch| *branch != MAIN) {
        let made = verbs::create_branch(&workspace, branch, MAIN, Some(&origin(branch)));
        made.map_err(of_engine)?;
        remotes::know_tracking(&workspace, branch, &origin(branch)).map_err(of_engine)?;
    }
    Ok(rows)
}
