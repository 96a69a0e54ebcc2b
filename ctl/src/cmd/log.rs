//! `agentvfs workspace log`.

mod graph;

use super::{Context, id_or_pending};
use crate::cli::LogArgs;
use crate::output::{Rows, print, print_json};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Log, LogAnswer, LogRow};
use agentvfs_client::quote::shown;
use agentvfs_client::render::short;
use agentvfs_client::when::{rfc3339, rfc3339_seconds};
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
    };
    let to_person = std::io::stdout().is_terminal() && !args.rows.nul;
    let is_graph = to_person && !args.no_graph && !args.oneline;
    if (args.graph || is_graph) && !context.json() {
        graph::draw(args, &mut ask, context)?;
        return Ok(0);
    }
    let commits = fetch(&ask, context)?;
    if context.json() {
        print_json(&json!({ "commits": commits.iter().map(object).collect::<Vec<_>>() }))?;
    } else if args.oneline {
        print(one_lines(&commits).as_bytes())?;
    } else {
        let rows = match to_person {
            true => rows_for_person(&commits),
            false => rows(&commits),
        };
        rows.print(args.rows.nul)?;
    }
    Ok(0)
}

fn fetch(ask: &Log, context: &mut Context) -> Result<Vec<LogRow>, Failure> {
    let what = format!("cannot show the log of {}", ask.workspace);
    let answer: LogAnswer = context.ask(&what, &Call::Log(ask.clone()))?;
    Ok(answer.commits)
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

/// The same for a person, who sees which one is the head, and gets all labels, the beginning of an id,
/// seconds, and a message's first line.
fn rows_for_person(commits: &[LogRow]) -> Rows {
    let mut rows = Rows::new(&["", "COMMIT", "TIME", "LABELS", "MESSAGE"]);
    for row in commits {
        let id = short(id_or_pending(row.commit.as_deref()));
        let time = rfc3339_seconds(row.time);
        let labels = match row.labels.as_slice() {
            [] => "-".to_owned(),
            labels => labels.join(", "),
        };
        let message = row.message.lines().next().unwrap_or("");
        let mark = if row.head { "@" } else { "" };
        rows.push(vec![
            mark.into(),
            id.into(),
            time.into(),
            labels.into(),
            message.into(),
        ]);
    }
    rows
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
