//! The daemon's life as its users see it: a new build of the program, its log, its death.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use tests::env::{Env, Told};
use tests::{binary, tree};

fn run(env: &Env, program: &PathBuf, args: &[&str]) -> Told {
    let mut command = env.program(program);
    command.args(args);
    env.told(command)
}

#[test]
fn start_by_another_build_hands_over_and_everything_is_there() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "one\n").unwrap();
    fs::create_dir(env.path("other")).unwrap();
    let root = env.start();
    env.workspace(&["start", "--from", "other", "--mount", "elsewhere"])
        .ok();
    let id = env.workspace(&["checkpoint", "project", "one"]).id();
    fs::write(root.join("file"), "not saved\n").unwrap();
    fs::write(env.path("elsewhere/new"), "x").unwrap();
    let before = tree::of(&root);
    let old = env.daemons();
    let new = binary::other_build(&env.path("agentvfs-new"));
    // Other commands go on with the daemon that there is.
    run(&env, &new, &["workspace", "status", "project"]).ok();
    assert_eq!(env.daemons(), old);
    run(&env, &new, &["workspace", "start", "project"]).ok();
    let now = env.daemons();
    assert!(now.len() == 1 && now != old, "{old:?} {now:?}");
    tree::same("after the hand-over", &before, &tree::of(&root));
    assert_eq!(fs::read(env.path("elsewhere/new")).unwrap(), b"x");
    assert_eq!(env.status()["head"], id.as_str());
    let log = env.workspace(&["log", "project", "--all"]).ok();
    assert_eq!(
        log.lines().count(),
        1,
        "a hand-over makes no commits: {log}"
    );
}

#[test]
fn daemon_whose_mount_is_in_use_goes_on_and_says_so() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "one\n").unwrap();
    let root = env.start();
    let held = fs::File::open(root.join("file")).unwrap();
    let old = env.daemons();
    let new = binary::other_build(&env.path("agentvfs-new"));
    let told = run(&env, &new, &["workspace", "start", "project"]);
    assert!(told.err.contains("was not replaced"), "{told:?}");
    assert!(
        told.err.contains(&std::process::id().to_string()),
        "{told:?}"
    );
    assert!(told.ok().contains("status=started\n"));
    assert_eq!(env.daemons(), old);
    drop(held);
    assert_eq!(fs::read(root.join("file")).unwrap(), b"one\n");
}

#[test]
fn log_is_bounded_and_readable_without_a_daemon() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.home()).unwrap();
    env.workspace(&["status", "none", "--log"])
        .fails(1, "daemon.log");
    let mut log = fs::File::create(env.home().join("daemon.log")).unwrap();
    let line = "x".repeat(1023) + "\n";
    log.write_all(line.repeat(8 << 10).as_bytes()).unwrap();
    let mut command = env.command(&env.path(""), &["workspace", "start", "--from", "project"]);
    // Requests that are refused are logged then.
    command.env("RUST_LOG", "debug");
    env.told(command).ok();
    for _ in 0..3 {
        env.workspace(&["rollback", "no-such-ref"])
            .fails(1, "no-such-ref");
    }
    let size = |name: &str| fs::metadata(env.home().join(name)).map_or(0, |meta| meta.len());
    assert!(size("daemon.log.1") >= 8 << 20, "it was put aside");
    assert!(size("daemon.log") < 1 << 20, "{}", size("daemon.log"));
    env.workspace(&["stop"]).ok();
    let told = env.workspace(&["status", "--log"]).ok();
    assert!(told.contains("kind=\"no-such-ref\"") && told.lines().count() <= 200);
    let json = env.workspace(&["status", "--log", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!json["lines"].as_array().unwrap().is_empty());
}

#[test]
fn log_follows_the_variables_and_verbose() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "x").unwrap();
    let mut command = env.command(&env.path(""), &["workspace", "start", "--from", "project"]);
    command.env("RUST_LOG", "error");
    env.told(command).ok();
    assert_eq!(env.log(), "");
    env.workspace(&["stop"]).ok();
    tests::wait::until("the daemon has ended", || env.daemons().is_empty());
    let told = env.workspace(&["start", "project", "--verbose"]);
    assert!(
        told.err.contains("DEBUG") && told.err.contains("asked Start"),
        "{told:?}"
    );
    assert!(told.ok().starts_with("name=project\n"));
    env.workspace(&["checkpoint", "x"]).id();
    assert!(env.log().contains("DEBUG"), "{}", env.log());
}

#[test]
fn status_of_a_workspace_whose_daemon_died_says_so_and_leaves_it() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "one\n").unwrap();
    let root = env.start();
    fs::write(root.join("file"), "two\n").unwrap();
    env.kill_daemon();
    let told = env.workspace(&["status", "project"]);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.out.contains("status=stale\n"), "{told:?}");
    assert!(
        told.err.contains("no acknowledged write is lost"),
        "{told:?}"
    );
    // The next command that names it brings it back.
    assert_eq!(
        env.workspace(&["diff", "--name-status", "project"]).ok(),
        "M\tfile\n"
    );
    assert_eq!(fs::read(root.join("file")).unwrap(), b"two\n");
}
