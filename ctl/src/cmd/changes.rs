//! Changes as the commands print them.

use crate::output::{Rows, print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::Changed;
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use agentvfs_picture::{Cell, Paint, Side, Style, cell, columns};
use serde_json::{Map, Value};
use std::io::IsTerminal;

/// Prints changes as rows: the status and the path, of a renamed one old and new path.
pub fn print_changes(changes: &[Changed], nul: bool) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() && !nul {
        return print(table(changes, stdout_style()).as_bytes());
    }
    let mut rows = Rows::new(&["STATUS", "PATH"]);
    for change in changes {
        push_change(&mut rows, change);
    }
    rows.print(nul)
}

/// Adds a change as a row.
fn push_change(rows: &mut Rows, change: &Changed) {
    let mut cells = vec![change.status.to_string().into_bytes()];
    cells.extend(change.old_path.iter().map(|path| path.0.clone()));
    cells.push(change.path.0.clone());
    rows.push(cells);
}

/// A table in colours. Paths are never cut: people copy them.
fn table(changes: &[Changed], style: Style) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let style = Style {
        width: usize::MAX,
        ..style
    };
    let header = ["STATUS", "PATH"].map(|title| cell(Paint::Dim, title));
    let row = |change: &Changed| -> Vec<Cell> {
        let paint = match change.status {
            'A' => Paint::Added,
            'D' => Paint::Removed,
            'M' => Paint::Label,
            _ => Paint::Time,
        };
        let path = shown(&change.path.0);
        let path = match &change.old_path {
            Some(old) => format!("{} -> {path}", shown(&old.0)),
            None => path,
        };
        vec![
            cell(paint, change.status.to_string()),
            cell(Paint::Plain, path),
        ]
    };
    let rows: Vec<Vec<Cell>> = std::iter::once(header.into())
        .chain(changes.iter().map(row))
        .collect();
    columns(&rows, &[Side::Left; 2], style)
}

/// A change as JSON.
pub fn change_object(change: &Changed) -> Value {
    let mut object = Map::new();
    object.insert("status".into(), change.status.to_string().into());
    insert_bytes(&mut object, "path", &change.path.0);
    if let Some(old) = &change.old_path {
        insert_bytes(&mut object, "old_path", &old.0);
    }
    Value::Object(object)
}
