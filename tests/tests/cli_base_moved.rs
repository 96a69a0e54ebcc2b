//! A project that is moved, replaced or gone: nothing is written where nobody looks, and what was imported
//! stays at hand.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use tests::env::{Env, Told};
use tests::tree;

fn project(env: &Env) {
    fs::create_dir_all(env.project().join("src")).unwrap();
    fs::write(env.project().join("text"), "text\n").unwrap();
    fs::write(env.project().join("src/main.rs"), "fn main() {}\n").unwrap();
}

/// `mv project project.old; cp -a project.old project`.
fn replace(env: &Env) {
    let old = env.path("project.old");
    fs::rename(env.project(), &old).unwrap();
    let mut copy = env.program("cp");
    copy.arg("-a").arg(&old).arg(env.project());
    env.told(copy).ok();
}

#[track_caller]
fn names(told: Told, paths: &[&Path]) {
    for path in paths {
        let path = path.display().to_string();
        assert!(told.err.contains(&path), "no {path} in {told:?}");
    }
    told.fails(1, "");
}

#[test]
fn apply_update_and_start_refuse_a_project_that_was_moved_away() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    fs::write(root.join("text"), "agent\n").unwrap();
    replace(&env);
    let old = env.path("project.old");
    let before = (tree::of(&old), tree::of(&env.project()));
    let both = [env.project(), old.clone()];
    let both: Vec<&Path> = both.iter().map(|path| path.as_path()).collect();
    for verb in ["apply", "update", "start"] {
        names(env.workspace(&[verb, "project"]), &both);
    }
    names(env.workspace(&["apply", "project", "--dry-run"]), &both);
    tree::same("the old one", &before.0, &tree::of(&old));
    tree::same("the new one", &before.1, &tree::of(&env.project()));
    fs::remove_dir_all(env.project()).unwrap();
    fs::rename(&old, env.project()).unwrap();
    env.workspace(&["start", "project"]).ok();
    env.workspace(&["apply", "project"]).ok();
    assert_eq!(fs::read(env.project().join("text")).unwrap(), b"agent\n");
}

#[test]
fn apply_goes_below_the_mount_that_covers_the_project() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let place = env.project();
    env.workspace(&["start", "--from", "project", "--mount", "project"])
        .ok();
    env.imported();
    fs::write(place.join("text"), "agent\n").unwrap();
    env.workspace(&["start", "project"]).ok();
    env.workspace(&["apply", "project"]).ok();
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(fs::read(place.join("text")).unwrap(), b"agent\n");
}

#[test]
fn another_directory_at_the_path_is_taken_only_when_it_is_named() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    fs::write(root.join("text"), "agent\n").unwrap();
    env.workspace(&["apply", "project"]).ok();
    env.workspace(&["stop", "project"]).ok();
    replace(&env);
    fs::write(env.project().join("text"), "text\n").unwrap();
    for args in [&["start", "project"][..], &["start", "--from", "project"]] {
        env.workspace(args).fails(1, "is no longer the directory");
    }
    env.workspace(&["start", "project", "--from", "project"])
        .ok();
    env.workspace(&["update", "project"]).ok();
    assert_eq!(fs::read(root.join("text")).unwrap(), b"agent\n");
}

