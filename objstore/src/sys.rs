//! The only unsafe code of the store: mapping a file.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a file of the store that is only ever replaced by rename.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the bytes of a mapping must not change under a reference to them. The file is one of the store's,
    // in a directory of mode 0700, and the store replaces such files by rename: this inode stays as it is.
    unsafe { Mmap::map(file) }
}
