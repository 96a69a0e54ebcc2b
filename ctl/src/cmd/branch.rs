//! `agentvfs branch`.

mod screen;

use super::changes::{change_object, print_changes};
use super::place::{Directory, place, told};
use super::{Context, id_or_pending, paths};
use crate::cli::{
    BranchDiffArgs, BranchVerb, ConflictsArg, ConflictsArgs, CreateArgs, DailyBranchVerb,
    ListBranchesArgs, MergeArgs, ResolveArgs,
};
use crate::output::{Facts, Rows, bar, print, print_json, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::*;
use agentvfs_client::render::{count, insert_bytes};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Exit status where there are conflicts.
const CONFLICTS: u8 = 1;

/// Runs a verb.
pub fn run(verb: BranchVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        BranchVerb::Create(args) => create(args, context),
        BranchVerb::List(args) => list(&args, context),
        BranchVerb::Delete(args) => delete(args.name, context),
        BranchVerb::Rename(args) => rename(args.name, args.new, context),
        BranchVerb::Daily(verb) => daily(verb, context),
        BranchVerb::Conflicts(args) => conflicts(args, context),
        BranchVerb::Resolve(args) => resolve(&args, context),
        BranchVerb::Diff(args) => diff(args, context),
    }
}

/// Runs a verb that needs no `branch` before it.
pub fn daily(verb: DailyBranchVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        DailyBranchVerb::Merge(args) => merge(args, context),
        DailyBranchVerb::Switch(args) => switch(&args.name, context),
    }
}

/// Prints where a branch is seen, and on a terminal how to get there.
fn switch(name: &str, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let what = format!("cannot switch to {name}");
    let rows = branches(&workspace, false, &what, context)?;
    let row = rows
        .into_iter()
        .find(|row| row.name == name)
        .ok_or_else(|| {
            Failure::new(what.clone(), format!("{workspace} has no branch {name}"))
                .kind("no-such-branch")
                .hint(format!(
                    "`agentvfs branch create {name}` creates it, `agentvfs branch list` lists all"
                ))
        })?;
    let is_unmounted = context.info(&workspace)?.is_some_and(|info| info.unmounted);
    if is_unmounted {
        let why = format!("{workspace} runs without a mount");
        let hint = format!("agentvfs start {workspace} mounts it");
        return Err(Failure::new(what, why).kind("not-mounted").hint(hint));
    }
    if context.json() {
        print_json(&branch_object(&row))?;
        return Ok(0);
    }
    if std::io::stdout().is_terminal() {
        print(format!("{}\n", shown(&row.path)).as_bytes())?;
        talk(&format!(
            "each branch has its own directory: cd \"$(agentvfs switch {name})\""
        ));
    } else {
        print(&[&row.path.0[..], b"\n"].concat())?;
    }
    Ok(0)
}

fn branches(
    workspace: &str,
    standing: bool,
    what: &str,
    context: &mut Context,
) -> Result<Vec<BranchRow>, Failure> {
    let call = Call::BranchList(BranchList {
        workspace: workspace.to_owned(),
        standing,
    });
    let _bar = bar("comparing branches");
    let answer: BranchListAnswer = context.ask_seen(workspace, what, &call)?;
    Ok(answer.branches)
}

fn tell_branch(row: &BranchRow, json: bool) -> Result<u8, Failure> {
    let mut facts = Facts::default();
    facts.add("name", row.name.as_bytes());
    facts.line("commit", id_or_pending(row.commit.as_deref()).as_bytes());
    facts.json("commit", row.commit.clone());
    facts.add("path", &row.path.0);
    facts.print(json)?;
    Ok(0)
}

/// What was done to a branch, for a person.
fn of_branch(workspace: &str, row: &BranchRow, done: &str) -> String {
    let place = told(workspace, &row.name, Some(row.path.path()));
    format!("{place}{done}")
}

fn create(args: CreateArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let what = format!("cannot create branch {}", args.name);
    let call = Call::BranchCreate(BranchCreate {
        workspace: workspace.clone(),
        branch: context.branch()?,
        name: args.name,
        from: args.from,
    });
    let row: BranchRow = context.ask_seen(&workspace, &what, &call)?;
    tell_branch(&row, context.json())?;
    let reverse = format!("`agentvfs branch delete {}` deletes it", row.name);
    talk(&of_branch(&workspace, &row, &format!("created; {reverse}")));
    Ok(0)
}

