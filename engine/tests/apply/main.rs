//! What leaves a branch for its base, and what a sandbox may bring along.
#![allow(clippy::unwrap_used)]

mod apply;
#[path = "../applying/mod.rs"]
mod applying;
#[path = "../common/mod.rs"]
mod common;
mod sandboxes;
mod untrusted;
