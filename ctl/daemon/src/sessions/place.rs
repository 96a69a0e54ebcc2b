//! Which control group a directory is, and in which groups a process is.
//!
//! A group is named by its hierarchy and its path there, as `/proc/PID/cgroup` shows both
//! (cgroups(7)), and known again by its directory's inode number: the path may be given anew.
//! Invariant: asking for a process's groups touches procfs and cgroup file systems alone, so whoever
//! answers requests of a mount may do it.

use agentvfs_client::protocol::{Bytes, Fault};
use fuse_front::unescape;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat, statfs};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Types of file systems of control groups (linux/magic.h).
const MAGIC: [u64; 2] = [0x0027_e0eb, 0x6367_7270];
/// Enough for the groups of most processes.
const GROUPS_BYTES: usize = 4096;
/// Where text of `/proc/PID/cgroup` is given up.
const GROUPS_BYTES_MAX: usize = 1 << 20;

/// Name of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Controllers of its hierarchy; none for that of version 2.
    pub hierarchy: String,
    /// From the hierarchy's root, which is empty.
    pub path: Bytes,
}

/// A group that was found.
#[derive(Debug, Clone)]
pub struct Located {
    /// Its directory, without symbolic links.
    pub dir: PathBuf,
    /// Its name.
    pub group: Group,
    /// Inode number of its directory.
    pub inode: u64,
    root: Arc<OwnedFd>,
    below: PathBuf,
}

impl Located {
    /// Whether it is still there.
    pub fn is_there(&self) -> bool {
        let found = statat(&self.root, &self.below, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| found.st_ino == self.inode)
    }
}

#[cfg(test)]
impl Located {
    /// A plain directory that plays a group.
    pub fn played(dir: &Path, hierarchy: &str, path: &str) -> Located {
        let root = openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let parent = openat(&root, "..", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        Located {
            dir: dir.to_owned(),
            group: Group {
                hierarchy: hierarchy.to_owned(),
                path: Bytes(path.as_bytes().to_vec()),
            },
            inode: dir.metadata().unwrap().ino(),
            root: Arc::new(parent),
            below: dir.file_name().unwrap().into(),
        }
    }
}

/// Finds the group of a directory that belongs to this user.
pub fn locate_own(dir: &Path) -> Result<Located, Fault> {
    let fault = |kind, why: &str| Fault::failed(kind, format!("{} {why}", dir.display()));
    let found = match dir.canonicalize().and_then(|dir| dir.metadata()) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(fault("no-such-cgroup", "does not exist")
                .hint("mkdir below /sys/fs/cgroup creates a cgroup"));
        }
        Err(e) => {
            return Err(fault("no-such-cgroup", &format!("cannot be read: {e}"))
                .hint("use the directory of a cgroup that you own"));
        }
    };
    let located = locate(dir).ok_or_else(|| {
        fault("not-a-cgroup", "is not the directory of a cgroup")
            .hint("cgroups are below /sys/fs/cgroup; cat /proc/PID/cgroup shows those of a process")
    })?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let why = format!("belongs to another user, {}", found.uid());
        return Err(fault("foreign-cgroup", &why).hint(
            "only the owner of a cgroup may register it; systemd-run --user --scope creates one",
        ));
    }
    Ok(located)
}

/// Finds the group of a directory; `None` where it is none.
pub fn locate(dir: &Path) -> Option<Located> {
    let dir = dir.canonicalize().ok()?;
    let kind = statfs(&dir).ok()?.f_type as u64;
    let found = dir.metadata().ok()?;
    if !MAGIC.contains(&kind) || !found.is_dir() {
        return None;
    }
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let own = std::fs::read("/proc/self/cgroup").ok()?;
    let (place, group) = group_of(&dir, &mounts, &own)?;
    let below = dir.strip_prefix(&place).ok()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let located = Located {
        below: if below.as_os_str().is_empty() {
            ".".into()
        } else {
            below.to_owned()
        },
        root: Arc::new(openat(CWD, &place, flags, Mode::empty()).ok()?),
        inode: found.ino(),
        group,
        dir,
    };
    located.is_there().then_some(located)
}

/// The group of a directory and where its hierarchy is mounted, from the texts of mountinfo (proc(5))
/// and of any process's `cgroup`, which names the hierarchies.
fn group_of(dir: &Path, mountinfo: &[u8], cgroup: &[u8]) -> Option<(PathBuf, Group)> {
    let mounts = mountinfo.split(|b| *b == b'\n').filter_map(parse_mount);
    // Of several at one place the last one is seen.
    let mount = mounts
        .filter(|mount| dir.starts_with(&mount.place))
        .max_by_key(|mount| mount.place.components().count())?;
    let hierarchy = lines(cgroup)
        .map(|(hierarchy, _)| hierarchy)
        .find(|hierarchy| mount.is_of(hierarchy))?;
    let below = dir.strip_prefix(&mount.place).ok()?;
    let mut path = without_slash(mount.root.as_os_str().as_bytes()).to_vec();
    if !below.as_os_str().is_empty() {
        path.push(b'/');
        path.extend_from_slice(below.as_os_str().as_bytes());
    }
    let hierarchy = std::str::from_utf8(hierarchy).ok()?.to_owned();
    let path = Bytes(path);
    Some((mount.place, Group { hierarchy, path }))
}

