//! Who holds given files of a mount open: from `/proc`, as far as this user may look.

use agentvfs_client::protocol::{Bytes, Changed, Device, Holder};
use rustix::fs::{AtFlags, StatxFlags};
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Processes that have one of the changed files open or mapped, by process and path.
pub fn of_changed(mountpoint: &Path, changes: &[Changed]) -> Vec<Holder> {
    let wanted: HashSet<&[u8]> = changes
        .iter()
        .flat_map(|change| [Some(&change.path), change.old_path.as_ref()])
        .flatten()
        .map(|path| path.0.as_slice())
        .collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    processes()
        .into_iter()
        .flat_map(|pid| held_by(pid, mountpoint, &wanted))
        .collect()
}

/// Processes that have their working directory, root, a file open or mapped at or below `place`, which is the directory
/// `.agentvfs/branches/NAME` of a mount with this device. A sandbox has that directory at another path.
pub fn below(place: &Path, device: Option<Device>) -> Vec<u32> {
    let name: PathBuf = place
        .iter()
        .skip(place.iter().count().saturating_sub(3))
        .collect();
    let is_inside = |(link, to): &(PathBuf, PathBuf)| {
        let is_named = || to.ancestors().any(|dir| dir.ends_with(&name));
        to.starts_with(place) || device.is_some() && is_named() && device_of(link) == device
    };
    let uses = |pid: &u32| {
        let own = ["cwd", "root"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}")));
        let mut links = descriptors(*pid)
            .into_iter()
            .chain(own)
            .filter_map(followed);
        links.any(|link| is_inside(&link))
            || mapped_files(*pid)
                .iter()
                .any(|path| path.starts_with(place))
    };
    processes().into_iter().filter(uses).collect()
}

/// The device of what a link of `/proc` leads to, for which the file system is not asked.
fn device_of(link: &Path) -> Option<Device> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(rustix::fs::CWD, link, flags, StatxFlags::empty()).ok()?;
    Some(Device {
        major: found.stx_dev_major,
        minor: found.stx_dev_minor,
    })
}

/// A link with where it leads.
fn followed(link: PathBuf) -> Option<(PathBuf, PathBuf)> {
    let to = fs::read_link(&link).ok()?;
    Some((link, to))
}

fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .collect();
    pids.sort_unstable();
    pids
}

fn held_by(pid: u32, mountpoint: &Path, wanted: &HashSet<&[u8]>) -> Vec<Holder> {
    let mut paths = open_files(pid);
    paths.extend(mapped_files(pid));
    let held: BTreeSet<&[u8]> = paths
        .iter()
        .filter_map(|path| path.strip_prefix(mountpoint).ok())
        .map(|path| path.as_os_str().as_bytes())
        .filter(|path| wanted.contains(path))
        .collect();
    let holder = |path: &[u8]| Holder {
        pid,
        command: command(pid),
        path: Bytes(path.to_vec()),
    };
    held.into_iter().map(holder).collect()
}

fn open_files(pid: u32) -> Vec<PathBuf> {
    let all = descriptors(pid).into_iter().filter_map(followed);
    all.map(|(_, to)| to).collect()
}

/// The links of what a process has open.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

fn mapped_files(pid: u32) -> Vec<PathBuf> {
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else {
        return Vec::new();
    };
    maps.split(|b| *b == b'\n')
        .filter_map(mapped_path)
        .collect()
}

/// The path in a line of maps (proc(5)): what begins with the first slash.
fn mapped_path(line: &[u8]) -> Option<PathBuf> {
    let start = line.iter().position(|b| *b == b'/')?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&line[start..])))
}

/// What a process runs.
fn command(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|b| *b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if !words.is_empty() {
        return words.join(" ");
    }
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn process_with_an_open_file_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("f"), "x").unwrap();
        let file = fs::File::open(root.join("f")).unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(file))
            .spawn()
            .unwrap();
        let change = |path: &[u8]| Changed {
            status: 'M',
            path: Bytes(path.to_vec()),
            old_path: None,
            lines: None,
        };
        let found = of_changed(&root, &[change(b"f"), change(b"g")]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].pid, &found[0].path),
            (child.id(), &Bytes(b"f".to_vec()))
        );
    }

    #[test]
    fn mapped_path_is_the_end_of_the_line() {
        let line = b"7f00-7f01 r--s 00000000 00:2a 5      /m/a b";
        assert_eq!(mapped_path(line), Some("/m/a b".into()));
        assert_eq!(mapped_path(b"7f00-7f01 rw-p 0 00:00 0 [heap]"), None);
    }
}
