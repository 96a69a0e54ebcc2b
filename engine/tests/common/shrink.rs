//! Making a failing sequence short: parts are left out as long as it still fails.

use super::op::Op;
use std::time::{Duration, Instant};

/// A shorter sequence that fails, with its error.
pub fn shrink(
    mut ops: Vec<Op>,
    mut error: String,
    time: Duration,
    fails: &dyn Fn(&[Op]) -> Option<String>,
) -> (Vec<Op>, String) {
    let deadline = Instant::now() + time;
    let kind = class(&error);
    let mut part = ops.len().div_ceil(2);
    while part > 0 && Instant::now() < deadline {
        let (mut at, mut less) = (0, false);
        while at < ops.len() && Instant::now() < deadline {
            let end = (at + part).min(ops.len());
            let rest = [&ops[..at], &ops[end..]].concat();
            match fails(&rest).filter(|e| class(e) == kind) {
                Some(e) => (ops, error, less) = (rest, e, true),
                None => at = end,
            }
        }
        if part == 1 && !less {
            break;
        }
        part = if part == 1 { 1 } else { part.div_ceil(2) };
    }
    (ops, error)
}

/// An error without what differs from run to run: operation, names and numbers.
fn class(error: &str) -> String {
    let what = error.split_once("}: ").map_or(error, |(_, what)| what);
    let unquoted: String = what.split('"').step_by(2).collect();
    unquoted.chars().filter(|c| !c.is_ascii_digit()).collect()
}
