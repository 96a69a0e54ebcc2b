//! Live trees of agentvfs: workspaces, branches, the in-memory copy-on-write tree, the journal, commits,
//! rollback.
//!
//! Entry points: [`Engine`] (one for a store), [`Workspace`] (an open one: file operations for a
//! front, control operations for people).
//!
//! Invariant: no FUSE, no printing, no environment, no `unsafe`. Everything here can be driven
//! without a mount.
#![forbid(unsafe_code)]

mod accessed;
pub mod acl;
mod apply;
mod base;
mod book;
mod branch;
mod branch_refs;
mod branches;
mod cancel;
mod clock;
mod collect;
mod control;
mod data;
mod engine;
mod error;
mod exchange;
mod fsck;
mod graft;
mod history;
mod import;
pub mod journal;
mod journals;
mod keeper;
pub mod kv;
mod later;
mod limits;
mod lineage;
mod load_tree;
mod lookups;
pub mod merge;
pub mod names;
mod ops;
pub mod patch;
pub mod record;
mod retention;
pub mod settings;
mod store_tree;
mod timeline;
mod transition;
pub mod tree;
pub mod types;
mod views;
mod workspace;

pub use apply::{ApplyReport, ApplyRequest, Fault, Faults, UpdateRequest};
pub use base::{Stamp, open_dead_bases_with};
pub use branch::state_file::check_state_bytes;
pub use branch::tree_file::check_tree_bytes;
pub use branches::SeenBy;
pub use cancel::Cancel;
pub use collect::{
    BranchFigures, GcNote, GcReport, GcRequest, KindFigures, StoreFigures, WorkspaceFigures,
};
pub use control::{
    BranchInfo, CallUndone, Calls, Change, CheckpointRequest, Checkpointed, Created, Deleted,
    DiffSide, ImportState, ImportStatus, LogEntry, MergeReport, MergeRequest, Node, Progress,
    Resolution, RolledBack, Status, Stretch, Target, View, WriteFile,
};
pub use engine::{BaseFound, Engine, EngineConfig};
pub use error::{Error, Result, errno};
pub use exchange::IMPORTED;
pub use fsck::{Affected, Finding, FsckReport, Reopen, RepairStep};
pub use kv::{KvEntry, KvMap};
pub use names::MAIN;
pub use objstore::CommitId;
pub use settings::Settings;
pub use timeline::{
    Blame, BlameChange, BlameItem, BlameQuery, CALL_TEXT_BYTES_MAX, CallOutcome, CallRecord,
    CallStart, CallStatus, Doubt, EndedBy, ImportedCall, Owner, Process, RunningCall, StateRef,
    SwitchWord, TOOL_NAME_BYTES_MAX, TimelineFault, TimelineItem, TimelinePage, TimelineQuery,
    TimelineSource, Verified, check_log_bytes,
};
pub use types::*;
pub use views::names_last;
pub use workspace::{CloseMode, Closed, Workspace, WorkspaceConfig};
