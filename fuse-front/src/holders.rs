//! Who keeps a mount busy: processes with their working directory, root, program, open files or
//! mappings in it, read from /proc.
//!
//! Nothing here sends a request to the mount, which may hang: files are compared by device number,
//! which the kernel knows itself (`AT_STATX_DONT_SYNC`), and the mount's number is in the kernel's
//! table. Processes that may not be looked into are left out.

use crate::table;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A process that uses a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its command line, or its short name where that is empty.
    pub command: String,
}

/// Processes, but this one, that use the mount at `path`, in order of their ids.
pub fn holders(path: &Path) -> Vec<Holder> {
    let Ok(Some(mount)) = table::top_at(&table::resolve(path)) else {
        return Vec::new();
    };
    let others = pids().into_iter().filter(|pid| *pid != std::process::id());
    others
        .filter(|pid| uses(*pid, mount.dev))
        .map(holder)
        .collect()
}

/// Numbers of the files of a device that processes have open, mapped or run, this one left out.
pub(crate) fn open_files(dev: (u32, u32)) -> HashSet<u64> {
    let mut found = HashSet::new();
    for pid in pids().into_iter().filter(|pid| *pid != std::process::id()) {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let links = entries(&process.join("fd")).into_iter();
        let links = links.chain([process.join("exe")]);
        found.extend(links.filter_map(|link| number(&link, dev)));
        each_mapped(&process.join("maps"), &mut |of, number| {
            found.extend(number.filter(|_| of == dev));
        });
    }
    found
}

/// All process ids.
fn pids() -> Vec<u32> {
    let names = entries(Path::new("/proc")).into_iter();
    let mut pids: Vec<u32> = names
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// What is in a directory; nothing if it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// True if the process uses device `dev`.
fn uses(pid: u32, dev: (u32, u32)) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let links = ["cwd", "root", "exe"].map(|link| process.join(link));
    let on_device = |path: &PathBuf| device(path) == Some(dev);
    links.iter().any(on_device)
        || entries(&process.join("fd")).iter().any(on_device)
        || maps(&process.join("maps"), dev)
}

/// Device of the file that a /proc link leads to, from what the kernel has in memory.
fn device(link: &Path) -> Option<(u32, u32)> {
    let stat = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Number of the file of device `dev` that a /proc link leads to, from what the kernel has in memory.
fn number(link: &Path, dev: (u32, u32)) -> Option<u64> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let stat = statx(CWD, link, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    ((stat.stx_dev_major, stat.stx_dev_minor) == dev).then_some(stat.stx_ino)
}

/// True if a file of device `dev` is mapped.
fn maps(path: &Path, dev: (u32, u32)) -> bool {
    let mut is_mapped = false;
    each_mapped(path, &mut |of, _| is_mapped |= of == dev);
    is_mapped
}

/// Calls `each` with the device and the number of each file that is mapped: fields four and five of each line.
fn each_mapped(path: &Path, each: &mut dyn FnMut((u32, u32), Option<u64>)) {
    let maps = std::fs::read(path).unwrap_or_default();
    for line in maps.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        if let Some(dev) = fields.next().and_then(|dev| table::parse_dev(dev, 16)) {
            let number = fields
                .next()
                .and_then(|field| std::str::from_utf8(field).ok());
            each(dev, number.and_then(|number| number.parse().ok()));
        }
    }
}

/// The process as it is shown.
fn holder(pid: u32) -> Holder {
    let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let words = read("cmdline")
        .split(|byte| *byte == 0)
        .map(text)
        .collect::<Vec<_>>()
        .join(" ");
    let command = match words.trim() {
        "" => text(&read("comm")).trim().to_owned(),
        words => words.to_owned(),
    };
    Holder { pid, command }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_the_device_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("f")).unwrap();
        let dev = device(dir.path()).unwrap();
        assert!(uses(std::process::id(), dev));
        assert!(!uses(std::process::id(), (4095, 77)));
        drop(file);
    }

    #[test]
    fn a_process_has_a_command() {
        let me = holder(std::process::id());
        assert_eq!(me.pid, std::process::id());
        assert!(!me.command.is_empty());
        assert_eq!(holders(Path::new("/nonexistent")), vec![]);
    }
}
