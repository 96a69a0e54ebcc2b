//! Branches, their commits and their merges, and what is told of them.
#![allow(clippy::unwrap_used)]

mod automatic;
mod branches;
mod commits;
#[path = "../common/mod.rs"]
mod common;
mod counted;
mod feed;
mod kv;
mod lineage;
mod log_pages;
mod many;
mod merge_in_use;
mod merge_live;
mod one_sync;
mod progress;
mod standings;
mod told;
mod undo;
