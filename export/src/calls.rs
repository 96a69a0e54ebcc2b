//! Tool calls as rows of `tool_calls`, and back.
//!
//! AgentFS has whole seconds and knows nothing of commits; what more there is to a call is in
//! `agentvfs_tool_call`. With the history each call also has what it changed in the files, as far as the
//! commits before and after it are known.

use crate::changes::changes;
use crate::check::Shape;
use crate::error::{Error, Result};
use crate::history::shown;
use crate::inodes::integer;
use crate::keys::text;
use crate::skipped::{Skipped, Skipping};
use crate::source::Source;
use crate::steps::Order;
use crate::write::Writer;
use engine::{CallOutcome, ImportedCall, StateRef, Time, TimelineItem, Workspace};
use objstore::{Commit, CommitId, Kind, ObjectStore};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::IgnoredAny;

/// Calls that are taken over at a time, and the bytes of their texts.
const BATCH_CALLS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// What is said of a call that had not ended when its database was made.
const STILL_RAN: &str = "unknown: it still ran when this was exported";
/// Seconds of times up to the year 9999: what is beyond in a database of AgentFS are milliseconds.
const SECONDS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

/// Tables and views of calls beside the history.
pub(crate) const HISTORY: &str = "
CREATE TABLE agentvfs_call_change (
    call_id INTEGER NOT NULL,
    path TEXT NOT NULL,
    path_bytes BLOB,
    kind TEXT NOT NULL,
    old_path TEXT,
    old_path_bytes BLOB,
    old_id TEXT,
    new_id TEXT
);
CREATE VIEW agentvfs_calls_of_path AS
    SELECT ch.path, ch.kind, t.id, t.name, t.status, t.started_at, t.completed_at, t.parameters,
        c.before_commit, c.after_commit, c.overlaps
    FROM agentvfs_call_change ch JOIN tool_calls t ON t.id = ch.call_id
        JOIN agentvfs_tool_call c ON c.id = ch.call_id;
";

/// Indexes, made once the tables are filled.
pub(crate) const INDEXES: &str = "
CREATE INDEX agentvfs_call_change_call ON agentvfs_call_change(call_id);
CREATE INDEX agentvfs_call_change_path ON agentvfs_call_change(path);
";

/// Writes the calls of a branch, where an order is to be noted what each changed too; gives the largest id.
pub(crate) fn write(
    writer: &Writer,
    store: &ObjectStore,
    workspace: &Workspace,
    branch: &str,
    mut order: Option<&mut Order>,
) -> Result<u64> {
    let history = order.is_some();
    if history {
        writer.script(HISTORY)?;
    }
    let mut last = 0;
    let mut failed = None;
    workspace.timeline_each(branch, &mut |item| {
        if let Some(order) = &mut order {
            order.note(&item);
        }
        let Some(id) = item.call.filter(|_| item.switch.is_none()) else {
            return Ok(true);
        };
        last = last.max(id);
        let write = || {
            row(writer, id, &item)?;
            if history {
                changed(writer, store, id, &item)?;
            }
            Ok(())
        };
        failed = write().err();
        Ok(failed.is_none())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if history {
        writer.script(INDEXES)?;
    }
    Ok(last)
}

fn row(writer: &Writer, id: u64, item: &TimelineItem) -> Result<()> {
    let (id, started) = (id as i64, item.started);
    let sql = "INSERT INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let end = item.completed;
    writer.run(
        sql,
        params![
            id,
            item.name,
            item.parameters,
            item.result,
            item.error,
            item.status.word(),
            { started.sec },
            end.map(|t| t.sec),
            item.duration_ms().map(|ms| ms as i64)
        ],
    )?;
    let commit = |state: &Option<StateRef>| state.as_ref()?.commit.map(|id| id.to_string());
    let overlaps: Vec<String> = item.overlaps.iter().map(u64::to_string).collect();
    let sql = "INSERT INTO agentvfs_tool_call VALUES (?, ?, ?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![
            id,
            commit(&item.before),
            commit(&item.after),
            { started.nsec },
            end.map(|t| t.nsec),
            overlaps.join(","),
            item.entry as i64
        ],
    )
}

