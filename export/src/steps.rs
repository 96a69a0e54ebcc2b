//! `export --history`: what the branch showed, step by step, in the timeline's order.
//!
//! A step is a commit of the branch, or a switch of what it shows (rollback, undo, redo, merge, restore): with
//! the commit shown before and the one after, and what differs between the two. Invariant: a step begins with
//! what the one before it left. So what differs between any two steps is what is left of the changes of all steps
//! between, whichever commits have metadata and whichever way it went (`agentvfs_between`).
//!
//! What a commit or switch left that has expired is no step's end: the next one goes on from what is kept.

use crate::changes::pairs;
use crate::error::{Error, Result};
use crate::history::shown;
use crate::write::Writer;
use engine::{Cancel, LogEntry, StateRef, SwitchWord, Time, TimelineItem};
use objstore::{Body, Commit, CommitId, Kind, ObjectStore, TreeEntry, TreeId};
use rusqlite::params;
use std::collections::{HashMap, HashSet};

/// Commits of another branch, as the log says it.
const FOREIGN: &str = "other-branch";
/// What a branch was before or after a call: calls have rows of their own.
const OF_CALL: &str = "tool-call";
/// Hexadecimal digits of what tells entries of directories apart.
const DIGITS: usize = 32;

/// Tables and views of the steps.
const TABLES: &str = "
CREATE TABLE agentvfs_step (
    step INTEGER PRIMARY KEY,
    entry INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    time_nsec INTEGER NOT NULL,
    call_id INTEGER,
    before_commit TEXT,
    after_commit TEXT
);
CREATE TABLE agentvfs_step_change (
    step INTEGER NOT NULL,
    path TEXT NOT NULL,
    path_bytes BLOB,
    old_type TEXT,
    new_type TEXT,
    old_entry TEXT,
    new_entry TEXT,
    old_id TEXT,
    new_id TEXT
);
CREATE VIEW agentvfs_history AS
    SELECT s.entry, s.step, s.kind, s.time, s.call_id, c.message AS name, NULL AS status,
        s.before_commit, s.after_commit
    FROM agentvfs_step s LEFT JOIN agentvfs_commit c ON c.id = s.after_commit
    UNION ALL
    SELECT c.entry, NULL, 'call', t.started_at, t.id, t.name, t.status, c.before_commit, c.after_commit
    FROM tool_calls t JOIN agentvfs_tool_call c ON c.id = t.id
    ORDER BY 1, 2;
CREATE VIEW agentvfs_step_by_meta AS
    SELECT m.key, m.value, max(f.step) AS step
    FROM agentvfs_commit_meta m
        JOIN (SELECT after_commit, min(step) AS step FROM agentvfs_step GROUP BY after_commit) f
            ON f.after_commit = m.commit_id
    GROUP BY m.key, m.value;
CREATE VIEW agentvfs_between AS
    SELECT from_step, to_step, path, path_bytes,
        CASE WHEN old_entry IS NULL THEN 'A' WHEN new_entry IS NULL THEN 'D'
            WHEN trim(old_type, '+') <> trim(new_type, '+') THEN 'T' ELSE 'M' END AS kind,
        old_id, new_id
    FROM (
        SELECT a.step AS from_step, b.step AS to_step, f.path, f.path_bytes,
            CASE WHEN a.step < b.step THEN f.old_type ELSE l.new_type END AS old_type,
            CASE WHEN a.step < b.step THEN l.new_type ELSE f.old_type END AS new_type,
            CASE WHEN a.step < b.step THEN f.old_entry ELSE l.new_entry END AS old_entry,
            CASE WHEN a.step < b.step THEN l.new_entry ELSE f.old_entry END AS new_entry,
            CASE WHEN a.step < b.step THEN f.old_id ELSE l.new_id END AS old_id,
            CASE WHEN a.step < b.step THEN l.new_id ELSE f.old_id END AS new_id
        FROM agentvfs_step a CROSS JOIN agentvfs_step b CROSS JOIN agentvfs_step_change f
            CROSS JOIN agentvfs_step_change l
        WHERE f.step > min(a.step, b.step) AND f.step <= max(a.step, b.step)
            AND NOT EXISTS (SELECT 1 FROM agentvfs_step_change x
                WHERE x.path = f.path AND x.path_bytes IS f.path_bytes
                AND x.step > min(a.step, b.step) AND x.step < f.step)
            AND l.path = f.path AND l.path_bytes IS f.path_bytes
            AND l.step = (SELECT max(x.step) FROM agentvfs_step_change x
                WHERE x.path = f.path AND x.path_bytes IS f.path_bytes
                AND x.step <= max(a.step, b.step))
    )
    WHERE old_entry IS NOT new_entry
        AND NOT (old_entry IS NULL AND new_type = 'directory+')
        AND NOT (new_entry IS NULL AND old_type = 'directory+');
