//! Facts and tables whose columns fit the terminal, and bars.

use crate::line::{Paint, Style, fit};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a bar.
const BAR_COLUMNS: usize = 20;

/// Columns that a fact needs to be wrapped; with less it is cut off.
const WRAP_MIN: usize = 16;

/// Facts: what they are about, then the fact, which goes on in further lines where the terminal is narrow.
pub fn facts(rows: &[(&str, String)], style: Style) -> String {
    let widest = rows.iter().map(|(key, _)| key.width()).max().unwrap_or(0);
    let left = style.width.saturating_sub(widest + 2);
    let mut text = String::new();
    for (key, fact) in rows {
        let lines = match left >= WRAP_MIN {
            true => wrapped(fact, left),
            false => vec![fact.clone()],
        };
        for (at, line) in lines.into_iter().enumerate() {
            let key = if at == 0 { key } else { "" };
            let key = format!("{key:<widest$}  ");
            let parts = [(Paint::Dim, key), (Paint::Plain, line)];
            text.push_str(&fit(&parts, style.width, style));
            text.push('\n');
        }
    }
    text
}

/// Lines of at most `width` columns; a word that is longer, such as a path, is divided anywhere.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = &mut lines[0];
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.insert(0, String::new());
        } else if !line.is_empty() {
            line.push(' ');
        }
        for letter in word.chars() {
            if lines[0].width() + letter.width().unwrap_or(0) > width {
                lines.insert(0, String::new());
            }
            lines[0].push(letter);
        }
    }
    lines.reverse();
    lines
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
