//! Which of AgentFS's variants a database is, and whether it is sound as a database.

use crate::error::Result;
use crate::schema::DEFAULT_CHUNK_BYTES;
use crate::source::Source;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeMap, BTreeSet};

/// Largest chunk that is taken.
const CHUNK_BYTES_MAX: i64 = 16 << 20;

/// What a database has.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Columns of its tables.
    tables: BTreeMap<String, BTreeSet<String>>,
    /// Bytes of a row of `fs_data`.
    pub chunk: u64,
}

/// Columns without which a database is not AgentFS's.
const NEEDED: [(&str, &[&str]); 3] = [
    ("fs_inode", &["ino", "mode", "uid", "gid", "size", "mtime"]),
    ("fs_dentry", &["name", "parent_ino", "ino"]),
    ("fs_data", &["ino", "chunk_index", "data"]),
];

impl Shape {
    /// Looks at a database, and has SQLite check the structure of all of it.
    pub fn of(source: &Source, db: &Connection) -> Result<Shape> {
        let mut shape = Shape {
            tables: tables(db).map_err(|e| source.sql(e))?,
            chunk: DEFAULT_CHUNK_BYTES,
        };
        for (table, columns) in NEEDED {
            if !shape.has(table) {
                return Err(source.refused(format!(
                    "it is not an AgentFS database: it has no table {table}"
                )));
            }
            if let Some(column) = columns.iter().find(|c| !shape.has_column(table, c)) {
                return Err(source.refused(format!("its table {table} has no column {column}")));
            }
        }
        let found: String = db
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|e| source.sql(e))?;
        if found != "ok" {
            let line = found.lines().last().unwrap_or_default();
            return Err(source.refused(format!("it is damaged: {line}")));
        }
        if shape.has("fs_config") {
            shape.chunk = chunk_size(source, db)?;
        }
        Ok(shape)
    }

    /// True where there is a table of that name.
    pub fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// True where a table has a column of that name.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables
            .get(table)
            .is_some_and(|columns| columns.contains(column))
    }

    /// The column's name for a query, or what stands for it where there is none.
    pub fn column<'a>(&self, table: &str, column: &'a str, otherwise: &'a str) -> &'a str {
        match self.has_column(table, column) {
            true => column,
            false => otherwise,
        }
    }
}

/// Real tables with their stored columns, by lower-case name.
fn tables(db: &Connection) -> rusqlite::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut list = db.prepare("PRAGMA main.table_list")?;
    let mut names = list.query([])?;
    let mut found = BTreeMap::new();
    while let Some(row) = names.next()? {
        let (name, kind): (String, String) = (row.get(1)?, row.get(2)?);
        if kind == "table" && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            let mut info = db.prepare(&format!("PRAGMA main.table_xinfo({name})"))?;
            let stored = info.query_map([], |row| {
                Ok((row.get::<_, String>("name")?, row.get::<_, i64>("hidden")?))
            })?;
            let mut columns = BTreeSet::new();
            for column in stored {
                let (column, hidden) = column?;
                if hidden == 0 {
                    columns.insert(column.to_ascii_lowercase());
                }
            }
            found.insert(name.to_ascii_lowercase(), columns);
        }
    }
    Ok(found)
}

fn chunk_size(source: &Source, db: &Connection) -> Result<u64> {
    let sql = "SELECT value FROM fs_config WHERE key = 'chunk_size'";
    let read = |row: &rusqlite::Row<'_>| {
        Ok(match row.get_ref(0)? {
            ValueRef::Integer(number) => Some(number),
            ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()),
            _ => None,
        })
    };
    let found = db.query_row(sql, [], read).optional();
    match found.map_err(|e| source.sql(e))? {
        None => Ok(DEFAULT_CHUNK_BYTES),
        Some(Some(size)) if (1..=CHUNK_BYTES_MAX).contains(&size) => Ok(size as u64),
        Some(_) => Err(source.refused("its chunk size is not a number from 1 to 16777216")),
    }
}
