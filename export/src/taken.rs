//! Tool calls of a database, with the timelines of other branches that an export of agentvfs has.
//!
//! Calls of other branches are taken over only where the branch keeps all calls with their ids: there theirs mean
//! what they meant.

use crate::check::Shape;
use crate::error::Result;
use crate::inodes::integer;
use crate::keys::text;
use crate::skipped::{Skipped, Skipping};
use crate::source::Source;
use engine::{CallOutcome, ImportedCall, ImportedTimeline, TakenOver, Time};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::IgnoredAny;
use std::collections::BTreeSet;

/// Calls that are taken over at a time, and the bytes of their texts.
const BATCH_CALLS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// What is said of a call that had not ended when its database was made.
const STILL_RAN: &str = "unknown: it still ran when this was exported";
/// Seconds of times up to the year 9999: what is beyond in a database of AgentFS are milliseconds.
const SECONDS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;
/// Parts of a second are fewer.
const NSEC_END: u32 = 1_000_000_000;

/// Which calls of a database are taken over, and whether they keep their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only those behind this one.
    pub after: i64,
    /// With the ids that they have, and with the timelines of other branches.
    pub ids: bool,
}

/// A call: the timeline that it is of, where that is of another branch, and its id.
type CallKey = (Option<i64>, i64);

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The timelines of other branches.
    Timelines,
    /// Calls of these, behind this one.
    Others(i64, i64),
    /// Calls of the branch, behind this one.
    Own(i64),
}

/// What a database has of calls, in order.
pub(crate) struct Calls<'a> {
    source: &'a Source,
    db: &'a Connection,
    /// Reads calls of the branch; `None` where there is no such table.
    sql: Option<String>,
    /// The database has what AgentFS's table does not.
    own: bool,
    /// It has the innermost call that each lay inside.
    parents: bool,
    ids: bool,
    next: Next,
    timelines: BTreeSet<u64>,
    skipping: Skipping<'a>,
}

/// Reads calls of other branches.
const OTHERS: &str = "SELECT timeline, id, name, parameters, result, error, status, started_at,
    completed_at FROM agentvfs_other_call WHERE (timeline, id) > (?1, ?2) ORDER BY timeline, id LIMIT 500";

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
                "SELECT NULL, id, name, {}, {}, {}, {}, started_at, {} FROM tool_calls
                WHERE ?1 IS NULL AND id > ?2 ORDER BY id LIMIT {BATCH_CALLS}",
                column("parameters", "NULL"),
                column("result", "NULL"),
                column("error", "NULL"),
                column("status", "NULL"),
                column("completed_at", "NULL"),
            )
        });
        let others = shape.has("agentvfs_timeline") && shape.has("agentvfs_other_call");
        Calls {
            source,
            db,
            sql,
            own: shape.has("agentvfs_tool_call"),
            parents: shape.has_column("agentvfs_tool_call", "parent"),
            ids: wanted.ids,
            next: match others && wanted.ids {
                true => Next::Timelines,
                false => Next::Own(wanted.after),
            },
            timelines: BTreeSet::new(),
            skipping,
        }
    }

    /// What was left out.
    pub fn into_skipped(self) -> Skipped {
        self.skipping.skipped
    }

    /// The next ones; none at the end.
    pub fn next(&mut self) -> Result<TakenOver> {
        loop {
            if self.next == Next::Timelines {
                self.next = Next::Others(i64::MIN, i64::MIN);
                let timelines = self.read_timelines()?;
                if !timelines.is_empty() {
                    return Ok(TakenOver::Timelines(timelines));
                }
            }
            let others = matches!(self.next, Next::Others(..));
            let (rows, calls) = match (others, self.sql.clone()) {
                (true, _) => self.batch(OTHERS)?,
                (false, Some(sql)) => self.batch(&sql)?,
                (false, None) => (0, Vec::new()),
            };
            // Of a batch all may have been left out.
            if !calls.is_empty() || rows == 0 && !others {
                return Ok(TakenOver::Calls(calls));
            }
            if rows == 0 {
                self.next = Next::Own(i64::MIN);
            }
        }
    }

    fn read_timelines(&mut self) -> Result<Vec<ImportedTimeline>> {
        let failed = |e| self.source.sql(e);
        let sql = "SELECT timeline, branch, deleted, deleted_nsec FROM agentvfs_timeline ORDER BY timeline";
        let mut select = self.db.prepare(sql).map_err(failed)?;
        let mut rows = select.query([]).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let timeline = timeline(row).map_err(|why| self.source.refused(why))?;
            self.timelines.insert(timeline.number);
            found.push(timeline);
        }
        Ok(found)
    }

    /// The next rows: how many were read, and what they say.
    fn batch(&mut self, sql: &str) -> Result<(usize, Vec<ImportedCall>)> {
        let failed = |e| self.source.sql(e);
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let after = match self.next {
            Next::Others(timeline, id) => (Some(timeline), id),
            Next::Own(id) => (None, id),
            Next::Timelines => (None, i64::MIN),
        };
        let mut rows = select.query([after.0, Some(after.1)]).map_err(failed)?;
        let (mut read, mut calls, mut bytes) = (0, Vec::new(), 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let at = self.place(row).map_err(|why| self.source.refused(why))?;
            self.next = match at {
                (Some(timeline), id) => Next::Others(timeline, id),
                (None, id) => Next::Own(id),
            };
            read += 1;
            let mut call = match call(row, at, self.own) {
                Ok(call) => call,
                Err(why) => {
                    self.skipping.invalid(why)?;
                    continue;
                }
            };
            if self.own {
                self.more(at, &mut call)?;
            }
            if call.outcome.is_none() {
                // Whoever would end it knows nothing of this copy.
                call.outcome = Some(CallOutcome::Error(STILL_RAN.to_owned()));
            }
            call.id = call.id.filter(|_| self.ids);
            bytes += call_bytes(&call);
            calls.push(call);
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok((read, calls))
    }

    /// Which call a row is of.
    fn place(&self, row: &Row<'_>) -> Result<CallKey, String> {
        let id = integer(row, 1, "the id of a call")?;
        if !matches!(self.next, Next::Others(..)) {
            return Ok((None, id));
        }
        let timeline = integer(row, 0, "the timeline of a call")?;
        match u64::try_from(timeline).is_ok_and(|number| self.timelines.contains(&number)) {
            true => Ok((Some(timeline), id)),
            false => Err(format!(
                "call {id} is of timeline {timeline}, which there is not"
            )),
        }
    }

    /// What AgentFS's table does not have.
    fn more(&self, (timeline, id): CallKey, call: &mut ImportedCall) -> Result<()> {
        let sql = match (timeline, self.parents) {
            (Some(_), _) => {
                "SELECT started_nsec, completed_nsec, overlaps, parent FROM agentvfs_other_call
                WHERE timeline = ?1 AND id = ?2"
            }
            (None, true) => {
                "SELECT started_nsec, completed_nsec, overlaps, parent FROM agentvfs_tool_call
                WHERE ?1 IS NULL AND id = ?2"
            }
            (None, false) => {
                "SELECT started_nsec, completed_nsec, overlaps, NULL FROM agentvfs_tool_call
                WHERE ?1 IS NULL AND id = ?2"
            }
        };
        let read = || {
            let mut select = self.db.prepare_cached(sql)?;
            select
                .query_row(params![timeline, id], |row| {
                    let fractions = (row.get::<_, u32>(0)?, row.get::<_, Option<u32>>(1)?);
                    Ok((
                        fractions,
                        row.get::<_, String>(2)?,
                        row.get::<_, Option<i64>>(3)?,
                    ))
                })
                .optional()
        };
        let found = read().map_err(|e| self.source.sql(e))?;
        let Some(((started, completed), overlaps, parent)) = found else {
            return Ok(());
        };
        if started.max(completed.unwrap_or(0)) >= NSEC_END {
            let why = format!("a time of call {id} is not a valid time");
            return Err(self.source.refused(why));
        }
        call.started.nsec = started;
        if let (Some(end), Some(nsec)) = (&mut call.completed, completed) {
            end.nsec = nsec;
        }
        if self.ids {
            call.overlaps = overlaps.split(',').filter_map(|n| n.parse().ok()).collect();
            call.parent = parent.and_then(|id| u64::try_from(id).ok());
        }
        Ok(())
    }
}

