//! Files of the machine that ssh refuses in a sandbox, because of their owner.
//!
//! ssh reads a file that its configuration includes only if root or the caller owns it. In the user namespace of an ordinary
//! user only the caller's id is mapped, so that root's files belong to nobody, and every use of ssh fails with "Bad owner or
//! permissions". The sandbox therefore shows them as files of the user's with the same bytes, read-only. Environment
//! variables cannot do that: `GIT_SSH_COMMAND` helps git alone, and overrides what the user set as `core.sshCommand`.
//!
//! Invariant: nothing is shown that the user cannot read outside, and nothing whose place a run covers in another way.

use agentvfs_client::glob;
use agentvfs_sandbox::{PathRule, What};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The machine's configuration; what it includes by a relative path is beside it (ssh_config(5)).
const CONFIGURATION: &str = "/etc/ssh/ssh_config";
/// How deep includes may be, as ssh has it.
const DEPTH_MAX: usize = 16;
/// Files that are read in all.
const FILES_MAX: usize = 256;
/// Names of one directory that a pattern is compared with.
const NAMES_MAX: usize = 4096;
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Root's files that ssh includes, as the user's own. None for root, to whom every id is itself.
pub fn places(covered: &[PathRule]) -> Vec<PathRule> {
    if rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let covers = |place: &&PathRule| place.what != What::Shown;
    let covered: Vec<&PathRule> = covered.iter().filter(covers).collect();
    let is_free = |path: &Path| !covered.iter().any(|place| path.starts_with(&place.at));
    let all = included(Path::new(CONFIGURATION)).into_iter();
    let free = all.filter(|(path, file)| file.is_roots && is_free(path));
    free.map(|(at, file)| PathRule {
        at,
        what: What::Text(file.text),
    })
    .collect()
}

/// A file that is included.
#[derive(Debug, PartialEq, Eq)]
struct Included {
    is_roots: bool,
    text: Vec<u8>,
}

/// All files that a configuration includes, by their paths without links. What cannot be read is left out: ssh cannot read
/// it either.
fn included(configuration: &Path) -> BTreeMap<PathBuf, Included> {
    let mut found = BTreeMap::new();
    let (Some(dir), Some(first)) = (configuration.parent(), read(configuration)) else {
        return found;
    };
    let mut level = vec![first.text];
    for _ in 0..DEPTH_MAX {
        let patterns = level.iter().flat_map(|text| includes(text));
        let paths: Vec<PathBuf> = patterns.flat_map(|one| fitting(&dir.join(one))).collect();
        level = Vec::new();
        for path in paths {
            let Ok(real) = path.canonicalize() else {
                continue;
            };
            if found.len() >= FILES_MAX || found.contains_key(&real) {
                continue;
            }
            if let Some(file) = read(&real) {
                level.push(file.text.clone());
                found.insert(real, file);
            }
        }
    }
    found
}

/// A regular file of a sensible size.
fn read(path: &Path) -> Option<Included> {
    let meta = path.metadata().ok().filter(|meta| meta.is_file())?;
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= FILE_BYTES_MAX).then_some(Included {
        is_roots: meta.uid() == 0,
        text,
    })
}

/// The patterns that a configuration includes.
fn includes(text: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(text);
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let end = line.find(|c: char| c.is_whitespace() || c == '=');
        let Some((word, rest)) = end.and_then(|end| line.split_at_checked(end)) else {
            continue;
        };
        if word.eq_ignore_ascii_case("include") {
            let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '=');
            all.extend(words(rest).into_iter().map(PathBuf::from));
        }
    }
    all
}

/// Words, which quotes keep together, up to a comment.
fn words(rest: &str) -> Vec<String> {
    let mut all = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    for c in rest.chars() {
        match (c, quote) {
            (c, Some(end)) if c == end => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => all.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word);
    all
}

/// What is there whose path fits a pattern, of which each component is one.
fn fitting(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) if is_pattern(name.as_bytes()) => name.as_bytes(),
            other => {
                found.iter_mut().for_each(|path| path.push(other));
                continue;
            }
        };
        let below = |dir: &PathBuf| -> Vec<PathBuf> {
            let entries = dir.read_dir().into_iter().flatten().take(NAMES_MAX);
            let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
            // As glob(3): a name that begins with a dot has to be named.
            let is_shown = |own: &[u8]| name.starts_with(b".") || !own.starts_with(b".");
            let fits =
                names.filter(|own| is_shown(own.as_bytes()) && glob::matches(name, own.as_bytes()));
            fits.map(|own| dir.join(own)).collect()
        };
        found = found.iter().flat_map(below).take(FILES_MAX).collect();
    }
    found
}

fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn includes_are_found_as_ssh_reads_them() {
        let text = b"# Include no\nInclude a \"b c\" # d\n\tinclude=/x/*.conf\nIncludes e\nHost Include\nInclude\n";
        let wanted = ["a", "b c", "/x/*.conf"].map(PathBuf::from);
        assert_eq!(includes(text), wanted);
    }

    #[test]
    fn files_are_followed_through_patterns_links_and_includes() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["conf.d", "real"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(top.join(name), text).unwrap();
        write("config", "Include conf.d/*.conf\nInclude missing\n");
        write("conf.d/1.conf", "Include real/inner\nInclude config\n");
        write("conf.d/.2.conf", "");
        write("conf.d/readme", "");
        write("real/inner", "Port 1\n");
        write("real/linked", "Port 2\n");
        std::os::unix::fs::symlink("../real/linked", top.join("conf.d/3.conf")).unwrap();
        let found = included(&top.join("config"));
        let names: Vec<&Path> = found
            .keys()
            .map(|path| path.strip_prefix(&top).unwrap())
            .collect();
        let wanted = ["conf.d/1.conf", "config", "real/inner", "real/linked"];
        assert_eq!(names, wanted.map(Path::new));
        assert_eq!(found[&top.join("real/inner")].text, b"Port 1\n");
        assert!(included(&top.join("missing")).is_empty());
    }

    #[test]
    fn a_file_that_is_too_large_and_a_directory_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config"), "Include *\n").unwrap();
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let found = included(&dir.path().join("config"));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
