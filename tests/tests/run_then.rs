//! `agentvfs run`: what becomes of the branch afterwards, and what of it is applied only if it is trusted.
#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use tests::env::{Env, Told};
use tests::sandbox::{self, Going, run, shell};

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.project(), args))
}

fn apply(env: &Env, branch: &str, options: &[&str]) -> Told {
    let args = ["workspace", "apply", "-w", "project", "--branch", branch];
    agentvfs(env, &[&args, options].concat())
}

fn branches(env: &Env) -> Vec<String> {
    let told = agentvfs(env, &["branch", "list"]).ok();
    let names = told.lines().filter_map(|line| line.split('\t').next());
    names.map(str::to_owned).collect()
}

fn project(env: &Env, name: &str) -> Option<String> {
    fs::read_to_string(env.project().join(name)).ok()
}

/// A shell in session `s`, with what follows then.
fn then(env: &Env, what: &str, script: &str) -> Told {
    run(
        env,
        &["--session", "s", "--then", what, "--", "sh", "-c", script],
    )
}

#[track_caller]
fn refused(told: &Told, status: i32, path: &str) {
    let why = format!("run by themselves outside the sandbox: {path}");
    assert!(told.status == status && told.err.contains(&why), "{told:?}");
    assert!(told.err.contains("--trust"), "{told:?}");
}

#[test]
fn what_runs_by_itself_is_applied_only_if_it_is_trusted() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    shell(
        &env,
        "echo evil > .envrc; mkdir -p .git/hooks; echo x > .git/hooks/post-merge; echo mine > f",
    );
    refused(&apply(&env, "s", &[]), 1, ".envrc, .git/hooks/post-merge");
    assert_eq!(project(&env, "f").unwrap(), "base\n");
    let dry = apply(&env, "s", &["--dry-run"]);
    assert!(
        dry.err.contains(".envrc, .git/hooks/post-merge: would"),
        "{dry:?}"
    );
    assert!(dry.ok().contains("A\t.envrc\n"));
    assert_eq!(project(&env, ".envrc"), None);
    apply(&env, "s", &["--trust"]).ok();
    assert_eq!(project(&env, ".envrc").unwrap(), "evil\n");
    // What the user changes afterwards is the user's.
    fs::write(
        env.mountpoint().join(".agentvfs/branches/s/.envrc"),
        "mine\n",
    )
    .unwrap();
    apply(&env, "s", &[]).ok();
    assert_eq!(project(&env, ".envrc").unwrap(), "mine\n");
}

#[test]
fn a_run_that_changes_nothing_takes_no_trust_away() {
    let Some(env) = sandbox::env(&[]) else { return };
    fs::write(env.mountpoint().join(".envrc"), "mine\n").unwrap();
    run(&env, &["--session", "main", "true"]).ok();
    let missing = run(&env, &["--session", "main", "/no/such/program"]);
    assert_eq!(missing.status, 127, "{missing:?}");
    apply(&env, "main", &[]).ok();
    assert_eq!(project(&env, ".envrc").unwrap(), "mine\n");
}

#[test]
fn the_mark_outlives_a_killed_run_and_daemon_and_follows_a_merge() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = sandbox::mark();
    let going = Going::start(&env, "s", &mark, "echo evil > .envrc");
    kill_process(Pid::from_child(&going.child), Signal::KILL).unwrap();
    going.finish(&env);
    env.kill_daemon();
    agentvfs(&env, &["workspace", "start", "project"]).ok();
    refused(&apply(&env, "s", &[]), 1, ".envrc");
    agentvfs(&env, &["branch", "merge", "s", "--into", "main"]).ok();
    refused(&apply(&env, "main", &[]), 1, ".envrc");
    agentvfs(&env, &["branch", "create", "t"]).ok();
    refused(&apply(&env, "t", &[]), 1, ".envrc");
    assert_eq!(project(&env, ".envrc"), None);
}

#[test]
fn an_apply_during_a_run_does_not_trust_what_comes_after_it() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = sandbox::mark();
    let going = Going::start(&env, "s", &mark, "echo one > .envrc");
    apply(&env, "s", &["--trust"]).ok();
    fs::write(
        env.mountpoint().join(".agentvfs/branches/s/.envrc"),
        "two\n",
    )
    .unwrap();
    refused(&apply(&env, "s", &[]), 1, ".envrc");
    kill_process(going.command, Signal::TERM).unwrap();
    going.finish(&env);
}

#[test]
fn then_apply_writes_to_the_project() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let told = then(&env, "apply", "echo mine > f");
    assert!(told.err.contains("1 change applied to "), "{told:?}");
    told.ok();
    assert_eq!(project(&env, "f").unwrap(), "mine\n");
    assert_eq!(branches(&env), ["main", "s"]);
    // Nothing changed: there is nothing to apply.
    then(&env, "apply", "true").ok();
    let told = run(
        &env,
        &[
            "--then",
            "apply",
            "--quiet",
            "--",
            "sh",
            "-c",
            "echo new > g",
        ],
    );
    assert_eq!((told.status, told.err.as_str()), (0, ""));
    assert_eq!(project(&env, "g").unwrap(), "new\n");
}

