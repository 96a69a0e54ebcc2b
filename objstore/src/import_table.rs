//! The import table: which content a file of a base had, by its attributes, so that it need not be read
//! again.
//!
//! A cache in sled: opened when first used, flushed in the background, never the only copy of
//! anything. What cannot be opened or read is begun anew from empty; sled answers some damaged
//! databases with a panic, which counts as the same.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bincode::{Decode, Encode};
use parking_lot::Mutex;

use crate::codec;
use crate::content::FileContent;
use crate::error::{Error, Result};
use crate::limits::IMPORT_CACHE_BYTES;
use crate::pack::record::u32_at;

/// Version of keys and values; other ones are not understood and read as absent. What version 1 names is not in the
/// canonical form.
const VERSION: u8 = 2;

const FLUSH_EVERY_MS: u64 = 1000;

/// What a base file was when its content was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ImportEntry {
    /// Size in bytes.
    pub size: u64,
    /// Time of last change of content, seconds since 1970.
    pub mtime_sec: i64,
    /// Nanoseconds of it.
    pub mtime_nsec: u32,
    /// Time of last change of the inode, seconds since 1970.
    pub ctime_sec: i64,
    /// Nanoseconds of it.
    pub ctime_nsec: u32,
    /// What was stored.
    pub content: FileContent,
}

/// The table. All methods may be called from several threads.
pub struct ImportTable {
    path: PathBuf,
    db: Mutex<Option<sled::Db>>,
}

impl std::fmt::Debug for ImportTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportTable")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ImportTable {
    /// Names the directory of the table; nothing is opened before the first use.
    pub fn open(path: &Path) -> ImportTable {
        ImportTable {
            path: path.to_owned(),
            db: Mutex::new(None),
        }
    }

    /// What is known of the file with this device and inode number.
    pub fn get(&self, dev: u64, ino: u64) -> Result<Option<ImportEntry>> {
        let value = self.with(|db| db.get(key(dev, ino)))?;
        Ok(value.and_then(|value| decode(&value)))
    }

    /// Notes what a file was. Not durable at once: after a crash the file is read again.
    pub fn put(&self, dev: u64, ino: u64, entry: &ImportEntry) -> Result<()> {
        self.with(|db| db.insert(key(dev, ino), encode(entry)))
            .map(|_| ())
    }

    /// Number of files known.
    pub fn count(&self) -> Result<usize> {
        self.with(|db| Ok(db.len()))
    }

    /// Brings what was put to the disk.
    pub fn flush(&self) -> Result<()> {
        self.with(|db| db.flush()).map(|_| ())
    }

    /// Brings what was put to the disk and lets go of the table's memory; the next use opens it again.
    pub fn release(&self) -> Result<()> {
        let Some(db) = self.db.lock().take() else {
            return Ok(());
        };
        let flushed = caught(|| db.flush().map(|_| ()));
        flushed.unwrap_or(Ok(())).map_err(Error::from)
    }

    /// Runs `work` on the open table; one that turns out to be damaged is begun anew.
    fn with<T>(&self, work: impl Fn(&sled::Db) -> sled::Result<T>) -> Result<T> {
        let db = self.db()?;
        match caught(|| work(&db)) {
            Some(Err(sled::Error::Corruption { .. })) | None => {
                tracing::warn!(path = %self.path.display(), "import table damaged, recreated");
                drop(db);
                let db = self.rebuild()?;
                work(&db).map_err(Error::from)
            }
            Some(result) => result.map_err(Error::from),
        }
    }

    /// The open table; the lock is held only to open it.
    fn db(&self) -> Result<sled::Db> {
        let mut slot = self.db.lock();
        if let Some(db) = &*slot {
            return Ok(db.clone());
        }
        // Opening makes directories: not where the one of the store is gone.
        if let Some(dir) = self.path.parent() {
            dir.metadata().map_err(sled::Error::Io)?;
        }
        let db = match caught(|| open_db(&self.path)) {
            Some(Ok(db)) => db,
            Some(Err(sled::Error::Io(error))) if is_environment(&error) => {
                return Err(sled::Error::Io(error).into());
            }
            _ => open_empty(&self.path)?,
        };
        Ok(slot.insert(db).clone())
    }

    fn rebuild(&self) -> Result<sled::Db> {
        let mut slot = self.db.lock();
        *slot = None;
        Ok(slot.insert(open_empty(&self.path)?).clone())
    }
}

