//! `agentvfs run`: signals, sudden ends, and runs beside each other.
#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use tests::env::Env;
use tests::sandbox::{self, Going, mark, processes, run, shell};
use tests::{mount, wait};

fn view(env: &Env, branch: &str, name: &str) -> std::path::PathBuf {
    env.mountpoint()
        .join(".agentvfs/branches")
        .join(branch)
        .join(name)
}

#[track_caller]
fn gone(mark: &str) {
    wait::until("all of it is gone", || {
        processes(&format!("600.{mark}")).is_empty()
    });
}

/// A run that wrote something and waits.
fn going(env: &Env, mark: &str) -> Going {
    Going::start(env, "s", mark, "echo kept > kept")
}

/// Kills one process of a run; what it wrote must be kept, and nothing of it may be left.
#[track_caller]
fn killed(which: impl Fn(&Going) -> Pid, status: i32) {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = going(&env, &mark);
    let mounts = mount::below(&env.path(""));
    kill_process(which(&going), Signal::KILL).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, status, "{told:?}");
    gone(&mark);
    assert_eq!(mount::below(&env.path("")), mounts);
    assert_eq!(
        fs::read_to_string(view(&env, "s", "kept")).unwrap(),
        "kept\n"
    );
    assert_eq!(shell(&env, "cat kept"), "kept\n");
}

#[test]
fn a_killed_command_ends_the_run() {
    killed(|going| going.command, 137);
}

#[test]
fn a_killed_run_ends_the_command() {
    let run = |going: &Going| Pid::from_child(&going.child);
    // No status: the test's own child was killed.
    killed(run, -1);
}

#[test]
fn a_killed_process_1_ends_both() {
    killed(Going::init, 125);
}

#[test]
fn what_the_command_leaves_running_ends_with_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    shell(
        &env,
        &format!("(setsid sleep 600.{mark} >/dev/null 2>&1 &); true"),
    );
    gone(&mark);
}

#[test]
fn a_request_to_end_reaches_the_command_once() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let script = "trap 'echo caught >> caught' TERM";
    let going = Going::start(&env, "s", &mark, script);
    let run = Pid::from_child(&going.child);
    kill_process(run, Signal::TERM).unwrap();
    let told = going.finish(&env);
    // The shell has become `sleep`, which has no handler.
    assert_eq!(told.status, 143, "{told:?}");
    gone(&mark);
}

#[test]
fn the_second_request_to_end_is_obeyed() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "trap '' TERM");
    let run = Pid::from_child(&going.child);
    kill_process(run, Signal::TERM).unwrap();
    kill_process(run, Signal::TERM).unwrap();
    // Two signals that come together are one: a third is harmless.
    let mut going = going;
    wait::until("the run ends", || {
        let _ = kill_process(run, Signal::TERM);
        going.child.try_wait().unwrap().is_some()
    });
    gone(&mark);
}

#[test]
fn a_command_whose_time_has_run_out_is_asked_to_end() {
    let Some(env) = sandbox::env(&[]) else { return };
    let script = "trap 'echo asked > asked; exit 3' TERM; while :; do sleep 0.1; done";
    let told = run(
        &env,
        &["--session", "s", "--time", "1s", "--", "sh", "-c", script],
    );
    let said = "its time had run out";
    assert!(told.status == 124 && told.err.contains(said), "{told:?}");
    assert_eq!(
        fs::read_to_string(view(&env, "s", "asked")).unwrap(),
        "asked\n"
    );
    // What ends in time is as without a limit.
    let told = run(
        &env,
        &[
            "--session",
            "s",
            "--time",
            "10m",
            "--",
            "sh",
            "-c",
            "exit 3",
        ],
    );
    assert_eq!(told.status, 3, "{told:?}");
}

