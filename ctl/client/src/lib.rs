//! What a program needs to ask the daemon of agentvfs: the protocol, the connection, and where the socket lies.
//!
//! For the command line, the MCP server, and whoever else is a client. Invariant: it knows nothing of the engine,
//! of stores or of mounts; what it tells of them is what the daemon answered. It prints nothing. The environment
//! is read for the home, the workspace and the branch that are meant.
//!
//! From below: `protocol` (messages), `connection` (one socket), `launch` (with a daemon that is started where none
//! runs), `context` (with the workspace and branch that are meant). `quote`, `render`, `blame`, `when` and `units` are the
//! forms in which commands and tools show the same thing alike. `workspace` is the API for programs: start there.

#![deny(unsafe_code)]

pub mod access;
pub mod blame;
pub mod connection;
pub mod context;
pub mod failure;
pub mod files;
pub mod glob;
pub mod home;
pub mod identity;
pub mod infer;
pub mod judged;
pub mod keeper;
pub mod launch;
pub mod patharg;
pub mod protocol;
pub mod quote;
pub mod record;
pub mod render;
pub mod runs;
pub mod seen;
pub mod short;
#[allow(unsafe_code)]
pub mod sys;
pub mod units;
pub mod when;
pub mod workspace;
