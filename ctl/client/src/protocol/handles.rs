//! Parameters and results of the methods about open files. A handle belongs to the connection that opened it.

use super::files::{default_perm, live};
use super::{Bytes, FileNode, Side};
use serde::{Deserialize, Serialize};

/// Kind of the fault of a handle that the connection does not have: it was closed, is another connection's, or was
/// opened before the daemon ended.
pub const NO_HANDLE: &str = "no-such-handle";

/// Kind of the fault of a handle whose workspace was stopped, or whose branch was deleted.
pub const STALE_HANDLE: &str = "stale-handle";

wire! {
    /// Parameters of `fs.open`.
    pub struct OpenPath {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Which state; others than the live tree can be read alone.
        #[serde(default = "live")]
        pub state: Side,
        /// The file.
        pub path: Bytes,
        /// Make it where it does not exist.
        #[serde(default)]
        pub create: bool,
        /// With `create`: it must not exist.
        #[serde(default)]
        pub exclusive: bool,
        /// Its content goes.
        #[serde(default)]
        pub truncate: bool,
        /// Permission bits of a file that is made.
        #[serde(default = "default_perm")]
        pub perm: u32,
    }

    /// Answer of `fs.open`.
    pub struct Opened {
        /// By which the connection names the file.
        pub handle: u64,
        /// What is known of it.
        pub node: FileNode,
    }

    /// Parameters of `fs.fstat`, `fs.fsync` and `fs.close`.
    pub struct OfHandle {
        /// The open file.
        pub handle: u64,
    }

    /// Parameters of `fs.pread`.
    pub struct ReadHandle {
        /// The open file.
        pub handle: u64,
        /// Where to begin.
        pub offset: u64,
        /// How many bytes to give at most; the daemon has a limit of its own.
        #[serde(default)]
        pub length: Option<u64>,
    }

    /// Answer of `fs.pread`.
    pub struct HandleData {
        /// The data in base64, holes as zeros; empty at the end of the file.
        pub b64: String,
        /// Length of the whole file.
        pub size: u64,
    }

    /// Parameters of `fs.pwrite`.
    pub struct WriteHandle {
        /// The open file.
        pub handle: u64,
        /// Where the data goes; `null`: at the end.
        #[serde(default)]
        pub offset: Option<u64>,
        /// The data in base64.
        pub b64: String,
    }

    /// Parameters of `fs.ftruncate`.
    pub struct ResizeHandle {
        /// The open file.
        pub handle: u64,
        /// Its new length in bytes.
        pub size: u64,
    }
}
