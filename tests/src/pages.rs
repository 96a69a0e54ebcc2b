//! Files whose pages tell which state they belong to.
//!
//! The first word of each page is an epoch and a counter. A checkpoint holds one epoch. Processes
//! only ever add to the counter, by one atomic instruction that the kernel repeats as a whole where it
//! takes the page away in the middle, so no process can carry an old epoch into a new state: a page
//! with another epoch than the one shown is stale, and a counter that went back is a lost change.

use crate::sys::{Mapping, PAGE};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A word's epoch and counter.
pub fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Makes every page of the file at `path` the first of `epoch`.
pub fn stamp(path: &Path, pages: usize, epoch: u32) {
    let options = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = options.unwrap();
    for page in 0..pages {
        let mut bytes = vec![epoch as u8; PAGE];
        bytes[..8].copy_from_slice(&(u64::from(epoch) << 32).to_le_bytes());
        file.write_all_at(&bytes, (page * PAGE) as u64).unwrap();
    }
}

/// Words of all pages, read through `file`.
pub fn words(file: &File, pages: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; pages * PAGE];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes
        .chunks(PAGE)
        .map(|page| u64::from_le_bytes(page[..8].try_into().expect("eight bytes")))
        .collect())
}

/// A file that is looked at in every way that may show something old.
pub struct Watched {
    path: std::path::PathBuf,
    file: File,
    mapping: Mapping,
}

impl Watched {
    /// Opens and maps it now, to look again later.
    pub fn new(path: &Path, pages: usize) -> Watched {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mapping = Mapping::new(&file, pages).unwrap();
        Watched {
            path: path.to_owned(),
            file,
            mapping,
        }
    }

    /// Words as the old mapping, the old descriptor and a new descriptor show them.
    pub fn looks(&self) -> [Vec<u64>; 3] {
        let pages = self.mapping.pages();
        let mapped = (0..pages).map(|page| self.mapping.get(page)).collect();
        let old = words(&self.file, pages).unwrap();
        let new = words(&File::open(&self.path).unwrap(), pages).unwrap();
        [mapped, old, new]
    }

    /// Pages that show another epoch than `epoch`, however they are looked at.
    pub fn stale(&self, epoch: u32) -> Vec<String> {
        let mut out = Vec::new();
        for (way, words) in ["mapping", "descriptor", "new descriptor"]
            .iter()
            .zip(self.looks())
        {
            for (page, word) in words.iter().enumerate() {
                let (found, count) = split(*word);
                if found != epoch {
                    out.push(format!("{way}, page {page}: epoch {found}, count {count}"));
                }
            }
        }
        out
    }
}

/// What a test and its workers share: a small mapped file outside of any mount.
pub struct Control(Mapping);

/// Workers that a control has room for.
const WORKERS: usize = 16;

impl Control {
    /// Makes one.
    pub fn create(path: &Path) -> Control {
        let file = File::create_new(path).unwrap();
        file.set_len(((WORKERS + 1) * PAGE) as u64).unwrap();
        drop(file);
        Control::open(path)
    }

    /// Opens one that was made.
    pub fn open(path: &Path) -> Control {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        Control(Mapping::new(&file, WORKERS + 1).unwrap())
    }

    /// Tells all workers to end.
    pub fn stop(&self) {
        self.0.word(0).store(1, Ordering::SeqCst);
    }

    /// Whether workers are to end.
    pub fn is_stopped(&self) -> bool {
        self.0.get(0) != 0
    }

    /// A worker did something.
    pub fn tick(&self, worker: usize) {
        self.0.word(worker + 1).fetch_add(1, Ordering::SeqCst);
    }

    /// How much a worker has done.
    pub fn ticks(&self, worker: usize) -> u64 {
        self.0.get(worker + 1)
    }
}
