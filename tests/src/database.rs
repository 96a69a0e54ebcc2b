//! Exports as the tests see them: the rules of AgentFS's specification as queries, and databases as
//! AgentFS's tools make them.

use rusqlite::Connection;
use std::path::Path;

/// Opens a database.
pub fn open(file: &Path) -> Connection {
    Connection::open(file).unwrap()
}

/// What a query counts.
#[track_caller]
pub fn number(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Queries that find what breaks the rules of AgentFS's specification; each finds nothing.
const RULES: [(&str, &str); 14] = [
    ("the root is a directory", "SELECT 1 WHERE NOT EXISTS
        (SELECT 1 FROM fs_inode WHERE ino = 1 AND mode & 61440 = 16384)"),
    ("names lead to inodes", "SELECT d.name FROM fs_dentry d LEFT JOIN fs_inode i USING (ino) WHERE i.ino IS NULL"),
    ("names are in directories", "SELECT d.name FROM fs_dentry d LEFT JOIN fs_inode i ON i.ino = d.parent_ino
        WHERE i.ino IS NULL OR i.mode & 61440 <> 16384"),
    ("the root has no name", "SELECT name FROM fs_dentry WHERE ino = 1"),
    ("all but the root have a name", "SELECT i.ino FROM fs_inode i LEFT JOIN fs_dentry d USING (ino)
        WHERE d.ino IS NULL AND i.ino <> 1"),
    ("sizes are those of the data", "SELECT i.ino FROM fs_inode i LEFT JOIN fs_data d USING (ino)
        WHERE i.mode & 61440 = 32768 GROUP BY i.ino HAVING i.size <> coalesce(sum(length(d.data)), 0)"),
    ("only files have data", "SELECT d.ino FROM fs_data d JOIN fs_inode i USING (ino) WHERE i.mode & 61440 <> 32768"),
    ("chunks follow one another", "SELECT ino FROM fs_data GROUP BY ino
        HAVING min(chunk_index) <> 0 OR max(chunk_index) <> count(*) - 1"),
    ("chunks but the last are full", "SELECT d.ino FROM fs_data d JOIN
        (SELECT ino, max(chunk_index) AS last FROM fs_data GROUP BY ino) l USING (ino)
        WHERE d.chunk_index < l.last AND length(d.data) <> (SELECT value FROM fs_config WHERE key = 'chunk_size')"),
    ("data is bytes", "SELECT ino FROM fs_data WHERE typeof(data) <> 'blob'"),
    ("link counts are those of the names", "SELECT i.ino FROM fs_inode i JOIN fs_dentry d USING (ino)
        WHERE i.mode & 61440 <> 16384 GROUP BY i.ino HAVING i.nlink <> count(*)"),
    ("links have targets", "SELECT i.ino FROM fs_inode i LEFT JOIN fs_symlink s USING (ino)
        WHERE (i.mode & 61440 = 40960) <> (s.target IS NOT NULL)"),
    ("names are text and can be names", "SELECT name FROM fs_dentry
        WHERE typeof(name) <> 'text' OR name IN ('', '.', '..') OR instr(name, '/') > 0"),
    ("calls have one of result and error", "SELECT id FROM tool_calls
        WHERE (result IS NOT NULL AND error IS NOT NULL) OR status NOT IN ('pending', 'success', 'error')"),
];

/// What AgentFS's tools look for.
const OBJECTS: [&str; 12] = [
    "fs_config",
    "fs_inode",
    "fs_dentry",
    "fs_data",
    "fs_symlink",
    "kv_store",
    "tool_calls",
    "idx_fs_dentry_parent",
    "idx_kv_store_created_at",
    "idx_tool_calls_name",
    "idx_tool_calls_started_at",
    "agentvfs_info",
];

/// Checks an export by all rules; what is beside AgentFS's tables must be agentvfs's own.
#[track_caller]
pub fn check(file: &Path) {
    let db = open(file);
    let sound: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    for (rule, sql) in RULES {
        let mut select = db.prepare(sql).unwrap();
        assert!(!select.exists([]).unwrap(), "not true: {rule}");
    }
    for name in OBJECTS {
        let sql = format!("SELECT count(*) FROM sqlite_schema WHERE name = '{name}'");
        assert_eq!(number(&db, &sql), 1, "{name}");
    }
    let others = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'agentvfs_%'
        AND name NOT LIKE 'fs_%' AND name NOT LIKE 'idx_%' AND name NOT LIKE 'sqlite_%'
        AND name NOT IN ('kv_store', 'tool_calls')";
    assert_eq!(number(&db, others), 0);
    assert_eq!(
        number(
            &db,
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'fs_whiteout'"
        ),
        0
    );
    let version: String = db
        .query_row(
            "SELECT value FROM fs_config WHERE key = 'schema_version'",
            [],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(version, "0.4");
}

/// The tables of AgentFS as its specification's text has them, older than its SDKs' in places: no `id`
/// of names, no devices, no fractions of seconds, no `status` of calls.
pub const OLD: &str = "
    CREATE TABLE tool_calls (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, parameters TEXT,
        result TEXT, error TEXT, started_at INTEGER NOT NULL, completed_at INTEGER NOT NULL,
        duration_ms INTEGER NOT NULL);
    CREATE TABLE fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL,
        nlink INTEGER NOT NULL DEFAULT 0, uid INTEGER NOT NULL DEFAULT 0, gid INTEGER NOT NULL DEFAULT 0,
        size INTEGER NOT NULL DEFAULT 0, atime INTEGER NOT NULL, mtime INTEGER NOT NULL,
        ctime INTEGER NOT NULL);
    CREATE TABLE fs_dentry (name TEXT NOT NULL, parent_ino INTEGER NOT NULL, ino INTEGER NOT NULL,
        PRIMARY KEY(parent_ino, name));
    CREATE TABLE fs_data (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (ino, chunk_index));
    CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT NOT NULL);
    CREATE TABLE kv_store (key TEXT PRIMARY KEY, value TEXT NOT NULL,
        created_at INTEGER DEFAULT (unixepoch()), updated_at INTEGER DEFAULT (unixepoch()));
    INSERT INTO fs_config VALUES ('chunk_size', '4');
    INSERT INTO fs_inode VALUES (1, 16877, 1, 0, 0, 0, 5, 5, 5);
";

/// A small tree for [`OLD`]: a directory `d` with a file, which has a second name, and a link.
pub const SMALL_TREE: &str = "
    INSERT INTO fs_inode VALUES (2, 16877, 1, 0, 0, 0, 5, 5, 5), (3, 33188, 2, 7, 8, 10, 5, 6, 5),
        (4, 41471, 1, 0, 0, 1, 5, 5, 5);
    INSERT INTO fs_dentry VALUES ('d', 1, 2), ('file', 2, 3), ('again', 1, 3), ('link', 2, 4);
    INSERT INTO fs_symlink VALUES (4, 'x');
    INSERT INTO fs_data VALUES (3, 0, x'61626364'), (3, 1, x'65666768'), (3, 2, x'696a');
";

/// A database of these statements.
pub fn made(file: &Path, statements: &[&str]) {
    let db = open(file);
    statements
        .iter()
        .for_each(|sql| db.execute_batch(sql).unwrap());
}

/// What an export says of calls that an import takes over, row by row; what is of commits and of places in the
/// timeline is not.
pub fn calls(file: &Path) -> Vec<String> {
    const QUERIES: [&str; 3] = [
        "SELECT 'own', t.*, c.started_nsec, c.completed_nsec, c.overlaps, c.parent
        FROM tool_calls t JOIN agentvfs_tool_call c USING (id) ORDER BY id",
        "SELECT 'timeline', * FROM agentvfs_timeline ORDER BY timeline",
        "SELECT timeline, id, name, parameters, result, error, status, started_at, started_nsec, completed_at,
            completed_nsec, duration_ms, parent, overlaps FROM agentvfs_other_call ORDER BY timeline, id",
    ];
    let db = open(file);
    let mut found = Vec::new();
    for sql in QUERIES {
        let mut select = db.prepare(sql).unwrap();
        let columns = select.column_count();
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let value = |at| format!("{:?}", row.get_ref(at).unwrap());
            found.push((0..columns).map(value).collect::<Vec<_>>().join(" "));
        }
    }
    found
}
