//! Content-addressed store of agentvfs.
//!
//! Owns immutable bytes on disk: chunks of file content and the objects over them (manifests, trees,
//! commits) in append-only packs, the refs that name them, and the table of what was imported. Knows
//! nothing of live trees, mounts or users. All I/O goes through [`io::Storage`], so that a test can
//! run everything here on a simulated disk ([`crash_storage::CrashStorage`]).
//!
//! Invariant: no bytes are returned that do not hash to the id they were asked by.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod atomic_file;
mod behind;
mod cache;
pub mod chunker;
pub mod codec;
mod compress;
pub mod content;
pub mod crash_storage;
pub mod elsewhere;
mod error;
pub mod exchange;
pub mod file_storage;
mod frozen;
pub mod gc;
pub mod id;
pub mod import_table;
pub mod io;
pub mod limits;
pub mod lock;
pub mod object;
mod pack;
pub mod refs;
pub mod reserve;
mod store;
mod sys;
mod verify;

pub use behind::PutBehind;
pub use content::{
    FileContent, Source, data_bytes, data_from, data_ranges, each_part, next_data, next_hole,
    read_content, same_bytes, store_content, store_content_by_ranges, try_read_content,
};
pub use error::{Error, Result};
pub use frozen::Frozen;
pub use id::{ChunkId, CommitId, HexPrefix, Kind, ManifestId, ObjectId, TreeId};
pub use object::Object;
pub use object::commit::{Commit, CommitKind, TimelineHead};
pub use object::manifest::{Form, Manifest, Node, Part};
pub use object::tree::{
    Body, Edit, Meta, TreeEntry, TreeNode, diff_trees, edit_tree, name_hash, read_tree, tree_entry,
};
pub use pack::Key;
pub use store::{ObjectStore, StoreConfig, StoreStats};
pub use verify::{Damage, VerifyReport};
