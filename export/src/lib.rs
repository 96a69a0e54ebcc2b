//! Workspaces as single SQLite files that AgentFS's tools open, and such files as workspaces.
//!
//! Entry points: [`export`] and [`import`]. An export has the tables of AgentFS SPEC 0.4, and in tables
//! `agentvfs_*` everything that those cannot hold, so that importing it gives the same Merkle root.
//!
//! Invariant: no printing, no environment, no `unsafe`; a database from elsewhere is never written to,
//! never executes anything, and costs time and memory in proportion to its size.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod build;
mod calls;
mod changes;
mod check;
mod commits;
mod content;
mod error;
mod facts;
mod history;
mod inodes;
mod inward;
mod keys;
mod names;
mod outward;
mod overlay;
mod plan;
pub mod schema;
mod skipped;
mod source;
mod steps;
mod sums;
mod survey;
mod taken;
mod target;
mod timelines;
mod walk;
mod write;

pub use error::{Error, Result};
pub use inward::{ImportRequest, Imported, import};
pub use outward::{ExportReport, ExportRequest, export};
pub use skipped::Skipped;
pub use sums::Compared;
