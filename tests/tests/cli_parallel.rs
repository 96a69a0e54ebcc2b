//! Many commands at once, and stopping what is in use.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use tests::env::Env;
use tests::{mount, sys, tree, wait};

fn all(env: &Env, commands: impl Iterator<Item = Vec<String>>) -> Vec<tests::env::Told> {
    let begin = |args: Vec<String>| env.begin(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let children: Vec<Child> = commands.map(begin).collect();
    children
        .into_iter()
        .map(|child| env.finish(child, "one of many"))
        .collect()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn twenty_starts_at_once_are_one_start() {
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("file"), "x").unwrap();
    let told = all(&env, (0..20).map(|_| words("start --from project")));
    let first = told[0].clone().ok();
    for one in told {
        assert_eq!(one.ok(), first);
    }
    assert_eq!(env.daemons().len(), 1);
    assert_eq!(mount::workspaces_below(env.home()), [env.mountpoint()]);
    assert_eq!(fs::read(env.mountpoint().join("file")).unwrap(), b"x");
}

#[test]
fn twenty_starts_after_a_death_bring_it_back_once() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "x").unwrap();
    env.kill_daemon();
    let told = all(
        &env,
        (0..20).map(|i| words(["start project", "log project"][i % 2])),
    );
    told.into_iter().for_each(|one| drop(one.ok()));
    assert_eq!(env.daemons().len(), 1);
    assert_eq!(mount::workspaces_below(env.home()).len(), 1);
    assert_eq!(fs::read(root.join("file")).unwrap(), b"x");
}

#[test]
fn twenty_checkpoints_at_once_are_all_made_and_each_goes_back() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut made = Vec::new();
    for round in 0..3 {
        fs::write(root.join(format!("round{round}")), vec![round + 1; 10_000]).unwrap();
        let state = tree::of(&root);
        let label = |i: usize| format!("r{round}n{i}");
        let told = all(
            &env,
            (0..20).map(|i| words(&format!("checkpoint {}", label(i)))),
        );
        let ids: Vec<String> = told.into_iter().map(|one| one.id()).collect();
        assert!(
            ids.iter().all(|id| *id == ids[0]),
            "nothing changed in between"
        );
        made.extend((0..20).map(|i| (label(i), ids[i].clone())));
        env.workspace(&["rollback", &label(7)]).id();
        tree::same("rollback", &state, &tree::of(&root));
    }
    let log = env.workspace(&["log", "--json"]).ok();
    for (label, id) in made {
        assert!(
            log.contains(&format!("\"{label}\"")) && log.contains(&id),
            "{label}"
        );
    }
}

#[test]
fn checkpoints_of_several_processes_hold_what_each_wrote_before() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let program = tests::binary::agentvfs().display().to_string();
    let script = "i=0; while [ $i -lt 5 ]; do echo $i > f$0; \"$1\" workspace checkpoint p$0n$i || exit 1; i=$((i+1)); done";
    let children: Vec<Child> = (0..8)
        .map(|i| {
            let mut shell = env.program("sh");
            shell
                .args(["-c", script, &i.to_string(), &program])
                .current_dir(&root);
            shell
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        env.finish(child, "a loop of checkpoints").ok();
    }
    for process in 0..8 {
        for step in [0, 3, 4] {
            env.workspace(&["rollback", &format!("p{process}n{step}")])
                .id();
            let found = fs::read_to_string(root.join(format!("f{process}"))).unwrap();
            assert_eq!(found, format!("{step}\n"));
        }
    }
}

#[test]
fn stop_names_who_holds_the_mount_and_force_stops_all_the_same() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("file"), "before").unwrap();
    let mut shell = env.program("sleep");
    let mut inside = shell.arg("600").current_dir(&root).spawn().unwrap();
    let held = File::open(root.join("file")).unwrap();
    let told = env.workspace(&["stop"]);
    for pid in [inside.id(), std::process::id()] {
        assert!(
            told.err.contains(&format!("{pid} (")),
            "{pid} is not in {told:?}"
        );
    }
    told.fails(1, "processes use it");
    fs::write(root.join("file"), "still works").unwrap();
    let stopped = env.workspace(&["stop", "--force"]).ok();
    assert!(stopped.contains("status=stopped"), "{stopped}");
    assert!(mount::below(env.home()).is_empty());
    drop(held);
    inside.kill().unwrap();
    inside.wait().unwrap();
    env.workspace(&["start", "project"]).ok();
    assert_eq!(
        fs::read_to_string(root.join("file")).unwrap(),
        "still works"
    );
}

#[test]
fn stop_waits_for_who_uses_the_mount_and_cannot_be_seen() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::create_dir(root.join("dir")).unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let place = root.join("dir");
    // As a thread of a killed daemon is, that waits for an answer: /proc has it not with its process.
    let holder = thread::spawn(move || {
        sys::leave_working_directory().unwrap();
        rustix::process::chdir(&place).unwrap();
        inside.send(()).unwrap();
        may_leave.recv().unwrap();
        rustix::process::chdir("/").unwrap();
    });
    is_inside.recv().unwrap();
    let mut stop = env.begin(&["stop"]);
    wait::until("the stop waits", || {
        stop.try_wait().unwrap().is_some() || env.log().contains("cannot be seen")
    });
    leave.send(()).unwrap();
    holder.join().unwrap();
    let stopped = env.finish(stop, "stop").ok();
    assert!(stopped.contains("status=stopped"), "{stopped}");
    assert!(mount::below(env.home()).is_empty());
}

#[test]
fn forced_stop_keeps_what_was_in_a_dirty_mapping() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let path = root.join("pages");
    tests::pages::stamp(&path, 4, 1);
    let watched = tests::pages::Watched::new(&path, 4);
    dirty_once(&path);
    env.workspace(&["stop", "--force"]).ok();
    drop(watched);
    env.workspace(&["start", "project"]).ok();
    let words = tests::pages::words(&File::open(&path).unwrap(), 4).unwrap();
    assert_eq!(words[2], 77);
}

fn dirty_once(path: &Path) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mapping = tests::sys::Mapping::new(&file, 4).unwrap();
    mapping
        .word(2)
        .store(77, std::sync::atomic::Ordering::SeqCst);
}
