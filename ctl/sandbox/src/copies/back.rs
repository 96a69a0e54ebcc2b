//! Writing back what a command changed in a copy, as far as that is allowed: from outside, by the caller's rights.
//!
//! A file is written back if it is harmless (`rules`, or the user listed it) and if the machine's file has not changed
//! since the run began, or since this wrote it. Otherwise both are kept. Invariant: nothing else is ever created,
//! changed or removed on the machine; no program, link, device or directory of it is replaced; directories are made
//! and never removed.

use super::files::{
    Stamp, is_same, is_whiteout, kind, look, make_dir, names, open_dir, open_file, open_top,
};
use super::layer::{Item, Kind};
use super::rules;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fchown, fstat, futimens,
    openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Depth to which files are written back.
const DEPTH_MAX: usize = 32;
/// Longest file of which only a part is written back.
const GUARDED_BYTES_MAX: u64 = 64 << 20;
/// The file of which only a part is written back.
const GUARDED: &str = ".claude.json";
/// Bits by which a file can be executed.
const EXECUTABLE: u32 = 0o6111;

/// What became of a copy's files.
#[derive(Debug, Default)]
pub struct Found {
    /// Files that were written to the machine, or deleted there.
    pub written: BTreeSet<PathBuf>,
    /// Changed files that stay with the session.
    pub kept: BTreeSet<PathBuf>,
    /// Files that both sides changed, with where the session's is kept.
    pub conflicts: Vec<(PathBuf, PathBuf)>,
    /// What could not be done.
    pub failed: Vec<String>,
}

/// A run's knowledge of what it wrote itself.
pub type Own = BTreeMap<PathBuf, Option<Stamp>>;

/// One pass over a copy.
pub struct Pass<'a> {
    /// The copy.
    pub item: &'a Item,
    /// Since when its changes count.
    pub begun: Stamp,
    /// The command has ended: databases count, conflicts are put aside, and what was written leaves the copy.
    pub is_last: bool,
    /// Where conflicts are put.
    pub aside: &'a Path,
    /// What was written before.
    pub own: &'a mut Own,
    /// What is found.
    pub found: &'a mut Found,
}

/// What is to become of a file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    Written,
    Kept,
    Conflict,
    Nothing,
}

