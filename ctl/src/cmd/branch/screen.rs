//! `branch list` on a terminal: which branch was made of which, how far apart they are, and who works where.

use crate::cmd::Context;
use crate::output::{absolute, print, stdout_style, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    BranchRow, BranchStanding, Bytes, Call, SessionList, SessionListAnswer,
};
use agentvfs_client::quote::shown;
use agentvfs_client::render::count;
use agentvfs_client::runs;
use agentvfs_picture::{Cell, Paint, Side, Style, cell, columns, id_cell, tree, when};
use std::collections::{BTreeMap, HashMap};

/// Prints it.
pub fn show(
    all: &[BranchRow],
    workspace: &str,
    in_full: bool,
    context: &mut Context,
) -> Result<(), Failure> {
    let style = match in_full {
        true => absolute(stdout_style()),
        false => stdout_style(),
    };
    let here = context.branch()?;
    let workers = workers(workspace, context)?;
    let mut rows = vec![header(all)];
    for twig in tree(&origins(all), style) {
        let row = &all[twig.at];
        let who = workers.get(&row.name).map_or(&[][..], Vec::as_slice);
        rows.push(cells(row, &twig.lines, row.name == here, who, style));
    }
    let sides = [
        Side::Left,
        Side::Left,
        Side::Left,
        Side::Right,
        Side::Right,
        Side::Left,
        Side::Left,
        Side::Left,
    ];
    print(columns(&rows, &sides, style).as_bytes())
}

/// Which row each branch comes from.
fn origins(all: &[BranchRow]) -> Vec<Option<usize>> {
    let by_name: HashMap<&str, usize> = all
        .iter()
        .enumerate()
        .map(|(at, row)| (row.name.as_str(), at))
        .collect();
    let origin = |row: &BranchRow| {
        let name = row.standing.as_ref()?.made_of.as_deref()?;
        by_name.get(name).copied()
    };
    all.iter().map(origin).collect()
}

fn header(all: &[BranchRow]) -> Vec<Cell> {
    let is_apart = |row: &BranchRow| row.standing.as_ref().is_some_and(|s| s.made_of.is_some());
    let (ahead, behind) = match all.iter().any(is_apart) {
        true => ("AHEAD", "BEHIND"),
        false => ("", ""),
    };
    let titles = ["", "BRANCH", "HEAD", ahead, behind, "CHANGED", "", ""];
    titles.map(|title| cell(Paint::Dim, title)).into()
}

fn cells(row: &BranchRow, lines: &str, is_here: bool, who: &[String], style: Style) -> Vec<Cell> {
    let name = (Paint::Branch, shown(row.name.as_bytes()));
    let standing = row.standing.as_ref();
    let head = match &row.commit {
        Some(id) => id_cell(id, standing.map(|s| s.digits)),
        None => cell(Paint::Dim, "pending"),
    };
    let apart = |of: fn(&BranchStanding) -> u64, paint| {
        let standing = standing.filter(|s| s.made_of.is_some());
        let number = standing.map_or(String::new(), |s| of(s).to_string());
        let paint = if number == "0" { Paint::Dim } else { paint };
        cell(paint, number)
    };
    let conflicts = match standing.map_or(0, |s| s.conflicts) {
        0 => Cell::new(),
        many => cell(Paint::Removed, count(many, "conflict")),
    };
    vec![
        cell(Paint::Branch, if is_here { "@" } else { "" }),
        vec![(Paint::Dim, lines.to_owned()), name],
        head,
        apart(|s| s.ahead, Paint::Added),
        apart(|s| s.behind, Paint::Removed),
        cell(
            Paint::Time,
            standing.map_or(String::new(), |s| when(s.changed, style)),
        ),
        conflicts,
        cell(Paint::Plain, who.join(", ")),
    ]
}

/// The commands in sandboxes and the sessions of a workspace, by branch.
fn workers(
    workspace: &str,
    context: &mut Context,
) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    match runs::alive(context.home()) {
        Ok(alive) => {
            for run in alive.into_iter().filter(|run| run.workspace == workspace) {
                let command = run.command.first().map(name_of).unwrap_or_default();
                found
                    .entry(run.branch)
                    .or_default()
                    .push(format!("{command} (run {})", run.run));
            }
        }
        Err(error) => warn(&format!("cannot look for runs: {error}")),
    }
    let call = Call::SessionList(SessionList {
        workspace: Some(workspace.to_owned()),
    });
    let answer: SessionListAnswer = context.ask("cannot list the sessions", &call)?;
    for session in answer.sessions {
        let group = format!("cgroup {}", name_of(&session.cgroup));
        found.entry(session.branch).or_default().push(group);
    }
    Ok(found)
}

/// The last component of a path.
fn name_of(path: &Bytes) -> String {
    let last = path.0.rsplit(|byte| *byte == b'/').next();
    shown(last.unwrap_or_default())
}
