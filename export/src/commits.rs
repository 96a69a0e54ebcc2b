//! Commits as rows: who made them when and why, from what, and under which labels they are known.

use crate::error::Result;
use crate::write::Writer;
use engine::verbs;
use engine::{LogEntry, Workspace};
use objstore::{Commit, CommitId, ObjectStore};
use rusqlite::params;

/// Writes what is known of one commit of a branch.
pub(crate) fn write_one(
    writer: &Writer,
    store: &ObjectStore,
    workspace: &Workspace,
    branch: &str,
    id: CommitId,
) -> Result<()> {
    let log = verbs::log(workspace, branch, true)?;
    let entry = log.into_iter().find(|entry| entry.commit == Some(id));
    let commit: Commit = store.get_object(&id)?;
    write(writer, id, &commit, entry.as_ref())
}

/// Writes a commit, with what the branch's log says of it.
pub(crate) fn write(
    writer: &Writer,
    id: CommitId,
    commit: &Commit,
    entry: Option<&LogEntry>,
) -> Result<()> {
    let text = id.to_string();
    let root = commit.root.map(|root| root.to_string());
    let sql = "INSERT INTO agentvfs_commit VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![
            text,
            root,
            entry.map_or("commit", |entry| entry.kind),
            entry.is_some_and(|entry| entry.automatic),
            commit.time_sec,
            commit.time_nsec,
            commit.author,
            commit.message
        ],
    )?;
    for (parent, position) in commit.parents.iter().zip(0i64..) {
        let sql = "INSERT INTO agentvfs_parent VALUES (?, ?, ?)";
        writer.run(sql, params![text, position, parent.to_string()])?;
    }
    for (key, value) in &commit.meta {
        let sql = "INSERT INTO agentvfs_commit_meta VALUES (?, ?, ?)";
        writer.run(sql, params![text, key, value])?;
    }
    for label in entry.iter().flat_map(|entry| &entry.labels) {
        let sql = "INSERT OR REPLACE INTO agentvfs_label VALUES (?, ?)";
        writer.run(sql, params![label, text])?;
    }
    Ok(())
}
