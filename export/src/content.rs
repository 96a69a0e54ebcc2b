//! File data of a database going into the store, in as many threads as there are cores.
//!
//! Files are taken in the order of their inodes, in which their data lies in an export. Memory: one
//! window of a file for each thread.

use crate::check::Shape;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::inodes::Inodes;
use crate::plan::Plan;
use crate::source::Source;
use engine::{Cancel, Progress};
use objstore::{FileContent, ObjectStore, store_content};
use rusqlite::{Connection, Rows, params};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Threads at most.
const THREADS_MAX: usize = 4;
/// Files that a thread takes at a time.
const FILES_AT_ONCE: usize = 16;
/// How often progress is told.
const PROGRESS_PAUSE: Duration = Duration::from_millis(20);

/// Storing the files of a plan.
pub(crate) struct Storing<'a> {
    source: &'a Source,
    store: &'a ObjectStore,
    shape: &'a Shape,
    inodes: &'a Inodes,
    plan: &'a Plan,
    cancel: &'a Cancel,
    next: AtomicUsize,
    done: AtomicU64,
    failed: AtomicBool,
}

impl<'a> Storing<'a> {
    /// One that has done nothing yet.
    pub fn new(
        (source, store, shape): (&'a Source, &'a ObjectStore, &'a Shape),
        inodes: &'a Inodes,
        plan: &'a Plan,
        cancel: &'a Cancel,
    ) -> Storing<'a> {
        Storing {
            source,
            store,
            shape,
            inodes,
            plan,
            cancel,
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Stores them; gives their contents in the order of [`Plan::files`].
    pub fn store(&self, progress: Progress<'_>) -> Result<Vec<FileContent>> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = cores
            .min(THREADS_MAX)
            .min(self.plan.files.len() / FILES_AT_ONCE + 1);
        let stored = std::thread::scope(|scope| {
            let (ended, all_ended) = mpsc::channel::<()>();
            let start = |_| {
                let ended = ended.clone();
                scope.spawn(move || {
                    let _ended = ended;
                    self.work()
                })
            };
            let workers: Vec<_> = (0..threads).map(start).collect();
            drop(ended);
            while all_ended.recv_timeout(PROGRESS_PAUSE) == Err(RecvTimeoutError::Timeout) {
                progress(self.done.load(Ordering::Relaxed), self.plan.bytes);
            }
            progress(self.done.load(Ordering::Relaxed), self.plan.bytes);
            let joined = workers.into_iter().map(|w| w.join());
            let results: Result<Vec<_>> =
                joined.map(|r| r.unwrap_or(Err(Error::Stopped))).collect();
            results
        })?;
        let mut all: Vec<(usize, FileContent)> = stored.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, content)| content).collect())
    }
}

