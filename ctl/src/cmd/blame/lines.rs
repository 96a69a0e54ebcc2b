//! `agentvfs blame -l`: which call or commit each line of a file comes from.
//!
//! The versions of the file are gone through as `blame` names what changed it, the oldest first. A line that a merge
//! brought belongs to the newest call of the merged branch that added a line like it, else to the merge; one that a
//! call brought, likewise to a call inside it. Invariant: each line of the file as it is now is shown once, in order.

use crate::cli::BlameArgs;
use crate::cmd::Context;
use crate::cmd::log::pages::each_page;
use crate::output::{absolute, print, print_json, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::files::TreeAt;
use agentvfs_client::protocol::{BlameAnswer, BlameRow, Log, LogRow, Moment, Side as Tree};
use agentvfs_client::quote::{one_line, shown};
use agentvfs_client::render::{insert_bytes, short};
use agentvfs_client::when::rfc3339;
use agentvfs_picture::{Cell, LinesFrom, Paint, Side, cell, columns, when, width};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::io::IsTerminal;

/// Longest file that is looked into.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Columns that a line of the file needs beside what is told of it.
const TEXT_COLUMNS_MIN: usize = 16;
/// Kind of the commit that came with the import.
const START: &str = "start";
/// What a tab is shown as.
const TAB: &str = "    ";

/// Where a line comes from.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// A row of `blame`.
    Row(&'a BlameRow),
    /// No call changed it: it is in this commit, and in none that was looked at before.
    Commit(&'a str),
    /// No commit has it yet, or none is known.
    Nothing,
}

/// A line as it is told.
struct Told<'a> {
    kind: &'a str,
    /// The call, with its branch if that is another one; else the commit.
    id: Option<String>,
    name: &'a str,
    time: Option<Moment>,
    commit: Option<&'a str>,
}

/// Prints the lines of a file.
pub fn run(
    args: &BlameArgs,
    (workspace, path): (&str, &[u8]),
    answer: &BlameAnswer,
    context: &mut Context,
) -> Result<u8, Failure> {
    let versions = Versions {
        workspace: workspace.to_owned(),
        branch: context.branch()?,
        path,
    };
    let back = versions.look_back(answer, context)?;
    let lines = versions.lines(answer, back.start.as_deref(), context)?;
    let wanted = lines.lines().filter_map(|(_, from)| match from {
        Origin::Commit(id) if !back.rows.contains_key(*id) => Some((*id).to_owned()),
        _ => None,
    });
    let mut times = versions.commits(wanted.collect(), context)?;
    times.extend(back.rows);
    let told: Vec<(&[u8], Told<'_>)> = lines
        .lines()
        .map(|(line, from)| (without_end(line), told(*from, &versions.branch, &times)))
        .collect();
    if context.json() {
        let objects = told.iter().enumerate();
        let objects: Vec<Value> = objects.map(|(at, row)| object(at + 1, row)).collect();
        print_json(&json!({ "lines": objects, "more": answer.more }))?;
        return Ok(0);
    }
    match std::io::stdout().is_terminal() && !args.rows.nul {
        true => print(screen(&told, args.absolute).as_bytes())?,
        false => print(&rows(&told, args.rows.nul))?,
    }
    Ok(0)
}

/// What the log was found to say before the lines are looked at.
#[derive(Default)]
struct Back {
    /// The commit that came with the import, where that is wanted.
    start: Option<String>,
    /// Commits, by id.
    rows: HashMap<String, LogRow>,
}

/// The versions of one file.
struct Versions<'a> {
    workspace: String,
    branch: String,
    path: &'a [u8],
}

impl Versions<'_> {
    fn lines<'a>(
        &self,
        answer: &'a BlameAnswer,
        start: Option<&'a str>,
        context: &mut Context,
    ) -> Result<LinesFrom<Origin<'a>>, Failure> {
        let now = self.text(Tree::Live, self.path, context)?;
        let mut rows = answer.items.iter().rev().peekable();
        let first = rows.find(|row| self.is_own(row));
        let Some(first) = first else {
            let from = match answer.commits.as_slice() {
                [.., oldest] => Origin::Commit(oldest),
                [] => Origin::Nothing,
            };
            return Ok(LinesFrom::new(now, from));
        };
        let mut lines = self.oldest(first, start, context)?;
        // Lines that were added in other branches, or by calls inside others, with the newest that added them.
        let mut added: HashMap<Vec<u8>, &BlameRow> = HashMap::new();
        let is_listed = |call: u64| answer.items.iter().any(|row| row.call == Some(call));
        let mut inside = answer.items.iter().rev();
        inside.try_for_each(|row| {
            let is_part = !self.is_own(row) || row.parent.is_some_and(is_listed);
            if is_part {
                let (old, new) = (self.before(row, context)?, self.after(row, context)?);
                let new = LinesFrom::<()>::added(&old, &new);
                added.extend(new.into_iter().map(|line| (line, row)));
            }
            Ok::<(), Failure>(())
        })?;
        for row in answer.items.iter().rev().filter(|row| self.is_own(row)) {
            if row.parent.is_some_and(is_listed) {
                continue;
            }
            if row.kind != "checkpoint" && row.overlaps.is_empty() {
                // What a checkpoint begins with, or a call beside others, is older than what was seen already.
                let old = self.before(row, context)?;
                lines.turn_into(old, |_| Origin::Commit(&row.before));
            }
            lines.turn_into(self.after(row, context)?, |line| {
                let part = added.get(line).filter(|part| may_be_part(part, row));
                Origin::Row(part.copied().unwrap_or(row))
            });
        }
        lines.turn_into(now, |_| Origin::Nothing);
        Ok(lines)
    }

    /// The version before the first change, whose lines came with the import or in some commit after it.
    fn oldest<'a>(
        &self,
        first: &'a BlameRow,
        start: Option<&'a str>,
        context: &mut Context,
    ) -> Result<LinesFrom<Origin<'a>>, Failure> {
        let text = self.before(first, context)?;
        let before = Origin::Commit(&first.before);
        let Some(start) = start else {
            return Ok(LinesFrom::new(text, before));
        };
        let path = first.old_path.as_ref().unwrap_or(&first.path);
        let imported = self.text(Tree::Ref(start.to_owned()), &path.0, context)?;
        let mut lines = LinesFrom::new(imported, Origin::Commit(start));
        lines.turn_into(text, |_| before);
        Ok(lines)
    }

    /// Looks for the commit that came with the import, where the file is older than the first change of it.
    fn look_back(&self, answer: &BlameAnswer, context: &mut Context) -> Result<Back, Failure> {
        let own: Vec<&BlameRow> = answer.items.iter().filter(|row| self.is_own(row)).collect();
        let mut back = Back::default();
        if own.last().is_none_or(|first| first.change == "added") {
            return Ok(back);
        }
        let wanted: HashSet<&str> = own.iter().map(|row| row.before.as_str()).collect();
        each_page(&self.log(), context, &mut |commits, _| {
            for row in commits {
                let Some(id) = row.commit.clone() else {
                    continue;
                };
                let is_start = row.kind == START;
                if is_start {
                    back.start = Some(id.clone());
                }
                if is_start || wanted.contains(id.as_str()) {
                    back.rows.insert(id, row);
                }
            }
            Ok(true)
        })?;
        Ok(back)
    }

    /// All of the branch's log.
    fn log(&self) -> Log {
        Log {
            workspace: self.workspace.clone(),
            branch: self.branch.clone(),
            all: true,
            limit: None,
            after: None,
            digits: false,
            count: false,
        }
    }

    fn is_own(&self, row: &BlameRow) -> bool {
        row.branch.as_deref() == Some(&self.branch)
    }

    fn before(&self, row: &BlameRow, context: &mut Context) -> Result<Vec<u8>, Failure> {
        let path = row.old_path.as_ref().unwrap_or(&row.path);
        match row.change.as_str() {
            "added" => Ok(Vec::new()),
            _ => self.text(self.commit(row, &row.before), &path.0, context),
        }
    }

    fn after(&self, row: &BlameRow, context: &mut Context) -> Result<Vec<u8>, Failure> {
        match row.change.as_str() {
            "deleted" => Ok(Vec::new()),
            _ => self.text(self.commit(row, &row.after), &row.path.0, context),
        }
    }

    /// A commit of a row, which may be known to the row's own branch alone.
    fn commit(&self, row: &BlameRow, id: &str) -> Tree {
        match row
            .branch
            .as_deref()
            .filter(|branch| *branch != self.branch)
        {
            Some(branch) => Tree::Ref(format!("{branch}:{id}")),
            None => Tree::Ref(id.to_owned()),
        }
    }

    /// A version; empty where it cannot be read any more, such as that of a branch that was deleted.
    fn text(&self, side: Tree, path: &[u8], context: &mut Context) -> Result<Vec<u8>, Failure> {
        let is_live = side == Tree::Live;
        let tree = TreeAt {
            workspace: self.workspace.clone(),
            branch: self.branch.clone(),
            side,
        };
        let mut text = Vec::new();
        let read = tree.read(path, context, &mut |offset, bytes| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if offset + bytes.len() as u64 > FILE_BYTES_MAX {
                let why = format!("{} is longer than 16 MiB", shown(path));
                return Err(Failure::new("cannot look at its lines", why));
            }
            // A hole is zeros.
            text.resize(at, 0);
            text.extend_from_slice(bytes);
            Ok(())
        });
        match read {
            Err(failure) if is_live || failure.why.ends_with("longer than 16 MiB") => Err(failure),
            Err(_) => Ok(Vec::new()),
            Ok(_) => Ok(text),
        }
    }

    /// What the branch's log says of these commits.
    fn commits(
        &self,
        mut wanted: HashSet<String>,
        context: &mut Context,
    ) -> Result<HashMap<String, LogRow>, Failure> {
        let mut found = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        each_page(&self.log(), context, &mut |commits, _| {
            for row in commits {
                if let Some(id) = row.commit.clone()
                    && wanted.remove(&id)
                {
                    found.insert(id, row);
                }
            }
            Ok(!wanted.is_empty())
        })?;
        Ok(found)
    }
}

