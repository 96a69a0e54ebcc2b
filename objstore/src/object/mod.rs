//! Stored objects: values with a canonical encoding, named by its hash.

pub mod commit;
pub mod diff;
mod edit;
pub mod manifest;
pub mod tree;

use bincode::{Decode, Encode};

use crate::id::{Kind, ObjectId};

/// A value that is stored under the hash of its encoding.
pub trait Object: Encode + Decode<()> + Sized {
    /// Type of its id.
    type Id: ObjectId;
    /// Kind, part of the encoding.
    const KIND: Kind;
    /// Version of the encoding.
    const VERSION: u16;

    /// Checks what the types do not say: order, bounds. Done before storing and after reading.
    fn check(&self) -> Result<(), &'static str>;
}
