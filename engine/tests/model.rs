//! Random operations on the engine and on a plain model, compared after each.
//!
//! `ENGINE_MODEL_SECONDS` sets how long each test runs, `ENGINE_MODEL_SEED` runs one seed alone. A failing
//! sequence is made short and printed with its seed.
#![allow(clippy::unwrap_used)]

mod common;

use common::op::Op;
use common::{rng, runner, shrink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Operations of one sequence.
const STEPS: usize = 120;
/// Runs of a shorter sequence before it counts as good.
const TRIES: usize = 3;
/// Time for making a failing sequence short.
const SHRINK: Duration = Duration::from_secs(60);

fn failure(ops: &[Op], on_files: bool) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| runner::run(ops, on_files))) {
        Ok(result) => result.err(),
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or(panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or("a panic".into()),
        ),
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
