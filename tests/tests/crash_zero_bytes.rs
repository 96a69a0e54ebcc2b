//! A disk with nothing free, in every verb: reading, deleting, going back and collecting work; what needs
//! space says so and changes nothing. And a disk that failed: reading goes on.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::skip::{Want, skip};
use tests::{mount, wait};

const DISK_BYTES: u64 = 160 << 20;
/// What a log line of the daemon takes at least, many times over: the old log dies of one.
const NOISE: usize = 40;

/// An environment whose home lies on a small disk.
fn on_small_disk(make: impl FnOnce(&Path) -> bool) -> Option<(Env, PathBuf)> {
    let mut env = Env::as_root()?;
    let disk = env.path("disk");
    if !make(&disk) {
        skip(Want::Machine, "the machine cannot mount such a file system");
        return None;
    }
    env.set_home(disk.join("home"));
    Some((env, disk))
}

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

/// `agentvfs WORD WORD -w project …`.
fn on(env: &Env, words: &[&str], args: &[&str]) -> Told {
    let all = [words, &["-w", "project"], args].concat();
    run(env, &all)
}

fn files(root: &Path) {
    for i in 0..60 {
        let name = root.join(format!("file{i}"));
        fs::write(name, tests::rng::Rng::new(i).bytes(3000)).unwrap();
    }
}

/// Takes all that is free, to the last block.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut file = File::create(&path).unwrap();
    for size in [1 << 20, 64 << 10, 4096, 512, 1] {
        let block = vec![0xa5; size];
        loop {
            match file.write(&block) {
                Ok(0) => panic!("the disk takes nothing"),
                Ok(_) => {}
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::StorageFull);
                    break;
                }
            }
        }
    }
    // Also what a delayed allocation holds.
    let _ = file.sync_all();
    path
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

/// Branches with their heads.
fn heads(env: &Env) -> Vec<(String, String)> {
    let told = on(env, &["branch", "list"], &[]).ok();
    let row = |line: &str| {
        let mut columns = line.split('\t').map(str::to_owned);
        columns.next().zip(columns.next()).unwrap()
    };
    told.lines().map(row).collect()
}

/// Done, or refused for want of space and without a trace.
fn done_or_no_space(env: &Env, args: &[&str]) -> bool {
    let log = || env.workspace(&["log", "project"]).ok();
    let before = (log(), heads(env));
    let told = run(env, args);
    if told.status == 0 {
        return true;
    }
    assert!(
        told.err.contains("no space") || told.err.contains("No space"),
        "{args:?}: {told:?}"
    );
    assert_eq!(told.status, 1, "{args:?}: {told:?}");
    let mut after = (log(), heads(env));
    for (head, was) in after.1.iter_mut().zip(&before.1) {
        // What was not stored before may be by now.
        if was.1 == "pending" {
            head.1 = was.1.clone();
        }
    }
    assert_eq!(after, before, "{args:?}");
    false
}

/// All that only looks.
fn looking(env: &Env, root: &Path) {
    for args in [
        &["list"][..],
        &["status", "project"],
        &["log", "project", "--all"],
        &["diff", "project", "--name-status"],
        &["rollback", "--workspace", "project", "--dry-run"],
    ] {
        env.workspace(args).ok();
    }
    for (words, args) in [
        (&["fs", "ls"][..], &["."][..]),
        (&["fs", "cat"], &["file50"]),
        (&["fs", "stat"], &["file50"]),
        (&["fs", "tree"], &[]),
        (&["fs", "find"], &["."]),
        (&["branch", "list"], &[]),
        (&["branch", "conflicts"], &[]),
        (&["kv", "list"], &[]),
        (&["kv", "get"], &["key"]),
        (&["timeline"], &[]),
        (&["tool", "list"], &[]),
    ] {
        on(env, words, args).ok();
    }
    run(env, &["stats"]).ok();
    run(env, &["fsck"]).ok();
    assert_eq!(fs::read(root.join("deep/er/file")).unwrap(), b"of the base");
    let one = tests::rng::Rng::new(50).bytes(3000);
    assert_eq!(fs::read(root.join("file50")).unwrap(), one);
}

/// Deleting, going back, collecting.
fn going_on(env: &Env, root: &Path) {
    // More than what may be left in the last block of the journal.
    let refused = fs::write(root.join("new"), vec![7; 1 << 20]).unwrap_err();
    assert!(is_full(&refused), "{refused}");
    for i in 0..20 {
        fs::remove_file(root.join(format!("file{i}"))).unwrap();
    }
    fs::remove_dir_all(root.join("deep")).unwrap();
    on(env, &["fs", "rm"], &["file20"]).ok();
    on(env, &["kv", "delete"], &["key"]).ok();
    env.workspace(&["rollback", "kept"]).id();
    assert_eq!(fs::read_dir(root).unwrap().count(), 61);
    env.workspace(&["undo"]).id_or_pending();
    assert!(!root.join("file20").exists());
    env.workspace(&["redo"]).id();
    fs::remove_file(root.join("file3")).unwrap();
    env.workspace(&["restore", "file3"]).ok();
    assert!(root.join("file3").exists());
    run(env, &["gc"]).ok();
    for number in 0..NOISE {
        // Each of them is worth a line.
        let told = on(env, &["branch", "create"], &[&format!("b{number}")]);
        assert!(told.status <= 1, "{told:?}");
        on(env, &["branch", "delete"], &[&format!("b{number}")]);
    }
}

