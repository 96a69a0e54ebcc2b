//! A control group (version 2) for the processes of a sandbox, and limits on what they take.
//!
//! It is made below the nearest group above the caller's own in which that is permitted: for root everywhere, for an
//! ordinary user where a subtree was delegated, which systemd does for what `systemd-run --user --scope` starts.
//! Invariants: a limit is in force before the command runs, or is an error; a group that stays, because its caller was
//! killed, is empty, and the next one made beside it removes it. The command is in a group inside of the one with the limits:
//! one who makes a cgroup namespace may write into the group that he is in, and sees none above it.
//!
//! Everything is told from a directory that stands for the hierarchy, so tests use an ordinary one.

use crate::error::{Error, Result};
use crate::plan::Limits;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the names of all groups begin with.
const PREFIX: &str = "agentvfs-run-";
/// The group that processes are in, inside of the one with the limits.
const INNER: &str = "command";
/// Microseconds in which a share of processor time is counted.
const CPU_PERIOD_US: u64 = 100_000;
/// Times that a group is looked at until its last process has left it.
const TRIES_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);
/// Times that a group is made again because somebody removed it before it had a process.
const MADE_MAX: u32 = 8;

/// A group. It is removed with its value.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Limits {
    /// Files of a group with what is written to them.
    fn files(&self) -> Vec<(&'static str, String)> {
        let mut files = Vec::new();
        if let Some(count) = self.pids {
            // Process 1 of the sandbox is none of the command's.
            files.push(("pids.max", count.saturating_add(1).to_string()));
        }
        if let Some(bytes) = self.memory_bytes {
            files.push(("memory.max", bytes.to_string()));
        }
        if let Some(percent) = self.cpu_percent {
            let share = percent.saturating_mul(CPU_PERIOD_US) / 100;
            files.push(("cpu.max", format!("{share} {CPU_PERIOD_US}")));
        }
        files
    }

    /// The controllers that they need.
    fn controllers(&self) -> Vec<&'static str> {
        let asked = [
            (self.pids.is_some(), "pids"),
            (self.memory_bytes.is_some(), "memory"),
            (self.cpu_percent.is_some(), "cpu"),
        ];
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.map(|(_, name)| name).collect()
    }

    /// The limits as layers that are lacking.
    pub fn lacking(&self, why: &str) -> Vec<String> {
        let all = self.told().into_iter();
        all.map(|name| format!("{name}: {why}")).collect()
    }

    /// The limits, as they are told.
    pub fn told(&self) -> Vec<&'static str> {
        let asked = [
            (self.pids.is_some(), "pids-limit"),
            (self.memory_bytes.is_some(), "memory-limit"),
            (self.cpu_percent.is_some(), "cpu-limit"),
        ];
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.map(|(_, name)| name).collect()
    }
}

/// Makes a group with these limits, which has no process yet. None where that is not permitted and nothing is limited.
pub fn made(limits: &Limits) -> Result<Option<Group>> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let root = hierarchy(&read("/proc/self/mountinfo"));
    let made = match root {
        Some(root) => {
            let own = read("/proc/self/cgroup");
            made_in(&root, &own, &new_name(), limits)
        }
        None => Err("no cgroup hierarchy of version 2 is mounted".to_owned()),
    };
    match made {
        Ok(group) => Ok(Some(group)),
        Err(why) if !limits.controllers().is_empty() => Err(Error::Limits(why)),
        Err(_) => Ok(None),
    }
}

/// A name that no other run has, in whatever container.
fn new_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos();
    format!("{PREFIX}{}-{nanoseconds:x}", std::process::id())
}

