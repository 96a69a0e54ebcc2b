//! Histories of agentvfs workspaces in a store that several machines share.
//!
//! Owns the layout of a remote (docs/remote.md) and what is done with it: push, fetch, gc. All I/O goes through
//! one trait, [`bucket::Bucket`]: whole objects, ranges, conditional puts. Knows objects of the local store, never
//! a live tree, a mount or a user's words; opens no sockets.
//!
//! Invariant: everything that a remote answers is hostile. It is bounded before it is read and checked before it is
//! used, and no byte reaches the local store that does not hash to the id by which it was wanted.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod bucket;
pub mod chance;
pub mod clock;
mod error;
pub mod fetch;
pub mod gc;
pub mod layout;
pub mod limits;
pub mod near;
pub mod push;
mod remote;
pub mod sources;
mod walk;

pub use error::{Error, Result};
pub use objstore::ObjectStore;
pub use remote::{Found, Generation, Remote, Sizes};