/// Verbs that need space, which there is not.
fn needing(env: &Env) {
    let file = env.path("out.db").display().to_string();
    for args in [
        &["workspace", "checkpoint", "--workspace", "project", "full"][..],
        &["branch", "create", "-w", "project", "other"],
        &["branch", "merge", "-w", "project", "side", "--into", "main"],
        &["workspace", "update", "project"],
        &["workspace", "apply", "project", "--dry-run"],
        &["kv", "set", "-w", "project", "other", "1"],
        &["config", "gc=off"],
        &["config", "gc=auto"],
        &["tool", "record", "-w", "project", "name"],
        &["export", "project", &file],
    ] {
        done_or_no_space(env, args);
    }
}

fn zero_bytes(env: &Env, disk: &Path) {
    fs::create_dir_all(env.project().join("deep/er")).unwrap();
    fs::write(env.project().join("deep/er/file"), "of the base").unwrap();
    let root = env.start();
    env.imported();
    files(&root);
    on(env, &["kv", "set"], &["key", "1"]).ok();
    on(env, &["branch", "create"], &["side"]).ok();
    env.workspace(&["checkpoint", "kept"]).id();
    fs::write(root.join("file59"), "changed").unwrap();
    let reserve = env.home().join("reserve");
    wait::until("the reserve is made", || {
        reserve.metadata().is_ok_and(|meta| meta.len() > 0)
    });
    let whole = reserve.metadata().unwrap().len();
    let ballast = fill(disk);
    looking(env, &root);
    going_on(env, &root);
    needing(env);
    looking(env, &root);
    env.kill_daemon();
    env.workspace(&["log", "project"]).ok();
    looking(env, &root);
    fs::remove_file(root.join("file30")).unwrap();
    if !done_or_no_space(env, &["workspace", "stop", "project"]) {
        env.workspace(&["stop", "project", "--no-checkpoint"]).ok();
    }
    env.workspace(&["start", "project"]).ok();
    assert!(!root.join("file30").exists());
    env.workspace(&["rollback", "kept"]).id();
    fs::remove_file(ballast).unwrap();
    wait::until("the reserve is whole again", || {
        reserve.metadata().unwrap().len() == whole
    });
    fs::write(root.join("new"), "with room").unwrap();
    env.workspace(&["checkpoint", "room"]).id();
    assert_eq!(env.status()["healthy"], true);
    env.workspace(&["stop", "project"]).ok();
    let log = fs::read_to_string(env.home().join("daemon.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
    assert!(log.contains("stopped"), "the log goes on: {log}");
    run(env, &["fsck"]).ok();
}

#[test]
fn tmpfs_with_nothing_free() {
    let make = |disk: &Path| {
        mount::memory(disk, DISK_BYTES);
        true
    };
    if let Some((env, disk)) = on_small_disk(make) {
        zero_bytes(&env, &disk);
    }
}

#[test]
fn ext4_with_nothing_free() {
    if let Some((env, disk)) = on_small_disk(|disk| mount::ext4(disk, DISK_BYTES)) {
        zero_bytes(&env, &disk);
    }
}

/// The file system below the home turns read-only under the daemon, as after an error of the disk.
#[test]
fn disk_that_turned_read_only_stops_writers_and_nobody_else() {
    let Some((env, disk)) = on_small_disk(|disk| mount::ext4(disk, DISK_BYTES)) else {
        return;
    };
    fs::create_dir_all(env.project().join("deep/er")).unwrap();
    fs::write(env.project().join("deep/er/file"), "of the base").unwrap();
    let root = env.start();
    env.imported();
    files(&root);
    env.workspace(&["checkpoint", "kept"]).id();
    mount::remount(&disk, "abort");
    let cat = |name: &str| {
        let mut cat = env.program("cat");
        cat.arg(root.join(name));
        env.told(cat)
    };
    wait::until("writers are refused", || {
        fs::write(root.join("new"), "x").is_err()
    });
    for number in 0..NOISE {
        fs::write(root.join(format!("new{number}")), "x").unwrap_err();
        fs::remove_file(root.join("file1")).unwrap_err();
        assert_eq!(env.workspace(&["checkpoint", "no"]).status, 1);
    }
    assert_eq!(cat("deep/er/file").ok(), "of the base");
    assert_eq!(cat("file7").status, 0);
    let mut find = env.program("find");
    find.arg(&root);
    assert!(env.told(find).ok().lines().count() > 60);
    on(&env, &["fs", "cat"], &["file50"]).ok();
    env.workspace(&["log", "project"]).ok();
    assert_eq!(env.status()["healthy"], false);
    env.workspace(&["stop", "project"]);
    env.kill_daemon();
    mount::clear(&root);
}
