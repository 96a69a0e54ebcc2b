//! The daemon is killed in the middle of work: everything that was answered is there afterwards.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::env::Env;
use tests::pages::Control;
use tests::rng::{self, Rng};
use tests::worker::Worker;
use tests::{model, mount, tree, wait};

const WRITERS: usize = 4;
const ROUNDS: u64 = 5;

/// One process with a directory of its own and a log of what was answered.
struct Writer {
    directory: String,
    marks: PathBuf,
    seed: u64,
    worker: Worker,
}

impl Writer {
    fn start(env: &Env, root: &Path, seed: u64) -> Writer {
        let directory = format!("w{seed}");
        fs::create_dir(root.join(&directory)).unwrap();
        let marks = env.path(format!("{directory}.log"));
        let number = seed.to_string();
        let (place, control) = (root.join(&directory), env.path("control"));
        let args = [
            Path::new("log"),
            &place,
            &control,
            &marks,
            Path::new(&number),
        ];
        Writer {
            worker: Worker::start(env!("CARGO_BIN_EXE_worker"), &args),
            directory,
            marks,
            seed,
        }
    }

    /// Calls that were begun and that were answered.
    fn progress(&self) -> (usize, usize) {
        model::counts(&fs::read(&self.marks).unwrap_or_default())
    }

    fn end(self) -> Ended {
        self.worker.end();
        Ended {
            marks: fs::read(&self.marks).unwrap(),
            directory: self.directory,
            seed: self.seed,
        }
    }
}

/// What a writer did, once its mount has died.
struct Ended {
    directory: String,
    marks: Vec<u8>,
    seed: u64,
}

impl Ended {
    /// Its directory is in a state that it was in between two numbers of calls.
    fn was(&self, root: &Path, from: usize, to: usize) {
        let found = model::read(&root.join(&self.directory));
        assert!(
            model::find(self.seed, &self.marks, from, to, &found).is_some(),
            "{}, between {from} and {to}: nearest is {}",
            self.directory,
            model::nearest(self.seed, &self.marks, to, &found)
        );
    }

    /// All that was answered is there, and of the rest at most the call in flight.
    fn is_whole(&self, root: &Path) {
        let (begun, answered) = model::counts(&self.marks);
        self.was(root, answered, begun);
    }
}

fn start_writers(env: &Env, root: &Path, round: u64) -> Vec<Writer> {
    let first = round * WRITERS as u64;
    let seeds = first..first + WRITERS as u64;
    let writers: Vec<Writer> = seeds.map(|seed| Writer::start(env, root, seed)).collect();
    for writer in &writers {
        wait::until("all write", || writer.progress().1 > 20);
    }
    writers
}

#[test]
fn answered_writes_survive_the_daemons_death() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    Control::create(&env.path("control"));
    let mut rng = Rng::new(rng::seed());
    let mut ended: Vec<Ended> = Vec::new();
    for round in 0..ROUNDS {
        let writers = start_writers(&env, &root, round);
        wait::let_run(Duration::from_millis(50 + rng.below(400)));
        env.kill_daemon();
        ended.extend(writers.into_iter().map(Writer::end));
        let status = env.workspace(&["status", "project"]);
        assert_eq!(status.status, 1, "{status:?}");
        assert!(status.out.contains("status=stale\n"), "{status:?}");
        env.workspace(&["log", "project"]).ok();
        for writer in &ended {
            writer.is_whole(&root);
        }
        assert_eq!(env.workspace(&["status", "project"]).status, 0);
    }
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    ended.iter().for_each(|writer| writer.is_whole(&root));
}

/// What a checkpoint that was answered must hold of each writer, by how far the writers were.
type Span = Vec<(usize, usize)>;

#[test]
fn answered_checkpoints_survive_the_daemons_death() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    Control::create(&env.path("control"));
    let mut rng = Rng::new(rng::seed());
    for round in 0..3 {
        let writers = start_writers(&env, &root, round);
        let mut taken: Vec<(String, Span)> = Vec::new();
        for i in 0..3 + rng.below(3) {
            let before: Vec<usize> = writers.iter().map(|w| w.progress().1).collect();
            let id = env
                .workspace(&["checkpoint", &format!("r{round}c{i}")])
                .id();
            let after = writers.iter().map(|w| w.progress().0);
            taken.push((id, before.into_iter().zip(after).collect()));
        }
        let in_flight = env.begin(&["checkpoint", "in-flight"]);
        wait::let_run(Duration::from_micros(rng.below(8000)));
        env.kill_daemon();
        let _ = env.finish(in_flight, "the checkpoint in flight");
        let ended: Vec<Ended> = writers.into_iter().map(Writer::end).collect();
        let log = env.workspace(&["log", "project"]).ok();
        ended.iter().for_each(|writer| writer.is_whole(&root));
        for (id, span) in &taken {
            assert!(log.contains(id), "{id} is not in {log}");
            env.workspace(&["rollback", id]).id();
            for (writer, (from, to)) in ended.iter().zip(span) {
                writer.was(&root, *from, *to);
            }
        }
    }
}

