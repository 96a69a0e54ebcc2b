//! Columns of cells in several colours, which end where the terminal does.

use crate::line::{Paint, Style, fit};
use unicode_width::UnicodeWidthStr;

/// Space between two columns.
const GAP: usize = 2;

/// A cell: parts with their colours.
pub type Cell = Vec<(Paint, String)>;

/// Where the cells of a column end up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// They begin one below the other.
    Left,
    /// They end one below the other.
    Right,
}

/// A cell of one part.
pub fn cell(paint: Paint, text: impl Into<String>) -> Cell {
    vec![(paint, text.into())]
}

/// The digits of an id that name it, bright, and a few more, dim.
pub fn id_cell(id: &str, digits: Option<u32>) -> Cell {
    /// Digits that are shown at least.
    const SHOWN: usize = 8;
    /// Digits that are shown where it is not known how many name it.
    const SHOWN_UNKNOWN: usize = 12;
    let Some(digits) = digits else {
        return cell(Paint::Id, id.get(..SHOWN_UNKNOWN).unwrap_or(id));
    };
    let digits = usize::try_from(digits).unwrap_or(id.len()).min(id.len());
    let (unique, rest) = id.split_at_checked(digits).unwrap_or((id, ""));
    let more = SHOWN.saturating_sub(digits);
    let rest = rest.get(..more).unwrap_or(rest);
    vec![
        (Paint::Id, unique.to_owned()),
        (Paint::Dim, rest.to_owned()),
    ]
}

/// How many columns of a terminal a cell takes.
pub fn width(cell: &Cell) -> usize {
    cell.iter().map(|(_, text)| text_width(text)).sum()
}

/// How many columns of a terminal a text takes.
pub fn text_width(text: &str) -> usize {
    text.width()
}

/// Empties columns, in the order of `columns`, until the rows fit into so many columns of a terminal.
pub fn leave_out(rows: &mut [Vec<Cell>], columns: &[usize], room: usize) {
    for column in columns {
        let many = rows.first().map_or(0, Vec::len);
        let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
        let widths = (0..many).map(widest).filter(|width| *width > 0);
        let taken: usize = widths.map(|width| width + GAP).sum();
        if taken <= room.saturating_add(GAP) {
            return;
        }
        rows.iter_mut().for_each(|row| row[*column].clear());
    }
}

/// Rows of cells, one a line; a column that is empty in all rows is left out.
pub fn columns(rows: &[Vec<Cell>], sides: &[Side], style: Style) -> String {
    Columns::new(sides, style).page(rows)
}

/// The same for rows that come a page at a time: no column is narrower than it was on the pages before.
#[derive(Debug)]
pub struct Columns<'s> {
    sides: &'s [Side],
    style: Style,
    widths: Vec<usize>,
}

impl<'s> Columns<'s> {
    /// No rows yet.
    pub fn new(sides: &'s [Side], style: Style) -> Columns<'s> {
        let widths = vec![0; sides.len()];
        Columns {
            sides,
            style,
            widths,
        }
    }

    /// Draws further rows.
    pub fn page(&mut self, rows: &[Vec<Cell>]) -> String {
        for row in rows {
            for (most, cell) in self.widths.iter_mut().zip(row) {
                *most = (*most).max(width(cell));
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &[Cell]) -> String {
        let mut parts = Vec::new();
        let mut is_first = true;
        for ((cell, most), side) in row.iter().zip(&self.widths).zip(self.sides) {
            if *most == 0 {
                continue;
            }
            let gap = if is_first { 0 } else { GAP };
            is_first = false;
            let space = most - width(cell);
            let (before, after) = match side {
                Side::Left => (gap, space),
                Side::Right => (gap + space, 0),
            };
            parts.push((Paint::Plain, " ".repeat(before)));
            parts.extend(cell.iter().cloned());
            parts.push((Paint::Plain, " ".repeat(after)));
        }
        while parts.last().is_some_and(|(_, text)| text.trim().is_empty()) {
            parts.pop();
        }
        format!("{}\n", fit(&parts, self.style.width, self.style))
    }
}
