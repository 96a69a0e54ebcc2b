//! What became of a request of the kernel that changed something: enough to answer it once more.

use super::Mutation;

/// What a change gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, bincode::Encode, bincode::Decode)]
pub enum Outcome {
    /// Nothing that is told.
    Done,
    /// An inode that was created, or got a further name, by its number.
    Inode(u64),
    /// So many bytes, written or copied.
    Bytes(u64),
}

impl Outcome {
    /// Of a change whose payload has this length.
    pub fn of(change: &Mutation, payload: u64) -> Outcome {
        match change {
            Mutation::Create { nid, .. }
            | Mutation::Nameless { nid, .. }
            | Mutation::Link { nid, .. } => Outcome::Inode(*nid),
            Mutation::Write { .. } => Outcome::Bytes(payload),
            Mutation::Copy { len, .. } => Outcome::Bytes(*len),
            // Also of a CREATE that emptied a file which was there: that is no file which the request made.
            Mutation::SetAttr { .. }
            | Mutation::Unlink { .. }
            | Mutation::Rename { .. }
            | Mutation::Whiteout { .. }
            | Mutation::Allocate { .. }
            | Mutation::Kv { .. } => Outcome::Done,
        }
    }
}
