//! An interrupted apply, update, export, import or check ends the work, not only the command: nothing is left, or all is
//! done and said to be.

#![allow(clippy::unwrap_used)]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use tests::env::{Env, Told};
use tests::rng::Rng;
use tests::{tree, wait};

/// What takes long enough to be interrupted.
const BYTES: usize = 96 << 20;
/// Files that take long enough to be written.
const MANY: usize = 2000;
/// Times that an interrupt may come when all is done already.
const TRIES: usize = 12;

fn noise(seed: u64) -> Vec<u8> {
    Rng::new(seed).bytes(BYTES)
}

fn begin(env: &Env, args: &[&str]) -> Child {
    env.command(&env.path("."), args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn told(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path("."), args))
}

/// True once the command listens to interrupts (it has SIGINT blocked then), or has ended.
fn listens(child: &mut Child) -> bool {
    if child.try_wait().unwrap().is_some() {
        return true;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.map(|bits| u64::from_str_radix(bits.trim(), 16).unwrap_or(0));
    blocked.is_some_and(|bits| bits & 0b10 != 0)
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    // It may have ended already.
    let _ = kill_process(pid, signal);
}

/// Interrupts a command once it listens and `is_at_work`; true where that was in time. Then it says so.
fn interrupted(env: &Env, args: &[&str], is_at_work: impl Fn() -> bool) -> bool {
    let mut child = begin(env, args);
    wait::until("the command works", || {
        listens(&mut child) && (is_at_work() || child.try_wait().unwrap().is_some())
    });
    send(&child, Signal::INT);
    let told = env.finish(child, "an interrupted command");
    match told.status {
        130 => {
            assert!(
                told.err.contains("cancelled; nothing was changed"),
                "{told:?}"
            );
            assert_eq!(told.out, "", "{told:?}");
            true
        }
        // All was done, or was past the point from which on it cannot be cancelled.
        0 => false,
        _ => panic!("{told:?}"),
    }
}

/// Repeats what may come too late until it is in time.
fn in_time(mut once: impl FnMut() -> bool) {
    assert!((0..TRIES).any(|_| once()), "nothing was cancelled");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(name)
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn has(directory: &Path, part: &str) -> bool {
    names(directory).iter().any(|name| name.contains(part))
}

#[test]
fn an_interrupted_export_or_import_leaves_nothing() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("noise"), noise(1)).unwrap();
    env.start();
    env.imported();
    let out = env.path("out");
    fs::create_dir(&out).unwrap();
    let export = ["export", "project", "out/x.db"];
    in_time(|| {
        let cancelled = interrupted(&env, &export, || has(&out, ".partial"));
        if cancelled {
            assert_eq!(names(&out), Vec::<String>::new());
        } else {
            assert_eq!(names(&out), ["x.db"]);
            fs::remove_file(out.join("x.db")).unwrap();
        }
        cancelled
    });
    // A command that is killed does not leave it to be made either.
    let mut child = begin(&env, &export);
    wait::until("the export works", || {
        has(&out, ".partial") || child.try_wait().unwrap().is_some()
    });
    send(&child, Signal::KILL);
    child.wait().unwrap();
    wait::until("the export has ended", || !has(&out, ".partial"));
    let _ = fs::remove_file(out.join("x.db"));
    told(&env, &export).ok();
    let import = ["import", "out/x.db", "--workspace", "copy"];
    in_time(|| {
        let cancelled = interrupted(&env, &import, || true);
        let is_there = told(&env, &["workspace", "list"]).ok().contains("copy");
        assert_eq!(is_there, !cancelled);
        if is_there {
            told(&env, &["workspace", "delete", "copy", "--yes"]).ok();
        }
        cancelled
    });
    told(&env, &import).ok();
}

#[test]
fn an_interrupted_apply_leaves_the_project_as_it_was() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("text"), "text\n").unwrap();
    let root = env.start();
    env.imported();
    let project = env.project();
    let mut seed = 10;
    in_time(|| {
        seed += 1;
        fs::write(root.join("noise"), noise(seed)).unwrap();
        fs::write(root.join("text"), format!("{seed}\n")).unwrap();
        env.workspace(&["checkpoint", "project"]).id();
        let before = tree::of(&project);
        let apply = ["workspace", "apply", "project"];
        let cancelled = interrupted(&env, &apply, || has(&project, ".agentvfs-apply-"));
        if cancelled {
            tree::same("cancelled", &before, &tree::of(&project));
        }
        cancelled
    });
    env.workspace(&["apply", "project"]).ok();
    assert_eq!(
        fs::read_to_string(project.join("text")).unwrap(),
        format!("{seed}\n")
    );
    assert_eq!(names(&project), ["noise", "text"]);
}

