//! `agentvfs workspace diff --patch` and `--stat`.

mod screen;

use super::Context;
use super::changes::change_object;
use crate::output::{Rows, print, print_json, stdout_style, talk, warn};
use crate::spool::Spool;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Changed, Diff, DiffAnswer, LineCount, PatchAnswer};
use agentvfs_client::render::insert_bytes;
use agentvfs_picture::histogram;
use serde_json::{Map, Value, json};
use std::io::IsTerminal;

/// Prints what differs as a patch, on a terminal through a pager.
pub fn patch(ask: Diff, what: &str, context: &mut Context) -> Result<u8, Failure> {
    let mut spool = Spool::new();
    let answer: PatchAnswer =
        context.ask_cancellable(what, &Call::Patch(ask), "comparing", &mut |bytes| {
            spool.push(bytes);
        })?;
    let mut text = spool
        .rewind()
        .map_err(|e| Failure::new(what, format!("cannot store the patch: {e}")))?;
    if context.json() {
        let mut bytes = Vec::new();
        text.read_to_end(&mut bytes)?;
        let mut object = Map::new();
        let changes: Vec<Value> = answer.changes.iter().map(change_object).collect();
        object.insert("changes".into(), changes.into());
        insert_bytes(&mut object, "patch", &bytes);
        let left_out = answer.left_out.iter().map(|path| {
            let mut object = Map::new();
            insert_bytes(&mut object, "path", &path.0);
            Value::Object(object)
        });
        object.insert("left_out".into(), left_out.collect());
        print_json(&Value::Object(object))?;
        return Ok(0);
    }
    if std::io::stdout().is_terminal() {
        screen::show(text)?;
    } else {
        std::io::copy(&mut text, &mut std::io::stdout().lock())?;
    }
    tell_left_out(&answer);
    Ok(0)
}

/// What a patch has no words for must not be missed.
fn tell_left_out(answer: &PatchAnswer) {
    for path in &answer.left_out {
        warn(&format!(
            "not in the patch: {} (an empty directory, a special file, or a change of attributes alone)",
            agentvfs_client::quote::shown(&path.0)
        ));
    }
}

/// Prints how many lines each change added and removed; with `bars`, and on a terminal, as bars.
pub fn stat(
    ask: Diff,
    what: &str,
    (nul, bars): (bool, bool),
    context: &mut Context,
) -> Result<u8, Failure> {
    let call = Call::Diff(Diff { stat: true, ..ask });
    let answer: DiffAnswer = context.ask_cancellable(what, &call, "comparing", &mut |_| {})?;
    if context.json() {
        let changes: Vec<Value> = answer.changes.iter().map(stat_object).collect();
        print_json(&json!({ "changes": changes }))?;
        return Ok(0);
    }
    if bars || (std::io::stdout().is_terminal() && !nul) {
        print(histogram(&answer.changes, stdout_style()).as_bytes())?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["ADDED", "REMOVED", "PATH"]);
    let mut total = (0, 0);
    for change in &answer.changes {
        let (added, removed) = match change.lines.filter(|lines| !lines.binary) {
            Some(lines) => {
                total = (total.0 + lines.added, total.1 + lines.removed);
                (lines.added.to_string(), lines.removed.to_string())
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let mut row = vec![added.into_bytes(), removed.into_bytes()];
        row.extend(change.old_path.iter().map(|path| path.0.clone()));
        row.push(change.path.0.clone());
        rows.push(row);
    }
    rows.print(nul)?;
    talk(&format!(
        "{}, {} added, {} removed",
        agentvfs_client::render::count(answer.changes.len() as u64, "path"),
        agentvfs_client::render::count(total.0, "line"),
        agentvfs_client::render::count(total.1, "line")
    ));
    Ok(0)
}

fn stat_object(change: &Changed) -> Value {
    let mut object = change_object(change);
    if let (Some(object), Some(lines)) = (object.as_object_mut(), change.lines) {
        object.extend(line_facts(lines));
    }
    object
}

fn line_facts(lines: LineCount) -> Map<String, Value> {
    let mut facts = Map::new();
    let counted = |number: u64| {
        if lines.binary {
            Value::Null
        } else {
            number.into()
        }
    };
    facts.insert("added".into(), counted(lines.added));
    facts.insert("removed".into(), counted(lines.removed));
    facts.insert("binary".into(), lines.binary.into());
    facts.insert("old_size".into(), lines.old_size.into());
    facts.insert("new_size".into(), lines.new_size.into());
    facts
}
