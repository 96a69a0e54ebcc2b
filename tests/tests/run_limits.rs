//! `agentvfs run`: limits by cgroups, refused where they cannot be set.
#![allow(clippy::unwrap_used)]

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use tests::sandbox::{self, Going, mark, run};
use tests::skip::{Want, skip};

/// The hierarchy of version 2, and what it can limit.
fn hierarchy() -> Option<(PathBuf, String)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let root = PathBuf::from(line.split(' ').nth(4).unwrap());
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    Some((root, controllers))
}

/// Whether runs get groups of their own here.
fn is_enclosed(layers: &Value) -> bool {
    layers
        .as_array()
        .unwrap()
        .iter()
        .any(|layer| layer == "cgroup")
}

#[test]
fn limits_are_in_force_or_refused_before_anything_runs() {
    let Some(env) = sandbox::env(&[]) else { return };
    let report = env.path("tmp/report");
    let can = hierarchy().map_or(String::new(), |(_, controllers)| controllers);
    let ran = env.mountpoint().join(".agentvfs/branches/s/ran");
    for (option, amount, controller) in [
        ("--pids", "20", "pids"),
        ("--memory", "64M", "memory"),
        ("--cpu", "50", "cpu"),
    ] {
        let limited = [option, amount, "--session", "s"];
        let last = ["--report", report.to_str().unwrap(), "--", "touch", "ran"];
        let told = run(&env, &[&limited[..], &last].concat());
        let has = can.split_whitespace().any(|name| name == controller);
        match told.status {
            0 => {
                assert!(has, "{told:?}");
                let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
                assert!(
                    report["sandbox"]
                        .to_string()
                        .contains(&format!("{controller}-limit"))
                );
                fs::remove_file(&ran).unwrap();
            }
            _ => {
                told.fails(125, "it cannot be limited");
                assert!(!ran.exists());
                let effort = [&["--best-effort"], &limited[..], &["true"]].concat();
                let told = run(&env, &effort);
                assert_eq!(told.status, 0, "{told:?}");
                assert!(
                    told.err.contains(&format!("{controller}-limit")),
                    "{told:?}"
                );
            }
        }
    }
    for wrong in [["--pids", "0"], ["--memory", "much"], ["--cpu", "0"]] {
        let told = run(&env, &[&wrong[..], &["true"]].concat());
        assert_eq!(told.status, 2, "{told:?}");
    }
}

#[test]
fn a_fork_bomb_ends_at_its_limit() {
    let Some(env) = sandbox::env(&[]) else { return };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait; echo all";
    let told = run(&env, &["--pids", "6", "sh", "-c", script]);
    if told.status == 125 {
        return skip(Want::Machine, "no cgroup here can limit processes");
    }
    assert!(!told.out.contains("all"), "{told:?}");
}

/// The group of a process, in the hierarchy of version 2.
fn group_of(cgroup: &str) -> PathBuf {
    let line = cgroup.lines().find_map(|line| line.strip_prefix("0::/"));
    hierarchy().unwrap().0.join(line.unwrap())
}

#[test]
fn the_group_of_a_run_can_have_a_session_which_ends_with_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let session = |words: &[&str]| {
        let words = [&["session"], words].concat();
        env.told(env.command(&env.project(), &words))
    };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    let pid = going.command.as_raw_nonzero();
    let group = group_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap());
    let name = group.to_str().unwrap();
    if name.contains("agentvfs-run-") {
        session(&["register", "--cgroup", name, "--branch", "s"]).ok();
        let listed = session(&["list"]).ok();
        assert!(listed.contains(name) && listed.contains("\ts"), "{listed}");
    } else {
        skip(Want::Machine, "this user may not make a cgroup here");
    }
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
    assert_eq!(session(&["list"]).ok(), "");
}

/// Who is in no sandbox sees the mount, and `.agentvfs/view` in it, which is another branch to each group.
#[test]
fn the_view_of_the_mount_and_the_timeline_know_the_group_of_a_run_without_a_sandbox() {
    let Some(env) = sandbox::env(&[("who", "main\n")]) else {
        return;
    };
    let view = env.mountpoint().join(".agentvfs/view");
    let agentvfs = tests::binary::agentvfs().display();
    let script = format!(
        "echo run >who; cat '{view}/who'; cat /proc/self/cgroup
        cd '{view}' && '{agentvfs}' tool exec write -- sh -c 'echo made >\"$0/made\"' '{view}'",
        view = view.display()
    );
    let told = run(
        &env,
        &["--no-sandbox", "--session", "s", "sh", "-ec", &script],
    );
    if !told.out.contains("agentvfs-run-") {
        return skip(Want::Machine, "this user may not make a cgroup here");
    }
    let out = told.ok();
    assert!(out.starts_with("run\n"), "{out}");
    let outside = |words: &[&str]| env.told(env.command(&env.project(), words)).ok();
    let calls = outside(&["--branch", "s", "timeline"]);
    assert!(calls.contains("write"), "{calls}");
    assert_eq!(outside(&["timeline"]), "");
    let changed = outside(&["--branch", "s", "tool", "diff", "1"]);
    assert!(changed.contains("made"), "{changed}");
    // It ended with the group, so the branch can be deleted.
    assert_eq!(outside(&["session", "list"]), "");
    outside(&["branch", "delete", "s"]);
}

#[test]
fn a_run_has_a_group_of_its_own_where_that_can_be_and_leaves_none() {
    let Some(env) = sandbox::env(&[]) else { return };
    let report = env.path("tmp/report");
    let args = [
        "--report",
        report.to_str().unwrap(),
        "cat",
        "/proc/self/cgroup",
    ];
    let told = run(&env, &args);
    let written: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    if !is_enclosed(&written["sandbox"]) {
        return skip(Want::Machine, "this user may not make a cgroup here");
    }
    let first = group_of(&told.out);
    assert!(
        first.to_str().unwrap().contains("agentvfs-run-"),
        "{told:?}"
    );
    // Who has a cgroup namespace may write into the group that he is in: that has no limits.
    assert!(first.ends_with("command"), "{told:?}");
    assert!(!first.exists());
    // One whose caller was killed is removed by the next.
    let mark = mark();
    let mut going = Going::start(&env, "s", &mark, "");
    let pid = going.command.as_raw_nonzero();
    let left = group_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap());
    assert!(left.exists() && left != first);
    going.child.kill().unwrap();
    going.child.wait().unwrap();
    tests::wait::until("the command is gone", || {
        !PathBuf::from(format!("/proc/{pid}")).exists()
    });
    run(&env, &["true"]);
    assert!(!left.exists());
}
