//! What was written for agents: `agents.json` of the agentvfs home.
//!
//! Invariant: it is written before the file that it is about. An entry whose file is still as it was before counts as none.

use super::edit::Edited;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the file.
const NAME: &str = "agents.json";

/// What was written, by file. Only files whose paths are UTF-8 can be recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Version of this form: 1.
    version: u32,
    files: BTreeMap<String, Entry>,
    /// Directories that were made for them.
    #[serde(default)]
    dirs: BTreeSet<PathBuf>,
}

/// What was written in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The agents that it is for.
    pub agents: BTreeSet<String>,
    /// The file was not there.
    pub created: bool,
    /// Sum of the text before.
    before: String,
    /// Sum of the text afterwards.
    after: String,
    /// Events to which a hook was added.
    #[serde(default)]
    pub events: BTreeSet<String>,
    /// Keys that were added, from the root, with slashes.
    #[serde(default)]
    pub made: BTreeSet<String>,
    /// A patch from the text afterwards to the text before.
    #[serde(default)]
    pub undo: String,
}

impl Entry {
    /// What is recorded of a change.
    pub fn of(agent: &str, (before, after): (&str, &Edited), created: bool) -> Entry {
        Entry {
            agents: BTreeSet::from([agent.to_owned()]),
            created,
            before: sum(before),
            after: sum(&after.text),
            events: after.events.clone(),
            made: after.made.clone(),
            undo: after.undo.clone(),
        }
    }

    /// Whether the file is as it was left.
    pub fn is_as_left(&self, text: &str) -> bool {
        self.after == sum(text)
    }
}

fn sum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

impl Record {
    /// Reads it; empty where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is of a newer version.
    pub fn load(home: &Path) -> io::Result<Record> {
        let path = home.join(NAME);
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            text => text?,
        };
        let bad = |why: String| io::Error::other(format!("{}: {why}", path.display()));
        let record: Record = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        match record.version {
            0 | 1 => Ok(record),
            newer => Err(bad(format!(
                "version {newer} is newer than this program; use the newer agentvfs"
            ))),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// What the system says.
    pub fn save(&mut self, home: &Path) -> io::Result<()> {
        self.version = 1;
        let path = home.join(NAME);
        if self.files.is_empty() && !path.exists() {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(self)?;
        super::file::replace(&path, &text, 0o600)
    }

    /// What was written in a file that has this text now.
    pub fn of(&self, path: &Path, text: &str) -> Option<&Entry> {
        let entry = self.files.get(key(path)?)?;
        let is_undone = entry.before == sum(text) && !entry.is_as_left(text);
        (!is_undone).then_some(entry)
    }

    /// The agents that a file is for.
    pub fn users(&self, path: &Path) -> BTreeSet<String> {
        let entry = key(path).and_then(|key| self.files.get(key));
        entry.map(|entry| entry.agents.clone()).unwrap_or_default()
    }

    /// Another agent uses a file, if that was written here.
    pub fn add_user(&mut self, path: &Path, agent: &str) {
        if let Some(entry) = key(path).and_then(|key| self.files.get_mut(key)) {
            entry.agents.insert(agent.to_owned());
        }
    }

    /// An agent uses a file no longer.
    pub fn remove_user(&mut self, path: &Path, agent: &str) {
        if let Some(entry) = key(path).and_then(|key| self.files.get_mut(key)) {
            entry.agents.remove(agent);
        }
    }

    /// Remembers what is written, and the directories that are made for it.
    pub fn put(&mut self, path: &Path, entry: Entry, dirs: Vec<PathBuf>) {
        if let Some(key) = key(path) {
            self.files.insert(key.to_owned(), entry);
            self.dirs.extend(dirs);
        }
    }

    /// Forgets a file; gives the directories that were made for it and that no other one is in, the innermost first.
    pub fn forget(&mut self, path: &Path) -> Vec<PathBuf> {
        if let Some(key) = key(path) {
            self.files.remove(key);
        }
        let is_used = |dir: &PathBuf| {
            self.files
                .keys()
                .any(|file| Path::new(file).starts_with(dir))
        };
        let left: Vec<PathBuf> = self
            .dirs
            .iter()
            .rev()
            .filter(|d| !is_used(d))
            .cloned()
            .collect();
        self.dirs.retain(|dir| !left.contains(dir));
        left
    }
}

fn key(path: &Path) -> Option<&str> {
    std::str::from_utf8(path.as_os_str().as_bytes()).ok()
}
