//! Stored objects: values with a canonical encoding, named by its hash.

pub mod commit;
pub mod diff;
mod edit;
pub mod manifest;
pub mod tree;

use bincode::{Decode, Encode};

use crate::codec::{self, DecodeError};
use crate::id::{Kind, ObjectId};

/// A value that is stored under the hash of its encoding.
pub trait Object: Encode + Sized {
    /// Type of its id.
    type Id: ObjectId;
    /// Kind, part of the encoding.
    const KIND: Kind;
    /// Newest version of the encoding that is read.
    const VERSION: u16;

    /// Version that this value is encoded in.
    fn version(&self) -> u16 {
        Self::VERSION
    }

    /// The value as it is stored.
    fn to_bytes(&self) -> Vec<u8> {
        codec::encode_object(Self::KIND, self.version(), self)
    }

    /// The value of stored bytes, not checked yet ([`Object::check`]). What is read is encoded to the
    /// same bytes again.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Checks what the types do not say: order, bounds. Done before storing and after reading.
    fn check(&self) -> Result<(), &'static str>;
}

/// [`Object::from_bytes`] of values whose version follows from what they hold.
fn decoded<T: Object + Decode<()>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (version, object) = codec::decode_object::<T>(T::KIND, T::VERSION, bytes)?;
    match object.version() == version {
        true => Ok(object),
        false => Err(DecodeError("of another version than it says")),
    }
}
