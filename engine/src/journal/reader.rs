//! Reading of payloads: the part that is asked for, checked by the checksums of the blocks it touches.
//!
//! Invariant: bytes are given to the caller only after their blocks passed; no lock is held while the
//! disk is waited for. A read of up to [`WINDOW_BLOCKS`] blocks costs two reads of the file.

use super::error::{JournalError, JournalResult};
use super::format::{
    BLOCK_BYTES, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, block_crc, crcs_bytes, u32_at,
};
use super::{PayloadRef, segment::Live};
use std::io;

/// Blocks that are read at once: 1 MiB, what one request of the kernel asks for at most.
const WINDOW_BLOCKS: usize = 256;
const CRC_BYTES: usize = 4;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It may.
    Yes,
    /// It gives up where it would have to.
    No,
}

/// Fills `buf` from byte `from` of a payload. `Ok(false)`: the disk would have to be waited for.
pub(crate) fn read(
    live: &Live,
    p: PayloadRef,
    from: u32,
    buf: &mut [u8],
    wait: Wait,
) -> JournalResult<bool> {
    check_range(p, from, buf.len())?;
    let reader = PayloadReader { live, p, wait };
    let mut at = from as usize;
    let mut rest = buf;
    while !rest.is_empty() {
        let window_end = (at / BLOCK_BYTES + WINDOW_BLOCKS) * BLOCK_BYTES;
        let (head, tail) = rest.split_at_mut(rest.len().min(window_end - at));
        if !reader.window(at, head)? {
            return Ok(false);
        }
        at += head.len();
        rest = tail;
    }
    Ok(true)
}

/// Refuses ranges outside the payload, and references that cannot be a payload's.
fn check_range(p: PayloadRef, from: u32, len: usize) -> JournalResult<()> {
    let start_min = (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + crcs_bytes(p.len)) as u64;
    let fits = u64::from(from) + len as u64 <= u64::from(p.len);
    if fits && p.offset >= start_min {
        return Ok(());
    }
    Err(bad_ref(p))
}

/// The error for a reference that this journal never gave out.
pub(crate) fn bad_ref(p: PayloadRef) -> JournalError {
    JournalError::BadRef {
        segment: p.segment,
        offset: p.offset,
    }
}

struct PayloadReader<'a> {
    live: &'a Live,
    p: PayloadRef,
    wait: Wait,
}

impl PayloadReader<'_> {
    /// Reads a range that touches at most [`WINDOW_BLOCKS`] blocks.
    fn window(&self, at: usize, buf: &mut [u8]) -> JournalResult<bool> {
        let first = at / BLOCK_BYTES;
        let end = at + buf.len();
        let blocks_end = (end.div_ceil(BLOCK_BYTES) * BLOCK_BYTES).min(self.p.len as usize);
        let count = end.div_ceil(BLOCK_BYTES) - first;
        let mut crcs = [0; WINDOW_BLOCKS * CRC_BYTES];
        let crcs = &mut crcs[..count * CRC_BYTES];
        let crcs_at = self.p.offset - (crcs_bytes(self.p.len) - first * CRC_BYTES) as u64;
        if !self.fetch(crcs_at, crcs)? {
            return Ok(false);
        }
        if at == first * BLOCK_BYTES && end == blocks_end {
            return self.blocks(first, crcs, buf);
        }
        // Not on block boundaries: whole blocks are read aside, so that they can be checked.
        let mut whole = vec![0; blocks_end - first * BLOCK_BYTES];
        let done = self.blocks(first, crcs, &mut whole)?;
        let skip = at - first * BLOCK_BYTES;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(done)
    }

    /// Reads whole blocks from number `first` on and checks each.
    fn blocks(&self, first: usize, crcs: &[u8], buf: &mut [u8]) -> JournalResult<bool> {
        let offset = self.p.offset + (first * BLOCK_BYTES) as u64;
        if !self.fetch(offset, buf)? {
            return Ok(false);
        }
        match first_bad_block(buf, crcs) {
            None => Ok(true),
            Some(bad) => Err(JournalError::PayloadDamaged {
                segment: self.p.segment,
                offset: offset + (bad * BLOCK_BYTES) as u64,
            }),
        }
    }

    fn fetch(&self, offset: u64, buf: &mut [u8]) -> JournalResult<bool> {
        let file = &self.live.file;
        let result = match self.wait {
            Wait::Yes => file.read_at(offset, buf).map(|()| true),
            Wait::No => file.try_read_at(offset, buf),
        };
        result.map_err(|source| match source.kind() {
            // The segment is shorter than the reference says: no such payload is in it.
            io::ErrorKind::UnexpectedEof => bad_ref(self.p),
            _ => JournalError::io(&self.live.path)(source),
        })
    }
}

/// Number of the first block of `data` that does not match its checksum.
pub(crate) fn first_bad_block(data: &[u8], crcs: &[u8]) -> Option<usize> {
    data.chunks(BLOCK_BYTES)
        .zip(crcs.chunks_exact(CRC_BYTES))
        .position(|(block, crc)| block_crc(block) != u32_at(crc, 0))
}
