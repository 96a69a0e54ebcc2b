//! The kernel's table of mounts, `/proc/self/mountinfo` (proc(5)): reading it never touches a mount,
//! so it works also where a mount is dead or hangs.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const TABLE: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountEntry {
    /// Its number, which another mount may get once it is gone.
    id: u32,
    /// Number of the mount that its mount point lies in.
    parent: u32,
    /// Device: major and minor number, as `stat` gives them for files in it.
    pub(crate) dev: (u32, u32),
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// Nothing may be written through this mount, whatever the file system allows.
    read_only: bool,
    /// The file system's type.
    kind: Vec<u8>,
}

/// The mount that shows at `mountpoint`: of those mounted there, the one that no other lies on. The table's
/// order does not tell, since a mount can be put beneath an older one.
pub(crate) fn top_at(mountpoint: &Path) -> std::io::Result<Option<MountEntry>> {
    Ok(top_of(&read()?, mountpoint).cloned())
}

fn top_of<'a>(table: &'a [MountEntry], mountpoint: &Path) -> Option<&'a MountEntry> {
    let here = || table.iter().filter(|entry| entry.mountpoint == mountpoint);
    here().rfind(|entry| here().all(|other| other.parent != entry.id))
}

/// How many FUSE mounts lie over each other at `mountpoint`.
pub(crate) fn fuse_mounts_at(mountpoint: &Path) -> std::io::Result<usize> {
    let at = |entry: &MountEntry| entry.mountpoint == mountpoint && entry.kind.starts_with(b"fuse");
    Ok(read()?.iter().filter(|entry| at(entry)).count())
}

/// True if something is mounted below `dir`, or over it other than a cover (see [`is_covered`]).
pub(crate) fn is_used_at_or_below(dir: &Path) -> std::io::Result<bool> {
    let table = read()?;
    let used = |entry: &MountEntry| {
        entry.mountpoint.starts_with(dir) && !(entry.mountpoint == dir && is_cover(&table, entry))
    };
    Ok(table.iter().any(used))
}

/// True if `dir` is shown through a read-only mount of itself, be it under other mounts.
pub(crate) fn is_covered(dir: &Path) -> std::io::Result<bool> {
    let table = read()?;
    let cover = |entry: &MountEntry| entry.mountpoint == dir && is_cover(&table, entry);
    Ok(table.iter().any(cover))
}

/// A cover is read-only and shows the file system that it lies in.
fn is_cover(table: &[MountEntry], entry: &MountEntry) -> bool {
    let parent = table.iter().find(|other| other.id == entry.parent);
    entry.read_only && parent.is_some_and(|parent| parent.dev == entry.dev)
}

/// The mount point that `path` names, absolute and without symbolic links on the way to it. The mount
/// itself is not touched.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let resolved = absolute.parent().zip(absolute.file_name());
    let resolved = resolved.and_then(|(dir, name)| Some(dir.canonicalize().ok()?.join(name)));
    resolved.unwrap_or(absolute)
}

/// True if device `dev` is mounted at `mountpoint`, be it under another mount.
pub(crate) fn is_mounted(mountpoint: &Path, dev: (u32, u32)) -> bool {
    let entries = read().unwrap_or_default();
    entries
        .iter()
        .any(|entry| entry.dev == dev && entry.mountpoint == mountpoint)
}

/// Whether a device is mounted at a place, looked up only when the kernel says that its table changed:
/// writing and reading the table takes longer than a small checkpoint.
pub(crate) struct Watch {
    mountpoint: PathBuf,
    dev: (u32, u32),
    /// The table; polling it tells of a change once. `None` where it cannot be opened.
    table: Option<File>,
    mounted: bool,
}

impl Watch {
    /// Watches device `dev` at `mountpoint`.
    pub(crate) fn new(mountpoint: PathBuf, dev: (u32, u32)) -> Watch {
        let table = File::open(TABLE).ok();
        let mounted = is_mounted(&mountpoint, dev);
        Watch {
            mountpoint,
            dev,
            table,
            mounted,
        }
    }

