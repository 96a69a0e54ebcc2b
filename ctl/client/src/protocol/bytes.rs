//! Paths and names on the wire: bytes that are mostly text.

use crate::quote::{base64, from_base64};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes that are mostly text (paths, names): a text where they are UTF-8, else `{"b64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Bytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WireBytes<T> {
    Text(T),
    Encoded { b64: String },
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => WireBytes::Text(text).serialize(serializer),
            Err(_) => WireBytes::<&str>::Encoded {
                b64: base64(&self.0),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        match WireBytes::<String>::deserialize(deserializer)? {
            WireBytes::Text(text) => Ok(Bytes(text.into_bytes())),
            WireBytes::Encoded { b64 } => from_base64(&b64)
                .map(Bytes)
                .ok_or_else(|| serde::de::Error::custom("b64 is not base64")),
        }
    }
}

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Bytes {
        Bytes(path.as_os_str().as_bytes().to_vec())
    }
}

impl Bytes {
    /// The bytes as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The bytes as an owned path.
    pub fn to_path(&self) -> PathBuf {
        self.path().to_owned()
    }
}
