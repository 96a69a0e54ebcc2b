//! Programs that hold on while the live tree is switched: descriptors, logs opened for appending,
//! mappings, shells that stand in directories. What comes back is whole for them, and for everybody else.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tests::env::Env;
use tests::loggers::{EndOnDrop, ROUNDS, numbers, record};
use tests::shell::Shell;
use tests::sys::{Mapping, PAGE};
use tests::wait;

fn append(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.append(true).open(path).unwrap()
}

/// A directory works: it lists exactly these names, and one can make and remove something in it.
#[track_caller]
fn is_alive(dir: &Path, names: &[&str]) {
    let mut found: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, names, "{}", dir.display());
    let probe = dir.join("probe");
    fs::write(&probe, "x").unwrap();
    assert_eq!(fs::read(&probe).unwrap(), b"x");
    fs::remove_file(&probe).unwrap();
}

#[test]
fn a_directory_that_was_removed_while_held_comes_back_alive() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let src = root.join("src");
    fs::create_dir_all(src.join("deep/deeper")).unwrap();
    for name in ["a", "deep/b", "deep/deeper/c"] {
        fs::write(src.join(name), name).unwrap();
    }
    env.workspace(&["checkpoint", "whole"]).id();
    let numbers = || {
        let of = |name: &str| fs::metadata(src.join(name)).unwrap().ino();
        ["", "a", "deep", "deep/deeper", "deep/deeper/c"].map(of)
    };
    let before = numbers();
    let held = File::open(src.join("a")).unwrap();
    let mut shell = Shell::start(&env, &src.join("deep/deeper"));
    for command in [&["rollback"][..], &["restore", "--ref", "whole", "src"]] {
        let inner = File::open(src.join("deep/b")).unwrap();
        fs::remove_dir_all(&src).unwrap();
        env.workspace(command).id();
        is_alive(&src, &["a", "deep"]);
        is_alive(&src.join("deep"), &["b", "deeper"]);
        is_alive(&src.join("deep/deeper"), &["c"]);
        assert_eq!(fs::read(src.join("deep/b")).unwrap(), b"deep/b");
        assert_eq!(numbers(), before, "numbers that are shown stay");
        let mut bytes = [0; 1];
        held.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"a");
        drop(inner);
    }
    // The shell's own directory is one that was removed, as on any file system.
    assert_ne!(shell.say("test -e c"), 0);
    shell.do_itself(&format!("cd '{}'", src.join("deep/deeper").display()));
    assert_eq!(shell.say("test -e c && echo x > d && rm d"), 0);
}

#[test]
fn a_directory_that_was_renamed_over_while_held_comes_back_alive() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    for name in ["full", "empty"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::write(root.join("full/a"), "a").unwrap();
    env.workspace(&["checkpoint", "both"]).id();
    let held = File::open(root.join("empty")).unwrap();
    let shell = Shell::start(&env, &root.join("empty"));
    fs::rename(root.join("full"), root.join("empty")).unwrap();
    env.workspace(&["rollback"]).id();
    is_alive(&root.join("empty"), &[]);
    is_alive(&root.join("full"), &["a"]);
    env.workspace(&["undo"]).id_or_pending();
    is_alive(&root.join("empty"), &["a"]);
    env.workspace(&["redo"]).id_or_pending();
    is_alive(&root.join("empty"), &[]);
    drop((held, shell));
    let held = File::open(root.join("empty")).unwrap();
    fs::rename(root.join("full"), root.join("empty")).unwrap();
    fs::rename(root.join("empty"), root.join("elsewhere")).unwrap();
    env.workspace(&["rollback"]).id();
    is_alive(&root.join("empty"), &[]);
    is_alive(&root.join("full"), &["a"]);
    drop(held);
}

