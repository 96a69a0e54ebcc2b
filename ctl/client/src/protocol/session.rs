//! Parameters and results of the methods about sessions.

use super::Bytes;
use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `session.register`.
    pub struct SessionRegister {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that the cgroup's processes are to see.
        pub branch: String,
        /// The cgroup's directory, absolute.
        pub cgroup: Bytes,
    }

    /// Answer of `session.register`.
    pub struct SessionRegisterAnswer {
        /// What was registered.
        pub session: SessionRow,
        /// The link that leads each process to its branch.
        pub view: Bytes,
        /// The branch that the cgroup's processes saw before, where it was registered already.
        pub moved_from: Option<String>,
    }

    /// Parameters of `session.list`.
    pub struct SessionList {
        /// Only those of this workspace.
        #[serde(default)]
        pub workspace: Option<String>,
    }

    /// A registered cgroup.
    pub struct SessionRow {
        /// The cgroup's directory.
        pub cgroup: Bytes,
        /// The branch that its processes see.
        pub branch: String,
        /// The workspace that the branch is of.
        pub workspace: String,
    }

    /// Answer of `session.list` and `session.unregister`.
    pub struct SessionListAnswer {
        /// By cgroup.
        pub sessions: Vec<SessionRow>,
    }

    /// Parameters of `session.unregister`.
    pub struct SessionUnregister {
        /// The cgroup's directory, absolute; it may be gone.
        pub cgroup: Bytes,
        /// Only for this workspace.
        #[serde(default)]
        pub workspace: Option<String>,
    }
}
