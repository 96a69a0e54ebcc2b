//! The keeper: what it does beside bringing a daemon back, and what happens without it.

#![allow(clippy::unwrap_used)]

use rustix::fs::inotify;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tests::env::Env;
use tests::rng::{self, Rng};
use tests::skip::{Want, skip};
use tests::{binary, sandbox, wait};

fn kept() -> Option<Env> {
    let mut env = Env::new()?;
    env.keep_mounts();
    Some(env)
}

fn kill(all: &[Pid]) {
    for pid in all {
        let _ = kill_process(*pid, Signal::KILL);
    }
}

/// Waits until there is exactly one process that is none of these.
fn another(all: impl Fn() -> Vec<Pid>, before: &[Pid]) -> Pid {
    wait::until(
        "another process has taken over",
        || matches!(all()[..], [one] if !before.contains(&one)),
    );
    all()[0]
}

#[test]
fn the_keeper_ends_with_the_last_mount() {
    let Some(env) = kept() else { return };
    env.start();
    assert_eq!(env.keepers().len(), 1);
    env.workspace(&["stop"]).ok();
    wait::until("daemon and keeper have ended", || {
        env.keepers().is_empty() && env.daemons().is_empty()
    });
    assert!(!env.home().join("keeper.sock").exists());
    let root = env.start();
    fs::write(root.join("a"), b"a").unwrap();
    env.kill_daemon();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
    env.workspace(&["stop"]).ok();
    wait::until("the second ones, too", || {
        env.keepers().is_empty() && env.daemons().is_empty()
    });
}

#[test]
fn a_keeper_that_dies_is_replaced_and_the_daemon_goes_on() {
    let Some(env) = kept() else { return };
    let root = env.start();
    fs::write(root.join("a"), b"before").unwrap();
    let (keepers, daemons) = (env.keepers(), env.daemons());
    kill(&keepers);
    another(|| env.keepers(), &keepers);
    assert_eq!(env.daemons(), daemons);
    wait::until("the new keeper holds the mount", || {
        let keeper = env.keepers()[0].as_raw_nonzero();
        let open = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
        let is_device = |fd: fs::DirEntry| {
            fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("/dev/fuse"))
        };
        open.flatten().any(is_device)
    });
    let mut held = File::open(root.join("a")).unwrap();
    env.kill_daemon();
    let mut read = String::new();
    held.read_to_string(&mut read).unwrap();
    assert_eq!(read, "before");
    fs::write(root.join("a"), b"after").unwrap();
    another(|| env.daemons(), &daemons);
}

/// A core dump waits for all threads, of which one may wait for the mount for ever.
#[test]
fn a_daemon_that_aborts_dumps_no_core_and_has_a_successor() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let held = File::create(root.join("a")).unwrap();
    let daemons = env.daemons();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let place = fs::read_link(format!("/proc/{}/cwd", daemons[0].as_raw_nonzero())).unwrap();
    let cores = || {
        let names = fs::read_dir(&place).unwrap().flatten();
        let cores = names.filter(|entry| entry.file_name().as_bytes().starts_with(b"core"));
        cores.map(|entry| entry.path()).collect::<BTreeSet<_>>()
    };
    if pattern.contains(['|', '/']) || prlimit(Some(daemons[0]), Resource::Core, unlimited).is_err()
    {
        return skip(
            Want::Machine,
            "core dumps are not written where a process works",
        );
    }
    let before = cores();
    kill_process(daemons[0], Signal::ABORT).unwrap();
    another(|| env.daemons(), &daemons);
    (&held).write_all(b"after").unwrap();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"after");
    assert_eq!(cores(), before);
}

#[test]
fn with_the_keeper_killed_too_the_next_command_brings_the_workspace_back() {
    let Some(env) = kept() else { return };
    let root = env.start();
    fs::write(root.join("a"), b"a").unwrap();
    kill(&env.keepers());
    kill(&env.daemons());
    wait::until("both are dead", || {
        kill(&env.keepers());
        kill(&env.daemons());
        env.keepers().is_empty() && env.daemons().is_empty()
    });
    assert!(fs::write(root.join("b"), b"b").is_err());
    env.workspace(&["log", "project"]).ok();
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
    assert_eq!(env.keepers().len(), 1, "it is kept again");
    fs::write(root.join("b"), b"b").unwrap();
    env.kill_daemon();
    assert_eq!(fs::read(root.join("b")).unwrap(), b"b");
}

