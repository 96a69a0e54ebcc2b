//! Ids of stored things: blake3 hashes, one type per kind so that they cannot be swapped.
//!
//! A chunk's id is the hash of its bytes, any other object's the hash of its encoding, whose header
//! names its kind.

use std::fmt;
use std::str::FromStr;

use bincode::{Decode, Encode};

/// Length of an id in bytes.
pub const ID_BYTES: usize = 32;

/// Fewest hex digits of a prefix that is looked up.
pub const PREFIX_DIGITS_MIN: usize = 4;

/// What a stored record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of file content.
    Chunk = 1,
    /// List of a file's chunks, or a part of it.
    Manifest = 2,
    /// A directory, or a part of it.
    Tree = 3,
    /// A commit.
    Commit = 4,
}

impl Kind {
    /// All kinds, in order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Chunk, Kind::Manifest, Kind::Tree, Kind::Commit];

    /// The kind with this number on disk.
    pub fn from_u8(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Chunk => "chunk",
            Kind::Manifest => "manifest",
            Kind::Tree => "tree",
            Kind::Commit => "commit",
        })
    }
}

/// A string is not an id or a prefix of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    /// Not 64 digits, or for a prefix not 4 to 64.
    #[error("an id has 64 hex digits, and a prefix at least 4")]
    Length,
    /// A character that is no hex digit.
    #[error("not a hex digit in an id")]
    Digit,
}

/// What all ids have in common.
pub trait ObjectId: Copy + Ord + std::hash::Hash + fmt::Debug + fmt::Display {
    /// The id with these bytes.
    fn from_bytes(bytes: [u8; ID_BYTES]) -> Self;
    /// Its bytes.
    fn as_bytes(&self) -> &[u8; ID_BYTES];
}

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        pub struct $name([u8; ID_BYTES]);

        impl $name {
            /// The id with these bytes.
            pub const fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            pub const fn as_bytes(&self) -> &[u8; ID_BYTES] {
                &self.0
            }
        }

        impl ObjectId for $name {
            fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
                Self(bytes)
            }

            fn as_bytes(&self) -> &[u8; ID_BYTES] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(hex: &str) -> Result<Self, ParseIdError> {
                parse_hex(hex).map(Self)
            }
        }
    };
}

object_id! {
    /// Id of a chunk: blake3 of its bytes.
    ChunkId
}
object_id! {
    /// Id of a manifest node.
    ManifestId
}
object_id! {
    /// Id of a directory, or of a part of a large one.
    TreeId
}
object_id! {
    /// Id of a commit.
    CommitId
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// 64 hex digits of a hash.
pub(crate) fn hex(bytes: &[u8; ID_BYTES]) -> String {
    ChunkId(*bytes).to_string()
}

fn digit(byte: u8) -> Result<u8, ParseIdError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(ParseIdError::Digit),
    }
}

fn parse_hex(hex: &str) -> Result<[u8; ID_BYTES], ParseIdError> {
    let prefix = HexPrefix::parse(hex)?;
    if prefix.digits < 2 * ID_BYTES {
        return Err(ParseIdError::Length);
    }
    Ok(prefix.bytes)
}

/// The first digits of an id, at least four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexPrefix {
    bytes: [u8; ID_BYTES],
    digits: usize,
}

impl HexPrefix {
    /// Reads 4 to 64 hex digits, upper or lower case.
    pub fn parse(hex: &str) -> Result<HexPrefix, ParseIdError> {
        if hex.len() < PREFIX_DIGITS_MIN || hex.len() > 2 * ID_BYTES {
            return Err(ParseIdError::Length);
        }
        let mut bytes = [0; ID_BYTES];
        for (i, (byte, slot)) in hex
            .bytes()
            .zip((0..ID_BYTES).flat_map(|i| [i, i]))
            .enumerate()
        {
            let shift = if i % 2 == 0 { 4 } else { 0 };
            bytes[slot] |= digit(byte)? << shift;
        }
        Ok(HexPrefix {
            bytes,
            digits: hex.len(),
        })
    }

    /// The smallest id with this prefix.
    pub fn first(&self) -> [u8; ID_BYTES] {
        self.bytes
    }

    /// True where an id with these bytes begins with the prefix.
    pub fn matches(&self, id: &[u8; ID_BYTES]) -> bool {
        let whole = self.digits / 2;
        let half_matches =
            self.digits.is_multiple_of(2) || (id[whole] ^ self.bytes[whole]) & 0xf0 == 0;
        id[..whole] == self.bytes[..whole] && half_matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_text() {
        let id = ChunkId::from_bytes(*blake3::hash(b"x").as_bytes());
        let text = id.to_string();
        assert_eq!(text.len(), 64);
        assert_eq!(text.parse::<ChunkId>(), Ok(id));
        assert_eq!(text.to_uppercase().parse::<ChunkId>(), Ok(id));
    }

    #[test]
    fn bad_text_is_refused() {
        assert_eq!("12".parse::<TreeId>(), Err(ParseIdError::Length));
        assert_eq!("1234".parse::<TreeId>(), Err(ParseIdError::Length));
        assert_eq!("g".repeat(64).parse::<TreeId>(), Err(ParseIdError::Digit));
        assert_eq!("é".repeat(32).parse::<TreeId>(), Err(ParseIdError::Digit));
        assert_eq!(HexPrefix::parse("abc"), Err(ParseIdError::Length));
    }

    #[test]
    fn prefixes_match_by_digit() {
        let mut bytes = [0; ID_BYTES];
        bytes[..3].copy_from_slice(&[0xab, 0xcd, 0xef]);
        for (text, expected) in [
            ("abcd", true),
            ("abcde", true),
            ("abcdf", false),
            ("abce", false),
        ] {
            assert_eq!(
                HexPrefix::parse(text).unwrap().matches(&bytes),
                expected,
                "{text}"
            );
        }
        let full = HexPrefix::parse(&hex(&bytes)).unwrap();
        assert!(full.matches(&bytes) && full.first() == bytes);
    }

    #[test]
    fn kinds_have_fixed_numbers() {
        for number in 0..=255u8 {
            assert_eq!(Kind::from_u8(number).is_some(), (1..=4).contains(&number));
        }
    }
}
