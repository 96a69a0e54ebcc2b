//! `start --telemetry`: opens and reads by fanotify, and workspaces of which nobody is told.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::EventLine;
use serde_json::json;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::user::{User, act_as};
use tests::{binary, wait};

/// Readers of the storm, and how often each reads.
const READERS: usize = 4;
const READS: usize = 500;
/// How often the daemon is killed while programs use the mount.
const KILLS: usize = 5;

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

/// Whoever is not root.
const NOBODY: u32 = 65534;

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

/// The sources that are used, but for that which is not on each machine.
fn beside_ebpf(env: &Env) -> Vec<String> {
    let used = env.status()["telemetry"].clone();
    let mut used: Vec<String> = serde_json::from_value(used).unwrap();
    used.retain(|source| source != "ebpf");
    used
}

#[test]
fn root_hears_by_fanotify_with_auto_and_stops_after_many_reads() {
    let Some((env, file)) = new() else { return };
    let audit = ["--audit", file.to_str().unwrap()];
    start(&env, &[&audit[..], &["--telemetry", "auto"]].concat()).ok();
    env.imported();
    assert_eq!(beside_ebpf(&env), ["front", "fanotify"]);
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

/// Writes and reads a file of its own in the mount until the end; gives how often.
fn use_a_file(path: &Path, end: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !end.load(Relaxed) {
        let text = format!("round {rounds}");
        fs::write(path, &text).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), text);
        rounds += 1;
    }
    rounds
}

#[test]
fn a_daemon_that_is_killed_while_it_hears_leaves_nobody_waiting() {
    let Some((mut env, file)) = new() else { return };
    env.keep_mounts();
    let audit = ["--audit", file.to_str().unwrap()];
    start(&env, &[&audit[..], &["--telemetry", "fanotify"]].concat()).ok();
    env.imported();
    let hears = || env.status()["telemetry"] == json!(["front", "fanotify"]);
    let end = AtomicBool::new(false);
    let path = |n: usize| env.mountpoint().join(format!("d/of-{n}"));
    let rounds: [usize; 3] = std::thread::scope(|scope| {
        let (path, end) = (&path, &end);
        let users = [0, 1, 2].map(|n| scope.spawn(move || use_a_file(&path(n), end)));
        // Also where a check fails: the scope waits for all of them.
        let ended = EndOnDrop(end);
        for _ in 0..KILLS {
            let told = events(&file).len();
            wait::until("more is told of", || events(&file).len() > told);
            env.kill_daemon();
            wait::until("a successor hears", hears);
        }
        drop(ended);
        users.map(|user| user.join().unwrap())
    });
    assert!(rounds.iter().all(|rounds| *rounds > 0), "{rounds:?}");
    let pid = cat(&path(0));
    heard_of(&file, pid, &[("read", "d/of-0", "main")]);
    env.workspace(&["stop", "project"]).ok();
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn the_daemons_own_accesses_of_the_mount_are_not_told_of() {
    let Some((env, file)) = new() else { return };
    let audit = ["--audit", file.to_str().unwrap()];
    start(&env, &[&audit[..], &["--telemetry", "fanotify"]].concat()).ok();
    env.imported();
    let path = env.mountpoint().join("d/file");
    // A forced stop, a checkpoint and a switch have the daemon go to its own mount.
    fs::write(&path, "changed").unwrap();
    env.workspace(&["checkpoint", "project", "one"]).ok();
    fs::write(&path, "again").unwrap();
    env.workspace(&["rollback", "project", "one"]).ok();
    let pid = cat(&path);
    heard_of(&file, pid, &[("read", "d/file", "main")]);
    let daemon = env.status()["pid"].as_u64().unwrap();
    env.workspace(&["stop", "project", "--force"]).ok();
    let heard = |e: &&EventLine| e.backend == "fanotify";
    let all = events(&file);
    let own = |e: &EventLine| u64::from(e.pid) == daemon;
    assert!(!all.iter().filter(heard).any(own), "{all:?}");
}

#[test]
fn whoever_is_not_root_has_the_front_alone() {
    let Some((env, _)) = new() else { return };
    let nobody = User {
        uid: NOBODY,
        gid: NOBODY,
        groups: &[],
    };
    let reaches = || binary::agentvfs().exists() && fs::File::open("/dev/fuse").is_ok();
    if !act_as(nobody, reaches) {
        return skip(
            Want::Machine,
            "others may not mount, or cannot reach the program",
        );
    }
    let to_nobody = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
    for name in ["", "project", "project/d", "project/d/file", "user", "tmp"] {
        to_nobody(&env.path(name)).unwrap();
    }
    let told = |args: &[&str]| {
        let mut command = env.command(&env.path(""), args);
        command.uid(NOBODY).gid(NOBODY);
        env.told(command)
    };
    let begun = ["start", "--from", "project", "--telemetry"];
    let with = |source| told(&[&["workspace"], &begun[..], &[source]].concat());
    with("fanotify").fails(1, "cannot hear of opens and reads by fanotify");
    with("auto").ok();
    let status = told(&["workspace", "status", "project", "--json"]).out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["telemetry"], json!(["front"]));
    assert_eq!(status["troubles"], json!([]), "it was not promised");
    told(&["workspace", "stop", "project"]).ok();
}

#[test]
fn sources_that_do_not_go_together_are_refused() {
    let Some((env, file)) = new() else { return };
    let refused = |more: &[&str], status, why: &str| {
        start(&env, more).fails(status, why);
        assert!(!env.mountpoint().join("d").exists());
    };
    let unknown = start(&env, &["--telemetry", "ptrace"]);
    assert_eq!(unknown.status, 2);
    assert!(unknown.err.contains("no source is called"), "{unknown:?}");
    let both = ["--telemetry", "fanotify", "--audit", "opens"];
    refused(&both, 1, "both tell of opens");
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
    assert_eq!(beside_ebpf(&env), ["front", "opens"]);
    env.workspace(&["stop", "project"]).ok();
}
