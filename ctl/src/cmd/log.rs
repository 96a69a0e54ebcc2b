//! `agentvfs workspace log`.

mod calls;
mod graph;
pub mod pages;

use super::{Context, id_or_pending};
use crate::cli::LogArgs;
use crate::output::{JsonList, Rows, absolute, print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Log, LogRow};
use agentvfs_client::quote::shown;
use agentvfs_client::render::short;
use agentvfs_client::when::rfc3339;
use agentvfs_picture::{Cell, Columns, Paint, Side, Style, cell, fit, id_cell, when};
use pages::each_page;
use serde_json::{Map, Value, json};
use std::io::IsTerminal;

/// Prints the commits of a branch.
pub fn run(args: &LogArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(args.name.as_deref())?;
    let mut ask = Log {
        workspace,
        branch: context.branch()?,
        all: args.all,
        limit: args.limit,
        after: None,
        digits: false,
        count: false,
    };
    let to_person = std::io::stdout().is_terminal() && !args.rows.nul;
    let is_graph = to_person && !args.no_graph && !args.oneline;
    if (args.graph || is_graph) && !context.json() {
        graph::draw(args, &mut ask, context)?;
        return Ok(0);
    }
    if context.json() {
        let mut list = JsonList::new("commits");
        each_page(&ask, context, &mut |commits, _| {
            list.print(commits.iter().map(object))?;
            Ok(true)
        })?;
        list.finish()?;
        return Ok(0);
    }
    ask.digits = to_person;
    let style = style_of(args);
    let mut table = Columns::new(&[Side::Left; 5], style);
    let mut is_first = true;
    each_page(&ask, context, &mut |commits, _| {
        match (args.oneline, to_person) {
            (true, true) => print(one_lines_for_person(&commits, style).as_bytes())?,
            (true, false) => print(one_lines(&commits).as_bytes())?,
            (false, true) => {
                let header = is_first.then(titles);
                let rows: Vec<Vec<Cell>> =
                    header.into_iter().chain(cells(&commits, style)).collect();
                print(table.page(&rows).as_bytes())?;
                is_first = false;
            }
            (false, false) => rows(&commits).print(args.rows.nul)?,
        }
        Ok(true)
    })?;
    Ok(0)
}

/// How it is drawn: times ago on a terminal, unless they are wanted in full.
fn style_of(args: &LogArgs) -> Style {
    match args.absolute {
        true => absolute(stdout_style()),
        false => stdout_style(),
    }
}

/// Rows: four columns, of several labels the newest.
fn rows(commits: &[LogRow]) -> Rows {
    let mut rows = Rows::new(&["COMMIT", "TIME", "LABEL", "MESSAGE"]);
    for row in commits {
        let id = id_or_pending(row.commit.as_deref());
        let time = rfc3339(row.time);
        let label = row.labels.first().map_or("-", String::as_str);
        let message = row.message.as_str();
        rows.push(vec![id.into(), time.into(), label.into(), message.into()]);
    }
    rows
}

/// What stands above the cells for a person.
fn titles() -> Vec<Cell> {
    let titles = ["", "COMMIT", "TIME", "LABELS", "MESSAGE"];
    titles.map(|title| cell(Paint::Dim, title)).into()
}

/// The same for a person, who sees which one is the head, and gets all labels, the digits of an id that name it,
/// and a message's first line.
fn cells(commits: &[LogRow], style: Style) -> impl Iterator<Item = Vec<Cell>> {
    commits.iter().map(move |row| {
        let labels = row.labels.join(", ");
        vec![
            cell(Paint::Branch, if row.head { "@" } else { "" }),
            id_of(row),
            cell(Paint::Time, when(row.time, style)),
            cell(Paint::Label, shown(labels.as_bytes())),
            cell(Paint::Plain, first_line(row)),
        ]
    })
}

fn id_of(row: &LogRow) -> Cell {
    match &row.commit {
        Some(id) => id_cell(id, row.digits),
        None => cell(Paint::Dim, "pending"),
    }
}

fn first_line(row: &LogRow) -> String {
    shown(row.message.lines().next().unwrap_or("").as_bytes())
}

/// One line for each commit, for a person: as [`one_lines`], in colours.
fn one_lines_for_person(commits: &[LogRow], style: Style) -> String {
    let line = |row: &LogRow| {
        let mut parts = id_of(row);
        if !row.labels.is_empty() {
            let labels = shown(row.labels.join(", ").as_bytes());
            parts.push((Paint::Label, format!(" ({labels})")));
        }
        parts.push((Paint::Plain, format!(" {}", first_line(row))));
        format!("{}\n", fit(&parts, style.width, style).trim_end())
    };
    commits.iter().map(line).collect()
}

/// One line for each commit: the beginning of its id, labels, the message's first line.
fn one_lines(commits: &[LogRow]) -> String {
    let line = |row: &LogRow| {
        let id = short(id_or_pending(row.commit.as_deref()));
        let labels = match row.labels.as_slice() {
            [] => String::new(),
            labels => format!(" ({})", labels.join(", ")),
        };
        let message = row.message.lines().next().unwrap_or("");
        let space = if message.is_empty() { "" } else { " " };
        format!("{id}{labels}{space}{}\n", shown(message.as_bytes()))
    };
    commits.iter().map(line).collect()
}

fn object(row: &LogRow) -> Value {
    let meta: Map<String, Value> = row
        .meta
        .iter()
        .map(|(key, value)| (key.clone(), value.clone().into()))
        .collect();
    json!({
        "commit": row.commit,
        "time": rfc3339(row.time),
        "label": row.labels.first(),
        "labels": row.labels,
        "message": row.message,
        "meta": meta,
        "automatic": row.automatic,
        "head": row.head,
        "current": row.head,
        "parents": row.parents,
        "kind": row.kind,
    })
}
