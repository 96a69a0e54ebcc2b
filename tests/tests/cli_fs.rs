//! `agentvfs fs`: files of commits and of the live tree, without a mount of them.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;
use tests::env::{Env, Told};
use tests::tree;

fn project(env: &Env) {
    let project = env.project();
    fs::create_dir_all(project.join("src/deep")).unwrap();
    fs::write(project.join("README"), "a project\n").unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("src/deep/lib.rs"), "pub fn x() {}\n").unwrap();
    symlink("src", project.join("current")).unwrap();
    symlink("/etc/passwd", project.join("out")).unwrap();
    symlink("../..", project.join("src/up")).unwrap();
}

fn run(env: &Env, args: &[&str]) -> Told {
    let args: Vec<&str> = ["fs"].iter().chain(args).copied().collect();
    env.told(env.command(&env.path(""), &args))
}

fn write(env: &Env, args: &[&str], input: &[u8]) -> Told {
    let args: Vec<&str> = ["fs", "write"].iter().chain(args).copied().collect();
    let mut command = env.command(&env.path(""), &args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that fails reads no more.
        let _ = stdin.write_all(&input);
    });
    let told = env.finish(child, "fs write");
    writer.join().unwrap();
    told
}

#[test]
fn commits_can_be_looked_into_while_the_live_tree_goes_on() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    env.workspace(&["checkpoint", "one"]).id();
    fs::remove_dir_all(root.join("src")).unwrap();
    fs::write(root.join("README"), "changed\n").unwrap();
    assert_eq!(
        run(&env, &["cat", "--ref", "one", "README"]).ok(),
        "a project\n"
    );
    assert_eq!(run(&env, &["cat", "README"]).ok(), "changed\n");
    assert_eq!(
        run(&env, &["cat", "--ref", "@", "current/deep/lib.rs"]).ok(),
        "pub fn x() {}\n"
    );
    run(&env, &["cat", "src/main.rs"]).fails(1, "src/main.rs");
    let found = run(&env, &["find", "--ref", "one", "--name", "*.rs"]).ok();
    assert_eq!(found, "src/deep/lib.rs\nsrc/main.rs\n");
    let dirs = run(&env, &["find", "--ref", "one", "--type", "d"]).ok();
    assert_eq!(dirs, "src\nsrc/deep\n");
    assert_eq!(run(&env, &["find", "--name", "*.rs"]).ok(), "");
    let tree = run(&env, &["tree", "--ref", "one", "--depth", "1", "src"]).ok();
    assert_eq!(tree, "src/deep\nsrc/main.rs\nsrc/up\n");
    run(&env, &["cat", "--ref", "none", "README"]).fails(1, "none");
}

#[test]
fn rows_and_facts_say_what_a_file_is() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    fs::set_permissions(root.join("README"), fs::Permissions::from_mode(0o640)).unwrap();
    let rows = run(&env, &["ls"]).ok();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split('\t').collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[3]).collect();
    assert_eq!(names, ["README", "current", "out", "src"]);
    assert_eq!((rows[0][0], rows[0][1]), ("-rw-r-----", "10"));
    assert_eq!(rows[1][4], "src");
    let facts = run(&env, &["stat", "README"]).ok();
    for fact in [
        "path=README\n",
        "type=file\n",
        "mode=0640\n",
        "size=10\n",
        "links=1\n",
    ] {
        assert!(facts.contains(fact), "{fact:?} in {facts}");
    }
    let json: Value = serde_json::from_str(&run(&env, &["ls", "src", "--json"]).ok()).unwrap();
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries[0]["name"], "deep");
    assert_eq!(
        (&entries[2]["type"], &entries[2]["target"]),
        (&"symlink".into(), &"../..".into())
    );
    let nul = run(&env, &["find", "src", "-z"]).ok();
    assert_eq!(nul, "src/deep\0src/deep/lib.rs\0src/main.rs\0src/up\0");
    // Paths count from the current directory in the mount.
    let here = env.command(&root.join("src"), &["fs", "cat", "main.rs"]);
    assert_eq!(env.told(here).ok(), "fn main() {}\n");
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let Some(env) = Env::new() else { return };
    project(&env);
    env.start();
    run(&env, &["cat", "out"]).fails(1, "leads out");
    run(&env, &["cat", "src/up/x"]).fails(1, "leads out");
    run(&env, &["cat", "../x"]).fails(2, "not inside");
    run(&env, &["cat", "src"]).fails(1, "is a directory");
    run(&env, &["ls", "none"]).fails(1, "none");
    write(&env, &["out"], b"x").fails(1, "leads out");
    write(&env, &["src"], b"x").fails(1, "is a directory");
    write(&env, &["no/such/dir"], b"x").fails(1, "no such file");
    write(&env, &[".agentvfs/x"], b"x").status_is(1);
}

