//! What can go wrong with a remote. Variants are facts with fields; the object's name stands with every one that
//! concerns an object. No variant ever holds a credential or a signed address.

use std::io;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a remote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused, for a remote in a directory.
    #[error("{name}: {source}")]
    Io {
        /// The object, or the directory.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// No answer, or one that asks for patience. The request may have been carried out.
    #[error("{name}: {why}")]
    Transient {
        /// The object.
        name: String,
        /// What happened.
        why: String,
    },
    /// The remote does not let us.
    #[error("{name}: access denied: {why}")]
    Denied {
        /// The object.
        name: String,
        /// What the remote said.
        why: String,
    },
    /// The remote cannot do what was asked for.
    #[error("{name}: {why}")]
    Unsupported {
        /// The object, or the remote.
        name: String,
        /// What it cannot do.
        why: String,
    },
    /// An object is not there that must be.
    #[error("{name} is missing in the remote")]
    Missing {
        /// The object.
        name: String,
    },
    /// Bytes that the remote gave are not what was written.
    #[error("{name} is damaged in the remote: {what}")]
    Damaged {
        /// The object.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// An object is larger than it may be.
    #[error("{name} has {bytes} bytes; the most that is read is {max}")]
    TooLarge {
        /// The object.
        name: String,
        /// Its length.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// There is no remote where one was expected.
    #[error("there is no agentvfs remote here")]
    NoRemote,
    /// A clone was cut off before the workspace had its remote.
    #[error("the clone was cut off before it recorded its remote")]
    CutOff,
    /// A later program wrote it.
    #[error("the {what} has version {found}; this program supports versions up to {supported}")]
    Newer {
        /// Which object.
        what: &'static str,
        /// Version in the remote.
        found: u64,
        /// Newest known one.
        supported: u64,
    },
    /// Its contents are encrypted, which this program cannot do.
    #[error("the remote is encrypted, which this program does not support")]
    Encrypted,
    /// Its contents were cut into other chunks than this program makes.
    #[error("the remote was made with another chunker")]
    OtherChunker,
    /// The branch of the remote has moved, so that the push would lose what is there.
    #[error("rejected: {project}/{branch} has moved")]
    Rejected {
        /// Project in the remote.
        project: String,
        /// Branch of it.
        branch: String,
    },
    /// It was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// There is no room for what would come.
    #[error("no room for {bytes} bytes: {why}")]
    NoRoom {
        /// Bytes that would come.
        bytes: u64,
        /// What the store said.
        why: String,
    },
    /// The local store.
    #[error(transparent)]
    Store(#[from] objstore::Error),
    /// A name cannot be an object's.
    #[error("{name:?} is not the name of an object")]
    BadName {
        /// The name.
        name: String,
    },
}

impl Error {
    /// An I/O error on an object of a directory.
    pub fn io(name: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let name = name.into();
        move |source| Error::Io { name, source }
    }

    /// True where an answer may have been damaged on its way, so that it is worth another one.
    pub fn may_be_the_way(&self) -> bool {
        matches!(self, Error::Damaged { .. } | Error::TooLarge { .. })
    }

    /// True where the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Transient { .. } => true,
            Error::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::StaleNetworkFileHandle
            ),
            _ => false,
        }
    }
}