    /// As [`is_mounted`].
    pub(crate) fn is_mounted(&mut self) -> bool {
        // Polled before it is read: a change meanwhile is told at the next call.
        if self.has_changed() {
            self.mounted = is_mounted(&self.mountpoint, self.dev);
        }
        self.mounted
    }

    fn has_changed(&self) -> bool {
        let Some(table) = &self.table else {
            return true;
        };
        let mut polled = [PollFd::new(table, PollFlags::PRI)];
        let at_once = Timespec::default();
        poll(&mut polled, Some(&at_once)).is_err()
            || polled[0]
                .revents()
                .intersects(PollFlags::PRI | PollFlags::ERR)
    }
}

/// All mounts of this process's namespace.
fn read() -> std::io::Result<Vec<MountEntry>> {
    let table = std::fs::read(TABLE)?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// One line: id, parent, major:minor, root, mount point, options, further fields, `-`, type, …
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
    let dev = parse_dev(fields.next()?, 10)?;
    let mountpoint = OsString::from_vec(unescape(fields.nth(1)?));
    let mut options = fields.next()?.split(|byte| *byte == b',');
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountEntry {
        id,
        parent,
        dev,
        mountpoint: PathBuf::from(mountpoint),
        read_only: options.any(|option| option == b"ro"),
        kind: kind.to_vec(),
    })
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `major:minor` in base `radix`.
pub(crate) fn parse_dev(text: &[u8], radix: u32) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some((
        u32::from_str_radix(major, radix).ok()?,
        u32::from_str_radix(minor, radix).ok()?,
    ))
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash in its tables.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                plain.push(byte);
                rest = &rest[4..];
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

/// The byte that `text` begins with in the form `\ooo`.
fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\")?.get(..3)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = br"36 35 0:51 / /mnt/a\040b rw,nosuid - fuse.agentvfs demo rw";
        let entry = parse(line).unwrap();
        assert_eq!(
            entry,
            MountEntry {
                id: 36,
                parent: 35,
                dev: (0, 51),
                mountpoint: PathBuf::from("/mnt/a b"),
                read_only: false,
                kind: b"fuse.agentvfs".to_vec(),
            }
        );
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 x"), None);
    }

    fn table(lines: &[&str]) -> Vec<MountEntry> {
        lines
            .iter()
            .filter_map(|line| parse(line.as_bytes()))
            .collect()
    }

    #[test]
    fn the_top_is_what_nothing_lies_on_whatever_the_order() {
        // The older mount lies on the newer one, which was put beneath it.
        let table = table(&[
            "42 43 0:39 / /m rw - fuse.agentvfs a rw",
            "43 27 0:40 / /m rw - fuse.agentvfs b rw",
        ]);
        assert_eq!(top_of(&table, Path::new("/m")).unwrap().id, 42);
        assert_eq!(top_of(&table, Path::new("/n")), None);
    }

    #[test]
    fn a_cover_is_a_read_only_mount_of_what_it_lies_in() {
        let table = table(&[
            "27 1 254:0 / / rw - ext4 /dev/vda rw",
            "30 27 254:0 /h/mnt /h/mnt ro - ext4 /dev/vda rw",
            "31 27 254:0 /x /h/bind rw - ext4 /dev/vda rw",
            "32 27 7:0 / /h/cd ro - iso9660 /dev/sr0 ro",
        ]);
        let covers: Vec<bool> = table.iter().map(|entry| is_cover(&table, entry)).collect();
        assert_eq!(covers, [false, true, false, false]);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(br"a\134b\0"), br"a\b\0");
    }

    #[test]
    fn links_on_the_way_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        assert_eq!(resolve(&dir.path().join("link/mnt")), real.join("mnt"));
        assert_eq!(resolve(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn the_root_is_mounted() {
        let root = top_at(Path::new("/")).unwrap().unwrap();
        assert!(is_mounted(Path::new("/"), root.dev));
        let mut watch = Watch::new(PathBuf::from("/"), root.dev);
        assert!(watch.is_mounted() && watch.is_mounted());
        let mut other = Watch::new(PathBuf::from("/nowhere"), root.dev);
        assert!(!other.is_mounted() && !other.is_mounted());
        assert_eq!(parse_dev(b"fe:01", 16), Some((0xfe, 1)));
    }
}