fn list(args: &ListBranchesArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let to_person = std::io::stdout().is_terminal() && !args.rows.nul && !context.json();
    let all = branches(&workspace, to_person, "cannot list the branches", context)?;
    if to_person {
        screen::show(&all, &workspace, args.absolute, context)?;
        return Ok(0);
    }
    if context.json() {
        let rows: Vec<Value> = all.iter().map(branch_object).collect();
        print_json(&json!({ "branches": rows }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["NAME", "COMMIT", "PATH"]);
    for b in all {
        let id = id_or_pending(b.commit.as_deref());
        rows.push(vec![b.name.into(), id.into(), b.path.0]);
    }
    rows.print(args.rows.nul)?;
    Ok(0)
}

fn branch_object(b: &BranchRow) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), b.name.clone().into());
    object.insert("commit".into(), b.commit.clone().into());
    insert_bytes(&mut object, "path", &b.path.0);
    Value::Object(object)
}

/// Deletes a branch and tells its last commit.
pub fn delete(name: String, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let call = Call::BranchDelete(OnBranch {
        workspace: workspace.clone(),
        branch: name.clone(),
    });
    let what = format!("cannot delete branch {name}");
    let answer: BranchDeleteAnswer = context.ask(&what, &call)?;
    super::run::kept::forget(context.home(), &workspace, &name, false);
    let mut facts = Facts::default();
    facts.add("name", name.as_bytes());
    facts.add("commit", answer.commit.as_bytes());
    facts.json("only_here", answer.only_here);
    facts.print(context.json())?;
    let until = match answer.only_here {
        true => ", until gc removes its last commit, which no other branch has",
        false => "",
    };
    talk(&format!(
        "workspace {workspace}, branch {name}: deleted; \
         `agentvfs branch create {name} --from {}` recreates it{until}",
        &answer.commit[..answer.commit.len().min(12)]
    ));
    Ok(0)
}

fn rename(name: String, new: String, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let what = format!("cannot rename branch {name}");
    let call = Call::BranchRename(BranchRename {
        workspace: workspace.clone(),
        branch: name.clone(),
        name: new.clone(),
    });
    let row: BranchRow = context.ask_seen(&workspace, &what, &call)?;
    tell_branch(&row, context.json())?;
    let reverse = format!("`agentvfs branch rename {new} {name}` reverses it");
    talk(&of_branch(
        &workspace,
        &row,
        &format!("renamed from {name}; {reverse}"),
    ));
    Ok(0)
}

fn merge(args: MergeArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let into = match args.into {
        Some(into) => into,
        None => context.branch()?,
    };
    let what = format!("cannot merge {} into {into}", args.name);
    let of = (workspace.clone(), into.clone());
    let call = Call::BranchMerge(BranchMerge {
        workspace,
        from: args.name,
        into,
        keep_conflicts: args.conflicts == ConflictsArg::Keep,
        dry_run: args.dry_run,
        label: args.label,
        message: args.message.unwrap_or_default(),
        progress: crate::output::Bar::is_wanted(),
    });
    let nul = args.nul;
    let dry_run = args.dry_run;
    tell_merge(&what, &call, (&of.0, &of.1), context, (dry_run, nul))
}

/// Status of a merge that had nothing to bring.
const UP_TO_DATE: &str = "up-to-date";

