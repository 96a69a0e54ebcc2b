//! A database from elsewhere, opened so that reading it can do no harm.
//!
//! It is never written to. Where its log or journal holds something that is not in it yet, a copy is
//! read, in which SQLite may settle that. Nothing in it is executed: no views, triggers, computed columns
//! or checks. Invariant: statements end after a number of steps that is in proportion to its size.

use crate::error::{Error, Result};
use engine::Cancel;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How every SQLite database begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of the header of a database.
const HEADER_BYTES: usize = 100;
/// Longest value or row that is read: a chunk of AgentFS is some KiB, results of tools may be long.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;
/// Steps of SQLite's machine that reading takes, at most: so many, and so many for each byte.
const STEPS_MIN: u64 = 50_000_000;
const STEPS_PER_BYTE: u64 = 20;
/// Steps after which they are counted.
const STEPS_ROUND: i32 = 100_000;
/// Functions that the statements of this crate call, and those that stand in AgentFS's schemas: they
/// cost little, whatever they are given.
const FUNCTIONS: [&str; 10] = [
    "count",
    "date",
    "datetime",
    "julianday",
    "length",
    "max",
    "strftime",
    "time",
    "typeof",
    "unixepoch",
];
/// Tables and indexes that a database may have.
const SCHEMA_MAX: i32 = 1000;

/// Where copies are made that have a log to be settled, below the agentvfs home.
const COPIES: &str = "importing";
static COPY: AtomicU64 = AtomicU64::new(0);

/// A database to import.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    stamp: Stamp,
    copy: Option<Copy>,
    steps: Arc<AtomicU64>,
    steps_max: u64,
    cancel: Cancel,
}

/// What tells whether a file was changed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(u64, i64, i64, i64, i64);

impl Stamp {
    fn of(file: &File) -> std::io::Result<Stamp> {
        let m = file.metadata()?;
        let (sec, nsec) = (m.mtime(), m.mtime_nsec());
        Ok(Stamp(m.len(), sec, nsec, m.ctime(), m.ctime_nsec()))
    }
}

/// A copy, removed when it is dropped.
#[derive(Debug)]
struct Copy {
    dir: PathBuf,
}

impl Copy {
    fn db(&self) -> PathBuf {
        self.dir.join("db")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!("{} is left: {error}", self.dir.display());
        }
    }
}

