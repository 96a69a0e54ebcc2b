//! `agentvfs tool`, but for `exec` and `list`.

use super::branch::{conflict_object, conflict_rows};
use super::changes::{change_object, print_changes};
use super::place::{Directory, place};
use super::{Context, id_or_pending, patch, paths, tool_exec};
use crate::cli::{
    ToolDiffArgs, ToolErrorArgs, ToolRecordArgs, ToolStartArgs, ToolSuccessArgs, ToolUndoArgs,
    ToolVerb,
};
use crate::output::{print, print_json, talk, warn};
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::protocol::*;
use agentvfs_client::render::count;
use agentvfs_client::when::before;
use serde_json::{Value, json};

/// Runs a verb.
pub fn run(verb: ToolVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        ToolVerb::Record(args) => record(args, context),
        ToolVerb::Start(args) => start(args, context),
        ToolVerb::Success(args) => success(args, context),
        ToolVerb::Error(args) => error(args, context),
        ToolVerb::List(args) => super::timeline::list(&args, context),
        ToolVerb::Diff(args) => diff(&args, context),
        ToolVerb::Undo(args) => undo(&args, context),
        ToolVerb::Exec(args) => tool_exec::run(&args, context),
    }
}

/// Checks that a text is JSON, before anything is asked.
fn json_text(option: &str, text: Option<String>) -> Result<Option<String>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(Some(text)),
        Err(e) => Err(Failure::usage(format!("{option} is not JSON: {e}"))
            .hint("a text is JSON in double quotes: '\"text\"'")),
    }
}

fn moment(option: &str, text: Option<&str>) -> Result<Option<Moment>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let time = before(text);
    let time = time.ok_or_else(|| {
        Failure::usage(format!("{option}: {text:?} is not a time"))
            .hint("use a time in RFC 3339, or how long ago it was (90s, 5m)")
    })?;
    Ok(Some(time))
}

fn print_id(id: u64, context: &Context) -> Result<u8, Failure> {
    match context.json() {
        true => print_json(&json!({ "id": id }))?,
        false => print(format!("{id}\n").as_bytes())?,
    }
    Ok(0)
}

fn record(args: ToolRecordArgs, context: &mut Context) -> Result<u8, Failure> {
    let parameters = json_text("--params", args.params)?;
    let result = json_text("--result", args.result)?;
    let started = moment("--started", args.started.as_deref())?;
    let completed = moment("--completed", args.completed.as_deref())?;
    let call = Call::ToolRecord(ToolRecord {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        name: args.name.clone(),
        parameters,
        result,
        error: args.error,
        started,
        completed,
    });
    let answer: CallId = context.ask(&format!("cannot record {}", args.name), &call)?;
    print_id(answer.id, context)
}

fn start(args: ToolStartArgs, context: &mut Context) -> Result<u8, Failure> {
    let parameters = json_text("--params", args.params)?;
    let call = Call::ToolStart(ToolStart {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        name: args.name.clone(),
        parameters,
        unsynced: false,
        of_process: false,
        key: None,
    });
    let answer: CallId = context.ask(&format!("cannot record {}", args.name), &call)?;
    print_id(answer.id, context)
}

fn success(args: ToolSuccessArgs, context: &mut Context) -> Result<u8, Failure> {
    let result = json_text("--result", args.result)?;
    finish(args.id, (result, None), context)
}

fn error(args: ToolErrorArgs, context: &mut Context) -> Result<u8, Failure> {
    finish(args.id, (None, Some(args.message)), context)
}

fn finish(
    id: u64,
    (result, error): (Option<String>, Option<String>),
    context: &mut Context,
) -> Result<u8, Failure> {
    let status = if error.is_some() { "error" } else { "success" };
    let call = Call::ToolFinish(ToolFinish {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        id: Some(id),
        key: None,
        result,
        error,
        unsynced: false,
    });
    let _: Finished = context.ask(&format!("cannot end tool call {id}"), &call)?;
    if context.json() {
        print_json(&json!({ "id": id, "status": status }))?;
    }
    Ok(0)
}

