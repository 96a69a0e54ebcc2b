//! Descriptors 0 to 2 of the command. A directory or a file of the machine that is given as one of them could be
//! opened again through `/proc/self/fd`, for writing: the mount that it was opened by is the machine's, which is
//! not read-only. So a directory becomes `/dev/null`, and a file to be read is copied through a pipe.

use crate::error::{Doing, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A descriptor that the command does not get as it was given: its number, and what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced(pub i32, pub &'static str);

/// What the command gets.
#[derive(Default)]
pub struct Descriptors {
    /// In place of what this process has.
    pub given: Vec<(i32, OwnedFd)>,
    /// What was replaced by `/dev/null`.
    pub replaced: Vec<Replaced>,
    /// What is copied into standard input.
    pub copied: Option<Copied>,
}

impl Descriptors {
    /// Looks at what this process has.
    pub fn look() -> Result<Descriptors> {
        let mut all = Descriptors::default();
        all.look_at(0, rustix::stdio::stdin())?;
        all.look_at(1, rustix::stdio::stdout())?;
        all.look_at(2, rustix::stdio::stderr())?;
        Ok(all)
    }

    fn look_at(&mut self, number: i32, fd: BorrowedFd<'_>) -> Result<()> {
        let what = || format!("looking at descriptor {number}");
        let kind = match rustix::fs::fstat(fd) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::BADF) => return self.replace(number, "closed"),
            Err(errno) => return Err(errno).doing(what),
        };
        let flags = rustix::fs::fcntl_getfl(fd).doing(what)?;
        let is_file = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        match number {
            _ if kind == FileType::Directory => self.replace(number, "a directory"),
            _ if flags.contains(OFlags::PATH) => self.replace(number, "only a path"),
            0 if is_file => self.copy(fd),
            _ if is_file && flags & OFlags::RWMODE != OFlags::WRONLY && number != 0 => {
                self.replace_unless_written(number, flags)
            }
            _ => Ok(()),
        }
    }

    /// A file for output that is open for reading alone could be opened for writing.
    fn replace_unless_written(&mut self, number: i32, flags: OFlags) -> Result<()> {
        match flags & OFlags::RWMODE == OFlags::RDWR {
            true => Ok(()),
            false => self.replace(number, "a file that is not open for writing"),
        }
    }

    fn replace(&mut self, number: i32, was: &'static str) -> Result<()> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        self.given
            .push((number, null.doing(|| "opening /dev/null".to_owned())?));
        self.replaced.push(Replaced(number, was));
        Ok(())
    }

    fn copy(&mut self, from: BorrowedFd<'_>) -> Result<()> {
        let what = || "making a pipe for standard input".to_owned();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).doing(what)?;
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).doing(what)?;
        let from = from.try_clone_to_owned().doing(what)?;
        self.given.push((0, read));
        self.copied = Some(Copied {
            from,
            to: write,
            buffer: Vec::new(),
            written: 0,
        });
        Ok(())
    }
}

/// A file on its way into a pipe.
pub struct Copied {
    from: OwnedFd,
    to: OwnedFd,
    buffer: Vec<u8>,
    written: usize,
}

impl Copied {
    /// The pipe, to wait until it takes more.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Copies a piece; false at the end, or where nobody reads any more.
    pub fn step(&mut self) -> bool {
        if self.written == self.buffer.len() {
            self.buffer.resize(BUFFER_BYTES, 0);
            self.written = 0;
            let count = match rustix::io::read(&self.from, &mut self.buffer[..]) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(_) => return false,
            };
            self.buffer.truncate(count);
        }
        match rustix::io::write(&self.to, &self.buffer[self.written..]) {
            Ok(count) => self.written += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    fn given(number: i32, fd: BorrowedFd<'_>) -> Descriptors {
        let mut all = Descriptors::default();
        all.look_at(number, fd).unwrap();
        all
    }

    #[test]
    fn directories_become_nothing_wherever_they_are() {
        let dir = File::open("/").unwrap();
        for number in 0..3 {
            let found = given(number, dir.as_fd());
            assert_eq!(found.replaced, [Replaced(number, "a directory")]);
            assert_eq!(found.given.len(), 1);
        }
    }

    #[test]
    fn files_are_copied_in_and_written_out() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text = vec![b'x'; 3 * BUFFER_BYTES + 1];
        file.write_all(&text).unwrap();
        let opened = File::open(file.path()).unwrap();
        let mut found = given(0, opened.as_fd());
        let mut copied = found.copied.take().unwrap();
        let mut pipe = File::from(found.given.remove(0).1);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            pipe.read_to_end(&mut all).unwrap();
            all
        });
        while copied.step() {
            std::thread::yield_now();
        }
        drop(copied);
        assert_eq!(reader.join().unwrap(), text);
        assert_eq!(given(1, opened.as_fd()).replaced.len(), 1);
        assert!(given(1, file.as_file().as_fd()).given.is_empty());
    }

    #[test]
    fn a_reader_that_leaves_ends_the_copying() {
        let file = File::open("/proc/self/exe").unwrap();
        let mut found = given(0, file.as_fd());
        let mut copied = found.copied.take().unwrap();
        found.given.clear();
        while copied.step() {}
    }
}
