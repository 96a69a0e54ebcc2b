//! What can go wrong in the engine, with the facts that a caller needs to say it well.
//!
//! File operations map to an errno by [`Error::errno`]; control operations are told by their text.

use crate::base::BaseFile;
use crate::journal::JournalError;
use crate::limits::SYMLINKS_MAX;
use crate::types::Nid;
use std::path::{Path, PathBuf};

/// Result of engine calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errno values as the kernel numbers them (errno(3), asm-generic).
pub mod errno {
    #![allow(missing_docs)]
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const E2BIG: i32 = 7;
    pub const EAGAIN: i32 = 11;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EMLINK: i32 = 31;
    pub const ERANGE: i32 = 34;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOTEMPTY: i32 = 39;
    pub const ELOOP: i32 = 40;
    pub const ENODATA: i32 = 61;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ESTALE: i32 = 116;
    pub const EDQUOT: i32 = 122;
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such file, directory or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A path component is not a directory.
    #[error("not a directory")]
    NotDir,
    /// A directory where a file is wanted.
    #[error("is a directory")]
    IsDir,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name longer than 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// An argument out of range.
    #[error("invalid argument")]
    Invalid,
    /// Not allowed, whoever asks.
    #[error("operation not permitted")]
    NotPermitted,
    /// The caller (or, for a file of the base, this process) may not.
    #[error("permission denied")]
    Access,
    /// A rule of the policy denies it.
    #[error("denied by rule {rule} of the policy")]
    Denied {
        /// The error that programs get.
        code: i32,
        /// Name of the rule.
        rule: std::sync::Arc<str>,
    },
    /// Between two views.
    #[error("invalid cross-device link")]
    CrossDevice,
    /// A read-only view.
    #[error("read-only file system")]
    ReadOnly,
    /// More links than 65,000.
    #[error("too many links")]
    TooManyLinks,
    /// Beyond the largest file size.
    #[error("file too large")]
    FileTooLarge,
    /// An extended attribute that is not there.
    #[error("no such attribute")]
    NoData,
    /// An extended attribute value or list beyond the limits.
    #[error("argument too large")]
    TooBig,
    /// No data or hole beyond this offset.
    #[error("no such address")]
    NoAddress,
    /// Not offered.
    #[error("operation not supported")]
    NotSupported,
    /// The inode is not known (any more).
    #[error("stale file handle")]
    Stale,
    /// The disk must be waited for and the caller may not.
    #[error("would block")]
    WouldBlock,
    /// A directory of the base must be read first (never leaves the engine).
    #[error("directory {0} was not read yet")]
    NeedsDir(Nid),
    /// The base must be scanned first (never leaves the engine).
    #[error("the base was not scanned yet")]
    NeedsScan,
    /// Something must be found out before the change can be judged (never leaves the engine).
    #[error("the change was not judged yet")]
    NeedsAnswer(Box<dyn crate::question::Question>),
    /// What was shown before must become a commit before the change is denied (never leaves the engine).
    #[error("what was before is not a commit yet")]
    NeedsCommit,
    /// The file system below is full.
    #[error("no space left on device")]
    NoSpace,
    /// The home takes as much as its quota allows.
    #[error("the quota of {quota} bytes is used up")]
    Quota {
        /// The quota.
        quota: u64,
    },
    /// The journal cannot take or give records.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store cannot take or give objects.
    #[error(transparent)]
    Store(#[from] objstore::Error),
    /// An input or output error of a named file.
    #[error("{path}: {source}")]
    Io {
        /// File that was used.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the base is not the version that was shown; it must be taken anew.
    #[error("base file {} changed", agentvfs_quote::shown(&.0.path()))]
    BaseChanged(BaseFile),
    /// A file of the base cannot be read; commits are made without it.
    #[error("base file {} cannot be read: {why}", String::from_utf8_lossy(&.file.path()))]
    BaseUnreadable {
        /// The file.
        file: BaseFile,
        /// What the system said.
        why: String,
    },
    /// A stored file of a workspace is not what was written.
    #[error("{what} is damaged: {why}")]
    Damaged {
        /// Which file or record.
        what: String,
        /// What is wrong with it.
        why: String,
    },

    /// No workspace of that name.
    #[error("no workspace named {0}")]
    NoSuchWorkspace(String),
    /// The name is taken.
    #[error("workspace {name} already exists (base {base})", base = base.display())]
    WorkspaceExists {
        /// Its name.
        name: String,
        /// Its base.
        base: PathBuf,
    },
    /// The workspace was imported.
    #[error("workspace {0} was imported and has no base directory")]
    NoBase(String),
    /// The workspace is in use.
    #[error("workspace {0} is running")]
    WorkspaceBusy(String),
    /// A name that breaks the rules.
    #[error("{kind} {name:?} is not allowed: {rule}")]
    BadName {
        /// What it would name.
        kind: &'static str,
        /// The name.
        name: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// A base that cannot be used.
    #[error("base {path} cannot be used: {why}", path = path.display())]
    BadBase {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The base is not where it was, or cannot be opened.
    #[error("the project {path} cannot be used: {why}", path = path.display())]
    BaseMissing {
        /// Where it is to be.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The base's path leads to something else than the directory that is open.
    #[error("{}", moved(path, *is_gone, now.as_deref()))]
    BaseMoved {
        /// Where it was when it was opened.
        path: PathBuf,
        /// Nothing is there now.
        is_gone: bool,
        /// Where it is now, as far as that can be told.
        now: Option<PathBuf>,
    },
    /// No branch of that name.
    #[error("no branch named {0}")]
    NoSuchBranch(String),
    /// The workspace has no remote of that name.
    #[error("no remote named {0}")]
    NoSuchRemote(String),
    /// The workspace has a remote of that name.
    #[error("remote {0} already exists")]
    RemoteExists(String),
    /// The workspace has as many remotes as it may have.
    #[error("a workspace has {max} remotes at most", max = crate::limits::REMOTES_MAX)]
    TooManyRemotes,
    /// The remote has what the workspace lacks.
    #[error("workspace files that were not read yet are only in remote {0}")]
    RemoteNeeded(String),
    /// The branch name is taken.
    #[error("branch {0} already exists")]
    BranchExists(String),
    /// A merge of a branch into itself.
    #[error("branch {0} cannot be merged into itself")]
    MergeWithItself(String),
    /// A value that is no JSON.
    #[error("the value is not valid JSON: {why}")]
    NotJson {
        /// What is wrong with it.
        why: String,
    },
    /// A value beyond the limit.
    #[error("the value has {bytes} bytes; the maximum is 524288")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The keys and values of a branch would count more than they may.
    #[error("the keys and values of a branch must not exceed 64 MiB")]
    TooManyValues,
    /// No conflict at this path.
    #[error("{} is not in conflict", agentvfs_quote::shown(.0))]
    NoConflict(Vec<u8>),
    /// What a merge touches is changed all the time.
    #[error("files that the merge changes in branch {0} keep changing")]
    KeepsChanging(String),
    /// `main` cannot be deleted or renamed.
    #[error("branch main cannot be deleted or renamed")]
    MainBranch,
    /// No number is left for a further branch or snapshot.
    #[error("there are too many branches or snapshots")]
    TooManyBranches,
    /// A reference that names nothing.
    #[error("no label, commit or state matches {0:?}")]
    NoSuchRef(String),
    /// A prefix of several commits.
    #[error("{prefix} is a prefix of {count} commits")]
    AmbiguousRef {
        /// The prefix.
        prefix: String,
        /// How many it matches.
        count: usize,
    },
    /// A path that none of the places looked at has.
    #[error("{} does not exist there, nor in the live tree", agentvfs_quote::shown(.0))]
    NoSuchPath(Vec<u8>),
    /// A path on which a symbolic link leads out of the workspace.
    #[error("{} leads out of the workspace", agentvfs_quote::shown(.0))]
    LeadsOut(Vec<u8>),
    /// A path on which symbolic links lead to themselves, or are too many.
    #[error("{} leads in a loop: more than {} symbolic links", agentvfs_quote::shown(.0), SYMLINKS_MAX)]
    LinkLoop(Vec<u8>),
    /// Something that is no directory stands where one must be.
    #[error("{} is not a directory now", agentvfs_quote::shown(.0))]
    InTheWay(Vec<u8>),
    /// Nothing is left to take back or forward.
    #[error("nothing to {0}")]
    NothingTo(&'static str),
    /// What was asked for after what undo would take back.
    #[error("it would go back past later operations: {}", .0.join(", "))]
    LaterAsked(Vec<String>),
    /// No commit is old enough, or none has that metadata.
    #[error("no commit {0}")]
    NoCommit(String),
    /// Two commits without a common ancestor.
    #[error("commits {ours} and {theirs} have no common history")]
    NoCommonHistory {
        /// Merged into.
        ours: objstore::CommitId,
        /// Merged.
        theirs: objstore::CommitId,
    },
    /// A file of the base does not stop changing.
    #[error("base file {} keeps changing", agentvfs_quote::shown(.0))]
    BaseInUse(Vec<u8>),
    /// A file of the base was changed while changes were applied to it; nothing was done.
    #[error("base file {} changed during the apply; nothing was applied", agentvfs_quote::shown(.0))]
    ChangedMeanwhile(Vec<u8>),
    /// What would be applied gives privileges, or belongs to somebody else.
    #[error("{} changes need privileges: {}", paths.len(), shown(paths))]
    NeedsPrivilege {
        /// Paths, relative to the base.
        paths: Vec<Vec<u8>>,
    },
    /// A command in a sandbox may have written files that run by themselves outside of it.
    #[error("these files run by themselves outside the sandbox: {}", named(paths))]
    NeedsTrust {
        /// Paths, relative to the base.
        paths: Vec<Vec<u8>>,
    },
    /// An apply was interrupted, and what it did to the base could not be taken back.
    #[error("an interrupted apply could not be reversed: {why}")]
    ApplyUnfinished {
        /// What failed.
        why: String,
    },
    /// No call has this id.
    #[error("there is no tool call {0}")]
    NoSuchCall(u64),
    /// The call does not run (here).
    #[error("tool call {0} has already ended, or began on another branch")]
    CallOver(u64),
    /// An id for a call that is given already.
    #[error("tool call id {0} is already in use")]
    CallIdTaken(u64),
    /// More calls of processes than can run at once.
    #[error("{0} tool calls of processes are running already, which is the maximum")]
    TooManyCalls(usize),
    /// A text of a call that cannot be kept.
    #[error("the text of a tool call cannot be stored: {0}")]
    CallText(String),
    /// What a call changed is not known.
    #[error("what tool call {call} changed is not known: {why}")]
    CallUnknown {
        /// The call.
        call: u64,
        /// Why.
        why: String,
        /// Calls that have not ended and that it is for.
        pending: Vec<u64>,
    },
    /// The import stands still, so a commit's id cannot be known.
    #[error("the import of the base is paused: {why}")]
    ImportPaused {
        /// Why.
        why: String,
        /// More space would help.
        wants_space: bool,
    },
    /// Another process owns the store.
    #[error("the store is in use by process {pid}")]
    StoreLocked {
        /// Owner's process id.
        pid: u32,
    },
    /// Whoever asked for it, or somebody who may, has cancelled it.
    #[error("it was cancelled; nothing was changed")]
    Cancelled,
    /// The workspace is being closed.
    #[error("the workspace is stopping")]
    Closing,
}

impl Error {
    /// Whether something must be done without the branch's lock before the request can be carried out.
    pub(crate) fn is_need(&self) -> bool {
        matches!(
            self,
            Error::NeedsDir(_) | Error::NeedsScan | Error::NeedsAnswer(_) | Error::NeedsCommit
        )
    }

    /// An [`Error::Io`] maker for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    /// True where more space on the disk, or a larger quota, would have helped.
    pub fn wants_space(&self) -> bool {
        matches!(self.errno(), errno::ENOSPC | errno::EDQUOT)
    }

    /// Errno with which a file operation fails (positive).
    pub fn errno(&self) -> i32 {
        use errno::*;
        match self {
            Error::NotFound | Error::NoSuchPath(_) => ENOENT,
            Error::Exists => EEXIST,
            Error::NotDir | Error::InTheWay(_) => ENOTDIR,
            Error::IsDir => EISDIR,
            Error::NotEmpty => ENOTEMPTY,
            Error::LinkLoop(_) => ELOOP,
            Error::NameTooLong => ENAMETOOLONG,
            Error::Invalid => EINVAL,
            Error::NotPermitted => EPERM,
            Error::Access | Error::BaseUnreadable { .. } => EACCES,
            Error::Denied { code, .. } => *code,
            Error::CrossDevice | Error::LeadsOut(_) => EXDEV,
            Error::ReadOnly => EROFS,
            Error::TooManyLinks => EMLINK,
            Error::FileTooLarge => EFBIG,
            Error::NoData => ENODATA,
            Error::TooBig => E2BIG,
            Error::NoAddress => ENXIO,
            Error::NotSupported => EOPNOTSUPP,
            Error::Stale => ESTALE,
            Error::WouldBlock
            | Error::NeedsDir(_)
            | Error::NeedsScan
            | Error::NeedsAnswer(_)
            | Error::NeedsCommit => EAGAIN,
            Error::NoSpace => ENOSPC,
            Error::Quota { .. } => EDQUOT,
            Error::Journal(e) if e.is_no_space() => ENOSPC,
            Error::Store(e) if e.is_no_space() => ENOSPC,
            Error::Journal(_)
            | Error::Store(_)
            | Error::Io { .. }
            | Error::BaseChanged(_)
            | Error::Damaged { .. }
            | Error::NoSuchWorkspace(_)
            | Error::WorkspaceExists { .. }
            | Error::WorkspaceBusy(_)
            | Error::NoBase(_)
            | Error::BadName { .. }
            | Error::BadBase { .. }
            | Error::BaseMissing { .. }
            | Error::BaseMoved { .. }
            | Error::NoSuchBranch(_)
            | Error::BranchExists(_)
            | Error::NoSuchRemote(_)
            | Error::RemoteExists(_)
            | Error::TooManyRemotes
            | Error::RemoteNeeded(_)
            | Error::NotJson { .. }
            | Error::ValueTooLong { .. }
            | Error::TooManyValues
            | Error::MainBranch
            | Error::MergeWithItself(_)
            | Error::KeepsChanging(_)
            | Error::NoConflict(_)
            | Error::TooManyBranches
            | Error::NoSuchRef(_)
            | Error::AmbiguousRef { .. }
            | Error::NothingTo(_)
            | Error::LaterAsked(_)
            | Error::NoCommit(_)
            | Error::NoCommonHistory { .. }
            | Error::BaseInUse(_)
            | Error::ChangedMeanwhile(_)
            | Error::NeedsPrivilege { .. }
            | Error::NeedsTrust { .. }
            | Error::ApplyUnfinished { .. }
            | Error::NoSuchCall(_)
            | Error::CallOver(_)
            | Error::CallIdTaken(_)
            | Error::TooManyCalls(_)
            | Error::CallText(_)
            | Error::CallUnknown { .. }
            | Error::ImportPaused { .. }
            | Error::StoreLocked { .. }
            | Error::Cancelled
            | Error::Closing => EIO,
        }
    }
}

/// What became of a base.
fn moved(path: &Path, is_gone: bool, now: Option<&Path>) -> String {
    let path = path.display();
    let there = match is_gone {
        true => "is gone",
        false => "is now another directory",
    };
    match now {
        Some(now) => format!(
            "{path} {there}: the project that the workspace was started from is now {}",
            now.display()
        ),
        None => format!(
            "{path} {there}: the project that the workspace was started from was deleted or covered"
        ),
    }
}

/// Paths, so many that hardly one is left out.
fn named(paths: &[Vec<u8>]) -> String {
    const NAMED_MAX: usize = 50;
    let named: Vec<String> = paths
        .iter()
        .take(NAMED_MAX)
        .map(|path| agentvfs_quote::shown(path))
        .collect();
    let more = match paths.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

/// The first few of many paths.
fn shown(paths: &[Vec<u8>]) -> String {
    let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    let few: Vec<String> = paths.iter().take(3).map(text).collect();
    let more = if paths.len() > few.len() { ", …" } else { "" };
    format!("{}{more}", few.join(", "))
}
