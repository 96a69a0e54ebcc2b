//! What `export --history` has of calls: their parents, and the timelines of branches that were merged, also of
//! deleted ones. Imports read them back; exports of revision 2, which have neither, are imported as before.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tests::database;
use tests::env::{Env, Told};

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn json(env: &Env, args: &[&str]) -> Value {
    serde_json::from_str(&run(env, &[args, &["--json"]].concat()).ok()).unwrap()
}

fn begin(env: &Env, branch: &str, tool: &str) -> String {
    let args = ["tool", "start", tool, "-w", "project", "--branch", branch];
    run(env, &args).ok().trim().to_owned()
}

fn end(env: &Env, branch: &str, id: &str) {
    let args = ["tool", "success", id, "-w", "project", "--branch", branch];
    run(env, &args).ok();
}

/// A call that writes a file.
fn edit(env: &Env, (branch, root): (&str, &Path), tool: &str, path: &str) {
    let id = begin(env, branch, tool);
    fs::write(root.join(path), tool).unwrap();
    end(env, branch, &id);
}

/// A call within another on a branch that is merged and deleted.
fn history(env: &Env) {
    fs::write(env.project().join("a"), "a").unwrap();
    let root = env.start();
    edit(env, ("main", &root), "mine", "a");
    run(env, &["branch", "create", "b", "-w", "project"]).ok();
    let there = root.join(".agentvfs/branches/b");
    let outer = begin(env, "b", "outer");
    edit(env, ("b", &there), "inner", "b");
    end(env, "b", &outer);
    edit(env, ("main", &root), "mine-too", "c");
    run(env, &["branch", "merge", "b", "-w", "project"]).id();
    run(env, &["branch", "delete", "b", "-w", "project"]).ok();
}

fn rows(db: &Connection, sql: &str) -> Vec<String> {
    let mut select = db.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| row.get(0);
    select
        .query_map([], row)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn calls_of_a_merged_branch_are_exported_beside_those_of_the_branch() {
    let Some(env) = Env::new() else { return };
    history(&env);
    run(&env, &["export", "project", "out.db", "--history"]).ok();
    database::check(&env.path("out.db"));
    let db = database::open(&env.path("out.db"));
    let all = |sql: &str| rows(&db, sql);
    let own = all("SELECT id || ' ' || name FROM tool_calls ORDER BY id");
    assert_eq!(own, ["1 mine", "2 mine-too"]);
    let others = "SELECT l.branch || ' ' || (l.deleted IS NOT NULL) || ' ' || o.id || ' ' || o.name
        || ' ' || o.status || ' ' || coalesce(o.parent, '-')
        FROM agentvfs_other_call o JOIN agentvfs_timeline l USING (timeline) ORDER BY o.id";
    assert_eq!(
        all(others),
        ["b 1 2 outer success -", "b 1 3 inner success 2"]
    );
    let of_b =
        "SELECT branch || ' ' || name FROM agentvfs_calls_of_path WHERE path = 'b' ORDER BY id";
    assert_eq!(all(of_b), ["b outer", "b inner"]);
    run(&env, &["export", "project", "plain.db"]).ok();
    let plain = database::open(&env.path("plain.db"));
    let count = "SELECT count(*) FROM agentvfs_other_call";
    assert_eq!(database::number(&plain, count), 0);
}

#[test]
fn an_import_reads_parents_and_calls_of_other_branches_back() {
    let Some(env) = Env::new() else { return };
    history(&env);
    let id = begin(&env, "main", "hook");
    edit(&env, ("main", &env.mountpoint()), "part", "d");
    end(&env, "main", &id);
    run(&env, &["export", "project", "out.db", "--history"]).ok();
    let told = json(&env, &["import", "out.db", "--workspace", "copy"]);
    assert_eq!(told["content"], "as-exported", "{told}");
    let told = json(&env, &["timeline", "-w", "copy", "--all"]);
    let calls = told["calls"].as_array().unwrap().iter();
    let mut calls: Vec<String> = calls
        .map(|c| format!("{} {} {} {}", c["branch"], c["id"], c["name"], c["parent"]))
        .collect();
    calls.sort();
    let expected = [
        r#""b" 2 "outer" null"#,
        r#""b" 3 "inner" 2"#,
        r#""main" 1 "mine" null"#,
        r#""main" 2 "mine-too" null"#,
        r#""main" 3 "hook" null"#,
        r#""main" 4 "part" 3"#,
    ];
    assert_eq!(calls, expected);
    run(&env, &["export", "copy", "again.db", "--history"]).ok();
    let (old, new) = (env.path("out.db"), env.path("again.db"));
    assert_eq!(database::calls(&old), database::calls(&new));
    // A call of the copy goes on with the ids of its own timeline.
    env.workspace(&["start", "copy"]).ok();
    let args = ["tool", "record", "next", "-w", "copy"];
    assert_eq!(run(&env, &args).ok().trim(), "5");
}

#[test]
fn a_change_of_a_call_of_another_branch_is_told() {
    let Some(env) = Env::new() else { return };
    history(&env);
    run(&env, &["export", "project", "out.db", "--history"]).ok();
    let db = database::open(&env.path("out.db"));
    db.execute_batch("UPDATE agentvfs_other_call SET name = 'forged' WHERE id = 3")
        .unwrap();
    drop(db);
    let told = json(&env, &["import", "out.db", "--workspace", "copy"]);
    assert_eq!(told["content"], "changed");
    assert_eq!(told["changed"], serde_json::json!(["timelines"]));
    let db = database::open(&env.path("out.db"));
    db.execute_batch("UPDATE agentvfs_other_call SET timeline = 7 WHERE id = 3")
        .unwrap();
    drop(db);
    run(&env, &["import", "out.db", "--workspace", "none"]).fails(1, "of timeline 7");
}

#[test]
fn an_export_of_revision_2_is_imported_as_it_was() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("a"), "a").unwrap();
    env.start();
    let db = database::open(&env.path("old.db"));
    db.execute_batch(include_str!("../fixtures/export-revision-2.sql"))
        .unwrap();
    drop(db);
    let told = json(&env, &["import", "old.db", "--workspace", "copy"]);
    assert_eq!(told["content"], "as-exported", "{told}");
    let told = json(&env, &["timeline", "-w", "copy"]);
    let calls = told["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 5);
    assert!(calls.iter().all(|call| call["parent"].is_null()));
}
