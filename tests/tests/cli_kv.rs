//! `agentvfs kv`: values beside the files of a branch, through the real binary.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use tests::env::{Env, Told};

fn kv(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["kv"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

fn kv_with_input(env: &Env, args: &[&str], input: &[u8]) -> Told {
    let args: Vec<&str> = ["kv"].iter().chain(args).copied().collect();
    let mut command = env.command(&env.path(""), &args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that fails reads no more.
        let _ = stdin.write_all(&input);
    });
    let told = env.finish(child, "kv");
    writer.join().unwrap();
    told
}

fn branch(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["branch"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

fn project(env: &Env) {
    fs::create_dir_all(env.project()).unwrap();
    fs::write(env.project().join("file"), "a file\n").unwrap();
    env.start();
}

#[test]
fn values_are_json_and_come_back_as_they_were_written() {
    let Some(env) = Env::new() else { return };
    project(&env);
    for (value, kept) in [
        (
            "{\"b\": 1, \"a\": [ 1.50, 12345678901234567890 ]}",
            "{\"b\":1,\"a\":[1.50,12345678901234567890]}",
        ),
        ("-5", "-5"),
        ("null", "null"),
        ("\"über \\\"x\\\" \\u00e4\"", "\"über \\\"x\\\" \\u00e4\""),
    ] {
        assert_eq!(kv(&env, &["set", "key", value]).ok(), "");
        assert_eq!(kv(&env, &["get", "key"]).ok(), format!("{kept}\n"));
        let told = kv(&env, &["get", "key", "--json"]).ok();
        assert!(told.contains(&format!("\"value\":{kept}")), "{told}");
        let object: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(object["key"], "key");
    }
    kv(&env, &["set", "note", "--string", "it's \"green\"\n"]).ok();
    assert_eq!(
        kv(&env, &["get", "note"]).ok(),
        "\"it's \\\"green\\\"\\n\"\n"
    );
    kv_with_input(&env, &["set", "in", "-"], b"\n [1,\n 2]\n").ok();
    assert_eq!(kv(&env, &["get", "in"]).ok(), "[1,2]\n");
    kv_with_input(&env, &["set", "in", "-", "--string"], b"two\nlines\n").ok();
    assert_eq!(kv(&env, &["get", "in"]).ok(), "\"two\\nlines\\n\"\n");
    let set: Value = serde_json::from_str(&kv(&env, &["set", "n", "7", "--json"]).ok()).unwrap();
    assert_eq!(
        (&set["value"], &set["created"]),
        (&json!(7), &set["updated"])
    );
}

#[test]
fn what_cannot_be_is_refused_with_a_hint_and_nothing_changes() {
    let Some(env) = Env::new() else { return };
    project(&env);
    kv(&env, &["set", "key", "1"]).ok();
    let refused = kv(&env, &["set", "key", "green tests"]);
    assert!(refused.err.contains("--string"), "{}", refused.err);
    refused.fails(2, "not valid JSON");
    kv(&env, &["set", "", "1"]).fails(2, "1 to 1024 bytes");
    kv(&env, &["set", "a\tb", "1"]).fails(2, "control characters");
    kv(&env, &["set", &"k".repeat(1025), "1"]).fails(2, "1 to 1024 bytes");
    kv_with_input(&env, &["set", "key", "-"], b"\"\xff\"").fails(2, "UTF-8");
    for bytes in [600 << 10, 2000 << 10] {
        let long = vec![b'x'; bytes];
        kv_with_input(&env, &["set", "key", "-", "--string"], &long)
            .fails(2, "the maximum is 524288");
    }
    kv(&env, &["get", "missing"]).fails(1, "no key \"missing\"");
    kv(&env, &["delete", "missing"]).fails(1, "no key \"missing\"");
    kv(&env, &["get", "key", "--ref", "nothing"]).fails(1, "nothing");
    kv(&env, &["list", "--branch", "none"]).fails(1, "none");
    kv(&env, &["set", "key", "1", "-w", "none"]).fails(1, "none");
    assert_eq!(kv(&env, &["list"]).ok(), "key\t1\n");
}

/// The longest value there may be, in which every character has to be escaped on its way.
#[test]
fn the_longest_value_and_long_lists_pass() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let text = "\\".repeat((512 << 10) / 2 - 1);
    kv_with_input(&env, &["set", "long/0", "-", "--string"], text.as_bytes()).ok();
    let got = kv(&env, &["get", "long/0"]).ok();
    assert_eq!(got.len(), (512 << 10) + 1);
    assert_eq!(serde_json::from_str::<String>(&got).unwrap(), text);
    for n in 1..4 {
        kv_with_input(&env, &["set", &format!("long/{n}"), "-"], got.as_bytes()).ok();
    }
    kv(&env, &["set", "longer", "1"]).ok();
    kv(&env, &["set", "key \"quoted\"", "\"x\""]).ok();
    let rows = kv(&env, &["list", "long/"]).ok();
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.ends_with(got.trim_end())));
    let objects = kv(&env, &["list", "--json"]).ok();
    let objects: Value = serde_json::from_str(&objects).unwrap();
    let keys = objects["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["key"].clone());
    let wanted = [
        "key \"quoted\"",
        "long/0",
        "long/1",
        "long/2",
        "long/3",
        "longer",
    ];
    assert_eq!(keys.collect::<Vec<_>>(), wanted);
    let rows = kv(&env, &["list", "key"]).ok();
    assert_eq!(rows, "\"key \\\"quoted\\\"\"\t\"x\"\n");
    assert_eq!(
        kv(&env, &["list", "key", "-z"]).ok(),
        "key \"quoted\"\t\"x\"\0"
    );
    assert_eq!(kv(&env, &["list", "none"]).ok(), "");
}

#[test]
fn keys_go_with_checkpoints_rollback_and_undo_and_show_in_no_file() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let first = env.workspace(&["checkpoint", "none"]).id();
    kv(&env, &["set", "step", "1"]).ok();
    assert_ne!(env.workspace(&["checkpoint", "one"]).id(), first);
    kv(&env, &["set", "step", "2"]).ok();
    assert_eq!(env.workspace(&["diff"]).ok(), "");
    assert_eq!(kv(&env, &["get", "step", "--ref", "one"]).ok(), "1\n");
    kv(&env, &["get", "step", "--ref", "none"]).fails(1, "no key");
    let plan = env.workspace(&["rollback", "one", "--dry-run"]);
    assert!(plan.err.contains("1 key would change"), "{plan:?}");
    assert_eq!(plan.ok(), "");
    let plan = env.workspace(&["rollback", "one", "--dry-run", "--keep-kv"]);
    assert_eq!((plan.status, plan.err.as_str()), (0, ""));
    env.workspace(&["rollback", "one"]).id();
    assert_eq!(kv(&env, &["get", "step"]).ok(), "1\n");
    env.workspace(&["undo"]).id_or_pending();
    assert_eq!(kv(&env, &["get", "step"]).ok(), "2\n");
    env.workspace(&["rollback", "none", "--keep-kv"]).id();
    assert_eq!(kv(&env, &["get", "step"]).ok(), "2\n");
    env.workspace(&["rollback", "one", "--path", "file"]).id();
    assert_eq!(kv(&env, &["get", "step"]).ok(), "2\n");
    let names: Vec<_> = fs::read_dir(env.mountpoint()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1);
    let patch = env.workspace(&["diff", "none", "one", "--patch"]).ok();
    assert_eq!(patch, "");
}

