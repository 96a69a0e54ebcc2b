//! An agent destroys everything and nobody had made a checkpoint: automatic commits bring it back.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::{tree, wait};

/// The commits of the workspace that were made automatically, the newest first.
fn automatic(env: &Env) -> Vec<Value> {
    let log = env.workspace(&["log", "project", "--all", "--json"]).ok();
    let log: Value = serde_json::from_str(&log).unwrap();
    let all = log["commits"].as_array().unwrap().clone();
    let auto = |c: &Value| c["kind"] == "auto" && !c["commit"].is_null();
    all.into_iter().filter(auto).collect()
}

fn project(env: &Env) {
    let src = env.project().join("src/deep");
    fs::create_dir_all(&src).unwrap();
    for i in 0..40 {
        fs::write(src.join(format!("file{i}")), format!("content {i}\n")).unwrap();
    }
    fs::write(env.project().join(".hidden"), "not in git").unwrap();
}

fn work(mount: &Path) {
    fs::write(mount.join("new"), vec![7; 300_000]).unwrap();
    fs::write(mount.join("src/deep/file3"), "changed").unwrap();
    std::os::unix::fs::symlink("new", mount.join("link")).unwrap();
    fs::hard_link(mount.join("new"), mount.join("src/second")).unwrap();
}

/// As `rm -rf` does with everything in the mount.
fn remove_all(mount: &Path) {
    for entry in fs::read_dir(mount).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(fs::read_dir(mount).unwrap().count(), 0);
}

#[test]
fn everything_comes_back_after_rm_rf_though_nobody_made_a_checkpoint() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let set = ["config", "auto-idle=300ms", "auto-busy=1s"];
    let told = env.told(env.command(&env.path(""), &set)).ok();
    assert_eq!(told, "auto-idle=300ms\nauto-busy=1s\n");
    let mount = env.start();
    env.imported();
    work(&mount);
    let before = tree::of(&mount);
    wait::until("the work is kept", || !automatic(&env).is_empty());
    let kept = automatic(&env).len();
    remove_all(&mount);
    wait::until("the empty tree is kept too", || {
        automatic(&env).len() > kept
    });
    let newest = automatic(&env)[0]["time"].as_str().unwrap().to_owned();
    env.workspace(&["rollback", "project", "--before", &newest])
        .id();
    assert_eq!(tree::of(&mount), before);
    let asked = env.workspace(&["log", "project"]).ok();
    assert_eq!(
        asked.lines().count(),
        2,
        "chosen ones count as asked for:\n{asked}"
    );
    env.workspace(&["undo", "project"]).ok();
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 0);
    env.workspace(&["stop", "project"]).ok();
}

/// With the intervals that everybody has. `AGENTVFS_NOTICED_SECONDS` says after how long the loss is noticed: 55 is
/// what the README speaks of; without it that is as soon as the empty tree is in a commit of its own.
#[test]
fn what_was_lost_a_while_ago_comes_back_by_rollback_before_that() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mount = env.start();
    env.imported();
    work(&mount);
    let before = tree::of(&mount);
    wait::until("the work is kept", || !automatic(&env).is_empty());
    let kept = automatic(&env).len();
    // A time that is given in seconds is as exact as a second.
    wait::let_run(Duration::from_secs(2));
    let lost = Instant::now();
    remove_all(&mount);
    wait::until("the empty tree is kept too", || {
        automatic(&env).len() > kept
    });
    let noticed = std::env::var("AGENTVFS_NOTICED_SECONDS").map_or(0, |s| s.parse().unwrap());
    wait::let_run(Duration::from_secs(noticed).saturating_sub(lost.elapsed()));
    let ago = format!("{}s", lost.elapsed().as_secs() + 1);
    env.workspace(&["rollback", "project", "--before", &ago])
        .id();
    assert_eq!(tree::of(&mount), before);
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn settings_are_shown_checked_and_kept() {
    let Some(env) = Env::new() else { return };
    let config = |args: &[&str]| {
        let args: Vec<&str> = ["config"].iter().chain(args).copied().collect();
        env.told(env.command(&env.path(""), &args))
    };
    let all = config(&[]).ok();
    assert!(
        all.contains("auto-idle=10s\n") && all.contains("quota=none\n"),
        "{all}"
    );
    config(&["quota=1K"]).fails(2, "too small");
    config(&["keep=1h"]).fails(2, "no setting");
    assert_eq!(config(&["quota=2G", "gc"]).ok(), "quota=2G\ngc=auto\n");
    env.kill_daemon();
    assert_eq!(config(&["quota"]).ok(), "quota=2G\n");
}
