//! Parameters and results of the methods that turn workspaces into files and back.

use super::Bytes;
use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `workspace.export`.
    pub struct ExportFile {
        /// The workspace's name.
        pub workspace: String,
        /// The branch.
        pub branch: String,
        /// What to export of it; `null`: what it shows now.
        #[serde(default)]
        pub reference: Option<String>,
        /// File to write, absolute.
        pub file: Bytes,
        /// Replace a file that is there.
        #[serde(default)]
        pub force: bool,
        /// All commits of the branch, with what they changed.
        #[serde(default)]
        pub history: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `workspace.export`.
    pub struct ExportAnswer {
        /// The commit.
        pub commit: String,
        /// Its root directory; `null` where that is empty.
        pub tree: Option<String>,
        /// Names, of files, directories and all else.
        pub names: u64,
        /// Bytes of all files.
        pub bytes: u64,
        /// Names and targets of links that are not UTF-8 and are shown otherwise in AgentFS's tables.
        pub renamed: u64,
        /// Commits whose changes are in it.
        pub commits: u64,
        /// Bytes of the database.
        pub file_bytes: u64,
    }

    /// Parameters of `workspace.import`.
    pub struct ImportFile {
        /// Name of the workspace that is made, or that gets a branch.
        pub workspace: String,
        /// Name of the branch that is made; `null`: a workspace is made.
        #[serde(default)]
        pub branch: Option<String>,
        /// The database, absolute.
        pub file: Bytes,
        /// Directory that an overlay database was made on, absolute.
        #[serde(default)]
        pub base: Option<Bytes>,
        /// Take what is missing of files as holes.
        #[serde(default)]
        pub sparse: bool,
        /// Leave out keys and calls that cannot be taken over.
        #[serde(default)]
        pub skip_invalid: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `workspace.import`.
    pub struct ImportAnswer {
        /// The branch.
        pub branch: String,
        /// Its commit.
        pub commit: String,
        /// Its root directory; `null` where that is empty.
        pub tree: Option<String>,
        /// Names, of files, directories and all else.
        pub names: u64,
        /// Bytes of all files.
        pub bytes: u64,
        /// `as-exported`, `changed`, or `unknown` where the database does not say how all of it was.
        pub content: String,
        /// Parts that are not as they were exported: `files`, `root`, `keys`, `calls`, `origin`.
        pub changed: Vec<String>,
        /// Parts of which the database does not say how they were exported.
        pub unchecked: Vec<String>,
        /// What was left out.
        pub skipped: SkippedParts,
    }

    /// What an import left out.
    pub struct SkippedParts {
        /// How many keys.
        pub keys_count: u64,
        /// The first of them, and why.
        pub keys: Vec<String>,
        /// How many calls.
        pub calls_count: u64,
        /// The first of them, and why.
        pub calls: Vec<String>,
    }
}
