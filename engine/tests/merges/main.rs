//! Merges, applies and updates against git's, and what they promise beyond these.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod apply_git;
mod git;
mod lines;
#[path = "../merging/mod.rs"]
mod merging;
mod rules;
// Other programs use what this one does not.
#[allow(dead_code)]
#[path = "../common/world.rs"]
mod world;
