//! Databases from elsewhere: AgentFS's variants become workspaces, hostile ones are refused with a line.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tests::database::{OLD, SMALL_TREE, made, open};
use tests::env::{Env, Told};

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// Imports a database and starts the workspace; gives its mount.
fn imported(env: &Env, file: &str, more: &[&str]) -> PathBuf {
    let name = file.trim_end_matches(".db");
    let args: Vec<&str> = ["import", file, "--workspace", name]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    run(env, &args).ok();
    env.workspace(&["start", name]).ok();
    env.home().join("mnt").join(name)
}

#[test]
fn tables_as_the_specification_has_them_are_taken() {
    let Some(env) = Env::new() else { return };
    made(&env.path("old.db"), &[OLD, SMALL_TREE]);
    let root = imported(&env, "old.db", &[]);
    assert_eq!(fs::read(root.join("d/file")).unwrap(), b"abcdefghij");
    assert_eq!(fs::read_link(root.join("d/link")).unwrap(), Path::new("x"));
    let (file, again) = (root.join("d/file"), root.join("again"));
    let (file, again) = (file.metadata().unwrap(), again.metadata().unwrap());
    assert_eq!(
        (file.ino(), file.nlink(), file.uid(), file.gid()),
        (again.ino(), 2, 7, 8)
    );
    assert_eq!((file.mtime(), file.mode()), (6, 0o100644));
}

#[test]
fn log_that_was_not_folded_in_is_read_and_left_as_it_is() {
    let Some(env) = Env::new() else { return };
    made(
        &env.path("wal.db"),
        &["PRAGMA journal_mode = WAL", OLD, SMALL_TREE],
    );
    // Kept open, so that nothing is folded in when it is closed.
    let writer = open(&env.path("wal.db"));
    writer
        .execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE fs_data SET data = x'5a5a5a5a' WHERE chunk_index = 0")
        .unwrap();
    let log = fs::read(env.path("wal.db-wal")).unwrap();
    assert!(!log.is_empty());
    let root = imported(&env, "wal.db", &[]);
    assert_eq!(fs::read(root.join("again")).unwrap(), b"ZZZZefghij");
    assert_eq!(fs::read(env.path("wal.db-wal")).unwrap(), log);
    assert_eq!(
        fs::read_dir(env.home().join("importing")).unwrap().count(),
        0
    );
}

#[test]
fn overlay_is_laid_over_its_base() {
    let Some(env) = Env::new() else { return };
    let base = env.path("base");
    fs::create_dir_all(base.join("d/deep")).unwrap();
    for (name, text) in [
        ("d/file", "hidden by the database"),
        ("d/deep/shown", "shown"),
        ("gone", "x"),
    ] {
        fs::write(base.join(name), text).unwrap();
    }
    fs::hard_link(base.join("d/deep/shown"), base.join("linked")).unwrap();
    symlink("/etc", base.join("d/away")).unwrap();
    let overlay = "
        CREATE TABLE fs_whiteout (path TEXT PRIMARY KEY, created_at INTEGER NOT NULL);
        CREATE TABLE fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL);
        CREATE TABLE fs_overlay_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        INSERT INTO fs_overlay_config VALUES ('base_path', '/home/somebody/project');
        INSERT INTO fs_whiteout VALUES ('/gone', 5);";
    made(&env.path("over.db"), &[OLD, SMALL_TREE, overlay]);
    run(&env, &["import", "over.db", "--workspace", "over"]).fails(1, "/home/somebody/project");
    let root = imported(&env, "over.db", &["--base", "base"]);
    assert_eq!(fs::read(root.join("d/file")).unwrap(), b"abcdefghij");
    assert_eq!(fs::read(root.join("d/deep/shown")).unwrap(), b"shown");
    assert_eq!(
        fs::read_link(root.join("d/away")).unwrap(),
        Path::new("/etc")
    );
    assert!(!root.join("gone").exists() && root.join("again").exists());
    assert_eq!(root.join("linked").metadata().unwrap().nlink(), 2);
    made(&env.path("whole.db"), &[OLD]);
    run(
        &env,
        &["import", "whole.db", "-w", "whole", "--base", "base"],
    )
    .fails(1, "has no base");
}