/// Puts a process that is in no group of its own yet into one, and so all that it starts. Another run may have removed
/// `group` meanwhile: it had no process.
pub fn enclose(process: Pid, limits: &Limits, mut group: Group) -> Result<Option<Group>> {
    for _ in 0..MADE_MAX {
        match group.take_in(process) {
            Ok(()) => return Ok(Some(group)),
            Err(e) if is_gone(&e) => match made(limits)? {
                Some(another) => group = another,
                None => return Ok(None),
            },
            Err(e) if !limits.controllers().is_empty() => {
                return Err(Error::Limits(format!("{}: {e}", group.dir.display())));
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Makes a group in the hierarchy at `root`, where `own` is what `/proc/self/cgroup` tells of the caller.
fn made_in(
    root: &Path,
    own: &str,
    name: &str,
    limits: &Limits,
) -> std::result::Result<Group, String> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.ok_or("this process is in no cgroup of version 2")?;
    let has_dots = Path::new(own).components().any(|c| c.as_os_str() == "..");
    if has_dots {
        return Err("this process's cgroup is outside of what it sees".to_owned());
    }
    let own = root.join(own);
    let mut last = String::new();
    let above = own.ancestors().take_while(|dir| dir.starts_with(root));
    for parent in above {
        let made = allows(parent, &limits.controllers())
            .and_then(|()| make(parent, name, limits).map_err(|e| e.to_string()));
        match made {
            Ok(group) => return Ok(group),
            Err(why) => last = format!("{}: {why}", parent.display()),
        }
    }
    Err(last)
}

/// Where the hierarchy of version 2 is, from the text of mountinfo (proc(5)).
fn hierarchy(mountinfo: &str) -> Option<PathBuf> {
    let mut lines = mountinfo.lines();
    let line = lines.find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Has the children of a group have these controllers.
fn allows(parent: &Path, controllers: &[&str]) -> std::result::Result<(), String> {
    let words = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(parent.join(name)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let has = |list: &[String], name: &str| list.iter().any(|word| word == name);
    for name in controllers {
        if has(&words("cgroup.subtree_control"), name) {
            continue;
        }
        if !has(&words("cgroup.controllers"), name) {
            return Err(format!("it does not have the controller {name}"));
        }
        fs::write(parent.join("cgroup.subtree_control"), format!("+{name}"))
            .map_err(|e| format!("the controller {name} cannot be passed on: {e}"))?;
    }
    Ok(())
}

fn make(parent: &Path, name: &str, limits: &Limits) -> io::Result<Group> {
    sweep(parent);
    for _ in 0..MADE_MAX {
        let dir = parent.join(name);
        fs::create_dir(&dir)?;
        let group = Group { dir };
        match group.fill(limits) {
            // Another run took it for one that was left.
            Err(e) if is_gone(&e) => {}
            filled => return filled.map(|()| group),
        }
    }
    Err(Errno::BUSY.into())
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|errno| gone.contains(&errno))
}

/// Removes groups that were left: those that have no processes.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for entry in entries.filter(|entry| is_ours(&entry.file_name())) {
        // One that is in use stays.
        let _ = remove(&entry.path());
    }
}

/// Removes a group and the one inside of it.
fn remove(dir: &Path) -> rustix::io::Result<()> {
    match rustix::fs::rmdir(dir.join(INNER)) {
        Ok(()) | Err(Errno::NOENT) => rustix::fs::rmdir(dir),
        Err(errno) => Err(errno),
    }
}

impl Group {
    /// Its directory. Processes are in a group inside of it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of the group that processes are in; none if another run has removed it.
    pub fn door(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(self.dir.join(INNER), flags, Mode::empty()).ok()
    }

    fn fill(&self, limits: &Limits) -> io::Result<()> {
        for (name, text) in limits.files() {
            fs::write(self.dir.join(name), text)?;
        }
        if limits.memory_bytes.is_some() {
            // Otherwise what does not fit goes there; a kernel without swap has no such file.
            let _ = fs::write(self.dir.join("memory.swap.max"), "0");
        }
        fs::create_dir(self.dir.join(INNER))
    }

    /// Moves a process into it.
    fn take_in(&self, process: Pid) -> io::Result<()> {
        let process = process.as_raw_nonzero().to_string();
        fs::write(self.dir.join(INNER).join("cgroup.procs"), process)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..TRIES_MAX {
            match remove(&self.dir) {
                // The last process is about to leave it.
                Err(Errno::BUSY) => std::thread::sleep(PAUSE),
                // What stays is removed by the next one.
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits {
        pids: Some(64),
        memory_bytes: Some(1 << 30),
        cpu_percent: Some(150),
    };

    /// A hierarchy of ordinary directories: `groups` with their controllers and those that they pass on.
    fn hierarchy_of(groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, controllers, passed_on) in groups {
            let dir = root.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
            fs::write(dir.join("cgroup.subtree_control"), passed_on).unwrap();
        }
        root
    }

    fn enclosed(
        root: &tempfile::TempDir,
        own: &str,
        limits: &Limits,
    ) -> std::result::Result<PathBuf, String> {
        let pid = Pid::from_raw(4711).unwrap();
        let group = made_in(root.path(), own, "agentvfs-run-4711", limits)?;
        group.take_in(pid).unwrap();
        let dir = group.dir.clone();
        // An ordinary directory with files stays.
        drop(group);
        Ok(dir.strip_prefix(root.path()).unwrap().to_owned())
    }

    #[test]
    fn limits_are_written_before_the_process_enters() {
        let root = hierarchy_of(&[("", "cpu memory pids", "cpu memory pids"), ("a/b", "", "")]);
        fs::create_dir_all(root.path().join("a")).unwrap();
        let at = enclosed(&root, "9:name=systemd:/x\n0::/a/b\n", &ALL).unwrap();
        assert_eq!(at, Path::new("agentvfs-run-4711"));
        let read = |name: &str| fs::read_to_string(root.path().join(&at).join(name)).unwrap();
        assert_eq!(read("pids.max"), "65");
        assert_eq!(read("memory.max"), (1u64 << 30).to_string());
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("command/cgroup.procs"), "4711");
    }

    #[test]
    fn the_nearest_group_that_can_pass_the_controllers_on_is_used() {
        let one = Limits {
            pids: Some(1),
            ..Limits::default()
        };
        let groups = [
            ("", "memory pids", "memory pids"),
            ("user", "memory pids", "pids"),
            ("user/own", "pids", ""),
        ];
        let root = hierarchy_of(&groups);
        let at = enclosed(&root, "0::/user/own\n", &one).unwrap();
        assert_eq!(at, Path::new("user/own/agentvfs-run-4711"));
        let passed = fs::read_to_string(root.path().join("user/own/cgroup.subtree_control"));
        assert_eq!(passed.unwrap(), "+pids");
        let root = hierarchy_of(&groups);
        let memory = Limits {
            memory_bytes: Some(1),
            ..Limits::default()
        };
        // The group next above has it, and passes it on when asked.
        let at = enclosed(&root, "0::/user/own\n", &memory).unwrap();
        assert_eq!(at, Path::new("user/agentvfs-run-4711"));
    }

    #[test]
    fn without_the_controllers_limits_are_refused_and_a_group_is_not() {
        let root = hierarchy_of(&[("", "cpu", "cpu"), ("a", "", "")]);
        let why = enclosed(&root, "0::/a\n", &ALL).unwrap_err();
        assert!(why.contains("controller pids"), "{why}");
        assert!(enclosed(&root, "0::/a\n", &Limits::default()).is_ok());
        for own in ["1:cpu:/\n", "", "0::/../b\n"] {
            assert!(enclosed(&root, own, &ALL).is_err(), "{own:?}");
        }
    }

    #[test]
    fn groups_that_were_left_are_removed_by_the_next() {
        let root = hierarchy_of(&[("", "", "")]);
        let left = root.path().join("agentvfs-run-1");
        let (used, other) = (
            root.path().join("agentvfs-run-2"),
            root.path().join("other"),
        );
        for dir in [&left, &used, &other] {
            fs::create_dir_all(dir.join(INNER)).unwrap();
        }
        fs::write(used.join(INNER).join("cgroup.procs"), "7").unwrap();
        enclosed(&root, "0::/\n", &Limits::default()).unwrap();
        assert!(!left.exists() && used.exists() && other.exists());
    }

    #[test]
    fn the_hierarchy_is_found_among_mounts() {
        let text = "30 20 0:25 / /sys/fs/cgroup rw - tmpfs t rw\n\
                    31 30 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchy(text), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(hierarchy(""), None);
    }
}