fn caught<T>(work: impl FnOnce() -> sled::Result<T>) -> Option<sled::Result<T>> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// True for errors that beginning anew would not mend.
fn is_environment(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::StorageFull | ErrorKind::ReadOnlyFilesystem
    )
}

fn open_db(path: &Path) -> sled::Result<sled::Db> {
    sled::Config::new()
        .path(path)
        .cache_capacity(IMPORT_CACHE_BYTES)
        .flush_every_ms(Some(FLUSH_EVERY_MS))
        .open()
}

fn open_empty(path: &Path) -> Result<sled::Db> {
    let removed = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
    if let Err(source) = removed
        && path.exists()
    {
        return Err(Error::io(path.to_string_lossy(), source));
    }
    Ok(open_db(path)?)
}

fn key(dev: u64, ino: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&dev.to_be_bytes());
    key[8..].copy_from_slice(&ino.to_be_bytes());
    key
}

fn encode(entry: &ImportEntry) -> Vec<u8> {
    let mut value = vec![VERSION];
    codec::encode_into(entry, &mut value);
    let crc = crc32fast::hash(&value);
    value.extend_from_slice(&crc.to_le_bytes());
    value
}

fn decode(value: &[u8]) -> Option<ImportEntry> {
    let body = value.len().checked_sub(4)?;
    if u32_at(value, body) != crc32fast::hash(&value[..body]) || value.first() != Some(&VERSION) {
        return None;
    }
    codec::decode(&value[1..body]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ChunkId;

    fn entry(size: u64) -> ImportEntry {
        let content = FileContent::Chunk {
            id: ChunkId::from_bytes([7; 32]),
            len: size as u32,
        };
        ImportEntry {
            size,
            mtime_sec: -1,
            mtime_nsec: 2,
            ctime_sec: 3,
            ctime_nsec: 4,
            content,
        }
    }

    #[test]
    fn entries_come_back_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("import");
        let table = ImportTable::open(&path);
        assert!(!path.exists(), "nothing is opened before use");
        assert_eq!(table.get(1, 2).unwrap(), None);
        table.put(1, 2, &entry(5)).unwrap();
        table.put(2, 1, &entry(6)).unwrap();
        table.flush().unwrap();
        drop(table);
        let table = ImportTable::open(&path);
        assert_eq!(table.get(1, 2).unwrap(), Some(entry(5)));
        assert_eq!(table.count().unwrap(), 2);
    }

    #[test]
    fn a_home_that_is_gone_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let table = ImportTable::open(&home.join("import"));
        assert!(table.get(1, 2).is_err());
        assert!(!home.exists());
    }

    #[test]
    fn damaged_tables_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("import");
        let table = ImportTable::open(&path);
        table.put(1, 2, &entry(5)).unwrap();
        table.flush().unwrap();
        drop(table);
        fs::write(path.join("conf"), b"not what sled wrote").unwrap();
        let table = ImportTable::open(&path);
        table.put(3, 4, &entry(9)).unwrap();
        assert_eq!(table.get(3, 4).unwrap(), Some(entry(9)));
    }

    #[test]
    fn damaged_values_read_as_absent() {
        let value = encode(&entry(5));
        assert_eq!(decode(&value), Some(entry(5)));
        for (i, bit) in (0..value.len()).flat_map(|i| (0..8).map(move |bit| (i, bit))) {
            let mut bad = value.clone();
            bad[i] ^= 1 << bit;
            assert_eq!(decode(&bad), None);
        }
        assert_eq!(decode(&[]), None);
    }
}
