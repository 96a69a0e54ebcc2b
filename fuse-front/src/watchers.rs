//! Whether any process watches a mount with inotify or fanotify, read from /proc (proc(5), fdinfo).
//!
//! Processes that may not be looked into count as not watching.

use std::ffi::OsStr;
use std::path::Path;

/// True if device `dev` is watched, or may be.
pub(crate) fn watched(dev: (u32, u32)) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    let is_process = |name: &OsStr| {
        name.as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit)
    };
    processes
        .flatten()
        .filter(|entry| is_process(&entry.file_name()))
        .any(|entry| watches(&entry.path(), dev))
}

/// True if the process has a descriptor that watches the device.
fn watches(process: &Path, dev: (u32, u32)) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    let own = std::process::id().to_string();
    let is_own = process.file_name() == Some(OsStr::new(&own));
    descriptors.flatten().any(|entry| {
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        match link.as_os_str().as_encoded_bytes() {
            // Marks of whole mounts do not name a device. What the daemon hears itself is told otherwise.
            b"anon_inode:[fanotify]" => !is_own,
            b"anon_inode:inotify" => {
                let info = process.join("fdinfo").join(entry.file_name());
                let info = std::fs::read_to_string(info).unwrap_or_default();
                info.lines().any(|line| device(line) == Some(dev))
            }
            _ => false,
        }
    })
}

/// The device of a watch: `inotify wd:1 ino:2 sdev:3d …`, where sdev is major << 20 | minor.
fn device(line: &str) -> Option<(u32, u32)> {
    let field = line
        .split(' ')
        .find_map(|field| field.strip_prefix("sdev:"))?;
    let dev = u32::from_str_radix(field, 16).ok()?;
    Some((dev >> 20, dev & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_watch_is_found_by_its_device() {
        let dir = tempfile::tempdir().unwrap();
        let dev = std::fs::metadata(dir.path()).unwrap().dev();
        let dev = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        let me = std::path::PathBuf::from("/proc/self");
        inotify::add_watch(&watch, dir.path(), inotify::WatchFlags::MODIFY).unwrap();
        assert!(watches(&me, dev) && watched(dev));
        assert!(!watches(&me, (4000, 5)));
    }

    #[test]
    fn lines_of_fdinfo_are_understood() {
        let line = "inotify wd:1 ino:5c53a sdev:fe00001 mask:2 ignored_mask:0 fhandle-bytes:8";
        assert_eq!(device(line), Some((0xfe, 1)));
        assert_eq!(device("inotify wd:1 ino:2 sdev:3d mask:2"), Some((0, 0x3d)));
        assert_eq!(device("pos:\t0"), None);
    }
}
