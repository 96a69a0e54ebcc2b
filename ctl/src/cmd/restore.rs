//! `agentvfs workspace restore`.

use super::log::pages::each_page;
use super::rollback::{tell, tell_plan};
use super::{Context, path_or_root, paths};
use crate::cli::RestoreArgs;
use crate::extract::Extraction;
use crate::output::{Rows, print, print_json, talk, warn};
use crate::signals::{Interrupted, on_interrupt};
use agentvfs_client::failure::Failure;
use agentvfs_client::files::TreeAt;
use agentvfs_client::protocol::{
    Call, Log, Moment, PlanAnswer, Rollback, RollbackAnswer, Side, Target,
};
use agentvfs_client::quote::shown;
use agentvfs_client::render::{count, insert_bytes};
use agentvfs_client::when::moment;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Kind of a commit that another branch made.
const OTHER_BRANCH: &str = "other-branch";

/// Takes paths from a commit into the live tree, or with `--to` out of it.
pub fn run(args: &RestoreArgs, context: &mut Context) -> Result<u8, Failure> {
    let target = match (&args.before, &args.reference) {
        (Some(before), _) => Target::Before(moment(before)?),
        (None, Some(name)) => Target::Ref(name.clone()),
        (None, None) => Target::Head,
    };
    match &args.to {
        Some(directory) => {
            let workspace = context.workspace(None)?;
            write_out(args, directory, target, &workspace, context)
        }
        None => {
            let workspace = context.workspace_to_change(None)?;
            take_in(args, target, &workspace, context)
        }
    }
}

fn take_in(
    args: &RestoreArgs,
    target: Target,
    workspace: &str,
    context: &mut Context,
) -> Result<u8, Failure> {
    let branch = context.branch()?;
    let request = Rollback {
        workspace: workspace.to_owned(),
        branch: branch.clone(),
        target,
        paths: paths(&args.paths, workspace, context).map_err(whole)?,
        keep_kv: true,
    };
    let what = format!("cannot restore in {workspace}");
    if args.dry_run {
        let plan: PlanAnswer = context.ask(&what, &Call::RollbackPlan(request))?;
        return tell_plan(&plan, args.nul, context.json());
    }
    let since = Instant::now();
    let answer: RollbackAnswer =
        context.ask_with_bar(&what, &Call::Rollback(request), "restoring")?;
    let reverse = "`agentvfs undo` reverses it";
    let of = (workspace, branch.as_str());
    tell(&answer, of, since.elapsed(), reverse, context)?;
    Ok(0)
}

/// The hint for whoever means everything.
fn whole(failure: Failure) -> Failure {
    if failure.why.ends_with("is the whole workspace") {
        failure.hint("agentvfs rollback [REF] restores everything")
    } else {
        failure
    }
}

fn write_out(
    args: &RestoreArgs,
    directory: &Path,
    target: Target,
    workspace: &str,
    context: &mut Context,
) -> Result<u8, Failure> {
    let state = TreeAt {
        workspace: workspace.to_owned(),
        branch: context.branch()?,
        side: Side::Ref(reference(target, workspace, context)?),
    };
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.push(path_or_root(path, workspace, context)?);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&interrupted);
    on_interrupt(move || {
        seen.store(true, Ordering::Release);
        Interrupted::GoOn
    })?;
    let is_interrupted = || interrupted.load(Ordering::Acquire);
    let plan = Extraction::plan(&state, &paths, directory, context, &is_interrupted)?;
    let written = plan.paths().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let since = Instant::now();
    let mut lost = Vec::new();
    if !args.dry_run {
        lost = plan.write(&state, context, &is_interrupted)?;
    }
    for what in &lost {
        warn(what);
    }
    tell_written(args, &written, &lost, context.json())?;
    if !args.dry_run {
        talk(&format!(
            "{} written below {} in {:.1?}",
            count(written.len() as u64, "path"),
            shown(directory.as_os_str().as_bytes()),
            since.elapsed()
        ));
    }
    Ok(0)
}

/// With `--dry-run` a row for each path that would be made; else nothing but for JSON.
fn tell_written(
    args: &RestoreArgs,
    written: &[Vec<u8>],
    lost: &[String],
    json: bool,
) -> Result<(), Failure> {
    if json {
        let object = |path: &Vec<u8>| {
            let mut object = Map::new();
            insert_bytes(&mut object, "path", path);
            Value::Object(object)
        };
        let paths: Vec<Value> = written.iter().map(object).collect();
        return print_json(&json!({ "written": paths, "not_kept": lost }));
    }
    if !args.dry_run {
        return print(b"");
    }
    let mut rows = Rows::new(&["STATUS", "PATH"]);
    for path in written {
        rows.push(vec![b"A".to_vec(), path.clone()]);
    }
    rows.print(args.nul)
}

/// A ref for the target: of a moment, the newest commit from before.
fn reference(target: Target, workspace: &str, context: &mut Context) -> Result<String, Failure> {
    let before = match target {
        Target::Ref(name) => return Ok(name),
        Target::Before(moment) => moment,
        Target::Head | Target::Meta(..) => return Ok("@".to_owned()),
    };
    let what = format!("cannot restore from {workspace}");
    let ask = Log {
        workspace: workspace.to_owned(),
        branch: context.branch()?,
        all: true,
        limit: None,
        after: None,
        digits: false,
        count: false,
    };
    let key = |moment: &Moment| (moment.sec, moment.nsec);
    let mut found = None;
    each_page(&ask, context, &mut |commits, _| {
        let mut commits = commits.into_iter();
        // What another branch was at that time is not what this one was.
        found = commits
            .find(|row| (row.head || row.kind != OTHER_BRANCH) && key(&row.time) < key(&before));
        Ok(found.is_none())
    })?;
    found.and_then(|row| row.commit).ok_or_else(|| {
        Failure::new(what, "no commit is that old")
            .kind("no-such-ref")
            .hint(format!("agentvfs log {workspace} --all lists the commits"))
    })
}