impl Pass<'_> {
    /// Does it.
    pub fn run(&mut self) -> io::Result<()> {
        let upper = open_top(&self.item.upper())?;
        let outside = match open_top(&self.item.at) {
            // Its directory is gone: it stays.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            outside => Some(outside?),
        };
        self.walk(&upper, outside.as_ref(), Path::new(""), 0)
    }

    fn walk(
        &mut self,
        upper: &OwnedFd,
        outside: Option<&OwnedFd>,
        at: &Path,
        depth: usize,
    ) -> io::Result<()> {
        let dir = match open_dir(upper.as_fd(), at) {
            // What is renamed or locked meanwhile is for the next time.
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            dir => dir?,
        };
        for name in names(dir.as_fd())? {
            let path = at.join(name);
            let Some(stat) = look(upper.as_fd(), &path)? else {
                continue;
            };
            if kind(&stat) == FileType::Directory {
                if depth < DEPTH_MAX {
                    self.walk(upper, outside, &path, depth + 1)?;
                }
                continue;
            }
            let verdict = match outside {
                Some(outside) if self.is_written_back(&path) => {
                    let done = match is_whiteout(&stat) {
                        true => self.delete(outside, &path),
                        false => self.file(upper, outside, &path),
                    };
                    done.unwrap_or_else(|error| self.fail(&path, &error))
                }
                _ => Verdict::Kept,
            };
            self.note(upper, path, &stat, verdict)?;
        }
        Ok(())
    }

    fn is_written_back(&self, path: &Path) -> bool {
        self.item.list.iter().any(|listed| listed == path)
            || self.item.kind == Kind::Agent && rules::is_state(path)
    }

    fn fail(&mut self, path: &Path, error: &io::Error) -> Verdict {
        let path = self.item.at.join(path);
        self.found
            .failed
            .push(format!("{}: {error}", path.display()));
        Verdict::Kept
    }

    fn note(
        &mut self,
        upper: &OwnedFd,
        path: PathBuf,
        stat: &Stat,
        verdict: Verdict,
    ) -> io::Result<()> {
        let outside = self.item.at.join(&path);
        let is_new = Stamp::of(stat).changed > self.begun.changed;
        match verdict {
            Verdict::Written => {
                self.found.written.insert(outside);
            }
            // Points to mount on are no changes.
            Verdict::Kept if is_new && self.is_last => {
                self.found.kept.insert(outside);
            }
            Verdict::Conflict if self.is_last => {
                let to = self.aside.join(path.file_name().unwrap_or_default());
                let to = put_aside(&self.item.upper().join(&path), to)?;
                self.found.conflicts.push((outside, to));
                return Ok(());
            }
            _ => {}
        }
        // What the machine has as well would hide what it becomes there.
        let is_same = matches!(verdict, Verdict::Written | Verdict::Done);
        if is_same && self.is_last && self.item.kind != Kind::Names {
            let (parent, name) = (path.parent(), path.file_name());
            let dir = open_dir(upper.as_fd(), parent.unwrap_or(Path::new("")))?;
            unlinkat(&dir, name.unwrap_or_default(), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Whether the machine's file is what it was when the run began, or when this wrote it.
    fn is_unchanged(&self, path: &Path, outside: Option<&Stat>) -> bool {
        let own = self.own.get(&self.item.at.join(path));
        match (outside.map(Stamp::of), own) {
            (stamp, Some(own)) => stamp == *own,
            (Some(stamp), None) => stamp.changed <= self.begun.changed,
            (None, None) => true,
        }
    }

    /// The same of all files of a database, if it is part of one.
    fn is_database_unchanged(&self, outside: &OwnedFd, path: &Path) -> io::Result<bool> {
        for file in rules::database(path)
            .iter()
            .flat_map(|db| rules::files_of(db))
        {
            let stat = look(outside.as_fd(), &file)?;
            if !self.is_unchanged(&file, stat.as_ref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn file(&mut self, upper: &OwnedFd, outside: &OwnedFd, path: &Path) -> io::Result<Verdict> {
        let is_database = rules::database(path).is_some();
        let is_listed = self.item.list.iter().any(|listed| listed == path);
        let there = look(outside.as_fd(), path)?;
        // A new file may be one that a program is about to rename.
        let is_early = is_database || there.is_none() && !is_listed;
        if is_early && !self.is_last {
            return Ok(Verdict::Nothing);
        }
        let Some((mut file, stat)) = open_file(upper.as_fd(), path)? else {
            return Ok(Verdict::Kept);
        };
        let is_plain =
            |stat: &Stat| kind(stat) == FileType::RegularFile && stat.st_mode & EXECUTABLE == 0;
        let is_harmless = is_plain(&stat) && there.as_ref().is_none_or(is_plain);
        if !(is_listed || is_harmless) {
            return Ok(Verdict::Kept);
        }
        let there = match there {
            Some(_) => match open_file(outside.as_fd(), path)? {
                None => return Ok(Verdict::Kept),
                there => there,
            },
            None => None,
        };
        if path.file_name().is_some_and(|name| name == GUARDED) {
            match guarded(&mut file, there.as_ref())? {
                Some(new) => file = new,
                None => return Ok(Verdict::Kept),
            }
        }
        if let Some((there, _)) = &there
            && is_same(&mut file, &mut there.try_clone()?)?
        {
            return Ok(Verdict::Done);
        }
        let there = there.map(|(_, stat)| stat);
        let is_free = match is_database {
            true => self.is_database_unchanged(outside, path)?,
            false => self.is_unchanged(path, there.as_ref()),
        };
        if !is_free {
            let is_changed = Stamp::of(&stat).changed > self.begun.changed;
            return Ok(match is_changed || self.item.kind != Kind::Names {
                true => Verdict::Conflict,
                false => Verdict::Nothing,
            });
        }
        file.rewind()?;
        let written = write(outside, path, &mut file, &stat, there.as_ref())?;
        self.own.insert(self.item.at.join(path), Some(written));
        Ok(Verdict::Written)
    }

    /// Deletes a file that was deleted in the copy.
    fn delete(&mut self, outside: &OwnedFd, path: &Path) -> io::Result<Verdict> {
        let Some(stat) = look(outside.as_fd(), path)? else {
            return Ok(Verdict::Done);
        };
        let is_plain = kind(&stat) == FileType::RegularFile && stat.st_mode & EXECUTABLE == 0;
        if !is_plain {
            return Ok(Verdict::Kept);
        }
        if !self.is_last {
            return Ok(Verdict::Nothing);
        }
        let is_free = match rules::database(path) {
            Some(_) => self.is_database_unchanged(outside, path)?,
            None => self.is_unchanged(path, Some(&stat)),
        };
        if !is_free {
            // What somebody has just written is not deleted, and seen again.
            return Ok(Verdict::Done);
        }
        let dir = open_dir(outside.as_fd(), path.parent().unwrap_or(Path::new("")))?;
        unlinkat(&dir, path.file_name().unwrap_or_default(), AtFlags::empty())?;
        self.own.insert(self.item.at.join(path), None);
        Ok(Verdict::Written)
    }
}

/// Moves a file to a name that nothing has.
fn put_aside(from: &Path, to: PathBuf) -> io::Result<PathBuf> {
    let dir = to.parent().unwrap_or(Path::new("/")).to_owned();
    std::fs::create_dir_all(&dir)?;
    let mut free = to.clone();
    let mut n = 1;
    while free.symlink_metadata().is_ok() {
        n += 1;
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{n}"));
        free = dir.join(name);
    }
    std::fs::rename(from, &free)?;
    Ok(free)
}

/// What is to be written of a file that is written in part.
fn guarded(inside: &mut File, outside: Option<&(File, Stat)>) -> io::Result<Option<File>> {
    let read = |file: &File| {
        let mut bytes = Vec::new();
        file.take(GUARDED_BYTES_MAX).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let new = read(inside)?;
    let old = match outside {
        Some((file, _)) => Some(read(file)?),
        None => None,
    };
    if let Some((file, _)) = outside {
        let mut file: &File = file;
        file.rewind()?;
    }
    // Not touched by the run: the same bytes, whatever their order.
    let text = match old.as_ref() == Some(&new) {
        true => Some(new),
        false => rules::guarded(&new, old.as_deref()),
    };
    let Some(text) = text else {
        return Ok(None);
    };
    let memory = rustix::fs::memfd_create(c"agentvfs", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut memory = File::from(memory);
    memory.write_all(&text)?;
    memory.rewind()?;
    Ok(Some(memory))
}

/// Writes a file of the machine: as a whole or not at all where that is possible. Gives what is there then.
fn write(
    outside: &OwnedFd,
    path: &Path,
    from: &mut File,
    inside: &Stat,
    there: Option<&Stat>,
) -> io::Result<Stamp> {
    let parent = path.parent().unwrap_or(Path::new(""));
    let dir = make_dir(outside.as_fd(), parent, 0o700)?;
    let name = path.file_name().unwrap_or_default();
    // Who else has it under another name is to see the change.
    let is_shared = there.is_some_and(|stat| stat.st_nlink > 1);
    let replaced = match is_shared {
        true => None,
        false => replace(&dir, Path::new(name), from, inside, there)?,
    };
    match replaced {
        Some(stamp) => Ok(stamp),
        None => {
            from.rewind()?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut to = File::from(openat(&dir, name, flags, mode(inside, there))?);
            to.set_len(0)?;
            io::copy(from, &mut to)?;
            Ok(Stamp::of(&fstat(&to)?))
        }
    }
}

fn mode(inside: &Stat, there: Option<&Stat>) -> Mode {
    match there {
        Some(there) => Mode::from_raw_mode(there.st_mode & 0o777),
        None => Mode::from_raw_mode(inside.st_mode & 0o666),
    }
}

/// Writes a new file over an old one; none where no file can be made beside it.
fn replace(
    dir: &OwnedFd,
    name: &Path,
    from: &mut File,
    inside: &Stat,
    there: Option<&Stat>,
) -> io::Result<Option<Stamp>> {
    let new = format!(".agentvfs-{}.tmp", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    // One that a killed process of this number left.
    let _ = unlinkat(dir, new.as_str(), AtFlags::empty());
    let to = match openat(dir, new.as_str(), flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
        to => to?,
    };
    let mut to = File::from(to);
    let mut fill = || -> io::Result<()> {
        io::copy(from, &mut to)?;
        if let Some(there) = there {
            let own = fstat(&to)?;
            if (own.st_uid, own.st_gid) != (there.st_uid, there.st_gid) {
                let (uid, gid) = (there.st_uid, there.st_gid);
                let (uid, gid) = (
                    rustix::fs::Uid::from_raw(uid),
                    rustix::fs::Gid::from_raw(gid),
                );
                fchown(&to, Some(uid), Some(gid))?;
            }
        }
        fchmod(&to, mode(inside, there))?;
        let time = |sec, nsec: u64| Timespec {
            tv_sec: sec,
            tv_nsec: nsec as _,
        };
        let times = Timestamps {
            last_access: time(inside.st_atime, inside.st_atime_nsec),
            last_modification: time(inside.st_mtime, inside.st_mtime_nsec),
        };
        futimens(&to, &times)?;
        Ok(renameat(dir, new.as_str(), dir, name)?)
    };
    if let Err(error) = fill() {
        // It is nobody's.
        let _ = unlinkat(dir, new.as_str(), AtFlags::empty());
        return Err(error);
    }
    Ok(Some(Stamp::of(&fstat(&to)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    struct Case {
        dir: TempDir,
        item: Item,
        begun: Stamp,
        own: Own,
    }

    impl Case {
        fn new(kind: Kind, list: &[&str], outside: &[(&str, &str)]) -> Case {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("out");
            for (path, text) in outside {
                put(&at.join(path), text);
            }
            let item = Item {
                kind,
                dir: dir.path().join("item"),
                at,
                list: list.iter().map(PathBuf::from).collect(),
            };
            fs::create_dir_all(item.upper()).unwrap();
            fs::create_dir_all(&item.at).unwrap();
            // Times of files are as fine as the kernel's clock ticks.
            let stamp = || {
                let path = dir.path().join("begun");
                fs::write(&path, "").unwrap();
                Stamp::of(&rustix::fs::stat(&path).unwrap())
            };
            let (first, mut begun) = (stamp(), stamp());
            while begun.changed <= first.changed {
                std::thread::yield_now();
                begun = stamp();
            }
            Case {
                item,
                begun,
                own: Own::new(),
                dir,
            }
        }

        fn inside(&self, path: &str, text: &str) {
            put(&self.item.upper().join(path), text);
        }

        fn outside(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.item.at.join(path)).ok()
        }

        fn pass(&mut self, is_last: bool) -> Found {
            let mut found = Found::default();
            let mut pass = Pass {
                item: &self.item,
                begun: self.begun,
                is_last,
                aside: &self.dir.path().join("aside"),
                own: &mut self.own,
                found: &mut found,
            };
            pass.run().unwrap();
            found
        }
    }

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn state_is_written_back_and_what_runs_is_not() {
        let mut case = Case::new(
            Kind::Agent,
            &[],
            &[("history.jsonl", "1"), ("settings.json", "own")],
        );
        case.inside("history.jsonl", "12");
        case.inside("projects/p/new.jsonl", "n");
        for path in [
            "settings.json",
            "CLAUDE.md",
            "plugins/x",
            "hooks/h",
            "new.json",
        ] {
            case.inside(path, "evil");
        }
        case.inside("program", "evil");
        fs::set_permissions(
            case.item.upper().join("program"),
            PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        symlink("/etc/passwd", case.item.upper().join("link")).unwrap();
        let found = case.pass(true);
        assert_eq!((found.written.len(), found.kept.len()), (2, 7), "{found:?}");
        assert_eq!(case.outside("history.jsonl").unwrap(), "12");
        assert_eq!(case.outside("projects/p/new.jsonl").unwrap(), "n");
        assert_eq!(case.outside("settings.json").unwrap(), "own");
        for path in [
            "CLAUDE.md",
            "plugins",
            "hooks",
            "new.json",
            "program",
            "link",
        ] {
            assert!(
                case.item.at.join(path).symlink_metadata().is_err(),
                "{path}"
            );
        }
        let upper = |path: &str| case.item.upper().join(path).symlink_metadata().is_ok();
        assert!(upper("settings.json") && upper("plugins/x") && !upper("history.jsonl"));
    }

    #[test]
    fn what_both_sides_changed_is_kept_of_both() {
        let mut case = Case::new(Kind::Agent, &[], &[("history", "1"), ("s.db", "db")]);
        case.inside("history", "inside");
        case.inside("s.db", "inside");
        put(&case.item.at.join("history"), "outside");
        put(&case.item.at.join("s.db-wal"), "outside");
        let found = case.pass(true);
        assert_eq!(
            (found.conflicts.len(), found.written.len()),
            (2, 0),
            "{found:?}"
        );
        assert_eq!(case.outside("history").unwrap(), "outside");
        assert_eq!(case.outside("s.db").unwrap(), "db");
        assert_eq!(fs::read_to_string(&found.conflicts[0].1).unwrap(), "inside");
    }

    #[test]
    fn what_was_written_before_is_no_change_of_somebody_else() {
        let mut case = Case::new(Kind::Agent, &[], &[("log", "1")]);
        for text in ["12", "123"] {
            case.inside("log", text);
            let found = case.pass(false);
            assert_eq!(found.written.len(), 1, "{found:?}");
            assert_eq!(case.outside("log").unwrap(), text);
        }
        case.inside("s.db", "torn");
        assert!(case.pass(false).written.is_empty());
    }

    #[test]
    fn links_and_programs_of_the_machine_stay() {
        let mut case = Case::new(Kind::Agent, &[], &[("other/f", "own"), ("run", "own")]);
        let at = case.item.at.clone();
        fs::set_permissions(at.join("run"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("other", at.join("dir")).unwrap();
        symlink("other/f", at.join("link")).unwrap();
        for path in ["run", "dir/f", "link"] {
            case.inside(path, "evil");
        }
        let found = case.pass(true);
        assert!(found.written.is_empty(), "{found:?}");
        assert_eq!(case.outside("other/f").unwrap(), "own");
        assert_eq!(case.outside("run").unwrap(), "own");
    }

    #[test]
    fn of_a_cache_only_listed_files_are_written() {
        let mut case = Case::new(Kind::Cache, &["one"], &[("one", "1"), ("two", "2")]);
        case.inside("one", "a");
        case.inside("two", "b");
        case.pass(true);
        assert_eq!(
            (
                case.outside("one").unwrap().as_str(),
                case.outside("two").unwrap().as_str()
            ),
            ("a", "2")
        );
    }

    #[test]
    fn of_a_file_that_names_programs_the_rest_is_written() {
        let outside = r#"{"n": 1, "mcpServers": {}}"#;
        let mut case = Case::new(Kind::Names, &[GUARDED], &[(GUARDED, outside)]);
        case.inside(GUARDED, r#"{"n": 2, "mcpServers": {"evil": 1}}"#);
        assert_eq!(case.pass(true).written.len(), 1);
        let text = case.outside(GUARDED).unwrap();
        assert!(
            text.contains("\"n\": 2") && !text.contains("evil"),
            "{text}"
        );
        case.inside(GUARDED, "no json");
        assert!(case.pass(true).written.is_empty());
        assert_eq!(case.outside(GUARDED).unwrap(), text);
    }
}
