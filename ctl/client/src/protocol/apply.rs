//! Parameters and results of `workspace.apply` and `workspace.update`.

use super::{Bytes, Changed, ConflictRow};
use serde::{Deserialize, Serialize};

/// Parameters of `workspace.apply` and `workspace.apply_patch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Write set-id bits, devices, capabilities and files of other owners too.
    #[serde(default)]
    pub privileged: bool,
    /// Write files that run by themselves, too, if a command in a sandbox may have written them.
    #[serde(default)]
    pub trust: bool,
    /// Send `progress` notifications.
    #[serde(default)]
    pub progress: bool,
}

/// Answer of `workspace.apply` and `workspace.apply_patch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyAnswer {
    /// `merged`, `up-to-date` or `conflicts`.
    pub status: String,
    /// What changed in the base.
    pub changes: Vec<Changed>,
    /// What could not be settled; then nothing was done.
    pub conflicts: Vec<ConflictRow>,
    /// What cannot be read in the base and was left alone, or what a patch cannot express.
    pub left_out: Vec<Bytes>,
    /// Changed files that run by themselves and that a command in a sandbox may have written.
    #[serde(default)]
    pub untrusted: Vec<Bytes>,
    /// Commit of the base as it was before.
    pub before: String,
}

/// Parameters of `workspace.update`; answered as `branch.merge` is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Commit conflicts with markers, rather than change nothing.
    #[serde(default)]
    pub keep_conflicts: bool,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// Send `progress` notifications.
    #[serde(default)]
    pub progress: bool,
}