#[test]
fn then_apply_changes_nothing_where_something_is_not_trusted_or_conflicts() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let told = then(&env, "apply", "echo evil > .envrc; echo new > g");
    refused(&told, 125, ".envrc");
    assert!(told.err.contains("the branch is kept"), "{told:?}");
    assert_eq!((project(&env, ".envrc"), project(&env, "g")), (None, None));
    assert_eq!(branches(&env), ["main", "s"]);
    apply(&env, "s", &["--trust"]).ok();
    fs::write(env.project().join("f"), "theirs\n").unwrap();
    let told = then(&env, "apply", "echo mine > f; echo newer > g");
    assert_eq!(told.status, 125, "{told:?}");
    assert!(
        told.err
            .contains("1 conflict (f); nothing was changed, the branch is kept"),
        "{told:?}"
    );
    assert_eq!(project(&env, "f").unwrap(), "theirs\n");
    assert_eq!(project(&env, "g").unwrap(), "new\n");
    assert_eq!(shell(&env, "cat f"), "mine\n");
}

#[test]
fn then_nothing_happens_if_the_command_fails() {
    let Some(env) = sandbox::env(&[]) else { return };
    for what in ["apply", "merge", "discard"] {
        let told = then(&env, what, "echo x >> new; exit 3");
        assert_eq!(told.status, 3, "{told:?}");
        assert!(
            told.err.contains("branch s is kept: the command failed"),
            "{told:?}"
        );
        assert_eq!(project(&env, "new"), None);
        assert_eq!(branches(&env), ["main", "s"]);
    }
    assert!(!env.mountpoint().join("new").exists());
}

#[test]
fn then_merge_goes_to_the_branch_that_it_was_made_of() {
    let Some(env) = sandbox::env(&[]) else { return };
    agentvfs(&env, &["branch", "create", "parent"]).ok();
    let mut command = sandbox::command(&env, &["--session", "s", "--", "sh", "-c", "echo x > new"]);
    command.env("AGENTVFS_BRANCH", "parent");
    env.told(command).ok();
    let told = then(&env, "merge", "echo y > newer");
    assert!(
        told.err.contains("branch s was merged into parent"),
        "{told:?}"
    );
    told.ok();
    let parent = env.mountpoint().join(".agentvfs/branches/parent");
    assert_eq!(fs::read_to_string(parent.join("new")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(parent.join("newer")).unwrap(), "y\n");
    assert!(!env.mountpoint().join("new").exists());
    // With conflicts nothing is merged.
    fs::write(parent.join("new"), "theirs\n").unwrap();
    let told = then(&env, "merge", "echo mine > new");
    assert!(
        told.status == 125 && told.err.contains("1 conflict (new)"),
        "{told:?}"
    );
    assert_eq!(fs::read_to_string(parent.join("new")).unwrap(), "theirs\n");
}

#[test]
fn then_discard_deletes_the_branch() {
    let Some(env) = sandbox::env(&[]) else { return };
    let told = then(&env, "discard", "echo x > new");
    assert!(told.err.contains("branch s was deleted"), "{told:?}");
    assert!(!told.err.contains("review "), "{told:?}");
    told.ok();
    run(
        &env,
        &["--then", "discard", "--", "sh", "-c", "echo x > new"],
    )
    .ok();
    assert_eq!(branches(&env), ["main"]);
}

#[test]
fn what_cannot_be_done_then_is_found_before_the_command_runs() {
    let Some(env) = sandbox::env(&[]) else { return };
    for what in ["merge", "discard"] {
        let told = run(&env, &["--session", "main", "--then", what, "touch", "ran"]);
        assert_eq!(told.status, 2, "{told:?}");
    }
    agentvfs(&env, &["branch", "create", "s"]).ok();
    let told = then(&env, "merge", "touch ran");
    assert!(
        told.status == 125 && told.err.contains("it is not known"),
        "{told:?}"
    );
    assert!(!env.mountpoint().join(".agentvfs/branches/s/ran").exists());
    assert!(!env.mountpoint().join("ran").exists());
}

#[test]
fn then_the_last_run_of_a_session_decides() {
    let Some(env) = sandbox::env(&[]) else { return };
    let mark = sandbox::mark();
    let going = Going::start(&env, "s", &mark, "echo x > new");
    for what in ["apply", "merge", "discard"] {
        let told = then(&env, what, "true");
        assert!(told.err.contains("branch s is kept: run "), "{told:?}");
        told.ok();
    }
    assert_eq!(project(&env, "new"), None);
    kill_process(going.command, Signal::TERM).unwrap();
    going.finish(&env);
    then(&env, "apply", "true").ok();
    assert_eq!(project(&env, "new").unwrap(), "x\n");
}
