//! Facts and tables whose columns fit the terminal, and bars.

use crate::line::{Paint, Style, fit};
use unicode_width::UnicodeWidthStr;

/// Columns of a bar.
const BAR_COLUMNS: usize = 20;

/// Facts, one a line: what they are about, then the fact.
pub fn facts(rows: &[(&str, String)], style: Style) -> String {
    let widest = rows.iter().map(|(key, _)| key.width()).max().unwrap_or(0);
    let line = |(key, fact): &(&str, String)| {
        let key = format!("{key:<widest$}  ");
        let parts = [(Paint::Dim, key), (Paint::Plain, fact.clone())];
        format!("{}\n", fit(&parts, style.width, style))
    };
    rows.iter().map(line).collect()
}

/// A table: its first column begins at the left, the others end at the right, but for a last one without a title.
pub fn table(header: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut widths = vec![0; header.len()];
    for row in rows.iter().chain([&header]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let line = |row: &[String], paint: Paint| {
        let mut text = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let space = " ".repeat(width - cell.width());
            text.push_str(if at == 0 { "" } else { "  " });
            match at == 0 || header[at].is_empty() {
                true => text.extend([cell.as_str(), &space]),
                false => text.extend([space.as_str(), cell]),
            }
        }
        let parts = [(paint, text.trim_end().to_owned())];
        format!("{}\n", fit(&parts, style.width, style))
    };
    let body = rows.iter().map(|row| line(row, Paint::Plain));
    std::iter::once(line(&header, Paint::Dim))
        .chain(body)
        .collect()
}

/// How much of a whole a part is, as a bar.
pub fn share(part: u64, whole: u64, style: Style) -> String {
    let filled = match whole {
        0 => 0,
        whole => (part as f64 / whole as f64 * BAR_COLUMNS as f64).round() as usize,
    };
    let mark = if style.unicode { "█" } else { "#" };
    mark.repeat(filled.min(BAR_COLUMNS))
}
