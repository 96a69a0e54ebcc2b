//! A branch's history as SQL: `export --history`, through the real binary.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use std::fs;
use tests::database;
use tests::env::{Env, Told};

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// Rows of a query as lines.
#[track_caller]
fn rows(db: &Connection, sql: &str) -> Vec<String> {
    let mut select = db.prepare(sql).unwrap();
    let columns = select.column_count();
    let line = |row: &rusqlite::Row<'_>| {
        let cell = |i| {
            row.get::<_, Option<String>>(i)
                .map(Option::unwrap_or_default)
        };
        let cells: rusqlite::Result<Vec<String>> = (0..columns).map(cell).collect();
        Ok(cells?.join("|"))
    };
    let found = select.query_map([], line).unwrap();
    found.map(Result::unwrap).collect()
}

/// A call as AgentFS's Rust SDK records one: an empty text where there is no result.
fn record_foreign(db: &Connection) {
    db.execute_batch(
        "INSERT INTO tool_calls (name, parameters, result, error, status, started_at, completed_at, duration_ms)
         VALUES ('foreign', 'not json', '', 'timeout', 'error', 1700000000, 1700000002, 2000)",
    )
    .unwrap();
}

#[test]
fn calls_tell_what_they_changed_and_come_along() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("a"), "a").unwrap();
    env.start();
    let exec = |name: &str, script: &str| {
        let args = [
            "tool", "exec", name, "-w", "project", "--", "sh", "-c", script,
        ];
        let mut command = env.command(&env.mountpoint(), &args);
        command.stderr(std::process::Stdio::null());
        env.told(command)
    };
    assert_eq!(exec("edit", "echo more >> a").status, 0);
    assert_eq!(exec("make", "echo b > b").status, 0);
    assert_ne!(exec("fail", "exit 3").status, 0);
    run(&env, &["export", "--history", "project", "h.db"]).ok();
    database::check(&env.path("h.db"));
    let db = database::open(&env.path("h.db"));
    let calls = "SELECT name, status FROM tool_calls ORDER BY id";
    let wanted = ["edit|success", "make|success", "fail|error"];
    assert_eq!(rows(&db, calls), wanted);
    let touched = "SELECT path, kind, name FROM agentvfs_calls_of_path ORDER BY path";
    assert_eq!(rows(&db, touched), ["a|M|edit", "b|A|make"]);
    assert_eq!(
        rows(&db, "SELECT name FROM agentvfs_errors_last_hour"),
        ["fail"]
    );
    record_foreign(&db);
    drop(db);
    run(&env, &["import", "h.db", "--workspace", "copy"]).ok();
    run(&env, &["export", "copy", "again.db"]).ok();
    let again = database::open(&env.path("again.db"));
    assert_eq!(
        rows(&again, calls),
        [&wanted[..], &["foreign|error"]].concat()
    );
    let same =
        "SELECT count(*) FROM tool_calls WHERE id = 1 AND name = 'edit' AND result IS NOT NULL";
    assert_eq!(database::number(&again, same), 1);
    run(
        &env,
        &[
            "import",
            "h.db",
            "--workspace",
            "project",
            "--branch",
            "theirs",
        ],
    )
    .ok();
    let told = run(
        &env,
        &["timeline", "-w", "project", "--branch", "theirs", "--json"],
    )
    .ok();
    assert_eq!(told.matches("\"foreign\"").count(), 1, "{told}");
    assert_eq!(told.matches("\"edit\"").count(), 1, "{told}");
    database::made(
        &env.path("h.db"),
        &["UPDATE tool_calls SET started_at = 'soon' WHERE id = 4"],
    );
    run(&env, &["import", "h.db", "--workspace", "bad"]).fails(1, "not an integer");
    assert!(!env.home().join("workspaces/bad").exists());
}

#[test]
fn every_commit_tells_what_it_changed_and_who_made_it() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("a"), "a").unwrap();
    fs::write(env.project().join("old-name"), "kept content").unwrap();
    let root = env.start();
    let checkpoint = |label: &str, turn: &str| {
        env.workspace(&["checkpoint", label, "--meta", &format!("turn={turn}")])
            .id()
    };
    fs::write(root.join("a"), "changed").unwrap();
    fs::write(root.join("b"), "b").unwrap();
    let one = checkpoint("one", "1");
    fs::rename(root.join("old-name"), root.join("new-name")).unwrap();
    fs::remove_file(root.join("b")).unwrap();
    fs::create_dir(root.join("b")).unwrap();
    fs::create_dir(root.join("b/in")).unwrap();
    let two = checkpoint("two", "2");
    fs::remove_file(root.join("a")).unwrap();
    checkpoint("three", "3");
    let out = run(&env, &["export", "--history", "h.db"]).ok();
    assert!(out.contains("\ncommits=4\n"), "{out}");
    database::check(&env.path("h.db"));
    let db = database::open(&env.path("h.db"));
    let of = |id: &str| {
        let sql = format!(
            "SELECT kind, path, old_path FROM agentvfs_change WHERE commit_id = '{id}' ORDER BY path"
        );
        rows(&db, &sql)
    };
    assert_eq!(of(&one), ["M|a|", "A|b|"]);
    assert_eq!(of(&two), ["T|b|", "A|b/in|", "R|new-name|old-name"]);
    let history = "SELECT kind, made_by FROM agentvfs_path_history WHERE path = 'a' ORDER BY time";
    assert_eq!(rows(&db, history), ["M|checkpoint", "D|checkpoint"]);
    let between = "SELECT DISTINCT path FROM agentvfs_change_by_meta
        WHERE key = 'turn' AND CAST(value AS INTEGER) BETWEEN 2 AND 3 ORDER BY path";
    assert_eq!(rows(&db, between), ["a", "b", "b/in", "new-name"]);
    assert!(rows(&db, "SELECT * FROM agentvfs_errors_last_hour").is_empty());
    let labels = "SELECT label FROM agentvfs_label ORDER BY label";
    assert_eq!(rows(&db, labels), ["one", "three", "two"]);
    let ids = "SELECT new_id FROM agentvfs_change WHERE path = 'new-name'
        UNION SELECT old_id FROM agentvfs_change WHERE path = 'new-name'";
    assert_eq!(rows(&db, ids).len(), 1, "a rename keeps the content");
    let told = run(&env, &["import", "h.db", "--workspace", "copy", "--json"]).ok();
    assert!(told.contains("\"branch\": \"main\""), "{told}");
}
