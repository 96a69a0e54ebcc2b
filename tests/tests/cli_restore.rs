//! Single paths taken back from a commit: into the live tree, and to a directory of the machine.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tests::env::Env;
use tests::tree;

fn project(env: &Env) {
    let project = env.project();
    fs::create_dir_all(project.join("src/deep")).unwrap();
    fs::create_dir_all(project.join("other")).unwrap();
    fs::write(project.join("README"), "a project\n").unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("src/deep/lib.rs"), "pub fn x() {}\n").unwrap();
    fs::write(project.join("other/file"), "other\n").unwrap();
    symlink("main.rs", project.join("src/link")).unwrap();
}

/// What lies at and below a path.
fn part(all: &tree::Tree, top: &str) -> tree::Tree {
    let inside =
        |path: &Vec<u8>| path == top.as_bytes() || path.starts_with(format!("{top}/").as_bytes());
    all.iter()
        .filter(|(path, _)| inside(path))
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect()
}

fn without(all: &tree::Tree, tops: &[&str]) -> tree::Tree {
    let gone: Vec<tree::Tree> = tops.iter().map(|top| part(all, top)).collect();
    all.iter()
        .filter(|(path, _)| !path.is_empty() && !gone.iter().any(|g| g.contains_key(*path)))
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect()
}

fn ruin(root: &Path) {
    fs::write(root.join("README"), "changed\n").unwrap();
    fs::remove_dir_all(root.join("src")).unwrap();
    fs::create_dir(root.join("src")).unwrap();
    fs::write(root.join("src/extra"), "extra\n").unwrap();
    fs::write(root.join("other/file"), "changed too\n").unwrap();
}

#[test]
fn restored_paths_are_as_in_the_commit_and_nothing_else_changes() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    let id = env.workspace(&["checkpoint", "good"]).id();
    let good = tree::of(&root);
    ruin(&root);
    let ruined = tree::of(&root);
    assert_eq!(env.workspace(&["restore", "src"]).id(), id);
    let now = tree::of(&root);
    tree::same("src", &part(&good, "src"), &part(&now, "src"));
    tree::same(
        "the rest",
        &without(&ruined, &["src"]),
        &without(&now, &["src"]),
    );
    env.workspace(&["undo"]).ok();
    tree::same("undo", &ruined, &tree::of(&root));
    env.workspace(&["redo"]).ok();
    tree::same("redo", &now, &tree::of(&root));
    env.workspace(&["stop", "project"]).ok();
    env.workspace(&["start", "project"]).ok();
    tree::same("after a restart", &now, &tree::of(&root));
    env.workspace(&["undo"]).ok();
    tree::same("undo after a restart", &ruined, &tree::of(&root));
}

#[test]
fn rollback_of_paths_leaves_the_head() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    let one = env.workspace(&["checkpoint", "one"]).id();
    fs::write(root.join("README"), "two\n").unwrap();
    fs::write(root.join("src/main.rs"), "two\n").unwrap();
    let two = env.workspace(&["checkpoint", "two"]).id();
    let rolled = env.workspace(&["rollback", "one", "--path", "README", "--path", "src/deep"]);
    assert_eq!(rolled.id(), one);
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    assert_eq!(fs::read(root.join("src/main.rs")).unwrap(), b"two\n");
    assert_eq!(env.status()["head"], two.as_str());
    assert_eq!(env.workspace(&["diff"]).ok(), "M\tREADME\n");
    env.workspace(&["rollback", "--path", "README"]).id();
    assert_eq!(env.workspace(&["diff"]).ok(), "");
}

#[test]
fn path_that_the_target_lacks_goes_and_parents_come_back() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    fs::write(root.join("new"), "x").unwrap();
    fs::remove_dir_all(root.join("src")).unwrap();
    env.workspace(&["restore", "new", "src/deep/lib.rs"]).id();
    assert!(!root.join("new").exists());
    assert_eq!(
        fs::read(root.join("src/deep/lib.rs")).unwrap(),
        b"pub fn x() {}\n"
    );
    assert!(!root.join("src/main.rs").exists());
    env.workspace(&["restore", "none", "src"]).fails(1, "none");
    assert!(!root.join("src/main.rs").exists(), "nothing was done");
    fs::remove_dir_all(root.join("src")).unwrap();
    fs::write(root.join("src"), "a file now").unwrap();
    env.workspace(&["restore", "src/main.rs"]).fails(1, "src");
    assert_eq!(fs::read(root.join("src")).unwrap(), b"a file now");
    env.workspace(&["restore", "."]).fails(2, "whole workspace");
}

#[test]
fn dry_run_lists_changes_and_holders_of_the_paths_alone() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    ruin(&root);
    let ruined = tree::of(&root);
    let held = fs::File::open(root.join("src/extra")).unwrap();
    let told = env.workspace(&["restore", "src", "--dry-run"]);
    assert!(
        told.err.contains(&std::process::id().to_string()),
        "{told:?}"
    );
    let out = told.ok();
    assert!(
        out.contains("A\tsrc/main.rs\n") && out.contains("D\tsrc/extra\n"),
        "{out}"
    );
    assert!(!out.contains("README") && !out.contains("other"), "{out}");
    drop(held);
    tree::same("dry run", &ruined, &tree::of(&root));
}