/// Asks for a merge and tells what it did.
pub fn tell_merge(
    what: &str,
    call: &Call,
    (workspace, branch): (&str, &str),
    context: &mut Context,
    (dry_run, nul): (bool, bool),
) -> Result<u8, Failure> {
    let since = Instant::now();
    let answer: BranchMergeAnswer = context.ask_cancellable(what, call, "merging", &mut |_| {})?;
    let failed = !answer.conflicts.is_empty();
    if context.json() {
        let mut object = Map::new();
        object.insert("status".into(), answer.status.clone().into());
        object.insert("commit".into(), answer.commit.clone().into());
        let rows: Vec<Value> = answer.conflicts.iter().map(conflict_object).collect();
        object.insert("conflicts".into(), rows.into());
        object.insert("files_changed".into(), answer.files_changed.into());
        if dry_run {
            let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
            object.insert("changes".into(), changes.into());
        }
        print_json(&Value::Object(object))?;
        return Ok(if failed { CONFLICTS } else { 0 });
    }
    match &answer.commit {
        Some(id) => {
            print(format!("{id}\n").as_bytes())?;
            for c in &answer.conflicts {
                warn(&format!("conflict ({}): {}", c.kind, shown(&c.path)));
            }
            let place = place(workspace, branch, Directory::Mount, context);
            // There is nothing to undo but what was done before.
            if answer.status == UP_TO_DATE {
                talk(&format!("{place}{UP_TO_DATE}, nothing changed"));
                return Ok(0);
            }
            talk(&format!(
                "{place}{}, {} changed in {:.1?}; `agentvfs undo` reverses it",
                answer.status,
                count(answer.files_changed, "file"),
                since.elapsed()
            ));
        }
        None if failed => {
            conflict_rows(&answer.conflicts).print(nul)?;
            let many = count(answer.conflicts.len() as u64, "conflict");
            return Err(Failure::new(what, format!("{many}; nothing was changed"))
                .kind("conflicts")
                .hint("--conflicts keep commits them with markers; `agentvfs branch resolve` resolves them"));
        }
        None => {
            print_changes(&answer.changes, nul)?;
        }
    }
    Ok(if failed { CONFLICTS } else { 0 })
}

fn shown(path: &Bytes) -> String {
    agentvfs_client::quote::shown(&path.0)
}

/// Conflicts as rows.
pub fn conflict_rows(conflicts: &[ConflictRow]) -> Rows {
    let mut rows = Rows::new(&["KIND", "PATH"]);
    for c in conflicts {
        rows.push(vec![c.kind.clone().into(), c.path.0.clone()]);
    }
    rows
}

/// A conflict as JSON.
pub fn conflict_object(c: &ConflictRow) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "path", &c.path.0);
    object.insert("kind".into(), c.kind.clone().into());
    Value::Object(object)
}

fn conflicts(args: ConflictsArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let branch = match args.name {
        Some(name) => name,
        None => context.branch()?,
    };
    let call = Call::BranchConflicts(OnBranch { workspace, branch });
    let answer: ConflictsAnswer = context.ask("cannot list the conflicts", &call)?;
    if context.json() {
        let rows: Vec<Value> = answer.conflicts.iter().map(conflict_object).collect();
        print_json(&json!({ "conflicts": rows }))?;
    } else {
        conflict_rows(&answer.conflicts).print(args.rows.nul)?;
    }
    Ok(0)
}

fn resolve(args: &ResolveArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let path = match args.path.as_os_str().as_bytes() {
        // A key is no path: whatever is in it counts.
        key if key.starts_with(KV_CONFLICTS) => Bytes(key.to_vec()),
        _ => paths(std::slice::from_ref(&args.path), &workspace, context)?.remove(0),
    };
    let by = match (args.ours, args.theirs, args.base) {
        (true, ..) => Version::Ours,
        (_, true, _) => Version::Theirs,
        (.., true) => Version::Base,
        _ => Version::Working,
    };
    let what = format!("cannot resolve {}", shown(&path));
    let of = (workspace.clone(), context.branch()?);
    let call = Call::BranchResolve(BranchResolve {
        workspace,
        branch: of.1.clone(),
        path: path.clone(),
        by,
    });
    let answer: BranchResolveAnswer = context.ask(&what, &call)?;
    if context.json() {
        print_json(&json!({ "left": answer.left, "files_changed": answer.files_changed }))?;
    } else {
        print(format!("left={}\n", answer.left).as_bytes())?;
        talk(&format!(
            "{}{} resolved, {} left; `agentvfs undo` reverses it",
            place(&of.0, &of.1, Directory::Mount, context),
            shown(&path),
            count(answer.left, "conflict")
        ));
    }
    Ok(0)
}

fn diff(args: BranchDiffArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let what = format!("cannot compare {} with {}", args.from, args.to);
    let paths = paths(&args.path, &workspace, context)?;
    let call = Call::BranchDiff(BranchDiff {
        workspace,
        from: args.from,
        to: args.to,
        paths,
    });
    let answer: DiffAnswer = context.ask(&what, &call)?;
    if context.json() {
        let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
        print_json(&json!({ "changes": changes }))?;
    } else {
        print_changes(&answer.changes, args.rows.nul)?;
    }
    Ok(0)
}
