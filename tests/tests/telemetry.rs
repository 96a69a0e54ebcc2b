//! `start --telemetry`: opens and reads by fanotify, and workspaces of which nobody is told.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::EventLine;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tests::env::Env;
use tests::wait;

/// Readers of the storm, and how often each reads.
const READERS: usize = 4;
const READS: usize = 500;

fn new() -> Option<(Env, PathBuf)> {
    let env = Env::as_root()?;
    fs::create_dir(env.project().join("d")).unwrap();
    fs::write(env.project().join("d/file"), "of the base\n").unwrap();
    let file = env.path("audit.ndjson");
    Some((env, file))
}

fn start(env: &Env, more: &[&str]) -> tests::env::Told {
    let project = env.project();
    let args = ["start", "--from", project.to_str().unwrap()];
    env.workspace(&[&args[..], more].concat())
}

/// A command of its own name.
fn agentvfs(env: &Env, args: &[&str]) -> tests::env::Told {
    env.told(env.command(&env.project(), args))
}

fn events(file: &Path) -> Vec<EventLine> {
    let text = fs::read_to_string(file).unwrap();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    whole.lines().map(event).collect()
}

/// Prints a file by a program of its own; gives its process.
fn cat(path: &Path) -> u32 {
    let mut child = Command::new("cat")
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

/// Waits for what the file has of a process: operation, path and branch.
fn heard_of(file: &Path, pid: u32, want: &[(&str, &str, &str)]) {
    let of = || {
        let all = events(file).into_iter();
        all.filter(|e| e.pid == pid && e.backend == "fanotify")
            .map(|e| (e.op, e.path, e.extra.branch))
            .collect::<Vec<_>>()
    };
    let has = |all: &[(String, String, String)], (op, path, branch): &(&str, &str, &str)| {
        let is_it = |(o, p, b): &(String, String, String)| o == op && p == path && b == branch;
        all.iter().any(is_it)
    };
    wait::until("what it did is told of", || {
        let all = of();
        want.iter().all(|one| has(&all, one))
    });
}

#[test]
fn fanotify_tells_of_opens_and_of_reads_from_cached_pages() {
    let Some((mut env, file)) = new() else { return };
    env.keep_mounts();
    let audit = ["--audit", file.to_str().unwrap()];
    start(&env, &[&audit[..], &["--telemetry", "fanotify"]].concat()).ok();
    env.imported();
    assert_eq!(env.status()["telemetry"], json!(["front", "fanotify"]));
    let at = |name: &str| env.mountpoint().join(name);
    cat(&at("d/file"));
    let reads = || env.status()["requests"]["read"]["count"].clone();
    let before = reads();
    let pid = cat(&at("d/file"));
    assert_eq!(reads(), before, "its pages were cached");
    let both = |branch| [("open", "d/file", branch), ("read", "d/file", branch)];
    heard_of(&file, pid, &both("main"));
    env.workspace(&["checkpoint", "project", "one"]).ok();
    agentvfs(&env, &["branch", "create", "side", "-w", "project"]).ok();
    let pid = cat(&at(".agentvfs/branches/side/d/file"));
    heard_of(&file, pid, &both("side"));
    let pid = cat(&at(".agentvfs/snapshots/one/d/file"));
    fs::write(at("d/file"), "changed").unwrap();
    env.workspace(&["rollback", "project", "one"]).ok();
    let last = cat(&at("d/file"));
    heard_of(&file, last, &both("main"));
    let all = events(&file);
    assert!(
        all.iter().all(|e| e.pid != pid),
        "what a snapshot shows is no branch's"
    );
    let daemon = env.status()["pid"].as_u64().unwrap();
    assert!(all.iter().all(|e| u64::from(e.pid) != daemon));
    let named = all
        .iter()
        .find(|e| e.pid == last && e.op == "read")
        .unwrap();
    assert!(["cat", ""].contains(&&*named.extra.comm), "{named:?}");

    // A daemon that goes on with the mount goes on to hear.
    env.kill_daemon();
    let pid = cat(&at("d/file"));
    wait::until("it hears", || {
        env.status()["telemetry"] == json!(["front", "fanotify"])
    });
    let pid = [pid, cat(&at("d/file"))][1];
    heard_of(&file, pid, &both("main"));
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn what_was_heard_and_not_read_does_not_keep_a_mount_busy() {
    let Some((env, file)) = new() else { return };
    let audit = ["--audit", file.to_str().unwrap()];
    start(&env, &[&audit[..], &["--telemetry", "auto"]].concat()).ok();
    env.imported();
    assert_eq!(env.status()["telemetry"], json!(["front", "fanotify"]));
    let path = env.mountpoint().join("d/file");
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| (0..READS).for_each(|_| drop(fs::read(&path).unwrap())));
        }
    });
    env.workspace(&["stop", "project"]).ok();
    let mine = |e: &&EventLine| e.op == "open" && e.pid == std::process::id();
    let told = events(&file);
    let lost = told.iter().any(|e| e.op == "lost");
    assert!(lost || told.iter().filter(mine).count() > 0);
}

#[test]
fn sources_that_do_not_go_together_are_refused() {
    let Some((env, file)) = new() else { return };
    let refused = |more: &[&str], status, why: &str| {
        start(&env, more).fails(status, why);
        assert!(!env.mountpoint().join("d").exists());
    };
    refused(&["--telemetry", "ptrace"], 2, "no source is called");
    let both = ["--telemetry", "fanotify", "--audit", "opens"];
    refused(&both, 1, "leave out one");
    let untold = ["--telemetry", "none", "--audit", file.to_str().unwrap()];
    refused(&untold, 1, "there are no events");
    start(&env, &["--telemetry", "none"]).ok();
    assert_eq!(env.status()["telemetry"], json!(["none"]));
    let watch = agentvfs(&env, &["watch", "project", "--no-follow"]);
    watch.fails(1, "--telemetry none");
    let again = start(&env, &["--telemetry", "auto"]);
    assert!(again.err.contains("stop it first"), "{}", again.err);
    env.workspace(&["stop", "project"]).ok();
    start(&env, &["--telemetry", "auto", "--audit", "opens"]).ok();
    assert_eq!(env.status()["telemetry"], json!(["front", "opens"]));
    env.workspace(&["stop", "project"]).ok();
}