/// What a call changed in the files, where the commits before and after it are there.
fn changed(writer: &Writer, store: &ObjectStore, id: u64, item: &TimelineItem) -> Result<()> {
    let there = |state: &Option<StateRef>| -> Option<CommitId> {
        let commit = state.as_ref()?.commit?;
        store
            .contains(Kind::Commit, commit.as_bytes())
            .then_some(commit)
    };
    let (Some(before), Some(after)) = (there(&item.before), there(&item.after)) else {
        return Ok(());
    };
    if before == after {
        return Ok(());
    }
    let (old, new): (Commit, Commit) = (store.get_object(&before)?, store.get_object(&after)?);
    let found = match changes(store, old.root, new.root) {
        // A commit that expired may be left without what it refers to.
        Err(Error::Engine(engine::Error::Store(objstore::Error::ObjectMissing { .. }))) => {
            return Ok(());
        }
        other => other?,
    };
    for change in &found {
        let (path, raw) = shown(&change.path);
        let old = change.old_path.as_deref().map(shown);
        let (old_path, old_raw) = old.map_or((None, None), |(text, raw)| (Some(text), raw));
        let (kind, old_id, new_id) = (change.kind.to_string(), &change.old_id, &change.new_id);
        let sql = "INSERT INTO agentvfs_call_change VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        writer.run(
            sql,
            params![
                id as i64, path, raw, kind, old_path, old_raw, old_id, new_id
            ],
        )?;
    }
    Ok(())
}

/// Which calls of a database are taken over, and whether they keep their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only those behind this one.
    pub after: i64,
    /// With the ids that they have.
    pub ids: bool,
}

/// Calls of a database, in order.
pub(crate) struct Calls<'a> {
    source: &'a Source,
    db: &'a Connection,
    sql: Option<String>,
    own: bool,
    wanted: Wanted,
    skipping: Skipping<'a>,
}

impl<'a> Calls<'a> {
    /// Those that are wanted; none where there is no such table.
    pub fn of(
        (source, db, shape): (&'a Source, &'a Connection, &Shape),
        wanted: Wanted,
        skipping: Skipping<'a>,
    ) -> Calls<'a> {
        let column = |name, otherwise| shape.column("tool_calls", name, otherwise);
        let sql = shape.has("tool_calls").then(|| {
            format!(
                "SELECT id, name, {}, {}, {}, {}, started_at, {} FROM tool_calls
                WHERE id > ? ORDER BY id LIMIT {BATCH_CALLS}",
                column("parameters", "NULL"),
                column("result", "NULL"),
                column("error", "NULL"),
                column("status", "NULL"),
                column("completed_at", "NULL"),
            )
        });
        Calls {
            source,
            db,
            sql,
            own: shape.has("agentvfs_tool_call"),
            wanted,
            skipping,
        }
    }

    /// What was left out.
    pub fn into_skipped(self) -> Skipped {
        self.skipping.skipped
    }

    /// The next ones; none at the end.
    pub fn next(&mut self) -> Result<Vec<ImportedCall>> {
        let Some(sql) = self.sql.clone() else {
            return Ok(Vec::new());
        };
        loop {
            let (rows, calls) = self.batch(&sql)?;
            // Of a batch all may have been left out.
            if rows == 0 || !calls.is_empty() {
                return Ok(calls);
            }
        }
    }

    /// The next rows: how many were read, and what they say.
    fn batch(&mut self, sql: &str) -> Result<(usize, Vec<ImportedCall>)> {
        let mut select = self
            .db
            .prepare_cached(sql)
            .map_err(|e| self.source.sql(e))?;
        let mut rows = select
            .query([self.wanted.after])
            .map_err(|e| self.source.sql(e))?;
        let (mut read, mut calls, mut bytes) = (0, Vec::new(), 0);
        while let Some(row) = rows.next().map_err(|e| self.source.sql(e))? {
            let id = integer(row, 0, "the id of a call").map_err(|why| self.source.refused(why))?;
            self.wanted.after = id;
            read += 1;
            let mut call = match call(row, id, self.own) {
                Ok(call) => call,
                Err(why) => {
                    self.skipping.invalid(why)?;
                    continue;
                }
            };
            if self.own {
                self.more(id, &mut call)?;
            }
            if call.outcome.is_none() {
                // Whoever would end it knows nothing of this copy.
                call.outcome = Some(CallOutcome::Error(STILL_RAN.to_owned()));
            }
            call.id = call.id.filter(|_| self.wanted.ids);
            bytes += call_bytes(&call);
            calls.push(call);
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok((read, calls))
    }

    /// What AgentFS's table does not have.
    fn more(&self, id: i64, call: &mut ImportedCall) -> Result<()> {
        let sql =
            "SELECT started_nsec, completed_nsec, overlaps FROM agentvfs_tool_call WHERE id = ?";
        let read = || {
            let mut select = self.db.prepare_cached(sql)?;
            select
                .query_row([id], |row| {
                    let fractions = (row.get::<_, u32>(0)?, row.get::<_, Option<u32>>(1)?);
                    Ok((fractions, row.get::<_, String>(2)?))
                })
                .optional()
        };
        let Some(((started, completed), overlaps)) = read().map_err(|e| self.source.sql(e))? else {
            return Ok(());
        };
        if started.max(completed.unwrap_or(0)) >= 1_000_000_000 {
            return Err(self
                .source
                .refused(format!("a time of call {id} is no time")));
        }
        call.started.nsec = started;
        if let (Some(end), Some(nsec)) = (&mut call.completed, completed) {
            end.nsec = nsec;
        }
        if self.wanted.ids {
            call.overlaps = overlaps.split(',').filter_map(|n| n.parse().ok()).collect();
        }
        Ok(())
    }
}

