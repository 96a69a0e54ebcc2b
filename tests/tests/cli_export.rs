//! A workspace as one file and back, through the real binary: exact, by AgentFS's rules, never half done.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use tests::env::{Env, Told};
use tests::everything::one_of_everything;
use tests::{database, tree};

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn json(env: &Env, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&run(env, &args).ok()).unwrap()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A small project that runs.
fn small(env: &Env) {
    fs::create_dir(env.project().join("src")).unwrap();
    fs::write(env.project().join("src/a"), "one\ntwo\nthree\n").unwrap();
    fs::write(env.project().join("b"), "b").unwrap();
    env.start();
}

#[test]
fn every_kind_of_file_comes_back_with_the_same_root() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    one_of_everything(&root);
    let wanted = tree::of(&root);
    let out = json(&env, &["export", "project", "out.db"]);
    assert!(out["renamed"].as_u64().unwrap() > 0);
    database::check(&env.path("out.db"));
    let told = json(&env, &["import", "out.db", "--workspace", "copy"]);
    assert_eq!(told["tree"], out["tree"]);
    assert_eq!(
        (&told["name"], &told["branch"]),
        (&"copy".into(), &"main".into())
    );
    env.workspace(&["start", "copy"]).ok();
    let copy = env.home().join("mnt/copy");
    tree::same("the copy", &wanted, &tree::of(&copy));
    let again = json(&env, &["export", "copy", "again.db"]);
    assert_eq!(
        (&again["tree"], &again["commit"]),
        (&out["tree"], &told["commit"])
    );
}

#[test]
fn keys_come_along_and_are_rows_of_agentfs() {
    let Some(env) = Env::new() else { return };
    small(&env);
    for (key, value) in [("a", "{\"n\":1}"), ("b/ü", "[true,null]")] {
        run(&env, &["kv", "set", key, value, "-w", "project"]).ok();
    }
    run(&env, &["export", "project", "out.db"]).ok();
    let db = database::open(&env.path("out.db"));
    let rows = "SELECT count(*) FROM kv_store WHERE json_valid(value) AND updated_at >= created_at";
    assert_eq!(database::number(&db, rows), 2);
    // As AgentFS's SDKs set a key.
    db.execute_batch(
        "UPDATE kv_store SET value = '2', updated_at = updated_at + 5 WHERE key = 'a'",
    )
    .unwrap();
    drop(db);
    run(&env, &["import", "out.db", "--workspace", "copy"]).ok();
    let get = |key| run(&env, &["kv", "get", key, "-w", "copy"]).ok();
    assert_eq!(
        (get("a").trim_end(), get("b/ü").trim_end()),
        ("2", "[true,null]")
    );
    for value in ["'not json'", "x'ff'"] {
        let db = database::open(&env.path("out.db"));
        db.execute_batch(&format!(
            "UPDATE kv_store SET value = {value} WHERE key = 'a'"
        ))
        .unwrap();
        drop(db);
        run(&env, &["import", "out.db", "--workspace", "bad"]).fails(1, "the value of key \"a\"");
    }
}

#[test]
fn workspace_without_a_base_works_like_any_other() {
    let Some(env) = Env::new() else { return };
    small(&env);
    run(&env, &["export", "project", "out.db"]).ok();
    let made = json(&env, &["import", "out.db", "--workspace", "copy"]);
    let root = env.home().join("mnt/copy");
    env.workspace(&["start", "copy"]).ok();
    fs::write(root.join("new"), "new").unwrap();
    fs::hard_link(root.join("new"), root.join("new-too")).unwrap();
    let first = env.workspace(&["checkpoint", "copy", "first"]).id();
    fs::write(root.join("src/a"), "changed").unwrap();
    env.workspace(&["stop", "copy"]).ok();
    env.workspace(&["start", "copy"]).ok();
    assert_eq!(fs::read(root.join("src/a")).unwrap(), b"changed");
    env.workspace(&["rollback", "copy", "first"]).id();
    assert_eq!(fs::read(root.join("src/a")).unwrap(), b"one\ntwo\nthree\n");
    let log = env.workspace(&["log", "copy"]).ok();
    let ids: Vec<&str> = log.lines().map(|row| &row[..64]).collect();
    assert_eq!(ids, [&first, made["commit"].as_str().unwrap()]);
    assert_eq!(
        env.workspace(&["diff", "copy", "--base"]).ok(),
        "A\tnew\nA\tnew-too\n"
    );
    for verb in ["apply", "update"] {
        env.workspace(&[verb, "copy"])
            .fails(1, "has no base directory");
    }
    env.kill_daemon();
    assert_eq!(env.workspace(&["log", "copy"]).ok(), log);
    assert_eq!(fs::read(root.join("new-too")).unwrap(), b"new");
    assert_eq!(env.told(env.command(&env.path(""), &["fsck"])).status, 0);
    env.workspace(&["stop", "copy"]).ok();
    env.workspace(&["delete", "copy", "--yes"]).ok();
}

