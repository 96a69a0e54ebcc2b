//! Helpers of the engine's tests: a plain model of a file system, a generator of operations, a runner
//! that carries both out and compares, and a shrinker.
//!
//! Each test program uses a part of them, so what one leaves unused is no mistake.
#![allow(dead_code, clippy::unwrap_used)]

pub mod away;
pub mod base_dir;
pub mod branching;
pub mod by_path;
pub mod check;
pub mod content;
pub mod control;
pub mod damaged;
pub mod files;
pub mod history;
pub mod kernel;
pub mod keys;
pub mod learn;
pub mod model;
pub mod names;
pub mod op;
pub mod rng;
pub mod runner;
pub mod shrink;
pub mod watched;
pub mod world;

/// Fails the surrounding function with a text where `$cond` does not hold.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $($text:tt)+) => {
        if !$cond {
            return Err(format!($($text)+));
        }
    };
}
