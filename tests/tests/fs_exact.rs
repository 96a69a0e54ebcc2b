//! Going back is exact: everything that a commit promises, on a tree that has all of it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tests::env::Env;
use tests::everything::{one_of_everything, set_times};
use tests::{mount, tree};

/// Spoils everything: what is there is changed in place, replaced, renamed or removed.
fn spoil(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path).unwrap();
        } else if path.is_file() && path.ends_with("large") {
            fs::write(&path, "small").unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
    fs::create_dir(root.join("script")).unwrap();
    fs::write(root.join("soft"), "a file now").unwrap();
    fs::write(root.join("sticky"), "a file now").unwrap();
}

/// Changes attributes alone, in place.
fn touch_everything(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        set_times(&path, 77, 7);
        if !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
        }
    }
    rustix::fs::lremovexattr(root.join("script"), "user.binary").unwrap();
    rustix::fs::lremovexattr(root.join("sticky"), "system.posix_acl_default").unwrap();
    fs::remove_file(root.join("empty/hard-2")).unwrap();
    fs::write(root.join("hard-1"), "changed by one of its names").unwrap();
}

#[test]
fn rollback_of_files_made_in_the_mount_is_exact() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    one_of_everything(&root);
    let wanted = tree::of(&root);
    assert_eq!(wanted[&b"hard-3"[..]].group, b"empty/hard-2");
    assert!(wanted[&b"sparse"[..]].data.len() > 1, "holes are seen");
    env.workspace(&["checkpoint", "all"]).id();
    tree::same("a checkpoint changes nothing", &wanted, &tree::of(&root));
    for change in [spoil, touch_everything] {
        change(&root);
        let changed = tree::of(&root);
        env.workspace(&["rollback", "all"]).id();
        tree::same("rollback", &wanted, &tree::of(&root));
        env.workspace(&["undo"]).id_or_pending();
        tree::same("undo", &changed, &tree::of(&root));
        env.workspace(&["redo"]).id_or_pending();
        tree::same("redo", &wanted, &tree::of(&root));
    }
}

#[test]
fn rollback_of_files_of_the_base_is_exact() {
    let Some(env) = Env::new() else { return };
    one_of_everything(&env.project());
    let base = tree::of(&env.project());
    let root = env.start();
    tree::same("the mount shows the base", &base, &tree::of(&root));
    env.workspace(&["checkpoint", "all"]).id();
    for change in [touch_everything, spoil] {
        change(&root);
        env.workspace(&["rollback"]).id();
        tree::same("rollback", &base, &tree::of(&root));
    }
    tree::same("the base is untouched", &base, &tree::of(&env.project()));
}

#[test]
fn everything_is_exact_after_a_restart_and_after_a_kill() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    one_of_everything(&root);
    let wanted = tree::of(&root);
    env.kill_daemon();
    env.workspace(&["log", "project"]).ok();
    tree::same("after a kill", &wanted, &tree::of(&root));
    env.workspace(&["checkpoint", "all"]).id();
    spoil(&root);
    let spoiled = tree::of(&root);
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    tree::same("after a restart", &spoiled, &tree::of(&root));
    env.workspace(&["rollback", "all"]).id();
    tree::same("rollback after a restart", &wanted, &tree::of(&root));
    env.kill_daemon();
    env.workspace(&["undo"]).id_or_pending();
    tree::same("undo after a kill", &spoiled, &tree::of(&root));
}

#[test]
fn untouched_files_keep_inode_number_and_times() {
    let Some(env) = Env::new() else { return };
    for i in 0..50 {
        fs::write(env.project().join(format!("f{i}")), format!("{i}")).unwrap();
    }
    let root = env.start();
    fs::create_dir(root.join("made")).unwrap();
    fs::write(root.join("made/in-the-mount"), "x").unwrap();
    env.imported();
    env.workspace(&["checkpoint", "one"]).id();
    let before = tree::identities(&root);
    let same = |what: &str, touched: &[&str]| {
        let changed = tree::changed_identities(&before, &tree::identities(&root));
        let others: Vec<_> = changed
            .iter()
            .filter(|path| !touched.contains(&path.as_str()))
            .collect();
        assert!(others.is_empty(), "{what}: {others:?}");
    };
    same("a checkpoint", &[]);
    fs::write(root.join("f7"), "changed").unwrap();
    fs::remove_file(root.join("f8")).unwrap();
    fs::write(root.join("extra"), "x").unwrap();
    let touched = ["f7", "f8", "the root"];
    env.workspace(&["rollback"]).id();
    same("a rollback", &touched);
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    same("a restart", &touched);
    env.kill_daemon();
    env.workspace(&["log", "project"]).ok();
    same("a kill", &touched);
}

#[test]
fn git_and_make_find_nothing_to_do_after_rollback_and_restart() {
    let Some(env) = Env::new() else { return };
    if !mount::found_git_and_make() {
        return;
    }
    let project = env.project();
    fs::write(project.join("Makefile"), "out: in\n\tcp in out\n").unwrap();
    fs::write(project.join("in"), "source\n").unwrap();
    let run = |directory: &Path, line: &[&str]| {
        let mut command = env.program(line[0]);
        command.args(&line[1..]).current_dir(directory);
        env.told(command).ok()
    };
    run(&project, &["make"]);
    run(&project, &["git", "init", "-q"]);
    run(&project, &["git", "add", "."]);
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    run(
        &project,
        &[&["git"][..], &author, &["commit", "-qm", "x"]].concat(),
    );
    let root = env.start();
    let clean = |when: &str| {
        assert_eq!(run(&root, &["git", "status", "--porcelain"]), "", "{when}");
        let changed = run(&root, &["git", "diff-files", "--name-only"]);
        assert_eq!(changed, "", "{when}: git would read them again");
        assert!(run(&root, &["make"]).contains("up to date"), "{when}");
    };
    clean("in a new workspace");
    env.workspace(&["checkpoint", "clean"]).id();
    fs::write(root.join("other"), "x").unwrap();
    fs::remove_file(root.join("out")).unwrap();
    env.workspace(&["rollback"]).id();
    clean("after a rollback");
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    clean("after a restart");
    fs::write(root.join("in"), "another source\n").unwrap();
    env.workspace(&["rollback"]).id();
    assert!(run(&root, &["make"]).contains("up to date"));
}