";

/// Indexes, made once the tables are filled.
const INDEXES: &str = "
CREATE INDEX agentvfs_step_after ON agentvfs_step(after_commit);
CREATE INDEX agentvfs_step_change_step ON agentvfs_step_change(step);
CREATE INDEX agentvfs_step_change_path ON agentvfs_step_change(path, step);
";

/// What the timeline says of the order of states, noted while it is read from its end.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Entries with the state before them.
    entries: Vec<(u64, u64)>,
    switches: Vec<Switch>,
}

/// A switch of the live tree.
#[derive(Clone, Copy, Debug)]
struct Switch {
    entry: u64,
    by: SwitchWord,
    call: Option<u64>,
    time: Time,
    after: Option<StateRef>,
}

impl Order {
    /// Notes a call or switch.
    pub fn note(&mut self, item: &TimelineItem) {
        if let Some(before) = item.before {
            self.entries.push((item.entry, before.state));
        }
        if let Some(by) = item.switch {
            self.switches.push(Switch {
                entry: item.entry,
                by,
                call: item.call,
                time: item.started,
                after: item.after,
            });
        }
    }

    /// Says after which entry a state was frozen. That of an entry may stand for an earlier one that it equals,
    /// so the largest so far counts.
    fn places(&self) -> impl Fn(u64) -> u64 + use<> {
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        let mut largest = 0;
        for (_, state) in &mut entries {
            largest = largest.max(*state);
            *state = largest;
        }
        move |number| {
            let before = entries.partition_point(|(_, state)| *state < number);
            before.checked_sub(1).map_or(0, |at| entries[at].0)
        }
    }
}

/// A step that is to be written.
struct Step<'a> {
    /// Orders steps: the entry, and behind it the state.
    key: (u64, u64),
    kind: &'a str,
    time: Time,
    call: Option<u64>,
    after: Option<CommitId>,
    merged: bool,
}

/// Writes the steps of a branch with this log.
pub(crate) fn write(
    writer: &Writer,
    store: &ObjectStore,
    log: &[LogEntry],
    order: &Order,
    cancel: &Cancel,
) -> Result<()> {
    writer.script(TABLES)?;
    let mut chain = Chain {
        writer,
        store,
        step: 0,
        shown: None,
    };
    let foreign = log.iter().filter(|e| e.kind == FOREIGN);
    let foreign: HashMap<CommitId, &LogEntry> =
        foreign.filter_map(|e| Some((e.commit?, e))).collect();
    let mut told: HashSet<CommitId> = HashSet::new();
    for step in in_order(log, order) {
        cancel.check()?;
        let after = step.after.filter(|_| step.merged);
        for entry in line_of(after, &foreign, &mut told) {
            chain.add(&Step {
                key: step.key,
                kind: FOREIGN,
                time: entry.time,
                call: None,
                after: entry.commit,
                merged: false,
            })?;
        }
        chain.add(&step)?;
    }
    writer.script(INDEXES)
}

/// Commits and switches, in the timeline's order.
fn in_order<'a>(log: &'a [LogEntry], order: &Order) -> Vec<Step<'a>> {
    let place = order.places();
    let own = log
        .iter()
        .filter(|e| e.kind != FOREIGN && e.kind != OF_CALL);
    let commits = own.filter(|e| e.commit.is_some()).map(|e| Step {
        key: (place(e.number), e.number),
        kind: e.kind,
        time: e.time,
        call: None,
        after: e.commit,
        merged: false,
    });
    let switches = order.switches.iter().map(|s| Step {
        key: (s.entry, 0),
        kind: s.by.word(),
        time: s.time,
        call: s.call,
        after: s.after.and_then(|state| state.commit),
        merged: s.by == SwitchWord::Merge,
    });
    let mut steps: Vec<Step<'_>> = commits.chain(switches).collect();
    steps.sort_by_key(|step| step.key);
    steps
}

/// The commits of another branch that a merge only had to go forward over, the oldest first, without the last.
fn line_of<'a>(
    after: Option<CommitId>,
    foreign: &HashMap<CommitId, &'a LogEntry>,
    told: &mut HashSet<CommitId>,
) -> Vec<&'a LogEntry> {
    let mut line = Vec::new();
    let mut at = after;
    while let Some(entry) = at.and_then(|id| foreign.get(&id)) {
        if !entry.commit.is_some_and(|id| told.insert(id)) {
            break;
        }
        line.push(*entry);
        at = entry.parents.first().copied();
    }
    line.reverse();
    line.pop();
    line
}

