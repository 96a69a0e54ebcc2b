//! What the tests of agentvfs as a whole share: a private environment for the real binary, mounts
//! that never outlive a test, exact pictures of trees, a model of what a process wrote.
//!
//! Invariant: nothing of the machine outside a test's own directory is read or changed, and whatever
//! a test leaves running is ended with it. These helpers panic freely: they are tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod attempt;
pub mod binary;
pub mod database;
pub mod differential;
pub mod edges;
pub mod env;
pub mod everything;
pub mod holders;
pub mod loggers;
pub mod machines;
pub mod mcp;
pub mod model;
pub mod mount;
pub mod pages;
pub mod requests;
pub mod rng;
pub mod s3;
pub mod sandbox;
pub mod shell;
pub mod skip;
pub mod sys;
pub mod terminal;
pub mod transports;
pub mod tree;
pub mod user;
pub mod wait;
pub mod worker;
