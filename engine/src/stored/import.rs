//! Importing files of the base into the store.
//!
//! A file's content is found in the import table where this version was imported before, else it is
//! read, chunked and stored. A version whose change time is younger than [`SETTLED`] is read twice, as a
//! change within the same clock tick would not show in the times.
//!
//! A file that cannot be read is told by [`Error::BaseUnreadable`]: whoever stores a tree leaves it out.

use crate::base::{BaseFile, ReadOutcome, Stamp};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::stored::data::Places;
use crate::tree::file::{Body, FileData, Src};
use crate::tree::inode::Inode;
use crate::types::{Nid, Time};
use objstore::Source;
use objstore::content::FileContent;
use objstore::import_table::{ImportEntry, ImportTable};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Age of a file's last change from which on its times identify its content.
const SETTLED: Duration = Duration::from_secs(2);
/// Longer than the kernel's clock for file times takes for a step.
const TICK: Duration = Duration::from_millis(20);
/// Least number of files for which threads are worth their start.
const PARALLEL_FILES_MIN: usize = 8;

/// Figures and state of the import of one workspace.
#[derive(Debug)]
pub struct Importer {
    table: Arc<ImportTable>,
    /// Files and bytes that were found, and of these, what is in the store.
    pub files_total: AtomicU64,
    /// See `files_total`.
    pub files_done: AtomicU64,
    /// See `files_total`.
    pub bytes_total: AtomicU64,
    /// See `files_total`.
    pub bytes_done: AtomicU64,
    /// Set when stored content was put that no sync has covered yet.
    pub unsynced: AtomicBool,
    /// Set to stop at the next file.
    pub stop: AtomicBool,
    /// When it began.
    pub began: Instant,
}

impl Importer {
    /// An importer that looks up and fills `table`.
    pub fn new(table: Arc<ImportTable>) -> Importer {
        Importer {
            table,
            files_total: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            began: Instant::now(),
        }
    }

    /// One for another view of the same base.
    pub fn again(&self) -> Importer {
        Importer::new(self.table.clone())
    }

    /// Imports the base files that these inodes refer to, on all cores.
    pub fn import_bodies(&self, places: &Places, inodes: &[(Nid, Arc<Inode>)]) -> Result<()> {
        let mut files: Vec<BaseFile> = Vec::new();
        for file in inodes.iter().filter_map(|(_, i)| i.file()) {
            files.extend(
                base_files(file)
                    .into_iter()
                    .filter(|f| f.stored().is_none()),
            );
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(f) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.import_found(places, f)?;
            }
            Ok(())
        };
        if files.len() < PARALLEL_FILES_MIN {
            return work();
        }
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let others = threads
                .into_iter()
                .map(|t| t.join().unwrap_or(Err(Error::Closing)));
            others.fold(mine, |all, one| all.and(one))
        })
    }

    /// Lets go of the import table's memory: nothing is left to import.
    pub fn release(&self) {
        if let Err(e) = self.table.release() {
            tracing::debug!("the import table was not flushed: {e}");
        }
    }

    /// Counts a file that is to be imported; one that is empty is there already.
    pub fn found(&self, stamp: &Stamp) {
        self.files_total.fetch_add(1, Ordering::Relaxed);
        self.bytes_total.fetch_add(stamp.size, Ordering::Relaxed);
        if stamp.size == 0 {
            self.files_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Imports one version of a base file that was counted when it was found.
    pub fn import_found(&self, places: &Places, file: &BaseFile) -> Result<()> {
        if file.stored().is_some() {
            return Ok(());
        }
        self.import(places, file)?;
        self.done(file.stamp());
        Ok(())
    }

    /// Counts a file that was counted when it was found, and that needs no import any more.
    pub fn done(&self, stamp: &Stamp) {
        if stamp.size > 0 {
            self.files_done.fetch_add(1, Ordering::Relaxed);
            self.bytes_done.fetch_add(stamp.size, Ordering::Relaxed);
        }
    }

    /// Imports one version of a base file, whoever asks for it.
    pub fn import(&self, places: &Places, file: &BaseFile) -> Result<FileContent> {
        self.import_unless(places, file, None)
    }

    /// As [`Importer::import`] until that is cancelled.
    pub fn import_unless(
        &self,
        places: &Places,
        file: &BaseFile,
        cancel: Option<&Cancel>,
    ) -> Result<FileContent> {
        if let Some(c) = file.stored() {
            return Ok(c);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Closing);
        }
        let _pin = places.store.pin();
        let content = match self.known(places, file) {
            Some(c) => c,
            None => {
                let reader = FileReader {
                    places,
                    file,
                    cancel,
                    failed: Mutex::default(),
                };
                self.read_in(&reader)
                    .map_err(|e| as_unreadable(places, file, e))?
            }
        };
        file.set_stored(content);
        Ok(content)
    }

    /// Fills in what was imported before of a file's base files, for a base that cannot be read.
    pub fn recall(&self, places: &Places, file: &FileData) {
        let _pin = places.store.pin();
        for f in base_files(file) {
            if f.stored().is_none()
                && let Some(content) = self.known(places, &f)
            {
                f.set_stored(content);
            }
        }
    }

    fn known(&self, places: &Places, file: &BaseFile) -> Option<FileContent> {
        let e = self.table.get(file.stamp().dev, file.stamp().ino).ok()??;
        let s = file.stamp();
        let same = e.size == s.size
            && (e.mtime_sec, e.mtime_nsec) == (s.mtime.sec, s.mtime.nsec)
            && (e.ctime_sec, e.ctime_nsec) == (s.ctime.sec, s.ctime.nsec);
        let there = same && e.content.len() == s.size;
        let there = there && places.store.contains_content(&e.content).ok()?;
        there.then_some(e.content)
    }

    fn read_in(&self, reader: &FileReader<'_>) -> Result<FileContent> {
        let file = reader.file;
        if !is_older(file.stamp().ctime, SETTLED) {
            return self.read_fresh(reader);
        }
        let content = self.store(reader)?;
        let s = file.stamp();
        let entry = ImportEntry {
            size: s.size,
            mtime_sec: s.mtime.sec,
            mtime_nsec: s.mtime.nsec,
            ctime_sec: s.ctime.sec,
            ctime_nsec: s.ctime.nsec,
            content,
        };
        if let Err(e) = self.table.put(s.dev, s.ino, &entry) {
            tracing::debug!("the import table took no entry: {e}");
        }
        Ok(content)
    }

    /// Reads a version of a file into the store.
    fn store(&self, reader: &FileReader<'_>) -> Result<FileContent> {
        let (places, file) = (reader.places, reader.file);
        let data = places.base.data_ranges(file)?;
        self.unsynced.store(true, Ordering::Relaxed);
        let size = file.stamp().size;
        let stored = objstore::store_content(&places.store, None, &[], &data, size, reader);
        stored.map_err(|e| reader.failed.lock().take().unwrap_or(Error::Store(e)))
    }

    /// Reads a version whose last change is young: once a further change would show in its times, and
    /// twice. Where both readings agree nothing was written in between, so it is a state that the file
    /// had at one moment. Not for the table: on file systems with coarse times they say too little.
    fn read_fresh(&self, reader: &FileReader<'_>) -> Result<FileContent> {
        while !is_older(reader.file.stamp().ctime, TICK) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Closing);
            }
            std::thread::sleep(TICK / 4);
        }
        let first = self.store(reader)?;
        if self.store(reader)? == first {
            return Ok(first);
        }
        Err(Error::BaseChanged(reader.file.clone()))
    }
}

