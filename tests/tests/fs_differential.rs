//! The mount against the native file system: the same random calls, the same results.
//!
//! `AGENTVFS_DIFFERENTIAL_SECONDS` says for how long (20), `AGENTVFS_DIFFERENTIAL_SEED` with which
//! seed to begin (that of the run, `AGENTVFS_SEED`, or a new one). A failure prints the calls that are needed for it, and its seed.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};
use tests::differential::{self as differ, Failure, Pair, Step};
use tests::env::Env;
use tests::mount;
use tests::skip::{Want, skip};

/// Calls of one seed.
const CALLS: usize = 150;

/// Seeds whose directories stay until the restart.
const KEPT: u64 = 40;

/// Failing seeds after which the test ends.
const FAILURES_MAX: usize = 5;

/// `EXT4_SUPER_MAGIC` (linux/magic.h).
const EXT4: i64 = 0xef53;

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().unwrap())
}

/// A directory on ext4 with 4 KiB blocks, which is what the mount is to be like.
fn native(env: &Env) -> Option<std::path::PathBuf> {
    let is_ext4 = |place: &Path| {
        let stat = rustix::fs::statfs(place).unwrap();
        (stat.f_type, stat.f_bsize) == (EXT4 as _, 4096)
    };
    let place = env.path("native");
    if is_ext4(&env.path("tmp")) {
        std::fs::create_dir(&place).unwrap();
        return Some(place);
    }
    if mount::is_root() && mount::ext4(&place, 512 << 20) && is_ext4(&place) {
        return Some(place);
    }
    skip(Want::Machine, "no ext4 to compare with");
    None
}

/// The calls that are needed for the difference, as they are.
fn told(pair: &Pair, seed: u64, steps: &[Step], failure: &Failure) -> String {
    let mut last = failure.clone();
    let short = differ::shrunk(&steps[..=failure.step], |steps| {
        let failed = differ::compare(pair, "shrink", steps, false).err();
        failed.map(|failure| last = failure).is_some()
    });
    let lines: Vec<String> = short.iter().map(|step| format!("  {step:?}")).collect();
    format!(
        "seed {seed} (again: AGENTVFS_DIFFERENTIAL_SEED={seed}), call {}: {}\nshrunk to\n{}\n{}",
        failure.step,
        failure.what,
        lines.join("\n"),
        last.what
    )
}

#[test]
fn mount_does_what_the_native_file_system_does() {
    let Some(env) = Env::new() else { return };
    let Some(native) = native(&env) else { return };
    let root = env.start();
    let pair = Pair {
        fine_clock: differ::has_fine_clock(&native),
        native,
        mount: root,
    };
    let first = number("AGENTVFS_DIFFERENTIAL_SEED", tests::rng::seed());
    let time = Duration::from_secs(number("AGENTVFS_DIFFERENTIAL_SECONDS", 20));
    let (begin, mut seed) = (Instant::now(), first);
    let mut failures = Vec::new();
    while (begin.elapsed() < time || seed == first) && failures.len() < FAILURES_MAX {
        let steps = differ::steps(seed, CALLS, mount::is_root());
        let keep = seed < first + KEPT;
        if let Err(failure) = differ::compare(&pair, &format!("seed-{seed}"), &steps, keep) {
            failures.push(told(&pair, seed, &steps, &failure));
        }
        seed += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!("{} seeds of {CALLS} calls", seed - first);
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    for kept in (first..seed).take(KEPT as usize) {
        let same = differ::compare_again(&pair, &format!("seed-{kept}"));
        assert_eq!(same, Ok(()), "seed {kept}, after a restart");
    }
}
