//! `agentvfs workspace diff --patch` and `--stat`.

use super::Context;
use super::changes::change_object;
use crate::output::{Rows, colour_wanted, print_json, talk, warn};
use crate::pager::Pager;
use crate::spool::Spool;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Changed, Diff, DiffAnswer, LineCount, PatchAnswer};
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value, json};
use std::io::{BufRead, IsTerminal, Write};

/// Prints what differs as a patch, on a terminal through a pager.
pub fn patch(ask: Diff, what: &str, context: &mut Context) -> Result<u8, Failure> {
    let mut spool = Spool::new();
    let answer: PatchAnswer = context.ask_data(what, &Call::Patch(ask), &mut |bytes| {
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
        show(text)?;
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

fn show(text: impl BufRead) -> Result<(), Failure> {
    let colour = colour_wanted();
    let mut pager = Pager::open();
    let mut in_head = true;
    for line in text.split(b'\n') {
        let line = line?;
        in_head = match line.as_slice() {
            [b'd', b'i', b'f', b'f', ..] => true,
            [b'@', b'@', ..] => false,
            _ => in_head,
        };
        let paint = colour.then(|| paint(&line, in_head)).flatten();
        let written = match paint {
            Some(code) => pager.write_all(
                &[
                    b"\x1b[".as_slice(),
                    code.as_bytes(),
                    b"m",
                    &line,
                    b"\x1b[0m\n",
                ]
                .concat(),
            ),
            None => pager.write_all(&[&line[..], b"\n"].concat()),
        };
        if written.is_err() {
            // Whoever reads has had enough.
            break;
        }
    }
    pager.finish();
    Ok(())
}

fn paint(line: &[u8], in_head: bool) -> Option<&'static str> {
    match (line.first()?, in_head) {
        (_, true) => Some("1"),
        (b'@', _) => Some("36"),
        (b'+', _) => Some("32"),
        (b'-', _) => Some("31"),
        _ => None,
    }
}

/// Prints how many lines each change added and removed.
pub fn stat(ask: Diff, what: &str, nul: bool, context: &mut Context) -> Result<u8, Failure> {
    let answer: DiffAnswer = context.ask(what, &Call::Diff(Diff { stat: true, ..ask }))?;
    if context.json() {
        let changes: Vec<Value> = answer.changes.iter().map(stat_object).collect();
        print_json(&json!({ "changes": changes }))?;
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
