//! The one way to a remote: named objects that are read whole or by range, and put under a condition.
//!
//! Implementations: in memory ([`memory`]), a directory ([`directory`]), what another process reaches ([`worker`]), and around
//! another one: retries
//! ([`retry`]) and faults ([`faulty`]). The process that has the network implements it as well.
//!
//! The trait is synchronous and object-safe. What an implementation must keep:
//!
//! - An object is there as a whole or not at all, at each moment, whoever is killed.
//! - After `Ok` of a put, a get by anybody gives these bytes or younger ones. S3 has promised that since 2020.
//! - A condition and the put that it belongs to are one step: of two puts with one condition, one is refused.
//! - `Err` says nothing about whether a put or a delete was carried out, now or later.
//! - A listing may be old. Nothing may depend on it but the removal of what nobody refers to.

pub mod directory;
pub mod faulty;
pub mod memory;
pub mod retry;
pub mod wire;
pub mod worker;

use crate::error::{Error, Result};
use crate::limits::{NAME_BYTES_MAX, NAME_PART_BYTES_MAX};
use std::fmt::Debug;
use std::ops::Range;

/// Names one version of an object: equal tags, equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etag(pub String);

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Which version that is.
    pub etag: Etag,
}

/// Under which condition a put is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Always.
    Always,
    /// Only where there is no object of this name (`If-None-Match: *`).
    Absent,
    /// Only where the object is this version (`If-Match`).
    Matches(&'a Etag),
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was carried out; the object is this version now.
    Done(Etag),
    /// The condition did not hold; nothing was changed.
    Refused,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the object.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// When it was put, by the remote's clock: seconds since 1970.
    pub put_at: i64,
}

/// A store of named objects that several machines share.
pub trait Bucket: Send + Sync + Debug {
    /// The whole of an object, or `None` where there is none. [`Error::TooLarge`] where it has more than `max`
    /// bytes, of which no more than these are ever in memory.
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>>;

    /// Bytes of an object, exactly as many as the range has; `None` where there is no object.
    /// [`Error::Damaged`] where it is shorter. The caller bounds the range.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>>;

    /// Makes or replaces an object. Objects that are put under a condition that names a version have at most
    /// [`crate::limits::REPLACED_BYTES_MAX`] bytes.
    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put>;

    /// Removes an object; `Ok` where there is none.
    fn delete(&self, name: &str) -> Result<()>;

    /// Objects whose names begin with `prefix`, which is empty or ends with `/`. At most
    /// [`crate::limits::LISTED_MAX`].
    fn list(&self, prefix: &str) -> Result<Vec<Listed>>;
}

/// Checks the name of an object: parts separated by `/`, each of lower-case letters, digits and `._-`, none that
/// begins with a dot.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let fits = |part: &str| {
        (1..=NAME_PART_BYTES_MAX).contains(&part.len())
            && !part.starts_with('.')
            && part.bytes().all(plain)
    };
    match name.len() <= NAME_BYTES_MAX && name.split('/').all(fits) {
        true => Ok(()),
        false => Err(Error::BadName {
            name: name.to_owned(),
        }),
    }
}

/// Checks the prefix of a listing.
pub fn check_prefix(prefix: &str) -> Result<()> {
    match prefix.strip_suffix('/') {
        Some(dir) => check_name(dir),
        None if prefix.is_empty() => Ok(()),
        None => Err(Error::BadName {
            name: prefix.to_owned(),
        }),
    }
}

/// The tag of an object that is told by its content.
pub(crate) fn etag_of(bytes: &[u8]) -> Etag {
    Etag(blake3::hash(bytes).to_hex()[..32].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for good in ["head", "packs/00ff.pack", "refs/a_2fb/main", "a/b-c/d_e.f"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "x".repeat(NAME_PART_BYTES_MAX + 1);
        for bad in [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.b", "A", "a b", "ä", "a\0",
            "a\\b", &long,
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_prefix("").is_ok() && check_prefix("packs/").is_ok());
        assert!(check_prefix("packs").is_err() && check_prefix("../").is_err());
    }
}
