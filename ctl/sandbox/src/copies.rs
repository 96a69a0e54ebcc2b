//! Directories and files of the machine that a command changes as it likes, but in copies that its session keeps.
//!
//! A directory is shown as an overlay, so that anything in it can be created, renamed and replaced. What an agent
//! remembers is written back from there by this process, which is outside (`back`, `rules`); bind mounts of the single
//! files that must not be changed would not do, since names that do not exist yet cannot be mounted on, and since
//! their directories can be renamed. A single file is shown as one of a directory in which everything else is
//! the machine's, read-only, so that it can be renamed over.
//!
//! Invariant: two runs never share an upper directory, and none that a run has is changed by anybody else: each has a
//! layer for itself (`layer`), and a layer that is done with is put into the session's first one (`fold`).

mod back;
mod files;
mod fold;
mod layer;
mod rules;

pub use files::remove_tree;
pub use layer::is_used;

use crate::plan::{PathRule, What};
use back::{Found, Own, Pass};
use files::Stamp;
use layer::{Item, Kind, Layer};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names in a directory of which one file is a copy.
const NAMES_MAX: usize = 1024;

/// The copies of a run.
pub struct Copies {
    session: PathBuf,
    run: String,
    layer: Layer,
    items: Vec<Item>,
    own: Own,
    written: BTreeSet<PathBuf>,
    is_begun: bool,
}

/// What became of the copies.
#[derive(Debug, Default)]
pub struct Outside {
    /// Files of the machine that were written or deleted.
    pub written: Vec<PathBuf>,
    /// Files that the command changed and that stay with the session, with the directory that is shown as a copy.
    pub kept: Vec<(PathBuf, PathBuf)>,
    /// Files that were changed outside as well, with where the session's is kept.
    pub conflicts: Vec<(PathBuf, PathBuf)>,
    /// What could not be done.
    pub failed: Vec<String>,
}

impl Copies {
    /// Takes what a session keeps. What runs of it that were killed left is written back first; also gives what
    /// became of that.
    pub fn take(session: &Path, run: &str) -> io::Result<(Copies, Outside)> {
        let mut left = Outside::default();
        let aside = session.join("conflicts").join(run);
        let layer = layer::take(session, &mut |layer| {
            let items = layer.items()?;
            finish(layer, &items, &aside, &mut Own::new(), &mut left)
        })?;
        let copies = Copies {
            session: session.to_owned(),
            run: run.to_owned(),
            layer,
            items: Vec::new(),
            own: Own::new(),
            written: BTreeSet::new(),
            is_begun: false,
        };
        Ok((copies, left))
    }

    /// An agent's directory: state is written back, and files in `list`, as paths in it.
    pub fn agent(&mut self, at: &Path, list: &[PathBuf]) -> io::Result<PathRule> {
        self.overlay(Kind::Agent, at, list)
    }

    /// A directory of which only files in `list` are written back.
    pub fn cache(&mut self, at: &Path, list: &[PathBuf]) -> io::Result<PathRule> {
        self.overlay(Kind::Cache, at, list)
    }

    fn overlay(&mut self, kind: Kind, at: &Path, list: &[PathBuf]) -> io::Result<PathRule> {
        let item = self.layer.item(kind, at, list)?;
        let mode = at.metadata()?.mode() & 0o777;
        let upper = item.upper();
        std::fs::set_permissions(&upper, PermissionsExt::from_mode(mode | 0o700))?;
        // A killed run's is of no use, and what it says of the upper directory is not so any more.
        remove_work(&item.work())?;
        std::fs::create_dir(item.work())?;
        let (upper, work) = (item.upper(), item.work());
        self.items.push(item);
        Ok(PathRule {
            at: at.to_owned(),
            what: What::Copy { upper, work },
        })
    }

