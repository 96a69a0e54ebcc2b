//! Parameters and results of the methods that concern the store as a whole.

use serde::{Deserialize, Serialize};

/// Declares parameter types: what both sides encode, decode and compare.
macro_rules! wire {
    ($($item:item)*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            $item
        )*
    };
}

wire! {
    /// Parameters of `store.config`.
    pub struct Config {
        /// Settings to change: key and value as `agentvfs config` takes them.
        #[serde(default)]
        pub set: Vec<(String, String)>,
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
        /// Bytes that nothing needs and that stay for now.
        pub left_bytes: u64,
        /// Packs that stay because something needed in them cannot be read.
        pub damaged_packs: u64,
    }

    /// Answer of `store.config`.
    pub struct ConfigAnswer {
        /// All settings: key and value.
        pub settings: Vec<(String, String)>,
    }
}
