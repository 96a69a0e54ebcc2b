//! Sums over what an export holds beside its files, by which an import tells whether it is as it was exported.
//!
//! The files have their Merkle root (`root` in `agentvfs_info`). Each sum is the hash of what statements find,
//! typed value by typed value: whoever writes an export and whoever reads it run the same statements, so
//! nothing depends on how either takes the values. The sum `sum_info` covers `agentvfs_info` with all others.

use crate::check::Shape;
use crate::error::Result;
use crate::facts::Facts;
use crate::source::Source;
use crate::write::Writer;
use objstore::TreeId;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Version of what an export of this format has that who reads it may leave aside.
pub(crate) const REVISION: i64 = 4;
/// The first one with sums.
const REVISION_WITH_SUMS: i64 = 2;
/// The first one with parents of calls, and timelines of other branches.
const REVISION_WITH_TIMELINES: i64 = 3;
/// The first one whose id of the root directory follows from the bytes of the files alone.
const REVISION_WITH_CANONICAL_ROOT: i64 = 4;

/// A part of what is imported that has a sum.
struct Sum {
    part: &'static str,
    /// Under which it is in `agentvfs_info`.
    key: &'static str,
    tables: &'static [&'static str],
    statements: &'static [&'static str],
    /// The first revision that has it.
    since: i64,
}

impl Sum {
    /// The statements for a database: before revision 3 calls had no parents.
    fn statements_for(&self, shape: &Shape) -> &'static [&'static str] {
        let parents = shape.has_column("agentvfs_tool_call", "parent");
        match self.part == CALLS && !parents {
            true => &CALLS_BEFORE,
            false => self.statements,
        }
    }
}

/// The calls of the branch.
const CALLS: &str = "calls";
/// What found them up to revision 2.
const CALLS_BEFORE: [&str; 1] = [
    "SELECT t.id, t.name, t.parameters, t.result, t.error, t.status, t.started_at,
        t.completed_at, t.duration_ms, c.before_commit, c.after_commit, c.started_nsec,
        c.completed_nsec, c.overlaps, c.entry
    FROM tool_calls t LEFT JOIN agentvfs_tool_call c ON c.id = t.id ORDER BY t.id",
];
/// All that have one; that of `agentvfs_info` itself is last.
const SUMS: [Sum; 5] = [
    Sum {
        part: "root",
        key: "sum_root",
        tables: &["fs_inode", "agentvfs_xattr"],
        statements: &[
            "SELECT mode, uid, gid, mtime, mtime_nsec, rdev FROM fs_inode WHERE ino = 1",
            "SELECT name, value FROM agentvfs_xattr WHERE ino = 1 ORDER BY name",
        ],
        since: REVISION_WITH_SUMS,
    },
    Sum {
        part: "keys",
        key: "sum_keys",
        tables: &["kv_store", "agentvfs_kv_time"],
        statements: &[
            "SELECT k.key, k.value, k.created_at, k.updated_at, t.created_at, t.created_nsec,
                t.updated_at, t.updated_nsec
            FROM kv_store k LEFT JOIN agentvfs_kv_time t ON t.key = k.key ORDER BY k.key",
        ],
        since: REVISION_WITH_SUMS,
    },
    Sum {
        part: CALLS,
        key: "sum_calls",
        tables: &["tool_calls", "agentvfs_tool_call"],
        statements: &[
            "SELECT t.id, t.name, t.parameters, t.result, t.error, t.status, t.started_at,
                t.completed_at, t.duration_ms, c.before_commit, c.after_commit, c.started_nsec,
                c.completed_nsec, c.overlaps, c.entry, c.parent
            FROM tool_calls t LEFT JOIN agentvfs_tool_call c ON c.id = t.id ORDER BY t.id",
        ],
        since: REVISION_WITH_SUMS,
    },
    Sum {
        part: "timelines",
        key: "sum_timelines",
        tables: &["agentvfs_timeline", "agentvfs_other_call"],
        statements: &[
            "SELECT timeline, branch, deleted, deleted_nsec FROM agentvfs_timeline ORDER BY timeline",
            "SELECT timeline, id, name, parameters, result, error, status, started_at, started_nsec,
                completed_at, completed_nsec, duration_ms, before_commit, after_commit, parent, overlaps,
                entry
            FROM agentvfs_other_call ORDER BY timeline, id",
        ],
        since: REVISION_WITH_TIMELINES,
    },
    Sum {
        part: "origin",
        key: "sum_info",
        tables: &["agentvfs_info"],
        statements: &["SELECT key, value FROM agentvfs_info WHERE key <> 'sum_info' ORDER BY key"],
        since: REVISION_WITH_SUMS,
    },
];
/// The part that the Merkle root covers.
const FILES: &str = "files";

