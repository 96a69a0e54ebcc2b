//! Parameters and results of the methods about key-value state.

use super::types::is_not;
use super::{Bytes, Moment, Side};
use crate::quote::base64;
use serde::{Deserialize, Serialize, Serializer};

/// Length of a text on the wire, all escapes counted, from which on it goes as base64: so the longest
/// value fits a request, whatever is in it.
const TEXT_WIRE_BYTES_MAX: usize = 640 << 10;

/// A JSON value as the text that it is kept as: a text, or `{"b64": "…"}` where its quotes would make it
/// too long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Bytes")]
pub struct Json(pub Vec<u8>);

impl From<Bytes> for Json {
    fn from(bytes: Bytes) -> Json {
        Json(bytes.0)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json(text.as_bytes().to_vec())
    }
}

impl Json {
    /// The text; nothing where it is no UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let escaped = |byte: &&u8| matches!(byte, b'"' | b'\\');
        let long = self.0.len() + self.0.iter().filter(escaped).count() > TEXT_WIRE_BYTES_MAX;
        match self.text() {
            Some(text) if !long => text.serialize(serializer),
            _ => serde_json::json!({ "b64": base64(&self.0) }).serialize(serializer),
        }
    }
}

/// Parameters of `kv.set`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvSet {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The key.
    pub key: String,
    /// The value.
    pub value: Json,
    /// Answer before it is on stable storage.
    #[serde(default, skip_serializing_if = "is_not")]
    pub unsynced: bool,
}

/// Parameters of `kv.get`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvGet {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Which state.
    #[serde(default = "live")]
    pub state: Side,
    /// The key.
    pub key: String,
}

/// Parameters of `kv.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvList {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Which state.
    #[serde(default = "live")]
    pub state: Side,
    /// What the keys begin with.
    #[serde(default)]
    pub prefix: String,
    /// Only keys behind this one.
    #[serde(default)]
    pub after: Option<String>,
}

/// Parameters of `kv.delete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvDelete {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The key.
    pub key: String,
    /// Answer before that is on stable storage.
    #[serde(default, skip_serializing_if = "is_not")]
    pub unsynced: bool,
}

/// A key and what it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvRow {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Json,
    /// When it was set first.
    pub created: Moment,
    /// When it was set last.
    pub updated: Moment,
}

/// Answer of `kv.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvListAnswer {
    /// The keys, sorted by their bytes.
    pub entries: Vec<KvRow>,
    /// There are more behind the last one.
    pub more: bool,
}

/// Answer of `kv.delete`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvDeleteAnswer {
    /// It was there.
    pub deleted: bool,
}

fn live() -> Side {
    Side::Live
}
