//! What is in a remote, byte for byte (docs/remote.md): names of objects, and the objects that are no packs.
//!
//! Decoders are total: any bytes give a value or [`Error::Damaged`], in memory that is bounded by the length of the
//! input, which the bounds of [`crate::limits`] bound before it is read.

pub mod catalog;
pub mod index;
pub mod marker;
pub mod reference;

use crate::error::{Error, Result};
use bincode::{Decode, Encode};
use objstore::codec;

/// Hash of an object of a remote, its name.
pub type Hash = [u8; 32];

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 16;
const SUM_BYTES: usize = 32;

/// Name of the object that says which catalog is valid.
pub const HEAD: &str = "head";

/// Name of a pack.
pub fn pack_name(hash: &Hash) -> String {
    named("packs", hash, "pack")
}

/// Name of an index.
pub fn index_name(hash: &Hash) -> String {
    named("indexes", hash, "idx")
}

/// Name of a catalog.
pub fn catalog_name(hash: &Hash) -> String {
    named("catalogs", hash, "cat")
}

fn named(dir: &str, hash: &Hash, kind: &str) -> String {
    format!("{dir}/{}.{kind}", objstore::exchange::key_hex(hash))
}

/// Name of the ref of a branch.
pub fn ref_name(project: &str, branch: &str) -> String {
    format!("refs/{}/{}", escaped(project), escaped(branch))
}

/// Lower-case letters, digits and `-` stand for themselves, another byte is `_` and two hex digits.
fn escaped(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => out.push(char::from(byte)),
            _ => out.push_str(&format!("_{byte:02x}")),
        }
    }
    out
}

/// A kind of object with a header and a checksum.
pub(crate) struct Form {
    /// First eight bytes.
    pub magic: [u8; 8],
    /// What it is called in errors.
    pub what: &'static str,
}

impl Form {
    /// An object with this body.
    pub fn wrap(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len() + SUM_BYTES);
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        // How body and contents are encrypted: not at all. Then zeros.
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(body);
        let sum = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(&sum);
        bytes
    }

    /// The body of an object; `name` is for errors.
    pub fn unwrap<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let damaged = |what| Error::Damaged {
            name: name.to_owned(),
            what,
        };
        let (all, sum) = bytes
            .split_last_chunk::<SUM_BYTES>()
            .filter(|(all, _)| all.len() >= HEADER_BYTES)
            .ok_or_else(|| damaged("it is too short"))?;
        if blake3::hash(all) != *sum {
            return Err(damaged("its checksum"));
        }
        let (header, body) = all.split_at(HEADER_BYTES);
        if header[..8] != self.magic {
            return Err(damaged("it is something else"));
        }
        let found = u16::from_le_bytes([header[8], header[9]]);
        if found > VERSION {
            return Err(Error::Newer {
                what: self.what,
                found: found.into(),
                supported: VERSION.into(),
            });
        }
        if header[10..12] != [0, 0] {
            return Err(Error::Encrypted);
        }
        match found == VERSION && header[12..] == [0; 4] {
            true => Ok(body),
            false => Err(damaged("its header")),
        }
    }

    /// An object whose body is an encoded value.
    pub fn encode<T: Encode>(&self, value: &T) -> Vec<u8> {
        self.wrap(&codec::encode(value))
    }

    /// The value of an object.
    pub fn decode<T: Decode<()>>(&self, name: &str, bytes: &[u8]) -> Result<T> {
        let body = self.unwrap(name, bytes)?;
        codec::decode(body).map_err(|e| Error::Damaged {
            name: name.to_owned(),
            what: e.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form {
        magic: *b"avfsrxxx",
        what: "test",
    };

    #[test]
    fn names_are_objects_names_and_no_two_are_one() {
        let names = ["main", "Main", "a.b", "a_2eb", "a/b", "..", "ä", "x-y"];
        let mut seen: Vec<String> = names.iter().map(|n| ref_name("p", n)).collect();
        assert_eq!(ref_name("p", "A.b"), "refs/p/_41_2eb");
        for name in &seen {
            crate::bucket::check_name(name).unwrap();
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), names.len());
        crate::bucket::check_name(&pack_name(&[255; 32])).unwrap();
        let long = "A".repeat(64);
        crate::bucket::check_name(&ref_name(&long, &long)).unwrap();
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = FORM.encode(&(7u32, "text".to_owned()));
        assert_eq!(FORM.decode::<(u32, String)>("o", &bytes).unwrap().0, 7);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FORM.unwrap("o", &bad).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(FORM.unwrap("o", &bytes[..len]).is_err());
        }
    }

    #[test]
    fn what_is_newer_or_encrypted_is_told() {
        let changed = |at: usize, to: u8| {
            let mut bytes = FORM.encode(&1u8);
            bytes[at] = to;
            let end = bytes.len() - SUM_BYTES;
            let sum = *blake3::hash(&bytes[..end]).as_bytes();
            bytes[end..].copy_from_slice(&sum);
            FORM.decode::<u8>("o", &bytes)
        };
        assert!(matches!(changed(8, 2), Err(Error::Newer { found: 2, .. })));
        assert!(matches!(changed(8, 0), Err(Error::Damaged { .. })));
        assert!(matches!(changed(10, 1), Err(Error::Encrypted)));
        assert!(matches!(changed(11, 1), Err(Error::Encrypted)));
        assert!(matches!(changed(15, 1), Err(Error::Damaged { .. })));
    }
}