#[test]
fn a_command_that_goes_on_beyond_its_time_is_killed_with_all_that_it_started() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let script = format!("trap '' TERM; sleep 600.{mark} & echo kept > kept; sleep 600.{mark}");
    let told = run(
        &env,
        &[
            "--session",
            "s",
            "--time",
            "500ms",
            "--",
            "sh",
            "-c",
            &script,
        ],
    );
    let said = "its time had run out";
    assert!(told.status == 124 && told.err.contains(said), "{told:?}");
    gone(&mark);
    assert_eq!(
        fs::read_to_string(view(&env, "s", "kept")).unwrap(),
        "kept\n"
    );
}

#[test]
fn an_interrupt_from_the_terminal_is_the_commands() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    // A terminal sends it to all; the run goes on until the command has ended.
    kill_process(Pid::from_child(&going.child), Signal::INT).unwrap();
    kill_process(going.command, Signal::INT).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, 130, "{told:?}");
    assert!(told.err.contains("was ended by signal 2"), "{told:?}");
}

#[test]
fn a_stopped_command_stops_the_run_and_both_continue() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    let run = Pid::from_child(&going.child);
    let state = |pid: Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    kill_process(going.command, Signal::STOP).unwrap();
    wait::until("the run is stopped", || state(run) == 'T');
    kill_process(run, Signal::CONT).unwrap();
    wait::until("both go on", || {
        state(run) != 'T' && state(going.command) != 'T'
    });
    kill_process(going.command, Signal::TERM).unwrap();
    assert_eq!(going.finish(&env).status, 143);
}

#[test]
fn a_branch_and_workspace_in_use_stay() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    let told = env.told(env.command(&env.project(), &["branch", "delete", "s"]));
    assert!(
        told.status == 1 && told.err.contains("is used by"),
        "{told:?}"
    );
    let told = env.workspace(&["stop", "project"]);
    assert!(
        told.status == 1 && told.err.contains("processes use it"),
        "{told:?}"
    );
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
    env.told(env.command(&env.project(), &["branch", "delete", "s"]))
        .ok();
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn another_workspace_can_be_stopped_meanwhile() {
    let Some(env) = sandbox::env(&[]) else { return };
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "");
    env.workspace(&["stop", "other"]).ok();
    env.workspace(&["start", "other"]).ok();
    kill_process(going.command, Signal::KILL).unwrap();
    going.finish(&env);
    env.workspace(&["stop", "other"]).ok();
}

#[test]
fn eight_runs_share_a_session() {
    let Some(env) = sandbox::env(&[]) else { return };
    let all: Vec<_> = (0..8)
        .map(|n| {
            let script = format!("for i in $(seq 50); do echo {n} >> all; done; echo {n} > own-{n}; echo {n} > /tmp/own; cat /tmp/own");
            let mut command = sandbox::command(&env, &["--session", "s", "sh", "-c", &script]);
            let piped = std::process::Stdio::piped;
            command.stdout(piped()).stderr(piped()).spawn().unwrap()
        })
        .collect();
    for (n, child) in all.into_iter().enumerate() {
        assert_eq!(env.finish(child, "a run").ok(), format!("{n}\n"));
    }
    let text = fs::read_to_string(view(&env, "s", "all")).unwrap();
    for n in 0..8 {
        let lines = text.lines().filter(|line| *line == n.to_string());
        assert_eq!(lines.count(), 50, "{n}");
        assert_eq!(
            fs::read_to_string(view(&env, "s", &format!("own-{n}"))).unwrap(),
            format!("{n}\n")
        );
    }
}

#[test]
fn the_daemons_death_loses_nothing_that_was_written() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = mark();
    let going = Going::start(&env, "s", &mark, "echo kept > kept");
    env.kill_daemon();
    kill_process(going.command, Signal::KILL).unwrap();
    let told = going.finish(&env);
    assert_eq!(told.status, 137, "{told:?}");
    assert_eq!(shell(&env, "cat kept"), "kept\n");
    assert_eq!(run(&env, &["true"]).status, 0);
}
