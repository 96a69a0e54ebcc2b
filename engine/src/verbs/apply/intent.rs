//! The record of an apply that is under way: what the next command needs to finish or reverse it.
//!
//! Written before anything is made in the base, again before the first rename, and again once all are
//! done; removed at the end.

use crate::error::{Error, Result};
use crate::record::{decode, encode};
use crate::types::Time;
use objstore::Meta;
use objstore::io::Storage;

/// Version of the record.
const VERSION: u16 = 1;
const CHECKSUM_BYTES: usize = 32;

/// Device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) struct Ident {
    pub dev: u64,
    pub ino: u64,
}

/// How far an apply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) enum Phase {
    /// Files are being staged: nothing of the base was touched.
    Staging,
    /// Renames are under way: they are to be reversed.
    Moving,
    /// All is done: what it replaced may go.
    Done,
}

/// A rename, or new attributes of a directory.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub(super) enum Step {
    /// A staged file and what has the path change places.
    Exchange {
        path: Vec<u8>,
        slot: u32,
        new: Ident,
        old: Ident,
    },
    /// A staged file or directory gets a path that nothing has.
    Place {
        path: Vec<u8>,
        slot: u32,
        new: Ident,
    },
    /// What has the path is taken into the staging directory.
    Take {
        path: Vec<u8>,
        slot: u32,
        old: Ident,
        dir: bool,
    },
    /// A directory gets other attributes.
    Attributes { path: Vec<u8>, new: Meta },
}

/// The record.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub(super) struct Intent {
    version: u16,
    /// The base directory.
    pub base: Ident,
    /// Name of the staging directory in it.
    pub staging: Vec<u8>,
    pub phase: Phase,
    /// Modification time of the base directory before, and as it is to be: staging changes it.
    pub times: [Time; 2],
    pub steps: Vec<Step>,
    /// Attributes before of all directories that are touched.
    pub before: Vec<(Vec<u8>, Meta)>,
}

impl Intent {
    /// The record of an apply that begins.
    pub fn new(base: Ident, staging: Vec<u8>, times: [Time; 2]) -> Intent {
        Intent {
            version: VERSION,
            base,
            staging,
            phase: Phase::Staging,
            times,
            steps: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Writes it, durably.
    pub fn write(&self, storage: &dyn Storage, path: &str) -> Result<()> {
        let body = encode(self);
        let bytes = [blake3::hash(&body).as_bytes(), &body[..]].concat();
        storage.replace(path, &bytes).map_err(Error::io(path))
    }

    /// Reads it; `None` where no apply is under way.
    pub fn read(storage: &dyn Storage, path: &str) -> Result<Option<Intent>> {
        let Some(bytes) = storage.read(path).map_err(Error::io(path))? else {
            return Ok(None);
        };
        let damaged = |why: String| Error::Damaged {
            what: path.to_owned(),
            why,
        };
        let (sum, body) = bytes
            .split_at_checked(CHECKSUM_BYTES)
            .ok_or_else(|| damaged("it is too short".into()))?;
        if sum != blake3::hash(body).as_bytes() {
            return Err(damaged("its checksum does not fit".into()));
        }
        let intent: Intent = decode(body).map_err(damaged)?;
        match intent.version {
            VERSION => Ok(Some(intent)),
            found => Err(damaged(format!("its version is {found}"))),
        }
    }

    /// Removes it.
    pub fn remove(storage: &dyn Storage, path: &str) -> Result<()> {
        storage.remove(path).map_err(Error::io(path))?;
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        storage.sync_dir(dir).map_err(Error::io(path))
    }
}
