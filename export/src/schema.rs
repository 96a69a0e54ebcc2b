//! The tables of an export: those of AgentFS SPEC 0.4 as its SDKs make them, and agentvfs's own.
//!
//! `docs/export.md` describes each. Invariant: what agentvfs adds is in tables and views whose names
//! begin with `agentvfs_`; the others are as AgentFS makes them.

/// Version of the `agentvfs_*` tables.
pub const FORMAT: i64 = 1;
/// Version of AgentFS's specification.
pub const AGENTFS_VERSION: &str = "0.4";
/// Bytes of a row of `fs_data` in an export. A row of 4096 bytes would waste a tenth of its pages; of these,
/// one in 150.
pub const CHUNK_BYTES: usize = 65_536;
/// Bytes of a row of `fs_data` where a database does not say it.
pub const DEFAULT_CHUNK_BYTES: u64 = 4096;
/// Bytes of a page of an export. Larger ones are filled worse by files of some KiB.
pub const PAGE_BYTES: usize = 4096;
/// Inode of the root directory.
pub const ROOT_INO: i64 = 1;

/// Tables of AgentFS.
pub(crate) const AGENTFS: &str = "
CREATE TABLE fs_config (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE fs_inode (
    ino INTEGER PRIMARY KEY AUTOINCREMENT,
    mode INTEGER NOT NULL,
    nlink INTEGER NOT NULL DEFAULT 0,
    uid INTEGER NOT NULL DEFAULT 0,
    gid INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    atime INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    rdev INTEGER NOT NULL DEFAULT 0,
    atime_nsec INTEGER NOT NULL DEFAULT 0,
    mtime_nsec INTEGER NOT NULL DEFAULT 0,
    ctime_nsec INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE fs_dentry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    parent_ino INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    UNIQUE(parent_ino, name)
);
CREATE TABLE fs_data (
    ino INTEGER NOT NULL,
    chunk_index INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (ino, chunk_index)
);
CREATE TABLE fs_symlink (
    ino INTEGER PRIMARY KEY,
    target TEXT NOT NULL
);
CREATE TABLE kv_store (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    created_at INTEGER DEFAULT (unixepoch()),
    updated_at INTEGER DEFAULT (unixepoch())
);
CREATE TABLE tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    parameters TEXT,
    result TEXT,
    error TEXT,
    status TEXT NOT NULL DEFAULT 'pending',
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    duration_ms INTEGER
);
";

/// Indexes of AgentFS, made once the tables are filled.
pub(crate) const AGENTFS_INDEXES: &str = "
CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name);
CREATE INDEX idx_kv_store_created_at ON kv_store(created_at);
CREATE INDEX idx_tool_calls_name ON tool_calls(name);
CREATE INDEX idx_tool_calls_started_at ON tool_calls(started_at);
";

/// What agentvfs adds to a tree.
pub(crate) const OWN: &str = "
CREATE TABLE agentvfs_info (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE agentvfs_commit (
    id TEXT PRIMARY KEY,
    root TEXT,
    kind TEXT NOT NULL,
    automatic INTEGER NOT NULL,
    time INTEGER NOT NULL,
    time_nsec INTEGER NOT NULL,
    author TEXT NOT NULL,
    message TEXT NOT NULL
);
CREATE TABLE agentvfs_parent (
    commit_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    parent_id TEXT NOT NULL,
    PRIMARY KEY (commit_id, position)
);
CREATE TABLE agentvfs_label (
    label TEXT PRIMARY KEY,
    commit_id TEXT NOT NULL
);
CREATE TABLE agentvfs_commit_meta (
    commit_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (commit_id, key)
);
CREATE TABLE agentvfs_link_group (
    ino INTEGER PRIMARY KEY,
    number INTEGER NOT NULL
);
CREATE TABLE agentvfs_xattr (
    ino INTEGER NOT NULL,
    name BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (ino, name)
);
CREATE TABLE agentvfs_hole (
    ino INTEGER NOT NULL,
    start INTEGER NOT NULL,
    length INTEGER NOT NULL,
    PRIMARY KEY (ino, start)
);
CREATE TABLE agentvfs_name (
    dentry_id INTEGER PRIMARY KEY,
    shown TEXT NOT NULL,
    name BLOB NOT NULL
);
CREATE TABLE agentvfs_target (
    ino INTEGER PRIMARY KEY,
    shown TEXT NOT NULL,
    target BLOB NOT NULL
);
CREATE TABLE agentvfs_kv_time (
    key TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    created_nsec INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_nsec INTEGER NOT NULL
);
CREATE TABLE agentvfs_tool_call (
    id INTEGER PRIMARY KEY,
    before_commit TEXT,
    after_commit TEXT,
    started_nsec INTEGER NOT NULL,
    completed_nsec INTEGER,
    overlaps TEXT NOT NULL,
    entry INTEGER NOT NULL,
    parent INTEGER
);
CREATE TABLE agentvfs_timeline (
    timeline INTEGER PRIMARY KEY,
    branch TEXT NOT NULL,
    deleted INTEGER,
    deleted_nsec INTEGER
);
CREATE TABLE agentvfs_other_call (
    timeline INTEGER NOT NULL,
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    parameters TEXT,
    result TEXT,
    error TEXT,
    status TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    started_nsec INTEGER NOT NULL,
    completed_at INTEGER,
    completed_nsec INTEGER,
    duration_ms INTEGER,
    before_commit TEXT,
    after_commit TEXT,
    parent INTEGER,
    overlaps TEXT NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (timeline, id)
);
CREATE VIEW agentvfs_errors_last_hour AS
    SELECT name, count(*) AS errors, max(started_at) AS last
    FROM tool_calls WHERE status = 'error' AND started_at >= unixepoch() - 3600
    GROUP BY name ORDER BY errors DESC;
";
