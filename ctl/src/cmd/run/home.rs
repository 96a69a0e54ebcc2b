//! What a command may change outside the project, and in which way: agents' own directories, caches, single files.
//!
//! Which of them there are is decided here; `agentvfs_sandbox::copies` keeps and writes them back. What the user
//! named by `--allow`, `--show` or `--hide` always wins over what is done by default.

use super::user::{existing, user_home};
use crate::cli::RunArgs;
use agentvfs_client::failure::Failure;
use agentvfs_client::quote::shown;
use agentvfs_sandbox::copies::{Copies, Outside};
use agentvfs_sandbox::{PathRule, What};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories in which agents keep what they remember, and their settings.
const AGENTS: [&str; 7] = [
    ".claude",
    ".codex",
    ".gemini",
    ".cursor",
    ".config/opencode",
    ".local/share/opencode",
    ".amp",
];
/// Directories in which programs keep what they can make again, and settings.
const CACHES: [&str; 8] = [
    ".config", ".cache", ".local", ".npm", ".cargo", ".rustup", ".bun", "go/pkg",
];
/// A file of an agent, and the agent's directory.
const FILES: [(&str, &str); 1] = [(".claude.json", ".claude")];
/// Directories that every sandbox has for itself.
const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/dev", "/run"];
/// Directories in place of one that cannot be a copy as a whole.
const PARTS_MAX: usize = 128;

/// What a run shows as copies.
#[derive(Default)]
pub struct Allowed {
    /// What keeps them, if there are any.
    pub copies: Option<Copies>,
    /// Agents' directories and single files: told as writable.
    pub writable: Vec<PathBuf>,
    /// Told as copies.
    pub copied: Vec<PathBuf>,
    /// What became of what killed runs had left.
    pub left: Outside,
}

/// Adds to a run's places what is shown as a copy, which its session keeps in the directory `session`. `home` is the
/// agentvfs home.
pub fn allow(
    args: &RunArgs,
    (session, run): (&Path, &str),
    places: &mut Vec<PathRule>,
    home: &Path,
) -> Result<Allowed, Failure> {
    let chosen = Chosen::of(args, places, home)?;
    if chosen.is_empty() {
        return Ok(Allowed::default());
    }
    let failed = |e: io::Error| {
        let path = shown(session.as_os_str().as_bytes());
        Failure::new("cannot keep copies for the session", format!("{path}: {e}"))
            .hint("agentvfs run --no-default-allows runs without copies")
    };
    let (mut copies, left) = Copies::take(session, run).map_err(failed)?;
    let mut allowed = Allowed {
        writable: chosen.agents.keys().cloned().collect(),
        copied: chosen.told.clone(),
        copies: None,
        left,
    };
    for (at, files) in &chosen.agents {
        places.push(copies.agent(at, files).map_err(failed)?);
    }
    for (at, files) in &chosen.caches {
        places.push(copies.cache(at, files).map_err(failed)?);
    }
    let mut named = chosen.named();
    for (at, files) in &chosen.names {
        if let Some(place) = copies.names(at, files).map_err(failed)? {
            places.push(place);
            named.extend(files.iter().map(|file| at.join(file)));
        }
    }
    // What is mounted on cannot be renamed over.
    places.retain(|place| !(place.what == What::Writable && named.contains(&place.at)));
    allowed.writable.extend(named);
    places.sort_by(|a, b| a.at.cmp(&b.at));
    copies.begin().map_err(failed)?;
    allowed.copies = Some(copies);
    Ok(allowed)
}

/// Directories, each with the files in it that are written back in any case.
type Listed = BTreeMap<PathBuf, Vec<PathBuf>>;

/// What is to be shown as copies.
#[derive(Debug, Default)]
struct Chosen {
    agents: Listed,
    caches: Listed,
    names: Listed,
    /// Caches as they are told.
    told: Vec<PathBuf>,
}

impl Chosen {
    fn of(args: &RunArgs, places: &[PathRule], home: &Path) -> Result<Chosen, Failure> {
        let mut chosen = Chosen::default();
        let user = user_home().filter(|_| !args.no_default_allows);
        let user = user.filter(|user| !PRIVATE.iter().any(|dir| user.starts_with(dir)));
        if let Some(user) = &user {
            chosen.add_defaults(user, places, home);
        }
        let mut files = Vec::new();
        for path in &args.allow {
            let real = existing(path)?;
            if real.is_file() && !PRIVATE.iter().any(|dir| real.starts_with(dir)) {
                files.push(real);
            }
        }
        for (file, of) in FILES {
            let Some(user) = &user else { continue };
            let path = user.join(file);
            let is_link = path.symlink_metadata().is_ok_and(|meta| !meta.is_file());
            if !is_link && (path.exists() || user.join(of).is_dir()) && is_open(&path, places) {
                files.push(path);
            }
        }
        for file in files {
            chosen.add_file(&file, places);
        }
        Ok(chosen)
    }

