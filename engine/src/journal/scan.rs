//! Finding records in the bytes of a segment.
//!
//! Owns the reader from record to record, the check of one record, and the search for valid records
//! behind a bad one. Knows nothing of marks or of what may be cut; `recovery.rs` decides that.
//! Invariant: total on any bytes; memory is bounded by the longest record, not by what a damaged
//! length claims.

use super::format::{RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, SEGMENT_HEADER_BYTES};
use super::reader::first_bad_block;
use objstore::io::Segment;
use std::io;
use std::ops::Range;

/// Bytes read at once while walking; little, since a reader skips payloads.
const WALK_BYTES: usize = 32 << 10;
/// Bytes read at once while searching or verifying payloads; whole blocks.
const BULK_BYTES: usize = 256 << 10;

/// Bytes with positions.
pub(crate) trait Source {
    /// Their number.
    fn source_len(&self) -> u64;
    /// Fills `buf` from `offset`.
    fn fill(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl Source for &dyn Segment {
    fn source_len(&self) -> u64 {
        self.len()
    }
    fn fill(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }
}

impl Source for &[u8] {
    fn source_len(&self) -> u64 {
        self.len() as u64
    }
    fn fill(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = offset as usize;
        let part = start
            .checked_add(buf.len())
            .and_then(|end| self.get(start..end));
        buf.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// What stands at an offset.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A record whose header and metadata are what was written.
    Record(Record<'a>),
    /// The end of the bytes.
    End,
    /// No valid record, and why.
    Bad(&'static str),
}

/// A record whose header, metadata and payload checksums are what was written; its payload was not
/// looked at.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Offset behind it.
    pub end: u64,
    /// Metadata and payload checksums.
    rest: &'a [u8],
}

impl<'a> Record<'a> {
    /// The metadata.
    pub(crate) fn meta(&self) -> &'a [u8] {
        &self.rest[..self.header.meta_len as usize]
    }

    /// The checksums of the payload's blocks.
    pub(crate) fn crcs(&self) -> &'a [u8] {
        &self.rest[self.header.meta_len as usize..]
    }

    /// Offset of the payload.
    pub(crate) fn payload_at(&self) -> u64 {
        self.end - u64::from(self.header.payload_len)
    }
}

/// Reads one segment from its beginning.
pub(crate) struct SegmentReader<'a> {
    source: &'a dyn Source,
    len: u64,
    seed: u32,
    window: Window,
}

/// A piece of the source that is in memory.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> SegmentReader<'a> {
    /// A reader over `source`, whose checksums start from `seed`.
    pub(crate) fn new(source: &'a dyn Source, seed: u32) -> SegmentReader<'a> {
        SegmentReader {
            source,
            len: source.source_len(),
            seed,
            window: Window::default(),
        }
    }

    /// Length of the segment when the reader began.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The record at `at`.
    pub(crate) fn record(&mut self, at: u64) -> io::Result<Found<'_>> {
        if at >= self.len {
            return Ok(Found::End);
        }
        let Some(header) = self.header(at)? else {
            return Ok(Found::Bad("there is no record header"));
        };
        let (end, seed) = (at + header.record_bytes(), self.seed);
        if end > self.len {
            return Ok(Found::Bad("the record ends behind the segment"));
        }
        let bytes = self.bytes(at, RECORD_HEADER_BYTES + header.rest_bytes())?;
        let rest = &bytes[RECORD_HEADER_BYTES..];
        if RecordHeader::checksum(&header.encode(), rest, seed) != header.crc {
            return Ok(Found::Bad("header or metadata fail their checksum"));
        }
        Ok(Found::Record(Record { header, end, rest }))
    }

    fn header(&mut self, at: u64) -> io::Result<Option<RecordHeader>> {
        if self.len - at < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes.copy_from_slice(self.bytes(at, RECORD_HEADER_BYTES)?);
        Ok(RecordHeader::decode(&bytes))
    }

