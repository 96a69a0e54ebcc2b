//! Tool calls on a real project: which changed what, one taken back, who changed a file; `tool exec`;
//! nothing of it lost over a kill.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tests::env::{Env, Told};
use tests::{tree, wait};

/// `agentvfs …` in the environment's directory.
fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn tool(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["tool"].iter().chain(args).copied().collect();
    agentvfs(env, &args)
}

fn json(env: &Env, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
    serde_json::from_str(&agentvfs(env, &args).ok()).unwrap()
}

fn number(told: Told) -> u64 {
    told.ok().trim_end().parse().unwrap()
}

fn begin(env: &Env, name: &str) -> u64 {
    number(tool(env, &["start", name, "--params", "{\"n\": 1}"]))
}

fn end(env: &Env, id: u64) {
    tool(env, &["success", &id.to_string(), "--result", "true"]).ok();
}

fn diff(env: &Env, id: u64) -> Vec<String> {
    let out = tool(env, &["diff", &id.to_string()]).ok();
    out.lines().map(str::to_owned).collect()
}

/// This repository's own engine, as the project: some hundred files of source.
fn real_project(env: &Env) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine");
    for dir in ["src", "tests"] {
        copy(&source.join(dir), &env.project().join(dir));
    }
    fs::copy(source.join("Cargo.toml"), env.project().join("Cargo.toml")).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// All files of the project that end in `.rs`, sorted.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = tree::of(root)
        .into_keys()
        .map(|path| String::from_utf8(path).unwrap())
        .filter(|path| path.ends_with(".rs"))
        .map(PathBuf::from)
        .collect();
    out.sort();
    out
}

/// Puts a line at the beginning of a file.
fn prepend(path: &Path, line: &str) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, format!("{line}\n{text}")).unwrap();
}

/// What a call of the test below did, as `tool diff` is to tell it.
struct Did {
    id: u64,
    changes: Vec<String>,
}

/// Fifty calls of five kinds, and what each changed.
fn fifty_calls(env: &Env, root: &Path) -> Vec<Did> {
    let files = sources(root);
    let mut did = Vec::new();
    for n in 0..50 {
        let file = &files[n * 3 % files.len()];
        let shown = file.display();
        let id = begin(env, ["edit", "create", "move", "delete", "look"][n % 5]);
        let mut changes = match n % 5 {
            0 => {
                prepend(&root.join(file), &format!("// call {n}"));
                vec![format!("M\t{shown}")]
            }
            1 => {
                fs::create_dir(root.join(format!("new-{n}"))).unwrap();
                fs::write(root.join(format!("new-{n}/a")), format!("{n}\n")).unwrap();
                vec![format!("A\tnew-{n}/a")]
            }
            2 => {
                let from = format!("new-{}/a", n - 1);
                fs::rename(root.join(&from), root.join(format!("moved-{n}"))).unwrap();
                vec![format!("R\t{from}\tmoved-{n}")]
            }
            3 => {
                fs::remove_file(root.join(format!("moved-{}", n - 1))).unwrap();
                vec![format!("D\tmoved-{}", n - 1)]
            }
            _ => vec![],
        };
        end(env, id);
        changes.sort();
        did.push(Did { id, changes });
    }
    did
}

