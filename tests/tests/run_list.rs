//! `agentvfs run --list`, `--stop` and `--discard`.
#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use tests::env::{Env, Told};
use tests::sandbox::{self, Going, mark, processes, run, shell};
use tests::wait;

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.project(), args))
}

/// The rows of `--list`.
fn listed(env: &Env) -> Vec<Vec<String>> {
    let told = agentvfs(env, &["run", "--list"]).ok();
    let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
    told.lines().map(cells).collect()
}

fn branches(env: &Env) -> Vec<String> {
    let told = agentvfs(env, &["branch", "list"]).ok();
    let names = told.lines().filter_map(|line| line.split('\t').next());
    names.map(str::to_owned).collect()
}

fn id(pid: Pid) -> String {
    pid.as_raw_nonzero().to_string()
}

#[test]
fn runs_that_are_alive_are_listed_with_their_processes() {
    let Some(env) = sandbox::env(&[]) else { return };
    assert_eq!(listed(&env), Vec::<Vec<String>>::new());
    let (one, two) = (mark(), mark());
    let first = Going::start(&env, "s", &one, "sleep 599 & (setsid sleep 598 &)");
    let second = Going::start(&env, "t", &two, "true");
    let rows = listed(&env);
    assert_eq!(rows.len(), 2, "{rows:?}");
    let [_, session, branch, pids, started, words] = &rows[0][..] else {
        panic!("{rows:?}")
    };
    assert_eq!((session.as_str(), branch.as_str()), ("s", "s"));
    let pids: Vec<&str> = pids.split(',').collect();
    assert_eq!(pids[0], id(Pid::from_child(&first.child)));
    for pid in [first.init(), first.command] {
        assert!(pids.contains(&id(pid).as_str()), "{rows:?}");
    }
    // Those of its own, process 1, the command and two that it left.
    assert_eq!(pids.len(), 5, "{rows:?}");
    assert!(
        started.ends_with('Z') && words.contains("sh -c"),
        "{rows:?}"
    );
    assert_eq!(rows[1][1], "t");
    let told: Value =
        serde_json::from_str(&agentvfs(&env, &["run", "--list", "--json"]).ok()).unwrap();
    assert_eq!(told["runs"][1]["workspace"], "project");
    assert_eq!(
        told["runs"][1]["pids"][0].to_string(),
        id(Pid::from_child(&second.child))
    );
    assert_eq!(agentvfs(&env, &["run", "--list", "-w", "other"]).ok(), "");
    for going in [first, second] {
        kill_process(going.command, Signal::KILL).unwrap();
        going.finish(&env);
    }
    assert_eq!(listed(&env), Vec::<Vec<String>>::new());
}

#[test]
fn what_is_not_alive_is_not_listed() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "true");
    let run = Pid::from_child(&going.child);
    env.kill_daemon();
    assert_eq!(listed(&env).len(), 1);
    kill_process(run, Signal::KILL).unwrap();
    going.finish(&env);
    wait::until("it is not listed", || listed(&env).is_empty());
    // A record whose number somebody else has now names nobody.
    let record = format!(
        r#"{{"run":"r","workspace":"project","branch":"s","pid":{},"pid_namespace":"{}",
            "started":{{"sec":1,"nsec":0}},"command":["sh"]}}"#,
        std::process::id(),
        fs::read_link("/proc/self/ns/pid").unwrap().display(),
    );
    fs::write(env.home().join("runs/r"), record).unwrap();
    let told = agentvfs(&env, &["run", "--stop", "s", "--force"]);
    assert!(
        told.status == 1 && told.err.contains("no run of that name is alive"),
        "{told:?}"
    );
    assert_eq!(listed(&env), Vec::<Vec<String>>::new());
    assert_eq!(env.home().join("runs").read_dir().unwrap().count(), 0);
}

#[test]
fn a_run_is_stopped_by_its_session() {
    let Some(env) = sandbox::env(&[]) else { return };
    let (one, two) = (mark(), mark());
    let first = Going::start(&env, "s", &one, "echo kept > kept");
    let second = Going::start(&env, "s", &two, "true");
    let told = agentvfs(&env, &["run", "--stop", "s"]);
    assert_eq!(told.ok().lines().count(), 2);
    for going in [first, second] {
        let told = going.finish(&env);
        assert_eq!(told.status, 143, "{told:?}");
    }
    assert_eq!(shell(&env, "cat kept"), "kept\n");
    let told = agentvfs(&env, &["run", "--stop", "s"]);
    assert!(
        told.status == 1 && told.err.contains("hint: agentvfs run --list"),
        "{told:?}"
    );
}

#[test]
fn a_run_that_does_not_want_to_end_is_killed_by_force() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "trap '' TERM");
    agentvfs(&env, &["run", "--stop", "s", "--force"]).ok();
    let told = going.finish(&env);
    assert_eq!(told.status, 137, "{told:?}");
    wait::until("all of it is gone", || {
        processes(&format!("600.{mark}")).is_empty()
    });
    assert_eq!(listed(&env), Vec::<Vec<String>>::new());
}

#[test]
fn a_stopped_run_is_ended_too() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "true");
    let run = Pid::from_child(&going.child);
    kill_process(run, Signal::STOP).unwrap();
    agentvfs(&env, &["run", "--stop", "s"]).ok();
    let told = going.finish(&env);
    assert_eq!(told.status, 143, "{told:?}");
}

#[test]
fn a_session_is_discarded_once_nobody_runs_in_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "echo x > new");
    let told = agentvfs(&env, &["run", "--discard", "s"]);
    assert!(
        told.status == 1 && told.err.contains("has not ended"),
        "{told:?}"
    );
    assert_eq!(branches(&env), ["main", "s"]);
    kill_process(going.command, Signal::TERM).unwrap();
    let told = going.finish(&env);
    let line = "discard   agentvfs run --discard s -w project";
    assert!(told.err.lines().any(|said| said == line), "{told:?}");
    let told = agentvfs(&env, &["run", "--discard", "s"]).ok();
    assert!(told.starts_with("name=s\ncommit="), "{told}");
    assert_eq!(branches(&env), ["main"]);
    for name in ["s", "main"] {
        let told = agentvfs(&env, &["run", "--discard", name]);
        assert_eq!(told.status, 1, "{told:?}");
    }
}

#[test]
fn what_lists_or_ends_runs_runs_nothing() {
    let Some(env) = sandbox::env(&[]) else { return };
    for args in [
        &["--list", "true"][..],
        &["--list", "--session", "s"],
        &["--stop", "s", "--discard", "s"],
        &["--stop", "s", "--net", "none"],
        &["--force", "true"],
        &["-z", "true"],
    ] {
        let told = run(&env, args);
        assert_eq!(
            (told.status, told.out.as_str()),
            (2, ""),
            "{args:?}: {told:?}"
        );
    }
}
