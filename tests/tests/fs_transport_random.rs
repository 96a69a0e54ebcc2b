//! Random calls on two mounts, one by each way to the kernel: the same results, attributes, contents and requests.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};
use tests::differential::{self as differ, Op, Stamp, Step};
use tests::mount;
use tests::requests::Count;
use tests::transports::{Both, same_requests};

/// Random calls of one seed.
const CALLS: usize = 120;

/// For how long random calls are made; `AGENTVFS_TRANSPORTS_SECONDS` says otherwise.
const SECONDS: u64 = 15;

fn time() -> Duration {
    let given = std::env::var("AGENTVFS_TRANSPORTS_SECONDS").ok();
    Duration::from_secs(given.map_or(SECONDS, |text| text.parse().unwrap()))
}

/// Makes of a random call one that the list does not speak of.
fn beside_the_list(mut step: Step) -> Step {
    let whole = |stamp: &mut Stamp| {
        if let Stamp::At(sec @ ..0, _) = *stamp {
            *stamp = Stamp::At(sec, 0);
        }
    };
    match &mut step.op {
        Op::Times(_, access, modification, _) => {
            whole(access);
            whole(modification);
        }
        // One who is not in the file's group.
        Op::SetXattr(_, name, ..) if name.starts_with("system.posix_acl") => step.user = 0,
        _ => {}
    }
    step
}

/// Requests of random calls: how many pages go in one WRITE depends on when the kernel writes mapped ones back.
fn without_writes(mut counts: [Count; 2]) -> [Count; 2] {
    for count in &mut counts {
        count.remove("write");
    }
    counts
}

#[test]
fn random_calls_give_the_same_by_both() {
    let Some(both) = Both::start(|_| ()) else {
        return;
    };
    let (pair, first) = (both.pair(), tests::rng::seed());
    let (begin, mut seed) = (Instant::now(), first);
    while begin.elapsed() < time() || seed == first {
        let mut steps = differ::steps(seed, CALLS, mount::is_root());
        // The crate cannot make them.
        steps.retain(|step| !step.is_nameless());
        let steps: Vec<Step> = steps.into_iter().map(beside_the_list).collect();
        same_requests(&format!("seed {seed}"), |attempt| {
            let name = format!("seed-{seed}-{attempt}");
            without_writes(both.requests(|| {
                let same = differ::compare(&pair, &name, &steps, false);
                assert_eq!(same, Ok(()), "seed {seed} (AGENTVFS_SEED={seed})");
            }))
        });
        seed += 1;
    }
    println!("{} seeds of {CALLS} calls, from {first} on", seed - first);
}
