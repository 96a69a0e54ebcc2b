//! Parameters and results of the methods about remotes (docs/remote.md).

use super::{Bytes, Moment};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How the service of a remote is reached: credentials and settings, by name ([`crate::access`]). They are in no log: `Debug`
/// shows the names alone.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Access(pub BTreeMap<String, String>);

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

wire! {
    /// Parameters of `remote.add`.
    pub struct RemoteAdd {
        /// The workspace's name.
        pub workspace: String,
        /// Name of the remote in the workspace.
        pub name: String,
        /// Where it is: `file:///DIR`, an absolute path, or `s3://BUCKET/PREFIX`.
        pub url: String,
        /// Name of the project in the remote; `null`: the workspace's.
        #[serde(default)]
        pub project: Option<String>,
        /// Options of the service, by name: `endpoint`, `region`.
        #[serde(default)]
        pub options: BTreeMap<String, String>,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// A remote of a workspace; answer of `remote.add`.
    pub struct RemoteRow {
        /// Its name.
        pub name: String,
        /// Where it is.
        pub url: String,
        /// Name of the project in it.
        pub project: String,
        /// Options of the service.
        pub options: BTreeMap<String, String>,
    }

    /// Parameters of `remote.list`.
    pub struct RemoteList {
        /// The workspace's name.
        pub workspace: String,
    }

    /// Answer of `remote.list`.
    pub struct RemoteListAnswer {
        /// The remotes, by name.
        pub remotes: Vec<RemoteRow>,
    }

    /// Parameters of `remote.remove`.
    pub struct RemoteRemove {
        /// The workspace's name.
        pub workspace: String,
        /// The remote.
        pub name: String,
    }
}

wire! {
    /// How a branch stands to the one of its name in a remote, as that was when it was fetched or pushed last.
    pub struct RemoteStanding {
        /// `REMOTE/BRANCH`.
        pub name: String,
        /// Commits that only the branch has, automatic ones left out.
        pub ahead: u64,
        /// Commits that only the remote has.
        pub behind: u64,
    }

    /// The remote that a lazy workspace needs, and what came from it since the workspace or the daemon was started.
    pub struct LazyStanding {
        /// Its name.
        pub remote: String,
        /// Objects that came when they were read.
        pub objects: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// Objects that were wanted and did not come.
        pub failed: u64,
        /// Why the last one did not, unless one has come since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub why: Option<String>,
        /// Objects that the remote has and the home has not; `null`: not known before the remote is used.
        #[serde(default)]
        pub remote_only_objects: Option<u64>,
        /// Bytes of these.
        #[serde(default)]
        pub remote_only_bytes: Option<u64>,
    }

    /// Parameters of `remote.push`.
    pub struct RemotePush {
        /// The workspace's name.
        pub workspace: String,
        /// The remote; `null`: `origin`, else the only one.
        #[serde(default)]
        pub remote: Option<String>,
        /// The branches; none: all.
        #[serde(default)]
        pub branches: Vec<String>,
        /// Push the labels, too.
        #[serde(default)]
        pub labels: bool,
        /// Replace what the remote has, if that is this commit: an id, or `REMOTE/BRANCH`.
        #[serde(default)]
        pub lease: Option<String>,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// What became of a branch that was to be pushed.
    pub struct PushedRow {
        /// The branch.
        pub branch: String,
        /// `new`, `pushed`, `up-to-date`, or `rejected`: then the remote was not changed.
        pub status: String,
        /// Its commit.
        pub commit: String,
        /// What the remote had before.
        pub before: Option<String>,
        /// A checkpoint was made for it.
        pub checkpoint: bool,
        /// Objects that were sent.
        pub objects: u64,
        /// Bytes of the packs that they were sent in.
        pub bytes: u64,
        /// Labels that the remote has on other commits, which were not changed there.
        pub labels_differ: Vec<String>,
    }

    /// Answer of `remote.push`.
    pub struct RemotePushAnswer {
        /// The remote.
        pub remote: String,
        /// The branches.
        pub branches: Vec<PushedRow>,
        /// Requests to the remote.
        pub requests: u64,
    }

    /// Parameters of `remote.fetch`.
    pub struct RemoteFetch {
        /// The workspace's name.
        pub workspace: String,
        /// The remote; `null`: `origin`, else the only one.
        #[serde(default)]
        pub remote: Option<String>,
        /// The branches; none: all.
        #[serde(default)]
        pub branches: Vec<String>,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// A branch of a remote that was fetched.
    pub struct FetchedRow {
        /// `REMOTE/BRANCH`.
        pub name: String,
        /// Its commit.
        pub commit: String,
        /// The commit that was known before.
        pub before: Option<String>,
        /// Who pushed it.
        pub by: String,
        /// When.
        pub time: Moment,
        /// Labels that the branch of that name has on other commits here.
        pub labels_differ: Vec<String>,
    }

    /// Answer of `remote.fetch`.
    pub struct RemoteFetchAnswer {
        /// The remote.
        pub remote: String,
        /// Its branches.
        pub branches: Vec<FetchedRow>,
        /// Objects that came.
        pub objects: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// Requests to the remote.
        pub requests: u64,
    }

    /// Parameters of `remote.clone`.
    pub struct RemoteClone {
        /// Name of the workspace that is made.
        pub workspace: String,
        /// Where the remote is, as in `remote.add`.
        pub url: String,
        /// Options of the service.
        #[serde(default)]
        pub options: BTreeMap<String, String>,
        /// Name of the project in the remote.
        pub project: String,
        /// A branch that is made, too; `null`: only `main`.
        #[serde(default)]
        pub branch: Option<String>,
        /// Bring all of it, rather than what is read when it is read.
        #[serde(default)]
        pub full: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// Answer of `remote.clone`.
    pub struct RemoteCloneAnswer {
        /// The commit that `main` begins with.
        pub commit: String,
        /// The remote's branches.
        pub branches: Vec<FetchedRow>,
        /// Objects that came.
        pub objects: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// Requests to the remote.
        pub requests: u64,
    }

    /// Parameters of `remote.prefetch`.
    pub struct RemotePrefetch {
        /// The workspace's name.
        pub workspace: String,
        /// The branch whose files are brought.
        pub branch: String,
        /// Paths from the workspace's root; none: all.
        #[serde(default)]
        pub paths: Vec<Bytes>,
        /// Bring all that the remote's branches have, with their history, in place of paths.
        #[serde(default)]
        pub all: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// Answer of `remote.prefetch`.
    pub struct RemotePrefetchAnswer {
        /// The remote.
        pub remote: String,
        /// Objects that came.
        pub objects: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// Requests to the remote.
        pub requests: u64,
    }

    /// Parameters of `remote.gc`.
    pub struct RemoteGc {
        /// The workspace's name.
        pub workspace: String,
        /// The remote; `null`: `origin`, else the only one.
        #[serde(default)]
        pub remote: Option<String>,
        /// Change nothing.
        #[serde(default)]
        pub dry_run: bool,
        /// Send progress notifications.
        #[serde(default)]
        pub progress: bool,
        /// How the service is reached.
        #[serde(default)]
        pub access: Access,
    }

    /// Answer of `remote.gc`.
    pub struct RemoteGcAnswer {
        /// The remote.
        pub remote: String,
        /// Objects that are needed, or too young.
        pub kept: u64,
        /// Objects that are not present any more.
        pub dropped: u64,
        /// Objects that are needed and were not present: the remote is damaged.
        pub missing: u64,
        /// Bytes of packs that were put again without what nobody needs.
        pub copied_bytes: u64,
        /// Files that wait for the grace period to end.
        pub condemned: u64,
        /// Files that were deleted.
        pub deleted: u64,
        /// Their bytes.
        pub deleted_bytes: u64,
    }
}