#[test]
fn rollback_in_flight_happens_or_does_not() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut states = Vec::new();
    for label in ["a", "b"] {
        for i in 0..200 {
            fs::write(root.join(format!("{label}{i}")), format!("{label} {i}")).unwrap();
            fs::write(root.join(format!("both{i}")), label.repeat(i)).unwrap();
        }
        if label == "b" {
            (0..200).for_each(|i| fs::remove_file(root.join(format!("a{i}"))).unwrap());
        }
        env.workspace(&["checkpoint", label]).id();
        states.push(tree::of(&root));
    }
    let mut rng = Rng::new(rng::seed());
    let mut shown = 1;
    for round in 0..10 {
        let to = 1 - shown;
        let child = env.begin(&["rollback", ["a", "b"][to]]);
        wait::let_run(Duration::from_micros(rng.below(25_000)));
        env.kill_daemon();
        let told = env.finish(child, "rollback");
        env.workspace(&["log", "project"]).ok();
        let found = tree::of(&root);
        if told.status == 0 || found == states[to] {
            tree::same(&format!("round {round}: {told:?}"), &states[to], &found);
            shown = to;
        } else {
            tree::same(&format!("round {round}: {told:?}"), &states[shown], &found);
        }
    }
    env.workspace(&["rollback", "a"]).id();
    tree::same("a", &states[0], &tree::of(&root));
}

#[test]
fn next_command_brings_the_mount_back_where_it_was() {
    let Some(env) = Env::new() else { return };
    let place = env.path("elsewhere/deep");
    env.workspace(&["start", "--from", "project", "--mount", "elsewhere/deep"])
        .ok();
    fs::write(place.join("file"), "x").unwrap();
    let commands: [&[&str]; 5] = [
        &["checkpoint", "one"],
        &["diff"],
        &["rollback"],
        &["log"],
        &["start", "project"],
    ];
    for command in commands {
        env.kill_daemon();
        assert!(
            fs::write(place.join("new"), "").is_err(),
            "the mount is dead"
        );
        let listed = env.workspace(&["list"]).ok();
        assert!(listed.contains("\tstale\t"), "{listed}");
        env.workspace(command).ok();
        assert_eq!(fs::read(place.join("file")).unwrap(), b"x", "{command:?}");
        assert_eq!(mount::workspaces_below(&env.path("")).len(), 1);
    }
    env.kill_daemon();
    env.workspace(&["stop", "project"]).ok();
    assert!(mount::below(&env.path("")).is_empty());
    assert!(
        !env.path("elsewhere").exists(),
        "what was made for the mount is removed"
    );
}

#[test]
fn death_of_a_writer_loses_nothing_it_had_written() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    Control::create(&env.path("control"));
    let writer = Writer::start(&env, &root, 1);
    wait::until("it writes", || writer.progress().1 > 50);
    let id = i32::try_from(writer.worker.id()).unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    let Writer {
        directory,
        marks,
        seed,
        worker,
    } = writer;
    drop(worker);
    let ended = Ended {
        marks: fs::read(marks).unwrap(),
        directory,
        seed,
    };
    ended.is_whole(&root);
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    ended.is_whole(&root);
}

/// A file is stored in whole blocks; one shortened inside such a block, once stored and once replayed
/// from the journal alone, has another hole, and so another commit.
#[test]
fn id_that_was_answered_stands_after_the_daemons_death() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    tree::sparse(&root.join("file"), 5100, &[(5000, &[7; 100])]);
    let first = env.workspace(&["checkpoint", "first"]).id();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(root.join("file"))
        .unwrap();
    file.set_len(4900).unwrap();
    drop(file);
    let second = env.workspace(&["checkpoint", "second"]).id();
    let wanted = tree::of(&root);
    env.kill_daemon();
    let log = env.workspace(&["log", "project"]).ok();
    assert!(
        log.contains(&first) && log.contains(&second),
        "{second}: {log}"
    );
    env.workspace(&["rollback", "first"]).id();
    assert_eq!(env.workspace(&["rollback", &second]).id(), second);
    tree::same("the second checkpoint", &wanted, &tree::of(&root));
}
