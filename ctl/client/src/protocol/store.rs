//! Parameters and results of the methods that concern the store as a whole.

use super::Bytes;
use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `store.config`.
    pub struct Config {
        /// Settings to change: key and value as `agentvfs config` takes them.
        #[serde(default)]
        pub set: Vec<(String, String)>,
    }

    /// Answer of `store.fsck`.
    pub struct FsckAnswer {
        /// Damage.
        pub findings: Vec<FsckFinding>,
        /// Steps of a repair.
        pub plan: Vec<String>,
        /// Steps that were carried out; none by a daemon.
        #[serde(default)]
        pub repaired: Vec<String>,
        /// Findings of a second check after a repair.
        #[serde(default)]
        pub left: Option<u64>,
        /// Records of packs that were read.
        pub records: u64,
        /// Bytes that were read.
        pub bytes: u64,
        /// Branches that were looked at.
        pub branches: u64,
        /// Commits that were looked at.
        pub commits: u64,
        /// What lazy workspaces lack.
        pub only_remote: OnlyRemote,
        /// Why it is not known what the remote of one has.
        pub unasked: Option<String>,
    }

    /// Objects that lazy workspaces lack, as far as what is here refers to them.
    pub struct OnlyRemote {
        /// How many are in their remotes.
        pub objects: u64,
        /// Bytes of these.
        pub bytes: u64,
        /// Of how many that is not known.
        pub unknown: u64,
    }

    /// One damage.
    pub struct FsckFinding {
        /// File and offset, as far as known.
        pub place: String,
        /// What is wrong.
        pub what: String,
        /// Who needs it.
        pub affects: Vec<AffectedRow>,
        /// How many more.
        pub affects_more: u64,
    }

    /// Somebody who needs what is damaged.
    pub struct AffectedRow {
        /// Workspace.
        pub workspace: String,
        /// Branch; empty where all of the workspace is meant.
        pub branch: String,
        /// Commit; `null` for the live tree and for the branch as a whole.
        pub commit: Option<String>,
        /// Its labels.
        pub labels: Vec<String>,
        /// Path; empty for all of it.
        pub path: Bytes,
    }

    /// Answer of `store.stats`.
    pub struct StatsAnswer {
        /// Bytes that the whole home takes on the disk.
        pub used_bytes: u64,
        /// Bytes that are still free there.
        pub free_bytes: u64,
        /// Bytes that the home may take.
        pub quota: Option<u64>,
        /// Packs.
        pub packs: u64,
        /// Their bytes.
        pub pack_bytes: u64,
        /// Objects in them.
        pub objects: u64,
        /// Bytes of objects that are needed.
        pub needed_bytes: u64,
        /// Bytes that nothing needs.
        pub unneeded_bytes: u64,
        /// Bytes of all journals.
        pub journal_bytes: u64,
        /// Bytes of the state files of all branches.
        pub state_bytes: u64,
        /// Bytes of all files of all live trees and commits, as copies would take them.
        pub logical_bytes: u64,
        /// Bytes of the different chunks among them.
        pub chunk_bytes: u64,
        /// Bytes that these take in packs.
        pub chunk_stored_bytes: u64,
        /// Bytes that directories, commits and manifests take in packs.
        pub meta_stored_bytes: u64,
        /// By name.
        pub workspaces: Vec<WorkspaceStats>,
        /// By extension, those that take most first.
        pub kinds: Vec<KindStats>,
    }

    /// Figures of a workspace.
    pub struct WorkspaceStats {
        /// Its name.
        pub name: String,
        /// Bytes of objects that it needs.
        pub needed_bytes: u64,
        /// Of these, bytes that no other workspace needs.
        pub own_bytes: u64,
        /// Its branches.
        pub branches: Vec<BranchStats>,
    }

    /// Figures of a branch.
    pub struct BranchStats {
        /// Its name.
        pub name: String,
        /// Files of the live tree.
        pub files: u64,
        /// Their bytes, and those of the key-value state.
        pub bytes: u64,
        /// Keys of the key-value state.
        #[serde(default)]
        pub keys: u64,
        /// Commits that somebody asked for.
        pub commits: u64,
        /// Automatic commits.
        pub automatic_commits: u64,
        /// Bytes of its journal.
        pub journal_bytes: u64,
        /// Bytes of its state files.
        pub state_bytes: u64,
    }

    /// Figures of a kind of files.
    pub struct KindStats {
        /// Extension; empty for files without, `other` for all that are not told apart.
        pub extension: String,
        /// Bytes of their different chunks.
        pub bytes: u64,
        /// Bytes that these take in packs.
        pub stored_bytes: u64,
    }

    /// Parameters of `store.gc`.
    pub struct Gc {
        /// Age in milliseconds up to which what nothing needs stays; `null`: as the settings say.
        #[serde(default)]
        pub grace_ms: Option<u64>,
        /// Change nothing.
        #[serde(default)]
        pub dry_run: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
    }

    /// Answer of `store.gc`.
    pub struct GcAnswer {
        /// Bytes that the disk got back.
        pub freed_bytes: u64,
        /// Objects that are gone.
        pub objects: u64,
        /// Packs that are gone.
        pub packs: u64,
        /// Bytes that were copied out of them.
        pub copied_bytes: u64,
        /// Bytes of all packs before.
        pub store_bytes: u64,
        /// Bytes of objects that are needed.
        pub needed_bytes: u64,
        /// Bytes that nothing needs and that stay: too young, or too few in their pack.
        pub left_bytes: u64,
        /// Packs that stay because something needed in them cannot be read.
        pub damaged_packs: u64,
        /// Of the bytes that were freed, those that lazy workspaces can fetch again.
        pub dropped_bytes: u64,
        /// Bytes that they could fetch again and that stay; counted if the store exceeds the setting `cache`.
        pub cache_bytes: u64,
        /// What lazy workspaces lack.
        pub only_remote: OnlyRemote,
        /// Why it is not known what the remote of a lazy workspace has.
        pub unasked: Option<String>,
    }

    /// Answer of `store.config`.
    pub struct ConfigAnswer {
        /// All settings: key and value.
        pub settings: Vec<(String, String)>,
    }
}
