//! The state file: a branch's whole live tree, and from which journal record on to replay over it.
//!
//! Layout: magic, version, checksum of the rest, then the encoded [`StateFile`]. Replaced atomically.

use crate::error::{Error, Result};
use crate::history::HistoryRecord;
use crate::record::{Counters, TreePatch, decode, encode};
use objstore::TreeId;
use objstore::io::Storage;

const MAGIC: &[u8; 8] = b"AVFSTAT\0";
const VERSION: u32 = 1;
/// Magic, version, blake3 of the body.
const HEADER_BYTES: usize = 8 + 4 + 32;

/// Content of the state file.
#[derive(Clone, Debug, bincode::Encode, bincode::Decode)]
pub struct StateFile {
    /// First journal record that is not in it.
    pub next_seq: u64,
    /// Numbers to be given next.
    pub counters: Counters,
    /// States, labels, head, undo, redo.
    pub history: HistoryRecord,
    /// All inodes.
    pub tree: TreePatch,
    /// Object of the root directory, where the tree is stored as a whole; the outer `None` before the
    /// first time.
    pub root: Option<Option<TreeId>>,
    /// Base paths that were not what had been shown.
    pub base_changed: Vec<Vec<u8>>,
    /// Base paths that could not be read.
    pub unreadable: Vec<Vec<u8>>,
}

impl StateFile {
    /// Reads `path`; `None` where there is no file.
    pub fn read(storage: &dyn Storage, path: &str) -> Result<Option<StateFile>> {
        let Some(bytes) = storage.read(path).map_err(Error::io(path))? else {
            return Ok(None);
        };
        let damaged = |why: String| Error::Damaged {
            what: path.to_owned(),
            why,
        };
        Self::parse(&bytes).map(Some).map_err(damaged)
    }

    /// Decodes the bytes of a state file.
    pub fn parse(bytes: &[u8]) -> std::result::Result<StateFile, String> {
        let body = bytes.get(HEADER_BYTES..).ok_or("it is too short")?;
        if &bytes[..8] != MAGIC {
            return Err("it is not a state file".into());
        }
        let mut version = [0; 4];
        version.copy_from_slice(&bytes[8..12]);
        if u32::from_le_bytes(version) != VERSION {
            return Err(format!(
                "its version is {}, not {VERSION}",
                u32::from_le_bytes(version)
            ));
        }
        if blake3::hash(body).as_bytes()[..] != bytes[12..HEADER_BYTES] {
            return Err("its checksum does not match".into());
        }
        decode(body)
    }

    /// Replaces `path`, durably.
    pub fn write(&self, storage: &dyn Storage, path: &str) -> Result<()> {
        let body = encode(self);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.extend_from_slice(&body);
        storage.replace(path, &bytes).map_err(Error::io(path))
    }
}