#[test]
fn of_fifty_calls_on_a_project_each_is_told_apart_and_one_is_taken_back() {
    let Some(env) = Env::new() else { return };
    real_project(&env);
    let root = env.start();
    env.imported();
    let did = fifty_calls(&env, &root);
    for one in &did {
        let mut changes = diff(&env, one.id);
        changes.sort();
        assert_eq!(changes, one.changes, "call {}", one.id);
    }
    let listed = json(&env, &["timeline"]);
    let calls = listed["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 50);
    for call in calls {
        assert_eq!(
            (&call["status"], &call["kind"]),
            (&"success".into(), &"call".into())
        );
        assert_eq!(
            (&call["parameters"]["n"], &call["result"]),
            (&1.into(), &true.into())
        );
        for key in ["before", "after"] {
            assert_eq!(call[key].as_str().unwrap().len(), 64);
        }
        assert_eq!(call["overlaps"], Value::Array(vec![]));
    }
    take_one_back(&env, &root, &did);
    let verified = json(&env, &["timeline", "--verify"]);
    assert_eq!(verified["found"], 0);
    assert!(verified["entries"].as_u64().unwrap() >= 100);
    assert!(verified["commits"].as_u64().unwrap() >= 40);
}

/// Call 26 of the fifty, an edit: nothing else changes when it is taken back, and blame tells all of it.
fn take_one_back(env: &Env, root: &Path, did: &[Did]) {
    let one = &did[25];
    let path = one.changes[0].strip_prefix("M\t").unwrap();
    // Something else is changed in the same file since.
    let file = root.join(path);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}// by hand\n")).unwrap();
    let before = tree::of(root);
    let id = one.id.to_string();
    let commit = tool(env, &["undo", &id]).id();
    let expected = text.strip_prefix("// call 25\n").unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        format!("{expected}// by hand\n")
    );
    let after = tree::of(root);
    let differing: Vec<_> = after
        .iter()
        .filter(|(path, e)| before.get(*path) != Some(e))
        .collect();
    assert_eq!(after.len(), before.len());
    assert!(
        differing
            .iter()
            .any(|(p, _)| p.as_slice() == path.as_bytes())
    );
    assert_eq!(differing.len(), 1, "{differing:?}");
    let timeline = json(env, &["timeline", "--all"]);
    let newest = &timeline["calls"][0];
    assert_eq!(
        (&newest["kind"], &newest["undoes"]),
        (&"tool-undo".into(), &one.id.into())
    );
    assert_eq!(newest["after"].as_str(), Some(commit.as_str()));
    let blame = json(env, &["blame", path]);
    let kinds: Vec<String> = blame["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| format!("{} {}", i["kind"].as_str().unwrap(), i["id"]))
        .collect();
    let edits = did.iter().rev().filter(|d| d.changes == one.changes);
    let edits = edits.map(|d| format!("call {}", d.id));
    let expected: Vec<String> = [format!("tool-undo {}", one.id)]
        .into_iter()
        .chain(edits)
        .collect();
    assert_eq!(kinds, expected);
    env.workspace(&["undo"]).id_or_pending();
    tree::same("undo of the tool undo", &before, &tree::of(root));
}

#[test]
fn what_does_not_fit_any_more_is_a_conflict_and_nothing_changes() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "one\n").unwrap();
    let root = env.start();
    let id = begin(&env, "edit");
    fs::write(root.join("file"), "two\n").unwrap();
    end(&env, id);
    fs::write(root.join("file"), "three\n").unwrap();
    let told = tool(&env, &["undo", "1"]);
    assert_eq!(
        (told.status, told.out.as_str()),
        (1, "content\tfile\n"),
        "{told:?}"
    );
    assert!(told.err.contains("1 conflict") && told.err.contains("hint: "));
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "three\n");
    let told = json_of(tool(&env, &["undo", "1", "--json"]), 1);
    assert_eq!(
        (&told["commit"], &told["conflicts"][0]["path"]),
        (&Value::Null, &"file".into())
    );
}

fn json_of(told: Told, status: i32) -> Value {
    assert_eq!(told.status, status, "{told:?}");
    serde_json::from_str(&told.out).unwrap()
}