/// Whether what a row did can be part of what another did: a call inside it, or in a branch that it merged.
fn may_be_part(part: &BlameRow, whole: &BlameRow) -> bool {
    match whole.kind.as_str() {
        "call" => part.parent.is_some() && part.parent == whole.call,
        "checkpoint" => false,
        _ => part.branch != whole.branch,
    }
}

/// The call, with its branch if that is another one; else the commit.
fn id_of(row: &BlameRow, branch: &str) -> String {
    match (row.call, row.branch.as_deref()) {
        (None, _) => row.after.clone(),
        (Some(call), Some(other)) if other != branch => format!("{other}:{call}"),
        (Some(call), _) => call.to_string(),
    }
}

fn told<'a>(from: Origin<'a>, branch: &str, commits: &'a HashMap<String, LogRow>) -> Told<'a> {
    match from {
        Origin::Row(row) => Told {
            kind: &row.kind,
            id: Some(id_of(row, branch)),
            name: row.name.lines().next().unwrap_or(""),
            time: Some(row.time),
            commit: Some(&row.after),
        },
        Origin::Commit(id) => {
            let row = commits.get(id);
            let label = row.and_then(|row| row.labels.first());
            Told {
                kind: "commit",
                id: Some(id.to_owned()),
                name: label.map_or("", String::as_str),
                time: row.map(|row| row.time),
                commit: Some(id),
            }
        }
        Origin::Nothing => Told {
            kind: "uncommitted",
            id: None,
            name: "",
            time: None,
            commit: None,
        },
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Rows for scripts: kind, call or commit, time, number, and the line as it is.
fn rows(told: &[(&[u8], Told<'_>)], nul: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (at, (line, row)) in told.iter().enumerate() {
        let time = row.time.map_or_else(|| "-".to_owned(), rfc3339);
        let id = row.id.as_deref().unwrap_or("-");
        let head = format!("{}\t{id}\t{time}\t{}\t", row.kind, at + 1);
        text.extend(head.bytes().chain(line.iter().copied()));
        text.push(if nul { b'\0' } else { b'\n' });
    }
    text
}

fn object(number: usize, (line, row): &(&[u8], Told<'_>)) -> Value {
    let mut object = Map::new();
    object.insert("line".into(), number.into());
    object.insert("kind".into(), row.kind.into());
    object.insert("id".into(), row.id.clone().into());
    object.insert("name".into(), row.name.into());
    object.insert("time".into(), row.time.map(rfc3339).into());
    object.insert("commit".into(), row.commit.into());
    insert_bytes(&mut object, "text", line);
    Value::Object(object)
}

/// On a narrow terminal, leaves out when a line came, then by which name, then the kind, so that the line is seen.
fn make_room(rows: &mut [Vec<Cell>], columns: usize) {
    let without_kind = |cell: &mut Cell| {
        // What is not committed has nothing else.
        if cell
            .iter()
            .any(|(paint, text)| *paint == Paint::Id && !text.is_empty())
        {
            cell.retain(|(paint, _)| *paint != Paint::Plain);
        }
    };
    for step in 0..3 {
        let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
        let taken: usize = (0..4).map(widest).filter(|w| *w > 0).map(|w| w + 2).sum();
        if taken + TEXT_COLUMNS_MIN <= columns {
            return;
        }
        rows.iter_mut().for_each(|row| match step {
            0 => row[2].clear(),
            1 => row[1].clear(),
            _ => without_kind(&mut row[0]),
        });
    }
}

fn screen(told: &[(&[u8], Told<'_>)], in_full: bool) -> String {
    let style = match in_full {
        true => absolute(stdout_style()),
        false => stdout_style(),
    };
    let row = |(at, (line, row)): (usize, &(&[u8], Told<'_>))| -> Vec<Cell> {
        let id = row.id.as_deref().unwrap_or("");
        let who = match row.kind {
            "call" => cell(Paint::Id, format!("call {id}")),
            "commit" => cell(Paint::Id, short(id)),
            kind => vec![
                (Paint::Plain, format!("{kind} ")),
                (Paint::Id, short(id).to_owned()),
            ],
        };
        let text = String::from_utf8_lossy(line).replace('\t', TAB);
        vec![
            who,
            cell(Paint::Label, shown(row.name.as_bytes())),
            cell(
                Paint::Time,
                row.time.map_or(String::new(), |time| when(time, style)),
            ),
            cell(Paint::Dim, (at + 1).to_string()),
            cell(Paint::Plain, one_line(&text)),
        ]
    };
    let mut rows: Vec<Vec<Cell>> = told.iter().enumerate().map(row).collect();
    make_room(&mut rows, style.width);
    let sides = [Side::Left, Side::Left, Side::Left, Side::Right, Side::Left];
    columns(&rows, &sides, style)
}