#[test]
fn what_was_changed_in_the_file_is_merged_back() {
    let Some(env) = Env::new() else { return };
    small(&env);
    let out = json(&env, &["export", "project", "out.db"]);
    let db = database::open(&env.path("out.db"));
    let ino = database::number(&db, "SELECT ino FROM fs_dentry WHERE name = 'a'");
    db.execute_batch(&format!(
        "UPDATE fs_data SET data = x'6f6e650a74776f0a746872656521' WHERE ino = {ino};
         UPDATE fs_inode SET size = 14 WHERE ino = {ino};
         DELETE FROM fs_inode WHERE ino = (SELECT ino FROM fs_dentry WHERE name = 'b');
         DELETE FROM fs_data WHERE ino = (SELECT ino FROM fs_dentry WHERE name = 'b');
         DELETE FROM fs_dentry WHERE name = 'b';"
    ))
    .unwrap();
    drop(db);
    fs::write(env.mountpoint().join("src/a"), "ONE\ntwo\nthree\n").unwrap();
    let told = json(
        &env,
        &[
            "import",
            "out.db",
            "--workspace",
            "project",
            "--branch",
            "theirs",
        ],
    );
    assert_ne!(told["tree"], out["tree"]);
    let log = json(&env, &["workspace", "log", "project", "--branch", "theirs"]);
    assert_eq!(log["commits"][0]["parents"][0], out["commit"]);
    run(&env, &["branch", "merge", "theirs", "-w", "project"]).id();
    let merged = fs::read_to_string(env.mountpoint().join("src/a")).unwrap();
    assert_eq!(merged, "ONE\ntwo\nthree!");
    assert!(!env.mountpoint().join("b").exists());
    run(
        &env,
        &[
            "import",
            "out.db",
            "--workspace",
            "project",
            "--branch",
            "theirs",
        ],
    )
    .fails(1, "already exists");
}

#[test]
fn any_commit_can_be_exported_and_stopped_workspaces_too() {
    let Some(env) = Env::new() else { return };
    small(&env);
    let first = env
        .workspace(&["checkpoint", "first", "--meta", "turn=1"])
        .id();
    fs::write(env.mountpoint().join("later"), "x").unwrap();
    let old = json(&env, &["export", "--ref", "first", "old.db"]);
    assert_eq!(old["commit"], Value::from(first.clone()));
    env.workspace(&["stop", "project"]).ok();
    let new = json(&env, &["export", "project", "new.db"]);
    assert_ne!(new["tree"], old["tree"]);
    let db = database::open(&env.path("old.db"));
    let count = |sql| database::number(&db, sql);
    assert_eq!(
        count("SELECT count(*) FROM fs_dentry WHERE name = 'later'"),
        0
    );
    assert_eq!(
        count("SELECT count(*) FROM agentvfs_label WHERE label = 'first'"),
        1
    );
    let turn = "SELECT count(*) FROM agentvfs_commit_meta WHERE key = 'turn' AND value = '1'";
    assert_eq!(count(turn), 1);
    run(
        &env,
        &["export", "--ref", "nothing", "x.db", "-w", "project"],
    )
    .fails(1, "nothing");
    assert!(!env.path("x.db").exists());
}

#[test]
fn nothing_is_overwritten_without_force_and_nothing_is_left() {
    let Some(env) = Env::new() else { return };
    small(&env);
    fs::create_dir(env.path("to")).unwrap();
    fs::write(env.path("to/x.db"), "mine").unwrap();
    run(&env, &["export", "project", "to/x.db"]).fails(1, "exists already");
    assert_eq!(fs::read(env.path("to/x.db")).unwrap(), b"mine");
    fs::write(env.path("to/x.db-wal"), "old log").unwrap();
    run(&env, &["export", "project", "to/x.db", "--force"]).ok();
    assert_eq!(names_in(&env.path("to")), ["x.db"]);
    database::check(&env.path("to/x.db"));
    run(&env, &["export", "project", "no/such/x.db"]).fails(1, "No such file");
    run(&env, &["export", "project", "to"]).fails(1, "not a valid file name");
    let inside = env.mountpoint().join("x.db");
    run(&env, &["export", "project", inside.to_str().unwrap()]).fails(1, "is in the mount");
    run(&env, &["export"]).fails_as_usage();
    run(&env, &["import", "to/x.db"]).fails(2, "name of the new workspace");
    run(&env, &["import", "to/x.db", "-w", "project"]).fails(1, "already exists");
    run(&env, &["import", "to/none.db", "-w", "new"]).fails(1, "No such file");
    run(&env, &["import", "to/x.db", "-w", "none", "--branch", "b"]).fails(1, "none");
    assert_eq!(names_in(&env.path("to")), ["x.db"]);
}

trait Usage {
    fn fails_as_usage(self);
}

impl Usage for Told {
    #[track_caller]
    fn fails_as_usage(self) {
        assert_eq!(self.status, 2, "{self:?}");
        assert!(self.err.starts_with("agentvfs: wrong usage: "), "{self:?}");
    }
}

#[test]
fn large_trees_take_little_more_than_their_content() {
    let Some(env) = Env::new() else { return };
    let bytes = tests::rng::Rng::new(3).bytes(40 << 20);
    for (i, part) in bytes.chunks(40 << 10).enumerate() {
        let dir = env.project().join(format!("d{}", i % 40));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), part).unwrap();
    }
    env.start();
    let out = json(&env, &["export", "project", "out.db"]);
    let (content, file) = (
        out["bytes"].as_u64().unwrap(),
        out["file_bytes"].as_u64().unwrap(),
    );
    assert_eq!(content, 40 << 20);
    assert!(file * 10 <= content * 11, "{file} for {content}");
    database::check(&env.path("out.db"));
    let told = json(&env, &["import", "out.db", "--workspace", "copy"]);
    assert_eq!(told["tree"], out["tree"]);
}