#[test]
fn a_command_is_run_as_it_is_and_kept_with_what_it_printed() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "one\n").unwrap();
    let root = env.start();
    let exec = |script: &str| {
        let args = ["tool", "exec", "sh", "--", "sh", "-c", script];
        env.told(env.command(&root, &args))
    };
    let told = exec("echo out; echo err >&2; echo two > file");
    assert_eq!(
        (told.status, told.out.as_str(), told.err.as_str()),
        (0, "out\n", "err\n")
    );
    let told = exec("echo no >&2; exit 7");
    assert_eq!((told.status, told.err.as_str()), (7, "no\n"));
    assert_eq!(exec("kill -9 $$").status, 137);
    let loud = exec("yes 0123456789 | head -c 3000000; echo the end");
    assert_eq!(loud.out.len(), 3_000_008);
    let calls = json(&env, &["timeline"])["calls"].clone();
    let call = |n: usize| &calls[calls.as_array().unwrap().len() - n];
    assert_eq!(call(1)["result"]["stdout"], "out\n");
    assert_eq!(call(1)["result"]["stderr"], "err\n");
    assert_eq!(call(1)["parameters"]["command"][0], "sh");
    assert_eq!(diff(&env, 1), ["M\tfile"]);
    assert_eq!(
        (&call(2)["status"], &call(3)["status"]),
        (&"error".into(), &"error".into())
    );
    let error: Value = serde_json::from_str(call(2)["error"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&error["exit_status"], &error["stderr"]),
        (&7.into(), &"no\n".into())
    );
    let error: Value = serde_json::from_str(call(3)["error"].as_str().unwrap()).unwrap();
    assert_eq!(error["signal"], 9);
    let kept = call(4)["result"]["stdout"].as_str().unwrap();
    assert!(kept.starts_with("0123456789\n") && kept.ends_with("the end\n"));
    assert!((200_000..300_000).contains(&kept.len()), "{}", kept.len());
    let cut = call(4)["result"]["stdout_cut_bytes"].as_u64().unwrap();
    assert_eq!(cut, 3_000_008 - (256 << 10));
    assert!(diff(&env, 4).is_empty());
    let missing = env.told(env.command(&root, &["tool", "exec", "x", "--", "no-such-program"]));
    assert_eq!(missing.status, 127);
    let unfit = env.told(env.command(&root, &["tool", "exec", "x", "--", "./file"]));
    assert_eq!(unfit.status, 126);
    let outside = env.command(
        &env.path("tmp"),
        &["-w", "none", "tool", "exec", "x", "--", "true"],
    );
    assert_eq!(env.told(outside).status, 125);
}

#[test]
fn calls_at_the_same_time_are_named_and_never_guessed() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let (a, b) = (begin(&env, "a"), begin(&env, "b"));
    fs::write(root.join("x"), "x").unwrap();
    end(&env, a);
    end(&env, b);
    let told = tool(&env, &["diff", "1"]);
    assert_eq!((told.status, told.out.as_str()), (0, "A\tx\n"));
    assert!(
        told.err.contains("call 1: it ran at the same time as 2"),
        "{told:?}"
    );
    let told = json(&env, &["tool", "diff", "2"]);
    assert_eq!(
        (&told["certain"], &told["overlaps"][0]),
        (&false.into(), &1.into())
    );
    tool(&env, &["undo", "1"]).fails(1, "ran at the same time as 2");
    let blame = json(&env, &["blame", "x"]);
    assert_eq!(blame["items"].as_array().unwrap().len(), 2);
    assert_eq!(blame["items"][0]["certain"], false);
    for all in [
        env.command(&root, &["blame", "."]),
        env.command(&env.path(""), &["blame", "."]),
    ] {
        assert_eq!(env.told(all).ok().lines().count(), 2);
    }
    let told = agentvfs(&env, &["blame", "x"]);
    assert!(
        told.err.contains("which may have made the change"),
        "{told:?}"
    );
}