/// Says why what differs around a call may not be its own, and which command ends what causes that.
fn tell_doubt(id: u64, doubt: &CallDoubt) {
    warn(&format!(
        "some of these changes may not belong to call {id}: {}",
        doubt.why
    ));
    for call in &doubt.pending {
        warn(&format!(
            "`agentvfs tool error {call} TEXT` ends call {call}"
        ));
    }
}

fn diff(args: &ToolDiffArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let branch = context.branch()?;
    let what = format!("cannot determine what call {} changed", args.id);
    let paths = paths(&args.path, &workspace, context)?;
    let ask = Call::ToolShow(OneCall {
        workspace: workspace.clone(),
        branch: branch.clone(),
        id: args.id,
        wait: true,
    });
    let row: TimelineRow = context.ask(&what, &ask)?;
    let Some(before) = row.own_before.clone().or(row.before.clone()) else {
        return Err(Failure::new(what, "it was imported without its files")
            .hint("agentvfs timeline --json shows what is recorded of it"));
    };
    let to = row.after.clone().map_or(Side::Live, Side::Ref);
    let ask = Diff {
        workspace,
        branch,
        from: Side::Ref(before),
        to,
        paths,
        stat: false,
    };
    if let Some(doubt) = &row.doubt {
        tell_doubt(args.id, doubt);
    }
    if args.patch {
        return patch::patch(ask, &what, context);
    }
    if args.stat {
        return patch::stat(ask, &what, (args.rows.nul, false), context);
    }
    let answer: DiffAnswer = context.ask(&what, &Call::Diff(ask))?;
    if context.json() {
        let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
        print_json(&json!({
            "id": args.id,
            "before": row.before,
            "own_before": row.own_before,
            "after": row.after,
            "certain": row.doubt.is_none(),
            "why": row.doubt.as_ref().map(|doubt| &doubt.why),
            "pending": row.doubt.as_ref().map_or(&[][..], |doubt| &doubt.pending),
            "parent": row.parent,
            "overlaps": row.overlaps,
            "switches": row.switches,
            "changes": changes,
        }))?;
    } else {
        print_changes(&answer.changes, args.rows.nul)?;
    }
    Ok(0)
}

fn undo(args: &ToolUndoArgs, context: &mut Context) -> Result<u8, Failure> {
    let what = format!("cannot undo call {}", args.id);
    let (workspace, branch) = (context.workspace_to_change(None)?, context.branch()?);
    let call = Call::ToolUndo(ToolUndo {
        workspace: workspace.clone(),
        branch: branch.clone(),
        id: args.id,
        dry_run: args.dry_run,
    });
    let answer: ToolUndoAnswer = context.ask_with_bar(&what, &call, "merging")?;
    let failed = !answer.conflicts.is_empty();
    if context.json() {
        let conflicts: Vec<Value> = answer.conflicts.iter().map(conflict_object).collect();
        let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
        print_json(&json!({
            "commit": answer.commit.filter(|_| !failed),
            "replaced": answer.replaced,
            "files_changed": answer.files_changed,
            "conflicts": conflicts,
            "changes": changes,
        }))?;
        return Ok(if failed { FAILED } else { 0 });
    }
    if failed {
        conflict_rows(&answer.conflicts).print(args.rows.nul)?;
        let many = count(answer.conflicts.len() as u64, "conflict");
        let why = format!("{many} with later changes; nothing was changed");
        return Err(Failure::new(what, why)
            .kind("conflicts")
            .hint("agentvfs restore --ref COMMIT PATH restores single files"));
    }
    if args.dry_run {
        print_changes(&answer.changes, args.rows.nul)?;
        return Ok(0);
    }
    print(format!("{}\n", id_or_pending(answer.commit.as_deref())).as_bytes())?;
    talk(
        &match answer.replaced.is_some() || answer.files_changed > 0 {
            true => format!(
                "{}{} changed; `agentvfs undo` reverses it",
                place(&workspace, &branch, Directory::Mount, context),
                count(answer.files_changed, "file")
            ),
            false => format!("no change of call {} is left to undo", args.id),
        },
    );
    Ok(0)
}
