//! What can go wrong with a journal, with the facts that say which one and where.

use std::error::Error as StdError;
use std::io;

/// Result of journal calls.
pub type JournalResult<T> = Result<T, JournalError>;

/// Failure of the function that takes replayed records.
pub type ReplayError = Box<dyn StdError + Send + Sync>;

/// An error of a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file system is full; the journal is as it was before the call.
    #[error("{path}: no space left on device")]
    NoSpace {
        /// File that could not grow.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The journal's own cap is reached; it is as it was before the call. Sealing makes room.
    #[error("the journal holds {bytes} bytes; its limit is {cap}")]
    Full {
        /// Bytes in all segments.
        bytes: u64,
        /// The cap that the record would have exceeded.
        cap: u64,
    },
    /// Metadata or payload longer than a record may hold.
    #[error("a record part of {len} bytes exceeds the maximum of {max}")]
    TooLarge {
        /// Length asked for.
        len: u64,
        /// Longest length allowed.
        max: u64,
    },
    /// The disk failed. After a failed append or sync the journal is poisoned too.
    #[error("{path}: {source}")]
    Io {
        /// File or directory that was used.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// An append or sync failed earlier; nothing can be added until the journal is opened anew.
    #[error("the journal accepts no more records: {why}")]
    Poisoned {
        /// The failure that poisoned it.
        why: String,
    },
    /// The journal is not what was written, in a part that was acknowledged.
    #[error("journal segment {segment}, offset {offset}, record {seq}: {what}")]
    Damaged {
        /// Segment's number.
        segment: u32,
        /// Offset in it.
        offset: u64,
        /// Sequence number of the record that should be there.
        seq: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The mark file is missing or has no valid slot.
    #[error("{path}: {what}")]
    MarkDamaged {
        /// The mark file.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A payload fails its checksum.
    #[error("journal segment {segment}, offset {offset}: data fails its checksum")]
    PayloadDamaged {
        /// Segment's number.
        segment: u32,
        /// Offset of the first bad block.
        offset: u64,
    },
    /// The payload's segment was dropped.
    #[error("journal segment {segment} was dropped")]
    Dropped {
        /// Segment's number.
        segment: u32,
    },
    /// A payload reference, or a range in it, that this journal never gave out.
    #[error("not a payload of this journal: segment {segment}, offset {offset}")]
    BadRef {
        /// Segment's number.
        segment: u32,
        /// Offset of the payload.
        offset: u64,
    },
    /// There is no journal in the directory (or one whose creation was never finished).
    #[error("{dir}: no journal")]
    Missing {
        /// The directory.
        dir: String,
    },
    /// There is a journal in the directory already.
    #[error("{dir}: a journal exists already")]
    Exists {
        /// The directory.
        dir: String,
    },
    /// Written by a later version of this program.
    #[error("{path}: journal format {found} is newer than {known}")]
    NewerVersion {
        /// File that says so.
        path: String,
        /// Its version.
        found: u32,
        /// Newest version that is understood.
        known: u32,
    },
    /// The taker of replayed records refused one.
    #[error("replaying record {seq}: {source}")]
    Replay {
        /// The record.
        seq: u64,
        /// Why it was refused.
        source: ReplayError,
    },
}

impl JournalError {
    /// True where the cause is a full disk: the file operation fails with ENOSPC.
    pub fn is_no_space(&self) -> bool {
        matches!(self, JournalError::NoSpace { .. })
    }

    /// A maker for `map_err`: a full disk becomes `NoSpace`, all else `Io`.
    pub(crate) fn io(path: &str) -> impl FnOnce(io::Error) -> JournalError + '_ {
        move |source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    JournalError::NoSpace { path, source }
                }
                _ => JournalError::Io { path, source },
            }
        }
    }
}