/// Steps that were written.
struct Chain<'a> {
    writer: &'a Writer,
    store: &'a ObjectStore,
    step: i64,
    /// What the last one left.
    shown: Option<(CommitId, Option<TreeId>)>,
}

impl Chain<'_> {
    fn add(&mut self, step: &Step<'_>) -> Result<()> {
        self.step += 1;
        let before = self.shown;
        let left = match step.after {
            Some(id) => self.changed(id)?,
            None => None,
        };
        let sql = "INSERT INTO agentvfs_step VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        self.writer.run(
            sql,
            params![
                self.step,
                step.key.0 as i64,
                step.kind,
                { step.time.sec },
                { step.time.nsec },
                step.call.map(|id| id as i64),
                before.map(|(id, _)| id.to_string()),
                left.map(|id| id.to_string()),
            ],
        )
    }

    /// Writes what differs between what is shown and a commit, which is shown from then on; `None` where that
    /// is not kept any more.
    fn changed(&mut self, id: CommitId) -> Result<Option<CommitId>> {
        if !self.store.contains(Kind::Commit, id.as_bytes()) {
            return Ok(None);
        }
        let commit: Commit = self.store.get_object(&id)?;
        let mut rows = Vec::new();
        if let Some((_, old)) = self.shown {
            let found = pairs(self.store, old, commit.root, &mut |path, a, b| {
                let (a, b) = (a.map(Side::of), b.map(Side::of));
                if a != b {
                    rows.push((path.to_vec(), a, b));
                }
            });
            match found {
                // Of a commit that expired only the commit itself may be left.
                Err(Error::Engine(engine::Error::Store(objstore::Error::ObjectMissing {
                    ..
                }))) => return Ok(None),
                other => other?,
            }
        }
        for (path, a, b) in rows {
            self.row(&path, a.unwrap_or_default(), b.unwrap_or_default())?;
        }
        self.shown = Some((id, commit.root));
        Ok(Some(id))
    }

    fn row(&self, path: &[u8], old: Side, new: Side) -> Result<()> {
        let (path, raw) = shown(path);
        let sql = "INSERT INTO agentvfs_step_change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        self.writer.run(
            sql,
            params![
                self.step, path, raw, old.kind, new.kind, old.entry, new.entry, old.id, new.id
            ],
        )
    }
}

/// What is under a path, as far as a diff tells it apart; nothing of all where there is nothing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Side {
    /// Type; a directory that is not empty is `directory+`.
    kind: Option<&'static str>,
    /// Hash of attributes and content; of a directory neither its time nor what is in it counts.
    entry: Option<String>,
    /// What names the content.
    id: Option<String>,
}

impl Side {
    fn of(entry: &TreeEntry) -> Side {
        let (meta, is_dir) = (&entry.meta, matches!(entry.body, Body::Dir(_)));
        let kind = match (&entry.body, meta.mode & 0o170000) {
            (Body::Dir(Some(_)), _) => "directory+",
            (Body::Dir(None), _) => "directory",
            (Body::File(_), _) => "file",
            (Body::Symlink(_), _) => "link",
            (Body::None, 0o010000) => "fifo",
            (Body::None, 0o020000) => "character-device",
            (Body::None, 0o060000) => "block-device",
            (Body::None, _) => "socket",
        };
        let id = crate::changes::id_of(&entry.body).filter(|_| !is_dir);
        let mut hasher = blake3::Hasher::new();
        let mut number = |n: u64| {
            hasher.update(&n.to_le_bytes());
        };
        number(u64::from(meta.mode));
        number(u64::from(meta.uid));
        number(u64::from(meta.gid));
        number(meta.rdev);
        if !is_dir {
            number(meta.link_group);
            number(meta.mtime_sec as u64);
            number(u64::from(meta.mtime_nsec));
        }
        for (name, value) in &meta.xattrs {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
            hasher.update(&(value.len() as u64).to_le_bytes());
            hasher.update(value);
        }
        if let Some(id) = &id {
            hasher.update(id.as_bytes());
        }
        let hash = hasher.finalize().to_hex();
        Side {
            kind: Some(kind),
            entry: Some(hash[..DIGITS].to_owned()),
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_stand_behind_the_entry_that_came_before_them() {
        let order = Order {
            // Entry 6 was made when the branch showed what it had shown at state 2.
            entries: vec![(8, 9), (6, 2), (4, 5), (1, 1)],
            switches: Vec::new(),
        };
        let place = order.places();
        let found: Vec<u64> = [1, 2, 5, 6, 9, 10].into_iter().map(place).collect();
        assert_eq!(found, [0, 1, 1, 6, 6, 8]);
    }
}
