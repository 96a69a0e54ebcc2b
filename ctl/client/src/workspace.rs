//! A workspace for programs: its files, keys, tool calls, commits and branches, each call a method that waits for its
//! result.
//!
//! ```no_run
//! use agentvfs_client::workspace::{Error, Workspace};
//!
//! fn main() -> Result<(), Error> {
//!     let mut ws = Workspace::open()?;
//!     ws.write("notes/today", b"first\n")?;
//!     let commit = ws.checkpoint("before the change")?.commit;
//!     ws.remove("notes/today")?;
//!     ws.undo_to(&commit.unwrap_or_default())?;
//!     assert_eq!(ws.read("notes/today")?, b"first\n");
//!     Ok(())
//! }
//! ```
//!
//! Invariant: after an error the next call works, on a new connection if need be; what changes something is never
//! sent twice. What a method gives is a type of the [protocol](crate::protocol).

mod calls;
mod files;
mod history;
mod keys;
mod step;

pub use files::{File, HowToOpen};
pub use history::Commit;

use crate::context::{Context, Options};
use crate::failure::{Failure, NO_DAEMON};
use crate::home::process_env;
use crate::launch::Program;
use crate::protocol::{Call, Fault, Nothing, OnBranch};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::Command;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused the request, or it failed: nothing was changed, unless its kind says otherwise. `kind` is for
    /// programs, `errno` of errors of files, `hint` says what to do.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The daemon ended in the middle; whether a change was made is not known. The next call works.
    #[error("{0}")]
    Broken(String),
    /// No daemon can be reached or started, or it has another version of the protocol.
    #[error("{0}")]
    NoDaemon(String),
    /// What was asked for makes no sense, such as a workspace that cannot be told.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The fault's kind, such as `no-such-path`; empty for other errors.
    pub fn kind(&self) -> &str {
        match self {
            Error::Fault(fault) => &fault.kind,
            _ => "",
        }
    }

    /// Name of the errno with which a file operation failed, such as `ENOENT`.
    pub fn errno(&self) -> Option<&str> {
        match self {
            Error::Fault(fault) => fault.errno.as_deref(),
            _ => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let hint = failure.hint.map(|hint| format!(" ({hint})"));
        let text = format!(
            "{}: {}{}",
            failure.what,
            failure.why,
            hint.unwrap_or_default()
        );
        match (failure.exit, &*failure.kind) {
            (NO_DAEMON, _) => Error::NoDaemon(text),
            (_, "daemon-ended") => Error::Broken(text),
            _ => Error::Usage(text),
        }
    }
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A branch of a workspace, with a connection of its own.
pub struct Workspace {
    context: Context,
    name: String,
    branch: String,
    /// Somebody else brings changes to stable storage: the call around them, at its end.
    unsynced: bool,
}

impl Workspace {
    /// The workspace and branch that the environment (`$AGENTVFS_WORKSPACE`, `$AGENTVFS_BRANCH`, `$AGENTVFS_HOME`) and the
    /// current directory name, as for the command.
    pub fn open() -> Result<Workspace> {
        Workspace::open_with(Options::default())
    }

    /// The same; what the options say counts more. Where no daemon runs it is started from `$AGENTVFS_BIN`, else from
    /// `agentvfs` in `$PATH`.
    pub fn open_with(mut options: Options) -> Result<Workspace> {
        if options.launch.program == Program::OnPath
            && let Some(program) = process_env("AGENTVFS_BIN")
        {
            options.launch.program = Program::At(PathBuf::from(program));
        }
        let mut context = Context::new(options)?;
        Ok(Workspace {
            name: context.workspace_to_change(None)?,
            branch: context.branch()?,
            context,
            unsynced: false,
        })
    }

    /// Another branch of the same workspace, with a connection of its own.
    pub fn on_branch(&self, branch: &str) -> Result<Workspace> {
        Ok(Workspace {
            context: self.context.another()?,
            name: self.name.clone(),
            branch: branch.to_owned(),
            unsynced: false,
        })
    }

    /// The workspace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The branch's name.
    pub fn branch(&self) -> &str {
        &self.branch
    }

    /// Brings everything done so far on the branch to stable storage.
    pub fn sync(&mut self) -> Result<()> {
        let Nothing {} = self.ask(&Call::Sync(self.here()))?;
        Ok(())
    }

    /// A command that runs a program in a sandbox that shows the branch: `agentvfs run`. Arguments are the caller's to
    /// add.
    pub fn run(&self, program: &str) -> Command {
        let options = self.context.options();
        let mut command = match &options.launch.program {
            Program::At(path) => Command::new(path),
            Program::OnPath | Program::Own => Command::new("agentvfs"),
        };
        command
            .arg("run")
            .arg("--root")
            .arg(self.context.home().root());
        command.args(["--workspace", &self.name, "--branch", &self.branch]);
        command.args(["--", program]);
        command
    }

    /// Asks the daemon for anything of the protocol.
    pub fn ask<R: DeserializeOwned>(&mut self, call: &Call) -> Result<R> {
        self.context.drop_dead_connection();
        match self.context.try_ask("the daemon cannot be asked", call) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(fault)) => Err(Error::Fault(fault)),
            Err(failure) => {
                self.context.forget_client();
                Err(failure.into())
            }
        }
    }

    fn here(&self) -> OnBranch {
        OnBranch {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let broken = Failure::new("a", "b").kind("daemon-ended");
        assert!(matches!(Error::from(broken), Error::Broken(_)));
        let none = Failure::no_daemon("it is not there").hint("install it");
        let told = Error::from(none);
        assert!(matches!(&told, Error::NoDaemon(text) if text.ends_with("(install it)")));
        assert!(matches!(Error::from(Failure::usage("x")), Error::Usage(_)));
        let fault = Error::from(Fault::failed("wrong-type", "x").errno("EISDIR"));
        assert_eq!(
            (fault.kind(), fault.errno()),
            ("wrong-type", Some("EISDIR"))
        );
    }
}
