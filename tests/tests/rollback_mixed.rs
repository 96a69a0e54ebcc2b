//! Eight processes of mixed work while checkpoints and rollbacks run: no hang, no I/O error, exact trees.
//!
//! Runs some seconds; `AGENTVFS_TEST_MINUTES` makes it run as long as one likes.

#![allow(clippy::unwrap_used)]

use rustix::fs::inotify;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::env::Env;
use tests::pages::Control;
use tests::rng::{self, Rng};
use tests::sys::PAGE;
use tests::tree::Tree;
use tests::worker::{MIXED_PAGES, Worker, uniform};
use tests::{model, tree, wait};

const WORKERS: usize = 8;
/// Commits that are looked at again at the end.
const LOOKS_MAX: usize = 12;

fn duration(default_seconds: u64) -> Duration {
    let minutes = std::env::var("AGENTVFS_TEST_MINUTES").ok();
    let minutes = minutes.and_then(|text| text.parse::<f64>().ok());
    minutes.map_or(Duration::from_secs(default_seconds), |minutes| {
        Duration::from_secs_f64(minutes * 60.0)
    })
}

fn start(kind: &str, directory: &Path, control: &Path, rest: &[&Path]) -> Worker {
    let args: Vec<&Path> = [Path::new(kind), directory, control]
        .into_iter()
        .chain(rest.iter().copied())
        .collect();
    Worker::start(env!("CARGO_BIN_EXE_worker"), &args)
}

/// Every file is made of blocks that were written as a whole.
fn nothing_is_torn(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            nothing_is_torn(&path);
        } else if !path.ends_with("mapped") {
            uniform(&fs::read(&path).unwrap())
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

fn directories(root: &Path) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> = (0..WORKERS).map(|i| root.join(format!("w{i}"))).collect();
    for directory in &directories {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("mapped"), vec![0; MIXED_PAGES * PAGE]).unwrap();
    }
    directories
}

/// Checkpoints, goes back and forth for a while; gives the commits that were answered.
fn checkpoints_and_rollbacks(env: &Env, control: &Control, time: Duration) -> Vec<String> {
    let mut rng = Rng::new(rng::seed());
    let mut commits = vec![env.workspace(&["checkpoint", "first"]).id()];
    let since = Instant::now();
    while since.elapsed() < time {
        let commit = commits[rng.below(commits.len() as u64) as usize].clone();
        match rng.below(6) {
            0..3 => {
                let id = env
                    .workspace(&["checkpoint", &format!("c{}", commits.len())])
                    .id();
                commits.push(id);
            }
            3 | 4 => {
                env.workspace(&["rollback", &commit]).id();
            }
            _ => {
                env.workspace(&["undo", "--over-later-changes"]);
            }
        }
        let ticks = control.ticks(0);
        wait::until("the work goes on", || {
            control.ticks(0) > ticks || control.is_stopped()
        });
    }
    commits.dedup();
    commits
}

/// The trees of commits, as rollbacks show them one after the other.
fn trees(env: &Env, root: &Path, commits: &[String]) -> Vec<Tree> {
    let show = |commit: &String| {
        assert_eq!(&env.workspace(&["rollback", commit]).id(), commit);
        assert_eq!(env.workspace(&["diff", commit]).ok(), "");
        nothing_is_torn(root);
        tree::of(root)
    };
    commits.iter().map(show).collect()
}