/// True where a change is at least this old, or from the future.
fn is_older(ctime: Time, age: Duration) -> bool {
    let now = crate::clock::now();
    let since = |t: Time| i128::from(t.sec) * 1_000_000_000 + i128::from(t.nsec);
    now < ctime || since(now) - since(ctime) >= age.as_nanos() as i128
}

/// Whether all of a file's content is in the store or in a journal.
pub fn is_imported(file: &FileData) -> bool {
    base_files(file).iter().all(|f| f.stored().is_some())
}

/// Base files that a file's content refers to.
pub fn base_files(file: &FileData) -> Vec<BaseFile> {
    let mut out = Vec::new();
    if let (Body::Base(f), 1..) = file.body() {
        out.push(f.clone());
    }
    for piece in file.extents() {
        if let Src::Shared { body, .. } = piece.src
            && let Body::Base(f) = &*body
        {
            out.push(f.clone());
        }
    }
    out
}

/// The error of a file that cannot be read, where `e` says that; else `e` itself.
fn as_unreadable(places: &Places, file: &BaseFile, e: Error) -> Error {
    let is_the_file = match &e {
        Error::Access => true,
        // A bad sector is the file's. Where the whole base cannot be read, nothing may be left out.
        Error::Io { source, .. } => !is_passing(source) && places.base.is_readable(),
        _ => false,
    };
    if !is_the_file {
        return e;
    }
    Error::BaseUnreadable {
        file: file.clone(),
        why: e.to_string(),
    }
}

/// True for errors of this process or of the machine, which say nothing about the file.
fn is_passing(error: &std::io::Error) -> bool {
    let passing = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::AGAIN,
        Errno::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

struct FileReader<'a> {
    places: &'a Places,
    file: &'a BaseFile,
    /// Heard before each piece is read.
    cancel: Option<&'a Cancel>,
    /// Why reading failed last, in full; [`Source`] can only say an I/O error.
    failed: Mutex<Option<Error>>,
}

impl Source for FileReader<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let read = match self.cancel.map_or(Ok(()), Cancel::check) {
            Ok(()) => self.places.base.read(self.file, offset, buf, true),
            Err(e) => Err(e),
        };
        let failed = match read {
            Ok(ReadOutcome::Done) => return Ok(()),
            Ok(_) => Error::BaseChanged(self.file.clone()),
            Err(e) => e,
        };
        let shown = std::io::Error::other(failed.to_string());
        *self.failed.lock() = Some(failed);
        Err(shown)
    }
}
