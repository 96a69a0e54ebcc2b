//! Random work on a mount beside those who hold on to it through every switch, compared with a model; and the same
//! while the daemon is killed again and again.
//!
//! `AGENTVFS_MODEL_SECONDS` says for how long (10), `AGENTVFS_MODEL_SEED` runs one seed alone. A failing
//! sequence is made short and printed with its seed.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::holders;
use tests::rng::Rng;

/// Steps of one sequence.
const STEPS: usize = 90;
/// Time for making a failing sequence short.
const SHRINK: Duration = Duration::from_secs(60);
/// Runs of a shorter sequence before it counts as good: what runs beside it is not the same each time.
const TRIES: usize = 2;

/// What was done, and what differed.
type Failure = (Vec<String>, String);

/// How often the daemon was killed, where it is.
type Kills<'a> = Option<&'a Arc<AtomicU64>>;

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn fails(seeds: &[u64], kills: Kills<'_>) -> Option<Failure> {
    (0..TRIES).find_map(|_| holders::run(seeds, kills).and_then(Result::err))
}

/// Leaves parts out as long as what is left still fails.
fn shrunk(mut seeds: Vec<u64>, mut failure: Failure, kills: Kills<'_>) -> Failure {
    let since = Instant::now();
    let mut part = seeds.len().div_ceil(2);
    while part > 0 && since.elapsed() < SHRINK {
        let mut at = 0;
        while at < seeds.len() && since.elapsed() < SHRINK {
            let end = (at + part).min(seeds.len());
            let rest = [&seeds[..at], &seeds[end..]].concat();
            match fails(&rest, kills) {
                Some(found) => (seeds, failure) = (rest, found),
                None => at = end,
            }
        }
        part /= 2;
    }
    failure
}

/// Runs the sequence of a seed; false where nothing can be mounted.
fn check(seed: u64, kills: Kills<'_>) -> bool {
    let mut rng = Rng::new(seed);
    let seeds: Vec<u64> = (0..STEPS).map(|_| rng.word()).collect();
    let Some(done) = holders::run(&seeds, kills) else {
        return false;
    };
    if let Err((said, why)) = done {
        eprintln!(
            "seed {seed}: {why}\nafter\n  {}\nmaking it short …",
            said.join("\n  ")
        );
        let (said, why) = shrunk(seeds[..].to_vec(), (said, why), kills);
        panic!(
            "AGENTVFS_MODEL_SEED={seed}: {why}\nafter\n  {}",
            said.join("\n  ")
        );
    }
    true
}

/// Sequences for as long as is asked for.
fn check_for_a_while(kills: Kills<'_>) {
    if let Some(seed) = asked("AGENTVFS_MODEL_SEED") {
        check(seed, kills);
        return;
    }
    let time = Duration::from_secs(asked("AGENTVFS_MODEL_SECONDS").unwrap_or(10));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = now.unwrap().as_nanos() as u64 % 1_000_000_007;
    println!("seeds from {first} (again: AGENTVFS_MODEL_SEED)");
    let (since, mut seed) = (Instant::now(), first);
    while since.elapsed() < time && check(seed, kills) {
        seed += 1;
    }
    let kills = kills.map_or(0, |kills| kills.load(Ordering::Relaxed));
    println!("{} sequences of {STEPS} steps, {kills} kills", seed - first);
}

#[test]
fn whoever_holds_on_sees_what_the_model_says_through_every_switch() {
    check_for_a_while(None);
}

#[test]
#[ignore = "long, and kills beside other tests; .ci/long kept runs it"]
fn whoever_holds_on_sees_what_the_model_says_while_the_daemon_is_killed() {
    check_for_a_while(Some(&Arc::default()));
}
