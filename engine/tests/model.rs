//! Random operations on the engine and on a plain model, compared after each.
//!
//! `ENGINE_MODEL_SECONDS` sets how long each test runs, `ENGINE_MODEL_SEED` runs one seed alone. A failing
//! sequence is made short and printed with its seed.
#![allow(clippy::unwrap_used)]

mod common;

use common::op::Op;
use common::{rng, runner, shrink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Operations of one sequence.
const STEPS: usize = 120;
/// Time that no sequence takes.
const STUCK: Duration = Duration::from_secs(40);
/// Runs of a shorter sequence before it counts as good.
const TRIES: usize = 3;
/// Time for making a failing sequence short.
const SHRINK: Duration = Duration::from_secs(60);

/// Runs a sequence in a thread of its own, which is given up where it gets stuck.
fn failure(ops: &[Op], on_files: bool) -> Option<String> {
    let (ops, step) = (ops.to_vec(), Arc::new(AtomicUsize::new(0)));
    let (done, result) = channel();
    let (mine, at) = (ops.clone(), step.clone());
    std::thread::spawn(move || {
        let ran = catch_unwind(AssertUnwindSafe(|| runner::run(&mine, on_files, &at)));
        let _ = done.send(ran.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Err(text.unwrap_or("a panic".into()))
        }));
    });
    match result.recv_timeout(STUCK) {
        Ok(ran) => ran.err(),
        Err(_) => {
            let at = step.load(Ordering::Relaxed);
            Some(format!("step {at}, {:?}: stuck", ops.get(at)))
        }
    }
}

fn check_seed(seed: u64, on_files: bool) {
    let ops = runner::sequence(seed, STEPS);
    let Some(error) = failure(&ops, on_files) else {
        return;
    };
    eprintln!("seed {seed}: {error}\nmaking it short …");
    let (ops, error) = shrink::shrink(ops, error, SHRINK, &|ops| {
        // What background threads do in between is not the same each time.
        (0..TRIES).find_map(|_| failure(ops, on_files))
    });
    let listed: Vec<String> = ops.iter().map(|op| format!("{op:?}")).collect();
    panic!("ENGINE_MODEL_SEED={seed}: {error}\n{}", listed.join("\n"));
}

fn many(seconds: f64, on_files: bool) {
    if let Some(seed) = rng::asked_seed() {
        return check_seed(seed, on_files);
    }
    let until = Instant::now() + rng::budget(seconds);
    let first = rng::fresh_seed();
    println!("seeds from {first}");
    let mut seed = first;
    while Instant::now() < until {
        check_seed(seed, on_files);
        seed += 1;
    }
    println!("{} sequences of {STEPS} operations", seed - first);
}

#[test]
fn random_operations_agree_with_the_model_over_kills() {
    many(12.0, false);
}

#[test]
fn random_operations_agree_with_the_model_on_files() {
    many(6.0, true);
}

/// What was stored of a state that was rolled back from widened data to whole blocks; the state that is
/// shown, and was not stored yet, kept the widening.
#[test]
fn regression_holes_stay_where_a_state_is_stored_that_was_gone_back_from() {
    let checkpoint = |label, message| Op::Checkpoint {
        label,
        message,
        meta: 3,
        wait: !message,
    };
    let rollback = |how, which| Op::Rollback {
        how,
        which,
        page: None,
    };
    let ops = [
        checkpoint(4, false),
        Op::Write {
            node: 251114722,
            at: 381673,
            len: 82037,
            seed: 159487947,
            kill: false,
        },
        rollback(131, 877474226),
        Op::Allocate {
            node: 970682242,
            at: 11336,
            len: 61440,
            how: 3,
        },
        checkpoint(3, false),
        checkpoint(1, true),
        rollback(201, 1184357410),
    ];
    for _ in 0..5 {
        assert_eq!(failure(&ops, false), None);
    }
}
