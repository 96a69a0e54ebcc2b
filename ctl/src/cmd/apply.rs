//! `agentvfs workspace apply` and `update`.

use super::Context;
use super::branch::{conflict_object, conflict_rows, tell_merge};
use super::changes::{change_object, print_changes};
use super::place::{Directory, place};
use crate::cli::{ApplyArgs, ConflictsArg, UpdateArgs};
use crate::output::{Bar, print_json, talk, warn};
use crate::spool::Spool;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Apply, ApplyAnswer, Bytes, Call, Update};
use agentvfs_client::quote::{shown, some_paths};
use agentvfs_client::render::{count, insert_bytes};
use serde_json::{Map, Value};
use std::path::Path;

/// Writes a branch's changes to the project's directory.
pub fn apply(args: &ApplyArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(args.name.as_deref())?;
    let branch = context.branch()?;
    let what = format!("cannot apply {branch} of {workspace}");
    let of = (workspace.clone(), branch.clone());
    let ask = Apply {
        workspace,
        branch,
        dry_run: args.dry_run,
        privileged: args.privileged,
        trust: args.trust,
        progress: Bar::is_wanted(),
    };
    let answer: ApplyAnswer = match &args.patch {
        Some(file) => patch(&what, ask, file, context)?,
        None => context.ask_cancellable(&what, &Call::Apply(ask), "applying", &mut |_| {})?,
    };
    let failed = !answer.conflicts.is_empty();
    if context.json() {
        print_json(&object(&answer))?;
        return Ok(u8::from(failed));
    }
    if failed {
        conflict_rows(&answer.conflicts).print(args.rows.nul)?;
        let many = count(answer.conflicts.len() as u64, "conflict");
        let hint = "agentvfs update --conflicts keep merges them into the branch, where \
            agentvfs branch resolve resolves them";
        return Err(Failure::new(what, format!("{many}; nothing was done"))
            .kind("conflicts")
            .hint(hint));
    }
    if args.patch.is_none() {
        print_changes(&answer.changes, args.rows.nul)?;
    }
    let place = place(&of.0, &of.1, Directory::Base, context);
    tell(&answer, args, &place);
    Ok(0)
}

fn tell(answer: &ApplyAnswer, args: &ApplyArgs, place: &str) {
    let why = match args.patch {
        Some(_) => "not in the patch",
        None => "skipped, it cannot be read",
    };
    for path in &answer.left_out {
        warn(&format!("{why}: {}", shown(&path.0)));
    }
    if args.dry_run && !args.trust && !answer.untrusted.is_empty() {
        let paths = some_paths(answer.untrusted.iter().map(|path| path.0.as_slice()));
        warn(&format!(
            "{paths}: would be applied with --trust only, as these run by themselves"
        ));
    }
    if answer.changes.is_empty() {
        talk(&format!("{place}nothing to apply"));
    } else if !args.dry_run && args.patch.is_none() {
        talk(&format!(
            "{place}{} applied; agentvfs restore --ref {} --to DIR PATH… writes the replaced files",
            count(answer.changes.len() as u64, "change"),
            answer.before.get(..12).unwrap_or_default()
        ));
    }
}

/// Has the changes written to a file as a patch.
fn patch(
    what: &str,
    ask: Apply,
    file: &Path,
    context: &mut Context,
) -> Result<ApplyAnswer, Failure> {
    let mut spool = Spool::new();
    let call = Call::ApplyPatch(ask);
    let take = &mut |bytes: &[u8]| spool.push(bytes);
    let answer: ApplyAnswer = context.ask_cancellable(what, &call, "comparing", take)?;
    if !answer.conflicts.is_empty() {
        return Ok(answer);
    }
    let kept = |e: std::io::Error| Failure::new(what, format!("cannot store the patch: {e}"));
    let mut text = spool.rewind().map_err(kept)?;
    if file == Path::new("-") {
        std::io::copy(&mut text, &mut std::io::stdout().lock())?;
        return Ok(answer);
    }
    let at = |e: std::io::Error| Failure::new(what, format!("{}: {e}", file.display()));
    let mut out = std::fs::File::create(file).map_err(at)?;
    std::io::copy(&mut text, &mut out).map_err(at)?;
    Ok(answer)
}

fn object(answer: &ApplyAnswer) -> Value {
    let mut object = Map::new();
    object.insert("status".into(), answer.status.clone().into());
    let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
    object.insert("changes".into(), changes.into());
    let conflicts: Vec<Value> = answer.conflicts.iter().map(conflict_object).collect();
    object.insert("conflicts".into(), conflicts.into());
    object.insert("left_out".into(), path_objects(&answer.left_out));
    object.insert("untrusted".into(), path_objects(&answer.untrusted));
    object.insert("before".into(), answer.before.clone().into());
    Value::Object(object)
}

fn path_objects(paths: &[Bytes]) -> Value {
    let object = |path: &Bytes| {
        let mut object = Map::new();
        insert_bytes(&mut object, "path", &path.0);
        Value::Object(object)
    };
    paths.iter().map(object).collect()
}

/// Brings what was changed in the project's directory into a branch.
pub fn update(args: &UpdateArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(args.name.as_deref())?;
    let branch = context.branch()?;
    let what = format!("cannot update {branch} of {workspace}");
    let of = (workspace.clone(), branch.clone());
    let call = Call::Update(Update {
        workspace,
        branch,
        keep_conflicts: args.conflicts == ConflictsArg::Keep,
        dry_run: args.dry_run,
        progress: Bar::is_wanted(),
    });
    let how = (args.dry_run, args.rows.nul);
    tell_merge(&what, &call, (&of.0, &of.1), context, how)
}
