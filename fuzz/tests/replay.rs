//! Every check holds for every file of its corpus, for every seed, and for each seed with one bit
//! flipped or its end cut off.
#![allow(clippy::unwrap_used)]

use fuzz::{CHECKS, Check, seeds};
use std::path::PathBuf;
use std::sync::Mutex;

/// Seeds are flipped bit by bit up to this many bytes; longer ones at as many places.
const FLIPPED_BYTES_MAX: usize = 400;

fn corpus(check: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(check)
}

fn check_of(name: &str) -> Check {
    *CHECKS.iter().find(|(check, _)| *check == name).unwrap()
}

#[test]
fn corpora_hold() {
    for (name, check) in CHECKS {
        let mut files = 0;
        for file in std::fs::read_dir(corpus(name)).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0, "the corpus of {name} is empty");
    }
}

#[test]
fn corpora_have_the_seeds() {
    let write = std::env::var_os("FUZZ_WRITE_SEEDS").is_some();
    for (check, name, bytes) in seeds::all() {
        let path = corpus(check).join(name);
        if write {
            std::fs::create_dir_all(corpus(check)).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let found = std::fs::read(&path).ok();
        assert!(found == Some(bytes), "{} is another", path.display());
    }
}

#[test]
fn seeds_of_states_and_trees_are_what_they_stand_for() {
    let seeds = seeds::all().into_iter().filter(|seed| seed.0 == "state");
    let starts_with = |bytes: &[u8], magic: &[u8]| bytes.starts_with(magic);
    let (mut states, mut trees) = (0, 0);
    for (_, name, bytes) in seeds {
        if starts_with(&bytes, b"AVFSTAT\0") {
            assert!(engine::check_state_bytes(&bytes), "{name}");
            states += 1;
        } else if starts_with(&bytes, b"AVFSTREE") {
            assert!(engine::check_tree_bytes(&bytes), "{name}");
            trees += 1;
        }
    }
    assert_eq!((states, trees), (6, 2));
}

#[test]
fn damaged_seeds_hold() {
    let seeds = Mutex::new(seeds::all().into_iter());
    let next = || seeds.lock().unwrap().next();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, _, bytes)) = next() {
                    damaged_seed_holds(name, &bytes);
                }
            });
        }
    });
}

fn damaged_seed_holds(name: &str, bytes: &[u8]) {
    let (_, check) = check_of(name);
    check(&[]);
    let step = bytes.len().div_ceil(FLIPPED_BYTES_MAX).max(1);
    for at in (0..bytes.len()).step_by(step) {
        check(&bytes[..at]);
        for change in [1, 0x80, 0xff] {
            let mut bad = bytes.to_vec();
            bad[at] ^= change;
            check(&bad);
        }
    }
}