fn call_bytes(call: &ImportedCall) -> usize {
    let outcome = match &call.outcome {
        Some(CallOutcome::Success(Some(text)) | CallOutcome::Error(text)) => text.len(),
        _ => 0,
    };
    outcome + call.parameters.as_ref().map_or(0, String::len) + 256
}

/// What the row of `tool_calls` with this id says; of an export of agentvfs any time is taken.
fn call(row: &Row<'_>, id: i64, own: bool) -> Result<ImportedCall, String> {
    let what = |name: &str| format!("{name} of call {id}");
    let name = text(row, 1, &what("the name"))?;
    let optional = |column, name: &str| -> Result<Option<String>, String> {
        match row.get_ref(column).map_err(|e| e.to_string())? {
            ValueRef::Null => Ok(None),
            // AgentFS's Rust SDK writes an empty text where there is none.
            _ => Ok(Some(text(row, column, &what(name))?).filter(|text| !text.is_empty())),
        }
    };
    let (parameters, result) = (optional(2, "the parameters")?, optional(3, "the result")?);
    let (error, status) = (optional(4, "the error")?, optional(5, "the status")?);
    let time = |column| {
        let sec = integer(row, column, &what("a time"))?;
        match own || SECONDS.contains(&sec) {
            true => Ok(Time { sec, nsec: 0 }),
            false => Err(format!(
                "{} is {sec}, and no time in seconds",
                what("a time")
            )),
        }
    };
    let completed = match row.get_ref(7).map_err(|e| e.to_string())? {
        ValueRef::Null => None,
        _ => Some(time(7)?),
    };
    let outcome = match (error, result, status.as_deref()) {
        (Some(error), ..) => Some(CallOutcome::Error(error)),
        (None, Some(result), _) => Some(CallOutcome::Success(Some(as_json(result)))),
        (None, None, Some("error")) => Some(CallOutcome::Error("failed".to_owned())),
        (None, None, Some("pending")) => None,
        (None, None, _) => completed.map(|_| CallOutcome::Success(None)),
    };
    let call = ImportedCall {
        id: u64::try_from(id).ok().filter(|id| *id > 0),
        name,
        parameters: parameters.map(as_json),
        outcome,
        started: time(6)?,
        completed,
        overlaps: Vec::new(),
    };
    if call.id.is_none() {
        return Err(format!("a call has the id {id}"));
    }
    call.check().map_err(|e| format!("call {id}: {e}"))?;
    Ok(call)
}

/// Text that is no JSON becomes a JSON text.
fn as_json(text: String) -> String {
    match serde_json::from_str::<IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => serde_json::Value::String(text).to_string(),
    }
}
