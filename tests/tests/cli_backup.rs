//! Exports as backups: every one can be imported, and an import says whether it is what was exported.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use tests::database;
use tests::env::{Env, Told};
use tests::rng::{Rng, seed};

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn json_of(told: Told) -> Value {
    serde_json::from_str(&told.ok()).unwrap()
}

fn json(env: &Env, args: &[&str]) -> Value {
    json_of(run(env, &[args, &["--json"]].concat()))
}

/// A workspace of two files, a key and two calls.
fn small(env: &Env) {
    fs::create_dir(env.project().join("src")).unwrap();
    fs::write(env.project().join("src/a"), "one\ntwo\nthree\n").unwrap();
    fs::write(env.project().join("b"), "b").unwrap();
    env.start();
    run(env, &["kv", "set", "key", "[1,2]", "-w", "project"]).ok();
    call(env, "read");
    call(env, "write");
}

/// A call that is over.
fn call(env: &Env, name: &str) {
    let id = run(env, &["tool", "start", name, "-w", "project"]).ok();
    run(env, &["tool", "success", id.trim(), "-w", "project"]).ok();
}

/// Calls of a branch as `timeline --json` has them, the oldest first.
fn calls(env: &Env, workspace: &str, branch: &str) -> Vec<Value> {
    let args = ["timeline", "-w", workspace, "--branch", branch];
    let mut calls = json(env, &args)["calls"].as_array().unwrap().clone();
    calls.sort_by_key(|call| call["id"].as_u64());
    calls
}

fn branch_place(env: &Env, name: &str) -> PathBuf {
    env.mountpoint().join(".agentvfs/branches").join(name)
}

#[test]
fn hard_links_made_on_both_sides_of_a_merge_come_back() {
    let Some(env) = Env::new() else { return };
    small(&env);
    let main = env.mountpoint();
    run(&env, &["branch", "create", "b", "-w", "project"]).ok();
    for (root, name) in [(main.clone(), "ours"), (branch_place(&env, "b"), "theirs")] {
        fs::write(root.join(name), name).unwrap();
        fs::hard_link(root.join(name), root.join(format!("{name}-too"))).unwrap();
    }
    run(&env, &["branch", "merge", "b", "-w", "project"]).id();
    let out = json(&env, &["export", "project", "out.db"]);
    let told = json(&env, &["import", "out.db", "--workspace", "copy"]);
    assert_eq!(told["tree"], out["tree"]);
    env.workspace(&["start", "copy"]).ok();
    let copy = env.home().join("mnt/copy");
    // What is made from here on is kept apart from the groups that there are.
    fs::write(copy.join("new"), "new").unwrap();
    fs::hard_link(copy.join("new"), copy.join("new-too")).unwrap();
    env.kill_daemon();
    env.workspace(&["log", "copy"]).ok();
    for name in ["ours", "theirs", "new"] {
        let (one, other) = (copy.join(name), copy.join(format!("{name}-too")));
        assert_eq!(fs::read(&other).unwrap(), name.as_bytes());
        let (one, other) = (one.metadata().unwrap(), other.metadata().unwrap());
        assert_eq!((one.ino(), one.nlink()), (other.ino(), 2), "{name}");
    }
    assert_eq!(run(&env, &["fsck"]).status, 0);
}

#[test]
fn import_says_what_is_not_as_it_was_exported() {
    let Some(env) = Env::new() else { return };
    small(&env);
    run(&env, &["export", "project", "out.db"]).ok();
    let told = json(&env, &["import", "out.db", "--workspace", "same"]);
    assert_eq!(
        (&told["content"], &told["changed"]),
        (&"as-exported".into(), &Value::from(Vec::<&str>::new()))
    );
    let out = run(&env, &["import", "out.db", "--workspace", "same-too"]);
    assert!(
        out.out.contains("content=as-exported\n") && out.err.is_empty(),
        "{out:?}"
    );
    for (part, change) in [
        (
            "files",
            "UPDATE fs_data SET data = x'6f6e650a54776f0a74687265650a' WHERE length(data) = 14",
        ),
        ("files", "UPDATE fs_dentry SET name = 'c' WHERE name = 'b'"),
        ("root", "UPDATE fs_inode SET uid = 77 WHERE ino = 1"),
        ("keys", "UPDATE kv_store SET value = '[1,3]'"),
        (
            "calls",
            "UPDATE tool_calls SET name = 'wrote' WHERE name = 'write'",
        ),
        (
            "calls",
            "UPDATE tool_calls SET id = -2 WHERE id = 2; UPDATE tool_calls SET id = 3 WHERE id = -2",
        ),
        (
            "origin",
            "UPDATE agentvfs_info SET value = 9 WHERE key = 'last_call'",
        ),
        ("origin", "DELETE FROM agentvfs_info WHERE key = 'sum_keys'"),
    ] {
        fs::copy(env.path("out.db"), env.path("other.db")).unwrap();
        database::made(&env.path("other.db"), &[change]);
        let name = format!("w{}", calls_so_far(&env));
        let out = run(
            &env,
            &["import", "other.db", "--workspace", &name, "--json"],
        );
        assert!(out.err.contains("changed or damaged"), "{out:?}");
        let told = json_of(out);
        assert_eq!(told["content"], "changed", "{change}: {told}");
        let changed = told["changed"].as_array().unwrap();
        assert!(changed.contains(&part.into()), "{change}: {told}");
    }
    // By an agentvfs that wrote no sums.
    let old = "DELETE FROM agentvfs_info WHERE key = 'revision' OR key LIKE 'sum_%'";
    database::made(&env.path("out.db"), &[old]);
    let told = json(&env, &["import", "out.db", "--workspace", "old"]);
    assert_eq!(told["content"], "unknown", "{told}");
    assert_eq!(
        told["unchecked"],
        serde_json::json!(["root", "keys", "calls", "origin"])
    );
}