#[test]
fn missing_pieces_are_holes_only_where_that_is_wanted() {
    let Some(env) = Env::new() else { return };
    let sparse =
        "DELETE FROM fs_data WHERE chunk_index = 1; UPDATE fs_inode SET size = 20000 WHERE ino = 3";
    made(&env.path("gaps.db"), &[OLD, SMALL_TREE, sparse]);
    run(&env, &["import", "gaps.db", "-w", "gaps"]).fails(1, "missing or too short");
    let root = imported(&env, "gaps.db", &["--sparse"]);
    let mut wanted = b"abcd\0\0\0\0ij".to_vec();
    wanted.resize(20000, 0);
    assert_eq!(fs::read(root.join("again")).unwrap(), wanted);
}

/// What is done to a sound database, and what the refusal says.
const HOSTILE: [(&str, &str); 31] = [
    ("DROP TABLE fs_inode", "no table fs_inode"),
    (
        "DROP TABLE fs_data; CREATE VIEW fs_data AS SELECT 3 AS ino, 0 AS chunk_index, x'00' AS data",
        "no table fs_data",
    ),
    (
        "ALTER TABLE fs_inode RENAME COLUMN size TO length",
        "no column size",
    ),
    ("DELETE FROM fs_inode WHERE ino = 1", "no root directory"),
    (
        "UPDATE fs_inode SET mode = 33188 WHERE ino = 1",
        "no root directory",
    ),
    (
        "UPDATE fs_dentry SET name = '../x' WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = '..' WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = '.' WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = '' WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = '.agentvfs' WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = 'a' || char(0) WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = printf('%300s', 'x') WHERE name = 'd'",
        "not a valid file name",
    ),
    (
        "UPDATE fs_dentry SET name = x'ff' WHERE name = 'd'",
        "is bytes",
    ),
    (
        "UPDATE fs_dentry SET ino = 99 WHERE name = 'file'",
        "does not exist",
    ),
    (
        "UPDATE fs_dentry SET ino = 'three' WHERE name = 'file'",
        "not an integer",
    ),
    (
        "INSERT INTO fs_dentry VALUES ('loop', 2, 2)",
        "more than one name",
    ),
    (
        "INSERT INTO fs_dentry VALUES ('loop', 2, 1)",
        "more than one name",
    ),
    (
        "UPDATE fs_dentry SET parent_ino = 2 WHERE name = 'd'",
        "cannot be reached from the root",
    ),
    ("UPDATE fs_inode SET size = -1 WHERE ino = 3", "is -1"),
    (
        "UPDATE fs_inode SET size = 1000000000000 WHERE ino = 3",
        "1000000000000 bytes long",
    ),
    (
        "UPDATE fs_inode SET size = 4611686018427387904 WHERE ino = 3",
        "is 4611686018427387904",
    ),
    (
        "UPDATE fs_inode SET size = 'long' WHERE ino = 3",
        "not an integer",
    ),
    (
        "UPDATE fs_inode SET mode = 0 WHERE ino = 3",
        "the mode of inode 3 is 0",
    ),
    ("UPDATE fs_inode SET uid = -1 WHERE ino = 3", "is -1"),
    (
        "UPDATE fs_data SET data = 'text' WHERE chunk_index = 0",
        "not made of bytes",
    ),
    (
        "DELETE FROM fs_data WHERE chunk_index = 1",
        "missing or too short",
    ),
    (
        "UPDATE fs_data SET chunk_index = 1000000000000 WHERE chunk_index = 2",
        "missing or too short",
    ),
    (
        "INSERT INTO fs_data VALUES (2, 0, x'00')",
        "directory 2 has file data",
    ),
    ("DELETE FROM fs_symlink", "no valid target"),
    ("UPDATE fs_config SET value = '0'", "chunk size"),
    (
        "DROP TABLE fs_symlink; DROP TABLE fs_data; CREATE TABLE fs_data (ino, chunk_index, \
      data BLOB AS (zeroblob(100000000)))",
        "no column data",
    ),
];

#[test]
fn hostile_databases_are_refused_with_one_line_and_leave_nothing() {
    let Some(env) = Env::new() else { return };
    for (i, (change, why)) in HOSTILE.iter().enumerate() {
        let file = format!("bad-{i}.db");
        made(
            &env.path(&file),
            &[OLD, SMALL_TREE, "PRAGMA writable_schema = ON", change],
        );
        run(&env, &["import", &file, "--workspace", "bad"]).fails(1, why);
    }
    nothing_is_left(&env);
}

