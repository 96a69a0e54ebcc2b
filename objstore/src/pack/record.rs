//! Headers of packs and of the records in them, as bytes.

use crate::id::{ID_BYTES, Kind};
use crate::limits::{CHUNK_BYTES_MAX, OBJECT_BYTES_MAX};

/// Newest version of the pack format.
pub(crate) const PACK_VERSION: u32 = 1;

const PACK_MAGIC: [u8; 8] = *b"avfspack";

/// Length of a pack's header.
pub(crate) const PACK_HEADER_BYTES: usize = 24;

/// First bytes of every record.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"avob";

/// Length of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 56;

/// How a record's data is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Zstd = 1,
}

/// The first bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackHeader {
    pub version: u32,
    pub number: u32,
    pub salt: u32,
}

impl PackHeader {
    pub fn encode(&self) -> [u8; PACK_HEADER_BYTES] {
        let mut bytes = [0; PACK_HEADER_BYTES];
        bytes[..8].copy_from_slice(&PACK_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<PackHeader> {
        let bytes = bytes.get(..PACK_HEADER_BYTES)?;
        let whole = bytes[..8] == PACK_MAGIC && u32_at(bytes, 20) == crc32fast::hash(&bytes[..20]);
        whole.then(|| PackHeader {
            version: u32_at(bytes, 8),
            number: u32_at(bytes, 12),
            salt: u32_at(bytes, 16),
        })
    }
}

/// What stands before a record's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub salt: u32,
    pub kind: Kind,
    pub codec: Codec,
    pub stored_len: u32,
    pub raw_len: u32,
    pub id: [u8; ID_BYTES],
}

impl RecordHeader {
    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&RECORD_MAGIC);
        bytes[4..8].copy_from_slice(&self.salt.to_le_bytes());
        bytes[8] = self.kind as u8;
        bytes[9] = self.codec as u8;
        bytes[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[20..52].copy_from_slice(&self.id);
        let crc = crc32fast::hash(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`, if it is whole and within the limits.
    pub fn decode(bytes: &[u8]) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        if bytes[..4] != RECORD_MAGIC || u32_at(bytes, 52) != crc32fast::hash(&bytes[..52]) {
            return None;
        }
        let codec = match bytes[9] {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            _ => return None,
        };
        let header = RecordHeader {
            salt: u32_at(bytes, 4),
            kind: Kind::from_u8(bytes[8])?,
            codec,
            stored_len: u32_at(bytes, 12),
            raw_len: u32_at(bytes, 16),
            id: bytes[20..52].try_into().ok()?,
        };
        (bytes[10..12] == [0, 0] && header.lengths_fit()).then_some(header)
    }

    fn lengths_fit(&self) -> bool {
        let fits = match self.codec {
            Codec::Raw => self.stored_len == self.raw_len,
            Codec::Zstd => self.stored_len < self.raw_len,
        };
        fits && self.raw_len as usize <= bytes_max(self.kind)
    }
}

/// Longest content of a kind.
pub(crate) fn bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Chunk => CHUNK_BYTES_MAX,
        Kind::Manifest | Kind::Tree | Kind::Commit => OBJECT_BYTES_MAX,
    }
}

/// The little-endian number at `offset`; the caller has checked that it is there.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(four)
}

/// As [`u32_at`], eight bytes.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            salt: 7,
            kind: Kind::Tree,
            codec: Codec::Zstd,
            stored_len: 100,
            raw_len: 300,
            id: [9; ID_BYTES],
        }
    }

    #[test]
    fn headers_come_back() {
        assert_eq!(RecordHeader::decode(&header().encode()), Some(header()));
        let pack = PackHeader {
            version: 1,
            number: 3,
            salt: 5,
        };
        assert_eq!(PackHeader::decode(&pack.encode()), Some(pack));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let record = header().encode();
        for bit in 0..record.len() * 8 {
            let mut bytes = record;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bytes), None, "bit {bit}");
        }
        let pack = PackHeader {
            version: 1,
            number: 3,
            salt: 5,
        }
        .encode();
        for bit in 0..pack.len() * 8 {
            let mut bytes = pack;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PackHeader::decode(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        let mut big = header();
        big.raw_len = OBJECT_BYTES_MAX as u32 + 1;
        assert_eq!(RecordHeader::decode(&big.encode()), None);
        let mut raw = header();
        raw.codec = Codec::Raw;
        assert_eq!(RecordHeader::decode(&raw.encode()), None);
    }
}
