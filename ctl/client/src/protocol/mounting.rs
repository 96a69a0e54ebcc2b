//! How a workspace is mounted.

use super::Bytes;
use super::types::is_not;
use serde::{Deserialize, Serialize};

wire! {
    /// How a workspace is mounted; kept until it is stopped.
    #[derive(Default)]
    pub struct MountChoice {
        /// Other users may enter; `null`: where the daemon is root's.
        #[serde(default)]
        pub allow_other: Option<bool>,
        /// Set-id bits count.
        #[serde(default)]
        pub suid: bool,
        /// Device nodes can be opened.
        #[serde(default)]
        pub dev: bool,
        /// How much waking up may cost.
        #[serde(default)]
        pub latency: Latency,
        /// The file that events are appended to, absolute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub audit: Option<Bytes>,
        /// The kernel asks for each open of a file, so that it is an event.
        #[serde(default, skip_serializing_if = "is_not")]
        pub opens: bool,
    }

    /// A wish about latency.
    #[derive(Default, Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum Latency {
        /// Keep processors awake while requests come fast.
        #[default]
        Low,
        /// Let idle processors sleep.
        Normal,
    }
}
