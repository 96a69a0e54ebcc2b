//! One event, and the words for its parts (docs/events.md).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FeedOp {
    /// A new name of a new inode.
    Create,
    /// Bytes of a file changed.
    Write,
    /// A file's length was set.
    Truncate,
    /// A name of something that is no directory went.
    Unlink,
    /// A name moved.
    Rename,
    /// A further name of an inode.
    Link,
    /// A new symbolic link.
    Symlink,
    /// Permissions, owner or times changed.
    SetAttr,
    /// Extended attributes changed.
    SetXattr,
    /// A directory went.
    Rmdir,
    /// A key changed.
    Kv,
    /// A commit was made.
    Checkpoint,
    /// The tree was set to a commit.
    Rollback,
    /// A rollback, merge or the like was taken back.
    Undo,
    /// An undo was taken back.
    Redo,
    /// Paths were taken from a commit.
    Restore,
    /// Another branch was merged.
    Merge,
    /// What was changed in the project's directory was merged.
    Update,
    /// The branch was applied to the project's directory.
    Apply,
    /// A path is in conflict, or no longer.
    Conflict,
    /// A branch was made, renamed or deleted.
    Branch,
    /// A command in a sandbox began.
    Run,
    /// A tool call began or ended.
    Tool,
    /// A file was opened.
    Open,
    /// A file was read, from the kernel's cache or not.
    Read,
    /// A program was executed.
    Exec,
    /// A connection was asked for.
    Connect,
    /// Events of a source were lost before they came here.
    Lost,
    /// A rule watches a change, or denies it.
    Verdict,
}

impl FeedOp {
    /// All of them.
    pub const ALL: [FeedOp; 29] = [
        FeedOp::Create,
        FeedOp::Write,
        FeedOp::Truncate,
        FeedOp::Unlink,
        FeedOp::Rename,
        FeedOp::Link,
        FeedOp::Symlink,
        FeedOp::SetAttr,
        FeedOp::SetXattr,
        FeedOp::Rmdir,
        FeedOp::Kv,
        FeedOp::Checkpoint,
        FeedOp::Rollback,
        FeedOp::Undo,
        FeedOp::Redo,
        FeedOp::Restore,
        FeedOp::Merge,
        FeedOp::Update,
        FeedOp::Apply,
        FeedOp::Conflict,
        FeedOp::Branch,
        FeedOp::Run,
        FeedOp::Tool,
        FeedOp::Open,
        FeedOp::Read,
        FeedOp::Exec,
        FeedOp::Connect,
        FeedOp::Lost,
        FeedOp::Verdict,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            FeedOp::Create => "create",
            FeedOp::Write => "write",
            FeedOp::Truncate => "truncate",
            FeedOp::Unlink => "unlink",
            FeedOp::Rename => "rename",
            FeedOp::Link => "link",
            FeedOp::Symlink => "symlink",
            FeedOp::SetAttr => "setattr",
            FeedOp::SetXattr => "setxattr",
            FeedOp::Rmdir => "rmdir",
            FeedOp::Kv => "kv",
            FeedOp::Checkpoint => "checkpoint",
            FeedOp::Rollback => "rollback",
            FeedOp::Undo => "undo",
            FeedOp::Redo => "redo",
            FeedOp::Restore => "restore",
            FeedOp::Merge => "merge",
            FeedOp::Update => "update",
            FeedOp::Apply => "apply",
            FeedOp::Conflict => "conflict",
            FeedOp::Branch => "branch",
            FeedOp::Run => "run",
            FeedOp::Tool => "tool",
            FeedOp::Open => "open",
            FeedOp::Read => "read",
            FeedOp::Exec => "exec",
            FeedOp::Connect => "connect",
            FeedOp::Lost => "lost",
            FeedOp::Verdict => "verdict",
        }
    }
}

/// By which way a change came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FeedBackend {
    /// Nobody asked: the workspace's own work.
    #[default]
    Own,
    /// The kernel asked, for a program in the mount.
    Front,
    /// A client of the control protocol asked.
    Control,
    /// The kernel told of it by fanotify(7).
    Fanotify,
    /// A program in the kernel told of it.
    Ebpf,
}

