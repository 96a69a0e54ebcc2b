//! A pager for long output on a terminal: `$AGENTVFS_PAGER`, else `$PAGER`, else `less -FRX`.

use agentvfs_client::home::process_env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

/// Where long output goes: to a pager, or straight to standard output where none can be had.
pub struct Pager {
    child: Option<Child>,
}

impl Pager {
    /// Starts the pager; `cat` and an empty variable mean none.
    pub fn open() -> Pager {
        let wanted = ["AGENTVFS_PAGER", "PAGER"].into_iter().find_map(|name| {
            // An empty variable says that none is wanted.
            std::env::var_os(name)
        });
        let command = wanted.unwrap_or_else(|| OsString::from("less -FRX"));
        if command.is_empty() || command == "cat" {
            return Pager { child: None };
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::piped());
        if process_env("LESS").is_none() {
            shell.env("LESS", "FRX");
        }
        Pager {
            child: shell.spawn().ok(),
        }
    }

    /// Waits until the reader has had enough.
    pub fn finish(mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            // How the pager ended is its own matter.
            let _ = child.wait();
        }
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(input) => input.write(bytes),
            None => io::stdout().lock().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(input) => input.flush(),
            None => io::stdout().lock().flush(),
        }
    }
}
