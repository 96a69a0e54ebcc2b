//! What [`super::worker::WorkerBucket`] and the process that has the network say to each other, over a socket pair.
//!
//! A frame is the length of a message (u32), that of an object's bytes (u32, both little endian), a [`Request`] or an
//! [`Answer`] as [`codec`] encodes it, and those bytes. The first request is [`Ask::Open`]; the others have numbers by which their
//! answers are told, in any order. Bytes of objects stand in the frame: packs are made in memory, so there is no
//! file whose descriptor could be passed.
//!
//! Both sides are total: lengths beyond the bounds and bytes that are no message are errors, and memory grows with
//! what has come, not with what a length says.

use bincode::{Decode, Encode};
use objstore::codec;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Error, ErrorKind, Read, Write};

/// Longest message: a listing.
pub const MESSAGE_BYTES_MAX: u32 = 256 << 20;
/// Longest object: an index of all that a remote may have.
pub const OBJECT_BYTES_MAX: u32 = 5 << 28;

/// Settings of the service and credentials, by name. They are in no log: `Debug` shows names alone.
#[derive(Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Access(pub BTreeMap<String, String>);

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A request.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub struct Request {
    /// Number by which its answer is told.
    pub id: u64,
    /// What is asked for.
    pub ask: Ask,
}

/// What is asked for; see [`super::Bucket`].
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub enum Ask {
    /// Where the bucket is. Nothing is sent to it yet.
    Open {
        /// `s3://BUCKET/PREFIX`.
        url: String,
        /// How it is reached.
        access: Access,
    },
    /// [`super::Bucket::get`].
    Get {
        /// Of the object.
        name: String,
        /// Most bytes that it may have.
        max: u64,
    },
    /// [`super::Bucket::get_range`].
    Range {
        /// Of the object.
        name: String,
        /// First byte.
        start: u64,
        /// The one after the last.
        end: u64,
    },
    /// [`super::Bucket::put`].
    Put {
        /// Of the object, whose bytes follow.
        name: String,
        /// Under which condition.
        only: Only,
    },
    /// [`super::Bucket::delete`].
    Delete {
        /// Of the object.
        name: String,
    },
    /// [`super::Bucket::list`].
    List {
        /// What names begin with.
        prefix: String,
    },
}

/// [`super::Condition`], as it is sent.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub enum Only {
    /// Always.
    Always,
    /// Where there is no such object.
    Absent,
    /// Where it is the version of this tag.
    Matches(String),
}

/// An answer.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub struct Answer {
    /// Number of the request.
    pub id: u64,
    /// What it says.
    pub said: Said,
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
pub enum Said {
    /// It was opened or deleted.
    Done,
    /// There is no such object.
    Absent,
    /// The object has this tag, and its bytes follow.
    Whole(String),
    /// Those of the range follow.
    Part,
    /// It was put, and has this tag.
    Put(String),
    /// The condition did not hold.
    Refused,
    /// Names, lengths, and when they were put, in seconds since 1970.
    Listed(Vec<(String, u64, i64)>),
    /// The object has so many bytes, more than asked for.
    TooLarge(u64),
    /// The object ends before the range does.
    Short,
    /// It failed, and may not the next time.
    Transient(String),
    /// The service does not let us.
    Denied(String),
    /// The service cannot do that.
    Unsupported(String),
}

/// A message, and the bytes that follow.
pub type Frame<T> = (T, Vec<u8>);

/// Reads a frame; `None` where the other side has ended between two.
///
/// # Errors
/// The other side ended within one, or what it says is no message.
pub fn read_frame<T: Decode<()>>(from: &mut impl Read) -> io::Result<Option<Frame<T>>> {
    let Some(lengths) = read_lengths(from)? else {
        return Ok(None);
    };
    let message = read_exactly(from, lengths[0], MESSAGE_BYTES_MAX)?;
    let bytes = read_exactly(from, lengths[1], OBJECT_BYTES_MAX)?;
    let message = codec::decode(&message).map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
    Ok(Some((message, bytes)))
}

fn read_lengths(from: &mut impl Read) -> io::Result<Option<[u32; 2]>> {
    let mut both = [0; 8];
    let mut got = 0;
    while got < both.len() {
        match from.read(&mut both[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let [a, b, c, d, rest @ ..] = both;
    Ok(Some([[a, b, c, d], rest].map(u32::from_le_bytes)))
}

fn read_exactly(from: &mut impl Read, length: u32, max: u32) -> io::Result<Vec<u8>> {
    if length > max {
        return Err(Error::new(ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = Vec::new();
    from.take(length.into()).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == u64::from(length) {
        true => Ok(bytes),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes a message, and bytes that follow.
///
/// # Errors
/// They are longer than a frame may be, or the other side has ended.
pub fn write_frame(to: &mut impl Write, message: &impl Encode, bytes: &[u8]) -> io::Result<()> {
    let mut head = vec![0; 8];
    codec::encode_into(message, &mut head);
    let length = |bytes: usize, max: u32| {
        let length = u32::try_from(bytes).ok().filter(|length| *length <= max);
        length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "it is too long to be sent"))
    };
    let message = length(head.len() - 8, MESSAGE_BYTES_MAX)?;
    head[..4].copy_from_slice(&message.to_le_bytes());
    head[4..8].copy_from_slice(&length(bytes.len(), OBJECT_BYTES_MAX)?.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    fn messages() -> Vec<Request> {
        let access = Access(BTreeMap::from([("key".to_owned(), "hidden".to_owned())]));
        let name = || "packs/x".to_owned();
        [
            Ask::Open {
                url: "s3://b/p".into(),
                access,
            },
            Ask::Get {
                name: name(),
                max: 7,
            },
            Ask::Range {
                name: name(),
                start: 1,
                end: u64::MAX,
            },
            Ask::Put {
                name: name(),
                only: Only::Matches("\"tag\"".into()),
            },
            Ask::Delete { name: name() },
            Ask::List {
                prefix: String::new(),
            },
        ]
        .into_iter()
        .enumerate()
        .map(|(id, ask)| Request { id: id as u64, ask })
        .collect()
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_secrets_are_not_shown() {
        let mut stream = Vec::new();
        for message in messages() {
            write_frame(&mut stream, &message, &[7; 70_000]).unwrap();
            assert!(!format!("{message:?}").contains("hidden"));
        }
        let mut left = &stream[..];
        for message in messages() {
            let (found, bytes) = read_frame::<Request>(&mut left).unwrap().unwrap();
            assert_eq!((found, bytes.len()), (message, 70_000));
        }
        assert!(read_frame::<Request>(&mut left).unwrap().is_none());
    }

    #[test]
    fn what_is_cut_or_changed_is_an_error_or_a_message() {
        let mut stream = Vec::new();
        write_frame(&mut stream, &messages().remove(0), b"bytes").unwrap();
        for len in 1..stream.len() {
            assert!(read_frame::<Request>(&mut &stream[..len]).is_err(), "{len}");
        }
        let mut chance = Chance::fresh();
        for _ in 0..20_000 {
            let mut bad = stream.clone();
            for _ in 0..=chance.below(3) {
                let at = chance.below(bad.len() as u64) as usize;
                bad[at] = chance.word() as u8;
            }
            let _ = read_frame::<Request>(&mut &bad[..]);
            let _ = read_frame::<Answer>(&mut &bad[..]);
        }
        assert!(read_frame::<Request>(&mut &[255; 9][..]).is_err());
    }
}
