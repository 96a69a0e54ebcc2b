//! `export --history`: all commits of a branch, and what each changed, with views for the usual questions.

use crate::changes::{Change, changes};
use crate::commits;
use crate::error::Result;
use crate::steps::{self, Order};
use crate::write::Writer;
use engine::verbs;
use engine::{Cancel, LogEntry, Progress, Workspace};
use objstore::{Commit, CommitId, Kind, ObjectStore};
use rusqlite::params;
use std::collections::HashSet;

/// Tables and views of the history.
pub(crate) const TABLES: &str = "
CREATE TABLE agentvfs_change (
    commit_id TEXT NOT NULL,
    path TEXT NOT NULL,
    path_bytes BLOB,
    kind TEXT NOT NULL,
    old_path TEXT,
    old_path_bytes BLOB,
    old_id TEXT,
    new_id TEXT
);
CREATE VIEW agentvfs_path_history AS
    SELECT ch.path, ch.kind, ch.old_path, c.time, c.id AS commit_id, c.kind AS made_by,
        c.automatic, c.author, c.message, ch.old_id, ch.new_id
    FROM agentvfs_change ch JOIN agentvfs_commit c ON c.id = ch.commit_id;
CREATE VIEW agentvfs_change_by_meta AS
    SELECT m.key, m.value, c.time, c.id AS commit_id, ch.path, ch.kind, ch.old_path,
        ch.old_id, ch.new_id
    FROM agentvfs_commit_meta m JOIN agentvfs_commit c ON c.id = m.commit_id
        JOIN agentvfs_change ch ON ch.commit_id = c.id;
";

/// Indexes, made once the tables are filled.
pub(crate) const INDEXES: &str = "
CREATE INDEX agentvfs_change_commit ON agentvfs_change(commit_id);
CREATE INDEX agentvfs_change_path ON agentvfs_change(path);
";

/// Writes all commits of a branch but `written`, with what they changed; gives how many there are.
///
/// A commit's changes are those from its first parent; a commit without one, and one whose parent has
/// expired, has none.
pub(crate) fn write(
    writer: &Writer,
    (store, workspace, branch): (&ObjectStore, &Workspace, &str),
    written: CommitId,
    order: &Order,
    (progress, cancel): (Progress<'_>, &Cancel),
) -> Result<u64> {
    writer.script(TABLES)?;
    let mut log = verbs::log(workspace, branch, true)?;
    log.reverse();
    let mut done: HashSet<CommitId> = HashSet::new();
    let total = log.len() as u64;
    for (entry, at) in log.iter().zip(1..) {
        cancel.check()?;
        // A state that is not stored yet is newer than what is exported.
        if let Some(id) = entry.commit.filter(|id| done.insert(*id)) {
            one(writer, store, id, entry, id != written)?;
        }
        progress(at, total);
    }
    writer.script(INDEXES)?;
    steps::write(writer, store, &log, order, cancel)?;
    Ok(done.len() as u64)
}

fn one(
    writer: &Writer,
    store: &ObjectStore,
    id: CommitId,
    entry: &LogEntry,
    is_new: bool,
) -> Result<()> {
    let commit: Commit = store.get_object(&id)?;
    if is_new {
        commits::write(writer, id, &commit, Some(entry))?;
    }
    let Some(parent) = commit.parents.first() else {
        return Ok(());
    };
    // What the branch knows is whole; of others only the commit itself may be left.
    let known = entry.parents.contains(parent) && store.contains(Kind::Commit, parent.as_bytes());
    if !known {
        return Ok(());
    }
    let before: Commit = store.get_object(parent)?;
    let found = changes(store, before.root, commit.root)?;
    found.iter().try_for_each(|change| row(writer, id, change))
}

fn row(writer: &Writer, id: CommitId, change: &Change) -> Result<()> {
    let (path, raw) = shown(&change.path);
    let old = change.old_path.as_deref().map(shown);
    let (old_path, old_raw) = old.map_or((None, None), |(text, raw)| (Some(text), raw));
    let sql = "INSERT INTO agentvfs_change VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![
            id.to_string(),
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

/// A path as text, and as bytes where it is none.
pub(crate) fn shown(path: &[u8]) -> (String, Option<Vec<u8>>) {
    match std::str::from_utf8(path) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (
            String::from_utf8_lossy(path).into_owned(),
            Some(path.to_vec()),
        ),
    }
}
