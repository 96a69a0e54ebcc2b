//! What was written for agents: `agents.json` of the agentvfs home.
//!
//! Invariant: it is written before the file that it is about. An entry whose file is still as it was before counts as none.

use super::Part;
use super::edit::Edited;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the file.
const NAME: &str = "agents.json";

/// Version of what has nothing but hooks and Skills, and of what has the other parts, too.
const VERSIONS: [u32; 2] = [1, 2];

/// What was written, by file. Only files whose paths are UTF-8 can be recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Version of this form.
    version: u32,
    /// Hooks and Skills.
    files: BTreeMap<String, Entry>,
    /// Entries of MCP servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    mcp: BTreeMap<String, Entry>,
    /// Regions of instructions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    instructions: BTreeMap<String, Entry>,
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
    /// Names of what was added.
    #[serde(default, rename = "events")]
    pub items: BTreeSet<String>,
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
            items: after.items.clone(),
            made: after.made.clone(),
            undo: after.undo.clone(),
        }
    }

    /// Whether the file is as it was left.
    pub fn is_as_left(&self, text: &str) -> bool {
        self.after == sum(text)
    }
}

/// Names a text.
pub fn sum(text: &str) -> String {
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
            known if known <= VERSIONS[1] => Ok(record),
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
        let is_old = self.mcp.is_empty() && self.instructions.is_empty();
        self.version = VERSIONS[usize::from(!is_old)];
        let path = home.join(NAME);
        if is_old && self.files.is_empty() && !path.exists() {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(self)?;
        super::file::replace(&path, &text, 0o600)
    }

    fn all(&self, part: Part) -> &BTreeMap<String, Entry> {
        match part {
            Part::Hooks | Part::Skill => &self.files,
            Part::Mcp => &self.mcp,
            Part::Instructions => &self.instructions,
        }
    }

    fn all_mut(&mut self, part: Part) -> &mut BTreeMap<String, Entry> {
        match part {
            Part::Hooks | Part::Skill => &mut self.files,
            Part::Mcp => &mut self.mcp,
            Part::Instructions => &mut self.instructions,
        }
    }

    fn get(&self, part: Part, path: &Path) -> Option<&Entry> {
        self.all(part).get(key(path)?)
    }

    fn get_mut(&mut self, part: Part, path: &Path) -> Option<&mut Entry> {
        self.all_mut(part).get_mut(key(path)?)
    }

    /// What was written in a file that has this text now.
    pub fn of(&self, part: Part, path: &Path, text: &str) -> Option<&Entry> {
        let entry = self.get(part, path)?;
        let is_undone = entry.before == sum(text) && !entry.is_as_left(text);
        (!is_undone).then_some(entry)
    }

    /// The agents that a part of a file is for.
    pub fn users(&self, part: Part, path: &Path) -> BTreeSet<String> {
        let entry = self.get(part, path);
        entry.map(|entry| entry.agents.clone()).unwrap_or_default()
    }

    /// Another agent uses a file, if that was written here.
    pub fn add_user(&mut self, part: Part, path: &Path, agent: &str) {
        if let Some(entry) = self.get_mut(part, path) {
            entry.agents.insert(agent.to_owned());
        }
    }

    /// An agent uses a file no longer.
    pub fn remove_user(&mut self, part: Part, path: &Path, agent: &str) {
        if let Some(entry) = self.get_mut(part, path) {
            entry.agents.remove(agent);
        }
    }

    /// Remembers what is written, and the directories that are made for it.
    pub fn put(&mut self, part: Part, path: &Path, entry: Entry, dirs: Vec<PathBuf>) {
        if let Some(key) = key(path) {
            self.all_mut(part).insert(key.to_owned(), entry);
            self.dirs.extend(dirs);
        }
    }

    /// Forgets a part of a file; gives the directories that were made for it and that no other one is in, the innermost
    /// first. Whatever else of ours is in a file that was made for this part stands for that now.
    pub fn forget(&mut self, part: Part, path: &Path) -> Vec<PathBuf> {
        let forgotten = key(path).and_then(|key| self.all_mut(part).remove(key));
        if forgotten.is_some_and(|entry| entry.created) {
            let others = Part::ALL.into_iter().filter(|other| *other != part);
            let other = others
                .into_iter()
                .find(|part| self.get(*part, path).is_some());
            if let Some(entry) = other.and_then(|part| self.get_mut(part, path)) {
                entry.created = true;
            }
        }
        let is_used = |dir: &PathBuf| {
            let files = [&self.files, &self.mcp, &self.instructions];
            let mut files = files.into_iter().flat_map(BTreeMap::keys);
            files.any(|file| Path::new(file).starts_with(dir))
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
