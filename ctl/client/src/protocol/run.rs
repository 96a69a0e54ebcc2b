//! Parameters and results of the methods about runs.

use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `run.begin`.
    pub struct RunBegin {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that the command may write in.
        pub branch: String,
        /// Names the run.
        pub run: String,
        /// The branch of which that one was made for the run, if it was.
        #[serde(default)]
        pub made_of: Option<String>,
    }

    /// Answer of `run.begin`.
    pub struct RunBeginAnswer {
        /// The branch of which the branch was made, if a run made it.
        pub made_of: Option<String>,
    }

    /// Parameters of `run.wrote_nothing`.
    pub struct RunWroteNothing {
        /// The workspace's name.
        pub workspace: String,
        /// The branch.
        pub branch: String,
        /// Names the run.
        pub run: String,
    }
}