#[test]
fn what_is_written_is_seen_in_the_mount_at_once() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    // The kernel knows the file, its pages, the directory, and that a name is not there.
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    assert!(!root.join("new/dir/file").exists() && !root.join("plain").exists());
    assert_eq!(fs::read_dir(&root).unwrap().count(), 4);
    assert_eq!(write(&env, &["README"], b"short\n").ok(), "");
    assert_eq!(fs::read(root.join("README")).unwrap(), b"short\n");
    assert_eq!(fs::metadata(root.join("README")).unwrap().len(), 6);
    write(&env, &["--append", "README"], b"more\n").ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"short\nmore\n");
    write(&env, &["--parents", "new/dir/file"], b"new\n").ok();
    write(&env, &["plain"], b"").ok();
    assert_eq!(fs::read(root.join("new/dir/file")).unwrap(), b"new\n");
    assert_eq!(fs::read(root.join("plain")).unwrap(), b"");
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["README", "current", "new", "out", "plain", "src"]);
    write(&env, &["current/main.rs"], b"through a link\n").ok();
    assert_eq!(
        fs::read(root.join("src/main.rs")).unwrap(),
        b"through a link\n"
    );
    let changed = tree::of(&root);
    env.workspace(&["rollback"]).ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    env.workspace(&["undo"]).ok();
    tree::same("undo", &changed, &tree::of(&root));
}

#[test]
fn names_are_made_moved_and_removed_without_the_mount() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 4);
    assert!(!root.join("made").exists());
    assert_eq!(run(&env, &["mkdir", "made"]).ok(), "");
    run(&env, &["mkdir", "made"]).fails(1, "made: file exists");
    run(&env, &["mkdir", "a/b/c"]).fails(1, "no such file");
    run(&env, &["mkdir", "--parents", "a/b/c"]).ok();
    assert!(root.join("made").is_dir() && root.join("a/b/c").is_dir());
    let moved = run(&env, &["mv", "src", "a/b/c/src", "--json"]).ok();
    let moved: Value = serde_json::from_str(&moved).unwrap();
    assert_eq!(
        (&moved["from"], &moved["to"]),
        (&"src".into(), &"a/b/c/src".into())
    );
    assert!(!root.join("src").exists());
    assert_eq!(
        fs::read(root.join("a/b/c/src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
    run(&env, &["mv", "a", "a/b/c/inside"]).fails(1, "invalid");
    run(&env, &["rm", "a"]).fails(1, "a: directory not empty");
    run(&env, &["rm", "--recursive", "a"]).ok();
    run(&env, &["rm", "out"]).ok();
    run(&env, &["rm", "out"]).fails(1, "out: no such file");
    run(&env, &["rm", "--recursive", "."]).fails(2, "whole workspace");
    run(&env, &["rm", "../x"]).fails(2, "not inside");
    run(&env, &["mkdir", ".agentvfs/x"]).status_is(1);
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["README", "current", "made"]);
}

#[test]
fn large_and_sparse_files_come_and_go_whole() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    let bytes: Vec<u8> = tests::rng::Rng::new(5).bytes(1_500_001);
    write(&env, &["big"], &bytes).ok();
    assert_eq!(fs::read(root.join("big")).unwrap(), bytes);
    tree::sparse(&root.join("sparse"), 2_000_000, &[(700_000, b"data")]);
    env.workspace(&["checkpoint", "one"]).id();
    for name in ["big", "sparse"] {
        let mut command = env.command(&env.path(""), &["fs", "cat", "--ref", "one", name]);
        let out = command.stdout(Stdio::piped()).output().unwrap();
        assert!(out.status.success());
        assert!(out.stdout == fs::read(root.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn stopped_workspace_can_be_looked_into_and_stays_stopped() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let root = env.start();
    let id = env.workspace(&["checkpoint", "one"]).id();
    fs::write(root.join("README"), "later\n").unwrap();
    env.workspace(&["stop"]).ok();
    let w = ["-w", "project"];
    let with = |args: &[&str]| run(&env, &[args, &w].concat());
    assert_eq!(with(&["cat", "--ref", "one", "README"]).ok(), "a project\n");
    assert_eq!(with(&["cat", "README"]).ok(), "later\n");
    assert_eq!(
        with(&["find", "--name", "*.rs"]).ok(),
        "src/deep/lib.rs\nsrc/main.rs\n"
    );
    let changed = env.workspace(&["diff", "-w", "project", "one"]).ok();
    assert_eq!(changed, "M\tREADME\n");
    assert!(env.workspace(&["log", "project"]).ok().contains(&id));
    env.workspace(&["restore", "-w", "project", "src", "--to", "out"])
        .ok();
    assert_eq!(
        fs::read(env.path("out/src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
    assert_eq!(env.workspace(&["status", "project"]).status, 1);
    assert!(
        tests::mount::below(env.home()).is_empty(),
        "nothing is mounted"
    );
    env.workspace(&["restore", "-w", "project", "src"])
        .fails(1, "not running");
    write(&env, &["-w", "project", "README"], b"x").fails(1, "not running");
    // It can be started and deleted while it is still open.
    env.workspace(&["start", "project"]).ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"later\n");
    env.workspace(&["stop", "project"]).ok();
    assert_eq!(with(&["cat", "README"]).ok(), "later\n");
    env.workspace(&["delete", "project", "--yes"]).ok();
    with(&["cat", "README"]).fails(1, "no workspace");
}

trait StatusIs {
    fn status_is(self, status: i32);
}

impl StatusIs for Told {
    #[track_caller]
    fn status_is(self, status: i32) {
        assert_eq!(self.status, status, "{self:?}");
    }
}
