//! How the program ends: a failure is told on standard error, with `--json` also as one object
//! `{"error": {"kind", "message", "hint"}}` on standard output, and gives the exit status.

use crate::output::{print_json, stderr_colour};
use agentvfs_client::failure::Failure;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Tells a failure and gives the exit status.
pub fn tell(failure: &Failure, json: bool) -> ExitCode {
    if failure.exit != 0 {
        // Standard error may be closed; there is nobody left to tell then.
        let _ = std::io::stderr().write_all(failure.text(stderr_colour()).as_bytes());
    }
    if failure.exit != 0 && json {
        // The same holds of standard output: the exit status tells it all the same.
        let _ = print_json(&json!({ "error": failure.object() }));
    }
    ExitCode::from(failure.exit)
}
