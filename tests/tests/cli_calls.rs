//! Calls from their beginning to their end: of processes that die, that leave something running, inside one another,
//! and of nobody.

#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use tests::env::{Env, Told};
use tests::mcp::Mcp;
use tests::{binary, wait};

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn tool(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["tool"].iter().chain(args).copied().collect();
    agentvfs(env, &args)
}

/// Calls, the oldest first.
fn calls(env: &Env) -> Vec<Value> {
    let out = agentvfs(env, &["timeline", "--json"]).ok();
    let told: Value = serde_json::from_str(&out).unwrap();
    let mut calls = told["calls"].as_array().unwrap().clone();
    calls.reverse();
    calls
}

fn status(env: &Env, call: usize) -> String {
    calls(env)[call - 1]["status"].as_str().unwrap().to_owned()
}

fn exec(env: &Env, root: &Path, name: &str, script: &str) -> Command {
    let mut command = env.command(root, &["tool", "exec", name, "--", "sh", "-c", script]);
    command.env("AV", binary::agentvfs());
    command
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Files of the workspace that are not of the project.
fn new_files(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn undo(env: &Env, id: u64) {
    tool(env, &["undo", &id.to_string()]).ok();
}

#[test]
fn a_call_ends_with_its_command_and_what_that_left_running_prints_on() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let (out, err) = (env.path("out"), env.path("err"));
    let stop = env.path("stop");
    let script = format!(
        "(while [ ! -e {0} ]; do sleep 0.02; done; echo late; echo late >&2; echo over > {0}.over) & echo up",
        stop.display()
    );
    let mut child = exec(&env, &root, "serve", &script)
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    wait::until("the call ends with its command", || {
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read_to_string(&out).unwrap(), "up\n");
    let call = calls(&env).remove(0);
    assert_eq!(
        (&call["status"], &call["result"]["stdout"]),
        (&"success".into(), &"up\n".into())
    );
    fs::write(&stop, "").unwrap();
    wait::until("what is printed later arrives, too", || {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
        read(&out) == "up\nlate\n" && read(&err) == "late\n"
    });
    // It could write to the end.
    wait::until("the server ends", || env.path("stop.over").exists());
}

#[test]
fn a_signal_ends_a_call_whose_command_left_something_running_or_does_not_heed_it() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let piped = |script: &str| {
        exec(&env, &root, "s", script)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    // The shell ends at the signal; what it started holds its output, until the test is over.
    let stop = env.path("stop");
    let script = format!(
        "(trap '' TERM; while [ ! -e {} ]; do sleep 0.02; done) & echo begun > x; wait",
        stop.display()
    );
    let mut child = piped(&script);
    wait::until("the command runs", || root.join("x").exists());
    signal(&child, Signal::TERM);
    wait::until("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    fs::write(&stop, "").unwrap();
    // One that does not heed it is killed by the second.
    let mut child = piped("trap '' TERM; echo begun > y; while :; do sleep 0.02; done");
    wait::until("the command runs", || root.join("y").exists());
    signal(&child, Signal::TERM);
    let mut asked = 0;
    wait::until("it is killed", || {
        // Two that come before the first was taken are one.
        asked += 1;
        if asked % 50 == 0 && child.try_wait().unwrap().is_none() {
            signal(&child, Signal::TERM);
        }
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(137));
    let ended: Vec<String> = calls(&env)
        .iter()
        .map(|c| c["status"].to_string())
        .collect();
    assert_eq!(ended, ["\"error\"", "\"error\""]);
}

/// How a process ends that is about to.
fn ended(mut child: Child) -> ExitStatus {
    wait::until("it ends", || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// A call whose command runs until the file `stop` is there, or the directory that it would be in is gone.
fn long(env: &Env, root: &Path, began: &str) -> Child {
    let (dir, stop) = (env.path("."), env.path("stop"));
    let script = format!(
        "echo half > {began}; while [ -d {} ] && [ ! -e {} ]; do sleep 0.02; done",
        dir.display(),
        stop.display()
    );
    let child = exec(env, root, "long", &script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait::until("the command runs", || {
        fs::read_to_string(root.join(began)).is_ok_and(|text| text == "half\n")
    });
    child
}

#[test]
fn a_call_ends_when_its_process_dies_and_later_ones_can_be_taken_back() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut child = long(&env, &root, "x");
    assert_eq!(status(&env, 1), "pending");
    child.kill().unwrap();
    child.wait().unwrap();
    wait::until("the daemon sees it", || status(&env, 1) == "error");
    assert_eq!(calls(&env)[0]["error"], "its process died");
    assert_eq!(tool(&env, &["diff", "1"]).ok(), "A\tx\n");
    let told = exec(&env, &root, "later", "echo 1 > y");
    env.told(told).ok();
    undo(&env, 2);
    undo(&env, 1);
    assert_eq!(new_files(&root), [""; 0]);
    fs::write(env.path("stop"), "").unwrap();
}

#[test]
fn a_command_ends_with_the_process_that_notes_its_call() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut child = exec(&env, &root, "long", "echo $$ > pid; exec sleep 600")
        .spawn()
        .unwrap();
    let mut process = None;
    wait::until("the command runs", || {
        let text = fs::read_to_string(root.join("pid"));
        process = text.ok().and_then(|text| text.trim().parse::<i32>().ok());
        process.is_some()
    });
    let process = Pid::from_raw(process.unwrap()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait::until("it has ended", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_call_ends_also_where_its_process_died_while_there_was_no_daemon() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.imported();
    let mut dies = long(&env, &root, "x");
    let lives = long(&env, &root, "y");
    env.kill_daemon();
    dies.kill().unwrap();
    dies.wait().unwrap();
    let listed = calls(&env);
    assert_eq!(
        (&listed[0]["error"], &listed[1]["status"]),
        (&"its process died".into(), &"pending".into())
    );
    fs::write(env.path("stop"), "").unwrap();
    let told = ended(lives);
    assert!(told.success());
    assert_eq!(status(&env, 2), "success");
    assert_eq!(agentvfs(&env, &["timeline", "--verify"]).status, 0);
}

#[test]
fn calls_inside_calls_are_taken_back_each_for_itself() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let script = "echo 1 > a; \"$AV\" tool exec inner -- sh -c 'echo 2 > b'; echo 3 > c";
    env.told(exec(&env, &root, "outer", script)).ok();
    let parents: Vec<Value> = calls(&env).iter().map(|c| c["parent"].clone()).collect();
    assert_eq!(parents, [Value::Null, 1.into()]);
    assert_eq!(tool(&env, &["diff", "2"]).ok(), "A\tb\n");
    assert_eq!(tool(&env, &["diff", "1"]).ok(), "A\ta\nA\tb\nA\tc\n");
    undo(&env, 2);
    assert_eq!(new_files(&root), ["a", "c"]);
    undo(&env, 1);
    assert_eq!(new_files(&root), [""; 0]);
    // A hook's call around one over MCP.
    let hook = tool(&env, &["start", "mcp__agentvfs__write_file"]).ok();
    let mut mcp = Mcp::start(&env, &root, &[]);
    mcp.call("write_file", json!({"path": "d", "content": "4\n"}))
        .ok();
    tool(&env, &["success", hook.trim_end()]).ok();
    assert_eq!(calls(&env)[3]["parent"], 3);
    undo(&env, 4);
    assert_eq!(new_files(&root), [""; 0]);
    undo(&env, 3);
    mcp.end();
}

#[test]
fn calls_side_by_side_are_no_parts_of_each_other() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let long = long(&env, &root, "x");
    env.told(exec(&env, &root, "short", "echo 1 > y")).ok();
    assert_eq!(calls(&env)[1]["overlaps"], json!([1]));
    let told = tool(&env, &["diff", "2"]);
    assert_eq!((&told.out[..], &told.err[..]), ("A\ty\n", ""));
    undo(&env, 2);
    assert_eq!(new_files(&root), ["x"]);
    fs::write(env.path("stop"), "").unwrap();
    ended(long);
    env.told(exec(&env, &root, "third", "echo 1 > z")).ok();
    undo(&env, 3);
    assert_eq!(new_files(&root), ["x"]);
}

#[test]
fn a_refusal_names_the_command_that_ends_what_it_is_for() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    tool(&env, &["start", "one"]).ok();
    tool(&env, &["start", "other"]).ok();
    fs::write(root.join("x"), "1\n").unwrap();
    tool(&env, &["success", "1"]).ok();
    let why = "ran at the same time as 2, of which 2 has not ended";
    let told = tool(&env, &["undo", "1"]);
    assert!(told.err.contains(why), "{told:?}");
    let command = "agentvfs tool error -w project 2 TEXT";
    assert!(told.err.contains(command), "{told:?}");
    let told = tool(&env, &["diff", "1"]);
    assert!(told.err.contains(why), "{told:?}");
    let command = "`agentvfs tool error 2 TEXT` ends call 2";
    assert!(told.err.contains(command), "{told:?}");
    tool(&env, &["error", "2", "given up"]).ok();
}

#[test]
fn a_call_that_nobody_ends_is_given_up_after_a_time() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let long = long(&env, &root, "x");
    tool(&env, &["start", "forgotten"]).ok();
    agentvfs(&env, &["config", "end-calls=1ms"]).ok();
    wait::until("it is given up", || status(&env, 2) == "error");
    assert!(
        calls(&env)[1]["error"]
            .as_str()
            .unwrap()
            .starts_with("nobody told of its end")
    );
    assert_eq!(status(&env, 1), "pending", "a process holds it");
    tool(&env, &["undo", "2"]).fails(1, "the time of its end is not known");
    fs::write(env.path("stop"), "").unwrap();
    assert!(ended(long).success());
}
