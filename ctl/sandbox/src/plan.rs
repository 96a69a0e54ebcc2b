//! What is asked of a sandbox.

use std::ffi::OsString;
use std::path::PathBuf;

/// What is asked of a sandbox. All paths are absolute; those of [`PathRule`] have no symbolic links.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The command and its arguments; at least one word.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory, and the one to use where that is not there.
    pub cwd: (PathBuf, PathBuf),
    /// What is where, besides what every sandbox has.
    pub places: Vec<PathRule>,
    /// Its network.
    pub net: Net,
}

/// What is at one path of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// The path in the sandbox.
    pub at: PathBuf,
    /// What is there.
    pub what: What,
}

/// What can be at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An empty file or directory, read-only, in place of what is there; nothing where nothing is there.
    Hidden,
    /// An empty directory in memory, writable.
    Private,
    /// Another directory, writable, without what is mounted below it.
    View(PathBuf),
    /// What is there anyway, writable, with all that is mounted below it.
    Writable,
    /// What is there anyway, read-only, though something around it is hidden.
    Shown,
}

/// Which network the sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// The machine's.
    Host,
    /// Its own, with nothing but the loopback device.
    None,
}