/// Changes that the successor of a daemon had to replay, as status tells of them.
fn replayed(env: &Env) -> usize {
    let said = env.workspace(&["status"]).ok();
    let line = said.lines().find(|line| line.starts_with("recovered="));
    let words = line.unwrap_or_else(|| panic!("nothing was replayed: {said}"));
    let mut numbers = words.split_whitespace().filter_map(|w| w.parse().ok());
    numbers.next().unwrap_or_else(|| panic!("{words}"))
}

fn journal_bytes(env: &Env) -> usize {
    let said: serde_json::Value =
        serde_json::from_str(&env.workspace(&["status", "--json"]).ok()).unwrap();
    said["journal_bytes"].as_u64().unwrap() as usize
}

/// It is never idle here: a successor would have all to replay.
#[test]
fn a_successor_has_little_to_replay_though_changes_go_on() {
    const MANY: usize = 12_000;
    /// What a record takes at least.
    const LEAST_BYTES: usize = 60;
    let Some(env) = kept() else { return };
    let root = env.start();
    let mode =
        |n: usize| fs::Permissions::from_mode(if n.is_multiple_of(2) { 0o600 } else { 0o644 });
    fs::write(root.join("a"), b"a").unwrap();
    for n in 0..MANY {
        fs::set_permissions(root.join("a"), mode(n)).unwrap();
    }
    let mut last = MANY;
    wait::until("the journal is sealed while changes go on", || {
        last += 1;
        fs::set_permissions(root.join("a"), mode(last)).unwrap();
        journal_bytes(&env) < MANY * LEAST_BYTES / 2
    });
    env.kill_daemon();
    fs::set_permissions(root.join("a"), mode(last + 1)).unwrap();
    assert!(replayed(&env) < MANY / 2, "{}", replayed(&env));
    let shown = fs::metadata(root.join("a")).unwrap().permissions().mode();
    assert_eq!(shown & 0o777, mode(last + 1).mode());
}

#[test]
fn a_daemon_that_stands_still_for_a_while_is_not_ended() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let daemon = env.daemons();
    kill_process(daemon[0], Signal::STOP).unwrap();
    let writer = std::thread::spawn({
        let place = root.join("a");
        move || fs::write(place, b"a")
    });
    wait::let_run(std::time::Duration::from_secs(2));
    assert!(!writer.is_finished());
    kill_process(daemon[0], Signal::CONT).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(env.daemons(), daemon);
}

#[test]
#[ignore = "takes two minutes; .ci/long kept runs it"]
fn a_daemon_that_hangs_is_ended_and_replaced() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let daemon = env.daemons();
    kill_process(daemon[0], Signal::STOP).unwrap();
    fs::write(root.join("a"), b"a").unwrap();
    let after = env.daemons();
    assert!(after.len() == 1 && after != daemon, "{daemon:?} {after:?}");
    assert!(env.log().contains("the daemon hangs; ending it"));
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
}

#[test]
fn another_build_goes_on_with_mounts_that_are_in_use() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let new = binary::other_build(&env.path("new"));
    let mut held = fs::OpenOptions::new();
    let mut held = held
        .read(true)
        .append(true)
        .create(true)
        .open(root.join("log"))
        .unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn({
            let over = &over;
            move || {
                let mut lines = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    held.write_all(format!("{lines:08}\n").as_bytes()).unwrap();
                    lines += 1;
                }
                lines
            }
        });
        let handed_over = std::panic::catch_unwind(|| {
            for program in [new.as_path(), binary::agentvfs(), new.as_path()] {
                wait::let_run(std::time::Duration::from_millis(100));
                let before = env.daemons();
                let mut command = env.program(program);
                command.args(["workspace", "start", "project"]);
                env.told(command).ok();
                let after = env.daemons();
                assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
            }
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let lines: u64 = writer.join().unwrap();
        assert!(handed_over.is_ok());
        let expected: String = (0..lines).map(|n| format!("{n:08}\n")).collect();
        assert!(fs::read_to_string(root.join("log")).unwrap() == expected);
    });
    let log = fs::read_to_string(env.home().join("daemon.log")).unwrap();
    let last = log.matches("another daemon goes on with the mounts");
    assert_eq!(last.count(), 3, "{log}");
    env.workspace(&["stop"]).ok();
}