#[test]
fn a_workspace_whose_project_is_gone_opens_and_is_bound_anew() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    fs::write(root.join("text"), "agent\n").unwrap();
    env.workspace(&["stop", "project"]).ok();
    let (gone, moved) = (env.project(), env.path("moved"));
    fs::rename(&gone, &moved).unwrap();
    // Stopped, it can be looked into.
    let diff = env.workspace(&["diff", "project", "--base", "--name-status"]);
    assert_eq!(diff.ok(), "M\ttext\n");
    // A name that only follows from the directory's says too little.
    fs::create_dir(env.path("elsewhere")).unwrap();
    fs::create_dir(env.path("elsewhere/project")).unwrap();
    env.workspace(&["start", "--from", "elsewhere/project"])
        .fails(1, "already exists");
    let told = env.workspace(&["start", "project"]);
    let said = told.err.contains("is gone") && told.err.contains("all of it was imported");
    assert!(said, "{told:?}");
    told.ok();
    assert_eq!(fs::read(root.join("text")).unwrap(), b"agent\n");
    assert_eq!(
        fs::read(root.join("src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
    env.workspace(&["checkpoint", "project", "still"]).id();
    env.workspace(&["apply", "project"]).fails(1, "is gone");
    // It runs, so it keeps what it has.
    let anew = ["start", "project", "--from", "moved"];
    env.workspace(&anew).fails(1, "already exists");
    env.workspace(&["stop", "project"]).ok();
    env.workspace(&anew).ok();
    env.workspace(&["apply", "project"]).ok();
    assert_eq!(fs::read(moved.join("text")).unwrap(), b"agent\n");
    env.workspace(&["stop", "project"]).ok();
    // That one is there.
    fs::create_dir(env.path("third")).unwrap();
    env.workspace(&["start", "project", "--from", "third"])
        .fails(1, "already exists");
}

#[test]
fn what_was_not_imported_is_named_and_a_stop_does_not_wait_for_it() {
    let Some(env) = Env::new() else { return };
    project(&env);
    // Nothing is imported: there is too little room for all of it.
    let large = fs::File::create(env.project().join("large")).unwrap();
    large.set_len(80 << 20).unwrap();
    env.told(env.command(&env.path("."), &["config", "quota=64M"]))
        .ok();
    env.workspace(&["start", "--from", "project"]).ok();
    tests::wait::until("the project's directories are read", || {
        let told = env.workspace(&["status", "project", "--json"]).ok();
        let status: Value = serde_json::from_str(&told).unwrap();
        status["import"]["state"] == "paused"
    });
    env.kill_daemon();
    let gone = env.project();
    fs::rename(&gone, env.path("moved")).unwrap();
    let told = env.workspace(&["start", "project"]);
    for what in ["is gone", "src/main.rs", "text"] {
        assert!(told.err.contains(what), "no {what:?} in {told:?}");
    }
    told.ok();
    let told = env.workspace(&["status", "project", "--json"]);
    let status: Value = serde_json::from_str(&told.out).unwrap();
    let paths = status["not_imported"].as_array().unwrap().clone();
    let paths: Vec<&str> = paths.iter().map(|p| p["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["large", "src/main.rs", "text"]);
    let stopped = env.workspace(&["stop", "project"]).ok();
    assert!(stopped.contains("checkpoint=pending\n"), "{stopped}");
    let config = env.command(&env.path("."), &["config", "quota=none"]);
    env.told(config).ok();
    env.workspace(&["start", "project", "--from", "moved"]).ok();
    env.imported();
    let root = env.mountpoint();
    assert_eq!(fs::read(root.join("text")).unwrap(), b"text\n");
}

#[test]
fn files_changed_is_what_a_diff_lists() {
    let Some(env) = Env::new() else { return };
    project(&env);
    for i in 0..50 {
        fs::write(env.project().join(format!("src/{i}")), "x\n").unwrap();
    }
    let root = env.start();
    env.workspace(&["checkpoint", "project", "all"]).id();
    fs::remove_dir_all(root.join("src")).unwrap();
    let number = |args: &[&str]| {
        let told = env.workspace(args).ok();
        let answer: Value = serde_json::from_str(&told).unwrap();
        answer["files_changed"].as_u64().unwrap()
    };
    let rows = env.workspace(&["diff", "project", "--name-status"]).ok();
    assert_eq!(rows.lines().count(), 51);
    assert_eq!(number(&["rollback", "project", "all", "--json"]), 51);
    assert_eq!(number(&["undo", "project", "--json"]), 51);
    let restore = ["restore", "-w", "project", "--ref", "all", "src", "--json"];
    assert_eq!(number(&restore), 51);
}
