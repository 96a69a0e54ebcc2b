//! Branches of remotes in the mount: what was fetched is looked into without a merge, and nothing of it can be changed.

#![allow(clippy::unwrap_used)]

use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use tests::env::Env;
use tests::machines::{first, full, head, other, root, run, write};
use tests::{binary, mount, sandbox, tree};

/// What `.agentvfs/snapshots/NAME` is in the mount's root.
fn snapshot(env: &Env, name: &str) -> PathBuf {
    env.mountpoint().join(".agentvfs/snapshots").join(name)
}

fn names(dir: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

fn shows(of: &Env, by: &Env, name: &str) {
    let (there, here) = (tree::of(&of.mountpoint()), tree::of(&snapshot(by, name)));
    tree::same(name, &there, &here);
}

fn looks_into(clone: fn(&Path) -> Env) {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = clone(&remote);
    let before = (head(&b), root(&b));
    let (main, later) = (snapshot(&b, "origin/main"), snapshot(&b, "origin/later"));
    shows(&a, &b, "origin/main");
    assert_eq!(names(snapshot(&b, "origin")), ["main"]);
    let missing = fs::read_dir(&later).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    let held = fs::File::open(main.join("both")).unwrap();
    write(&a, "both", "changed\n");
    fs::create_dir_all(a.mountpoint().join("new/deep")).unwrap();
    write(&a, "new/deep/file", "new\n");
    run(&a, &["branch", "create", "later"]).ok();
    run(&a, &["push", "--all"]).ok();
    assert!(!main.join("new").exists());
    run(&b, &["fetch"]).ok();
    shows(&a, &b, "origin/main");
    assert_eq!(names(snapshot(&b, "origin")), ["later", "main"]);
    shows(&a, &b, "origin/later");
    // A file that was opened before stays as it was.
    assert_eq!(std::io::read_to_string(held).unwrap(), "1\n2\n3\n4\n5\n");
    // Looking has changed nothing.
    assert_eq!(before, (head(&b), root(&b)));
    assert!(!b.mountpoint().join("new").exists());
    run(&b, &["gc", "--grace", "0s"]).ok();
    shows(&a, &b, "origin/main");
    run(&b, &["fsck"]).ok();
}

#[test]
fn what_was_fetched_is_looked_into_without_a_merge() {
    looks_into(full);
}

#[test]
fn a_lazy_clone_looks_into_what_was_fetched() {
    looks_into(other);
}

#[test]
fn remotes_come_and_go_in_the_mount() {
    let Some((a, remote)) = first() else { return };
    let snapshots = || names(a.mountpoint().join(".agentvfs/snapshots"));
    // Added, and not pushed to yet.
    assert!(snapshots().contains(&"origin".to_owned()));
    assert_eq!(names(snapshot(&a, "origin")), Vec::<String>::new());
    run(&a, &["push"]).ok();
    assert_eq!(names(snapshot(&a, "origin")), ["main"]);
    let remote = remote.to_str().unwrap();
    run(&a, &["remote", "add", "second", remote]).ok();
    assert!(snapshots().contains(&"second".to_owned()));
    assert_eq!(
        names(a.mountpoint().join(".agentvfs/remotes")),
        ["origin", "second"]
    );
    run(&a, &["fetch", "second"]).ok();
    shows(&a, &a, "second/main");
    run(&a, &["remote", "remove", "second"]).ok();
    assert!(!snapshots().contains(&"second".to_owned()));
    for gone in ["second", "second/main", "none/main"] {
        let error = fs::symlink_metadata(snapshot(&a, gone)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{gone}");
    }
    shows(&a, &a, "origin/main");
}

#[test]
fn a_directory_of_a_remote_that_is_held_outlives_the_daemon() {
    let Some(mut env) = Env::new() else { return };
    env.keep_mounts();
    env.start();
    write(&env, "f", "f\n");
    let remote = env.path("remote");
    run(&env, &["remote", "add", "origin", remote.to_str().unwrap()]).ok();
    run(&env, &["push"]).ok();
    let held = fs::File::open(snapshot(&env, "origin")).unwrap();
    let again = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    assert_eq!(names(again.clone()), ["main"]);
    env.kill_daemon();
    assert_eq!(names(again.clone()), ["main"]);
    assert_eq!(fs::read_to_string(again.join("main/f")).unwrap(), "f\n");
    shows(&env, &env, "origin/main");
}

#[test]
fn a_label_wins_over_the_remote_of_its_name() {
    let Some((a, _)) = first() else { return };
    run(&a, &["push"]).ok();
    shows(&a, &a, "origin/main");
    run(&a, &["checkpoint", "origin"]).ok();
    let listed = names(a.mountpoint().join(".agentvfs/snapshots"));
    let origins = listed.iter().filter(|name| *name == "origin");
    assert_eq!(origins.count(), 1, "{listed:?}");
    shows(&a, &a, "origin");
    assert!(!snapshot(&a, "origin/main").exists());
    let there = a.mountpoint().join(".agentvfs/remotes/origin/main");
    tree::same("remotes", &tree::of(&a.mountpoint()), &tree::of(&there));
}

#[test]
fn nothing_of_a_remote_can_be_changed() {
    let Some((a, _)) = first() else { return };
    run(&a, &["push"]).ok();
    let errno = |done: std::io::Result<()>| Errno::from_io_error(&done.unwrap_err()).unwrap();
    let main = snapshot(&a, "origin/main");
    for done in [
        fs::write(main.join("both"), "x"),
        fs::write(main.join("x"), "x"),
        fs::remove_file(main.join("both")),
        fs::create_dir(main.join("x")),
    ] {
        assert_eq!(errno(done), Errno::ROFS);
    }
    let remotes = a.mountpoint().join(".agentvfs/remotes");
    for done in [
        fs::write(snapshot(&a, "origin/x"), "x"),
        fs::create_dir(snapshot(&a, "origin/x")),
        fs::remove_file(snapshot(&a, "origin")),
        fs::rename(snapshot(&a, "origin"), snapshot(&a, "x")),
        fs::remove_dir(remotes.join("origin/main")),
        fs::remove_dir(remotes.join("origin")),
        fs::rename(remotes.join("origin"), remotes.join("x")),
        fs::create_dir(remotes.join("x")),
        fs::remove_dir(&remotes),
    ] {
        // Whom the directories do not belong to the kernel refuses by itself, with the other word.
        let errno = errno(done);
        let refused = errno == Errno::PERM || (errno == Errno::ACCESS && !mount::is_root());
        assert!(refused, "{errno:?}");
    }
    shows(&a, &a, "origin/main");
}

#[test]
fn no_command_in_a_sandbox_looks_into_a_remote() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let verb = |args: &[&str]| env.told(env.command(&env.project(), args));
    let remote = env.path("remote");
    verb(&["remote", "add", "origin", remote.to_str().unwrap()]).ok();
    write(&env, "secret", "precious\n");
    verb(&["push"]).ok();
    fs::remove_file(env.mountpoint().join("secret")).unwrap();
    let kept = fs::read_to_string(snapshot(&env, "origin/main/secret"));
    assert_eq!(kept.unwrap(), "precious\n");
    let script = "agentvfs branch create inner >&2
        for top in .agentvfs .agentvfs/branches/inner/.agentvfs; do
            ls $top/snapshots >&2 || echo no snapshots
            cat $top/snapshots/origin/main/secret $top/remotes/origin/main/secret
        done
        ls .agentvfs/branches; grep -rs precious .agentvfs/; true";
    // The program may have been built below /tmp, which is hidden there.
    let bin = env.path("bin");
    fs::create_dir(&bin).unwrap();
    binary::same_build(&bin.join("agentvfs"));
    let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", bin.display());
    for branch in [["--branch", "main"], ["--session", "s"]] {
        let args = [&branch[..], &["--", "env", &path, "sh", "-c", script]].concat();
        let told = sandbox::run(&env, &args);
        assert_eq!(told.out, "inner\n", "{told:?}");
        verb(&["branch", "delete", "inner"]).ok();
    }
}
