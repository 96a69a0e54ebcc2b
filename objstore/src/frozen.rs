//! Bytes of a file that never changes: read into memory, or mapped.
//!
//! A mapped page is fetched when it is touched, and the kernel drops it again where memory is short. If the disk
//! cannot give it back then, the process gets SIGBUS instead of an error: every block is therefore read once before
//! it is mapped, and a file that cannot be read is not mapped.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;

use memmap2::{Advice, Mmap};

use crate::sys;

/// Smaller files are read: a mapping costs the kernel more than it saves.
const MAP_BYTES_MIN: u64 = 64 << 10;
/// Read at once before a file is mapped.
const READ_BYTES: usize = 128 << 10;

/// Bytes of a file that is replaced by rename and never written in place.
#[derive(Debug)]
pub struct Frozen(Bytes);

#[derive(Debug)]
enum Bytes {
    Read(Vec<u8>),
    Mapped(Mmap),
}

impl Default for Frozen {
    fn default() -> Frozen {
        Frozen::from(Vec::new())
    }
}

impl From<Vec<u8>> for Frozen {
    fn from(bytes: Vec<u8>) -> Frozen {
        Frozen(Bytes::Read(bytes))
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Read(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

impl Frozen {
    /// The bytes of an open file, from its beginning. Nobody may write or cut it as long as the result lives.
    ///
    /// Fails where a block cannot be read.
    pub(crate) fn of_file(mut file: File) -> io::Result<Frozen> {
        if file.metadata()?.len() < MAP_BYTES_MIN {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return Ok(Frozen::from(bytes));
        }
        let mut block = vec![0; READ_BYTES];
        while file.read(&mut block)? > 0 {}
        let map = sys::map(&file)?;
        // Ids are spread evenly: what is beside a page that is looked at is not looked at next. A kernel that
        // takes no advice only reads more.
        let _ = map.advise(Advice::Random);
        Ok(Frozen(Bytes::Mapped(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn is_mapped(bytes: &Frozen) -> bool {
        matches!(bytes.0, Bytes::Mapped(_))
    }

    #[test]
    fn large_files_are_mapped_and_stay_when_they_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for len in [
            0,
            1,
            MAP_BYTES_MIN - 1,
            MAP_BYTES_MIN,
            3 * READ_BYTES as u64 + 7,
        ] {
            let content: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            fs::write(&path, &content).unwrap();
            let frozen = Frozen::of_file(File::open(&path).unwrap()).unwrap();
            assert_eq!(is_mapped(&frozen), len >= MAP_BYTES_MIN, "{len} bytes");
            fs::write(dir.path().join("new"), b"other").unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
            assert!(*frozen == content[..], "{len} bytes");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Frozen::of_file(File::open(dir.path()).unwrap()).is_err());
    }
}
