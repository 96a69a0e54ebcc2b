//! Parameters and results of the methods about the policy of a workspace (docs/policy.md).

use serde::{Deserialize, Serialize};

wire! {
    /// Parameters of `policy.set`.
    pub struct PolicySet {
        /// The workspace's name.
        pub workspace: String,
        /// The rules, as TOML.
        pub text: String,
    }

    /// Parameters of `policy.show`.
    pub struct PolicyOf {
        /// The workspace's name.
        pub workspace: String,
    }

    /// Answer of both: the policy that holds from now on.
    pub struct PolicyAnswer {
        /// Its version; 0 if none was ever set.
        pub version: u64,
        /// Rules that it has.
        pub rules: u64,
        /// Its text.
        pub text: String,
    }

    /// Parameters of `policy.judge_tool`.
    pub struct JudgeTool {
        /// The workspace's name.
        pub workspace: String,
        /// The branch that the agent works in.
        pub branch: String,
        /// The tool.
        pub tool: String,
        /// Texts of the input.
        pub texts: Vec<String>,
    }

    /// Answer of `policy.judge_tool`.
    pub struct JudgeToolAnswer {
        /// `allow`, `soft_watch`, `ask` or `deny`.
        pub verdict: String,
        /// The rule that says so; `None`: no rule fits.
        #[serde(default)]
        pub rule: Option<String>,
        /// What it says to the agent.
        #[serde(default)]
        pub reason: Option<String>,
    }
}

/// Bytes of the texts of one `policy.judge_tool`, at most: escapes may double them.
pub const JUDGED_BYTES_MAX: usize = 256 << 10;
