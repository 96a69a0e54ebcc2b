//! How many lines changed in which file, as bars.

use crate::columns::{Cell, Side, cell, columns, width};
use crate::line::{Paint, Style, fit};
use agentvfs_client::protocol::Changed;
use agentvfs_client::quote::shown;

/// Columns that are drawn on where there is no terminal.
const WIDTH_ELSEWHERE: usize = 80;
/// Columns of a bar at most.
const BAR_MAX: usize = 60;
/// Columns of a bar at least; paths are cut for them.
const BAR_MIN: usize = 10;

/// Draws a row for each change and a line with their sums.
pub fn histogram(changes: &[Changed], style: Style) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let style = match style.width {
        usize::MAX => Style {
            width: WIDTH_ELSEWHERE,
            ..style
        },
        _ => style,
    };
    let counts: Vec<Cell> = changes.iter().map(count).collect();
    let widest = counts.iter().map(width).max().unwrap_or(0);
    let room = style.width.saturating_sub(widest + 4);
    let path_max = room.saturating_sub(BAR_MIN).max(BAR_MIN);
    let paths: Vec<Cell> = changes.iter().map(|c| path(c, path_max, style)).collect();
    let path_most = paths.iter().map(width).max().unwrap_or(0);
    let bar_max = room.saturating_sub(path_most).clamp(1, BAR_MAX);
    let most = changes.iter().map(lines_of).max().unwrap_or(0);
    let rows = paths.into_iter().zip(counts).zip(changes);
    let rows = rows.map(|((path, count), change)| vec![path, count, bar(change, most, bar_max)]);
    let rows: Vec<Vec<Cell>> = rows.collect();
    let drawn = columns(&rows, &[Side::Left, Side::Right, Side::Left], style);
    format!("{drawn}{}\n", fit(&sums(changes), style.width, style))
}

/// Lines that a change added and removed; none of a binary file.
fn lines(change: &Changed) -> Option<(u64, u64)> {
    let lines = change.lines.filter(|lines| !lines.binary)?;
    Some((lines.added, lines.removed))
}

fn lines_of(change: &Changed) -> u64 {
    lines(change).map_or(0, |(added, removed)| added + removed)
}

fn count(change: &Changed) -> Cell {
    match lines(change) {
        Some((added, removed)) => cell(Paint::Plain, (added + removed).to_string()),
        None => cell(Paint::Dim, "binary"),
    }
}

fn path(change: &Changed, most: usize, style: Style) -> Cell {
    let new = shown(&change.path.0);
    let text = match &change.old_path {
        Some(old) => format!("{} -> {new}", shown(&old.0)),
        None => new,
    };
    let all = cell(Paint::Plain, text);
    let over = width(&all).saturating_sub(most);
    if over == 0 {
        return all;
    }
    // The end of a path says most.
    let start = if style.unicode { "…" } else { "~" };
    let mut rest: &str = &all[0].1;
    while width(&cell(Paint::Plain, rest)) + 1 > most {
        let mut letters = rest.chars();
        if letters.next().is_none() {
            break;
        }
        rest = letters.as_str();
    }
    cell(Paint::Plain, format!("{start}{rest}"))
}

fn bar(change: &Changed, most: u64, width: usize) -> Cell {
    let Some((added, removed)) = lines(change) else {
        return Vec::new();
    };
    let long = |part: u64| match most as usize <= width {
        true => part as usize,
        // What is there is seen, however little it is.
        false => ((part as f64 / most as f64 * width as f64) as usize).max(usize::from(part > 0)),
    };
    vec![
        (Paint::Added, "+".repeat(long(added))),
        (Paint::Removed, "-".repeat(long(removed))),
    ]
}

fn sums(changes: &[Changed]) -> Cell {
    let all = changes.iter().filter_map(lines);
    let (added, removed) = all.fold((0, 0), |sum, (a, r)| (sum.0 + a, sum.1 + r));
    let of = |number: u64, what: &str| agentvfs_client::render::count(number, what);
    let text = format!(
        "{}, {} added, {} removed",
        of(changes.len() as u64, "path"),
        of(added, "line"),
        of(removed, "line")
    );
    cell(Paint::Dim, text)
}
