//! What must be known of a mount after the daemon that made it died: where it is, which directories
//! were made for it, and how it was mounted.
//!
//! One small file per workspace in `<home>/running/`, checksummed. It is replaced atomically but not
//! synced: a power cut takes the mounts with it. A damaged record counts as none. After a stop only
//! the fact remains that the workspace was started before; no path does.

use crate::protocol::{Bytes, MountChoice};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Version of the file.
const VERSION: u32 = 1;

/// A mount that is, or was when its daemon died.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Where it is.
    pub mountpoint: Bytes,
    /// Directories that were made for it, outermost first.
    pub made: Vec<Bytes>,
    /// How it was mounted.
    pub options: MountChoice,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    running: Option<Record>,
}

/// The records of a home.
#[derive(Debug, Clone)]
pub struct Records {
    dir: PathBuf,
}

impl Records {
    /// Those in `dir`.
    pub fn new(dir: PathBuf) -> Records {
        Records { dir }
    }

    /// The record of a mount that is or was running.
    pub fn running(&self, workspace: &str) -> Option<Record> {
        self.read(workspace)?.running
    }

    /// Whether the workspace was ever started.
    pub fn was_started(&self, workspace: &str) -> bool {
        self.read(workspace).is_some()
    }

    /// The records of all mounts that are or were running, with the workspaces' names.
    pub fn all_running(&self) -> Vec<(String, Record)> {
        let Ok(entries) = self.dir.read_dir() else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter(|name| !name.starts_with('.'))
            .filter_map(|name| Some((name.clone(), self.running(&name)?)))
            .collect()
    }

    /// Writes down that the workspace runs, or that it is stopped.
    pub fn write(&self, workspace: &str, running: Option<&Record>) -> io::Result<()> {
        let stored = Stored {
            version: VERSION,
            running: running.cloned(),
        };
        let body = serde_json::to_string(&stored)?;
        let text = format!("{}\n{body}\n", short_sum(&body));
        let temporary = self.dir.join(format!(".{workspace}.new"));
        std::fs::write(&temporary, text)?;
        std::fs::rename(&temporary, self.path(workspace))
    }

    /// Forgets a workspace. It is no error if there is nothing to forget.
    pub fn remove(&self, workspace: &str) {
        let _ = std::fs::remove_file(self.path(workspace));
    }

    fn path(&self, workspace: &str) -> PathBuf {
        self.dir.join(workspace)
    }

    fn read(&self, workspace: &str) -> Option<Stored> {
        let text = std::fs::read_to_string(self.path(workspace)).ok()?;
        let (sum, body) = text.trim_end_matches('\n').split_once('\n')?;
        if sum != short_sum(body) {
            tracing::warn!(workspace, "the record of the last mount is damaged");
            return None;
        }
        serde_json::from_str(body)
            .ok()
            .filter(|stored: &Stored| stored.version == VERSION)
    }
}

impl Record {
    /// Where the mount is.
    pub fn place(&self) -> &Path {
        self.mountpoint.path()
    }
}

fn short_sum(body: &str) -> String {
    let mut sum = checksum(body.as_bytes());
    sum.truncate(16);
    sum
}

/// The checksum of a file in the home: blake3, in hex digits.
pub fn checksum(body: &[u8]) -> String {
    blake3::hash(body).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            mountpoint: Bytes(b"/m/\xff".to_vec()),
            made: vec![Bytes(b"/m".to_vec())],
            options: MountChoice {
                suid: true,
                ..MountChoice::default()
            },
        }
    }

    #[test]
    fn record_survives_and_a_stop_leaves_no_path() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        assert!(!records.was_started("w"));
        records.write("w", Some(&record())).unwrap();
        assert_eq!(records.running("w"), Some(record()));
        assert_eq!(records.all_running(), [("w".to_owned(), record())]);
        records.write("w", None).unwrap();
        assert_eq!(records.running("w"), None);
        assert!(records.was_started("w"));
        assert_eq!(records.all_running(), []);
        records.remove("w");
        assert!(!records.was_started("w"));
    }

    #[test]
    fn damaged_record_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        records.write("w", Some(&record())).unwrap();
        let path = dir.path().join("w");
        let whole = std::fs::read(&path).unwrap();
        for i in 0..whole.len() - 1 {
            let mut bytes = whole.clone();
            bytes[i] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(records.running("w"), None, "byte {i}");
        }
    }
}
