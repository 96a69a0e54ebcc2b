//! Writing the tables of an export.

use crate::error::{Error, Result};
use crate::schema::{AGENTFS, AGENTFS_INDEXES, AGENTFS_VERSION, CHUNK_BYTES, OWN, PAGE_BYTES};
use crate::walk::{Batch, Row};
use engine::Cancel;
use objstore::Meta;
use rusqlite::{Connection, OpenFlags, params};
use std::path::{Path, PathBuf};

/// KiB that SQLite keeps in memory.
const CACHE_KIB: usize = 8192;
/// Steps of SQLite's machine after which it is looked whether it is cancelled.
const STEPS_ROUND: i32 = 100_000;
/// Statements that are kept compiled.
const STATEMENTS: usize = 32;

/// A database that is being written. Nothing of it is durable before its file was synced.
#[derive(Debug)]
pub(crate) struct Writer {
    db: Connection,
    path: PathBuf,
    /// Names that are not UTF-8.
    pub renamed: u64,
    /// Bytes of file data so far.
    pub bytes: u64,
    /// Names so far.
    pub names: u64,
}

impl Writer {
    /// Makes the tables in the empty file `path`. Statements end once that is cancelled.
    pub fn begin(path: &Path, cancel: &Cancel) -> Result<Writer> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(path, flags).map_err(failed(path))?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let cancel = cancel.clone();
        db.progress_handler(STEPS_ROUND, Some(move || cancel.is_cancelled()))
            .map_err(failed(path))?;
        let setup = format!(
            "PRAGMA page_size = {PAGE_BYTES};
             PRAGMA cache_size = -{CACHE_KIB};
             PRAGMA journal_mode = OFF;
             PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA temp_store = MEMORY;
             BEGIN;"
        );
        let writer = Writer {
            db,
            path: path.to_owned(),
            renamed: 0,
            bytes: 0,
            names: 0,
        };
        for sql in [&setup, AGENTFS, OWN] {
            writer.script(sql)?;
        }
        let size = CHUNK_BYTES.to_string();
        for (key, value) in [
            ("chunk_size", &size[..]),
            ("schema_version", AGENTFS_VERSION),
        ] {
            writer.run("INSERT INTO fs_config VALUES (?, ?)", params![key, value])?;
        }
        Ok(writer)
    }

    /// Runs several statements.
    pub fn script(&self, sql: &str) -> Result<()> {
        self.db.execute_batch(sql).map_err(failed(&self.path))
    }

    /// Runs one statement, kept compiled.
    pub fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<()> {
        let run = || self.db.prepare_cached(sql)?.execute(params).map(|_| ());
        run().map_err(failed(&self.path))
    }

    /// Reads what was written.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        read(&self.db).map_err(failed(&self.path))
    }

    /// A fact about the export as a whole.
    pub fn info(&self, key: &str, value: &str) -> Result<()> {
        let sql = "INSERT INTO agentvfs_info VALUES (?, ?)";
        self.run(sql, params![key, value])
    }

    /// Number of the row that was inserted last.
    pub fn last_id(&self) -> i64 {
        self.db.last_insert_rowid()
    }

    /// Writes rows of the tree.
    pub fn take(&mut self, batch: Batch) -> Result<()> {
        batch.into_iter().try_for_each(|row| self.row(row))
    }

    fn row(&mut self, row: Row) -> Result<()> {
        match row {
            Row::Inode {
                ino,
                nlink,
                size,
                meta,
            } => self.inode(ino, nlink, size, &meta),
            Row::Nlink { ino, nlink } => {
                let sql = "UPDATE fs_inode SET nlink = ? WHERE ino = ?";
                self.run(sql, params![nlink, ino])
            }
            Row::Name {
                parent,
                ino,
                shown,
                raw,
            } => self.name(parent, ino, &shown, raw),
            Row::Target { ino, shown, raw } => {
                let sql = "INSERT INTO fs_symlink VALUES (?, ?)";
                self.run(sql, params![ino, shown])?;
                let Some(raw) = raw else { return Ok(()) };
                self.renamed += 1;
                let sql = "INSERT INTO agentvfs_target VALUES (?, ?, ?)";
                self.run(sql, params![ino, shown, raw])
            }
            Row::Data { ino, first, bytes } => self.data(ino, first, &bytes),
            Row::Hole { ino, start, length } => {
                let sql = "INSERT INTO agentvfs_hole VALUES (?, ?, ?)";
                self.run(sql, params![ino, start, length])
            }
        }
    }

    fn inode(&mut self, ino: i64, nlink: i64, size: i64, meta: &Meta) -> Result<()> {
        // A commit has neither access nor change times.
        let (sec, nsec) = (meta.mtime_sec, meta.mtime_nsec);
        let sql = "INSERT INTO fs_inode (ino, mode, nlink, uid, gid, size, atime, mtime, ctime, rdev,
            atime_nsec, mtime_nsec, ctime_nsec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7, ?8, ?9, ?9, ?9)";
        let (mode, uid, gid, rdev) = (meta.mode, meta.uid, meta.gid, meta.rdev as i64);
        self.run(
            sql,
            params![ino, mode, nlink, uid, gid, size, sec, rdev, nsec],
        )?;
        if meta.link_group != 0 {
            let sql = "INSERT INTO agentvfs_link_group VALUES (?, ?)";
            self.run(sql, params![ino, meta.link_group as i64])?;
        }
        for (name, value) in &meta.xattrs {
            let sql = "INSERT INTO agentvfs_xattr VALUES (?, ?, ?)";
            self.run(sql, params![ino, name, value])?;
        }
        Ok(())
    }

    fn name(&mut self, parent: i64, ino: i64, shown: &str, raw: Option<Vec<u8>>) -> Result<()> {
        let sql = "INSERT INTO fs_dentry (name, parent_ino, ino) VALUES (?, ?, ?)";
        self.run(sql, params![shown, parent, ino])?;
        self.names += 1;
        let Some(raw) = raw else { return Ok(()) };
        self.renamed += 1;
        let sql = "INSERT INTO agentvfs_name VALUES (?, ?, ?)";
        self.run(sql, params![self.last_id(), shown, raw])
    }

    fn data(&mut self, ino: i64, first: i64, bytes: &[u8]) -> Result<()> {
        let write = || {
            let mut insert = self
                .db
                .prepare_cached("INSERT INTO fs_data VALUES (?, ?, ?)")?;
            for (chunk, index) in bytes.chunks(CHUNK_BYTES).zip(first..) {
                insert.execute(params![ino, index, chunk])?;
            }
            Ok(())
        };
        write().map_err(failed(&self.path))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the indexes and brings everything to the file, which is for the caller to sync.
    pub fn finish(self) -> Result<()> {
        self.script(AGENTFS_INDEXES)?;
        self.script("COMMIT")?;
        self.db.flush_prepared_statement_cache();
        self.db.close().map_err(|(_, e)| failed(&self.path)(e))
    }
}

fn failed(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Write { path, source }
}
