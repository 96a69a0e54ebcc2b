//! What can go wrong in the store. Variants are facts with fields; the path stands with every I/O error.

use std::io;

use crate::id::Kind;

/// Result of the store's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// File, relative to the store where it lies in it.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The disk or the quota is full.
    #[error("{path}: no space left")]
    NoSpace {
        /// File that could not grow.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The source of a file's content could not be read.
    #[error("cannot read the content to store: {0}")]
    Source(#[source] io::Error),
    /// Nothing is stored under this id.
    #[error("{kind} {id} is not in the store")]
    ObjectMissing {
        /// Kind that was asked for.
        kind: Kind,
        /// Its id in hex.
        id: String,
    },
    /// It is not here, and cannot be had now from where it is.
    #[error("{kind} {id} is not here: {why}")]
    Elsewhere {
        /// Kind that was asked for.
        kind: Kind,
        /// Its id in hex.
        id: String,
        /// Why it cannot be had.
        why: String,
    },
    /// Bytes on disk are not what was written.
    #[error("{path}: damaged at byte {offset}: {what}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Damaged file.
        path: String,
        /// Where in it.
        offset: u64,
    },
    /// An object's bytes are whole but do not make sense.
    #[error("{kind} {id} is malformed: {what}")]
    BadObject {
        /// Its kind.
        kind: Kind,
        /// Its id in hex.
        id: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Bytes were asked for that the content does not have.
    #[error("bytes {offset}..{end} are beyond the content's end at {len}")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// End of what was asked for.
        end: u64,
        /// Length of the content.
        len: u64,
    },
    /// More bytes than one object may have.
    #[error("{kind} of {len} bytes exceeds the maximum of {max}")]
    TooLarge {
        /// Its kind.
        kind: Kind,
        /// Its length.
        len: u64,
        /// The bound.
        max: u64,
    },
    /// The store was written by a newer program.
    #[error("the store has version {found}; this program supports versions up to {supported}")]
    NewerVersion {
        /// Version on disk.
        found: u32,
        /// Newest known one.
        supported: u32,
    },
    /// Another process owns the store.
    #[error("the store is in use by process {owner_pid}")]
    Locked {
        /// Its process id; 0 where it could not be read.
        owner_pid: u32,
    },
    /// A name cannot be a ref's.
    #[error("{name:?} is not a ref name")]
    BadRefName {
        /// The name.
        name: String,
    },
    /// An earlier sync failed: what the disk holds is unknown, nothing more is taken until reopened.
    #[error("a sync failed earlier; reopen the store")]
    Poisoned,
    /// There is a run of gc already.
    #[error("gc is running already")]
    Busy,
    /// The work was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// The import table could not be used.
    #[error("import table: {0}")]
    ImportTable(#[from] sled::Error),
}

impl Error {
    /// An I/O error on `path`, told apart by whether space is what is missing.
    pub fn io(path: impl Into<String>, source: io::Error) -> Error {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::NoSpace { path, source }
            }
            _ => Error::Io { path, source },
        }
    }

    /// True where more space would have helped.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }

    /// True where it is not here, and cannot be had now from where it is.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Error::Elsewhere { .. })
    }

    /// True where bytes on disk are damaged or gone.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. } | Error::ObjectMissing { .. } | Error::BadObject { .. }
        )
    }
}

/// Adds the path to an I/O result.
pub(crate) trait AtPath<T> {
    fn at(self, path: &str) -> Result<T>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &str) -> Result<T> {
        self.map_err(|source| Error::io(path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_told_apart() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(Error::io("a", full).is_no_space());
        let eio = io::Error::from_raw_os_error(5);
        let error = Error::io("a", eio);
        assert!(!error.is_no_space());
        assert!(error.to_string().starts_with("a: "));
    }
}
