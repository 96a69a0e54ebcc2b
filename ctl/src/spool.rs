//! A long result that is kept until it is whole: in memory, and from some size on in a file without a
//! name. So half of a patch is never printed, and a slow reader does not make the daemon wait.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Seek, Write};

/// Bytes that are kept in memory.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// What has come so far.
pub struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
    failed: Option<io::Error>,
}

impl Spool {
    /// Nothing yet.
    pub fn new() -> Spool {
        Spool {
            memory: Vec::new(),
            file: None,
            failed: None,
        }
    }

    /// Takes more. An error is told by [`Spool::rewind`].
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if let Err(e) = self.try_push(bytes) {
            self.failed = Some(e);
        }
    }

    fn try_push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() <= MEMORY_BYTES_MAX {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        if self.file.is_none() {
            let mut file = nameless()?;
            file.write_all(&self.memory)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    /// All of it, to be read from the beginning.
    pub fn rewind(self) -> io::Result<Box<dyn BufRead>> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        match self.file {
            None => Ok(Box::new(Cursor::new(self.memory))),
            Some(mut file) => {
                file.rewind()?;
                Ok(Box::new(BufReader::new(file)))
            }
        }
    }
}

/// A file without a name in the directory for temporary files; where its file system has no such
/// files, in memory.
fn nameless() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(std::env::temp_dir(), flags, mode) {
        Ok(file) => Ok(file.into()),
        Err(_) => Ok(rustix::fs::memfd_create("patch", rustix::fs::MemfdFlags::CLOEXEC)?.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_went_in_comes_out_from_memory_and_from_a_file() {
        for (pieces, piece) in [(3, 10), (5, MEMORY_BYTES_MAX / 2)] {
            let mut spool = Spool::new();
            for i in 0..pieces {
                spool.push(&vec![i as u8; piece]);
            }
            let mut all = Vec::new();
            spool.rewind().unwrap().read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), pieces * piece);
            assert!((0..pieces).all(|i| all[i * piece] == i as u8));
        }
    }
}
