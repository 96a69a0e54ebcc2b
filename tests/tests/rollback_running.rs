//! A rollback under running programs: readers, writers, shared mappings dirtied all the time, a shell
//! whose directory vanishes, a build. Nothing hangs, nothing old is seen after the answer, undo loses
//! nothing.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use tests::env::Env;
use tests::pages::{Control, Watched, split, stamp, words};
use tests::shell::Shell;
use tests::skip::{Want, skip};
use tests::worker::Worker;
use tests::{mount, tree, wait};

const PAGES: usize = 64;
const DIRTIERS: usize = 2;
const ROUNDS: usize = 30;

/// The two states that tests go back and forth between.
const A: u32 = 1;
const B: u32 = 2;

fn timed(env: &Env, args: &[&str]) {
    // The id may be pending: it is not waited for. What hangs is noticed by the environment.
    env.workspace(args).ok();
}

fn worker(args: &[&Path]) -> Worker {
    Worker::start(env!("CARGO_BIN_EXE_worker"), args)
}

/// Waits until each of the first `workers` has done something more.
fn all_move(control: &Control, workers: usize) {
    let before: Vec<u64> = (0..workers).map(|i| control.ticks(i)).collect();
    for (i, ticks) in before.iter().enumerate() {
        wait::until(&format!("worker {i} goes on"), || {
            control.ticks(i) > ticks + 3 || control.is_stopped()
        });
    }
}

/// Makes the checkpoints `a` and `b` of a file stamped with [`A`] and [`B`], and shows `a`.
fn two_states(env: &Env, file: &Path) {
    for (label, epoch) in [("a", A), ("b", B)] {
        stamp(file, PAGES, epoch);
        env.workspace(&["checkpoint", label]).id();
    }
    env.workspace(&["rollback", "a"]).id();
}

#[test]
fn dirty_shared_mappings_follow_and_undo_brings_back_every_byte() {
    back_and_forth_under_dirtiers(&["rollback", "b"]);
}

#[test]
fn dirty_shared_mappings_follow_when_their_path_alone_is_restored() {
    back_and_forth_under_dirtiers(&["restore", "--ref", "b", "pages"]);
}

/// Shows state `b` by a command and takes that back, again and again, while processes dirty all pages.
fn back_and_forth_under_dirtiers(command: &[&str]) {
    let Some(env) = Env::in_memory() else { return };
    let file = env.start().join("pages");
    two_states(&env, &file);
    let control_path = env.path("control");
    let control = Control::create(&control_path);
    let workers: Vec<Worker> = (0..DIRTIERS)
        .map(|i| {
            let index = i.to_string();
            worker(&[
                Path::new("dirty"),
                &file,
                &control_path,
                Path::new("64"),
                Path::new(&index),
                Path::new("2"),
            ])
        })
        .collect();
    let watched = Watched::new(&file, PAGES);
    for round in 0..ROUNDS {
        all_move(&control, DIRTIERS);
        let [before, ..] = watched.looks();
        timed(&env, command);
        assert_eq!(
            watched.stale(B),
            Vec::<String>::new(),
            "round {round}: rollback"
        );
        all_move(&control, DIRTIERS);
        timed(&env, &["undo"]);
        assert_eq!(
            watched.stale(A),
            Vec::<String>::new(),
            "round {round}: undo"
        );
        for (page, now) in words(&File::open(&file).unwrap(), PAGES)
            .unwrap()
            .iter()
            .enumerate()
        {
            let (was, is) = (split(before[page]).1, split(*now).1);
            assert!(
                is >= was,
                "round {round}, page {page}: undo lost {was} > {is}"
            );
        }
    }
    control.stop();
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn readers_see_whole_pages_and_nothing_old_after_the_answer() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    let file = root.join("pages");
    two_states(&env, &file);
    let control_path = env.path("control");
    let control = Control::create(&control_path);
    let workers: Vec<Worker> = (0..2)
        .map(|i| {
            let index = i.to_string();
            worker(&[Path::new("read"), &file, &control_path, Path::new(&index)])
        })
        .collect();
    let watched = Watched::new(&file, PAGES);
    for round in 0..ROUNDS {
        all_move(&control, 2);
        let (label, epoch) = if round % 2 == 0 { ("b", B) } else { ("a", A) };
        timed(&env, &["rollback", label]);
        assert_eq!(watched.stale(epoch), Vec::<String>::new(), "round {round}");
    }
    control.stop();
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn descriptors_of_files_that_vanish_work_on_as_those_of_unlinked_files() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "without"]).id();
    let path = root.join("late");
    stamp(&path, 4, A);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mapping = tests::sys::Mapping::new(&file, 4).unwrap();
    timed(&env, &["rollback"]);
    assert!(!path.exists());
    assert_eq!(words(&file, 4).unwrap(), vec![u64::from(A) << 32; 4]);
    file.write_all_at(&[9; 10], 4096).unwrap();
    mapping
        .word(3)
        .store(5, std::sync::atomic::Ordering::SeqCst);
    file.sync_all().unwrap();
    assert_eq!(mapping.get(3), 5);
    assert_eq!(file.metadata().unwrap().len(), 4 * 4096);
    timed(&env, &["undo"]);
    let back = words(&File::open(&path).unwrap(), 4).unwrap();
    assert_eq!(
        back,
        vec![u64::from(A) << 32; 4],
        "undo shows what was replaced"
    );
}