    /// A directory in which `files` can be written, renamed and made, and new names be made; the rest of it is as it
    /// is. None where it has too many names.
    pub fn names(&mut self, at: &Path, files: &[PathBuf]) -> io::Result<Option<PathRule>> {
        if at.read_dir()?.take(NAMES_MAX + 1).count() > NAMES_MAX {
            return Ok(None);
        }
        let item = self.layer.item(Kind::Names, at, files)?;
        let upper = item.upper();
        let mode = at.metadata()?.mode() & 0o777;
        std::fs::set_permissions(&upper, PermissionsExt::from_mode(mode | 0o700))?;
        let paths = files.iter().map(|file| at.join(file));
        let before: Vec<_> = paths.map(|file| (stamp(&file), file)).collect();
        for entry in at.read_dir()? {
            let name = entry?.file_name();
            let is_copied = files.iter().any(|file| file.as_os_str() == name);
            point(&at.join(&name), &upper.join(&name), is_copied)?;
        }
        for (stamp, file) in before {
            self.own.insert(file, stamp);
        }
        self.items.push(item);
        Ok(Some(PathRule {
            at: at.to_owned(),
            what: What::Names {
                dir: upper,
                files: files.to_vec(),
            },
        }))
    }

    /// All copies are named, and about to be used.
    pub fn begin(&mut self) -> io::Result<()> {
        self.is_begun = true;
        self.layer.begin()
    }

    /// The command is about to run: what changes from now on is its, or somebody else's.
    pub fn wait(&mut self) -> io::Result<()> {
        self.layer.wait()
    }

    /// Writes back what can be while the command runs.
    pub fn tick(&mut self) {
        let Ok(Some(begun)) = self.layer.begun() else {
            return;
        };
        // What fails now fails again at the end, and is told then.
        let mut found = Found::default();
        for item in &self.items {
            let mut pass = Pass {
                item,
                begun,
                is_last: false,
                aside: &self.session,
                own: &mut self.own,
                found: &mut found,
            };
            let _ = pass.run();
        }
        self.written.extend(found.written);
    }

    /// Writes back all that can be. Nothing may run in the sandbox any more.
    pub fn end(mut self) -> Outside {
        let mut outside = Outside::default();
        let aside = self.session.join("conflicts").join(&self.run);
        if self.is_begun {
            let done = finish(
                &self.layer,
                &self.items,
                &aside,
                &mut self.own,
                &mut outside,
            );
            if let Err(error) = done {
                outside.failed.push(error.to_string());
            }
        }
        self.written.extend(std::mem::take(&mut outside.written));
        outside.written = self.written.into_iter().collect();
        if let Err(error) = layer::give_back(&self.session, self.layer) {
            outside.failed.push(error.to_string());
        }
        outside
    }
}

/// Deals with what a run left in a layer, if it has begun.
fn finish(
    layer: &Layer,
    items: &[Item],
    aside: &Path,
    own: &mut Own,
    outside: &mut Outside,
) -> io::Result<()> {
    let Some(begun) = layer.begun()? else {
        return Ok(());
    };
    for item in items {
        let mut found = Found::default();
        let mut pass = Pass {
            item,
            begun,
            is_last: true,
            aside,
            own: &mut *own,
            found: &mut found,
        };
        if let Err(error) = pass.run() {
            outside
                .failed
                .push(format!("{}: {error}", item.at.display()));
        }
        outside.written.extend(found.written);
        let kept = found.kept.into_iter();
        outside
            .kept
            .extend(kept.map(|path| (item.at.clone(), path)));
        outside.conflicts.extend(found.conflicts);
        outside.failed.extend(found.failed);
    }
    layer.done()
}

/// What overlayfs leaves in a work directory (fs/overlayfs/super.c), the innermost first.
const LEFT_IN_WORK: [&str; 4] = [
    "work/incompat/volatile/dirty",
    "work/incompat/volatile",
    "work/incompat",
    "work",
];

/// Removes a work directory. By the names in it that takes six calls instead of fifty; an ordinary user may not look into
/// these directories, and whatever else is in one is removed as any tree.
fn remove_work(work: &Path) -> io::Result<()> {
    let [file, dirs @ ..] = LEFT_IN_WORK;
    let removed = std::fs::remove_file(work.join(file)).and_then(|()| {
        let mut dirs = dirs.iter().map(|dir| work.join(dir));
        dirs.try_for_each(std::fs::remove_dir)?;
        std::fs::remove_dir(work)
    });
    removed.or_else(|_| remove_tree(work))
}

/// What tells whether a file has changed; none where there is none.
fn stamp(path: &Path) -> Option<Stamp> {
    rustix::fs::lstat(path).ok().map(|stat| Stamp::of(&stat))
}

