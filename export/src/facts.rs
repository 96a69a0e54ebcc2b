//! What agentvfs's own tables say beside AgentFS's: names, links, extended attributes, holes, origin.
//!
//! AgentFS's tools may have changed the tree since, and know nothing of these tables. So each fact counts
//! only while what it was said of is still there: a name while it is shown as it was, a hole while it
//! reads as zeros (which who reads the file sees to).

use crate::check::Shape;
use crate::error::Result;
use crate::inodes::{article, integer};
use crate::schema::FORMAT;
use crate::source::Source;
use objstore::CommitId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Most bytes of extended attributes of one inode.
const XATTRS_BYTES_MAX: usize = 512 << 10;
/// Longest name of an extended attribute.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of one.
const XATTR_BYTES_MAX: usize = 65_536;
/// Marks what could not be read in a base; its value is the length that it has there.
const UNREADABLE: &[u8] = b"trusted.agentvfs.unreadable";

/// What an export says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// Workspace that was exported.
    pub workspace: Option<String>,
    /// Commit that was exported.
    pub commit: Option<CommitId>,
    /// The last tool call that was exported.
    pub last_call: i64,
}

/// agentvfs's own tables.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    source: &'a Source,
    db: &'a Connection,
    names: bool,
    targets: bool,
    xattrs: bool,
    holes: bool,
    groups: bool,
    /// Where the tree comes from.
    pub origin: Origin,
}

