//! Watchers: inotify and fanotify hear of what goes through the mount, and of a rollback too.

#![allow(clippy::unwrap_used)]

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::skip::{Want, skip};
use tests::{mount, sys, tree, wait};

/// An event: name, what happened to it.
type Heard = BTreeSet<(String, &'static str)>;

const WORDS: [(ReadFlags, &str); 6] = [
    (ReadFlags::CREATE, "create"),
    (ReadFlags::DELETE, "delete"),
    (ReadFlags::MODIFY, "modify"),
    (ReadFlags::ATTRIB, "attributes"),
    (ReadFlags::MOVED_FROM, "from"),
    (ReadFlags::MOVED_TO, "to"),
];

/// Watches directories, and gathers what is heard of names in them.
struct Watcher {
    descriptor: OwnedFd,
    heard: Heard,
}

impl Watcher {
    fn of(dirs: &[&Path]) -> Watcher {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let descriptor = inotify::init(flags).unwrap();
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE;
        for dir in dirs {
            inotify::add_watch(&descriptor, *dir, wanted).unwrap();
        }
        let heard = Heard::new();
        Watcher { descriptor, heard }
    }

    fn listen(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = Reader::new(&self.descriptor, &mut buffer);
        while let Ok(event) = reader.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            let name = event
                .file_name()
                .map(|name| name.to_str().unwrap().to_owned());
            for (flag, word) in WORDS {
                if event.events().contains(flag) {
                    self.heard.insert((name.clone().unwrap_or_default(), word));
                }
            }
        }
    }

    /// Waits until all of that was heard.
    #[track_caller]
    fn hears(&mut self, wanted: &[(&str, &'static str)]) {
        let wanted: Heard = wanted
            .iter()
            .map(|(name, word)| ((*name).to_owned(), *word))
            .collect();
        let since = Instant::now();
        while !self.heard.is_superset(&wanted) {
            let missing: Vec<_> = wanted.difference(&self.heard).collect();
            assert!(since.elapsed() < wait::DEADLINE, "not heard: {missing:?}");
            std::thread::sleep(Duration::from_millis(2));
            self.listen();
        }
    }
}

#[test]
fn what_goes_through_the_mount_is_heard() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut watcher = Watcher::of(&[&root]);
    fs::write(root.join("file"), "x").unwrap();
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(root.join("file"), root.join("other")).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    fs::remove_file(root.join("other")).unwrap();
    watcher.hears(&[
        ("file", "create"),
        ("file", "modify"),
        ("file", "attributes"),
        ("file", "from"),
        ("other", "to"),
        ("dir", "create"),
        ("other", "delete"),
    ]);
}

#[test]
fn what_fs_commands_change_is_heard() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("full")).unwrap();
    fs::write(env.project().join("full/file"), "x").unwrap();
    let root = env.start();
    let run = |args: &[&str]| {
        let told = env.told(env.command(&env.path(""), &[&["fs"], args].concat()));
        told.ok();
    };
    let mut watcher = Watcher::of(&[&root]);
    // It is told after the answer, and of what is there then.
    run(&["write", "written"]);
    watcher.hears(&[("written", "create")]);
    run(&["mkdir", "made"]);
    watcher.hears(&[("made", "create")]);
    run(&["mv", "written", "moved"]);
    watcher.hears(&[("written", "delete"), ("moved", "create")]);
    run(&["rm", "--recursive", "full"]);
    watcher.hears(&[("full", "delete")]);
    run(&["write", "moved"]);
    watcher.hears(&[("moved", "modify")]);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
}

#[test]
fn fanotify_hears_of_a_whole_mount() {
    let Some(env) = Env::as_root() else { return };
    let root = env.start();
    fs::create_dir(root.join("deep")).unwrap();
    let Ok(watch) = sys::watch_mount(&root) else {
        skip(Want::Machine, "the kernel has no fanotify");
        return;
    };
    fs::write(root.join("deep/file"), "x").unwrap();
    wait::until("a write is heard", || {
        sys::heard_a_write(&watch, std::process::id()).unwrap()
    });
}

fn make(root: &Path) {
    fs::create_dir(root.join("src")).unwrap();
    for name in ["changed", "removed", "mode", "kept", "type"] {
        fs::write(root.join("src").join(name), name).unwrap();
    }
    symlink("kept", root.join("src/link")).unwrap();
    fs::create_dir_all(root.join("old/inner")).unwrap();
}