fn nothing_is_left(env: &Env) {
    assert_eq!(env.workspace(&["list"]).ok(), "");
    let left = fs::read_dir(env.home().join("workspaces"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
    assert_eq!(run(env, &["fsck"]).status, 0);
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let Some(env) = Env::new() else { return };
    made(&env.path("good.db"), &[OLD, SMALL_TREE]);
    let good = fs::read(env.path("good.db")).unwrap();
    let refuse = |bytes: &[u8]| {
        fs::write(env.path("bad.db"), bytes).unwrap();
        let told = run(&env, &["import", "bad.db", "--workspace", "bad"]);
        told.fails(1, "is refused");
    };
    refuse(b"");
    refuse(b"SQLite format 3\0");
    refuse(b"not a database at all, but long enough to be one");
    for end in [100, 4096, good.len() / 2, good.len() - 1] {
        refuse(&good[..end]);
    }
    fs::create_dir(env.path("dir.db")).unwrap();
    run(&env, &["import", "dir.db", "--workspace", "bad"]).fails(1, "not a file");
    nothing_is_left(&env);
}

#[test]
fn names_without_end_and_deep_trees_are_refused() {
    let Some(env) = Env::new() else { return };
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70000)
        INSERT INTO fs_dentry SELECT 'n' || i, 1, 3 FROM n";
    made(&env.path("many.db"), &[OLD, SMALL_TREE, many]);
    run(&env, &["import", "many.db", "-w", "bad"]).fails(1, "inode 3 has 70002 names");
    let deep = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
        INSERT INTO fs_inode SELECT i, 16877, 1, 0, 0, 0, 5, 5, 5 FROM n;
        INSERT INTO fs_dentry SELECT 'd', ino - 1, ino FROM fs_inode WHERE ino > 10;
        INSERT INTO fs_dentry VALUES ('first', 1, 10)";
    made(&env.path("deep.db"), &[OLD, deep]);
    run(&env, &["import", "deep.db", "-w", "bad"]).fails(1, "deep");
    nothing_is_left(&env);
}

#[test]
fn database_whose_reading_would_never_end_is_given_up() {
    let Some(env) = Env::new() else { return };
    // Without an index each directory is a walk through all names.
    let slow = "CREATE TABLE d2 (name TEXT, parent_ino INTEGER, ino INTEGER);
        DROP TABLE fs_dentry; ALTER TABLE d2 RENAME TO fs_dentry;
        WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
        INSERT INTO fs_inode SELECT i, 16877, 1, 0, 0, 0, 5, 5, 5 FROM n;
        INSERT INTO fs_dentry SELECT 'd' || ino, 1, ino FROM fs_inode WHERE ino >= 10;";
    made(&env.path("slow.db"), &[OLD, slow]);
    let told = run(&env, &["import", "slow.db", "-w", "bad"]);
    told.fails(1, "more work than its size allows");
}

#[test]
fn own_tables_that_no_longer_fit_are_not_believed() {
    let Some(env) = Env::new() else { return };
    let project = env.project();
    tests::tree::sparse(&project.join("sparse"), 1 << 20, &[(0, b"head")]);
    fs::write(project.join("x"), "x").unwrap();
    env.start();
    run(&env, &["export", "project", "own.db"]).ok();
    let db: Connection = open(&env.path("own.db"));
    // The hole is written to, as AgentFS's tools would: they know nothing of holes.
    db.execute_batch(
        "UPDATE fs_data SET data = cast(zeroblob(65535) || x'07' AS BLOB) WHERE chunk_index = 3;",
    )
    .unwrap();
    let bad = "UPDATE agentvfs_link_group SET number = 0";
    db.execute_batch("INSERT INTO agentvfs_link_group SELECT ino, 77 FROM fs_dentry")
        .unwrap();
    drop(db);
    let root = imported(&env, "own.db", &[]);
    let found = fs::read(root.join("sparse")).unwrap();
    assert_eq!(
        (found.len(), found[(256 << 10) - 1], &found[..4]),
        (1 << 20, 7, &b"head"[..])
    );
    made(&env.path("own.db"), &[bad]);
    run(&env, &["import", "own.db", "-w", "bad"]).fails(1, "link group");
    made(
        &env.path("own.db"),
        &["UPDATE agentvfs_info SET value = 9 WHERE key = 'format'"],
    );
    run(&env, &["import", "own.db", "-w", "bad"]).fails(1, "newer");
}