/// Has `to` be a place to mount `from` on: an empty directory or file; with `is_copied` a file with its contents.
/// What a command put there gets another name.
fn point(from: &Path, to: &Path, is_copied: bool) -> io::Result<()> {
    let meta = from.symlink_metadata()?;
    let kind = meta.file_type();
    let there = to.symlink_metadata().ok().map(|meta| meta.file_type());
    let is_fit = there.is_some_and(|there| match kind.is_symlink() {
        true => there.is_symlink() && to.read_link().ok() == from.read_link().ok(),
        false => there == kind,
    });
    if there.is_some() && !is_fit {
        let mut other = to.as_os_str().to_owned();
        other.push(format!(".of-session-{}", std::process::id()));
        std::fs::rename(to, other)?;
    }
    match (is_fit && !is_copied, kind.is_symlink()) {
        (true, _) => {}
        (false, true) => symlink(from.read_link()?, to)?,
        (false, false) if kind.is_dir() => std::fs::create_dir(to)?,
        (false, false) if kind.is_file() && is_copied => copy(from, to)?,
        (false, false) if kind.is_file() => std::fs::write(to, b"")?,
        // Sockets, pipes and devices of the machine are not there.
        _ => {}
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Err(error) = std::fs::remove_file(to)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    std::fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_file_is_a_copy_among_places_for_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("h");
        std::fs::create_dir_all(home.join("d/inner")).unwrap();
        std::fs::write(home.join("f"), "text").unwrap();
        std::fs::write(home.join("one"), "1").unwrap();
        symlink("f", home.join("link")).unwrap();
        let (mut copies, _) = Copies::take(&dir.path().join("s"), "r").unwrap();
        let place = copies.names(&home, &["one".into()]).unwrap().unwrap();
        let What::Names { dir: upper, .. } = place.what else {
            panic!("another place");
        };
        assert_eq!(std::fs::read_to_string(upper.join("one")).unwrap(), "1");
        assert_eq!(std::fs::read_to_string(upper.join("f")).unwrap(), "");
        assert_eq!(upper.join("d").read_dir().unwrap().count(), 0);
        assert_eq!(upper.join("link").read_link().unwrap(), Path::new("f"));
        copies.begin().unwrap();
        copies.wait().unwrap();
        std::fs::remove_file(upper.join("link")).unwrap();
        std::fs::write(upper.join("link"), "mine").unwrap();
        std::fs::write(upper.join("one"), "2").unwrap();
        let outside = copies.end();
        assert_eq!(outside.written, [home.join("one")]);
        let (mut copies, _) = Copies::take(&dir.path().join("s"), "r").unwrap();
        copies.names(&home, &["one".into()]).unwrap().unwrap();
        assert_eq!(upper.join("link").read_link().unwrap(), Path::new("f"));
    }

    #[test]
    fn a_work_directory_is_removed_with_whatever_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        remove_work(&work).unwrap();
        for more in [
            None,
            Some("other"),
            Some("work/incompat/other"),
            Some("work/#1"),
        ] {
            std::fs::create_dir_all(work.join(LEFT_IN_WORK[1])).unwrap();
            std::fs::write(work.join(LEFT_IN_WORK[0]), b"").unwrap();
            if let Some(more) = more {
                std::fs::write(work.join(more), b"").unwrap();
            }
            remove_work(&work).unwrap();
            assert!(!work.exists(), "{more:?}");
        }
    }

    #[test]
    fn what_a_killed_run_left_is_written_back_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join(".agent");
        std::fs::create_dir(&agent).unwrap();
        std::fs::write(agent.join("log"), "1").unwrap();
        let session = dir.path().join("s");
        let (mut copies, _) = Copies::take(&session, "killed").unwrap();
        let place = copies.agent(&agent, &[]).unwrap();
        copies.begin().unwrap();
        copies.wait().unwrap();
        let What::Copy { upper, .. } = place.what else {
            panic!("another place");
        };
        std::fs::write(upper.join("log"), "12").unwrap();
        drop(copies);
        let (copies, left) = Copies::take(&session, "next").unwrap();
        assert_eq!(left.written, [agent.join("log")], "{left:?}");
        assert_eq!(std::fs::read_to_string(agent.join("log")).unwrap(), "12");
        assert!(copies.end().written.is_empty());
    }
}
