//! Holes in packs: records that nothing needs, whose space went back to the disk.
//!
//! The header of such a record stays, so that a pack can be gone through; of its data go the whole blocks.
//! What is left does not match the id, so nobody takes it for the object, and nothing else is needed to
//! tell: a pack is still the truth about itself.
//!
//! Invariant: when the first byte of a record goes, no index has it, neither in memory nor on stable
//! storage. So no put finds it there, whatever happens, and whatever becomes of the hole in a crash.

use crate::error::{AtPath, Error, Result};
use crate::limits::PUNCH_BLOCK_BYTES;
use crate::pack::open::record_end;
use crate::pack::record::RECORD_HEADER_BYTES;
use crate::pack::{Key, Location, Pack};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a disk writes as a whole: a hole may be there in part after a power cut.
const SECTOR_BYTES: usize = 512;

/// The whole blocks of a record's data, which can be punched without touching a header.
pub(crate) fn blocks_of(at: &Location) -> Range<u64> {
    let data = u64::from(at.offset) + RECORD_HEADER_BYTES as u64;
    let start = data.next_multiple_of(PUNCH_BLOCK_BYTES);
    let end = record_end(at) / PUNCH_BLOCK_BYTES * PUNCH_BLOCK_BYTES;
    start..end.max(start)
}

/// Length of [`blocks_of`].
pub(crate) fn block_bytes(at: &Location) -> u64 {
    let blocks = blocks_of(at);
    blocks.end - blocks.start
}

/// True where the data of a record, which does not match its id, may be what a hole left of it.
pub(crate) fn may_be_punched(at: &Location, data: &[u8]) -> bool {
    let first = u64::from(at.offset) + RECORD_HEADER_BYTES as u64;
    let blocks = blocks_of(at);
    let inside = (blocks.start - first) as usize..(blocks.end - first) as usize;
    let blocks = data.get(inside).unwrap_or_default();
    let mut sectors = blocks.chunks_exact(SECTOR_BYTES);
    sectors.any(|sector| sector.iter().all(|byte| *byte == 0))
}

/// True where a record lies in one of `holes`, which ascend.
fn is_in(holes: &[Range<u64>], at: &Location) -> bool {
    let next = holes.partition_point(|hole| hole.end <= at.offset.into());
    holes
        .get(next)
        .is_some_and(|hole| hole.start < record_end(at))
}

impl Pack {
    /// Bytes that it takes on the disk, holes left out.
    pub fn disk_bytes(&self) -> u64 {
        let holes = self.hole_bytes.load(Ordering::Relaxed);
        self.segment.len().saturating_sub(holes)
    }

    /// True where a record is known to stand there.
    pub fn lists(&self, key: &Key, at: Location) -> bool {
        self.records.read().find(key) == Some(at)
    }

    /// Takes the records at these offsets out of the index in memory.
    pub fn unlist(&self, offsets: &HashSet<u32>) {
        let mut records = self.records.write();
        let kept = records.index.without(offsets);
        records.index = Arc::new(kept);
    }

    /// Looks for holes, and takes out of the index what was lost in one. There is nothing of that kind
    /// unless the index is older than the hole, as one that was brought back by hand is: objects that
    /// are put later must not be taken as present because of it.
    pub fn look_for_holes(&self) -> Result<()> {
        let holes = self.count_holes()?;
        if holes.is_empty() {
            return Ok(());
        }
        let index = self.records.read().index.clone();
        let mut gone = HashSet::new();
        for (key, at) in index.entries().filter(|(_, at)| is_in(&holes, at)) {
            match self.read(&key, at, true) {
                Err(Error::Corrupt { offset, .. }) => {
                    tracing::error!(self.path, offset, "index has a record that is a hole");
                    gone.insert(at.offset);
                }
                read => drop(read?),
            }
        }
        if !gone.is_empty() {
            self.unlist(&gone);
        }
        Ok(())
    }

    /// Where its holes are; counts their bytes.
    fn count_holes(&self) -> Result<Vec<Range<u64>>> {
        let holes = self.segment.holes().at(&self.path)?;
        let bytes = holes.iter().map(|hole| hole.end - hole.start).sum();
        self.hole_bytes.store(bytes, Ordering::Relaxed);
        Ok(holes)
    }

    /// Gives the space of records back that are in no index any more; returns the bytes that the disk
    /// got.
    pub fn punch(&self, dead: &[Location]) -> Result<u64> {
        let offsets: HashSet<u32> = dead.iter().map(|at| at.offset).collect();
        assert!(
            !self.lists_any(&offsets),
            "a record that is listed must stay"
        );
        let before = self.disk_bytes();
        for at in dead {
            match self.segment.punch_hole(blocks_of(at)) {
                Err(error) if error.kind() == ErrorKind::Unsupported => break,
                punched => punched.at(&self.path)?,
            }
        }
        self.count_holes()?;
        Ok(before.saturating_sub(self.disk_bytes()))
    }

    fn lists_any(&self, offsets: &HashSet<u32>) -> bool {
        let records = self.records.read();
        let mut all = records
            .index
            .entries()
            .map(|(_, at)| at)
            .chain(records.tail.values().copied());
        all.any(|at| offsets.contains(&at.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u32, stored_len: u32) -> Location {
        Location { offset, stored_len }
    }

    #[test]
    fn only_whole_blocks_of_the_data_go() {
        assert_eq!(blocks_of(&at(24, 4096)), 4096..4096);
        assert_eq!(blocks_of(&at(24, 8192 - 80)), 4096..8192);
        assert_eq!(block_bytes(&at(24, 8192 - 81)), 0);
        // The data begins with a block, and the header ends with the one before.
        assert_eq!(blocks_of(&at(4040, 4096)), 4096..8192);
        assert_eq!(blocks_of(&at(4041, 4096)), 8192..8192);
        assert_eq!(blocks_of(&at(4040, 4095)), 4096..4096);
        assert_eq!(blocks_of(&at(u32::MAX, 0)), 1 << 32 | 4096..1 << 32 | 4096);
    }

    #[test]
    fn a_hole_is_told_by_a_sector_of_zeros_in_a_whole_block() {
        let at = at(4040, 3 * 4096);
        let mut data = vec![1; 3 * 4096];
        assert!(!may_be_punched(&at, &data));
        data[600..1023].fill(0);
        assert!(!may_be_punched(&at, &data), "no sector");
        data[600..1536].fill(0);
        assert!(may_be_punched(&at, &data));
        assert!(!may_be_punched(&super::tests::at(24, 4000), &[0; 4000]));
        assert!(!may_be_punched(&at, &[]));
    }

    #[test]
    fn a_record_is_in_a_hole_that_it_touches() {
        let holes = [4096..8192, 12288..16384];
        for (offset, len, wanted) in [
            (24, 4016, false),
            (24, 4017, true),
            (8191, 0, true),
            (8192, 4040, false),
            (8192, 4041, true),
            (16384, 9, false),
        ] {
            assert_eq!(is_in(&holes, &at(offset, len)), wanted, "{offset} {len}");
        }
    }
}
