//! What happened when: a row for each call with a bar over time, so that one sees which of them overlapped.
//!
//! Time is drawn to order, not to scale: between two moments at which a call began or ended lies at least one column
//! as long as there are enough of them, and longer stretches get more. Invariant: two bars share a column if the calls
//! overlapped, and where there are enough columns only then.

use crate::ago::when;
use crate::columns::{Cell, Side, cell, columns, width};
use crate::line::{Paint, Style, fit};
use agentvfs_client::protocol::Moment;
use agentvfs_client::quote::shown;

/// Columns that bars have at least; on a terminal with less there are none.
const BARS_MIN: usize = 8;
/// Columns that a narrow terminal has no room for beside bars: when a call began, how long it took, how it ended.
const LEFT_OUT: [usize; 3] = [4, 3, 2];
/// Columns that bars have at most.
const BARS_MAX: usize = 100;
/// Columns of a name at most.
const NAME_MAX: usize = 24;

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has not.
    Not,
    /// Well.
    Well,
    /// It failed.
    Failed,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// What names it.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// How it ended.
    pub ended: Ended,
    /// The word for that.
    pub status: String,
    /// How long it took, as it is shown.
    pub took: String,
    /// The branch, where that is shown.
    pub branch: String,
    /// When it began.
    pub from: Moment,
    /// When it ended; now, if it has not.
    pub to: Moment,
}

/// Draws them, in the order in which they come.
pub fn spans(all: &[Span], style: Style) -> String {
    let mut rows: Vec<Vec<Cell>> = vec![header(all)];
    rows.extend(all.iter().map(|span| facts(span, style)));
    let left = make_room(&mut rows, style.width).min(BARS_MAX);
    if left >= BARS_MIN {
        let axis = Axis::new(all, left);
        rows[0].push(cell(Paint::Dim, "OVER TIME"));
        for (row, span) in rows[1..].iter_mut().zip(all) {
            row.push(bar(span, &axis, style));
        }
    }
    let sides = [
        Side::Right,
        Side::Left,
        Side::Left,
        Side::Right,
        Side::Left,
        Side::Left,
        Side::Left,
    ];
    columns(&rows, &sides, style)
}

fn header(all: &[Span]) -> Vec<Cell> {
    let branch = match all.iter().all(|span| span.branch.is_empty()) {
        true => "",
        false => "BRANCH",
    };
    let titles = ["ID", "TOOL", "STATUS", "TOOK", "STARTED", branch];
    titles.map(|title| cell(Paint::Dim, title)).into()
}

fn facts(span: &Span, style: Style) -> Vec<Cell> {
    let status = match span.ended {
        Ended::Well => Paint::Added,
        Ended::Failed => Paint::Removed,
        Ended::Not => Paint::Label,
    };
    let name = [(Paint::Plain, shown(span.name.as_bytes()))];
    let name = fit(&name, NAME_MAX, style);
    vec![
        cell(Paint::Id, span.id.clone()),
        cell(Paint::Plain, name),
        cell(status, span.status.clone()),
        cell(Paint::Plain, span.took.clone()),
        cell(Paint::Time, when(span.from, style)),
        cell(Paint::Branch, shown(span.branch.as_bytes())),
    ]
}

/// Leaves out columns until there is room for bars, where that helps; gives how much there is.
fn make_room(rows: &mut Vec<Vec<Cell>>, width: usize) -> usize {
    let mut narrower = rows.clone();
    for column in LEFT_OUT {
        let left = width.saturating_sub(taken(&narrower));
        if left >= BARS_MIN {
            *rows = narrower;
            return left;
        }
        narrower.iter_mut().for_each(|row| row[column].clear());
    }
    let left = width.saturating_sub(taken(&narrower));
    if left >= BARS_MIN {
        *rows = narrower;
    }
    left
}

/// Columns that these take, with the space before a further one.
fn taken(rows: &[Vec<Cell>]) -> usize {
    let many = rows.first().map_or(0, Vec::len);
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
    let widths = (0..many).map(widest).filter(|width| *width > 0);
    widths.map(|width| width + 2).sum()
}

fn bar(span: &Span, axis: &Axis, style: Style) -> Cell {
    let (mark, end) = match (style.unicode, span.ended) {
        (true, Ended::Not) => ("█", "▒"),
        (true, _) => ("█", "█"),
        (false, Ended::Not) => ("#", ">"),
        (false, _) => ("#", "#"),
    };
    let (from, to) = axis.columns_of(span);
    let paint = match span.ended {
        Ended::Failed => Paint::Removed,
        _ => Paint::Time,
    };
    vec![
        (Paint::Plain, " ".repeat(from)),
        (paint, format!("{}{end}", mark.repeat(to - from - 1))),
    ]
}

/// Moments at which something began or ended, with the columns at which they are drawn.
struct Axis(Vec<(i128, usize)>);

impl Axis {
    fn new(all: &[Span], width: usize) -> Axis {
        let mut moments: Vec<i128> = all
            .iter()
            .flat_map(|span| [nanos(span.from), end_of(span)])
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let lengths = moments.windows(2).map(|pair| weight(pair[1] - pair[0]));
        let lengths: Vec<f64> = lengths.collect();
        let total: f64 = lengths.iter().sum();
        // The last column is for what begins and ends in the last moment.
        let least = usize::from(lengths.len() < width);
        let spare = (width - 1).saturating_sub(least * lengths.len()) as f64;
        let (mut passed, mut at) = (0.0, vec![0]);
        for (n, length) in lengths.iter().enumerate() {
            passed += length;
            at.push(least * (n + 1) + (spare * passed / total).floor() as usize);
        }
        Axis(moments.into_iter().zip(at).collect())
    }

    /// The first column of a bar, and the one after its last.
    fn columns_of(&self, span: &Span) -> (usize, usize) {
        let column = |moment: i128| {
            let found = self.0.binary_search_by_key(&moment, |(at, _)| *at);
            found.map_or(0, |at| self.0[at].1)
        };
        let from = column(nanos(span.from));
        (from, column(end_of(span)).max(from + 1))
    }
}

/// How much room a stretch of time gets: by the number of its digits, so that a second is seen beside an hour.
fn weight(nanos: i128) -> f64 {
    (1.0 + nanos as f64 / 1e6).ln() + 0.1
}

fn nanos(moment: Moment) -> i128 {
    i128::from(moment.sec) * 1_000_000_000 + i128::from(moment.nsec)
}

/// What took no time is drawn all the same.
fn end_of(span: &Span) -> i128 {
    nanos(span.to).max(nanos(span.from) + 1)
}
