//! The main job as a user does it: start, work, checkpoint, go back, stop, start again, with nothing
//! typed that could be known.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use tests::env::Env;
use tests::{mount, tree};

fn small_project(env: &Env) {
    let project = env.project();
    fs::create_dir_all(project.join("src/deep")).unwrap();
    fs::write(project.join("README"), "a project\n").unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("src/deep/lib.rs"), "pub fn x() {}\n").unwrap();
    std::os::unix::fs::symlink("src/main.rs", project.join("link")).unwrap();
}

/// Changes of every kind that `diff` names.
fn change_all_sorts(root: &Path) {
    fs::write(root.join("README"), "another text\n").unwrap();
    fs::remove_file(root.join("src/main.rs")).unwrap();
    fs::create_dir(root.join("new")).unwrap();
    fs::write(root.join("new/file"), vec![7; 300_000]).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    fs::create_dir(root.join("link")).unwrap();
}

fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split('\t').collect())
        .collect()
}

#[test]
fn three_commands_work_as_they_stand() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let base = tree::of(&env.project());
    env.workspace(&["start", "--from", "project"]).ok();
    let root = env.mountpoint();
    let shown = tree::of(&root);
    tree::same("the mount shows the project", &base, &shown);
    env.workspace(&["checkpoint", "before-refactor"]).id();
    change_all_sorts(&root);
    let changed = tree::of(&root);
    env.workspace(&["rollback"]).id();
    tree::same("rollback", &shown, &tree::of(&root));
    env.workspace(&["undo"]).id_or_pending();
    tree::same("undo", &changed, &tree::of(&root));
    env.workspace(&["redo"]).id_or_pending();
    tree::same("redo", &shown, &tree::of(&root));
    tree::same("the base is untouched", &base, &tree::of(&env.project()));
}

#[test]
fn diff_and_log_tell_what_happened() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    let id = env
        .workspace(&["checkpoint", "one", "--meta", "turn=1"])
        .id();
    assert_eq!(env.workspace(&["diff", "--name-status"]).ok(), "");
    change_all_sorts(&root);
    let diff = env.workspace(&["diff", "--name-status"]).ok();
    let mut found = rows(&diff);
    found.sort();
    let wanted = [
        ["A", "new"],
        ["A", "new/file"],
        ["D", "src/main.rs"],
        ["M", "README"],
        ["T", "link"],
    ];
    let wanted: Vec<Vec<&str>> = wanted.iter().map(|row| row.to_vec()).collect();
    let files: Vec<Vec<&str>> = wanted.iter().filter(|r| r[1] != "new").cloned().collect();
    assert!(found == wanted || found == files, "{diff}");
    let two = env
        .workspace(&[
            "checkpoint",
            "two",
            "--message",
            "all sorts",
            "--meta",
            "turn=2",
        ])
        .id();
    env.workspace(&["rollback", "--meta", "turn=1"]).id();
    let log = env.workspace(&["log"]).ok();
    let log = rows(&log);
    assert_eq!(
        (log[0][0], log[0][2], log[0][3]),
        (&*two, "two", "all sorts")
    );
    assert_eq!((log[1][0], log[1][2]), (&*id, "one"));
    assert!(
        log.iter().all(|row| row.len() == 4 && row[0].len() == 64),
        "{log:?}"
    );
    let between = env.workspace(&["diff", "one", "two"]).ok();
    assert_eq!(rows(&between).len(), rows(&diff).len());
    assert_eq!(env.workspace(&["diff", "one"]).ok(), "");
}

#[test]
fn workspace_is_inferred_from_the_current_directory() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    fs::create_dir(env.path("other")).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    env.workspace(&["checkpoint", "x"])
        .fails(1, "other, project");
    for directory in [env.project().join("src"), root.join("src/deep")] {
        let label = env.workspace_in(&directory, &["checkpoint", "here"]);
        let id = label.id();
        let log = env.workspace(&["log", "project"]).ok();
        assert!(
            log.contains(&format!("{id}\t")) && log.contains("\there\t"),
            "{log}"
        );
    }
    assert!(!env.workspace(&["log", "other"]).ok().contains("here"));
    env.workspace(&["checkpoint", "other", "mine"]).id();
    assert!(env.workspace(&["log", "-w", "other"]).ok().contains("mine"));
}