impl<'a> Facts<'a> {
    /// Looks which there are.
    pub fn of(source: &'a Source, db: &'a Connection, shape: &Shape) -> Result<Facts<'a>> {
        let filled = |table: &str| -> Result<bool> {
            if !shape.has(table) {
                return Ok(false);
            }
            let sql = format!("SELECT 1 FROM {table} LIMIT 1");
            let found = db.query_row(&sql, [], |_| Ok(())).optional();
            Ok(found.map_err(|e| source.sql(e))?.is_some())
        };
        let mut facts = Facts {
            source,
            db,
            names: filled("agentvfs_name")? && shape.has_column("fs_dentry", "id"),
            targets: filled("agentvfs_target")?,
            xattrs: filled("agentvfs_xattr")?,
            holes: filled("agentvfs_hole")?,
            groups: filled("agentvfs_link_group")?,
            origin: Origin::default(),
        };
        if shape.has("agentvfs_info") {
            facts.read_origin()?;
        }
        Ok(facts)
    }

    /// What an export says of itself under a key.
    pub fn info(&self, key: &str) -> Result<Option<String>> {
        let sql = "SELECT value FROM agentvfs_info WHERE key = ?";
        let found = self.db.query_row(sql, [key], |row| row.get(0)).optional();
        found.map_err(|e| self.source.sql(e))
    }

    fn read_origin(&mut self) -> Result<()> {
        let format = self.info("format")?.and_then(|f| f.parse::<i64>().ok());
        match format {
            Some(FORMAT) => {}
            Some(newer) if newer > FORMAT => {
                let why = format!("its tables are of format {newer}, newer than this agentvfs");
                return Err(self.source.refused(why));
            }
            _ => {
                return Err(self
                    .source
                    .refused("its agentvfs tables do not name their format"));
            }
        }
        self.origin = Origin {
            workspace: self.info("workspace")?,
            commit: self.info("commit")?.and_then(|id| id.parse().ok()),
            last_call: self
                .info("last_call")?
                .and_then(|id| id.parse().ok())
                .unwrap_or(0),
        };
        Ok(())
    }

    /// Names that are not what they are shown as, of the entries of a directory.
    pub fn names(&self, parent: i64) -> Result<HashMap<i64, Vec<u8>>> {
        let mut found = HashMap::new();
        if !self.names {
            return Ok(found);
        }
        let sql = "SELECT d.id, n.name FROM fs_dentry d JOIN agentvfs_name n
            ON n.dentry_id = d.id AND n.shown = d.name WHERE d.parent_ino = ?";
        let read = || -> rusqlite::Result<HashMap<i64, Vec<u8>>> {
            let mut select = self.db.prepare_cached(sql)?;
            let mut rows = select.query([parent])?;
            while let Some(row) = rows.next()? {
                found.insert(row.get(0)?, row.get(1)?);
            }
            Ok(found)
        };
        read().map_err(|e| self.source.sql(e))
    }

    /// A link's target; `None` where it has none.
    pub fn target(&self, ino: i64) -> Result<Option<Vec<u8>>> {
        let sql = "SELECT target FROM fs_symlink WHERE ino = ?";
        let Some(shown) = self.value(sql, ino, "the target of link")? else {
            return Ok(None);
        };
        if self.targets {
            let sql = "SELECT target FROM agentvfs_target t WHERE ino = ?1 AND shown =
                (SELECT target FROM fs_symlink WHERE ino = ?1)";
            if let Some(raw) = self.value(sql, ino, "the target of link")? {
                return Ok(Some(raw));
            }
        }
        Ok(Some(shown))
    }

    fn value(&self, sql: &str, ino: i64, what: &str) -> Result<Option<Vec<u8>>> {
        let read = || -> rusqlite::Result<Option<Result<Vec<u8>, &'static str>>> {
            let mut select = self.db.prepare_cached(sql)?;
            select
                .query_row([ino], |row| {
                    Ok(match row.get_ref(0)? {
                        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
                        other => Err(article(other)),
                    })
                })
                .optional()
        };
        match read().map_err(|e| self.source.sql(e))? {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(other)) => Err(self.source.refused(format!("{what} {ino} is {other}"))),
        }
    }

    /// Number of the hard-link group of an inode, where it had one.
    pub fn group(&self, ino: i64) -> Result<Option<u64>> {
        if !self.groups {
            return Ok(None);
        }
        let sql = "SELECT number FROM agentvfs_link_group WHERE ino = ?";
        let read = || -> rusqlite::Result<Option<i64>> {
            let mut select = self.db.prepare_cached(sql)?;
            select.query_row([ino], |row| row.get(0)).optional()
        };
        match read().map_err(|e| self.source.sql(e))? {
            None => Ok(None),
            // Any number but 0: merges give some of 62 bits, and bases that of an inode, which may have 64.
            Some(0) => {
                let why = format!("the link group of inode {ino} is 0");
                Err(self.source.refused(why))
            }
            Some(number) => Ok(Some(number as u64)),
        }
    }

    /// All numbers of hard-link groups.
    pub fn all_groups(&self) -> Result<HashSet<u64>> {
        let mut found = HashSet::new();
        if !self.groups {
            return Ok(found);
        }
        let mut read = || -> rusqlite::Result<()> {
            let sql = "SELECT number FROM agentvfs_link_group";
            let mut select = self.db.prepare(sql)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                found.insert(row.get::<_, i64>(0)? as u64);
            }
            Ok(())
        };
        read().map_err(|e| self.source.sql(e))?;
        Ok(found)
    }

    /// Extended attributes of an inode, by name.
    pub fn xattrs(&self, ino: i64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        if !self.xattrs {
            return Ok(found);
        }
        let mut bytes = 0;
        let sql = "SELECT name, value FROM agentvfs_xattr WHERE ino = ? ORDER BY name";
        let mut read = || -> rusqlite::Result<bool> {
            let mut select = self.db.prepare_cached(sql)?;
            let mut rows = select.query([ino])?;
            while let Some(row) = rows.next()? {
                let (name, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
                bytes += name.len() + value.len();
                let ascends = found.last().is_none_or(|last| last.0 < name);
                let good = is_xattr(&name, &value) && ascends && bytes <= XATTRS_BYTES_MAX;
                found.push((name, value));
                if !good {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match read().map_err(|e| self.source.sql(e))? {
            true => Ok(found),
            false => {
                let why = format!("the extended attributes of inode {ino} break the rules");
                Err(self.source.refused(why))
            }
        }
    }

    /// Holes of a file of `size` bytes, in order; whether they are holes still is not known.
    pub fn holes(&self, ino: i64, size: u64) -> Result<Vec<Range<u64>>> {
        if !self.holes {
            return Ok(Vec::new());
        }
        let sql = "SELECT start, length FROM agentvfs_hole WHERE ino = ? ORDER BY start";
        let bad = || format!("the holes of inode {ino} break the rules");
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut select = self
            .db
            .prepare_cached(sql)
            .map_err(|e| self.source.sql(e))?;
        let mut rows = select.query(params![ino]).map_err(|e| self.source.sql(e))?;
        while let Some(row) = rows.next().map_err(|e| self.source.sql(e))? {
            let number = |column| {
                let value = integer(row, column, &bad()).map_err(|why| self.source.refused(why))?;
                u64::try_from(value).map_err(|_| self.source.refused(bad()))
            };
            let (start, length) = (number(0)?, number(1)?);
            let end = start.saturating_add(length);
            if found.last().is_some_and(|last| last.end > start) {
                return Err(self.source.refused(bad()));
            }
            // The file may have become shorter since.
            if end <= size && length > 0 {
                found.push(start..end);
            }
        }
        Ok(found)
    }
}

fn is_xattr(name: &[u8], value: &[u8]) -> bool {
    let sound = !name.is_empty() && name.len() <= XATTR_NAME_BYTES_MAX && !name.contains(&0);
    let marked = name != UNREADABLE || value.len() == 8;
    sound && marked && value.len() <= XATTR_BYTES_MAX
}