#[test]
fn a_directory_that_a_rollback_removed_is_the_same_for_those_in_it_after_undo() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "without"]).id();
    let dir = root.join("new/deep");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    let mut shell = Shell::start(&env, &dir);
    for _ in 0..3 {
        env.workspace(&["rollback", "without"]).id();
        assert_ne!(shell.say("test -e file"), 0);
        env.workspace(&["undo"]).id_or_pending();
        let alive = "test -e file && ls . && echo y > other && rm other && cd .. && test -d deep";
        assert_eq!(shell.say(alive), 0);
    }
    // So is one that was removed by path, which is nothing that the kernel did.
    env.workspace(&["checkpoint", "with"]).id();
    let remove = env.command(&env.path(""), &["fs", "rm", "--recursive", "new"]);
    env.told(remove).ok();
    assert_ne!(shell.say("test -e file"), 0);
    env.workspace(&["rollback"]).id();
    assert_eq!(shell.say("test -e file && echo y > other && rm other"), 0);
    is_alive(&dir, &["file"]);
}

#[test]
fn a_name_in_a_directory_that_went_does_not_come_back_with_it() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let checkpoint = |label: &str| drop(env.workspace(&["checkpoint", label]).id());
    fs::write(root.join("file"), "file").unwrap();
    checkpoint("without");
    fs::create_dir_all(root.join("dir/inner")).unwrap();
    checkpoint("with");
    for path in ["dir/name", "dir/inner/name"] {
        fs::rename(root.join("file"), root.join(path)).unwrap();
        let held = File::open(root.join(path)).unwrap();
        env.workspace(&["rollback", "without"]).id();
        env.workspace(&["rollback", "with"]).id();
        is_alive(&root.join("dir/inner"), &[]);
        assert!(!root.join(path).exists(), "{path}");
        fs::write(root.join(path), "new").unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"file");
        drop(held);
        fs::remove_file(root.join(path)).unwrap();
    }
}

#[test]
fn an_appender_whose_file_grew_back_writes_at_its_end() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let path = root.join("log");
    fs::write(&path, "one\ntwo\n").unwrap();
    env.workspace(&["checkpoint", "two"]).id();
    let mut log = append(&path);
    fs::write(&path, "").unwrap();
    env.workspace(&["rollback"]).id();
    log.write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
    let id = env.workspace(&["checkpoint", "three"]).id();
    let stored = root.join(".agentvfs/snapshots").join(id).join("log");
    assert_eq!(fs::read_to_string(stored).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn appenders_write_at_the_end_where_the_kernel_asks_for_no_permission() {
    let Some(env) = Env::new() else { return };
    let start = ["start", "--from", "project", "--allow-other=false"];
    env.workspace(&start).ok();
    let path = env.mountpoint().join("log");
    for (rest, back) in [("", "one\ntwo\n"), ("one\ntwo\nand more\n", "one\n")] {
        fs::write(&path, back).unwrap();
        env.workspace(&["checkpoint"]).id();
        let mut old = append(&path);
        fs::write(&path, rest).unwrap();
        env.workspace(&["rollback"]).id();
        append(&path).write_all(b"new\n").unwrap();
        old.write_all(b"old\n").unwrap();
        let now = fs::read_to_string(&path).unwrap();
        assert_eq!(now, format!("{back}new\nold\n"));
    }
}

#[test]
fn what_fs_write_makes_of_a_file_is_where_an_appender_goes_on() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let path = root.join("log");
    fs::write(&path, "a long first line\n").unwrap();
    let mut log = append(&path);
    log.write_all(b"second\n").unwrap();
    fs::write(env.path("short"), "short\n").unwrap();
    let mut write = env.command(&env.path(""), &["fs", "write", "log"]);
    write.stdin(File::open(env.path("short")).unwrap());
    env.told(write).ok();
    log.write_all(b"third\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "short\nthird\n");
}

#[test]
fn mappings_and_copies_reach_as_far_as_a_file_that_grew() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let path = root.join("data");
    let long: Vec<u8> = (0..4 * PAGE).map(|i| (i / 7) as u8).collect();
    fs::write(&path, &long).unwrap();
    env.workspace(&["checkpoint", "long"]).id();
    let options = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap()
    };
    let file = options(&path);
    let mapping = Mapping::new(&file, 4).unwrap();
    file.set_len(100).unwrap();
    env.workspace(&["rollback"]).id();
    let word = |page: usize| u64::from_le_bytes(long[page * PAGE..][..8].try_into().unwrap());
    assert_eq!(
        mapping.get(3),
        word(3),
        "past the old end there is no signal"
    );
    let out = File::create(env.path("sent")).unwrap();
    let mut sent = 0;
    let mut offset = 0;
    while sent < long.len() {
        let n = rustix::fs::sendfile(&out, &file, Some(&mut offset), long.len()).unwrap();
        assert!(n > 0, "sendfile ends after {sent} bytes");
        sent += n;
    }
    // From file system to file system there is no such copy.
    let copy = root.join("copied");
    let out = File::create(&copy).unwrap();
    let (mut from, mut copied) = (0, 0);
    while copied < long.len() {
        let n = rustix::fs::copy_file_range(&file, Some(&mut from), &out, None, long.len());
        let n = n.unwrap();
        assert!(n > 0, "copy_file_range ends after {copied} bytes");
        copied += n;
    }
    assert_eq!(fs::read(env.path("sent")).unwrap(), long);
    assert_eq!(fs::read(copy).unwrap(), long);
    mapping.word(2).store(7, Ordering::SeqCst);
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), long.len() as u64);
}