    /// The files in directories that are written back in any case.
    fn named(&self) -> Vec<PathBuf> {
        let paths = |(at, files): (&PathBuf, &Vec<PathBuf>)| -> Vec<PathBuf> {
            files.iter().map(|file| at.join(file)).collect()
        };
        self.agents
            .iter()
            .chain(&self.caches)
            .flat_map(paths)
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.agents.is_empty() && self.caches.is_empty() && self.names.is_empty()
    }

    fn add_defaults(&mut self, user: &Path, places: &[PathRule], home: &Path) {
        let there = |name: &str| {
            let path = user.join(name);
            path.symlink_metadata().ok()?;
            let real = path.canonicalize().ok()?;
            (real.is_dir() && is_open(&real, places)).then_some(real)
        };
        for agent in AGENTS.iter().filter_map(|name| there(name)) {
            if !home.starts_with(&agent) {
                self.agents.insert(agent, Vec::new());
            }
        }
        for cache in CACHES.iter().filter_map(|name| there(name)) {
            let mut parts = Vec::new();
            apart(&cache, home, &mut parts);
            for part in parts {
                if !self.agents.contains_key(&part) && is_open(&part, places) {
                    self.caches.insert(part, Vec::new());
                }
            }
            self.told.push(cache);
        }
    }

    /// A single file: in a directory that is a copy anyway, or among names.
    fn add_file(&mut self, file: &Path, places: &[PathRule]) {
        let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else {
            return;
        };
        let around = |listed: &Listed| {
            let around = listed.keys().filter(|at| file.starts_with(at));
            around.max_by_key(|at| at.components().count()).cloned()
        };
        let (agent, cache) = (around(&self.agents), around(&self.caches));
        // An agent's directory may lie in a cache.
        let copy = match agent {
            Some(agent) => self.agents.get_mut(&agent).map(|list| (agent, list)),
            None => cache.and_then(|at| self.caches.get_mut(&at).map(|list| (at, list))),
        };
        if let Some((at, list)) = copy {
            list.extend(file.strip_prefix(&at).map(Path::to_owned));
            return;
        }
        let covered = |place: &PathRule| match place.what {
            What::Names { .. } | What::Shown => false,
            _ => parent.starts_with(&place.at),
        };
        if parent == Path::new("/") || places.iter().any(covered) {
            return;
        }
        let list = self.names.entry(parent.to_owned()).or_default();
        list.push(name.into());
    }
}

/// Whether nothing was said about a path, and about what is around it.
fn is_open(path: &Path, places: &[PathRule]) -> bool {
    !places.iter().any(|place| path.starts_with(&place.at))
}

/// Directories that together are `dir` but for the agentvfs home in it, which no overlay may have below it.
fn apart(dir: &Path, home: &Path, parts: &mut Vec<PathBuf>) {
    if dir == home || parts.len() >= PARTS_MAX {
        return;
    }
    if !home.starts_with(dir) {
        parts.push(dir.to_owned());
        return;
    }
    // What cannot be read is not copied.
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            apart(&entry.path(), home, parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: &Path, what: What) -> PathRule {
        PathRule {
            at: at.to_owned(),
            what,
        }
    }

    #[test]
    fn a_directory_around_the_home_is_copied_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let local = dir.path().join(".local");
        for path in ["bin", "share/agentvfs/mnt", "share/fish", "state"] {
            std::fs::create_dir_all(local.join(path)).unwrap();
        }
        let mut parts = Vec::new();
        apart(&local, &local.join("share/agentvfs"), &mut parts);
        parts.sort();
        let wanted = ["bin", "share/fish", "state"].map(|path| local.join(path));
        assert_eq!(parts, wanted);
    }

    #[test]
    fn what_the_user_said_wins() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path();
        for name in [".claude", ".cache", ".npm", ".config/opencode"] {
            std::fs::create_dir_all(user.join(name)).unwrap();
        }
        let home = Path::new("/nowhere");
        let mut all = Chosen::default();
        all.add_defaults(user, &[], home);
        assert_eq!((all.agents.len(), all.caches.len()), (2, 3), "{all:?}");
        let said = [
            place(&user.join(".claude"), What::Writable),
            place(&user.join(".cache"), What::Hidden),
        ];
        let mut some = Chosen::default();
        some.add_defaults(user, &said, home);
        assert_eq!((some.agents.len(), some.caches.len()), (1, 2), "{some:?}");
        let mut none = Chosen::default();
        none.add_defaults(user, &[place(user, What::Writable)], home);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_file_is_written_back_from_the_copy_that_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path();
        for name in [".config/opencode", "plain"] {
            std::fs::create_dir_all(user.join(name)).unwrap();
        }
        let mut chosen = Chosen::default();
        chosen.add_defaults(user, &[], Path::new("/nowhere"));
        for file in [".config/a", ".config/opencode/b", "plain/c"] {
            chosen.add_file(
                &user.join(file),
                &[place(&user.join("plain/c"), What::Writable)],
            );
        }
        assert_eq!(chosen.caches[&user.join(".config")], [Path::new("a")]);
        assert_eq!(
            chosen.agents[&user.join(".config/opencode")],
            [Path::new("b")]
        );
        assert_eq!(chosen.names[&user.join("plain")], [Path::new("c")]);
    }
}
