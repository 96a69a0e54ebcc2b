//! Databases to import.

use engine::{Cancel, Engine, EngineConfig};
use export::{ExportRequest, ImportRequest, export, import};
use objstore::crash_storage::CrashStorage;
use objstore::{CommitKind, TreeId};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

/// A database is refused, or it becomes a workspace; an export of that becomes the same tree again.
pub fn check(bytes: &[u8]) {
    let memory = Path::new("/dev/shm");
    let place = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let Ok(dir) = place else { return };
    let file = dir.path().join("x.db");
    if std::fs::write(&file, bytes).is_err() {
        return;
    }
    let config = EngineConfig {
        root: dir.path().to_owned(),
        author: "fuzz".to_owned(),
    };
    let Ok(engine) = Engine::on_storage(config, Arc::new(CrashStorage::without_log())) else {
        return;
    };
    let Some(root) = imported(&engine, &file, "first") else {
        return;
    };
    let again = dir.path().join("again.db");
    let told = exported(&engine, &again);
    assert_eq!(told, Some(root), "an export has another tree");
    assert_eq!(
        imported(&engine, &again, "second"),
        Some(root),
        "it comes back as another"
    );
}

/// Root of a database that is taken, as a workspace of that name.
fn imported(engine: &Engine, file: &Path, name: &str) -> Option<Option<TreeId>> {
    let request = ImportRequest {
        file,
        base: None,
        sparse: false,
        skip_invalid: false,
        kind: CommitKind::Start,
    };
    let make = |id, calls: engine::Calls<'_>| {
        let made = engine.create_from_commit(name, id, None, calls);
        assert!(
            made.is_ok(),
            "what was taken cannot be made a workspace: {made:?}"
        );
        Ok(())
    };
    let done = import(
        engine,
        &request,
        &|_| false,
        (&|_, _| (), &Cancel::new()),
        make,
    );
    done.ok().map(|(imported, ())| imported.root)
}

fn exported(engine: &Engine, file: &Path) -> Option<Option<TreeId>> {
    let workspace = engine.open_workspace("first").ok()?;
    let request = ExportRequest {
        branch: "main",
        reference: None,
        file,
        force: false,
        history: true,
    };
    let report = export(engine, &workspace, &request, &|_, _| (), &Cancel::new());
    report.ok().map(|report| report.root)
}

/// AgentFS's tables with a small tree, and agentvfs's own.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    database(&[TABLES, TREE, OWN]).into_iter().collect()
}

/// A database of these statements, in small pages.
fn database(statements: &[&str]) -> Option<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().ok()?;
    let db = Connection::open(file.path()).ok()?;
    db.execute_batch("PRAGMA page_size = 512").ok()?;
    for sql in statements {
        db.execute_batch(sql).ok()?;
    }
    db.close().ok()?;
    std::fs::read(file.path()).ok()
}

const TABLES: &str = "
    CREATE TABLE fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode INTEGER, nlink INTEGER, uid INTEGER, gid INTEGER,
        size INTEGER, mtime INTEGER, mtime_nsec INTEGER, rdev INTEGER);
    CREATE TABLE fs_dentry (id INTEGER PRIMARY KEY, name TEXT, parent_ino INTEGER, ino INTEGER,
        UNIQUE(parent_ino, name));
    CREATE TABLE fs_data (ino INTEGER, chunk_index INTEGER, data BLOB, PRIMARY KEY (ino, chunk_index));
    CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT);
    CREATE TABLE kv_store (key TEXT PRIMARY KEY, value TEXT, created_at INTEGER, updated_at INTEGER);";

const TREE: &str = "
    INSERT INTO fs_config VALUES ('chunk_size', '4');
    INSERT INTO fs_inode VALUES (1, 16877, 2, 0, 0, 0, 5, 0, 0), (2, 16877, 2, 0, 0, 0, 5, 1, 0),
        (3, 33188, 2, 7, 8, 10, 6, 999999999, 0), (4, 41471, 1, 0, 0, 1, 5, 0, 0),
        (5, 8630, 1, 0, 0, 0, -5, 0, 259);
    INSERT INTO fs_dentry VALUES (1, 'd', 1, 2), (2, 'file', 2, 3), (3, 'again', 1, 3),
        (4, 'link', 2, 4), (5, 'null', 1, 5);
    INSERT INTO fs_symlink VALUES (4, 'x');
    INSERT INTO fs_data VALUES (3, 0, x'61626364'), (3, 1, x'00000000'), (3, 2, x'696a');
    INSERT INTO kv_store VALUES ('key', '{\"a\":1}', 5, 6);";

const OWN: &str = "
    CREATE TABLE agentvfs_info (key TEXT PRIMARY KEY, value TEXT);
    CREATE TABLE agentvfs_link_group (ino INTEGER PRIMARY KEY, number INTEGER);
    CREATE TABLE agentvfs_xattr (ino INTEGER, name BLOB, value BLOB, PRIMARY KEY (ino, name));
    CREATE TABLE agentvfs_hole (ino INTEGER, start INTEGER, length INTEGER, PRIMARY KEY (ino, start));
    CREATE TABLE agentvfs_name (dentry_id INTEGER PRIMARY KEY, shown TEXT, name BLOB);
    CREATE TABLE agentvfs_target (ino INTEGER PRIMARY KEY, shown TEXT, target BLOB);
    INSERT INTO agentvfs_info VALUES ('format', '1'), ('workspace', 'w');
    INSERT INTO agentvfs_link_group VALUES (3, 99);
    INSERT INTO agentvfs_xattr VALUES (2, x'757365722e61', x'00ff');
    INSERT INTO agentvfs_hole VALUES (3, 4, 4);
    INSERT INTO agentvfs_name VALUES (2, 'file', x'66ff');
    INSERT INTO agentvfs_target VALUES (4, 'x', x'78ff');";
