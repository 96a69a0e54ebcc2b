//! Commits: a root directory, what came before, and who made it when and why.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

use crate::codec;
use crate::content::FileContent;
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

impl CommitKind {
    fn of(byte: u8) -> Result<CommitKind, DecodeError> {
        match byte {
            0 => Ok(CommitKind::Start),
            1 => Ok(CommitKind::Asked),
            2 => Ok(CommitKind::Automatic),
            _ => Err(DecodeError::Other("unknown kind of commit")),
        }
    }
}

/// How far the timeline went when a commit was made: what came before cannot be altered unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct TimelineHead {
    /// Entries, at least 1.
    pub entries: u64,
    /// Hash of the last of them, which covers all before it.
    pub hash: [u8; 32],
}

/// In the byte of the kind: the content of the key-value state follows.
const HAS_KV: u8 = 0x10;
/// In the byte of the kind: the timeline's head follows.
const HAS_TIMELINE: u8 = 0x20;

/// An immutable state of a tree and its place in history.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Key-value state, encoded by the engine; `None` where there is none.
    pub kv: Option<FileContent>,
    /// How far the timeline went; `None` where it is empty.
    pub timeline: Option<TimelineHead>,
}

impl Encode for Commit {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.root_meta.encode(encoder)?;
        self.root.encode(encoder)?;
        self.parents.encode(encoder)?;
        self.time_sec.encode(encoder)?;
        self.time_nsec.encode(encoder)?;
        self.author.encode(encoder)?;
        self.message.encode(encoder)?;
        self.meta.encode(encoder)?;
        let kv = if self.kv.is_some() { HAS_KV } else { 0 };
        let timeline = if self.timeline.is_some() {
            HAS_TIMELINE
        } else {
            0
        };
        (self.kind as u8 | kv | timeline).encode(encoder)?;
        self.kv.iter().try_for_each(|kv| kv.encode(encoder))?;
        self.timeline.iter().try_for_each(|t| t.encode(encoder))
    }
}

impl<Context> Decode<Context> for Commit {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let mut commit = Commit {
            root_meta: Decode::decode(decoder)?,
            root: Decode::decode(decoder)?,
            parents: Decode::decode(decoder)?,
            time_sec: Decode::decode(decoder)?,
            time_nsec: Decode::decode(decoder)?,
            author: Decode::decode(decoder)?,
            message: Decode::decode(decoder)?,
            meta: Decode::decode(decoder)?,
            kind: CommitKind::Start,
            kv: None,
            timeline: None,
        };
        let byte = u8::decode(decoder)?;
        commit.kind = CommitKind::of(byte & !(HAS_KV | HAS_TIMELINE))?;
        if byte & HAS_KV != 0 {
            commit.kv = Some(Decode::decode(decoder)?);
        }
        if byte & HAS_TIMELINE != 0 {
            commit.timeline = Some(Decode::decode(decoder)?);
        }
        Ok(commit)
    }
}

impl Object for Commit {
    type Id = CommitId;
    const KIND: Kind = Kind::Commit;
    const VERSION: u16 = 2;

    /// A commit without the parts that came with version 2 is encoded as ever, and keeps its id.
    fn version(&self) -> u16 {
        if self.kv.is_some() || self.timeline.is_some() {
            2
        } else {
            1
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, codec::DecodeError> {
        super::decoded(bytes)
    }

    fn check(&self) -> Result<(), &'static str> {
        self.root_meta.check()?;
        if self.time_nsec >= 1_000_000_000 {
            return Err("nanoseconds of the commit's time");
        }
        if !self.meta.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("facts are not sorted");
        }
        if self.timeline.is_some_and(|t| t.entries == 0) {
            return Err("the head of an empty timeline");
        }
        Ok(())
    }
}
