//! A simulated disk at whose operations a test can step in: at the very moment between two steps of the
//! engine, which no thread of a test would meet but by luck.

use super::world::{World, config};
use engine::Engine;
use objstore::crash_storage::CrashStorage;
use objstore::io::{Segment, Storage};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is about to be done to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Append,
    Sync,
}

/// Called before each act, with the segment's path; an error is what the act gives, undone.
pub type Before = Arc<dyn Fn(Act, &str) -> io::Result<()> + Send + Sync>;

/// The disk.
#[derive(Clone)]
pub struct Watched {
    disk: CrashStorage,
    before: Before,
}

impl Watched {
    /// `disk`, with `before` at each act.
    pub fn new(disk: CrashStorage, before: Before) -> Watched {
        Watched { disk, before }
    }

    fn segment(&self, path: &str, inner: Arc<dyn Segment>) -> Arc<dyn Segment> {
        Arc::new(WatchedSegment {
            inner,
            path: path.to_owned(),
            before: self.before.clone(),
        })
    }
}

/// A world on `disk` with `before` at each act. After a kill or a close the disk is left alone.
pub fn world(disk: CrashStorage, before: Before, base: &Path) -> World {
    let home = tempfile::tempdir().unwrap();
    let storage = Watched::new(disk.clone(), before);
    let engine = Engine::on_storage(config(home.path()), Arc::new(storage)).unwrap();
    World::start(Some(disk), home, engine, base).unwrap()
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.disk)
    }
}

impl Storage for Watched {
    fn create(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        Ok(self.segment(path, self.disk.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        Ok(self.segment(path, self.disk.open(path)?))
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read(path)
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace(path, bytes)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn used_bytes(&self) -> io::Result<u64> {
        self.disk.used_bytes()
    }

    fn age(&self, path: &str) -> io::Result<Duration> {
        self.disk.age(path)
    }
}

struct WatchedSegment {
    inner: Arc<dyn Segment>,
    path: String,
    before: Before,
}

impl fmt::Debug for WatchedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedSegment({})", self.path)
    }
}

impl Segment for WatchedSegment {
    fn append(&self, parts: &[&[u8]]) -> io::Result<u64> {
        (self.before)(Act::Append, &self.path)?;
        self.inner.append(parts)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn try_read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.inner.try_read_at(offset, buf)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn can_punch(&self) -> bool {
        self.inner.can_punch()
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        self.inner.punch_hole(range)
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        self.inner.holes()
    }

    fn sync(&self) -> io::Result<()> {
        (self.before)(Act::Sync, &self.path)?;
        self.inner.sync()
    }
}
