//! Calls side by side on a real mount: what each process changed is told apart, or refused with the reason.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use tests::env::{Env, Told};
use tests::mcp::Mcp;
use tests::sys::Mapping;
use tests::wait;

fn tool(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["tool"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

/// A command that does a first thing, and a second one once it is told to.
struct Beside {
    name: &'static str,
    child: Child,
}

impl Beside {
    /// Runs it until the first thing is done.
    fn start(env: &Env, root: &Path, name: &'static str, first: &str, second: &str) -> Beside {
        let (began, go) = (
            env.path(format!("{name}.began")),
            env.path(format!("{name}.go")),
        );
        let script = format!(
            "{first}; echo > {}; while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done; {second}",
            began.display(),
            env.path(".").display(),
            go.display()
        );
        let child = env
            .command(root, &["tool", "exec", name, "--", "sh", "-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait::until("the first thing is done", || began.exists());
        Beside { name, child }
    }

    fn end(mut self, env: &Env) {
        fs::write(env.path(format!("{}.go", self.name)), "").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// What a call changed, and whether that is certain.
fn own(env: &Env, id: u64) -> (Vec<String>, Value) {
    let told: Value =
        serde_json::from_str(&tool(env, &["diff", "--json", &id.to_string()]).ok()).unwrap();
    let rows = told["changes"].as_array().unwrap().iter();
    let row = |r: &Value| {
        format!(
            "{} {}",
            r["status"].as_str().unwrap(),
            r["path"].as_str().unwrap()
        )
    };
    (rows.map(row).collect(), told["why"].clone())
}

/// Ids of the calls that changed a path, each with those that may have done it.
fn blamed(env: &Env, path: &str) -> Vec<(Value, Value)> {
    let out = env
        .told(env.command(&env.path("project"), &["blame", "--json", path]))
        .ok();
    let told: Value = serde_json::from_str(&out).unwrap();
    let rows = told["items"].as_array().unwrap().iter();
    let calls = rows.filter(|r| r["kind"] == "call");
    calls
        .map(|r| (r["id"].clone(), r["overlaps"].clone()))
        .collect()
}

fn undo(env: &Env, id: u64) {
    tool(env, &["undo", &id.to_string()]).ok();
}

fn refused(env: &Env, id: u64, why: &str) {
    tool(env, &["undo", &id.to_string()]).fails(1, why);
    assert!(own(env, id).1.as_str().unwrap().contains(why));
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

#[test]
fn commands_side_by_side_take_back_their_own() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("both"), "0\n").unwrap();
    let one = "mkdir -p dir; echo 1 > dir/one; echo 1 > one";
    let one = Beside::start(
        &env,
        &root,
        "one",
        one,
        "mv one one.moved; echo 1 >> dir/one",
    );
    let other = "mkdir -p dir; echo 2 > dir/other; (cd dir; sh -c 'echo 2 > deep')";
    let other = Beside::start(
        &env,
        &root,
        "other",
        other,
        "chmod 600 dir/other; ln dir/deep link",
    );
    one.end(&env);
    other.end(&env);
    let none = Value::Null;
    assert_eq!(
        own(&env, 1),
        (vec!["A dir/one".into(), "A one.moved".into()], none.clone())
    );
    let all = ["A dir/deep", "A dir/other", "A link"]
        .map(String::from)
        .to_vec();
    assert_eq!(own(&env, 2), (all, none));
    assert_eq!(blamed(&env, "dir/one"), [(json!(1), json!([]))]);
    assert_eq!(blamed(&env, "dir/other"), [(json!(2), json!([]))]);
    undo(&env, 1);
    let there = ["dir/one", "one.moved", "dir/other", "link"].map(|p| root.join(p).exists());
    assert_eq!(there, [false, false, true, true]);
    undo(&env, 2);
    // The directory that one made and the other had something in stays.
    assert_eq!(fs::read_dir(root.join("dir")).unwrap().count(), 0);
    assert!(!root.join("link").exists());
    assert_eq!(read(&root, "both").as_deref(), Some("0\n"));
}

#[test]
fn a_file_that_two_commands_changed_is_refused_by_name() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("both"), "0\n").unwrap();
    let one = Beside::start(&env, &root, "one", "true", "echo 1 >> both");
    let other = Beside::start(&env, &root, "other", "echo 2 >> both", "true");
    one.end(&env);
    other.end(&env);
    for id in [1, 2] {
        refused(&env, id, "both was changed by it and by another");
    }
    assert_eq!(read(&root, "both").as_deref(), Some("0\n2\n1\n"));
}

#[test]
fn what_nobody_or_a_mapping_changed_leaves_the_doubt() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("mapped"), vec![b'x'; 4096]).unwrap();
    let change = |n: u64, change: &dyn Fn()| {
        let one = Beside::start(&env, &root, "one", "true", "echo 1 > one");
        let other = Beside::start(&env, &root, "other", "echo 2 > other", "true");
        change();
        one.end(&env);
        other.end(&env);
        for name in ["one", "other"] {
            for end in ["began", "go"] {
                fs::remove_file(env.path(format!("{name}.{end}"))).unwrap();
            }
        }
        [n, n + 1]
    };
    for id in change(1, &|| fs::write(root.join("mine"), "?\n").unwrap()) {
        refused(&env, id, "it is not known which call changed mine");
    }
    let store = || {
        let file: File = OpenOptions::new()
            .read(true)
            .write(true)
            .open(root.join("mapped"))
            .unwrap();
        let mapping = Mapping::new(&file, 1).unwrap();
        mapping.word(0).store(7, Ordering::SeqCst);
        file.sync_all().unwrap();
    };
    for id in change(3, &store) {
        refused(&env, id, "it is not known which call changed mapped");
    }
}

#[test]
fn what_a_command_left_running_changes_is_nobodys() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let (dir, go, done) = (env.path("."), env.path("left.go"), env.path("left.done"));
    let left = format!(
        "(echo 0 > left; while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done; echo 1 > left; echo > {}) \
         > /dev/null 2>&1 & while [ ! -e left ]; do sleep 0.02; done",
        dir.display(),
        go.display(),
        done.display()
    );
    let one = Beside::start(&env, &root, "one", "echo 1 > one", "true");
    let leaves = Beside::start(&env, &root, "leaves", &left, "true");
    leaves.end(&env);
    let other = Beside::start(&env, &root, "other", "echo 2 > other", "true");
    fs::write(&go, "").unwrap();
    wait::until("what was left wrote", || done.exists());
    one.end(&env);
    other.end(&env);
    assert_eq!(own(&env, 2), (vec!["A left".into()], Value::Null));
    for id in [1, 3] {
        refused(&env, id, "it is not known which call changed left");
    }
}

#[test]
fn a_call_of_mcp_beside_a_command_is_told_apart() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut mcp = Mcp::start(&env, &root, &[]);
    let one = Beside::start(&env, &root, "one", "echo 1 > one", "echo 1 > more");
    mcp.call("write_file", json!({"path": "of-mcp", "content": "2\n"}))
        .ok();
    one.end(&env);
    assert_eq!(
        own(&env, 1),
        (vec!["A more".into(), "A one".into()], Value::Null)
    );
    assert_eq!(own(&env, 2), (vec!["A of-mcp".into()], Value::Null));
    assert_eq!(blamed(&env, "of-mcp"), [(json!(2), json!([]))]);
    undo(&env, 1);
    assert!(root.join("of-mcp").exists() && !root.join("one").exists());
    undo(&env, 2);
    assert!(!root.join("of-mcp").exists());
    mcp.end();
}