#[test]
fn a_write_by_path_is_in_the_tree_or_in_a_commit_or_has_failed() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "without"]).id();
    let path = root.join("late");
    let end = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !end.load(Ordering::SeqCst) {
                let mut options = OpenOptions::new();
                let file = options.append(true).create(true).open(&path);
                let written = file.and_then(|mut file| file.write(&record(0, number)));
                assert_eq!(written.unwrap(), record(0, number).len());
                number += 1;
                count.store(number, Ordering::SeqCst);
            }
        });
        let ended = EndOnDrop(&end);
        for _ in 0..ROUNDS {
            let before = count.load(Ordering::SeqCst);
            wait::until("the writer goes on", || {
                count.load(Ordering::SeqCst) > before + 2
            });
            env.workspace(&["rollback", "without"]).id();
        }
        drop(ended);
    });
    let mut found = vec![false; count.into_inner() as usize];
    let mut look = |path: &Path| {
        for number in numbers(&fs::read(path).unwrap_or_default(), 1).remove(0) {
            found[number as usize] = true;
        }
    };
    look(&path);
    env.workspace(&["checkpoint", "end"]).id();
    let log = env.workspace(&["log", "--all"]).ok();
    for id in log.lines().filter_map(|line| line.split('\t').next()) {
        look(&root.join(".agentvfs/snapshots").join(id).join("late"));
    }
    let lost: Vec<usize> = (0..found.len()).filter(|n| !found[*n]).collect();
    assert!(
        lost.is_empty(),
        "{} of {}: {lost:?}",
        lost.len(),
        found.len()
    );
}

#[test]
fn a_file_that_is_emptied_at_its_opening_is_the_one_that_the_path_names() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "without"]).id();
    let path = root.join("late");
    let end = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::SeqCst) {
                fs::write(&path, count.load(Ordering::SeqCst).to_string()).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let ended = EndOnDrop(&end);
        for _ in 0..ROUNDS {
            let before = count.load(Ordering::SeqCst);
            wait::until("the writer goes on", || {
                count.load(Ordering::SeqCst) > before + 2
            });
            env.workspace(&["rollback", "without"]).id();
        }
        let before = count.load(Ordering::SeqCst);
        wait::until("the writer goes on", || {
            count.load(Ordering::SeqCst) > before + 2
        });
        drop(ended);
    });
    let last = count.into_inner() - 1;
    assert_eq!(fs::read_to_string(&path).unwrap(), last.to_string());
}

#[test]
fn a_store_into_a_snapshot_does_not_stay() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let bytes = vec![3; PAGE];
    fs::write(root.join("data"), &bytes).unwrap();
    let id = env.workspace(&["checkpoint"]).id();
    let path = root.join(".agentvfs/snapshots").join(id).join("data");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let mapping = Mapping::new(&file, 1).unwrap();
    mapping.word(0).store(7, Ordering::SeqCst);
    assert!(file.sync_all().is_err(), "it cannot be written back");
    wait::until("the page is dropped", || fs::read(&path).unwrap() == bytes);
    assert_eq!(mapping.get(0), u64::from_ne_bytes([3; 8]));
}
