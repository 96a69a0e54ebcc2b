//! `start --audit FILE`: the file has each event, or says that some are missing, whatever becomes of the daemon and of
//! the file.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::EventLine;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tests::env::Env;
use tests::wait;

/// More changes than are kept for a file that cannot be written.
const FLOOD: u64 = 66_000;

fn new() -> Option<(Env, PathBuf)> {
    let env = Env::new()?;
    fs::write(env.project().join("file"), "of the base\n").unwrap();
    let file = env.path("audit.ndjson");
    Some((env, file))
}

fn start(env: &Env, file: &Path) {
    start_with(env, file, &[]);
}

fn start_with(env: &Env, file: &Path, more: &[&str]) {
    let (project, file) = (env.project(), file.to_str().unwrap());
    let project = project.to_str().unwrap();
    let args = ["start", "--from", project, "--audit", file];
    env.workspace(&[&args[..], more].concat()).ok();
    env.imported();
}

/// The events of a file; each line must be one.
fn events(file: &Path) -> Vec<EventLine> {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(event).collect()
}

/// Operations and paths of those from the number `from` on, but for attributes: when the kernel brings times back is its
/// own affair.
fn told(events: &[EventLine], from: usize) -> Vec<String> {
    let all = events[from..].iter().filter(|e| e.op != "setattr");
    all.map(|e| format!("{} {}", e.op, e.path)).collect()
}

/// Waits until the file has an event; it may be in the middle of a write.
fn wait_for(file: &Path, op: &str, path: &str) {
    let is_it = |line: &str| {
        let event = serde_json::from_str::<EventLine>(line);
        event.is_ok_and(|e| e.op == op && e.path == path)
    };
    wait::until("the file has the event", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().any(is_it)
    });
}

