//! Commits: a root directory, what came before, and who made it when and why.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

use crate::id::{CommitId, Kind, TreeId};
use crate::object::Object;
use crate::object::tree::Meta;

/// Why a commit was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CommitKind {
    /// The state that a workspace was started from.
    Start = 0,
    /// Somebody asked for it.
    Asked = 1,
    /// Nobody asked: before a rollback, when idle, at stop.
    Automatic = 2,
}

impl Encode for CommitKind {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        (*self as u8).encode(encoder)
    }
}

impl<Context> Decode<Context> for CommitKind {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        match u8::decode(decoder)? {
            0 => Ok(CommitKind::Start),
            1 => Ok(CommitKind::Asked),
            2 => Ok(CommitKind::Automatic),
            _ => Err(DecodeError::Other("unknown kind of commit")),
        }
    }
}

bincode::impl_borrow_decode!(CommitKind);

/// An immutable state of a tree and its place in history.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Commit {
    /// Attributes of the root directory.
    pub root_meta: Meta,
    /// Entries of the root directory; `None` where it is empty.
    pub root: Option<TreeId>,
    /// What it was made from; the head first.
    pub parents: Vec<CommitId>,
    /// When, in seconds since 1970.
    pub time_sec: i64,
    /// Nanoseconds of it.
    pub time_nsec: u32,
    /// Who made it.
    pub author: String,
    /// What was said about it.
    pub message: String,
    /// Further facts, sorted by key, keys unique.
    pub meta: Vec<(String, String)>,
    /// Why it was made.
    pub kind: CommitKind,
}

impl Object for Commit {
    type Id = CommitId;
    const KIND: Kind = Kind::Commit;
    const VERSION: u16 = 1;

    fn check(&self) -> Result<(), &'static str> {
        self.root_meta.check()?;
        if self.time_nsec >= 1_000_000_000 {
            return Err("nanoseconds of the commit's time");
        }
        if !self.meta.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("facts are not sorted");
        }
        Ok(())
    }
}
