//! The bytes of a journal: segment header, record header, slots of the mark file.
//!
//! Owns encoding and decoding of fixed-size headers and the checksums over them; does no I/O. All
//! numbers are little-endian. Decoding is total: any bytes give a value or `None`.
//!
//! Every checksum of a segment starts from a value made of the journal's id and the segment's number,
//! so a record that was copied from another journal (a file in a branch may well hold one) or that an
//! old use of the same disk blocks left behind does not pass for a record of this one.

/// Version of the format written by this program.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a payload under one checksum.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Longest metadata of a record.
pub(crate) const META_BYTES_MAX: usize = 4 << 20;
/// Longest payload of a record.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Length of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
/// Length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
/// Length of a slot of the mark file.
pub(crate) const SLOT_BYTES: usize = 64;
/// Distance between the two slots: each has a sector of its own, so tearing one leaves the other.
pub(crate) const SLOT_STRIDE: usize = 512;
/// First bytes of a record.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"\xA5Jr\x1E";

const SEGMENT_MAGIC: [u8; 8] = *b"AVFSJRNL";
const SLOT_MAGIC: [u8; 4] = *b"MARK";
const CRC_BYTES: usize = 4;

/// Number of checksums that a payload of `len` bytes carries.
pub(crate) fn block_count(len: u32) -> usize {
    (len as usize).div_ceil(BLOCK_BYTES)
}

/// Length of the checksums that stand before a payload of `len` bytes.
pub(crate) fn crcs_bytes(len: u32) -> usize {
    block_count(len) * CRC_BYTES
}

/// Checksum of one block of a payload.
pub(crate) fn block_crc(block: &[u8]) -> u32 {
    crc32fast::hash(block)
}

/// The value from which checksums of one segment start.
pub(crate) fn segment_seed(journal: u64, segment: u32) -> u32 {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&journal.to_le_bytes());
    bytes[8..].copy_from_slice(&segment.to_le_bytes());
    crc32fast::hash(&bytes)
}

/// First bytes of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Format version.
    pub version: u32,
    /// Random number of the journal.
    pub journal: u64,
    /// The segment's number, also in its name.
    pub segment: u32,
    /// Sequence number of the first record in it.
    pub first_seq: u64,
}

impl SegmentHeader {
    /// Encodes the header with its checksum.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut b = [0; SEGMENT_HEADER_BYTES];
        b[0..8].copy_from_slice(&SEGMENT_MAGIC);
        b[8..12].copy_from_slice(&self.version.to_le_bytes());
        b[12..16].copy_from_slice(&self.segment.to_le_bytes());
        b[16..24].copy_from_slice(&self.journal.to_le_bytes());
        b[24..32].copy_from_slice(&self.first_seq.to_le_bytes());
        let crc = crc32fast::hash(&b[..60]);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Decodes a header; `None` where magic or checksum are wrong.
    pub(crate) fn decode(b: &[u8; SEGMENT_HEADER_BYTES]) -> Option<SegmentHeader> {
        if b[0..8] != SEGMENT_MAGIC || crc32fast::hash(&b[..60]) != u32_at(b, 60) {
            return None;
        }
        Some(SegmentHeader {
            version: u32_at(b, 8),
            segment: u32_at(b, 12),
            journal: u64_at(b, 16),
            first_seq: u64_at(b, 24),
        })
    }
}

/// Fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Length of the metadata.
    pub meta_len: u32,
    /// Length of the payload.
    pub payload_len: u32,
    /// Checksum over this header (but itself), metadata and payload checksums.
    pub crc: u32,
    /// Sequence number.
    pub seq: u64,
    /// The last record that was known to be on stable storage when this one was written.
    pub synced: u64,
}

impl RecordHeader {
    /// Encodes the header.
    pub(crate) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut b = [0; RECORD_HEADER_BYTES];
        b[0..4].copy_from_slice(&RECORD_MAGIC);
        b[4..8].copy_from_slice(&self.meta_len.to_le_bytes());
        b[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        b[12..20].copy_from_slice(&self.seq.to_le_bytes());
        b[20..28].copy_from_slice(&self.synced.to_le_bytes());
        b[28..32].copy_from_slice(&self.crc.to_le_bytes());
        b
    }

    /// Decodes a header; `None` where magic or lengths cannot be. The checksum is not looked at,
    /// it covers what follows.
    pub(crate) fn decode(b: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        let h = RecordHeader {
            meta_len: u32_at(b, 4),
            payload_len: u32_at(b, 8),
            seq: u64_at(b, 12),
            synced: u64_at(b, 20),
            crc: u32_at(b, 28),
        };
        let sane = b[0..4] == RECORD_MAGIC
            && h.meta_len as usize <= META_BYTES_MAX
            && h.payload_len as usize <= PAYLOAD_BYTES_MAX
            && h.synced < h.seq;
        sane.then_some(h)
    }

