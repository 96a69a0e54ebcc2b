//! What can go wrong with an export or an import, with the facts that it takes to say it well.

use std::path::{Path, PathBuf};

/// Result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an export or import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine or the store.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The file to write is there.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// Another export writes to the same name.
    #[error("another export to {} is running", .0.display())]
    Busy(PathBuf),
    /// The name of the file to write ends in what is no file's name.
    #[error("{} is not a valid file name", .0.display())]
    BadTarget(PathBuf),
    /// The file system of the target has too little room.
    #[error("{need} bytes are needed for {}, and {free} are free", path.display())]
    NoSpace {
        /// File to write.
        path: PathBuf,
        /// Bytes that it takes, about.
        need: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// An input or output error of a named file.
    #[error("{}: {source}", path.display())]
    Io {
        /// File that was used.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// SQLite could not write.
    #[error("SQLite cannot write {}: {source}", path.display())]
    Write {
        /// File that was written.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A database that is not taken.
    #[error("{} is refused: {why}", path.display())]
    Refused {
        /// The database.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What can be done about it.
        hint: Option<&'static str>,
    },
    /// An overlay database without its base.
    #[error("{} is an overlay, with only the differences from {base}", path.display())]
    NeedsBase {
        /// The database.
        path: PathBuf,
        /// The base, as the database names it.
        base: String,
    },
    /// A base for a database that has none.
    #[error("{} is not an overlay, so it has no base", .0.display())]
    NoOverlay(PathBuf),
    /// The daemon is ending.
    #[error("the daemon is shutting down")]
    Stopped,
}

impl From<objstore::Error> for Error {
    fn from(error: objstore::Error) -> Error {
        Error::Engine(engine::Error::Store(error))
    }
}

impl Error {
    /// Turns an input or output error into one that names the file.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    }
}
