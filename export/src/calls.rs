//! Tool calls of the branch as rows of `tool_calls`.
//!
//! AgentFS has whole seconds and knows nothing of commits; what more there is to a call is in
//! `agentvfs_tool_call`. With the history each call also has what it changed in the files, as far as the
//! commits before and after it are known.

use crate::changes::{Change, changes};
use crate::error::{Error, Result};
use crate::history::shown;
use crate::steps::Order;
use crate::write::Writer;
use engine::verbs;
use engine::{StateRef, TimelineItem, Workspace};
use objstore::{Commit, CommitId, Kind, ObjectStore};
use rusqlite::params;

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
        c.before_commit, c.after_commit, c.overlaps, c.parent,
        (SELECT value FROM agentvfs_info WHERE key = 'branch') AS branch
    FROM agentvfs_call_change ch JOIN tool_calls t ON t.id = ch.call_id
        JOIN agentvfs_tool_call c ON c.id = ch.call_id
    UNION ALL
    SELECT ch.path, ch.kind, o.id, o.name, o.status, o.started_at, o.completed_at, o.parameters,
        o.before_commit, o.after_commit, o.overlaps, o.parent, l.branch
    FROM agentvfs_other_call_change ch
        JOIN agentvfs_other_call o ON o.timeline = ch.timeline AND o.id = ch.call_id
        JOIN agentvfs_timeline l ON l.timeline = ch.timeline;
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
    verbs::timeline_each(workspace, branch, &mut |item| {
        if let Some(order) = &mut order {
            order.note(&item);
        }
        let Some(id) = item.call.filter(|_| item.switch.is_none()) else {
            return Ok(true);
        };
        last = last.max(id);
        let write = || {
            row(writer, id, &item)?;
            match history {
                true => changed(writer, id, &changes_of(store, &item)?),
                false => Ok(()),
            }
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
    let sql = "INSERT INTO agentvfs_tool_call VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![
            id,
            commit(&item.before),
            commit(&item.after),
            { started.nsec },
            end.map(|t| t.nsec),
            overlaps(item),
            item.entry as i64,
            item.parent.map(|parent| parent as i64)
        ],
    )
}

/// The commit of a state, where it is known.
pub(crate) fn commit(state: &Option<StateRef>) -> Option<String> {
    state.as_ref()?.commit.map(|id| id.to_string())
}

/// The calls that ran at the same time, as text.
pub(crate) fn overlaps(item: &TimelineItem) -> String {
    let overlaps: Vec<String> = item.overlaps.iter().map(u64::to_string).collect();
    overlaps.join(",")
}

/// What a call changed in the files, where the commits before and after it are there.
pub(crate) fn changes_of(store: &ObjectStore, item: &TimelineItem) -> Result<Vec<Change>> {
    let there = |state: &Option<StateRef>| -> Option<CommitId> {
        let commit = state.as_ref()?.commit?;
        store
            .contains(Kind::Commit, commit.as_bytes())
            .then_some(commit)
    };
    let (Some(before), Some(after)) = (there(&item.before), there(&item.after)) else {
        return Ok(Vec::new());
    };
    if before == after {
        return Ok(Vec::new());
    }
    let (old, new): (Commit, Commit) = (store.get_object(&before)?, store.get_object(&after)?);
    match changes(store, old.root, new.root) {
        // A commit that expired may be left without what it refers to.
        Err(Error::Engine(engine::Error::Store(objstore::Error::ObjectMissing { .. }))) => {
            Ok(Vec::new())
        }
        other => other,
    }
}

fn changed(writer: &Writer, id: u64, found: &[Change]) -> Result<()> {
    for change in found {
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
