//! A pager for long output on a terminal: `$AGENTVFS_PAGER`, else `$PAGER`, else `less -FRX`.
//!
//! Invariant: nothing that was written is lost where the pager cannot be run; it goes to standard output then.

use agentvfs_client::home::process_env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

/// More than a pipe holds, in bytes: a pager that has read so much is running.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Exit statuses of a shell whose command cannot be run, and is not found.
const NOT_RUN: [i32; 2] = [126, 127];

/// Where long output goes: to a pager, or straight to standard output where none can be had.
pub struct Pager {
    child: Option<Child>,
    /// What it was given, until it is certain that it runs.
    kept: Option<Vec<u8>>,
}

impl Pager {
    /// Starts the pager; `cat` and an empty variable mean none.
    pub fn open() -> Pager {
        let wanted = ["AGENTVFS_PAGER", "PAGER"].into_iter().find_map(|name| {
            // An empty variable says that none is wanted.
            std::env::var_os(name)
        });
        let command = wanted.unwrap_or_else(|| OsString::from("less -FRX"));
        let mut pager = Pager {
            child: None,
            kept: Some(Vec::new()),
        };
        if command.is_empty() || command == "cat" {
            return pager;
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::piped());
        if process_env("LESS").is_none() {
            shell.env("LESS", "FRX");
        }
        pager.child = shell.spawn().ok();
        pager
    }

    /// Waits until the reader has had enough.
    pub fn finish(mut self) -> io::Result<()> {
        match self.end() {
            Some(status) => self.print_if_not_run(status),
            None => io::stdout().lock().flush(),
        }
    }

    /// Ends the pager's input and waits for it.
    fn end(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        drop(child.stdin.take());
        child.wait().ok()
    }

    /// Prints what a pager was given that could not be run. How else it ended is its own matter.
    fn print_if_not_run(&mut self, status: ExitStatus) -> io::Result<()> {
        let is_not_run = status.code().is_some_and(|code| NOT_RUN.contains(&code));
        match self.kept.take().filter(|_| is_not_run) {
            Some(kept) => io::stdout().lock().write_all(&kept),
            None => Ok(()),
        }
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(input) = self.child.as_mut().and_then(|child| child.stdin.as_mut()) else {
            return io::stdout().lock().write(bytes);
        };
        match input.write(bytes) {
            Ok(written) => {
                self.kept = self.kept.take().and_then(|mut kept| {
                    kept.extend_from_slice(&bytes[..written]);
                    (kept.len() <= KEPT_BYTES_MAX).then_some(kept)
                });
                Ok(written)
            }
            Err(error) => match self.end() {
                Some(status) if status.code().is_some_and(|code| NOT_RUN.contains(&code)) => {
                    self.print_if_not_run(status)?;
                    io::stdout().lock().write(bytes)
                }
                _ => Err(error),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(input) => input.flush(),
            None => io::stdout().lock().flush(),
        }
    }
}
