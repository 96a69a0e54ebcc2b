//! The tail of a journal: where the next record goes, and what of it is not synced yet.
//!
//! Owns encoding of records and the list of files that the next sync must bring to stable storage.
//! Invariant: a failed append leaves the tail as it was. All of it is behind one lock, which is held
//! for the write to the kernel and never while the disk is waited for.

use super::error::{JournalError, JournalResult};
use super::format::{
    BLOCK_BYTES, META_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader,
    SEGMENT_HEADER_BYTES, block_crc, crcs_bytes, segment_seed,
};
use super::segment::Live;
use super::{Appended, PayloadRef};
use std::time::Instant;

/// Capacity that the buffer for headers keeps after a long record.
const SCRATCH_BYTES_KEPT: usize = 256 << 10;

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Tail {
    journal: u64,
    current: Live,
    seed: u32,
    len: u64,
    next_seq: u64,
    unsynced: Unsynced,
    /// Header, metadata and checksums of the record being written; kept for the next one.
    scratch: Vec<u8>,
}

/// What the next sync has to do.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// Segments before the current one that hold records not synced yet, oldest first.
    pub older: Vec<Live>,
    /// The current segment, where it holds such records.
    pub current: Option<Live>,
    /// True where a segment was made since the last sync.
    pub names: bool,
    /// When the oldest record not synced yet was appended.
    pub since: Option<Instant>,
}

/// Work for one sync: what to bring to stable storage, and what is there after it.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The files.
    pub unsynced: Unsynced,
    /// Last record in them.
    pub upto: u64,
    /// Number of the newest segment.
    pub segment: u32,
}

impl Tail {
    /// A tail at the end of `current`, where all is synced.
    pub(crate) fn new(journal: u64, current: Live, next_seq: u64) -> Tail {
        Tail {
            journal,
            seed: segment_seed(journal, current.number),
            len: current.file.len(),
            current,
            next_seq,
            unsynced: Unsynced::default(),
            scratch: Vec::new(),
        }
    }

    /// Sequence number of the next record.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Number of the segment that takes the next record.
    pub(crate) fn segment(&self) -> u32 {
        self.current.number
    }

    /// Length of that segment.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// True where the segment holds no record yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == SEGMENT_HEADER_BYTES as u64
    }

    /// When the oldest record was appended that no sync was started for.
    pub(crate) fn unsynced_since(&self) -> Option<Instant> {
        self.unsynced.since
    }

    /// True where the file is as long as the tail believes: what a failed append must leave.
    pub(crate) fn is_consistent(&self) -> bool {
        self.current.file.len() == self.len
    }

    /// Writes one record. On failure the tail is as it was.
    pub(crate) fn append(
        &mut self,
        meta: &[u8],
        payload: &[u8],
        synced: u64,
    ) -> JournalResult<Appended> {
        self.encode(meta, payload, synced);
        let offset = self
            .current
            .file
            .append(&[&self.scratch, payload])
            .map_err(JournalError::io(&self.current.path))?;
        let payload_offset = offset + self.scratch.len() as u64;
        self.len = payload_offset + payload.len() as u64;
        self.scratch.shrink_to(SCRATCH_BYTES_KEPT);
        Ok(self.advance(payload_offset, payload.len()))
    }

    /// Encodes all of a record but its payload into `scratch`.
    fn encode(&mut self, meta: &[u8], payload: &[u8], synced: u64) {
        let mut header = RecordHeader {
            meta_len: meta.len() as u32,
            payload_len: payload.len() as u32,
            crc: 0,
            seq: self.next_seq,
            synced,
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        self.scratch.extend_from_slice(meta);
        for block in payload.chunks(BLOCK_BYTES) {
            self.scratch
                .extend_from_slice(&block_crc(block).to_le_bytes());
        }
        let rest = &self.scratch[RECORD_HEADER_BYTES..];
        header.crc = RecordHeader::checksum(&header.encode(), rest, self.seed);
        self.scratch[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
    }

    /// Notes a written record.
    fn advance(&mut self, payload_offset: u64, payload_len: usize) -> Appended {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.unsynced.current.is_none() {
            self.unsynced.current = Some(self.current.clone());
        }
        if self.unsynced.since.is_none() {
            self.unsynced.since = Some(Instant::now());
        }
        let payload = (payload_len > 0).then_some(PayloadRef {
            segment: self.current.number,
            offset: payload_offset,
            len: payload_len as u32,
        });
        Appended { seq, payload }
    }

    /// Goes on in a new, empty segment.
    pub(crate) fn move_to(&mut self, live: Live) {
        assert_eq!(live.number, self.current.number + 1);
        if let Some(old) = self.unsynced.current.take() {
            self.unsynced.older.push(old);
        }
        self.unsynced.names = true;
        self.seed = segment_seed(self.journal, live.number);
        self.len = SEGMENT_HEADER_BYTES as u64;
        // Its header has to be synced with the first commit, also without any record in it.
        self.unsynced.current = Some(live.clone());
        self.current = live;
    }

    /// Takes what a sync that starts now has to do.
    pub(crate) fn take_batch(&mut self) -> Batch {
        Batch {
            unsynced: std::mem::take(&mut self.unsynced),
            upto: self.next_seq - 1,
            segment: self.current.number,
        }
    }
}

/// Length of a record, or an error where a part is too long for one.
pub(crate) fn record_bytes(meta: &[u8], payload: &[u8]) -> JournalResult<u64> {
    check_len(meta.len(), META_BYTES_MAX)?;
    check_len(payload.len(), PAYLOAD_BYTES_MAX)?;
    let fixed = RECORD_HEADER_BYTES + meta.len() + crcs_bytes(payload.len() as u32);
    Ok((fixed + payload.len()) as u64)
}

fn check_len(len: usize, max: usize) -> JournalResult<()> {
    if len <= max {
        return Ok(());
    }
    Err(JournalError::TooLarge {
        len: len as u64,
        max: max as u64,
    })
}
