//! `agentvfs`: command line and daemon.
//!
//! Owns processes, sockets, words and colours; it is the only crate that reads arguments and the
//! environment or prints. Invariant: nothing here decides what a file operation means; commands
//! become requests of the control protocol ([`protocol`]), the daemon turns those into engine calls.
//!
//! `unsafe` stands in the module `sys` alone.

pub mod cli;
mod cmd;
mod daemon;
mod doctor;
mod exit;
mod extract;
mod glob;
mod output;
mod pager;
mod settings;
mod signals;
mod spool;
mod sys;

use std::process::ExitCode;

/// Runs the command that the process's arguments name.
///
/// Exit status: 0 done, 1 it failed, 2 wrong usage, 3 no daemon can be reached or started.
pub fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(told) => return told.tell(cli::asks_for_json(std::env::args_os())),
    };
    let json = cli.tells_errors_as_json();
    match cmd::run(cli) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => exit::tell(&failure, json),
    }
}
