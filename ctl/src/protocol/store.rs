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

    /// Answer of `store.config`.
    pub struct ConfigAnswer {
        /// All settings: key and value.
        pub settings: Vec<(String, String)>,
    }
}
