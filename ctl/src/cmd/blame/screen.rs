//! `blame` on a terminal: who changed a path, in columns that fit.

use crate::output::{absolute, print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::BlameRow;
use agentvfs_client::quote::shown;
use agentvfs_client::render::short;
use agentvfs_picture::{Cell, Paint, Side, Style, cell, columns, leave_out, when};

/// What stands above the columns.
const TITLES: [&str; 8] = [
    "TIME", "KIND", "ID", "NAME", "COMMIT", "CHANGE", "OLD PATH", "BRANCH",
];
/// Columns that a narrow terminal has no room for: the commit, the branch, the kind of change.
const LEFT_OUT: [usize; 3] = [4, 7, 5];

/// Prints it.
pub fn show(items: &[BlameRow], in_full: bool) -> Result<(), Failure> {
    if items.is_empty() {
        return Ok(());
    }
    let style = match in_full {
        true => absolute(stdout_style()),
        false => stdout_style(),
    };
    let header = TITLES.map(|title| cell(Paint::Dim, title));
    let mut rows = vec![Vec::from(header)];
    rows.extend(items.iter().map(|item| cells(item, style)));
    for column in 0..TITLES.len() {
        if rows[1..].iter().all(|row| row[column].is_empty()) {
            rows[0][column].clear();
        }
    }
    leave_out(&mut rows, &LEFT_OUT, style.width);
    print(columns(&rows, &[Side::Left; TITLES.len()], style).as_bytes())
}

fn cells(item: &BlameRow, style: Style) -> Vec<Cell> {
    let told = |paint, text: Option<String>| text.map_or(Cell::new(), |text| cell(paint, text));
    let name = item.name.lines().next().filter(|name| !name.is_empty());
    let change = match item.change.as_str() {
        "added" => Paint::Added,
        "deleted" => Paint::Removed,
        _ => Paint::Plain,
    };
    let old_path = item.old_path.as_ref().map(|path| shown(&path.0));
    vec![
        cell(Paint::Time, when(item.time, style)),
        cell(Paint::Plain, item.kind.clone()),
        told(Paint::Id, item.call.map(|id| id.to_string())),
        told(Paint::Label, name.map(|name| shown(name.as_bytes()))),
        cell(Paint::Id, short(&item.after)),
        cell(change, item.change.clone()),
        told(Paint::Plain, old_path),
        told(
            Paint::Branch,
            item.branch.as_ref().map(|branch| shown(branch.as_bytes())),
        ),
    ]
}
