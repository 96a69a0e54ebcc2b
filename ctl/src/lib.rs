//! `agentvfs`: the command line.
//!
//! Owns words and colours; it is the only crate that reads arguments or prints. Invariant: nothing here decides
//! what a file operation means; commands become requests of the control protocol ([`agentvfs_client`]), which the
//! daemon ([`agentvfs_daemon`]) turns into engine calls. The engine is used without a daemon where there is none to
//! ask: to check new names and settings before anything is asked, and by `fsck`.

#![forbid(unsafe_code)]

pub mod cli;
mod cmd;
mod doctor;
mod exit;
mod extract;
mod names;
mod output;
mod pager;
mod signals;
mod spool;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command that the process's arguments name.
///
/// Exit status: 0 done, 1 it failed, 2 wrong usage, 3 no daemon can be reached or started.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(agent) = cmd::hook::plain(words.iter().cloned()) {
        return ExitCode::from(cmd::hook::run(&agent, None));
    }
    let asks_for_json = cli::asks_for_json(words.iter().cloned());
    let words = match names::translated(&words) {
        None => words,
        Some(Ok(words)) => words,
        Some(Err(failure)) => return exit::tell(&failure, asks_for_json),
    };
    let cli = match cli::parse(words) {
        Ok(cli) => cli,
        Err(told) => return told.tell(asks_for_json),
    };
    let json = cli.tells_errors_as_json();
    match cmd::run(cli) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => exit::tell(&failure, json),
    }
}
