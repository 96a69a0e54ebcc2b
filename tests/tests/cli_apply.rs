//! A branch's changes go to the project's directory, and the project's into a branch.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use tests::env::Env;
use tests::tree;

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

fn project(env: &Env) {
    let project = env.project();
    fs::create_dir_all(project.join("src")).unwrap();
    fs::write(project.join("text"), TEXT).unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("gone"), "gone\n").unwrap();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn apply_merges_into_the_project_and_update_into_the_branch() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    fs::write(root.join("text"), TEXT.replace('2', "two")).unwrap();
    fs::write(root.join("src/new.rs"), "new\n").unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    let project = env.project();
    fs::write(project.join("text"), TEXT.replace('8', "eight")).unwrap();
    let before = tree::of(&project);
    let rows = "M\ttext\nA\tsrc/new.rs\nD\tgone\n";
    let mut planned: Vec<String> = told_rows(&env, &["apply", "--dry-run"]);
    let mut wanted: Vec<String> = rows.lines().map(str::to_owned).collect();
    planned.sort();
    wanted.sort();
    assert_eq!(planned, wanted);
    tree::same("dry run", &before, &tree::of(&project));
    let mut done = told_rows(&env, &["apply"]);
    done.sort();
    assert_eq!(done, wanted);
    let both = TEXT.replace('2', "two").replace('8', "eight");
    assert_eq!(read(&project.join("text")), both);
    assert_eq!(read(&project.join("src/new.rs")), "new\n");
    assert!(!project.join("gone").exists());
    assert_eq!(told_rows(&env, &["apply"]), Vec::<String>::new());
    env.workspace(&["update"]).id();
    assert_eq!(read(&root.join("text")), both);
    env.workspace(&["undo"]).id_or_pending();
    assert_eq!(read(&root.join("text")), TEXT.replace('2', "two"));
}

fn told_rows(env: &Env, args: &[&str]) -> Vec<String> {
    let told = env.workspace(args).ok();
    told.lines().map(str::to_owned).collect()
}

/// The conflict is listed, and said to be why nothing was done.
fn refused(env: &Env, verb: &str, why: &str) {
    let told = env.workspace(&[verb]);
    assert_eq!(
        (told.status, told.out.as_str()),
        (1, "content\ttext\n"),
        "{told:?}"
    );
    assert!(told.err.contains(why), "{told:?}");
}

#[test]
fn conflicts_stop_an_apply_and_a_patch_says_what_it_would_do() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.imported();
    fs::write(root.join("text"), TEXT.replace('2', "two")).unwrap();
    let project = env.project();
    let file = env.path("patch");
    let named = file.to_str().unwrap();
    env.workspace(&["apply", "--patch", named]).ok();
    let patch = read(&file);
    assert!(patch.contains("-2\n+two\n"), "{patch}");
    fs::write(project.join("text"), TEXT.replace('2', "zwei")).unwrap();
    let before = tree::of(&project);
    refused(&env, "apply", "1 conflict; nothing was done");
    tree::same("conflict", &before, &tree::of(&project));
    refused(&env, "update", "1 conflict; nothing was changed");
    assert_eq!(read(&root.join("text")), TEXT.replace('2', "two"));
}
