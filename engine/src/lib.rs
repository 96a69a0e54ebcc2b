//! Live trees of agentvfs: workspaces, branches, the in-memory copy-on-write tree, the journal, commits,
//! rollback.
//!
//! Entry points: [`Engine`] (one for a store), [`Workspace`] (an open one: file operations for a
//! front, control operations for people).
//!
//! Invariant: no FUSE, no printing, no environment, no `unsafe`. Everything here can be driven
//! without a mount.
#![forbid(unsafe_code)]

mod base;
mod book;
mod branch;
mod cancel;
mod change;
mod clock;
mod engine;
mod error;
pub mod feed;
pub mod journal;
pub mod judge;
pub mod kv;
mod limits;
pub mod merge;
pub mod names;
mod ops;
mod question;
pub mod record;
pub mod settings;
mod stored;
pub mod tree;
pub mod types;
pub mod verbs;
mod workspace;

pub use crate::engine::away::OnlyRemote;
pub use crate::engine::exchange::IMPORTED;
pub use crate::engine::fsck::{Affected, Finding, FsckReport, Reopen, RepairStep};
pub use crate::engine::gc::{
    BranchFigures, GcNote, GcReport, GcRequest, KindFigures, StoreFigures, WorkspaceFigures,
};
pub use base::{Stamp, open_dead_bases_with};
pub use book::digits::UniqueDigits;
pub use book::timeline::log::check_log_bytes;
pub use branch::acting::{Asking, acting_as, acting_for, files_are_own};
pub use branch::calls::{CallRecord, CallStart};
pub use branch::descent;
pub use branch::outcomes::{RequestId, within_request};
pub use branch::state_file::check_state_bytes;
pub use branch::states::Target;
pub use branch::tree_file::check_tree_bytes;
pub use cancel::Cancel;
pub use engine::policy::{StoredPolicy, decode_policy, encode_policy};
pub use engine::{BaseFound, Engine, EngineConfig};
pub use error::{Error, Result, errno};
pub use kv::{KvEntry, KvMap};
pub use names::MAIN;
pub use objstore::{CommitId, CommitKind};
pub use record::call::{
    CALL_TEXT_BYTES_MAX, CallOutcome, EndedBy, Owner, Process, StateRef, SwitchWord,
    TOOL_NAME_BYTES_MAX,
};
pub use settings::Settings;
pub use tree::acl;
pub use types::*;
pub use verbs::apply::{ApplyReport, ApplyRequest, Fault, Faults, UpdateRequest};
pub use verbs::blame::{Blame, BlameChange, BlameItem, BlameQuery};
pub use verbs::calls::RunningCall;
pub use verbs::timeline::certain::Doubt;
pub use verbs::timeline::imported::{ImportedCall, ImportedTimeline, TakenOver};
pub use verbs::timeline::read::{CallStatus, TimelineItem, TimelinePage, TimelineQuery};
pub use verbs::timeline::sources::TimelineSource;
pub use verbs::timeline::stats::ToolStats;
pub use verbs::timeline::verify::{TimelineFault, Verified};
pub use verbs::{
    AutomaticRequest, BranchInfo, CallUndone, Calls, Change, CheckpointRequest, Checkpointed,
    Created, Deleted, DiffSide, Expect, ImportState, ImportStatus, LogCursor, LogEntry, LogPage,
    MergeReport, MergeRequest, NodeInfo, OpenAs, OpenFile, Resolution, RolledBack, Space, Standing,
    StateReader, Status, Stretch, WriteFile, patch,
};
pub use workspace::branches::SeenBy;
pub use workspace::kept::Look;
pub use workspace::uses::{Deed, Scene, Terms};
pub use workspace::views::names_last;
pub use workspace::{CloseMode, Closed, Workspace, WorkspaceConfig};