/// An earlier build may have had the same files in another form, so another id says nothing.
#[test]
fn import_of_another_root_of_an_earlier_build_is_not_called_changed() {
    let Some(env) = Env::new() else { return };
    small(&env);
    run(&env, &["export", "project", "out.db"]).ok();
    let earlier = "UPDATE agentvfs_info SET value = 3 WHERE key = 'revision';
        UPDATE fs_dentry SET name = 'c' WHERE name = 'b'";
    database::made(&env.path("out.db"), &[earlier]);
    let told = json(&env, &["import", "out.db", "--workspace", "earlier"]);
    assert_eq!(told["changed"], Value::from(vec!["origin"]), "{told}");
    assert_eq!(told["unchecked"], Value::from(vec!["files"]), "{told}");
}

/// A number for names that are to be different.
fn calls_so_far(env: &Env) -> usize {
    env.workspace(&["list"]).ok().lines().count()
}

/// What an import takes over: the tree, keys and calls.
fn content(env: &Env, name: &str, tree: &Value) -> (Value, Vec<String>, Vec<Value>) {
    let keys = run(env, &["kv", "list", "-w", name]).ok();
    let keys = keys.lines().map(|key| {
        run(
            env,
            &["kv", "get", key.split('\t').next().unwrap(), "-w", name],
        )
        .ok()
    });
    let keys = keys.collect();
    let mut calls = calls(env, name, "main");
    for call in &mut calls {
        let fields = [
            "id",
            "name",
            "parameters",
            "result",
            "error",
            "status",
            "started_at",
            "completed_at",
        ];
        *call = fields.iter().map(|field| call[field].clone()).collect();
    }
    (tree.clone(), keys, calls)
}

#[test]
fn flipped_bytes_never_come_in_unnoticed() {
    let Some(env) = Env::new() else { return };
    small(&env);
    let mut rng = Rng::new(seed());
    for i in 0..40 {
        fs::write(
            env.mountpoint().join(format!("f{i}")),
            rng.bytes(1 + 700 * i),
        )
        .unwrap();
    }
    let out = json(&env, &["export", "project", "out.db", "--history"]);
    let good = fs::read(env.path("out.db")).unwrap();
    let wanted = content(&env, "project", &out["tree"]);
    // Where it is known what a flip does: the file's first byte says that it is a database, and the last
    // byte of a file's content is in no other table.
    let last = fs::read(env.mountpoint().join("f39")).unwrap();
    let tail = &last[last.len() - 64..];
    let of_content = good.windows(64).position(|part| part == tail).unwrap() + 63;
    assert_eq!(flipped(&env, &good, 0, &wanted), Flip::Refused);
    assert_eq!(flipped(&env, &good, of_content, &wanted), Flip::Told);
    // Anywhere, and half of them where the tables' own structure is, which is little of the file.
    for i in 0..120 {
        let end = if i % 2 == 0 { good.len() } else { 40 << 10 };
        flipped(&env, &good, rng.below(end as u64) as usize, &wanted);
    }
}

/// What a flipped bit of an exported file led to.
#[derive(Debug, PartialEq)]
enum Flip {
    /// All came in as it was exported.
    NoEffect,
    /// It came in, and the import said that it is not as exported or cannot be told to be.
    Told,
    Refused,
}

/// Flips a bit of byte `at` of `good` and imports that, which holds `wanted`.
fn flipped(env: &Env, good: &[u8], at: usize, wanted: &(Value, Vec<String>, Vec<Value>)) -> Flip {
    let mut bytes = good.to_vec();
    bytes[at] ^= 1 << (at % 8);
    fs::write(env.path("bad.db"), &bytes).unwrap();
    let told = run(env, &["import", "bad.db", "--workspace", "bad", "--json"]);
    if told.status != 0 {
        return Flip::Refused;
    }
    let told = json_of(told);
    let flip = match told["content"].as_str().unwrap() {
        "as-exported" => {
            assert_eq!(content(env, "bad", &told["tree"]), *wanted, "byte {at}");
            Flip::NoEffect
        }
        "changed" | "unknown" => Flip::Told,
        other => panic!("{other}"),
    };
    env.workspace(&["delete", "bad", "--yes"]).ok();
    flip
}

