//! Answers, as the rest of the front gives them: in the engine's words, as requests are.

use super::Head;
use engine::types::{Attr, StatFs};
use std::time::Duration;

/// What a request that was carried out is answered with. A duration says how long the kernel may keep
/// names and attributes.
#[derive(Debug)]
pub enum Answer {
    /// It was done.
    Done,
    /// An inode under the name that was asked for or made.
    Entry(Attr, Duration),
    /// No such name.
    Absent(Duration),
    /// A file that was created and is open from now on, its cached pages kept.
    Created(Attr, Duration),
    /// A file that is open from now on, its cached pages kept.
    Opened,
    /// Attributes.
    Attributes(Attr, Duration),
    /// How much was written.
    Written(u32),
    /// How much was copied, in 64 bits.
    Copied(u64),
    /// Where data or a hole was found.
    Found(u64),
    /// How long an extended attribute, or the list of them, is.
    Length(u32),
    /// Figures of the file system.
    Figures(StatFs),
    /// Bytes.
    Data(Vec<u8>),
    /// So many bytes from the beginning of the memory that there was for them.
    Room(usize),
}

impl Answer {
    /// Its fixed fields, as the kernel has them.
    pub fn head(&self) -> Head {
        match self {
            Answer::Done | Answer::Data(_) | Answer::Room(_) => Head::default(),
            Answer::Entry(attr, keep) => Head::entry(attr, *keep),
            Answer::Absent(keep) => Head::absent(*keep),
            Answer::Created(attr, keep) => Head::created(attr, *keep),
            Answer::Opened => Head::opened(),
            Answer::Attributes(attr, keep) => Head::attr(attr, *keep),
            Answer::Written(size) => Head::written(*size),
            Answer::Copied(size) => Head::copied(*size),
            Answer::Found(offset) => Head::found(*offset),
            Answer::Length(size) => Head::length(*size),
            Answer::Figures(figures) => Head::figures(figures),
        }
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Answer {
        Answer::Done
    }
}