impl Source {
    /// Opens the database at `path`; copies are made in `home`. Statements end once that is cancelled.
    pub fn open(path: &Path, home: &Path, cancel: &Cancel) -> Result<Source> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty());
        let file = File::from(file.map_err(|e| Error::io(path)(e.into()))?);
        let meta = file.metadata().map_err(Error::io(path))?;
        let stamp = Stamp::of(&file).map_err(Error::io(path))?;
        let len = meta.len();
        let mut source = Source {
            path: path.to_owned(),
            file,
            stamp,
            copy: None,
            steps: Arc::default(),
            steps_max: STEPS_MIN + STEPS_PER_BYTE.saturating_mul(len),
            cancel: cancel.clone(),
        };
        if !meta.is_file() {
            return Err(source.refused("it is not a file"));
        }
        let mut header = [0; HEADER_BYTES];
        if (&source.file).read_exact(&mut header).is_err() || header[..16] != *MAGIC {
            return Err(source.refused("it is not an SQLite database"));
        }
        if needs_settling(path) {
            source.copy = Some(source.settled_copy(home)?);
        } else if stated_bytes(&header).is_some_and(|bytes| bytes > len) {
            return Err(source.refused("it is truncated"));
        }
        Ok(source)
    }

    /// The database's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A connection for reading.
    pub fn connect(&self) -> Result<Connection> {
        let copy = self.copy.as_ref().map(Copy::db);
        let place = copy.as_deref().unwrap_or(&self.path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let opened = Connection::open_with_flags(immutable_uri(place), flags);
        let mut db = opened.map_err(|e| self.sql(e))?;
        self.restrict(&mut db).map_err(|e| self.sql(e))?;
        Ok(db)
    }

    fn restrict(&self, db: &mut Connection) -> rusqlite::Result<()> {
        for (config, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
        ] {
            db.set_db_config(config, on)?;
        }
        for (limit, most) in [
            (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX as i32),
            (Limit::SQLITE_LIMIT_COLUMN, 100),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
            (Limit::SQLITE_LIMIT_SCHEMA, SCHEMA_MAX),
        ] {
            db.set_limit(limit, most)?;
        }
        db.execute_batch(
            "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -4096;",
        )?;
        db.authorizer(Some(authorize))?;
        let (steps, most) = (self.steps.clone(), self.steps_max);
        let cancel = self.cancel.clone();
        let is_to_end = move || {
            let steps = steps.fetch_add(STEPS_ROUND as u64, Ordering::Relaxed);
            steps > most || cancel.is_cancelled()
        };
        db.progress_handler(STEPS_ROUND, Some(is_to_end))
    }

    /// An error where the database was changed since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = Stamp::of(&self.file).map_err(Error::io(&self.path))?;
        match now == self.stamp {
            true => Ok(()),
            false => Err(self.refused("it changed while it was read")),
        }
    }

    /// The database is not taken.
    pub fn refused(&self, why: impl Into<String>) -> Error {
        self.refused_hint(why, None)
    }

    /// The same, with what can be done about it.
    pub fn refused_hint(&self, why: impl Into<String>, hint: Option<&'static str>) -> Error {
        Error::Refused {
            path: self.path.clone(),
            why: why.into(),
            hint,
        }
    }

    /// What SQLite said, as a reason not to take the database.
    pub fn sql(&self, error: rusqlite::Error) -> Error {
        let why = match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => {
                "reading it takes more work than its size allows".to_owned()
            }
            Some(ErrorCode::AuthorizationForStatementDenied) => {
                "its tables contain expressions, which are not executed".to_owned()
            }
            Some(ErrorCode::TooBig) => {
                format!("a value in it is longer than {} MiB", VALUE_BYTES_MAX >> 20)
            }
            _ => format!("SQLite cannot read it: {error}"),
        };
        self.refused(why)
    }

    /// Copies the database with its log or journal, and has SQLite settle what is in that.
    fn settled_copy(&self, home: &Path) -> Result<Copy> {
        let dir = home.join(COPIES);
        std::fs::create_dir_all(&dir).map_err(Error::io(&dir))?;
        let number = COPY.fetch_add(1, Ordering::Relaxed);
        let dir = dir.join(format!("{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).map_err(Error::io(&dir))?;
        let copy = Copy { dir };
        let place = copy.db();
        std::fs::copy(&self.path, &place).map_err(Error::io(&place))?;
        for suffix in ["-wal", "-journal"] {
            let (from, to) = (beside(&self.path, suffix), beside(&place, suffix));
            if from.is_file() {
                std::fs::copy(&from, &to).map_err(Error::io(&to))?;
            }
        }
        self.check_unchanged()?;
        let settle = || -> rusqlite::Result<()> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut db = Connection::open_with_flags(&place, flags)?;
            db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            self.restrict(&mut db)?;
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            db.close().map_err(|(_, e)| e)
        };
        settle().map_err(|e| self.sql(e))?;
        Ok(copy)
    }
}

/// Removes copies that a daemon left which died while it imported.
pub(crate) fn sweep_copies(home: &Path) {
    let own = format!("{}-", std::process::id());
    let Ok(entries) = std::fs::read_dir(home.join(COPIES)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(own.as_bytes())
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!("{} is left: {error}", entry.path().display());
        }
    }
}

/// Length of a database by its header, where that says it (Database File Format, 1.3).
fn stated_bytes(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let number = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&header[at..at + 4]);
        u64::from(u32::from_be_bytes(four))
    };
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        bytes => bytes,
    };
    // The number of pages counts where it was written by who made the last change.
    (number(24) == number(92)).then(|| number(28) * page)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// True where a log or journal holds what is not in the database.
fn needs_settling(path: &Path) -> bool {
    let holds = |suffix: &str| std::fs::metadata(beside(path, suffix)).is_ok_and(|m| m.len() > 0);
    holds("-wal") || holds("-journal")
}

/// A URI by which SQLite opens a file of which it is promised that nobody changes it: it takes no locks
/// and makes no files beside it.
fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02x}")),
        }
    }
    uri + "?immutable=1"
}

/// What statements may do: read, and call functions that this crate's own statements call. It is asked
/// for expressions in the schema too.
fn authorize(context: AuthContext<'_>) -> Authorization {
    let allowed = match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Pragma { .. } => true,
        AuthAction::Function { function_name } => FUNCTIONS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(function_name)),
        _ => false,
    };
    match allowed {
        true => Authorization::Allow,
        false => Authorization::Deny,
    }
}
