//! The ref of a branch: its commit, labels and timeline.

use super::Form;
use super::catalog::is_plain;
use crate::error::{Error, Result};
use bincode::{Decode, Encode};
use objstore::{CommitId, FileContent, TimelineHead, codec};

const FORM: Form = Form {
    magic: *b"avfsrref",
    what: "ref",
};
/// Longest one that is read: some ten thousand labels.
pub const BYTES_MAX: u64 = 4 << 20;
/// Most timelines of a branch.
pub const TIMELINES_MAX: usize = 1000;
/// Longest name of a label or author.
const TEXT_BYTES_MAX: usize = 512;

/// A timeline in a remote.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Timeline {
    /// Name that the branch had where it was pushed.
    pub branch: String,
    /// Its newest entry.
    pub head: TimelineHead,
    /// Its log.
    pub log: FileContent,
    /// The list of the commits that it mentions.
    pub commits: FileContent,
    /// First entry that mentions one of them.
    pub first: Option<TimelineHead>,
}

/// What a remote has of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RemoteRef {
    /// The commit that the branch showed.
    pub commit: CommitId,
    /// Labels, ascending by name.
    pub labels: Vec<(String, CommitId)>,
    /// Timelines of the branch, one for each machine on which it was worked on; none begins another.
    pub timelines: Vec<Timeline>,
    /// When it was pushed: seconds since 1970.
    pub time_sec: i64,
    /// Nanoseconds of it.
    pub time_nsec: u32,
    /// By whom.
    pub by: String,
    /// A number that no other version of the ref has.
    pub random: u64,
}

impl RemoteRef {
    /// The object.
    pub fn encode(&self) -> Vec<u8> {
        FORM.encode(self)
    }

    /// Reads the object of this name.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<RemoteRef> {
        let found: RemoteRef = FORM.decode(name, bytes)?;
        match found.wrong() {
            None => Ok(found),
            Some(what) => Err(Error::Damaged {
                name: name.to_owned(),
                what,
            }),
        }
    }

    fn wrong(&self) -> Option<&'static str> {
        let mut texts = self.labels.iter().map(|(label, _)| label).chain([&self.by]);
        let fits =
            |text: &String| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
        match () {
            () if !self.labels.is_sorted_by(|a, b| a.0 < b.0) => Some("labels are not sorted"),
            () if self.timelines.len() > TIMELINES_MAX => Some("too many timelines"),
            () if !self.timelines.iter().all(|t| is_plain(&t.branch)) => {
                Some("the branch of a timeline")
            }
            () if !texts.all(fits) => Some("a label or name"),
            () if self.time_nsec >= 1_000_000_000 => Some("nanoseconds of a time"),
            () => None,
        }
    }
}

/// A commit of the list that belongs to a timeline (format.md, 7.4).
#[derive(Decode)]
struct Mentioned {
    _state: u64,
    id: CommitId,
    _time: (i64, u32),
}

/// The commits of such a list.
pub fn mentioned(list: &[u8]) -> Result<Vec<CommitId>> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let found: Vec<Mentioned> = codec::decode(list).map_err(|e| Error::Damaged {
        name: "the list of a timeline".into(),
        what: e.0,
    })?;
    Ok(found.into_iter().map(|m| m.id).collect())
}
