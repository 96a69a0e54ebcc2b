//! The one encoding of structured data: bincode with fixed-width little-endian integers.
//!
//! Invariant: decoding is total. Any bytes give a value or an error, nothing is left over, and a
//! hostile length field allocates at most [`EXPANSION`] times the input (rounded up to a size class),
//! because bincode's limit, a constant of its type, is chosen by the input's length.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::{Decode, Encode};

use crate::id::Kind;
use crate::limits::{DECODED_BYTES_MAX, OBJECT_BYTES_MAX};

/// Bound of decoded bytes to encoded ones: what is claimed for a list is its size in memory, which
/// for a directory entry is up to four times its smallest encoding.
pub const EXPANSION: usize = 8;

/// First bytes of every encoded object.
pub const OBJECT_MAGIC: [u8; 4] = *b"avfs";

/// Length of an object's header: magic, kind, zero, version.
pub const OBJECT_HEADER_BYTES: usize = 8;

type Config<const N: usize> = Configuration<LittleEndian, Fixint, Limit<N>>;

const fn config<const N: usize>() -> Config<N> {
    bincode::config::standard()
        .with_fixed_int_encoding()
        .with_limit::<N>()
}

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub &'static str);

/// Encodes a value. Only for types whose encoding cannot fail (no paths, no system times).
pub fn encode<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes);
    bytes
}

/// As [`encode`], appending to `bytes`.
pub fn encode_into<T: Encode>(value: &T, bytes: &mut Vec<u8>) {
    let config = bincode::config::standard().with_fixed_int_encoding();
    let written = bincode::encode_into_std_write(value, bytes, config);
    assert!(written.is_ok(), "encoding to memory failed: {written:?}");
}

/// Decodes a value that takes up all of `bytes`.
pub fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (value, read) = decode_prefix(bytes)?;
    if read < bytes.len() {
        return Err(DecodeError("trailing bytes"));
    }
    Ok(value)
}

/// Decodes a value at the start of `bytes`; also tells how many bytes it took.
pub fn decode_prefix<T: Decode<()>>(bytes: &[u8]) -> Result<(T, usize), DecodeError> {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    let result = match bytes.len() {
        0..=512 => decode_with(bytes, config::<{ 4 * KIB }>()),
        513..=4096 => decode_with(bytes, config::<{ 4 * KIB * EXPANSION }>()),
        4097..=65536 => decode_with(bytes, config::<{ 64 * KIB * EXPANSION }>()),
        65537..=1048576 => decode_with(bytes, config::<{ MIB * EXPANSION }>()),
        1048577..=OBJECT_BYTES_MAX => {
            decode_with(bytes, config::<{ OBJECT_BYTES_MAX * EXPANSION }>())
        }
        67108865..=DECODED_BYTES_MAX => {
            decode_with(bytes, config::<{ DECODED_BYTES_MAX * EXPANSION }>())
        }
        _ => return Err(DecodeError("too long")),
    };
    result.map_err(|error| DecodeError(reason(&error)))
}

fn decode_with<T: Decode<()>, const N: usize>(
    bytes: &[u8],
    config: Config<N>,
) -> Result<(T, usize), bincode::error::DecodeError> {
    bincode::decode_from_slice(bytes, config)
}

fn reason(error: &bincode::error::DecodeError) -> &'static str {
    use bincode::error::DecodeError as E;
    match error {
        E::UnexpectedEnd { .. } => "ends early",
        E::LimitExceeded => "a length is larger than the data",
        E::UnexpectedVariant { .. } => "unknown variant",
        E::Utf8 { .. } => "text is not UTF-8",
        _ => "malformed",
    }
}

/// Encodes an object with its header.
pub fn encode_object<T: Encode>(kind: Kind, version: u16, value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&OBJECT_MAGIC);
    bytes.extend_from_slice(&[kind as u8, 0]);
    bytes.extend_from_slice(&version.to_le_bytes());
    encode_into(value, &mut bytes);
    bytes
}

/// Decodes an object whose header must name `kind` and a version up to `version`; also tells that.
pub fn decode_object<T: Decode<()>>(
    kind: Kind,
    version: u16,
    bytes: &[u8],
) -> Result<(u16, T), DecodeError> {
    let Some((header, body)) = bytes.split_at_checked(OBJECT_HEADER_BYTES) else {
        return Err(DecodeError("ends early"));
    };
    if header[..4] != OBJECT_MAGIC || header[4] != kind as u8 || header[5] != 0 {
        return Err(DecodeError("not an object of this kind"));
    }
    match u16::from_le_bytes([header[6], header[7]]) {
        found if (1..=version).contains(&found) => Ok((found, decode(body)?)),
        found if found > version => Err(DecodeError("of a newer version")),
        _ => Err(DecodeError("of an unknown version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_fixed_width_little_endian() {
        assert_eq!(encode(&(1u32, 2u64)), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode(&vec![7u8]), [1, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn nothing_may_follow() {
        assert_eq!(decode::<u8>(&[1, 2]), Err(DecodeError("trailing bytes")));
        assert_eq!(decode_prefix::<u8>(&[1, 2]), Ok((1, 1)));
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        assert!(decode::<Vec<u8>>(&bytes).is_err());
        bytes[..8].copy_from_slice(&(1u64 << 30).to_le_bytes());
        assert!(decode::<Vec<[u8; 32]>>(&bytes).is_err());
        assert!(decode::<Vec<Vec<String>>>(&bytes).is_err());
    }

    #[test]
    fn object_headers_are_checked() {
        let bytes = encode_object(Kind::Tree, 1, &5u8);
        assert_eq!(decode_object::<u8>(Kind::Tree, 1, &bytes), Ok((1, 5)));
        assert!(decode_object::<u8>(Kind::Commit, 1, &bytes).is_err());
        assert_eq!(
            decode_object::<u8>(Kind::Tree, 1, &encode_object(Kind::Tree, 2, &5u8)),
            Err(DecodeError("of a newer version"))
        );
        assert!(decode_object::<u8>(Kind::Tree, 1, &bytes[..7]).is_err());
    }
}
