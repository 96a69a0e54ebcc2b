//! An exact picture of a directory tree, and how two of them differ.
//!
//! Has everything that a commit promises: names as bytes, types, contents, holes, modes, owners,
//! mtimes, extended attributes (ACLs with them), link targets, hard-link groups, devices. Access
//! times are left out; inode numbers and ctimes are kept apart, as they are stable but not committed.

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Everything about one name that a commit keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes of a file or of a link's target; 0 for others.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Of a device.
    pub device: u64,
    /// First name, in byte order, of the group of hard links that this name belongs to.
    pub group: Vec<u8>,
    /// Hash of the content or of the link's target.
    pub content: Option<String>,
    /// Where data lies in a file: first byte and end of each piece.
    pub data: Vec<(u64, u64)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What stays as it is over rollback and restart though no commit has it: inode number and ctime.
pub type Identity = (u64, i64, i64);

/// A tree by path from its root, which is the empty path.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// Identities by path.
pub type Identities = BTreeMap<Vec<u8>, Identity>;

/// Takes the picture of everything at and below `root`; nothing may change meanwhile.
pub fn of(root: &Path) -> Tree {
    let mut walk = Walk::default();
    walk.entry(root, Vec::new());
    walk.tree
}

/// The identities of everything below `root`.
pub fn identities(root: &Path) -> Identities {
    let mut walk = Walk {
        shallow: true,
        ..Walk::default()
    };
    walk.entry(root, Vec::new());
    walk.identities
}

#[derive(Default)]
struct Walk {
    tree: Tree,
    identities: Identities,
    groups: HashMap<(u64, u64), Vec<u8>>,
    shallow: bool,
}

impl Walk {
    fn entry(&mut self, place: &Path, path: Vec<u8>) {
        let stat = rustix::fs::lstat(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
        let identity = (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec as i64);
        self.identities.insert(path.clone(), identity);
        if !self.shallow {
            let entry = self.describe(place, &path, &stat);
            self.tree.insert(path.clone(), entry);
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.children(place, &path);
        }
    }

    fn children(&mut self, place: &Path, path: &[u8]) {
        let listing = std::fs::read_dir(place).unwrap();
        let mut names: Vec<Vec<u8>> = listing
            .map(|entry| entry.unwrap().file_name().into_vec())
            .collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}: a name twice", place.display());
        for name in names {
            let below = match path {
                [] => name.clone(),
                path => [path, b"/", &name].concat(),
            };
            self.entry(&place.join(OsStr::from_bytes(&name)), below);
        }
    }

    fn describe(&mut self, place: &Path, path: &[u8], stat: &Stat) -> Entry {
        let key = (stat.st_dev, stat.st_ino);
        let group = self.groups.entry(key).or_insert_with(|| path.to_vec());
        let group = group.clone();
        let kind = FileType::from_raw_mode(stat.st_mode);
        let (content, data) = match kind {
            FileType::RegularFile => file(place),
            FileType::Symlink => (Some(target(place)), Vec::new()),
            _ => (None, Vec::new()),
        };
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        Entry {
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            size: content.as_ref().map_or(0, |_| stat.st_size as u64),
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
            device: if is_device { stat.st_rdev } else { 0 },
            group,
            content,
            data,
            xattrs: xattrs(place),
        }
    }
}

fn file(place: &Path) -> (Option<String>, Vec<(u64, u64)>) {
    let mut file = File::open(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        let count = file
            .read(&mut buffer)
            .unwrap_or_else(|e| panic!("{}: {e}", place.display()));
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
    }
    (Some(hasher.finalize().to_string()), pieces(&file))
}

fn pieces(file: &File) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = 0;
    // ENXIO: no data behind `at`.
    while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
        out.push((start, end));
        at = end;
    }
    out
}

fn target(place: &Path) -> String {
    let target = std::fs::read_link(place).unwrap();
    blake3::hash(target.as_os_str().as_bytes()).to_string()
}

fn xattrs(place: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let count = rustix::fs::llistxattr(place, &mut names).unwrap_or(0);
    let names = names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let count = rustix::fs::lgetxattr(place, OsStr::from_bytes(name), &mut value[..]).unwrap();
        value[..count].to_vec()
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// How two trees differ, in words; empty where they do not.
pub fn differences(wanted: &Tree, found: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    for (path, entry) in wanted {
        match found.get(path) {
            None => out.push(format!("{}: is missing", shown(path))),
            Some(other) if other != entry => out.push(format!(
                "{}: wanted {entry:?}, found {other:?}",
                shown(path)
            )),
            Some(_) => {}
        }
    }
    let extra = found.keys().filter(|path| !wanted.contains_key(*path));
    out.extend(extra.map(|path| format!("{}: should not be there", shown(path))));
    out
}

fn shown(path: &[u8]) -> String {
    match path {
        [] => "the root".to_owned(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}

/// Fails unless both trees are the same.
#[track_caller]
pub fn same(what: &str, wanted: &Tree, found: &Tree) {
    let differences = differences(wanted, found);
    let first: Vec<&String> = differences.iter().take(10).collect();
    assert!(
        differences.is_empty(),
        "{what}: {} differences, such as {first:#?}",
        differences.len()
    );
}

/// Names that both have and that are not the same inode, or changed since.
pub fn changed_identities(before: &Identities, after: &Identities) -> Vec<String> {
    let changed = before
        .iter()
        .filter(|(path, identity)| after.get(*path).is_some_and(|now| now != *identity));
    changed.map(|(path, _)| shown(path)).collect()
}

/// Makes a sparse file: `pieces` of data at their places, holes elsewhere, `size` bytes in all.
pub fn sparse(place: &Path, size: u64, pieces: &[(u64, &[u8])]) {
    use std::os::unix::fs::FileExt;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
    let file: File = rustix::fs::open(place, flags, Mode::from_raw_mode(0o644))
        .unwrap()
        .into();
    file.set_len(size).unwrap();
    for (at, bytes) in pieces {
        file.write_all_at(bytes, *at).unwrap();
    }
}
