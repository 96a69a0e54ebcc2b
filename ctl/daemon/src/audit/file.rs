//! The file that events are appended to, and those that it was before.
//!
//! `FILE` becomes `FILE.1` when it is full, `FILE.1` becomes `FILE.2`, and so on; the last one goes. Invariants: the file has
//! whole lines, but for the time of a write, after which a crash can leave a part of one, which is cut off when it is
//! opened again. A file with anything else in it than events is not touched. One writer has it at a time (flock(2)).

use agentvfs_client::protocol::EventLine;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Size at which a file is put aside.
pub const ROTATE_BYTES: u64 = 64 << 20;

/// Files that are kept beside it.
const KEPT_MAX: u32 = 15;

/// How much of the end of a file is looked at for its last line, which has two paths.
const TAIL_BYTES: u64 = 4 << 20;

/// What every line begins with.
const BEGINNING: &[u8] = b"{\"ts\":";

/// A file with events that more are appended to.
pub struct AuditFile {
    path: PathBuf,
    file: File,
    /// Which file it is.
    id: (u64, u64),
    len: u64,
    /// Size at which it is put aside.
    limit: u64,
}

impl AuditFile {
    /// Opens or creates it. One that has something else in it is an error of kind `InvalidData`.
    pub fn open(path: &Path, limit: u64) -> io::Result<AuditFile> {
        // Opening a pipe does not wait.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags.cast_signed())
            .open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another workspace writes to it"));
            }
            Err(error) => return Err(error.into()),
        }
        let len = end_of_events(&file, found.len())?;
        if len < found.len() {
            file.set_len(len)?;
        }
        Ok(AuditFile {
            path: path.to_owned(),
            file,
            id: id_of(&found),
            len,
            limit,
        })
    }

    /// The same; one that has something else in it, as after a crash of the machine, is put aside.
    pub fn open_or_replace(path: &Path, limit: u64) -> io::Result<AuditFile> {
        match AuditFile::open(path, limit) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!("{} is put aside: {error}", path.display());
                put_aside(path)?;
                AuditFile::open(path, limit)
            }
            opened => opened,
        }
    }

    /// Appends whole lines: all of them, or none.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if !self.is_still_there()? {
            // Somebody else has put it aside.
            *self = AuditFile::open_or_replace(&self.path, self.limit)?;
        }
        let len = lines.len() as u64;
        if self.len > 0 && self.len.saturating_add(len) > self.limit {
            put_aside(&self.path)?;
            *self = AuditFile::open(&self.path, self.limit)?;
        }
        if let Err(error) = (&self.file).write_all(lines) {
            // Where that fails, too, it is cut off when it is opened again.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += len;
        Ok(())
    }

    fn is_still_there(&self) -> io::Result<bool> {
        match self.path.metadata() {
            Ok(found) => Ok(id_of(&found) == self.id),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for AuditFile {
    /// Closing it does not do: until a child that was just forked runs its own program, it has the file open, too.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn id_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Gives each file the next number. A crash in between leaves out a number.
fn put_aside(path: &Path) -> io::Result<()> {
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    for n in (1..KEPT_MAX).rev() {
        match rename(numbered(n), numbered(n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    rename(path, numbered(1))
}

/// Where the last whole line ends, which must be an event; behind it may be a part of one.
fn end_of_events(file: &File, len: u64) -> io::Result<u64> {
    let from = len.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(len - from).map_err(io::Error::other)?];
    file.read_exact_at(&mut tail, from)?;
    let newline_before = |end: usize| tail[..end].iter().rposition(|byte| *byte == b'\n');
    let is_event = match newline_before(tail.len()) {
        Some(end) => {
            let begin = newline_before(end).map_or(0, |at| at + 1);
            serde_json::from_slice::<EventLine>(&tail[begin..end]).is_ok()
        }
        // A part of the first line.
        None => from == 0 && (tail.starts_with(BEGINNING) || BEGINNING.starts_with(&tail)),
    };
    if !is_event {
        let why = "it has something else than events";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let end = newline_before(tail.len()).map_or(0, |at| at as u64 + 1);
    Ok(from + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read, read_to_string, write};

    fn line(n: u64) -> Vec<u8> {
        let event = EventLine {
            ts: n,
            ..EventLine::default()
        };
        let mut line = serde_json::to_vec(&event).unwrap();
        line.push(b'\n');
        line
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        (dir, path)
    }

    fn refused(path: &Path) -> String {
        AuditFile::open(path, ROTATE_BYTES)
            .err()
            .unwrap()
            .to_string()
    }

    #[test]
    fn a_part_of_a_line_is_cut_off_and_more_is_appended() {
        let (_dir, path) = place();
        for whole in 0..3 {
            let before: Vec<u8> = (0..whole).flat_map(line).collect();
            for cut in 0..line(7).len() {
                write(&path, [&before, &line(7)[..cut]].concat()).unwrap();
                let mut file = AuditFile::open(&path, ROTATE_BYTES).unwrap();
                file.append(&line(8)).unwrap();
                assert_eq!(read(&path).unwrap(), [&before[..], &line(8)].concat());
            }
        }
    }

    #[test]
    fn what_is_no_file_of_events_is_left_alone() {
        let (dir, path) = place();
        for text in ["a,b\n1,2\n", "x", "{\"ts\":1}\n", "[1]\n{\"ts\":"] {
            write(&path, text).unwrap();
            assert!(refused(&path).contains("something else"), "{text}");
            assert_eq!(read_to_string(&path).unwrap(), text);
        }
        drop(AuditFile::open_or_replace(&path, ROTATE_BYTES).unwrap());
        let aside = dir.path().join("events.1");
        assert_eq!(read_to_string(aside).unwrap(), "[1]\n{\"ts\":");
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(refused(&pipe).contains("no regular file"));
        assert!(AuditFile::open(dir.path(), ROTATE_BYTES).is_err());
    }

    #[test]
    fn one_writer_has_it_at_a_time() {
        let (_dir, path) = place();
        let first = AuditFile::open(&path, ROTATE_BYTES).unwrap();
        assert!(refused(&path).contains("another workspace"));
        drop(first);
        assert!(AuditFile::open(&path, ROTATE_BYTES).is_ok());
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let (dir, path) = place();
        let limit = 2 * line(1).len() as u64;
        let mut file = AuditFile::open(&path, limit).unwrap();
        let all = 2 * u64::from(KEPT_MAX) + 6;
        (0..all).for_each(|n| file.append(&line(n % 10)).unwrap());
        let mut found = Vec::new();
        for n in (1..=KEPT_MAX).rev() {
            found.extend(read(dir.path().join(format!("events.{n}"))).unwrap());
        }
        found.extend(read(&path).unwrap());
        // The two oldest files are gone.
        let wanted: Vec<u8> = (4..all).flat_map(|n| line(n % 10)).collect();
        assert_eq!(found, wanted);
        assert_eq!(
            dir.path().read_dir().unwrap().count(),
            KEPT_MAX as usize + 1
        );
        // A line that is longer than a file may be has one of its own.
        let mut file = {
            drop(file);
            AuditFile::open(&path, 1).unwrap()
        };
        file.append(&line(1)).unwrap();
        assert_eq!(read(&path).unwrap(), line(1));
    }

    #[test]
    fn a_file_that_somebody_else_moved_is_made_anew() {
        let (dir, path) = place();
        let mut file = AuditFile::open(&path, ROTATE_BYTES).unwrap();
        file.append(&line(1)).unwrap();
        rename(&path, dir.path().join("elsewhere")).unwrap();
        file.append(&line(2)).unwrap();
        assert_eq!(read(&path).unwrap(), line(2));
        std::fs::remove_file(&path).unwrap();
        file.append(&line(3)).unwrap();
        assert_eq!(read(&path).unwrap(), line(3));
    }
}