struct CgroupMount {
    root: PathBuf,
    place: PathBuf,
    /// Options of a hierarchy of version 1; `None` for version 2.
    options: Option<Vec<Vec<u8>>>,
}

impl CgroupMount {
    /// Whether it shows the hierarchy of these controllers.
    fn is_of(&self, hierarchy: &[u8]) -> bool {
        let has = |options: &Vec<Vec<u8>>, one: &[u8]| options.iter().any(|o| o == one);
        match &self.options {
            None => hierarchy.is_empty(),
            Some(options) => hierarchy.split(|b| *b == b',').all(|one| has(options, one)),
        }
    }
}

fn parse_mount(line: &[u8]) -> Option<CgroupMount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let end = fields.iter().position(|field| *field == b"-")?;
    let options = match *fields.get(end + 1)? {
        b"cgroup2" => None,
        b"cgroup" => {
            let options = fields.get(end + 3)?.split(|b| *b == b',');
            Some(options.map(<[u8]>::to_vec).collect())
        }
        _ => return None,
    };
    let as_path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    Some(CgroupMount {
        root: as_path(fields.get(3)?),
        place: as_path(fields.get(4)?),
        options,
    })
}

/// Text of `/proc/PID/cgroup`; `None` where there is no such process any more.
pub fn groups(pid: u32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/cgroup");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, path.as_str(), flags, Mode::empty()).ok()?;
    let mut text = vec![0; GROUPS_BYTES];
    let mut len = 0;
    loop {
        match rustix::io::read(&file, &mut text[len..]).ok()? {
            0 => break,
            more => len += more,
        }
        if len == text.len() {
            if len >= GROUPS_BYTES_MAX {
                return None;
            }
            text.resize(2 * len, 0);
        }
    }
    text.truncate(len);
    Some(text)
}

/// Hierarchy and path of each line of `/proc/PID/cgroup`.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.splitn(3, |b| *b == b':').skip(1);
        Some((fields.next()?, without_slash(fields.next()?)))
    })
}

/// The group's path and those of the groups that it lies in, the nearest first.
pub fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn above<'a>(path: &&'a [u8]) -> Option<&'a [u8]> {
        let end = path.iter().rposition(|b| *b == b'/')?;
        path.get(..end)
    }
    std::iter::successors(Some(path), above)
}

/// The root is empty, others begin with a slash and end without.
fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// A path of the machine, for a person.
pub fn shown(path: &Bytes) -> String {
    agentvfs_client::quote::shown(&path.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"23 1 0:5 / / rw - ext4 /dev/x rw\n\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        40 31 0:37 /job /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw shared:1 - cgroup2 cgroup2 rw\n";
    const GROUPS: &[u8] = b"3:cpu,cpuacct:/\n2:name=systemd:/job/a\n0::/user/x\n";

    fn group(dir: &str) -> Option<(String, String)> {
        let (_, group) = group_of(Path::new(dir), MOUNTS, GROUPS)?;
        Some((group.hierarchy, String::from_utf8(group.path.0).unwrap()))
    }

    #[test]
    fn directories_of_both_versions_are_named_as_processes_name_them() {
        let is = |dir, hierarchy: &str, path: &str| {
            assert_eq!(group(dir), Some((hierarchy.into(), path.into())), "{dir}");
        };
        is("/sys/fs/cgroup/uni fied/a/b", "", "/a/b");
        is("/sys/fs/cgroup/uni fied", "", "");
        is("/sys/fs/cgroup/cpu,cpuacct/a", "cpu,cpuacct", "/a");
        is("/sys/fs/cgroup/systemd/a", "name=systemd", "/job/a");
        assert_eq!(group("/sys/fs/cgroup"), None);
        assert_eq!(group("/home"), None);
    }

    #[test]
    fn lines_of_a_process_are_read_whatever_is_in_them() {
        let all: Vec<_> = lines(GROUPS).collect();
        assert_eq!(all[0], (&b"cpu,cpuacct"[..], &b""[..]));
        assert_eq!(all[2], (&b""[..], &b"/user/x"[..]));
        assert_eq!(lines(b"0::/a:b\n").next(), Some((&b""[..], &b"/a:b"[..])));
        assert_eq!(lines(b"\nx\n0:\n").count(), 0);
    }

    #[test]
    fn groups_above_come_nearest_first() {
        let all: Vec<_> = upwards(b"/a/b").collect();
        assert_eq!(all, [&b"/a/b"[..], b"/a", b""]);
        assert_eq!(upwards(b"").count(), 1);
    }

    #[test]
    fn own_process_has_groups_and_a_plain_directory_is_none() {
        let text = groups(std::process::id()).unwrap();
        assert_eq!(text, std::fs::read("/proc/self/cgroup").unwrap());
        assert!(groups(u32::MAX).is_none());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(locate_own(dir.path()).unwrap_err().kind, "not-a-cgroup");
        let gone = dir.path().join("gone");
        assert_eq!(locate_own(&gone).unwrap_err().kind, "no-such-cgroup");
    }
}
