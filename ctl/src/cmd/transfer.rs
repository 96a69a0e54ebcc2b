//! `agentvfs push`, `fetch`, `pull`, `clone`, `remote gc`.

use super::branch::tell_merge;
use super::paths::path_or_root;
use super::{Context, check_name, workspace_facts};
use crate::cli::{
    CloneArgs, ConflictsArg, FetchArgs, PrefetchArgs, PullArgs, PushArgs, RemoteGcArgs,
};
use crate::output::{Bar, Facts, Rows, human_bytes, print_json, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::*;
use agentvfs_client::render::count;
use agentvfs_client::seen::Look;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Exit status where a branch was not pushed.
const REJECTED: u8 = 1;

/// A URL as it is, a path as an absolute one.
pub fn url(text: &str, context: &Context) -> Result<String, Failure> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = context.absolute(Path::new(text))?;
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::usage("the path of the remote is not UTF-8"))
}

/// Options of a service, by name.
pub fn options(endpoint: Option<String>, region: Option<String>) -> BTreeMap<String, String> {
    let options = [("endpoint", endpoint), ("region", region)];
    options
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// How remotes at these URLs are reached: nothing where none of them needs it.
pub fn access(urls: &[&str]) -> Result<Access, Failure> {
    match urls.iter().any(|url| url.starts_with("s3://")) {
        true => agentvfs_client::access::s3(),
        false => Ok(Access::default()),
    }
}

/// The same for a remote of a workspace: the one of that name, or any.
fn access_of(
    workspace: &str,
    remote: Option<&str>,
    context: &mut Context,
) -> Result<Access, Failure> {
    let call = Call::RemoteList(RemoteList {
        workspace: workspace.to_owned(),
    });
    let all: RemoteListAnswer = context.ask("cannot list the remotes", &call)?;
    let meant = |row: &&RemoteRow| remote.is_none_or(|name| row.name == name);
    let urls: Vec<&str> = all
        .remotes
        .iter()
        .filter(meant)
        .map(|row| &*row.url)
        .collect();
    access(&urls)
}

/// Sends branches to a remote; prints what became of each.
pub fn push(args: PushArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let branches = match args.all {
        true => Vec::new(),
        false => vec![context.branch()?],
    };
    let access = access_of(&workspace, args.remote.as_deref(), context)?;
    let call = Call::RemotePush(RemotePush {
        workspace: workspace.clone(),
        remote: args.remote,
        branches,
        labels: args.labels,
        lease: args.force_with_lease,
        progress: Bar::is_wanted(),
        access,
    });
    let since = Instant::now();
    let what = format!("cannot push {workspace}");
    let answer: RemotePushAnswer = context.ask_cancellable(&what, &call, "pushing", &mut |_| {})?;
    let remote = &answer.remote;
    if context.json() {
        let rows: Vec<Value> = answer.branches.iter().map(pushed_object).collect();
        print_json(&json!({
            "remote": remote, "branches": rows, "requests": answer.requests
        }))?;
    } else {
        let mut rows = Rows::new(&["STATUS", "NAME", "COMMIT"]);
        for row in &answer.branches {
            let name = format!("{remote}/{}", row.branch);
            rows.push(vec![
                row.status.clone().into(),
                name.into(),
                row.commit.clone().into(),
            ]);
        }
        rows.print(args.rows.nul)?;
    }
    let mut exit = 0;
    for row in &answer.branches {
        labels_stay(remote, &row.branch, &row.labels_differ);
        if row.status == "rejected" {
            exit = REJECTED;
            warn(&format!(
                "rejected: {remote}/{0} has moved; `agentvfs pull {remote} --branch {0}` merges it",
                row.branch
            ));
        }
    }
    let sent = answer.branches.iter().map(|row| row.bytes).sum();
    let how = format!("sent to {remote}");
    tell_traffic(&workspace, &how, (sent, answer.requests), since);
    Ok(exit)
}

/// Says how many bytes went between a workspace and a remote, in how many requests, and how long that took.
fn tell_traffic(workspace: &str, how: &str, (bytes, requests): (u64, u64), since: Instant) {
    talk(&format!(
        "workspace {workspace}: {} {how} in {} and {:.1?}",
        human_bytes(bytes),
        count(requests, "request"),
        since.elapsed()
    ));
}

fn pushed_object(row: &PushedRow) -> Value {
    json!({
        "branch": row.branch,
        "status": row.status,
        "commit": row.commit,
        "before": row.before,
        "checkpoint": row.checkpoint,
        "objects": row.objects,
        "bytes": row.bytes,
        "labels_differ": row.labels_differ,
    })
}

fn labels_stay(remote: &str, branch: &str, labels: &[String]) {
    for label in labels {
        warn(&format!(
            "the label {label} of {remote}/{branch} is on another commit than here; neither was changed"
        ));
    }
}

/// Brings branches of a remote; prints them.
pub fn fetch(args: FetchArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let wanted = context.options().branch.clone();
    let answer = fetched(
        &workspace,
        args.remote,
        wanted.into_iter().collect(),
        context,
    )?;
    if context.json() {
        let rows: Vec<Value> = answer.branches.iter().map(fetched_object).collect();
        print_json(&json!({
            "remote": answer.remote,
            "branches": rows,
            "objects": answer.objects,
            "bytes": answer.bytes,
            "requests": answer.requests,
        }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["STATUS", "NAME", "COMMIT"]);
    for row in answer.branches {
        rows.push(vec![
            status(&row).into(),
            row.name.into(),
            row.commit.into(),
        ]);
    }
    rows.print(args.rows.nul)?;
    Ok(0)
}

fn status(row: &FetchedRow) -> &'static str {
    match &row.before {
        None => "new",
        Some(before) if *before == row.commit => "up-to-date",
        Some(_) => "moved",
    }
}

fn fetched_object(row: &FetchedRow) -> Value {
    json!({
        "name": row.name,
        "status": status(row),
        "commit": row.commit,
        "before": row.before,
        "by": row.by,
        "time": agentvfs_client::when::rfc3339(row.time),
        "labels_differ": row.labels_differ,
    })
}

/// Fetches, and says how much came.
fn fetched(
    workspace: &str,
    remote: Option<String>,
    branches: Vec<String>,
    context: &mut Context,
) -> Result<RemoteFetchAnswer, Failure> {
    let access = access_of(workspace, remote.as_deref(), context)?;
    let call = Call::RemoteFetch(RemoteFetch {
        workspace: workspace.to_owned(),
        remote,
        branches,
        progress: Bar::is_wanted(),
        access,
    });
    let since = Instant::now();
    let what = format!("cannot fetch for {workspace}");
    let answer: RemoteFetchAnswer =
        context.ask_cancellable(&what, &call, "fetching", &mut |_| {})?;
    for row in &answer.branches {
        let (remote, branch) = row
            .name
            .split_once('/')
            .unwrap_or((&answer.remote, &row.name));
        labels_stay(remote, branch, &row.labels_differ);
    }
    let how = format!("came from {}", answer.remote);
    tell_traffic(workspace, &how, (answer.bytes, answer.requests), since);
    Ok(answer)
}

/// Fetches the branch of a remote and merges it into the one of its name.
pub fn pull(args: PullArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let branch = context.branch()?;
    let answer = fetched(&workspace, args.remote, vec![branch.clone()], context)?;
    let from = format!("{}/{branch}", answer.remote);
    let what = format!("cannot merge {from} into {branch}");
    let call = Call::BranchMerge(BranchMerge {
        workspace: workspace.clone(),
        from,
        into: branch.clone(),
        keep_conflicts: args.conflicts == ConflictsArg::Keep,
        dry_run: false,
        label: None,
        message: args.message.unwrap_or_default(),
        progress: Bar::is_wanted(),
    });
    tell_merge(
        &what,
        &call,
        (&workspace, &branch),
        context,
        (false, args.nul),
    )
}

/// Makes a workspace, for a start, of the project of its name in a remote.
pub fn cloned_for_start(url: &str, name: &str, context: &mut Context) -> Result<(), Failure> {
    check_name(engine::names::check_workspace_name(name))?;
    let ask = RemoteClone {
        workspace: name.to_owned(),
        url: url.to_owned(),
        options: BTreeMap::new(),
        project: name.to_owned(),
        branch: None,
        full: false,
        progress: Bar::is_wanted(),
        access: Access::default(),
    };
    cloned(ask, context).map(drop)
}

/// Makes a workspace of what a remote has at a URL as it was given.
fn cloned(mut ask: RemoteClone, context: &mut Context) -> Result<RemoteCloneAnswer, Failure> {
    let what = format!("cannot clone {}", ask.url);
    ask.url = url(&ask.url, context)?;
    ask.access = access(&[&ask.url])?;
    let call = Call::RemoteClone(ask);
    context.ask_cancellable(&what, &call, "cloning", &mut |_| {})
}

/// Makes a workspace of what a remote has, mounts it, and prints its facts.
pub fn clone(args: CloneArgs, context: &mut Context) -> Result<u8, Failure> {
    let option = context.surroundings().option.clone();
    let workspace = option.unwrap_or_else(|| args.project.clone());
    check_name(engine::names::check_workspace_name(&workspace))?;
    let branch = context.options().branch.clone();
    let mount = args.mount.as_deref();
    let mount = mount.map(|mount| context.absolute(mount)).transpose()?;
    let ask = RemoteClone {
        workspace: workspace.clone(),
        url: args.url,
        options: options(args.endpoint, args.region),
        project: args.project,
        branch: branch.clone(),
        full: args.full,
        progress: Bar::is_wanted(),
        access: Access::default(),
    };
    let since = Instant::now();
    let made = cloned(ask, context)?;
    let took = since.elapsed();
    let call = Call::Start(Start {
        workspace: workspace.clone(),
        base: None,
        named: true,
        mount: mount.as_deref().map(Bytes::from),
        // There is no project whose directory could say whether others may enter.
        options: MountChoice {
            allow_other: Some(false),
            ..MountChoice::default()
        },
    });
    let answer: StartAnswer = context.ask(&format!("cannot start {workspace}"), &call)?;
    for warning in &answer.warnings {
        warn(warning);
    }
    context.check_seen(&answer.info, Look::Into)?;
    let branch = branch.unwrap_or_else(|| MAIN.to_owned());
    let mut facts = workspace_facts(&answer.info, &branch, context.home());
    facts.add("commit", made.commit.as_bytes());
    let rows: Vec<Value> = made.branches.iter().map(fetched_object).collect();
    facts.json("branches", rows).json("requests", made.requests);
    facts
        .json("bytes", made.bytes)
        .json("objects", made.objects);
    facts.print(context.json())?;
    talk(&format!(
        "workspace {workspace}: {} came in {} and {took:.1?}; mounted; `agentvfs stop {workspace}` unmounts it",
        human_bytes(made.bytes),
        count(made.requests, "request"),
    ));
    Ok(0)
}

/// Brings what a lazy workspace lacks; prints how much that was.
pub fn prefetch(args: PrefetchArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let branch = context.branch()?;
    let access = access_of(&workspace, None, context)?;
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.push(Bytes(path_or_root(path, &workspace, context)?));
    }
    let call = Call::RemotePrefetch(RemotePrefetch {
        workspace: workspace.clone(),
        branch,
        paths,
        all: args.all,
        progress: Bar::is_wanted(),
        access,
    });
    let since = Instant::now();
    let what = format!("cannot fetch what {workspace} lacks");
    let answer: RemotePrefetchAnswer =
        context.ask_cancellable(&what, &call, "fetching", &mut |_| {})?;
    let mut facts = Facts::default();
    facts.add("remote", answer.remote.as_bytes());
    for (key, number) in [
        ("objects", answer.objects),
        ("bytes", answer.bytes),
        ("requests", answer.requests),
    ] {
        facts
            .line(key, number.to_string().as_bytes())
            .json(key, number);
    }
    facts.print(context.json())?;
    let how = format!("came from {}", answer.remote);
    tell_traffic(&workspace, &how, (answer.bytes, answer.requests), since);
    if args.all {
        talk(&format!(
            "workspace {workspace} needs remote {} no more",
            answer.remote
        ));
    }
    Ok(0)
}

/// Removes from a remote what nobody needs.
pub fn gc(args: RemoteGcArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let access = access_of(&workspace, args.remote.as_deref(), context)?;
    let call = Call::RemoteGc(RemoteGc {
        workspace,
        remote: args.remote,
        dry_run: args.dry_run,
        progress: Bar::is_wanted(),
        access,
    });
    let what = "cannot collect the remote";
    let answer: RemoteGcAnswer = context.ask_cancellable(what, &call, "collecting", &mut |_| {})?;
    let mut facts = Facts::default();
    facts.add("remote", answer.remote.as_bytes());
    for (key, number) in [
        ("kept", answer.kept),
        ("dropped", answer.dropped),
        ("missing", answer.missing),
        ("copied_bytes", answer.copied_bytes),
        ("condemned", answer.condemned),
        ("deleted", answer.deleted),
        ("deleted_bytes", answer.deleted_bytes),
    ] {
        facts
            .line(key, number.to_string().as_bytes())
            .json(key, number);
    }
    facts.json("dry_run", args.dry_run);
    facts.print(context.json())?;
    if answer.missing > 0 {
        warn(&format!(
            "the remote is damaged: {} missing that its branches need; push again from a machine that has them",
            count(answer.missing, "object") + if answer.missing == 1 { " is" } else { " are" }
        ));
        return Ok(1);
    }
    Ok(0)
}
