//! Which runs there are: each has a file in the home's `runs/`, and holds it locked for as long as it lives.
//!
//! The kernel lets go of the lock however a run ends, so a file that nobody holds tells of nothing and is removed by
//! whoever finds it. Process ids are read only of files that are held, so they name the run and nobody else. No daemon
//! takes part in this. The directory `kept` beside the files is no concern of theirs.

use crate::home::Home;
use crate::protocol::{Bytes, Moment};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Times that a file is made again because somebody took it for one that was left.
const TRIES_MAX: u32 = 64;
/// Longest file that is read.
const RECORD_BYTES_MAX: u64 = 4 << 20;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Names the run.
    pub run: String,
    /// The workspace.
    pub workspace: String,
    /// The branch that it shows.
    pub branch: String,
    /// The process of `agentvfs run`.
    pub pid: i32,
    /// The PID namespace in which it has this number.
    pub pid_namespace: String,
    /// When it began.
    pub started: Moment,
    /// The command and its arguments.
    pub command: Vec<Bytes>,
    /// Other runs in the branch have the same directories in memory.
    #[serde(default)]
    pub shares: bool,
}

/// A run that others can see. Ends with its value, or with the process.
#[derive(Debug)]
pub struct Registered {
    path: PathBuf,
    _locked: File,
}

/// This process's PID namespace.
pub fn pid_namespace() -> io::Result<String> {
    let link = std::fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().into_owned())
}

impl Registered {
    /// Shows a run to others.
    pub fn new(home: &Home, record: &RunRecord) -> io::Result<Registered> {
        let dir = home.runs();
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for n in 0..TRIES_MAX {
            let path = dir.join(format!("{}-{}.{n}", record.run, record.pid));
            let Some(mut file) = locked(&path)? else {
                continue;
            };
            let written = file.write_all(&serde_json::to_vec(record)?);
            let registered = Registered {
                path,
                _locked: file,
            };
            return written.map(|()| registered);
        }
        Err(io::Error::other(format!(
            "every name in {} that was tried exists",
            dir.display()
        )))
    }
}

/// A new file that is locked; none if the name is taken, or somebody removed it before it was locked.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = match new {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        file => file?,
    };
    while let Err(errno) = flock(&file, FlockOperation::LockExclusive) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    let is_there = file.metadata()?.nlink() > 0;
    Ok(is_there.then_some(file))
}

impl Drop for Registered {
    fn drop(&mut self) {
        // What stays is not held, so it tells of nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The runs that are alive, the first started first. What others left is removed.
pub fn alive(home: &Home) -> io::Result<Vec<RunRecord>> {
    let dir = match home.runs().read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    let mut found = Vec::new();
    for entry in dir {
        let entry = entry?;
        // Directories are what sessions keep.
        if entry.file_type()?.is_file() {
            found.extend(look(&entry.path())?);
        }
    }
    let key = |record: &RunRecord| (record.started.sec, record.started.nsec, record.pid);
    found.sort_by_key(key);
    Ok(found)
}

/// What a file tells, if its run is alive. One that is about to write its file does not count yet.
fn look(path: &Path) -> io::Result<Option<RunRecord>> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(error),
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return gone(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // Its run removed it just now; the path may be another run's already.
        Ok(()) if file.metadata()?.nlink() == 0 => return Ok(None),
        Ok(()) => return std::fs::remove_file(path).map(|()| None).or_else(gone),
        Err(Errno::WOULDBLOCK | Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(dir: &tempfile::TempDir) -> Home {
        Home::find(Some(dir.path()), &|_| None).unwrap()
    }

    fn record(run: &str) -> RunRecord {
        RunRecord {
            run: run.to_owned(),
            workspace: "w".to_owned(),
            branch: "b".to_owned(),
            pid: 7,
            pid_namespace: pid_namespace().unwrap(),
            started: Moment { sec: 1, nsec: 2 },
            shares: false,
            command: vec![Bytes(b"\xff".to_vec())],
        }
    }

    #[test]
    fn a_run_is_listed_for_as_long_as_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        assert_eq!(alive(&home).unwrap(), []);
        let one = Registered::new(&home, &record("r")).unwrap();
        let same = Registered::new(&home, &record("r")).unwrap();
        assert_eq!(alive(&home).unwrap(), [record("r"), record("r")]);
        drop(one);
        assert_eq!(alive(&home).unwrap(), [record("r")]);
        drop(same);
        assert_eq!(home.runs().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_holds_is_removed_and_what_is_not_written_yet_is_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        drop(Registered::new(&home, &record("r")).unwrap());
        let left = home.runs().join("left");
        std::fs::write(&left, serde_json::to_vec(&record("left")).unwrap()).unwrap();
        let begun = locked(&home.runs().join("begun")).unwrap().unwrap();
        assert_eq!(alive(&home).unwrap(), []);
        assert!(!left.exists() && home.runs().join("begun").exists());
        drop(begun);
    }

    #[test]
    fn runs_begin_beside_others_that_look() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| (0..300).try_for_each(|_| alive(&home).map(drop)));
            while !looking.is_finished() {
                let run = Registered::new(&home, &record("r")).unwrap();
                assert_eq!(alive(&home).unwrap(), [record("r")]);
                drop(run);
            }
            looking.join().unwrap().unwrap();
        });
    }
}