#[test]
fn mixed_work_under_checkpoints_and_rollbacks_leaves_exact_trees() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let control_path = env.path("control");
    let control = Control::create(&control_path);
    let workers: Vec<Worker> = {
        let directories = directories(&root);
        env.workspace(&["checkpoint", "zero"]).id();
        let numbered = directories.iter().enumerate();
        let begin = |(i, directory): (usize, &PathBuf)| {
            start(
                "mixed",
                directory,
                &control_path,
                &[Path::new(&i.to_string())],
            )
        };
        numbered.map(begin).collect()
    };
    let daemon = env.daemons();
    // Somebody watches, so that the daemon also tells of each rollback.
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, &root, inotify::WatchFlags::CREATE).unwrap();
    let commits = checkpoints_and_rollbacks(&env, &control, duration(15));
    control.stop();
    workers.into_iter().for_each(Worker::end);
    assert_eq!(env.daemons(), daemon, "the daemon lives");
    assert_eq!(env.status()["healthy"], true);
    let step = commits.len().div_ceil(LOOKS_MAX);
    let looked_at: Vec<String> = commits.into_iter().step_by(step).collect();
    let last = tree::of(&root);
    let first_look = trees(&env, &root, &looked_at);
    for _ in &looked_at {
        env.workspace(&["undo"]).id_or_pending();
    }
    tree::same("undone", &last, &tree::of(&root));
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    tree::same("after a restart", &last, &tree::of(&root));
    for (wanted, found) in first_look.iter().zip(trees(&env, &root, &looked_at)) {
        tree::same("the same commit after a restart", wanted, &found);
    }
}

/// What the logs of all workers say has been begun and answered.
fn progress(marks: &[PathBuf]) -> Vec<(usize, usize)> {
    let read = |path: &PathBuf| model::counts(&fs::read(path).unwrap_or_default());
    marks.iter().map(read).collect()
}

/// A checkpoint, with what was surely done before it and what may have been done by its answer.
struct Taken {
    id: String,
    answered_before: Vec<usize>,
    begun_after: Vec<usize>,
}

#[test]
fn each_checkpoint_is_a_state_that_was() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let control_path = env.path("control");
    let control = Control::create(&control_path);
    let names: Vec<String> = (0..4).map(|i| format!("w{i}")).collect();
    let marks: Vec<PathBuf> = names
        .iter()
        .map(|name| env.path(format!("{name}.log")))
        .collect();
    let workers: Vec<Worker> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            fs::create_dir(root.join(name)).unwrap();
            let seed = i.to_string();
            start(
                "log",
                &root.join(name),
                &control_path,
                &[&marks[i], Path::new(&seed)],
            )
        })
        .collect();
    let since = Instant::now();
    let mut taken = Vec::new();
    while since.elapsed() < duration(5) {
        let answered_before = progress(&marks).iter().map(|p| p.1).collect::<Vec<_>>();
        let id = env
            .workspace(&["checkpoint", &format!("c{}", taken.len())])
            .id();
        let begun_after = progress(&marks).iter().map(|p| p.0).collect();
        wait::until("everybody goes on", || {
            progress(&marks)
                .iter()
                .zip(&answered_before)
                .all(|(p, b)| p.1 > b + 10)
        });
        taken.push(Taken {
            id,
            answered_before,
            begun_after,
        });
    }
    control.stop();
    workers.into_iter().for_each(Worker::end);
    let logs: Vec<Vec<u8>> = marks.iter().map(|path| fs::read(path).unwrap()).collect();
    was_the_state(&root, &logs, None);
    let step = taken.len().div_ceil(LOOKS_MAX);
    for checkpoint in taken.iter().step_by(step) {
        env.workspace(&["rollback", &checkpoint.id]).id();
        was_the_state(&root, &logs, Some(checkpoint));
    }
}

/// Each worker's directory is in a state that it was in at the checkpoint, or at the end.
fn was_the_state(root: &Path, logs: &[Vec<u8>], checkpoint: Option<&Taken>) {
    for (i, marks) in logs.iter().enumerate() {
        let all = model::counts(marks).1;
        let (from, to) = match checkpoint {
            Some(taken) => (taken.answered_before[i], taken.begun_after[i]),
            None => (all, all),
        };
        let found = model::read(&root.join(format!("w{i}")));
        let when = model::find(i as u64, marks, from, to, &found);
        assert!(
            when.is_some(),
            "worker {i}, between {from} and {to}: nearest is {}",
            model::nearest(i as u64, marks, all, &found)
        );
    }
}
