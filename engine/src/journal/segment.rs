//! Segment files of a journal: their names, their order, which of them are live.
//!
//! Invariant: the numbers of live segments are consecutive; the last one takes the appends.

use super::error::{JournalError, JournalResult};
use super::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use objstore::io::{Segment, Storage};
use std::collections::VecDeque;
use std::sync::Arc;

const SUFFIX: &str = ".seg";

/// Path of a segment.
pub(crate) fn path(dir: &str, number: u32) -> String {
    format!("{dir}/{number:08}{SUFFIX}")
}

/// Number of a segment from its file name; `None` for other files.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(SUFFIX)?;
    let plain = number.len() >= 8 && number.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| number.parse().ok()).flatten()
}

/// Numbers of the segments in a directory, ascending.
pub(crate) fn list(storage: &dyn Storage, dir: &str) -> JournalResult<Vec<u32>> {
    let names = storage.list(dir).map_err(JournalError::io(dir))?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a segment with its header. Neither name nor header are durable yet. On failure nothing is
/// left that a later attempt would stumble over.
pub(crate) fn create(
    storage: &dyn Storage,
    dir: &str,
    header: &SegmentHeader,
) -> JournalResult<Live> {
    let path = path(dir, header.segment);
    // What an earlier attempt left when the disk was full; it never held a record.
    storage.remove(&path).map_err(JournalError::io(&path))?;
    let file = storage.create(&path).map_err(JournalError::io(&path))?;
    if let Err(source) = file.append(&[&header.encode()]) {
        // Should this fail too, the next attempt removes the file.
        let _ = storage.remove(&path);
        return Err(JournalError::io(&path)(source));
    }
    Ok(Live {
        number: header.segment,
        path: path.into(),
        file,
    })
}

/// Reads and checks a segment's header; `None` where it is short, damaged or another one's.
pub(crate) fn read_header(live: &Live, journal: u64) -> JournalResult<Option<SegmentHeader>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    if live.file.len() < bytes.len() as u64 {
        return Ok(None);
    }
    live.file
        .read_at(0, &mut bytes)
        .map_err(JournalError::io(&live.path))?;
    Ok(SegmentHeader::decode(&bytes)
        .filter(|header| header.journal == journal && header.segment == live.number))
}

/// An open segment.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Its number.
    pub number: u32,
    /// Its path, for errors.
    pub path: Arc<str>,
    /// The file.
    pub file: Arc<dyn Segment>,
}

impl Live {
    /// Opens an existing segment.
    pub(crate) fn open(storage: &dyn Storage, dir: &str, number: u32) -> JournalResult<Live> {
        let path = path(dir, number);
        let file = storage.open(&path).map_err(JournalError::io(&path))?;
        Ok(Live {
            number,
            path: path.into(),
            file,
        })
    }

    /// Brings the segment to stable storage.
    pub(crate) fn sync(&self) -> JournalResult<()> {
        self.file.sync().map_err(JournalError::io(&self.path))
    }
}

/// The live segments, oldest first. Never empty.
#[derive(Debug)]
pub(crate) struct Table {
    live: VecDeque<Live>,
}

impl Table {
    /// A table of at least one segment; their numbers are consecutive.
    pub(crate) fn new(live: Vec<Live>) -> Table {
        assert!(!live.is_empty());
        assert!(live.windows(2).all(|w| w[0].number + 1 == w[1].number));
        Table { live: live.into() }
    }

    /// Number of the oldest segment.
    pub(crate) fn first(&self) -> u32 {
        self.live[0].number
    }

    /// Number of the segment that takes appends.
    pub(crate) fn last(&self) -> u32 {
        self.live[self.live.len() - 1].number
    }

    /// The live segment of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&Live> {
        self.live.get(number.checked_sub(self.first())? as usize)
    }

    /// Adds the segment that takes appends from now on.
    pub(crate) fn push(&mut self, live: Live) {
        assert_eq!(live.number, self.last() + 1);
        self.live.push_back(live);
    }

    /// Takes out all segments before `number`, but never the last one.
    pub(crate) fn take_before(&mut self, number: u32) -> Vec<Live> {
        let count = number.min(self.last()).saturating_sub(self.first());
        self.live.drain(..count as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        assert_eq!(path("j", 7), "j/00000007.seg");
        assert_eq!(number_of("00000007.seg"), Some(7));
        assert_eq!(number_of("4294967295.seg"), Some(u32::MAX));
        assert_eq!(number_of("7.seg"), None);
        assert_eq!(number_of("+0000007.seg"), None);
        assert_eq!(number_of("mark"), None);
        assert_eq!(number_of("99999999999.seg"), None);
    }
}
