//! Parameters and results of the methods about remotes (docs/remote.md).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

wire! {
    /// Parameters of `remote.add`.
    pub struct RemoteAdd {
        /// The workspace's name.
        pub workspace: String,
        /// Name of the remote in the workspace.
        pub name: String,
        /// Where it is: `file:///DIR`, or an absolute path.
        pub url: String,
        /// Name of the project in the remote; `null`: the workspace's.
        #[serde(default)]
        pub project: Option<String>,
        /// Options of the service, by name: `endpoint`, `region`.
        #[serde(default)]
        pub options: BTreeMap<String, String>,
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
