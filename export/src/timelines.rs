//! `export --history`: the timelines of other branches that the branch's commits lead into, also of deleted ones.
//!
//! They have tables of their own. AgentFS's tools take each row of `tool_calls` for a call of the agent whose files
//! these are, by its id; ids of two branches are not apart, and what a merged branch called another agent did.

use crate::calls::{changes_of, commit, overlaps};
use crate::changes::Change;
use crate::error::{Error, Result};
use crate::history::shown;
use crate::write::Writer;
use engine::verbs;
use engine::{SwitchWord, TimelineItem, TimelineSource, Workspace};
use objstore::ObjectStore;
use rusqlite::params;

/// Tables that only an export with the history has.
const TABLES: &str = "
CREATE TABLE agentvfs_other_switch (
    timeline INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    time_nsec INTEGER NOT NULL,
    call_id INTEGER,
    before_commit TEXT,
    after_commit TEXT,
    PRIMARY KEY (timeline, entry)
);
CREATE TABLE agentvfs_other_call_change (
    timeline INTEGER NOT NULL,
    call_id INTEGER NOT NULL,
    path TEXT NOT NULL,
    path_bytes BLOB,
    kind TEXT NOT NULL,
    old_path TEXT,
    old_path_bytes BLOB,
    old_id TEXT,
    new_id TEXT
);
";

/// Indexes, made once the tables are filled.
const INDEXES: &str = "
CREATE INDEX agentvfs_other_call_change_call ON agentvfs_other_call_change(timeline, call_id);
CREATE INDEX agentvfs_other_call_change_path ON agentvfs_other_call_change(path);
";

/// Writes the timelines of a branch but its own.
pub(crate) fn write(
    writer: &Writer,
    store: &ObjectStore,
    workspace: &Workspace,
    branch: &str,
) -> Result<()> {
    writer.script(TABLES)?;
    let all = verbs::timelines(workspace, branch)?;
    for (source, number) in all.iter().skip(1).zip(1..) {
        one(writer, number, source)?;
        let mut failed = None;
        verbs::timeline_of(workspace, source, &mut |item| {
            let written = match (item.switch, item.call) {
                (Some(by), _) => switch(writer, number, by, &item),
                (None, Some(id)) => call(writer, store, (number, id), &item),
                (None, None) => Ok(()),
            };
            failed = written.err();
            Ok(failed.is_none())
        })?;
        failed.map_or(Ok(()), Err::<(), Error>)?;
    }
    writer.script(INDEXES)
}

fn one(writer: &Writer, number: i64, source: &TimelineSource) -> Result<()> {
    let deleted = match &source.imported {
        Some(imported) => imported.deleted,
        None => source.deleted,
    };
    let sql = "INSERT INTO agentvfs_timeline VALUES (?, ?, ?, ?)";
    let (sec, nsec) = (deleted.map(|t| t.sec), deleted.map(|t| t.nsec));
    writer.run(sql, params![number, source.branch, sec, nsec])
}

fn switch(writer: &Writer, timeline: i64, by: SwitchWord, item: &TimelineItem) -> Result<()> {
    let sql = "INSERT INTO agentvfs_other_switch VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let (call, time) = (item.call.map(|id| id as i64), item.started);
    writer.run(
        sql,
        params![
            timeline,
            item.entry as i64,
            by.word(),
            { time.sec },
            { time.nsec },
            call,
            commit(&item.before),
            commit(&item.after)
        ],
    )
}

fn call(
    writer: &Writer,
    store: &ObjectStore,
    (timeline, id): (i64, u64),
    item: &TimelineItem,
) -> Result<()> {
    let sql = "INSERT INTO agentvfs_other_call
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let (id, started, end) = (id as i64, item.started, item.completed);
    writer.run(
        sql,
        params![
            timeline,
            id,
            item.name,
            item.parameters,
            item.result,
            item.error,
            item.status.word(),
            { started.sec },
            { started.nsec },
            end.map(|t| t.sec),
            end.map(|t| t.nsec),
            item.duration_ms().map(|ms| ms as i64),
            commit(&item.before),
            commit(&item.after),
            item.parent.map(|parent| parent as i64),
            overlaps(item),
            item.entry as i64
        ],
    )?;
    let found = changes_of(store, item)?;
    found
        .iter()
        .try_for_each(|change| changed(writer, (timeline, id), change))
}

fn changed(writer: &Writer, (timeline, id): (i64, i64), change: &Change) -> Result<()> {
    let (path, raw) = shown(&change.path);
    let old = change.old_path.as_deref().map(shown);
    let (old_path, old_raw) = old.map_or((None, None), |(text, raw)| (Some(text), raw));
    let sql = "INSERT INTO agentvfs_other_call_change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![
            timeline,
            id,
            path,
            raw,
            change.kind.to_string(),
            old_path,
            old_raw,
            change.old_id,
            change.new_id
        ],
    )
}