/// What a row of `agentvfs_timeline` says.
fn timeline(row: &Row<'_>) -> Result<ImportedTimeline, String> {
    let number = integer(row, 0, "the number of a timeline")?;
    let what = |name: &str| format!("{name} of timeline {number}");
    let deleted = match row.get_ref(2).map_err(|e| e.to_string())? {
        ValueRef::Null => None,
        _ => {
            let name = what("the time of deletion");
            let (sec, nsec) = (integer(row, 2, &name)?, integer(row, 3, &name)?);
            let nsec = u32::try_from(nsec).ok().filter(|nsec| *nsec < NSEC_END);
            let nsec = nsec.ok_or_else(|| format!("{name} is not a valid time"))?;
            Some(Time { sec, nsec })
        }
    };
    let timeline = ImportedTimeline {
        number: u64::try_from(number).map_err(|_| format!("a timeline has the number {number}"))?,
        branch: text(row, 1, &what("the branch"))?,
        deleted,
    };
    timeline
        .check()
        .map_err(|e| format!("{}: {e}", what("the branch")))?;
    Ok(timeline)
}

fn call_bytes(call: &ImportedCall) -> usize {
    let outcome = match &call.outcome {
        Some(CallOutcome::Success(Some(text)) | CallOutcome::Error(text)) => text.len(),
        _ => 0,
    };
    outcome + call.parameters.as_ref().map_or(0, String::len) + 256
}

/// What the row of a call with this id says; of an export of agentvfs any time is taken.
fn call(row: &Row<'_>, (timeline, id): CallKey, own: bool) -> Result<ImportedCall, String> {
    let what = |name: &str| format!("{name} of call {id}");
    let name = text(row, 2, &what("the name"))?;
    let optional = |column, name: &str| -> Result<Option<String>, String> {
        match row.get_ref(column).map_err(|e| e.to_string())? {
            ValueRef::Null => Ok(None),
            // AgentFS's Rust SDK writes an empty text where there is none.
            _ => Ok(Some(text(row, column, &what(name))?).filter(|text| !text.is_empty())),
        }
    };
    let (parameters, result) = (optional(3, "the parameters")?, optional(4, "the result")?);
    let (error, status) = (optional(5, "the error")?, optional(6, "the status")?);
    let time = |column| {
        let sec = integer(row, column, &what("a time"))?;
        match own || SECONDS.contains(&sec) {
            true => Ok(Time { sec, nsec: 0 }),
            false => Err(format!(
                "{} is {sec}, which is not a time in seconds",
                what("a time")
            )),
        }
    };
    let completed = match row.get_ref(8).map_err(|e| e.to_string())? {
        ValueRef::Null => None,
        _ => Some(time(8)?),
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
        started: time(7)?,
        completed,
        timeline: timeline.map(|number| number as u64),
        ..ImportedCall::default()
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