fn change(root: &Path) {
    let src = root.join("src");
    fs::write(src.join("changed"), "otherwise").unwrap();
    fs::remove_file(src.join("removed")).unwrap();
    fs::set_permissions(src.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(src.join("added"), "x").unwrap();
    fs::remove_file(src.join("type")).unwrap();
    fs::create_dir(src.join("type")).unwrap();
    fs::remove_file(src.join("link")).unwrap();
    fs::create_dir_all(root.join("new/inner")).unwrap();
    fs::remove_dir_all(root.join("old")).unwrap();
}

#[test]
fn rollback_is_heard_name_by_name_and_changes_nothing_more() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    make(&root);
    env.workspace(&["checkpoint", "one"]).id();
    let wanted = tree::of(&root);
    change(&root);
    let changed = tree::of(&root);
    let before = tree::identities(&root);
    let mut watcher = Watcher::of(&[&root, &root.join("src")]);
    env.workspace(&["rollback"]).ok();
    let told = [
        ("changed", "modify"),
        ("removed", "create"),
        ("mode", "modify"),
        ("added", "delete"),
        ("type", "delete"),
        ("type", "create"),
        ("link", "create"),
        ("new", "delete"),
        ("old", "create"),
    ];
    watcher.hears(&told);
    assert!(!watcher.heard.iter().any(|(name, _)| name == "kept"));
    tree::same("rollback", &wanted, &tree::of(&root));
    let after = tree::identities(&root);
    assert_eq!(after[&b"src/kept"[..]], before[&b"src/kept"[..]]);
    assert_eq!(after[&b"src/mode"[..]].0, before[&b"src/mode"[..]].0);
    let mut watcher = Watcher::of(&[&root, &root.join("src")]);
    env.workspace(&["undo"]).ok();
    watcher.hears(&[
        ("changed", "modify"),
        ("removed", "delete"),
        ("added", "create"),
        ("type", "delete"),
        ("type", "create"),
        ("new", "create"),
        ("old", "delete"),
    ]);
    tree::same("undo", &changed, &tree::of(&root));
}

#[test]
fn a_watched_workspace_stops_at_once_after_a_rollback() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "empty"]).id();
    for i in 0..2000 {
        fs::write(root.join(format!("f{i}")), "x").unwrap();
    }
    let watcher = Watcher::of(&[&root]);
    env.workspace(&["rollback"]).ok();
    env.workspace(&["stop"]).ok();
    drop(watcher);
    assert!(mount::below(&root).is_empty());
}

#[test]
fn changes_made_while_watchers_are_told_are_kept() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "empty"]).id();
    let _watcher = Watcher::of(&[&root]);
    for round in 0..10 {
        for i in 0..100 {
            fs::write(root.join(format!("f{i}")), "before").unwrap();
        }
        env.workspace(&["rollback"]).ok();
        // The same names come again while the kernel is being told that they have gone.
        for i in (0..100).rev() {
            fs::write(root.join(format!("f{i}")), "after").unwrap();
        }
        for i in 0..100 {
            let text = fs::read_to_string(root.join(format!("f{i}"))).unwrap();
            assert_eq!(text, "after", "round {round}, f{i}");
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), 100);
        env.workspace(&["rollback"]).ok();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
}

#[test]
fn what_is_watched_is_heard_of_also_after_the_daemon_was_killed() {
    let Some(mut env) = Env::new() else { return };
    env.keep_mounts();
    let root = env.start();
    fs::write(root.join("file"), "one").unwrap();
    env.workspace(&["checkpoint", "one"]).ok();
    let mut watcher = Watcher::of(&[&root]);
    env.kill_daemon();
    fs::write(root.join("new"), "x").unwrap();
    watcher.hears(&[("new", "create"), ("new", "modify")]);
    fs::write(root.join("file"), "two").unwrap();
    env.kill_daemon();
    watcher.heard.clear();
    env.workspace(&["rollback", "one"]).ok();
    watcher.hears(&[("new", "delete"), ("file", "modify")]);
    assert_eq!(fs::read(root.join("file")).unwrap(), b"one");
    env.workspace(&["stop"]).ok();
}
