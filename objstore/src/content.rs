//! File content: storing it as chunks, canonically, and reading it back.
//!
//! What is stored depends on length and bytes alone, never on the order of writes, on what was there before, or on
//! which zeros nobody wrote. Builds before that stored holes where they were told of them: such content stays
//! readable, and [`same_bytes`] says whether it has the bytes of another.

mod parts;
mod read;
mod same;
mod store;

use bincode::{Decode, Encode};

use crate::id::{ChunkId, ManifestId};
pub use read::{
    data_bytes, data_from, data_ranges, each_part, next_data, next_hole, read_content,
    try_read_content,
};
pub use same::same_bytes;
pub use store::{store_content, store_content_by_ranges};

/// What a regular file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum FileContent {
    /// Nothing.
    Empty,
    /// One chunk without holes.
    Chunk {
        /// The chunk.
        id: ChunkId,
        /// Its length.
        len: u32,
    },
    /// Several chunks, or holes.
    Manifest {
        /// Root of the manifest.
        id: ManifestId,
        /// Length of the file.
        len: u64,
    },
}

impl FileContent {
    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        match self {
            FileContent::Empty => 0,
            FileContent::Chunk { len, .. } => u64::from(*len),
            FileContent::Manifest { len, .. } => *len,
        }
    }

    /// True for the empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the bytes to store come from.
pub trait Source {
    /// Fills `buf` from `offset`. Holes read as zeros.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()>;
}

impl Source for [u8] {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = start
            .checked_add(buf.len())
            .and_then(|end| self.get(start..end));
        buf.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.as_slice().read_at(offset, buf)
    }
}

impl Source for std::fs::File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
}