/// What an import found of the parts of a database: `files`, `root` (attributes of the root directory),
/// `keys`, `calls`, `timelines` (calls of other branches), `origin` (what the export says of itself).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Parts that are not as they were exported.
    pub changed: Vec<&'static str>,
    /// Parts of which the database does not say how they were exported.
    pub unchecked: Vec<&'static str>,
}

impl Compared {
    /// All of it in one word.
    pub fn word(&self) -> &'static str {
        match (self.changed.is_empty(), self.unchecked.is_empty()) {
            (false, _) => "changed",
            (true, false) => "unknown",
            (true, true) => "as-exported",
        }
    }
}

/// Writes the sums of an export in which all else is written.
pub(crate) fn write(writer: &Writer) -> Result<()> {
    writer.info("revision", &REVISION.to_string())?;
    SUMS.iter().try_for_each(|sum| {
        let found = writer.read(|db| sum_of(db, sum.statements))?;
        writer.info(sum.key, &found)
    })
}

/// Compares a database, in which this root directory was found, with what it says was exported.
pub(crate) fn compare(
    source: &Source,
    db: &Connection,
    (shape, facts): (&Shape, &Facts<'_>),
    root: Option<TreeId>,
) -> Result<Compared> {
    let mut compared = Compared::default();
    if !shape.has("agentvfs_info") {
        let had = SUMS.iter().filter(|sum| sum.since == REVISION_WITH_SUMS);
        compared.unchecked = std::iter::once(FILES).chain(had.map(|s| s.part)).collect();
        return Ok(compared);
    }
    let root = root.map(|id| id.to_string()).unwrap_or_default();
    let revision = facts.info("revision")?.and_then(|r| r.parse::<i64>().ok());
    let is_canonical = revision.is_some_and(|r| r >= REVISION_WITH_CANONICAL_ROOT);
    match facts.info("root")? {
        Some(exported) if exported == root => {}
        // Another id may also be that of an earlier form of the same files.
        Some(_) if is_canonical => compared.changed.push(FILES),
        _ => compared.unchecked.push(FILES),
    }
    let mut has_sums = revision.is_some_and(|r| r >= REVISION_WITH_SUMS);
    for sum in &SUMS {
        has_sums |= facts.info(sum.key)?.is_some();
    }
    for sum in &SUMS {
        let had = revision.is_some_and(|r| r >= sum.since) || facts.info(sum.key)?.is_some();
        if sum.since > REVISION_WITH_SUMS && !had {
            continue;
        }
        if !has_sums {
            compared.unchecked.push(sum.part);
            continue;
        }
        let there = sum.tables.iter().all(|table| shape.has(table));
        let found = match there {
            true => Some(sum_of(db, sum.statements_for(shape)).map_err(|e| source.sql(e))?),
            false => None,
        };
        if found.is_none() || facts.info(sum.key)? != found {
            compared.changed.push(sum.part);
        }
    }
    Ok(compared)
}

/// The hash of what statements find.
fn sum_of(db: &Connection, statements: &[&str]) -> rusqlite::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for sql in statements {
        let mut select = db.prepare(sql)?;
        let columns = select.column_count();
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                add(&mut hasher, row.get_ref(column)?);
            }
        }
        // No value begins like that.
        hasher.update(&[0xff]);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Adds a value: its type, and what it takes to tell where it ends.
fn add(hasher: &mut blake3::Hasher, value: ValueRef<'_>) {
    let mut bytes = |kind: u8, bytes: &[u8]| {
        hasher.update(&[kind]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    match value {
        ValueRef::Null => bytes(0, &[]),
        ValueRef::Integer(number) => bytes(1, &number.to_le_bytes()),
        ValueRef::Real(number) => bytes(2, &number.to_bits().to_le_bytes()),
        ValueRef::Text(text) => bytes(3, text),
        ValueRef::Blob(blob) => bytes(4, blob),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &str) -> String {
        let db = Connection::open_in_memory().unwrap();
        sum_of(&db, &[&format!("VALUES {values}")]).unwrap()
    }

    #[test]
    fn sums_tell_types_and_ends_of_values_apart() {
        let all = [
            "(1)",
            "('1')",
            "(x'31')",
            "(1.0)",
            "(NULL)",
            "('1', '')",
            "('', '1')",
        ];
        let sums: std::collections::BTreeSet<String> = all.iter().map(|v| sum(v)).collect();
        assert_eq!(sums.len(), all.len());
        assert_eq!(sum("(1), (2)"), sum("(1), (2)"));
    }
}
