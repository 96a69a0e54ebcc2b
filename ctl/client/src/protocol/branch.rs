//! Parameters and results of the methods about branches.

use super::types::is_not;
use super::{Bytes, Changed, Moment};
use serde::{Deserialize, Serialize};

/// The branch that every workspace has.
pub const MAIN: &str = "main";

/// What the path of a key in conflict begins with; no file has such a path.
pub const KV_CONFLICTS: &[u8] = b".agentvfs/kv/";

wire! {
    /// Parameters of `branch.create`.
    pub struct BranchCreate {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that it is made of.
        pub branch: String,
        /// Name of the new branch.
        pub name: String,
        /// A ref to make it of; `null`: the files as they are.
        #[serde(default)]
        pub from: Option<String>,
    }

    /// Parameters of `branch.list`.
    pub struct BranchList {
        /// The workspace's name.
        pub workspace: String,
        /// Say also how the branches stand to each other.
        #[serde(default, skip_serializing_if = "is_not")]
        pub standing: bool,
    }

    /// A branch.
    pub struct BranchRow {
        /// Its name.
        pub name: String,
        /// Its head.
        pub commit: Option<String>,
        /// Where it is in the mount.
        pub path: Bytes,
        /// When it was made; of `main`: 1970.
        pub created: Moment,
        /// How it stands to the branch that it was made of, where that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub standing: Option<BranchStanding>,
    }

    /// How a branch stands to the one that it was made of.
    pub struct BranchStanding {
        /// That one; `null` for `main`. If it was deleted: `main`.
        pub made_of: Option<String>,
        /// Commits that somebody asked for, that it has and the other has not.
        pub ahead: u64,
        /// Commits that the other has and it has not.
        pub behind: u64,
        /// When its newest state was made.
        pub changed: Moment,
        /// Conflicts of its last merge that are not resolved.
        pub conflicts: u64,
        /// So many digits of its head's id are enough to name it.
        pub digits: u32,
    }

    /// Answer of `branch.list`.
    pub struct BranchListAnswer {
        /// `main` first.
        pub branches: Vec<BranchRow>,
    }

    /// Answer of `branch.delete`.
    pub struct BranchDeleteAnswer {
        /// Commit of what it showed last.
        pub commit: String,
        /// No other branch has that commit.
        pub only_here: bool,
    }

    /// Parameters of `branch.rename`.
    pub struct BranchRename {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// Its new name.
        pub name: String,
    }

    /// Parameters of `branch.merge`.
    pub struct BranchMerge {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that is merged.
        pub from: String,
        /// The branch that is changed.
        pub into: String,
        /// Commit conflicts with markers, rather than change nothing.
        #[serde(default)]
        pub keep_conflicts: bool,
        /// Change nothing.
        #[serde(default)]
        pub dry_run: bool,
        /// Label for the commit.
        #[serde(default)]
        pub label: Option<String>,
        /// Message; empty: which branches.
        #[serde(default)]
        pub message: String,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `branch.merge`.
    pub struct BranchMergeAnswer {
        /// `merged`, `fast-forward`, `up-to-date` or `conflicts`.
        pub status: String,
        /// The commit now shown; `null` where nothing was changed.
        pub commit: Option<String>,
        /// What could not be settled.
        pub conflicts: Vec<ConflictRow>,
        /// Files that changed.
        pub files_changed: u64,
        /// With `dry_run`: what would change.
        #[serde(default)]
        pub changes: Vec<Changed>,
    }

    /// A path in conflict.
    pub struct ConflictRow {
        /// The path, relative to the workspace's root.
        pub path: Bytes,
        /// Why, such as `content`.
        pub kind: String,
    }

    /// Answer of `branch.conflicts`.
    pub struct ConflictsAnswer {
        /// By path.
        pub conflicts: Vec<ConflictRow>,
    }

    /// Parameters of `branch.resolve`.
    pub struct BranchResolve {
        /// The workspace's name.
        pub workspace: String,
        /// The branch's name.
        pub branch: String,
        /// The path in conflict.
        pub path: Bytes,
        /// By which version.
        pub by: Version,
    }

    /// Which version of a path stands.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum Version {
        /// That of the branch that was merged into.
        Ours,
        /// That of the branch that was merged.
        Theirs,
        /// That of the common ancestor.
        Base,
        /// What is there now.
        Working,
    }

    /// Answer of `branch.resolve`.
    pub struct BranchResolveAnswer {
        /// Conflicts that are left.
        pub left: u64,
        /// Files that changed.
        pub files_changed: u64,
    }

    /// Parameters of `branch.diff`.
    pub struct BranchDiff {
        /// The workspace's name.
        pub workspace: String,
        /// From this branch.
        pub from: String,
        /// To this one.
        pub to: String,
        /// Only what lies at or below these paths; empty: all.
        #[serde(default)]
        pub paths: Vec<Bytes>,
    }
}