#[test]
fn open_files_follow_and_files_outside_keep_their_inodes() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    let mut open = fs::File::open(root.join("src/main.rs")).unwrap();
    fs::write(root.join("src/main.rs"), "something else, and longer\n").unwrap();
    // A file that was moved out of the paths goes on, and comes back as a copy.
    fs::rename(root.join("src/deep/lib.rs"), root.join("moved.rs")).unwrap();
    fs::write(root.join("moved.rs"), "moved and changed\n").unwrap();
    let moved = fs::metadata(root.join("moved.rs")).unwrap().ino();
    env.workspace(&["restore", "src"]).id();
    let mut text = String::new();
    open.rewind().unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "fn main() {}\n");
    assert_eq!(
        fs::read(root.join("src/deep/lib.rs")).unwrap(),
        b"pub fn x() {}\n"
    );
    assert_eq!(
        fs::read(root.join("moved.rs")).unwrap(),
        b"moved and changed\n"
    );
    assert_eq!(fs::metadata(root.join("moved.rs")).unwrap().ino(), moved);
    let copy = fs::metadata(root.join("src/deep/lib.rs")).unwrap().ino();
    assert_ne!(copy, moved);
}

#[test]
fn hard_links_across_the_border_of_the_paths_are_kept_apart_where_they_differ() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    fs::hard_link(root.join("src/main.rs"), root.join("src/twin")).unwrap();
    fs::hard_link(root.join("src/main.rs"), root.join("outside")).unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    let ino = |name: &str| fs::metadata(root.join(name)).unwrap().ino();
    fs::remove_file(root.join("src/twin")).unwrap();
    env.workspace(&["restore", "src"]).id();
    assert_eq!(
        (ino("src/main.rs"), ino("src/twin")),
        (ino("outside"), ino("outside"))
    );
    fs::write(root.join("outside"), "changed\n").unwrap();
    env.workspace(&["restore", "src"]).id();
    assert_eq!(ino("src/main.rs"), ino("src/twin"));
    assert_ne!(ino("src/main.rs"), ino("outside"));
    assert_eq!(fs::read(root.join("outside")).unwrap(), b"changed\n");
    assert_eq!(fs::read(root.join("src/twin")).unwrap(), b"fn main() {}\n");
    let before = tree::of(&root);
    env.workspace(&["checkpoint", "two"]).id();
    env.workspace(&["rollback", "one"]).id();
    env.workspace(&["rollback", "two"]).id();
    tree::same("commit of what was restored", &before, &tree::of(&root));
}

#[test]
fn restore_to_a_directory_keeps_everything_and_overwrites_nothing() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    tree::sparse(
        &root.join("src/sparse"),
        3 << 20,
        &[(1 << 20, b"data"), (2 << 20, b"end")],
    );
    fs::hard_link(root.join("src/main.rs"), root.join("src/twin")).unwrap();
    fs::set_permissions(root.join("src/main.rs"), fs::Permissions::from_mode(0o750)).unwrap();
    let value = b"value".as_slice();
    let flags = rustix::fs::XattrFlags::empty();
    let has_attributes = rustix::fs::setxattr(root.join("src/main.rs"), "user.x", value, flags);
    fs::create_dir(root.join("src/empty")).unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    let wanted = part(&tree::of(&root), "src");
    fs::remove_dir_all(root.join("src")).unwrap();
    let args = ["restore", "--ref", "one", "src", "--to", "out/new"];
    let told = env.workspace(&args);
    assert_eq!(told.clone().ok(), "");
    if has_attributes.is_ok() && told.err.is_empty() {
        let found = part(&tree::of(&env.path("out/new")), "src");
        tree::same("written", &wanted, &found);
    }
    let before = tree::of(&env.path("out/new"));
    env.workspace(&args).fails(1, "already has");
    tree::same("refused", &before, &tree::of(&env.path("out/new")));
    assert!(!root.join("src").exists(), "the live tree is left alone");
}

#[test]
fn restore_to_a_directory_follows_no_link_in_it() {
    let Some(env) = Env::new() else { return };
    project(&env);
    env.start();
    env.workspace(&["checkpoint", "one"]).id();
    fs::create_dir_all(env.path("out")).unwrap();
    fs::create_dir_all(env.path("victim")).unwrap();
    symlink(env.path("victim"), env.path("out/src")).unwrap();
    env.workspace(&["restore", "src/main.rs", "--to", "out"])
        .fails(1, "src");
    assert_eq!(fs::read_dir(env.path("victim")).unwrap().count(), 0);
    // Other directories that exist are joined.
    fs::remove_file(env.path("out/src")).unwrap();
    fs::create_dir(env.path("out/src")).unwrap();
    let mut mine = fs::File::create(env.path("out/src/mine")).unwrap();
    mine.write_all(b"mine").unwrap();
    let listed = env.workspace(&["restore", "src/main.rs", "--to", "out", "--dry-run"]);
    assert!(listed.ok().contains("A\tsrc/main.rs\n"));
    assert!(!env.path("out/src/main.rs").exists());
    env.workspace(&["restore", "src/main.rs", "--to", "out"])
        .ok();
    assert_eq!(fs::read(env.path("out/src/mine")).unwrap(), b"mine");
    assert_eq!(
        fs::read(env.path("out/src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
}

#[test]
fn restore_while_the_project_is_still_being_read() {
    let Some(env) = Env::new() else { return };
    let project = env.project();
    for i in 0..40 {
        let dir = project.join(format!("d{i}/e/f"));
        fs::create_dir_all(&dir).unwrap();
        for j in 0..20 {
            fs::write(dir.join(format!("file{j}")), format!("{i} {j}\n")).unwrap();
        }
    }
    let wanted = tree::of(&project);
    let root = env.start();
    fs::rename(root.join("d7"), root.join("away")).unwrap();
    env.workspace(&["restore", "d7"]).id_or_pending();
    let now = tree::of(&root);
    tree::same("d7", &part(&wanted, "d7"), &part(&now, "d7"));
    assert_eq!(fs::read(root.join("away/e/f/file3")).unwrap(), b"7 3\n");
}