#[test]
fn writers_never_fail_whatever_becomes_of_their_files() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "none"]).id();
    let control_path = env.path("control");
    let control = Control::create(&control_path);
    let kept = root.join("kept");
    fs::write(&kept, "x").unwrap();
    env.workspace(&["checkpoint", "one"]).id();
    let paths = [kept, root.join("late")];
    let workers: Vec<Worker> = paths
        .iter()
        .enumerate()
        .map(|(i, path)| {
            let index = i.to_string();
            worker(&[Path::new("write"), path, &control_path, Path::new(&index)])
        })
        .collect();
    all_move(&control, 2);
    for round in 0..ROUNDS {
        timed(
            &env,
            &["rollback", if round % 2 == 0 { "one" } else { "none" }],
        );
        assert_eq!(
            fs::read_dir(&root).unwrap().count(),
            usize::from(round % 2 == 0)
        );
        all_move(&control, 2);
    }
    control.stop();
    workers.into_iter().for_each(Worker::end);
}

#[test]
fn shell_whose_directory_vanishes_can_go_back() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    env.workspace(&["checkpoint", "without"]).id();
    fs::create_dir_all(root.join("new/deep")).unwrap();
    fs::write(root.join("new/deep/file"), "x").unwrap();
    let mut shell = Shell::start(&env, &root.join("new/deep"));
    assert_eq!(shell.say("test -f file && ls ."), 0);
    timed(&env, &["rollback"]);
    for line in [
        "test -f file",
        "ls file",
        "echo x > other",
        "mkdir sub",
        "cd ../.. && ls new",
    ] {
        assert_ne!(shell.say(line), 0, "{line}");
    }
    assert_eq!(
        std::fs::read_dir(format!("/proc/{}/cwd", shell.id()))
            .unwrap()
            .count(),
        0
    );
    shell.do_itself(&format!("cd '{}'", root.display()));
    assert_eq!(
        shell.say("ls . && test ! -e new && echo x > here && cat here"),
        0
    );
    timed(&env, &["undo"]);
    assert_eq!(shell.say("cd new/deep && cat file"), 0);
}

#[test]
fn build_goes_on_through_rollbacks_and_ends_right() {
    let Some(env) = Env::in_memory() else { return };
    if !mount::found("make") {
        skip(Want::Make, "make is not installed");
        return;
    }
    let project = env.project();
    let rule = "o/%: %.in\n\tmkdir -p o\n\ttr a-z A-Z < $< > $@.tmp\n\tmv $@.tmp $@\n";
    let names: Vec<String> = (0..12).map(|i| format!("m{i}")).collect();
    let targets: String = names.iter().map(|name| format!(" o/{name}")).collect();
    fs::write(project.join("Makefile"), format!("all:{targets}\n{rule}")).unwrap();
    for name in &names {
        fs::write(
            project.join(format!("{name}.in")),
            format!("source of {name}\n"),
        )
        .unwrap();
    }
    let root = env.start();
    env.workspace(&["checkpoint", "clean"]).id();
    let clean = tree::of(&root);
    let mut build = env.program("sh");
    let script = "while test ! -e \"$TMPDIR/end\"; do make -k -j2; rm -rf o; done";
    build.args(["-c", script]).current_dir(&root);
    let mut build = build
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..10 {
        wait::until("the build makes something", || root.join("o").exists());
        timed(&env, &["rollback"]);
        timed(&env, &["undo"]);
    }
    fs::write(env.path("tmp/end"), "").unwrap();
    wait::until("the build ends", || build.try_wait().unwrap().is_some());
    timed(&env, &["rollback"]);
    tree::same("sources", &clean, &tree::of(&root));
    let mut make = env.program("make");
    make.current_dir(&root);
    env.told(make).ok();
    for name in &names {
        let made = fs::read_to_string(root.join("o").join(name)).unwrap();
        assert_eq!(made, format!("SOURCE OF {}\n", name.to_uppercase()));
    }
}

#[test]
fn chains_of_undo_and_redo_show_each_state_again() {
    let Some(env) = Env::in_memory() else { return };
    let root = env.start();
    let mut states = Vec::new();
    for i in 0..6 {
        fs::write(root.join(format!("f{i}")), format!("{i}")).unwrap();
        fs::write(root.join("always"), vec![i; 5000 * usize::from(i + 1)]).unwrap();
        env.workspace(&["checkpoint", &format!("c{i}")]).id();
        states.push(tree::of(&root));
    }
    fs::write(root.join("unsaved"), "x").unwrap();
    let unsaved = tree::of(&root);
    let order = [3, 0, 5, 1, 4];
    for i in order {
        timed(&env, &["rollback", &format!("c{i}")]);
        tree::same("rollback", &states[i], &tree::of(&root));
    }
    for i in order.iter().rev().skip(1) {
        timed(&env, &["undo"]);
        tree::same("undo", &states[*i], &tree::of(&root));
    }
    timed(&env, &["undo"]);
    tree::same("the first undo", &unsaved, &tree::of(&root));
    env.workspace(&["undo"]).fails(1, "nothing to undo");
    for i in order {
        timed(&env, &["redo"]);
        tree::same("redo", &states[i], &tree::of(&root));
    }
    env.workspace(&["redo"]).fails(1, "nothing to redo");
}
