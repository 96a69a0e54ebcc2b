//! How a workspace is mounted, and where its events come from.

use super::Bytes;
use super::types::is_not;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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
        /// Where events come from.
        #[serde(default, skip_serializing_if = "Telemetry::is_default")]
        pub telemetry: Telemetry,
        /// It is not mounted at all, so that only requests of the protocol reach it; `null`: as it is or was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unmounted: Option<bool>,
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

impl MountChoice {
    /// Whether it is to run without a mount.
    pub fn is_unmounted(&self) -> bool {
        self.unmounted == Some(true)
    }

    /// What is asked for of a workspace that was running as `before` says: the same, unless something else is named.
    pub fn or_as(&self, before: &MountChoice) -> MountChoice {
        let unmounted = self.unmounted.or(before.unmounted);
        let named = MountChoice {
            unmounted: None,
            ..self.clone()
        };
        let choice = match named == MountChoice::default() {
            true => before.clone(),
            false => named,
        };
        MountChoice {
            unmounted,
            ..choice
        }
    }
}

/// Where events can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Changes, as the mount carries them out. It is always there, unless none is wanted.
    Front,
    /// Opens and reads, by fanotify(7).
    Fanotify,
    /// What processes of runs execute, connect to and open, by programs in the kernel (bpf(2)).
    Ebpf,
}

impl Source {
    const ALL: [Source; 3] = [Source::Front, Source::Fanotify, Source::Ebpf];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Source::Front => "front",
            Source::Fanotify => "fanotify",
            Source::Ebpf => "ebpf",
        }
    }
}

/// Where events of a workspace are to come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Telemetry {
    /// All that can be had.
    Auto,
    /// Nowhere: nobody can follow.
    None,
    /// These, which must be there, and the front.
    Named(Vec<Source>),
}

impl Telemetry {
    /// Whether it is what a start has without asking.
    pub fn is_default(&self) -> bool {
        *self == Telemetry::default()
    }

    /// Whether a source must be there.
    pub fn needs(&self, source: Source) -> bool {
        matches!(self, Telemetry::Named(all) if all.contains(&source))
    }

    /// Whether a source is to be used if it can be.
    pub fn wants(&self, source: Source) -> bool {
        *self == Telemetry::Auto || self.needs(source)
    }
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry::Named(vec![Source::Front])
    }
}

impl FromStr for Telemetry {
    type Err = String;

    fn from_str(text: &str) -> Result<Telemetry, String> {
        let source = |word: &str| {
            let found = Source::ALL.into_iter().find(|source| source.word() == word);
            found.ok_or_else(|| {
                format!("no source is called {word:?}: auto, none, or front, fanotify and ebpf, separated by commas")
            })
        };
        match text {
            "auto" => Ok(Telemetry::Auto),
            "none" => Ok(Telemetry::None),
            _ => {
                let mut named = text.split(',').map(source).collect::<Result<Vec<_>, _>>()?;
                named.push(Source::Front);
                // In one order and once, so that equal wishes are equal.
                let is_named = |source: &Source| named.contains(source);
                Ok(Telemetry::Named(
                    Source::ALL.into_iter().filter(is_named).collect(),
                ))
            }
        }
    }
}

impl TryFrom<String> for Telemetry {
    type Error = String;

    fn try_from(text: String) -> Result<Telemetry, String> {
        text.parse()
    }
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Telemetry::Auto => f.write_str("auto"),
            Telemetry::None => f.write_str("none"),
            Telemetry::Named(all) => {
                let words: Vec<&str> = all.iter().map(|source| source.word()).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

impl From<Telemetry> for String {
    fn from(telemetry: Telemetry) -> String {
        telemetry.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_what_their_words_say() {
        for text in ["auto", "none", "front", "front,fanotify", "front,ebpf"] {
            let parsed: Telemetry = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
            let json = serde_json::to_string(&parsed).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Telemetry>(&json).unwrap(), parsed);
        }
        let parsed: Telemetry = "fanotify,front,fanotify".parse().unwrap();
        assert_eq!(parsed.to_string(), "front,fanotify");
        assert!(parsed.needs(Source::Fanotify) && !Telemetry::Auto.needs(Source::Fanotify));
        assert!(Telemetry::Auto.wants(Source::Fanotify) && !Telemetry::None.wants(Source::Front));
        for text in ["", ",", "front,", "auto,front", "Front", "ptrace"] {
            assert!(text.parse::<Telemetry>().is_err(), "{text}");
        }
        assert!(Telemetry::default().is_default());
    }
}
