//! Errors of the protocol.

use super::code;
use serde::{Deserialize, Serialize};

/// An error as it is sent, and as the engine's and the daemon's errors are told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// One of [`code`].
    pub code: i32,
    /// Word for programs, such as `no-such-ref`.
    pub kind: String,
    /// What went wrong, for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Name of the errno that a file operation fails with, such as `ENOTDIR`.
    pub errno: Option<Box<str>>,
}

impl Fault {
    /// Work that failed.
    pub fn failed(kind: &str, message: impl Into<String>) -> Fault {
        Fault {
            code: code::FAILED,
            kind: kind.to_owned(),
            message: message.into(),
            hint: None,
            errno: None,
        }
    }

    /// A message that breaks the protocol.
    pub fn protocol(code: i32, message: impl Into<String>) -> Fault {
        Fault {
            code,
            ..Fault::failed("protocol", message)
        }
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the name of an errno.
    pub fn errno(mut self, name: impl Into<Box<str>>) -> Fault {
        self.errno = Some(name.into());
        self
    }
}

#[derive(Serialize, Deserialize)]
struct WireFault {
    code: i32,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<FaultData>,
}

#[derive(Default, Serialize, Deserialize)]
struct FaultData {
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno: Option<Box<str>>,
}

impl Serialize for Fault {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = Some(FaultData {
            kind: self.kind.clone(),
            hint: self.hint.clone(),
            errno: self.errno.clone(),
        });
        WireFault {
            code: self.code,
            message: self.message.clone(),
            data,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fault, D::Error> {
        let wire = WireFault::deserialize(deserializer)?;
        let data = wire.data.unwrap_or_default();
        Ok(Fault {
            code: wire.code,
            kind: data.kind,
            message: wire.message,
            hint: data.hint,
            errno: data.errno,
        })
    }
}