    /// Checksum of the record, where `rest` is metadata and payload checksums.
    pub(crate) fn checksum(encoded: &[u8; RECORD_HEADER_BYTES], rest: &[u8], seed: u32) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(seed);
        hasher.update(&encoded[..28]);
        hasher.update(rest);
        hasher.finalize()
    }

    /// Length of metadata and payload checksums.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.meta_len as usize + crcs_bytes(self.payload_len)
    }

    /// Length of the whole record.
    pub(crate) fn record_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES + self.rest_bytes()) as u64 + u64::from(self.payload_len)
    }
}

/// What the mark file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Format version.
    pub version: u16,
    /// True where the journal was closed in order after this record.
    pub clean: bool,
    /// Random number of the journal.
    pub journal: u64,
    /// Counts writes of the mark; the higher one of two slots holds.
    pub generation: u64,
    /// Last record on stable storage.
    pub seq: u64,
    /// Newest segment whose header and name are on stable storage.
    pub segment: u32,
    /// Oldest segment that still belongs to the journal.
    pub first_segment: u32,
    /// Which boot of the machine wrote this; 0 where unknown.
    pub boot: u64,
}

impl Mark {
    /// Encodes a slot with its checksum.
    pub(crate) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut b = [0; SLOT_BYTES];
        b[0..4].copy_from_slice(&SLOT_MAGIC);
        b[4..6].copy_from_slice(&self.version.to_le_bytes());
        b[6] = u8::from(self.clean);
        b[8..16].copy_from_slice(&self.journal.to_le_bytes());
        b[16..24].copy_from_slice(&self.generation.to_le_bytes());
        b[24..32].copy_from_slice(&self.seq.to_le_bytes());
        b[32..36].copy_from_slice(&self.segment.to_le_bytes());
        b[36..40].copy_from_slice(&self.first_segment.to_le_bytes());
        b[40..48].copy_from_slice(&self.boot.to_le_bytes());
        let crc = crc32fast::hash(&b[..60]);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Decodes a slot; `None` where it is torn, damaged or empty.
    pub(crate) fn decode(b: &[u8]) -> Option<Mark> {
        let b: &[u8; SLOT_BYTES] = b.get(..SLOT_BYTES)?.try_into().ok()?;
        if b[0..4] != SLOT_MAGIC || crc32fast::hash(&b[..60]) != u32_at(b, 60) {
            return None;
        }
        Some(Mark {
            version: u16::from_le_bytes([b[4], b[5]]),
            clean: b[6] != 0,
            journal: u64_at(b, 8),
            generation: u64_at(b, 16),
            seq: u64_at(b, 24),
            segment: u32_at(b, 32),
            first_segment: u32_at(b, 36),
            boot: u64_at(b, 40),
        })
    }
}

/// The number at `at`; callers pass constant offsets inside fixed-size arrays.
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    let mut n = [0; 4];
    n.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(n)
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    let mut n = [0; 8];
    n.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(n)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn segment_header_comes_back_and_no_flipped_bit_passes() {
        let header = SegmentHeader {
            version: VERSION,
            journal: 0x1122_3344_5566_7788,
            segment: 7,
            first_seq: 99,
        };
        let good = header.encode();
        assert_eq!(SegmentHeader::decode(&good), Some(header));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn mark_comes_back_and_no_flipped_bit_passes() {
        let mark = Mark {
            version: 1,
            clean: true,
            journal: 5,
            generation: 6,
            seq: 7,
            segment: 8,
            first_segment: 9,
            boot: 10,
        };
        let good = mark.encode();
        assert_eq!(Mark::decode(&good), Some(mark));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn record_header_refuses_lengths_beyond_the_limits() {
        let mut header = RecordHeader {
            meta_len: 3,
            payload_len: 4097,
            crc: 1,
            seq: 2,
            synced: 1,
        };
        assert_eq!(RecordHeader::decode(&header.encode()), Some(header));
        assert_eq!(header.record_bytes(), 32 + 3 + 8 + 4097);
        header.meta_len = u32::MAX;
        assert_eq!(RecordHeader::decode(&header.encode()), None);
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The worked example of `docs/format.md`: the first segment of a journal, with one record.
    #[test]
    fn encoded_bytes_are_the_documented_ones() {
        let header = SegmentHeader {
            version: 1,
            journal: 0x0807_0605_0403_0201,
            segment: 1,
            first_seq: 1,
        };
        let mut record = RecordHeader {
            meta_len: 2,
            payload_len: 3,
            crc: 0,
            seq: 1,
            synced: 0,
        };
        let mut rest = b"hi".to_vec();
        rest.extend_from_slice(&block_crc(b"abc").to_le_bytes());
        let seed = segment_seed(header.journal, header.segment);
        record.crc = RecordHeader::checksum(&record.encode(), &rest, seed);
        assert_eq!(hex(&header.encode()), GOLDEN_HEADER);
        assert_eq!(hex(&record.encode()), GOLDEN_RECORD);
        assert_eq!(hex(&rest), "6869c2412435");
    }

    const GOLDEN_HEADER: &str = "415646534a524e4c010000000100000001020304050607080100000000000000\
        000000000000000000000000000000000000000000000000000000002b3658f6";
    const GOLDEN_RECORD: &str = "a54a721e020000000300000001000000000000000000000000000000a83da38b";
}