#[test]
fn everything_is_there_after_stop_and_start() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    let id = env.workspace(&["checkpoint", "good"]).id();
    let good = tree::of(&root);
    change_all_sorts(&root);
    let unsaved = tree::of(&root);
    let stopped = env.workspace(&["stop"]).ok();
    assert!(stopped.contains("status=stopped\n"), "{stopped}");
    assert!(mount::below(env.home()).is_empty());
    assert_eq!(env.workspace(&["status", "project"]).status, 1);
    env.workspace(&["start"])
        .fails(1, "existing workspaces: project");
    env.workspace(&["start", "project"]).ok();
    tree::same("work that was not checkpointed", &unsaved, &tree::of(&root));
    assert_eq!(env.workspace(&["rollback", "good"]).id(), id);
    tree::same("rollback after a restart", &good, &tree::of(&root));
    env.workspace(&["undo"]).id_or_pending();
    tree::same("undo after a restart", &unsaved, &tree::of(&root));
}

#[test]
fn rollback_by_time_finds_what_nobody_checkpointed() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    env.imported();
    let start = tree::of(&root);
    fs::write(root.join("README"), "one\n").unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    env.workspace(&["rollback", "--before", "1h"])
        .fails(1, "no commit");
    let time = env.workspace(&["log", "--json"]).ok();
    let log: serde_json::Value = serde_json::from_str(&time).unwrap();
    let first = log["commits"].as_array().unwrap().last().unwrap();
    assert_eq!(first["kind"], "start");
    let id = first["commit"].as_str().unwrap();
    env.workspace(&["rollback", &id[..12]]).id();
    tree::same("rollback to a prefix", &start, &tree::of(&root));
}

#[test]
fn dry_run_lists_changes_and_holders_and_changes_nothing() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    change_all_sorts(&root);
    let changed = tree::of(&root);
    let held = fs::File::open(root.join("new/file")).unwrap();
    let told = env.workspace(&["rollback", "--dry-run"]);
    assert!(
        told.err
            .contains(&format!("by process {}", std::process::id())),
        "{told:?}"
    );
    let out = told.ok();
    assert!(
        out.contains("D\tnew/file\n") && out.contains("A\tsrc/main.rs\n"),
        "{out}"
    );
    drop(held);
    tree::same("dry run", &changed, &tree::of(&root));
    assert_eq!(env.workspace(&["undo"]).status, 1);
}

#[test]
fn project_may_be_covered_by_its_own_mount() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let base = tree::of(&env.project());
    env.workspace(&["start", "--from", "project", "--mount", "project"])
        .ok();
    let root = env.project();
    env.workspace_in(&root, &["checkpoint", "one"]).id();
    change_all_sorts(&root);
    env.workspace_in(&root, &["rollback"]).id();
    tree::same("rollback", &base, &tree::of(&root));
    change_all_sorts(&root);
    env.workspace(&["stop"]).ok();
    tree::same("the base is untouched", &base, &tree::of(&root));
}

#[test]
fn checkpoint_of_nothing_new_is_the_head() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let root = env.start();
    let one = env.workspace(&["checkpoint", "one"]).id();
    assert_eq!(env.workspace(&["checkpoint", "two"]).id(), one);
    fs::write(root.join("README"), "x").unwrap();
    let three = env.workspace(&["checkpoint", "one"]).id();
    assert_ne!(three, one);
    assert_eq!(env.workspace(&["rollback", "two"]).id(), one);
    assert_eq!(env.workspace(&["rollback", "one"]).id(), three);
}

#[test]
fn deleted_workspace_leaves_the_project_alone() {
    let Some(env) = Env::new() else { return };
    small_project(&env);
    let base = tree::of(&env.project());
    let root = env.start();
    change_all_sorts(&root);
    env.workspace(&["delete", "project", "--yes"])
        .fails(1, "running");
    env.workspace(&["stop", "project", "--no-checkpoint"]).ok();
    env.workspace(&["delete", "project", "--yes"]).ok();
    assert_eq!(env.workspace(&["list"]).ok(), "");
    tree::same("the base is untouched", &base, &tree::of(&env.project()));
    let root = env.start();
    tree::same("a new beginning", &base, &tree::of(&root));
}

#[test]
fn the_first_checkpoint_waits_for_the_import_unless_told_not_to() {
    let Some(env) = Env::new() else { return };
    for n in 0..3_000 {
        fs::write(env.project().join(format!("file{n}")), format!("{n}\n")).unwrap();
    }
    let root = env.start();
    env.workspace(&["checkpoint", "--no-wait", "at-once"])
        .id_or_pending();
    fs::write(root.join("file1"), "changed\n").unwrap();
    env.workspace(&["checkpoint", "waited"]).id();
    assert_eq!(env.status()["import"]["state"], "done");
    env.workspace(&["rollback", "at-once"]).id_or_pending();
    assert_eq!(fs::read(root.join("file1")).unwrap(), b"1\n");
}