#[test]
fn an_interrupted_update_leaves_the_branch_as_it_was() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("text"), "text\n").unwrap();
    let root = env.start();
    env.imported();
    fs::write(root.join("own"), "of the branch\n").unwrap();
    let project = env.project();
    let mut seed = 20;
    in_time(|| {
        seed += 1;
        fs::write(project.join("noise"), noise(seed)).unwrap();
        fs::write(project.join("text"), format!("{seed}\n")).unwrap();
        let before = tree::of(&root);
        let cancelled = interrupted(&env, &["workspace", "update", "project"], || true);
        if cancelled {
            tree::same("cancelled", &before, &tree::of(&root));
        }
        cancelled
    });
    env.workspace(&["update", "project"]).ok();
    let text = |name| fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(
        (text("text"), text("own")),
        (format!("{seed}\n"), "of the branch\n".into())
    );
    assert!(fs::read(root.join("noise")).unwrap() == noise(seed));
}

#[test]
fn stop_cancels_what_is_imported_into_the_workspace() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("noise"), noise(2)).unwrap();
    env.start();
    env.imported();
    told(&env, &["export", "project", "x.db"]).ok();
    in_time(|| {
        let import = ["import", "x.db", "-w", "project", "--branch", "b"];
        let mut child = begin(&env, &import);
        wait::until("the command works", || listens(&mut child));
        env.workspace(&["stop", "project"]).ok();
        let done = env.finish(child, "an import");
        env.workspace(&["start", "project"]).ok();
        let branches = told(&env, &["branch", "list", "-w", "project"]).ok();
        assert_eq!(
            branches.contains("\nb\t"),
            done.status == 0,
            "{done:?} {branches}"
        );
        if done.status != 0 {
            done.fails(1, "cancelled");
            return true;
        }
        told(&env, &["branch", "delete", "b", "-w", "project"]).ok();
        false
    });
}

#[test]
fn an_interrupted_restore_to_a_directory_leaves_nothing_there() {
    let Some(env) = Env::new() else { return };
    for n in 0..MANY {
        fs::write(env.project().join(format!("f{n}")), "x").unwrap();
    }
    env.start();
    env.imported();
    let to = env.path("out");
    let args = ["restore", ".", "--to", to.to_str().unwrap()];
    in_time(|| {
        let _ = fs::remove_dir_all(&to);
        let mut child = begin(&env, &args);
        wait::until("the command writes", || {
            to.join("f1").exists() || child.try_wait().unwrap().is_some()
        });
        send(&child, Signal::INT);
        let told = env.finish(child, "an interrupted restore");
        let written = fs::read_dir(&to).map_or(0, Iterator::count);
        match told.status {
            130 => {
                assert!(told.err.contains("nothing was kept of it"), "{told:?}");
                assert_eq!(written, 0, "{told:?}");
                true
            }
            0 => {
                assert_eq!(written, MANY, "{told:?}");
                false
            }
            _ => panic!("{told:?}"),
        }
    });
}

/// Where no daemon runs, the command itself looks. It waits for the store, which this test has.
#[test]
fn an_interrupted_check_without_a_daemon_says_so_and_can_be_run_again() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("f"), "x").unwrap();
    env.start();
    env.imported();
    env.workspace(&["stop", "project"]).ok();
    wait::until("the daemon has ended", || env.daemons().is_empty());
    in_time(|| {
        let store = File::open(env.home().join("lock")).unwrap();
        store.lock().unwrap();
        let mut child = begin(&env, &["fsck"]);
        wait::until("the command listens", || listens(&mut child));
        send(&child, Signal::INT);
        wait::until("it was heard", || !is_pending(&child));
        drop(store);
        let told = env.finish(child, "an interrupted check");
        match told.status {
            0 => false,
            _ => {
                assert!(
                    told.err.contains("\nhint: run the command again"),
                    "{told:?}"
                );
                told.fails(130, "cancelled; nothing was changed");
                true
            }
        }
    });
    told(&env, &["fsck"]).ok();
}

/// Whether a signal was sent that nobody has taken yet.
fn is_pending(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    pending.is_some_and(|bits| !bits.trim().trim_matches('0').is_empty())
}
