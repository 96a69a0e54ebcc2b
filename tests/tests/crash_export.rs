//! Exports and imports that are killed in the middle leave nothing, or all of it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;
use tests::env::{Env, Told};
use tests::rng::{self, Rng};
use tests::{database, wait};

const ROUNDS: u64 = 8;

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn begin(env: &Env, args: &[&str]) -> Child {
    let mut command = env.command(&env.path(""), args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// A project that takes some tenths of a second to export.
fn project(env: &Env) {
    let mut rng = Rng::new(rng::seed());
    for i in 0..600 {
        let dir = env.project().join(format!("d{}", i % 20));
        fs::create_dir_all(&dir).unwrap();
        let bytes = rng.bytes(16 << 10);
        fs::write(dir.join(format!("f{i}")), bytes).unwrap();
    }
    env.start();
    env.imported();
}

/// Lets the command run for a while, up to its end, then kills the daemon.
fn kill_in_the_middle(env: &Env, mut child: Child, round: u64) {
    wait::let_run(Duration::from_millis(round * 25));
    env.kill_daemon();
    // Told that the daemon is gone, or that all is done.
    wait::until("the command ends", || child.try_wait().unwrap().is_some());
}

#[test]
fn killed_export_leaves_no_file_or_a_whole_one() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let file = env.path("to/x.db");
    fs::create_dir(env.path("to")).unwrap();
    for round in 0..ROUNDS {
        let child = begin(&env, &["export", "project", "to/x.db"]);
        kill_in_the_middle(&env, child, round);
        if file.exists() {
            database::check(&file);
            fs::remove_file(&file).unwrap();
        }
    }
    run(&env, &["export", "project", "to/x.db"]).ok();
    database::check(&file);
    let left = fs::read_dir(env.path("to")).unwrap().count();
    assert_eq!(
        left, 1,
        "what killed exports left is taken away by the next one"
    );
}

#[test]
fn killed_import_leaves_no_workspace_or_a_whole_one() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let wanted = tests::tree::of(&env.mountpoint());
    run(&env, &["export", "project", "x.db"]).ok();
    for round in 0..ROUNDS {
        let name = format!("copy{round}");
        let child = begin(&env, &["import", "x.db", "--workspace", &name]);
        kill_in_the_middle(&env, child, round);
        let list = env.workspace(&["list"]).ok();
        if list.lines().any(|row| row.starts_with(&name)) {
            env.workspace(&["start", &name]).ok();
            let copy = env.home().join("mnt").join(&name);
            tests::tree::same("the copy", &wanted, &tests::tree::of(&copy));
            env.workspace(&["stop", &name]).ok();
            env.workspace(&["delete", &name, "--yes"]).ok();
        }
        assert!(
            !env.home().join("workspaces").join(&name).exists(),
            "{name} is left"
        );
    }
    run(&env, &["import", "x.db", "--workspace", "whole"]).ok();
    assert_eq!(run(&env, &["fsck"]).status, 0);
}