impl Storing<'_> {
    /// Stores files until none is left, or another thread failed.
    fn work(&self) -> Result<Vec<(usize, FileContent)>> {
        let work = || {
            let db = self.source.connect()?;
            let facts = Facts::of(self.source, &db, self.shape)?;
            let mut stored = Vec::new();
            loop {
                let from = self.next.fetch_add(FILES_AT_ONCE, Ordering::Relaxed);
                if from >= self.plan.files.len() || self.failed.load(Ordering::Relaxed) {
                    return Ok(stored);
                }
                let to = self.plan.files.len().min(from + FILES_AT_ONCE);
                for (at, place) in (from..to).zip(&self.plan.files[from..to]) {
                    self.cancel.check()?;
                    stored.push((at, self.file(&db, &facts, *place)?));
                }
            }
        };
        work().inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn file(&self, db: &Connection, facts: &Facts<'_>, place: usize) -> Result<FileContent> {
        let inode = self.inodes.at(place);
        let size = inode.size as u64;
        if size == 0 {
            return Ok(FileContent::Empty);
        }
        let mut data = Vec::new();
        let mut end = 0;
        for hole in self.holes(db, facts, inode.ino, size)? {
            if hole.start > end {
                data.push(end..hole.start);
            }
            end = end.max(hole.end);
        }
        if end < size {
            data.push(end..size);
        }
        let mut select = db.prepare_cached(SELECT).map_err(|e| self.source.sql(e))?;
        let rows = select
            .query(params![inode.ino, 0])
            .map_err(|e| self.source.sql(e))?;
        let bytes = Bytes::new(rows, self.shape.chunk);
        let stored = store_content(self.store, None, &[], &data, size, &bytes);
        match (stored, bytes.failed.into_inner()) {
            (Ok(content), _) => {
                self.done.fetch_add(size, Ordering::Relaxed);
                Ok(content)
            }
            (Err(_), Some(error)) => Err(self.source.sql(error)),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// What is recorded or missing as holes and reads as zeros, in order.
    fn holes(
        &self,
        db: &Connection,
        facts: &Facts<'_>,
        ino: i64,
        size: u64,
    ) -> Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        for hole in facts.holes(ino, size)? {
            if self.is_zero(db, ino, &hole)? {
                holes.push(hole);
            }
        }
        if self.inodes.is_whole(ino) {
            return Ok(holes);
        }
        holes.extend(self.gaps(db, ino, size)?);
        holes.sort_by_key(|hole| hole.start);
        Ok(holes)
    }

    /// Whole chunks that are missing.
    fn gaps(&self, db: &Connection, ino: i64, size: u64) -> Result<Vec<Range<u64>>> {
        let sql = "SELECT chunk_index FROM fs_data WHERE ino = ? ORDER BY chunk_index";
        let mut gaps = Vec::new();
        let mut end = 0;
        let mut select = db.prepare_cached(sql).map_err(|e| self.source.sql(e))?;
        let mut rows = select.query([ino]).map_err(|e| self.source.sql(e))?;
        while let Some(row) = rows.next().map_err(|e| self.source.sql(e))? {
            let index: i64 = row.get(0).map_err(|e| self.source.sql(e))?;
            let start = (index as u64).saturating_mul(self.shape.chunk);
            if start > end {
                gaps.push(end..start);
            }
            end = start + self.shape.chunk;
        }
        if end < size {
            gaps.push(end..size);
        }
        Ok(gaps)
    }

    fn is_zero(&self, db: &Connection, ino: i64, range: &Range<u64>) -> Result<bool> {
        let first = range.start / self.shape.chunk;
        let mut select = db.prepare_cached(SELECT).map_err(|e| self.source.sql(e))?;
        let rows = select
            .query(params![ino, first as i64])
            .map_err(|e| self.source.sql(e))?;
        let bytes = Bytes::new(rows, self.shape.chunk);
        let mut buffer = vec![0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(buffer.len() as u64) as usize;
            match bytes.fill(at, &mut buffer[..len]) {
                Ok(()) if buffer[..len].iter().all(|byte| *byte == 0) => at += len as u64,
                Ok(()) => return Ok(false),
                Err(e) => return Err(self.source.sql(e)),
            }
        }
        Ok(true)
    }
}

const SELECT: &str = "SELECT chunk_index, data FROM fs_data
    WHERE ino = ? AND chunk_index >= ? ORDER BY chunk_index";

/// The bytes of a file, asked for in ascending order. What has no row reads as zeros.
struct Bytes<'s> {
    inner: RefCell<Held<'s>>,
    chunk: u64,
    failed: RefCell<Option<rusqlite::Error>>,
}

struct Held<'s> {
    rows: Rows<'s>,
    /// Where the bytes of the last row begin, and they.
    start: u64,
    bytes: Vec<u8>,
    ended: bool,
}

impl<'s> Bytes<'s> {
    fn new(rows: Rows<'s>, chunk: u64) -> Bytes<'s> {
        Bytes {
            inner: RefCell::new(Held {
                rows,
                start: 0,
                bytes: Vec::new(),
                ended: false,
            }),
            chunk,
            failed: RefCell::new(None),
        }
    }

    fn fill(&self, offset: u64, buf: &mut [u8]) -> rusqlite::Result<()> {
        let mut held = self.inner.borrow_mut();
        buf.fill(0);
        let end = offset + buf.len() as u64;
        loop {
            let (from, to) = (held.start.max(offset), held.end().min(end));
            if from < to {
                let source = (from - held.start) as usize..(to - held.start) as usize;
                let place = (from - offset) as usize..(to - offset) as usize;
                buf[place].copy_from_slice(&held.bytes[source]);
            }
            if held.ended || held.end() >= end {
                return Ok(());
            }
            held.next(self.chunk)?;
        }
    }
}

impl Held<'_> {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn next(&mut self, chunk: u64) -> rusqlite::Result<()> {
        self.bytes.clear();
        match self.rows.next()? {
            None => {
                self.ended = true;
                self.start = u64::MAX;
            }
            Some(row) => {
                let index: i64 = row.get(0)?;
                self.start = (index as u64).saturating_mul(chunk);
                self.bytes.extend_from_slice(row.get_ref(1)?.as_blob()?);
            }
        }
        Ok(())
    }
}

impl objstore::Source for Bytes<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.fill(offset, buf).map_err(|e| {
            let text = e.to_string();
            *self.failed.borrow_mut() = Some(e);
            std::io::Error::other(text)
        })
    }
}