    /// `count` bytes from `at`, which the caller knows to be within the source.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<&[u8]> {
        let window = &mut self.window;
        let window_end = window.start + window.bytes.len() as u64;
        if at < window.start || at + count as u64 > window_end {
            let want = count.max(WALK_BYTES) as u64;
            window.bytes.resize(want.min(self.len - at) as usize, 0);
            window.start = at;
            if let Err(error) = self.source.fill(at, &mut window.bytes) {
                window.bytes.clear();
                return Err(error);
            }
        }
        let start = (at - window.start) as usize;
        Ok(&window.bytes[start..start + count])
    }
}

/// True where all of a payload matches its checksums.
pub(crate) fn payload_is_good(source: &dyn Source, record: &Record<'_>) -> io::Result<bool> {
    let per_piece = BULK_BYTES / super::format::BLOCK_BYTES * size_of::<u32>();
    let mut buf = vec![0; BULK_BYTES.min(record.header.payload_len as usize)];
    let mut at = record.payload_at();
    for crcs in record.crcs().chunks(per_piece) {
        let piece = &mut buf[..BULK_BYTES.min((record.end - at) as usize)];
        source.fill(at, piece)?;
        if first_bad_block(piece, crcs).is_some() {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// Valid records behind a bad one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// How many were found.
    pub records: u64,
    /// Highest record that one of them says was on stable storage when it was written.
    pub synced: u64,
}

/// Searches a segment from `from` on for records with a sequence number above `seq`.
pub(crate) fn records_beyond(
    source: &dyn Source,
    seed: u32,
    from: u64,
    seq: u64,
) -> io::Result<Beyond> {
    let mut beyond = Beyond::default();
    let mut reader = SegmentReader::new(source, seed);
    let mut at = from;
    while let Some(candidate) = next_magic(source, reader.len(), at)? {
        at = candidate + 1;
        if !has_likely_seq(&mut reader, candidate, seq)? {
            continue;
        }
        if let Found::Record(record) = reader.record(candidate)? {
            beyond.records += 1;
            beyond.synced = beyond.synced.max(record.header.synced);
            at = record.end;
        }
    }
    Ok(beyond)
}

/// Cheap look at a candidate before its metadata are read: the number must be above `seq`, and no
/// higher than that many records could make it.
fn has_likely_seq(reader: &mut SegmentReader<'_>, at: u64, seq: u64) -> io::Result<bool> {
    const SEQ_DISTANCE_MAX: u64 = 1 << 32;
    let header = reader.header(at)?;
    Ok(header.is_some_and(|h| h.seq > seq && h.seq - seq < SEQ_DISTANCE_MAX))
}

/// Offset of the next record magic at or behind `from`.
fn next_magic(source: &dyn Source, len: u64, from: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    let mut buf = Vec::new();
    while at + (RECORD_HEADER_BYTES as u64) <= len {
        buf.resize((len - at).min(BULK_BYTES as u64) as usize, 0);
        source.fill(at, &mut buf)?;
        if let Some(found) = find_magic(&buf) {
            return Ok(Some(at + found.start as u64));
        }
        // The magic may lie across two pieces.
        at += (buf.len() - (RECORD_MAGIC.len() - 1)) as u64;
    }
    Ok(None)
}

fn find_magic(bytes: &[u8]) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(first) = bytes[from..].iter().position(|b| *b == RECORD_MAGIC[0]) {
        let start = from + first;
        let range = start..start + RECORD_MAGIC.len();
        if bytes.get(range.clone())? == RECORD_MAGIC {
            return Some(range);
        }
        from = start + 1;
    }
    None
}

/// Takes arbitrary bytes for a segment and for a mark file, and decodes all of them that it can.
/// For fuzzing: it must return for every input, and allocate no more than a multiple of its length.
pub fn check_record_bytes(bytes: &[u8]) {
    let _ = super::mark::newest_slot(bytes);
    let header = bytes
        .first_chunk::<SEGMENT_HEADER_BYTES>()
        .and_then(super::format::SegmentHeader::decode);
    let seed = header.map_or(0, |h| super::format::segment_seed(h.journal, h.segment));
    let source: &dyn Source = &bytes;
    let mut reader = SegmentReader::new(source, seed);
    let mut at = SEGMENT_HEADER_BYTES as u64;
    while let Ok(Found::Record(record)) = reader.record(at) {
        let _ = payload_is_good(source, &record);
        at = record.end;
    }
    let _ = records_beyond(source, seed, at.min(bytes.len() as u64), 0);
}