#[test]
fn a_command_in_a_sandbox_goes_on() {
    let Some(mut env) = sandbox::env(&[]) else {
        return;
    };
    env.workspace(&["stop"]).ok();
    wait::until("the daemon without a keeper has ended", || {
        env.daemons().is_empty()
    });
    env.keep_mounts();
    env.start();
    let script = "touch begun; until [ -e go ]; do sleep 0.01; done; cat kept; echo x > done; pwd";
    let mut command = sandbox::command(&env, &["--session", "s", "sh", "-c", script]);
    let piped = std::process::Stdio::piped;
    let run = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    let view = env.mountpoint().join(".agentvfs/branches/s");
    wait::until("the command runs", || view.join("begun").exists());
    fs::write(view.join("kept"), b"kept\n").unwrap();
    for _ in 0..3 {
        env.kill_daemon();
        assert!(view.join("begun").exists());
    }
    fs::write(view.join("go"), b"").unwrap();
    let told = env.finish(run, "the run");
    let project = env.project().display().to_string();
    assert_eq!(told.clone().ok(), format!("kept\n{project}\n"));
    assert_eq!(fs::read(view.join("done")).unwrap(), b"x\n");
}

#[test]
fn a_project_that_its_mount_covers_is_found_again() {
    let Some(env) = kept() else { return };
    let project = env.path("project");
    fs::create_dir(project.join("d")).unwrap();
    fs::write(project.join("d/a"), b"of the project").unwrap();
    let place = project.to_str().unwrap();
    env.workspace(&["start", "--from", place, "--mount", place])
        .ok();
    for _ in 0..3 {
        env.kill_daemon();
        assert_eq!(fs::read(project.join("d/a")).unwrap(), b"of the project");
        assert_eq!(env.workspace(&["status", "project"]).status, 0);
    }
    fs::write(project.join("d/b"), b"new").unwrap();
    env.kill_daemon();
    assert_eq!(
        env.workspace(&["diff", "project", "--name-status"]).ok(),
        "A\td/b\n"
    );
    env.workspace(&["stop"]).ok();
    assert!(!project.join("d/b").exists());
}

