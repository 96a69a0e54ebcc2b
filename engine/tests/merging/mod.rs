//! Helpers of the merge tests: random edits of real texts, and running git.
//!
//! Each test program uses a part of them.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod edits;
pub mod git;
pub mod history;
#[path = "../common/rng.rs"]
pub mod rng;
pub mod tree;

/// Number of rounds of a test: an environment variable, or what CI does.
pub fn rounds(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(usual, |text| text.parse().expect("a number"))
}

/// The first seed of a test: an environment variable, `AGENTVFS_SEED`, or a new one, which is printed.
pub fn seed(variable: &str) -> u64 {
    let seed = rounds(variable, rng::fresh_seed());
    println!("seeds from {seed}; {variable}={seed} makes this happen again");
    seed
}

/// Real files: sources of this project.
pub fn real_texts() -> Vec<Vec<u8>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for dir in [
        "../objstore/src",
        "../engine/src/journal",
        "../engine/src/ops",
        "../engine/src/stored",
        "../engine/src/tree",
    ] {
        let mut files: Vec<_> = std::fs::read_dir(root.join(dir))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "rs"))
            .collect();
        files.sort();
        texts.extend(files.iter().map(|path| std::fs::read(path).unwrap()));
    }
    assert!(texts.len() > 25, "only {} texts", texts.len());
    texts
}
