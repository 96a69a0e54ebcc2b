//! `--report FILE`: what a run was, and what became of it, as one JSON object.
//!
//! The file is written by this process once all is done, as a whole or not at all, into the directory that was looked
//! at before the command began: nothing that the command does to a path leads it elsewhere.

use super::super::changes::change_object;
use super::After;
use super::then::Done;
use super::work::Work;
use crate::cli::{RunArgs, ThenArg};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Changed, Moment};
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use agentvfs_client::when::rfc3339;
use agentvfs_sandbox::copies::Outside;
use agentvfs_sandbox::{Ended, Plan};
use rustix::fs::{AtFlags, Mode, OFlags};
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A file that can be written.
pub struct Report {
    dir: OwnedFd,
    name: OsString,
    told: String,
}

/// What is told of a run.
pub struct Facts<'a> {
    /// The arguments.
    pub args: &'a RunArgs,
    /// The workspace and branch.
    pub work: &'a Work,
    /// The sandbox.
    pub plan: &'a Plan,
    /// Its layers in force, and those that the kernel lacks, each with why.
    pub layers: (Vec<&'static str>, Vec<String>),
    /// When the command began.
    pub started: Moment,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub ended: Result<&'a Ended, &'a Failure>,
    /// What became of files outside the project.
    pub outside: &'a Outside,
    /// What was found and done then.
    pub after: Result<&'a After, &'a Failure>,
}

impl Report {
    /// The file that the arguments name, if they do.
    pub fn check(args: &RunArgs) -> Result<Option<Report>, Failure> {
        let Some(path) = &args.report else {
            return Ok(None);
        };
        let told = shown(path.as_os_str().as_bytes());
        let failed = |why: String| Failure::usage(format!("cannot write the report {told}: {why}"));
        // The file that a link leads to is replaced, not the link.
        let real = match path.symlink_metadata() {
            Ok(_) => path.canonicalize(),
            Err(_) => std::path::absolute(path),
        };
        let real = real.map_err(|e| failed(e.to_string()))?;
        let (Some(dir), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(failed("it is a directory".to_owned()));
        };
        if real.symlink_metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(failed("it is no regular file".to_owned()));
        }
        let report = Report {
            dir: open_dir(dir).map_err(|e| failed(e.to_string()))?,
            name: name.to_owned(),
            told: told.clone(),
        };
        let (_, new) = report.create().map_err(|e| failed(e.to_string()))?;
        report.remove(&new).map_err(|e| failed(e.to_string()))?;
        Ok(Some(report))
    }

    /// Writes it.
    pub fn write(&self, facts: &Facts<'_>) -> Result<(), Failure> {
        let text = format!("{:#}\n", object(facts));
        self.put(text.as_bytes()).map_err(|e| {
            Failure::new(
                format!("cannot write the report {}", self.told),
                e.to_string(),
            )
        })
    }

    fn put(&self, text: &[u8]) -> std::io::Result<()> {
        let (mut file, new) = self.create()?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| {
            Ok(rustix::fs::renameat(
                &self.dir, &new, &self.dir, &self.name,
            )?)
        });
        if placed.is_err() {
            // The first error is the one that counts.
            let _ = self.remove(&new);
        }
        placed
    }

    /// A new file beside it, with its name.
    fn create(&self) -> std::io::Result<(File, OsString)> {
        let name = OsString::from(format!(".agentvfs-report-{}.tmp~", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.dir, &name, flags, Mode::from_raw_mode(0o666));
        let file = match open() {
            // Of a process that was killed and had this id.
            Err(rustix::io::Errno::EXIST) => {
                self.remove(&name)?;
                open()?
            }
            file => file?,
        };
        Ok((file.into(), name))
    }

    fn remove(&self, name: &OsStr) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?)
    }
}

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
}

fn object(facts: &Facts<'_>) -> Value {
    let Facts {
        args, work, plan, ..
    } = facts;
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    add("run", work.run.clone().into());
    add("workspace", work.info.name.clone().into());
    add("branch", work.branch.clone().into());
    add("session", work.branch.clone().into());
    let words = plan.command.iter().map(|word| word.to_string_lossy());
    add("command", words.collect::<Vec<_>>().into());
    let (layers, lacking) = &facts.layers;
    add("sandbox", layers.clone().into());
    add("lacking", lacking.clone().into());
    let (exit, signal) = match facts.ended {
        Ok(Ended::Signal(number)) => (None, Some(*number)),
        Ok(other) => (Some(other.status()), None),
        Err(_) => (None, None),
    };
    add("exit", exit.into());
    add("signal", signal.into());
    add(
        "timed_out",
        matches!(facts.ended, Ok(Ended::OutOfTime)).into(),
    );
    add("error", facts.ended.err().map(told_failure).into());
    add("started", rfc3339(facts.started).into());
    add(
        "duration_ms",
        u64::try_from(facts.took.as_millis())
            .unwrap_or(u64::MAX)
            .into(),
    );
    let after = facts.after.ok();
    add(
        "before",
        after.and_then(|after| after.commits.0.clone()).into(),
    );
    add(
        "after",
        after.and_then(|after| after.commits.1.clone()).into(),
    );
    add("changes", after.map(|after| changes(&after.changes)).into());
    add("outside", outside(facts.outside));
    let done = facts.after.and_then(|after| after.done.as_ref());
    let (done, why) = match done {
        Ok(Done::KeptFor(why)) => (false, Some(why.clone())),
        Ok(_) => (true, None),
        Err(failure) => (false, Some(told_failure(failure))),
    };
    add(
        "then",
        json!({ "what": then_word(args.then), "done": done, "why": why }),
    );
    insert_bytes(&mut object, "cwd", plan.cwd.0.as_os_str().as_bytes());
    Value::Object(object)
}

fn told_failure(failure: &Failure) -> String {
    format!("{}: {}", failure.what, failure.why)
}

fn then_word(then: ThenArg) -> &'static str {
    match then {
        ThenArg::Keep => "keep",
        ThenArg::Apply => "apply",
        ThenArg::Merge => "merge",
        ThenArg::Discard => "discard",
    }
}

/// Files outside the project that the command changed, each with what became of it.
fn outside(all: &Outside) -> Value {
    let object = |path: &Path, done: &str, copy: Option<&Path>| {
        let mut object = Map::new();
        insert_bytes(&mut object, "path", path.as_os_str().as_bytes());
        object.insert("done".to_owned(), done.into());
        if let Some(copy) = copy {
            insert_bytes(&mut object, "copy", copy.as_os_str().as_bytes());
        }
        Value::Object(object)
    };
    let written = all.written.iter().map(|path| object(path, "written", None));
    let kept = all.kept.iter().map(|(_, path)| object(path, "kept", None));
    let conflicts = all.conflicts.iter();
    let conflicts = conflicts.map(|(path, copy)| object(path, "conflict", Some(copy)));
    written.chain(kept).chain(conflicts).collect()
}

/// Changes by kind.
fn changes(all: &[Changed]) -> Value {
    let of = |statuses: &[char]| -> Vec<Value> {
        let some = all
            .iter()
            .filter(|change| statuses.contains(&change.status));
        some.map(change_object).collect()
    };
    json!({
        "added": of(&['A']),
        "modified": of(&['M', 'T']),
        "deleted": of(&['D']),
        "renamed": of(&['R']),
    })
}