#[test]
fn branches_and_snapshots_go_on_and_numbers_are_not_given_twice() {
    let Some(env) = kept() else { return };
    let root = env.start();
    let branches = root.join(".agentvfs/branches");
    fs::write(root.join("f"), b"main").unwrap();
    env.workspace(&["checkpoint", "one"]).ok();
    let branch = |args: &[&str]| {
        env.told(env.command(&env.path(""), &[&["branch"], args].concat()))
            .ok()
    };
    branch(&["create", "a"]);
    branch(&["create", "b"]);
    fs::write(branches.join("a/f"), b"a").unwrap();
    fs::write(branches.join("b/f"), b"b").unwrap();
    let held: Vec<File> = ["a/f", "b/f"]
        .map(|f| File::open(branches.join(f)).unwrap())
        .into();
    let snapshot = File::open(root.join(".agentvfs/snapshots/one/f")).unwrap();
    env.kill_daemon();
    let text = |mut file: &File| {
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).map(|_| text)
    };
    assert_eq!(
        held.iter().map(|f| text(f).unwrap()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    // What a program holds in a snapshot may be out of date, but is never something else.
    assert!(text(&snapshot).is_err() || text(&snapshot).unwrap() == "main");
    assert_eq!(
        fs::read(root.join(".agentvfs/snapshots/one/f")).unwrap(),
        b"main"
    );
    fs::write(root.join("f"), b"later").unwrap();
    env.workspace(&["checkpoint", "two"]).ok();
    assert_eq!(
        fs::read(root.join(".agentvfs/snapshots/two/f")).unwrap(),
        b"later"
    );
    assert!(text(&snapshot).is_err() || text(&snapshot).unwrap() == "main");
    drop(held);
    branch(&["delete", "b"]);
    env.kill_daemon();
    branch(&["create", "c", "--from", "one"]);
    assert_eq!(fs::read(branches.join("c/f")).unwrap(), b"main");
    assert_eq!(fs::read(branches.join("a/f")).unwrap(), b"a");
}

#[test]
fn what_is_held_in_a_snapshot_is_stale_after_a_crash_and_found_again_by_its_path() {
    let Some(env) = kept() else { return };
    let root = env.start();
    fs::create_dir(root.join("d")).unwrap();
    let large = b"of the snapshot".repeat(100_000);
    fs::write(root.join("d/f"), &large).unwrap();
    env.workspace(&["checkpoint", "one"]).ok();
    fs::write(root.join("d/f"), b"later").unwrap();
    let view = root.join(".agentvfs/snapshots/one");
    let (dir, mut file) = (
        File::open(view.join("d")).unwrap(),
        File::open(view.join("d/f")).unwrap(),
    );
    let mut beginning = [0; 15];
    file.read_exact(&mut beginning).unwrap();
    env.kill_daemon();
    let stale = rustix::io::Errno::STALE;
    let mut read = Vec::new();
    let failed = file.read_to_end(&mut read).unwrap_err();
    assert_eq!(rustix::io::Errno::from_io_error(&failed), Some(stale));
    assert!(large[15..].starts_with(&read), "pages that the kernel has");
    let failed = rustix::fs::openat(
        &dir,
        "not looked up before",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    assert_eq!(failed.unwrap_err(), stale);
    assert_eq!(fs::read(view.join("d/f")).unwrap(), large);
    let names = fs::read_dir(view.join("d")).unwrap();
    assert_eq!(names.count(), 1);
    assert_eq!(fs::read(root.join("d/f")).unwrap(), b"later");
    drop((dir, file));
    env.workspace(&["stop"]).ok();
}

/// What the files of a directory have, by name.
fn contents(root: &Path, names: &[String]) -> BTreeMap<String, String> {
    let text = |name: &String| match fs::read_to_string(root.join(name)) {
        Ok(text) => Some((name.clone(), text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{name}: {error}"),
    };
    names.iter().filter_map(text).collect()
}

#[test]
fn a_rollback_that_the_daemon_does_not_live_through_shows_one_state_or_the_other() {
    let Some(env) = kept() else { return };
    let root = env.start();
    // With a watcher the daemon makes calls on its own mount, which must not count where the successor gets them.
    let watcher = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watcher, &root, inotify::WatchFlags::ALL_EVENTS).unwrap();
    let names: Vec<String> = (0..60).map(|n| format!("f{n}")).collect();
    let write = |names: &[String], text: &str| {
        for name in names {
            fs::write(root.join(name), text.repeat(100)).unwrap();
        }
    };
    write(&names[..40], "first");
    env.workspace(&["checkpoint", "first"]).ok();
    write(&names[20..], "the second");
    for name in &names[..20] {
        fs::remove_file(root.join(name)).unwrap();
    }
    env.workspace(&["checkpoint", "second"]).ok();
    let of = |names: &[String], text: &str| -> BTreeMap<String, String> {
        let text = text.repeat(100);
        names
            .iter()
            .map(|name| (name.clone(), text.clone()))
            .collect()
    };
    let states = [of(&names[..40], "first"), of(&names[20..], "the second")];
    let both = &names[20..40];
    let mut held: Vec<File> = both
        .iter()
        .map(|n| File::open(root.join(n)).unwrap())
        .collect();
    let mut rng = Rng::new(rng::seed());
    let (mut done, mut cut) = (0, 0);
    for round in 0..40 {
        let to = round % 2;
        let status = std::thread::scope(|scope| {
            let label = ["first", "second"][to];
            let env = &env;
            let command = scope.spawn(move || env.workspace(&["rollback", "--to", label]).status);
            wait::let_run(std::time::Duration::from_micros(rng.below(60_000)));
            env.strike_daemon();
            if rng.below(2) == 0 {
                // The successor, too, perhaps before it has the kernel drop what it had.
                wait::let_run(std::time::Duration::from_micros(rng.below(200_000)));
                env.strike_daemon();
            }
            command.join().unwrap()
        });
        env.workspace(&["status", "project"]).ok();
        let shown = |state: &BTreeMap<String, String>| contents(&root, &names) == *state;
        if status == 0 {
            wait::until("the rollback is seen", || shown(&states[to]));
            done += 1;
        } else {
            wait::until("one of the states is seen", || states.iter().any(shown));
            cut += 1;
        }
        let seen = contents(&root, both);
        wait::until("open files show the same", || {
            both.iter().zip(&mut held).all(|(name, file)| {
                let mut text = String::new();
                std::io::Seek::rewind(file).unwrap();
                file.read_to_string(&mut text).unwrap();
                text == seen[name]
            })
        });
    }
    println!("{done} rollbacks were done, {cut} were cut off");
}
