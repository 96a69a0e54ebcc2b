//! `agentvfs blame`.

mod lines;
mod screen;

use super::{Context, path_or_root};
use crate::cli::BlameArgs;
use crate::output::{Rows, print_json, warn};
use agentvfs_client::blame;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{BlameAnswer, BlamePath, BlameRow, Bytes, Call};
use agentvfs_client::render::insert_bytes;
use agentvfs_client::when::rfc3339;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Lists who changed a path.
pub fn run(args: &BlameArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let shown = agentvfs_client::quote::shown(args.path.as_os_str().as_encoded_bytes());
    let path = path_or_root(&args.path, &workspace, context)?;
    let call = Call::Blame(BlamePath {
        workspace: workspace.clone(),
        branch: context.branch()?,
        path: Bytes(path.clone()),
        limit: args.limit,
        no_follow: args.no_follow,
    });
    let answer: BlameAnswer = context.look(
        &format!("cannot determine who changed {shown}"),
        &call,
        "searching",
    )?;
    if args.lines {
        return lines::run(args, (&workspace, &path), &answer, context);
    }
    if context.json() {
        let items: Vec<Value> = answer.items.iter().map(blame_object).collect();
        print_json(&json!({
            "items": items,
            "unknown": answer.unknown,
            "calls": answer.calls,
            "commits": answer.commits,
            "more": answer.more,
        }))?;
        return Ok(0);
    }
    if std::io::stdout().is_terminal() && !args.rows.nul {
        screen::show(&answer.items, args.absolute)?;
    } else {
        let mut rows = Rows::new(&blame::COLUMNS);
        for item in &answer.items {
            rows.push(blame::cells(item));
        }
        rows.print(args.rows.nul)?;
    }
    for doubt in answer.items.iter().filter_map(blame::doubt) {
        warn(&doubt);
    }
    for note in [blame::uncalled(&shown, &answer), blame::unknown(&answer)] {
        note.iter().for_each(|note| warn(note));
    }
    Ok(0)
}

fn blame_object(item: &BlameRow) -> Value {
    let mut object = json!({
        "kind": item.kind,
        "id": item.call,
        "name": item.name,
        "time": rfc3339(item.time),
        "before": item.before,
        "after": item.after,
        "certain": item.overlaps.is_empty() && item.switches.is_empty(),
        "parent": item.parent,
        "overlaps": item.overlaps,
        "switches": item.switches,
        "change": item.change,
        "old_path": Value::Null,
        "branch": item.branch,
    });
    if let Some(object) = object.as_object_mut() {
        insert_bytes(object, "path", &item.path.0);
        if let Some(old) = &item.old_path {
            insert_bytes(object, "old_path", &old.0);
        }
    }
    object
}