#[test]
fn keys_outlast_the_daemon_and_a_stop() {
    let Some(env) = Env::new() else { return };
    project(&env);
    kv(&env, &["set", "a", "1"]).ok();
    env.workspace(&["checkpoint", "one"]).id();
    kv(&env, &["set", "b", "2"]).ok();
    env.kill_daemon();
    assert_eq!(kv(&env, &["list"]).ok(), "a\t1\nb\t2\n");
    kv(&env, &["delete", "a"]).ok();
    env.workspace(&["stop"]).ok();
    // What only looks works on a stopped workspace.
    assert_eq!(kv(&env, &["list", "-w", "project"]).ok(), "b\t2\n");
    assert_eq!(
        kv(&env, &["get", "a", "--ref", "one", "-w", "project"]).ok(),
        "1\n"
    );
    env.told(env.command(&env.path(""), &["gc"])).ok();
    env.told(env.command(&env.path(""), &["fsck"])).ok();
    env.workspace(&["start", "project"]).ok();
    assert_eq!(kv(&env, &["list"]).ok(), "b\t2\n");
    let stats = env.told(env.command(&env.path(""), &["stats"])).ok();
    assert!(
        stats.contains("workspace.project.branch.main.keys=1"),
        "{stats}"
    );
}

#[test]
fn branches_have_their_own_keys_and_are_merged_by_key() {
    let Some(env) = Env::new() else { return };
    project(&env);
    kv(&env, &["set", "a/../b", "0"]).ok();
    env.workspace(&["checkpoint", "start"]).id();
    branch(&env, &["create", "fix"]).ok();
    kv(&env, &["set", "--branch", "fix", "new", "1"]).ok();
    kv(&env, &["get", "new"]).fails(1, "no key");
    branch(&env, &["merge", "fix"]).id();
    assert_eq!(kv(&env, &["get", "new"]).ok(), "1\n");
    kv(&env, &["set", "a/../b", "2"]).ok();
    kv(&env, &["set", "a/../b", "3", "--branch", "fix"]).ok();
    let refused = branch(&env, &["merge", "fix"]);
    assert_eq!(refused.status, 1);
    assert_eq!(refused.out, "content\t.agentvfs/kv/a/../b\n");
    let kept = branch(&env, &["merge", "fix", "--conflicts", "keep", "--json"]);
    assert_eq!(kept.status, 1);
    let told: Value = serde_json::from_str(&kept.out).unwrap();
    let row = json!([{ "path": ".agentvfs/kv/a/../b", "kind": "content" }]);
    assert_eq!(told["conflicts"], row);
    assert_eq!(branch(&env, &["conflicts"]).ok(), refused.out);
    assert_eq!(kv(&env, &["get", "a/../b"]).ok(), "2\n");
    let settled = branch(&env, &["resolve", ".agentvfs/kv/a/../b", "--theirs"]);
    assert_eq!(settled.ok(), "left=0\n");
    assert_eq!(kv(&env, &["get", "a/../b"]).ok(), "3\n");
    assert_eq!(branch(&env, &["conflicts"]).ok(), "");
}

/// A client that lies about keys and values gets an error, and nothing is set.
#[test]
fn the_protocol_checks_keys_and_values_again() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut socket = UnixStream::connect(env.home().join("daemon.sock")).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(socket.try_clone().unwrap()));
    let mut ask = |method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(socket, "{line}").unwrap();
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        answer
    };
    ask("hello", json!({ "protocol": 1, "client": "test" }));
    let mut set = |key: &str, value: Value| {
        let params =
            json!({ "workspace": "project", "branch": "main", "key": key, "value": value });
        ask("kv.set", params)["error"]["data"]["kind"].clone()
    };
    assert_eq!(set("", json!("1")), "bad-name");
    assert_eq!(set("a\nb", json!("1")), "bad-name");
    assert_eq!(set("a", json!("no json")), "not-json");
    let long = format!("\"{}\"", "x".repeat(600 << 10));
    assert_eq!(set("a", json!(long)), "too-long");
    assert_eq!(set("a", json!({ "b64": "/w==" })), "protocol");
    assert_eq!(set("a", json!({ "b64": "IDEg" })), Value::Null);
    assert_eq!(kv(&env, &["list"]).ok(), "a\t1\n");
}
