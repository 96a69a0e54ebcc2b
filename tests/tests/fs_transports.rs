//! The same calls on two mounts of equal projects, one by our own way to the kernel and one by the crate `fuser`:
//! the same results, requests and trees, but for the list in docs/transport.md (`fs_transport_list.rs`).
//! Random calls are in `fs_transport_random.rs`, for they change the umask and the directory of the whole process.

#![allow(clippy::unwrap_used)]

use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io::{Read, Seek, Write};
use std::path::Path;
use tests::edges;
use tests::env::Env;
use tests::everything::one_of_everything;
use tests::requests;
use tests::transports::{Both, same_requests};
use tests::tree::{self, Tree};
use tests::wait;

#[test]
fn each_kind_of_call_costs_the_same_requests_by_both() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    for call in requests::DATA.iter().chain(requests::NAMES) {
        same_requests(call.name, |attempt| {
            both.each(|env| {
                let place = env.mountpoint().join(format!("{attempt}"));
                fs::create_dir_all(&place).unwrap();
                let mut count = requests::cost(env, &place, call);
                count.remove("statfs");
                count
            })
        });
    }
}

#[test]
fn calls_at_the_edges_give_the_same_by_both() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let play = |attempt: usize| {
        let lines = both.each(|env| edges::play(&env.mountpoint().join(format!("{attempt}"))));
        let [own, other] = &lines;
        for (own, other) in own.iter().zip(other) {
            assert_eq!(own, other, "first by our own way, then by the other");
        }
        assert_eq!(own.len(), other.len());
        assert!(own.len() > 500, "{}", own.len());
    };
    same_requests("calls at the edges", |attempt| {
        both.requests(|| play(attempt))
    });
    let [own, other] = both.each(|env| timeless(&env.mountpoint()));
    tree::same("the trees at the end", &own, &other);
}

/// The tree without times that a clock gave.
fn timeless(root: &Path) -> Tree {
    let mut tree = tree::of(root);
    for entry in tree.values_mut() {
        if (1_500_000_000..4_000_000_000).contains(&entry.mtime.0) {
            entry.mtime = (0, 0);
        }
    }
    tree
}

/// Reads all of a file that is held open.
fn all_of(mut file: &fs::File) -> std::io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Names below a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Goes back and forth, and through branches, while files and a directory are held; gives what they showed.
fn held(env: &Env) -> Vec<String> {
    let root = env.mountpoint();
    let mut lines = Vec::new();
    let mut say = |what: &str, gave: &dyn std::fmt::Debug| lines.push(format!("{what}: {gave:?}"));
    let open = |path: &Path| {
        let file = fs::OpenOptions::new().read(true).append(true).open(path);
        file.unwrap()
    };
    fs::create_dir(root.join("dir")).unwrap();
    for name in ["kept", "changed", "dir/inner"] {
        fs::write(root.join(name), format!("first of {name}\n")).unwrap();
    }
    env.workspace(&["checkpoint", "first"]).id();
    let files = ["kept", "changed", "dir/inner", "project"].map(|name| open(&root.join(name)));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(root.join("dir"), flags, Mode::empty()).unwrap();
    fs::write(root.join("changed"), "second, and longer than the first\n").unwrap();
    fs::write(root.join("new"), "made later\n").unwrap();
    fs::remove_file(root.join("dir/inner")).unwrap();
    let new = open(&root.join("new"));
    env.told(env.command(&root, &["branch", "create", "other"]))
        .ok();
    let branch = root.join(".agentvfs/branches/other");
    let in_branch = open(&branch.join("changed"));
    (&in_branch).write_all(b"by the branch\n").unwrap();
    for verb in [&["rollback", "first"][..], &["undo"], &["redo"]] {
        env.workspace_in(&root, &[verb, &["--workspace", "project"]].concat())
            .id_or_pending();
        for (name, file) in ["kept", "changed", "dir/inner", "project"]
            .iter()
            .zip(&files)
        {
            say(
                &format!("{name} held, after {verb:?}"),
                &all_of(file).map_err(|e| e.kind()),
            );
            say("appended", &(&*file).write(b"more\n").map_err(|e| e.kind()));
        }
        say("new held", &all_of(&new).map_err(|e| e.kind()));
        say("of the branch", &all_of(&in_branch).map_err(|e| e.kind()));
        say("names", &names(&root));
        say("names in the branch", &names(&branch));
        let made = rustix::fs::openat(
            &dir,
            "by-descriptor",
            OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        );
        say("made in the held directory", &made.map(drop));
    }
    lines
}

#[test]
fn what_is_held_over_rollback_and_seen_through_branches_is_the_same_by_both() {
    let project = |env: &Env| fs::write(env.project().join("project"), "of the project\n").unwrap();
    let Some(both) = Both::start(project) else {
        return;
    };
    let [own, other] = both.each(held);
    assert!(own.len() > 30);
    assert_eq!(own, other, "first by our own way, then by the other");
    let [own, other] = both.each(|env| timeless(&env.mountpoint()));
    tree::same("the trees at the end", &own, &other);
}

#[test]
fn what_one_has_written_the_other_shows_after_a_restart() {
    let Some(mut env) = Env::new() else { return };
    let root = env.start();
    one_of_everything(&root);
    let wanted = tree::of(&root);
    env.workspace(&["stop"]).ok();
    for name in ["fuser", "own"] {
        env.set_variable("AGENTVFS_TRANSPORT", name);
        env.workspace(&["start", "project"]).ok();
        tree::same(name, &wanted, &tree::of(&root));
        env.workspace(&["stop"]).ok();
    }
}

#[test]
fn a_daemon_does_not_start_with_a_transport_that_its_build_lacks() {
    let Some(mut env) = Env::new() else { return };
    env.set_variable("AGENTVFS_TRANSPORT", "nonsense");
    let told = env.workspace(&["start", "--from", "project"]);
    told.fails(3, "no transport \"nonsense\"");
    wait::until("the daemon is gone", || env.daemons().is_empty());
}