/// Keys and calls as AgentFS's SDKs write them for who asks them to, in AgentFS's own tables.
const ODD: &str = "
    INSERT INTO kv_store VALUES ('good', '{\"n\":1}', 5, 5), ('', '1', 5, 5), ('nan', 'NaN', 5, 5),
        ('two' || char(10) || 'lines', '1', 5, 5), ('when', '1', 5.5, 5), ('other', '2', 5, 5);
    INSERT INTO tool_calls (id, name, started_at, completed_at, duration_ms) VALUES
        (1, 'good', 1700000000, 1700000001, 1000),
        (2, 'two' || char(10) || 'lines', 1700000000, 1700000001, 1000),
        (3, 'fraction', 1700000000.25, 1700000001.5, 1250),
        (4, 'milliseconds', 1700000000000, 1700000001000, 1000),
        (5, '', 1700000000, 1700000001, 1000),
        (-3, 'negative', 1700000000, 1700000001, 1000),
        (7, 'last', 1700000000, 1700000001, 1000);
";

#[test]
fn what_agentfs_takes_and_agentvfs_does_not_can_be_left_out() {
    let Some(env) = Env::new() else { return };
    let file = env.path("odd.db");
    database::made(&file, &[database::OLD, database::SMALL_TREE, ODD]);
    let told = run(&env, &["import", "odd.db", "--workspace", "odd"]);
    told.clone().fails(1, "key");
    assert!(told.err.contains("--skip-invalid"), "{told:?}");
    for (id, why) in [
        (2, "control"),
        (3, "fraction"),
        (4, "seconds"),
        (5, "empty"),
        (-3, "-3"),
    ] {
        fs::remove_file(&file).unwrap();
        let one = format!("DELETE FROM kv_store; DELETE FROM tool_calls WHERE id <> {id}");
        database::made(&file, &[database::OLD, ODD, &one]);
        let told = run(&env, &["import", "odd.db", "--workspace", "odd"]);
        told.clone().fails(1, why);
        assert!(told.err.contains("--skip-invalid"), "{told:?}");
    }
    fs::remove_file(&file).unwrap();
    database::made(&file, &[database::OLD, database::SMALL_TREE, ODD]);
    let out = run(
        &env,
        &["import", "odd.db", "-w", "odd", "--skip-invalid", "--json"],
    );
    assert!(
        out.err.contains("4 keys") && out.err.contains("5 calls"),
        "{out:?}"
    );
    assert!(
        out.err.contains("nan") && out.err.contains("call 3"),
        "{out:?}"
    );
    let told = json_of(out);
    assert_eq!(
        told["skipped"]["keys"].as_array().unwrap().len(),
        4,
        "{told}"
    );
    assert_eq!(
        told["skipped"]["calls"].as_array().unwrap().len(),
        5,
        "{told}"
    );
    let keys = run(&env, &["kv", "list", "-w", "odd"]).ok();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    let names: Vec<Value> = calls(&env, "odd", "main")
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    assert_eq!(names, ["good", "last"]);
    // Names of files are not left out: what they name would be lost.
    let bad = "UPDATE fs_dentry SET name = 'a/b' WHERE name = 'd'";
    database::made(&file, &[bad]);
    run(&env, &["import", "odd.db", "-w", "bad", "--skip-invalid"])
        .fails(1, "not a valid file name");
}

#[test]
fn call_that_runs_is_ended_in_copies_as_unknown() {
    let Some(env) = Env::new() else { return };
    small(&env);
    run(&env, &["tool", "start", "long", "-w", "project"]).ok();
    run(&env, &["export", "project", "out.db"]).ok();
    run(&env, &["import", "out.db", "--workspace", "copy"]).ok();
    run(&env, &["branch", "create", "b", "-w", "project"]).ok();
    for (workspace, branch) in [("copy", "main"), ("project", "b")] {
        let calls = calls(&env, workspace, branch);
        assert_eq!(calls.len(), 3);
        assert_eq!(calls[2]["status"], "error", "{calls:?}");
        let why = calls[2]["error"].as_str().unwrap();
        assert!(why.starts_with("unknown: "), "{why}");
    }
    let here = calls(&env, "project", "main");
    assert_eq!(here[2]["status"], "pending");
    run(&env, &["tool", "success", "3", "-w", "project"]).ok();
    assert_eq!(calls(&env, "project", "main")[2]["status"], "success");
    for branch in ["main", "b"] {
        let args = ["timeline", "--verify", "-w", "project", "--branch", branch];
        assert_eq!(run(&env, &args).status, 0);
    }
    // A call of the copy gets an id of its own, and nothing overlaps with what ended there.
    let id = run(
        &env,
        &["tool", "start", "new", "-w", "project", "--branch", "b"],
    )
    .ok();
    assert_eq!(id.trim(), "4");
    let new = calls(&env, "project", "b")[3].clone();
    assert_eq!(new["overlaps"], Value::from(Vec::<u64>::new()), "{new}");
}
