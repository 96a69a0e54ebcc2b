//! Key-value state as rows of `kv_store`, and back.
//!
//! AgentFS has whole seconds; fractions are in `agentvfs_kv_time`, which counts while the seconds there
//! are those of `kv_store`.

use crate::check::Shape;
use crate::error::Result;
use crate::inodes::{article, integer};
use crate::skipped::Skipping;
use crate::source::Source;
use crate::write::Writer;
use engine::kv::{check_key, checked_value, decode_map, encode_map};
use engine::{KvEntry, KvMap, Time};
use objstore::{Commit, FileContent, ObjectStore, read_content, store_content};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::Arc;

/// Most bytes of all keys and values: what a branch can have.
const BYTES_MAX: u64 = 64 << 20;

/// Writes the key-value state of a commit.
pub(crate) fn write(writer: &Writer, store: &ObjectStore, commit: &Commit) -> Result<()> {
    let Some(content) = &commit.kv else {
        return Ok(());
    };
    let mut bytes = vec![0; content.len() as usize];
    read_content(store, content, 0, &mut bytes)?;
    let map = decode_map(&bytes).map_err(|why| engine::Error::Damaged {
        what: "key-value state".to_owned(),
        why,
    })?;
    let mut written = Ok(());
    map.scan("", &mut |key, entry| {
        written = row(writer, key, entry);
        written.is_ok()
    });
    written
}

fn row(writer: &Writer, key: &str, entry: &KvEntry) -> Result<()> {
    let (created, updated) = (entry.created, entry.updated);
    let sql = "INSERT INTO kv_store VALUES (?, ?, ?, ?)";
    writer.run(
        sql,
        params![key, entry.value, { created.sec }, { updated.sec }],
    )?;
    let sql = "INSERT INTO agentvfs_kv_time VALUES (?, ?, ?, ?, ?)";
    writer.run(
        sql,
        params![key, { created.sec }, { created.nsec }, { updated.sec }, {
            updated.nsec
        }],
    )
}

/// Reads the rows of a database into the store; nothing where there are none.
pub(crate) fn read(
    (source, db, shape): (&Source, &Connection, &Shape),
    store: &ObjectStore,
    now: Time,
    skipping: &mut Skipping<'_>,
) -> Result<Option<FileContent>> {
    let map = rows((source, db, shape), now, skipping)?;
    if map.is_empty() {
        return Ok(None);
    }
    let bytes = encode_map(&map);
    let len = bytes.len() as u64;
    let data = 0..len;
    let stored = store_content(store, None, &[], std::slice::from_ref(&data), len, &bytes)?;
    Ok(Some(stored))
}

fn rows(
    (source, db, shape): (&Source, &Connection, &Shape),
    now: Time,
    skipping: &mut Skipping<'_>,
) -> Result<KvMap> {
    let mut map = KvMap::default();
    if !shape.has("kv_store") {
        return Ok(map);
    }
    let column = |name, otherwise| shape.column("kv_store", name, otherwise);
    let sql = format!(
        "SELECT key, value, {}, {} FROM kv_store",
        column("created_at", "NULL"),
        column("updated_at", "NULL")
    );
    let mut select = db.prepare(&sql).map_err(|e| source.sql(e))?;
    let mut rows = select.query([]).map_err(|e| source.sql(e))?;
    while let Some(row) = rows.next().map_err(|e| source.sql(e))? {
        let (key, mut entry) = match entry(row, now) {
            Ok(found) => found,
            Err(why) => {
                skipping.invalid(why)?;
                continue;
            }
        };
        if shape.has("agentvfs_kv_time") {
            fractions(source, db, &key, &mut entry)?;
        }
        map.insert(&key, Arc::new(entry));
        if map.bytes() > BYTES_MAX {
            return Err(source.refused("its key-value state is larger than 64 MiB"));
        }
    }
    Ok(map)
}

/// A row of `kv_store`.
fn entry(row: &Row<'_>, now: Time) -> Result<(String, KvEntry), String> {
    let key = text(row, 0, "a key")?;
    check_key(&key).map_err(|e| e.to_string())?;
    let what = format!("the value of key {key:?}");
    let value = checked_value(&text(row, 1, &what)?).map_err(|e| format!("{what}: {e}"))?;
    let time = |column| match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(now),
        _ => {
            integer(row, column, &format!("a time of key {key:?}")).map(|sec| Time { sec, nsec: 0 })
        }
    };
    let (created, updated) = (time(2)?, time(3)?);
    Ok((
        key,
        KvEntry {
            value,
            created,
            updated,
        },
    ))
}

fn fractions(source: &Source, db: &Connection, key: &str, entry: &mut KvEntry) -> Result<()> {
    let sql = "SELECT created_nsec, updated_nsec FROM agentvfs_kv_time
        WHERE key = ? AND created_at = ? AND updated_at = ?";
    let read = || {
        let mut select = db.prepare_cached(sql)?;
        let params = params![key, { entry.created.sec }, { entry.updated.sec }];
        let pair = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?));
        select.query_row(params, pair).optional()
    };
    if let Some((created, updated)) = read().map_err(|e| source.sql(e))? {
        if created.max(updated) >= 1_000_000_000 {
            return Err(source.refused(format!("a time of key {key:?} is not a valid time")));
        }
        (entry.created.nsec, entry.updated.nsec) = (created, updated);
    }
    Ok(())
}

/// A text of a row; anything else is an error.
pub(crate) fn text(row: &Row<'_>, column: usize, what: &str) -> Result<String, String> {
    match row.get_ref(column).map_err(|e| e.to_string())? {
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(format!("{what} is not UTF-8")),
        },
        other => Err(format!("{what} is {}, not text", article(other))),
    }
}