impl FeedBackend {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            FeedBackend::Own => "engine",
            FeedBackend::Front => "fuse",
            FeedBackend::Control => "control",
            FeedBackend::Fanotify => "fanotify",
            FeedBackend::Ebpf => "ebpf",
        }
    }
}

/// What is done with a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sentence {
    /// It is made.
    #[default]
    Allow,
    /// It is made, and told of.
    Watch,
    /// The user is asked first: of tool calls alone.
    Ask,
    /// It fails with this error.
    Deny(i32),
}

impl Sentence {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Sentence::Allow => "allow",
            Sentence::Watch => "soft_watch",
            Sentence::Ask => "ask",
            Sentence::Deny(_) => "deny",
        }
    }
}

/// Who asked for a change, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedWho {
    /// Process; 0 where it is not known, as for pages that are written back later.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The process's name (comm), empty where it is not known.
    pub comm: Arc<str>,
    /// By which way.
    pub backend: FeedBackend,
}

/// What else there is to say of an event: words and `key=value`, separated by spaces. It becomes a text only where that
/// is wanted, as most events are only kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Words, which come first.
    pub words: Cow<'static, str>,
    /// `offset=`.
    pub offset: Option<u64>,
    /// `size=`.
    pub size: Option<u64>,
}

impl Detail {
    /// The same without a copy.
    pub(crate) fn told(&self) -> ToldDetail<'_> {
        ToldDetail {
            words: &self.words,
            offset: self.offset,
            size: self.size,
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told().fmt(f)
    }
}

impl fmt::Display for ToldDetail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)?;
        let mut between = if self.words.is_empty() { "" } else { " " };
        for (key, value) in [("offset", self.offset), ("size", self.size)] {
            if let Some(value) = value {
                write!(f, "{between}{key}={value}")?;
                between = " ";
            }
        }
        Ok(())
    }
}

/// An event, without a copy of its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Its number.
    pub seq: u64,
    /// When it happened, in nanoseconds since 1970.
    pub time_ns: u64,
    /// What happened.
    pub op: FeedOp,
    /// On which branch: the name that it had.
    pub branch: &'a str,
    /// Its number. A later branch may get that of one that is gone.
    pub branch_number: u16,
    /// The branch itself: no other one has the same while the daemon runs.
    pub teller: u64,
    /// The inode's shown number; 0 where it is about none.
    pub ino: u64,
    /// The path within the branch; empty for the root, and where it is about none.
    pub path: &'a [u8],
    /// New path of a rename, existing path of a link, target of a symbolic link, source of a copy.
    pub path2: &'a [u8],
    /// Who asked.
    pub who: &'a FeedWho,
    /// Bytes that were written.
    pub bytes: u64,
    /// Of what was lost: how many events, if that is known; else 0.
    pub count: u64,
    /// Nanoseconds from the request's beginning until it was carried out; 0 where nobody asked.
    pub latency_ns: u64,
    /// The tool call that it is part of.
    pub call: Option<u64>,
    /// What else there is to say.
    pub detail: ToldDetail<'a>,
    /// What rules say of it.
    pub sentence: Sentence,
    /// Version of the rules; 0: there are none.
    pub policy_version: u64,
}

/// What else there is to say of it: [`Detail`] has the same fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ToldDetail<'a> {
    pub words: &'a str,
    pub offset: Option<u64>,
    pub size: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_has_its_words_first() {
        let detail = |words: &'static str, offset, size| {
            let words = words.into();
            Detail {
                words,
                offset,
                size,
            }
            .to_string()
        };
        assert_eq!(detail("", None, None), "");
        assert_eq!(detail("file", None, None), "file");
        assert_eq!(detail("", Some(0), Some(5)), "offset=0 size=5");
        assert_eq!(detail("", None, Some(5)), "size=5");
        assert_eq!(detail("copy", Some(7), Some(9)), "copy offset=7 size=9");
    }

    #[test]
    fn each_kind_has_a_word_of_its_own() {
        let mut words = FeedOp::ALL.map(FeedOp::word);
        words.sort_unstable();
        assert!(words.windows(2).all(|two| two[0] != two[1]));
    }
}