#[test]
fn a_file_has_each_change_until_the_workspace_is_stopped() {
    let Some((env, file)) = new() else { return };
    start(&env, &file);
    assert_eq!(env.status()["audit"], file.to_str().unwrap());
    let at = |name: &str| env.mountpoint().join(name);
    fs::create_dir(at("d")).unwrap();
    File::create(at("d/f")).unwrap().write_all(b"x").unwrap();
    fs::rename(at("d/f"), at("file")).unwrap();
    env.workspace(&["checkpoint", "project", "one"]).ok();
    fs::remove_dir(at("d")).unwrap();
    env.workspace(&["stop", "project"]).ok();
    let first = events(&file);
    let wanted = [
        "create d",
        "create d/f",
        "write d/f",
        "rename d/f",
        "checkpoint ",
        "rmdir d",
    ];
    let all = told(&first, 0);
    assert_eq!(all[..wanted.len()], wanted, "{all:?}");
    // An automatic commit of the stop may follow.
    assert!(
        all[wanted.len()..].iter().all(|told| told == "checkpoint "),
        "{all:?}"
    );
    let numbers = first.iter().map(|e| e.extra.seq.parse::<u64>().unwrap());
    let begun = numbers.clone().next().unwrap();
    assert!(numbers.eq((0..first.len() as u64).map(|n| begun + n)));
    assert!(
        first
            .iter()
            .all(|e| e.extra.workspace == "project" && e.dev != 0)
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // Without the option it gets nothing more; with it, it goes on, and says that there is a gap.
    env.start();
    assert!(env.status()["audit"].is_null());
    fs::create_dir(at("untold")).unwrap();
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(events(&file), first);
    start(&env, &file);
    fs::create_dir(at("e")).unwrap();
    env.workspace(&["stop", "project"]).ok();
    let again = events(&file);
    assert_eq!(again[..first.len()], first);
    let lost = &again[first.len()];
    assert_eq!((&*lost.op, &*lost.extra.count), ("lost", ""), "{lost:?}");
    assert!(told(&again, first.len()).contains(&"create e".to_owned()));
}

#[test]
fn it_goes_on_after_the_daemon_was_killed_in_the_middle_of_a_line() {
    let Some((env, file)) = new() else { return };
    start(&env, &file);
    fs::create_dir(env.mountpoint().join("a")).unwrap();
    wait_for(&file, "create", "a");
    env.kill_daemon();
    let before = events(&file);
    let mut end = File::options().append(true).open(&file).unwrap();
    end.write_all(b"{\"ts\":17").unwrap();
    drop(end);
    // A command brings the workspace back, as it was.
    env.workspace(&["start", "project"]).ok();
    assert_eq!(env.status()["audit"], file.to_str().unwrap());
    fs::create_dir(env.mountpoint().join("b")).unwrap();
    wait_for(&file, "create", "b");
    env.workspace(&["stop", "project"]).ok();
    let after = events(&file);
    assert_eq!(after[..before.len()], before);
    let lost = &after[before.len()];
    assert_eq!((&*lost.op, &*lost.extra.count), ("lost", ""), "{lost:?}");
    assert!(told(&after, before.len()).contains(&"create b".to_owned()));
}

#[test]
fn what_a_file_that_cannot_be_written_missed_is_counted_in_it() {
    let Some((env, file)) = new() else { return };
    start(&env, &file);
    let changed = File::create(env.mountpoint().join("f")).unwrap();
    wait_for(&file, "create", "f");
    let moved = env.path("moved");
    fs::rename(&file, &moved).unwrap();
    fs::create_dir(&file).unwrap();
    changed.set_len(1).unwrap();
    let troubles = || env.status()["troubles"].to_string();
    wait::until("status says so", || {
        troubles().contains("events are not appended to")
    });
    for n in 0..FLOOD {
        changed.set_len(n % 2).unwrap();
    }
    changed.write_all_at(b"the last one", 0).unwrap();
    drop(changed);
    fs::remove_dir(&file).unwrap();
    wait_for(&file, "write", "f");
    wait::until("status says nothing", || !troubles().contains("audit"));
    env.workspace(&["stop", "project"]).ok();
    let (before, after) = (events(&moved), events(&file));
    let number = |e: &EventLine| e.extra.seq.parse::<u64>().unwrap();
    // What had been taken from the ring when the file could not be written comes before what was lost.
    let all: Vec<&EventLine> = before.iter().chain(&after).collect();
    let mut counted = 0;
    for two in all.windows(2) {
        let (last, next) = (number(two[0]), number(two[1]));
        if two[1].op == "lost" {
            let count: u64 = two[1].extra.count.parse().unwrap();
            assert_eq!(next, last + count, "{two:?}");
            counted += count;
        } else {
            assert_eq!(next, last + 1, "{two:?}");
        }
    }
    assert!(counted > 0 && counted < FLOOD, "{counted}");
}

#[test]
fn a_file_that_would_not_do_is_refused_and_nothing_is_started() {
    let Some((env, file)) = new() else { return };
    let project = env.project();
    let from = project.to_str().unwrap();
    let refused = |file: &Path, why: &str| {
        let args = ["start", "--from", from, "--audit", file.to_str().unwrap()];
        env.workspace(&args).fails(1, why);
    };
    refused(&project.join("log"), "is in the workspace");
    refused(&env.mountpoint().join("log"), "is in the workspace");
    refused(&env.path("missing/log"), "No such file");
    refused(&env.path(""), "directory");
    let other = env.path("other");
    fs::write(&other, "a,b\n1,2\n").unwrap();
    refused(&other, "something else than events");
    assert_eq!(fs::read(&other).unwrap(), b"a,b\n1,2\n");
    assert!(!project.join("log").exists());
    start(&env, &file);
    let second = env.path("second");
    fs::create_dir(&second).unwrap();
    let args = [
        "start",
        "--from",
        second.to_str().unwrap(),
        "--audit",
        file.to_str().unwrap(),
    ];
    env.workspace(&args)
        .fails(1, "another workspace writes to it");
    let elsewhere = env.path("elsewhere");
    let args = ["start", "project", "--audit", elsewhere.to_str().unwrap()];
    let told = env.workspace(&args);
    assert!(told.err.contains("appends its events to"), "{}", told.err);
    assert!(!elsewhere.exists());
    env.workspace(&["stop", "project"]).ok();
}

/// What a file has of opens of a path: process and detail.
fn opens_of(file: &Path, path: &str) -> Vec<(u32, String)> {
    let all = events(file).into_iter();
    all.filter(|e| e.op == "open" && e.path == path)
        .map(|e| (e.pid, e.extra.detail))
        .collect()
}

#[test]
fn with_opens_each_open_is_an_event_and_without_none_is() {
    let Some((mut env, file)) = new() else { return };
    env.keep_mounts();
    start(&env, &file);
    let at = |name: &str| env.mountpoint().join(name);
    assert_eq!(fs::read(at("file")).unwrap(), b"of the base\n");
    assert_eq!(env.status()["telemetry"], serde_json::json!(["front"]));
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(opens_of(&file, "file"), []);

    start_with(&env, &file, &["--audit", "opens"]);
    let status = env.status();
    assert_eq!(status["telemetry"], serde_json::json!(["front", "opens"]));
    assert_eq!(status["branch_id"], 0);
    let reads = || env.status()["requests"]["read"]["count"].clone();
    assert_eq!(fs::read(at("file")).unwrap(), b"of the base\n");
    let before = reads();
    assert_eq!(fs::read(at("file")).unwrap(), b"of the base\n");
    assert_eq!(reads(), before, "its pages stay in the kernel's cache");
    let mut options = File::options();
    options.append(true).open(at("file")).unwrap();
    File::create(at("new")).unwrap();
    assert!(File::open(at("none")).is_err());
    let copied = std::process::Command::new("cp")
        .args([at("file"), at("copy")])
        .status();
    assert!(copied.unwrap().success());
    wait_for(&file, "create", "copy");
    let mine = |detail: &str| (std::process::id(), detail.to_owned());
    let mut opens = opens_of(&file, "file");
    let last = opens.pop().unwrap();
    assert_eq!(opens, [mine("read"), mine("read"), mine("write append")]);
    assert!(last.0 != std::process::id() && last.1 == "read", "{last:?}");
    // Making a file is an event of its own.
    assert_eq!(opens_of(&file, "new"), []);

    // A daemon that goes on with the mount answers, too: the kernel would never ask again.
    let told = opens_of(&file, "file").len();
    env.kill_daemon();
    assert_eq!(fs::read(at("file")).unwrap(), b"of the base\n");
    wait::until("the open is an event", || {
        let text = fs::read_to_string(&file).unwrap();
        text.matches("\"op\":\"open\"").count() > told
    });
    let args = ["start", "project", "--audit", "opens"];
    assert!(!env.workspace(&args).err.contains("already"));
    env.workspace(&["stop", "project"]).ok();
}
