//! Where the files come from: the project, changed or gone, and directories that are fetched when they are looked into.
#![allow(clippy::unwrap_used)]

mod away;
mod base;
mod base_gone;
mod cache;
#[path = "../common/mod.rs"]
mod common;
