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
    /// What else is denied.
    pub strict: bool,
    /// How far it is kept from the machine.
    pub protection: Protection,
    /// What it may take of the machine.
    pub limits: Limits,
    /// It is in another sandbox.
    pub nested: Option<Nested>,
}

/// What a sandbox needs of the one that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// A socket at which [`crate::reach::MAP`] asks for the maps of ids, if this process may not write all of them: root
    /// without CAP_SETUID may map itself alone (user_namespaces(7)).
    pub maps: Option<PathBuf>,
}

/// What the processes of a sandbox may take of the machine, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Processor time, in percent of one processor.
    pub cpu_percent: Option<u64>,
}

/// How far a command is kept from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// By every layer; one that the kernel lacks is an error.
    All,
    /// By every layer that the kernel has; [`crate::Standing::lacking`] says which it lacks.
    BestEffort,
    /// By nothing: of the places only views count, and the rest is as the caller has it.
    ViewOnly,
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
    /// What is there anyway, writable, but all changes go to the directory `upper`; `work` is an empty directory
    /// beside it. Where the kernel cannot do that it stays read-only, and [`crate::Standing::not_copied`] says so.
    Copy {
        /// Keeps the changes.
        upper: PathBuf,
        /// For overlayfs.
        work: PathBuf,
    },
    /// The directory `dir`, writable, which has the names of what is there. On each but those of `files` is placed
    /// what is there, read-only.
    Names {
        /// Has the names.
        dir: PathBuf,
        /// Its own files.
        files: Vec<PathBuf>,
    },
    /// What is there anyway, read-only, though something around it is hidden.
    Shown,
    /// Another directory, read-only, without what is mounted below it.
    Tree(PathBuf),
    /// An empty directory in memory, read-only, made where nothing is.
    Empty,
    /// A file of the sandbox's user with these bytes, in memory, read-only.
    Text(Vec<u8>),
    /// A link to this, in an empty directory.
    Link(PathBuf),
    /// The socket that is at another path.
    Socket(PathBuf),
}

/// Which network the sandbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// The machine's.
    Host,
    /// Its own, with nothing but the loopback device.
    None,
}