#[test]
fn the_timeline_is_printed_as_agentfs_does_and_for_scripts() {
    let Some(env) = Env::new() else { return };
    env.start();
    let table =
        |args: &[&str]| agentvfs(&env, &[&["timeline", "--format", "table"], args].concat()).ok();
    assert_eq!(table(&[]), "No tool calls found\n");
    assert_eq!(agentvfs(&env, &["timeline"]).ok(), "");
    let first = number(tool(
        &env,
        &[
            "record",
            "edit",
            "--started",
            "2026-01-02T03:04:05Z",
            "--completed",
            "2026-01-02T03:04:06.5Z",
        ],
    ));
    tool(&env, &["record", "look", "--error", "nothing there"]).ok();
    begin(&env, "run");
    assert_eq!(first, 1);
    let shown = table(&[]);
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["ID", "TOOL", "STATUS", "DURATION", "STARTED"]);
    assert_eq!(lines[1][..4], ["3", "run", "pending", "--"]);
    assert_eq!(
        lines[3],
        ["1", "edit", "success", "1500ms", "2026-01-02", "03:04:05"]
    );
    let out = agentvfs(&env, &["timeline", "--filter", "edit"]).ok();
    assert_eq!(out, "1\tedit\tsuccess\t1500ms\t2026-01-02T03:04:05Z\n");
    for (status, id) in [("pending", "3"), ("success", "1"), ("error", "2")] {
        let out = tool(&env, &["list", "--status", status]).ok();
        assert_eq!(out.split('\t').next(), Some(id));
        assert_eq!(out.lines().count(), 1);
    }
    assert_eq!(table(&["--limit", "2"]).lines().count(), 3);
    let array: Value =
        serde_json::from_str(&agentvfs(&env, &["timeline", "--format", "json"]).ok()).unwrap();
    assert_eq!(array[2]["started_at"], 1_767_323_045);
    assert_eq!(array[1]["error"], "nothing there");
    assert_eq!(array[0]["completed_at"], Value::Null);
    tool(&env, &["record", "x", "--params", "{"]).fails(2, "--params is not JSON");
    tool(&env, &["success", "99"]).fails(1, "there is no tool call 99");
    tool(&env, &["success", "1"]).fails(1, "has already ended");
    tool(&env, &["diff", "99"]).fails(1, "there is no tool call 99");
    tool(&env, &["record", "x", "--started", "then"]).fails(2, "is not a time");
    tool(&env, &["record", "a\tb"]).fails(2, "control characters");
    let wrong = |args: &[&str]| agentvfs(&env, &[&["timeline"], args].concat()).status;
    assert_eq!(wrong(&["--verify", "--limit", "3"]), 2);
    assert_eq!(wrong(&["-z", "--format", "json"]), 2);
    assert_eq!(wrong(&["--json", "--format", "table"]), 2);
    agentvfs(&env, &["blame", "none"]).fails(1, "none");
}

#[test]
fn nothing_of_it_is_lost_when_the_daemon_or_the_call_is_killed() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.imported();
    env.workspace(&["checkpoint", "good"]).id();
    let mut child = env
        .command(
            &root,
            &[
                "tool",
                "exec",
                "long",
                "--",
                "sh",
                "-c",
                "echo half > x; sleep 30",
            ],
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait::until("the command runs", || {
        fs::read_to_string(root.join("x")).is_ok_and(|text| text == "half\n")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    env.kill_daemon();
    let out = agentvfs(&env, &["timeline"]).ok();
    assert!(out.starts_with("1\tlong\terror\t"), "{out}");
    tool(&env, &["error", "1", "killed"]).fails(1, "has already ended");
    env.workspace(&["rollback"]).id_or_pending();
    env.kill_daemon();
    let all = agentvfs(&env, &["timeline", "--all"]).ok();
    let words: Vec<&str> = all.lines().map(|l| l.split('\t').nth(1).unwrap()).collect();
    assert_eq!(words, ["rollback", "long"]);
    assert!(
        agentvfs(&env, &["timeline"])
            .ok()
            .starts_with("1\tlong\terror\t")
    );
    assert_eq!(agentvfs(&env, &["timeline", "--verify"]).status, 0);
    // The command itself went on; nothing of this test is left behind.
    env.workspace(&["stop", "--force"]).ok();
}

#[test]
fn a_signal_that_asks_to_end_reaches_the_command_and_its_end_is_noted() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let script = "trap 'echo ended; exit 3' TERM; echo begun > x; while :; do sleep 0.05; done";
    let child = env
        .command(&root, &["tool", "exec", "s", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait::until("the command runs", || root.join("x").exists());
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let told = env.finish(child, "tool exec");
    assert_eq!((told.status, told.out.as_str()), (3, "ended\n"), "{told:?}");
    let calls = json(&env, &["timeline"]);
    assert_eq!(calls["calls"][0]["status"], "error");
}
