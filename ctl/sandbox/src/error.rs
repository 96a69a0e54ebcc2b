//! Why a sandbox could not be built, or its command not run.

use rustix::io::Errno;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a sandbox could not be built, or its command not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel gives no namespaces to this user.
    #[error("namespaces cannot be created: {0}")]
    Namespaces(Errno),
    /// A step of building it failed.
    #[error("{what}: {errno}")]
    Step {
        /// What was to be done.
        what: String,
        /// Why it failed.
        errno: Errno,
    },
    /// This process has threads, so it cannot be copied safely.
    #[error("this process still has {0} threads")]
    Threads(usize),
    /// There is no such command.
    #[error("no such command in the sandbox")]
    NotFound,
    /// The command cannot be executed.
    #[error("it cannot be executed: {0}")]
    NotExecutable(Errno),
    /// Process 1 ended before it said why.
    #[error("process 1 of the sandbox ended unexpectedly")]
    Lost,
    /// The kernel lacks a layer of the sandbox.
    #[error("this kernel lacks {0}")]
    Lacking(String),
    /// The command cannot be limited as it should.
    #[error("it cannot be limited: {0}")]
    Limits(String),
    /// A path of the plan is not there.
    #[error("{0}: no such file or directory")]
    Missing(PathBuf),
}

/// Says what was to be done when a system call failed.
pub(crate) trait Doing<T> {
    /// The error with what was to be done.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Error::Step {
            what: what(),
            errno,
        })
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Step {
            what: what(),
            errno: Errno::from_io_error(&e).unwrap_or(Errno::IO),
        })
    }
}
