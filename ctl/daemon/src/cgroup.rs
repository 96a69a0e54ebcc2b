//! Leaving the control group of whoever started the daemon.
//!
//! A daemon in the group of a login session or a job dies with it, and its memory counts against it.
//! So it moves into a group beside that one, where that is permitted; where it is not, it stays.

use std::fs;
use std::path::{Path, PathBuf};

/// Name of the daemon's own group.
const NAME: &str = "agentvfs";

/// Moves this process into a group of its own, if it may.
pub fn leave() {
    let Some(group) = own_group() else { return };
    let moved =
        fs::create_dir_all(&group).and_then(|()| fs::write(group.join("cgroup.procs"), "0"));
    if moved.is_err() {
        // Not permitted, which is usual; an empty group is not left behind.
        let _ = fs::remove_dir(&group);
    }
}

/// Where the daemon's group would be; `None` in the root group and without cgroup v2.
fn own_group() -> Option<PathBuf> {
    let mount = unified_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    group_beside(&mount, &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// Mount point of the cgroup v2 hierarchy, from the text of mountinfo (proc(5)).
fn unified_mount(mountinfo: &str) -> Option<PathBuf> {
    let line = mountinfo
        .lines()
        .find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// The group beside the one that the text of `/proc/self/cgroup` names.
fn group_beside(mount: &Path, cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if path.is_empty() || Path::new(path).components().any(|c| c.as_os_str() == "..") {
        return None;
    }
    Some(mount.join(path).parent()?.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_lies_beside_the_callers() {
        let beside = |text| group_beside(Path::new("/c"), text);
        assert_eq!(
            beside("0::/user.slice/s.scope\n"),
            Some("/c/user.slice/agentvfs".into())
        );
        assert_eq!(
            beside("9:name=systemd:/x\n0::/a\n"),
            Some("/c/agentvfs".into())
        );
        assert_eq!(beside("0::/\n"), None);
        assert_eq!(beside("0::/../a\n"), None);
        assert_eq!(beside(""), None);
    }

    #[test]
    fn hierarchy_is_found_in_mountinfo() {
        let text = "30 20 0:25 / /sys/fs/cgroup rw - tmpfs t rw\n\
                    31 30 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(unified_mount(text), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(unified_mount(""), None);
    }
}
