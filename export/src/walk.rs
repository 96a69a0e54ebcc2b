//! Going through a stored tree and making the rows of an export of it.
//!
//! Directories are taken in the order in which they are met, their names sorted, inodes numbered as they
//! come: so the rows of every table and index are made in ascending order. Memory: the directories that
//! are still to be read, one directory's names, and the batches on their way to who writes them.

use crate::error::{Error, Result};
use crate::names::{shown_name, shown_target};
use crate::schema::{CHUNK_BYTES, ROOT_INO};
use crate::survey::Survey;
use objstore::limits::HOLE_BLOCK_BYTES;
use objstore::{
    Body, ChunkId, Commit, FileContent, Form, Manifest, Meta, ObjectStore, Part, TreeEntry, TreeId,
    each_part, read_tree,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Bytes of a file that go on their way at once.
const BLOCK_BYTES: usize = 4 * CHUNK_BYTES;
/// A batch goes on its way with this many rows or bytes.
const BATCH_ROWS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
/// Names of a directory that are sorted at a time.
const SORTED_MAX: usize = 1 << 16;

/// What goes into the tables.
#[derive(Debug)]
pub(crate) enum Row {
    /// An inode.
    Inode {
        ino: i64,
        nlink: i64,
        size: i64,
        meta: Meta,
    },
    /// Link count of a directory whose inode went before.
    Nlink { ino: i64, nlink: i64 },
    /// A name; `raw` where it is shown otherwise.
    Name {
        parent: i64,
        ino: i64,
        shown: String,
        raw: Option<Vec<u8>>,
    },
    /// Target of a symbolic link; `raw` where it is shown otherwise.
    Target {
        ino: i64,
        shown: String,
        raw: Option<Vec<u8>>,
    },
    /// Data of a file from chunk `first` on.
    Data {
        ino: i64,
        first: i64,
        bytes: Arc<Vec<u8>>,
    },
    /// A hole, whose zeros are in the data.
    Hole { ino: i64, start: i64, length: i64 },
}

/// Rows on their way.
pub(crate) type Batch = Vec<Row>;

/// Sends the rows of a commit's tree. Gives whether all files have the form in which they would be stored now, so that
/// an import that finds the same tree gives it the same id.
pub(crate) fn walk(
    store: &ObjectStore,
    commit: &Commit,
    survey: &Survey,
    out: SyncSender<Batch>,
) -> Result<bool> {
    let mut walker = Walker {
        store,
        survey,
        groups: HashMap::new(),
        next: ROOT_INO + 1,
        dirs: VecDeque::from([(ROOT_INO, commit.root)]),
        out,
        batch: Vec::new(),
        batch_bytes: 0,
        is_canonical: true,
    };
    walker.inode(ROOT_INO, 2, 0, commit.root_meta.clone())?;
    while let Some((ino, dir)) = walker.dirs.pop_front() {
        walker.directory(ino, dir)?;
    }
    walker.send()?;
    Ok(walker.is_canonical)
}

struct Walker<'a> {
    store: &'a ObjectStore,
    survey: &'a Survey,
    /// Inodes of the hard-link groups that were met.
    groups: HashMap<u64, i64>,
    next: i64,
    dirs: VecDeque<(i64, Option<TreeId>)>,
    out: SyncSender<Batch>,
    batch: Batch,
    batch_bytes: usize,
    is_canonical: bool,
}

/// Whether one chunk would be stored as more than that now.
fn has_block_of_zeros(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks(HOLE_BLOCK_BYTES as usize);
    blocks.any(|block| block.iter().all(|byte| *byte == 0))
}

impl Walker<'_> {
    fn directory(&mut self, ino: i64, dir: Option<TreeId>) -> Result<()> {
        let Some(id) = dir else { return Ok(()) };
        let mut entries = Vec::new();
        let mut subdirs = 0;
        let mut failed = None;
        let store = self.store;
        read_tree(store, dir, &mut |entry| {
            subdirs += i64::from(matches!(entry.body, Body::Dir(_)));
            entries.push(entry);
            if entries.len() >= SORTED_MAX && failed.is_none() {
                failed = self.names(ino, id, std::mem::take(&mut entries)).err();
            }
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        self.names(ino, id, entries)?;
        if subdirs > 0 {
            let nlink = 2 + subdirs;
            self.push(Row::Nlink { ino, nlink }, 0)?;
        }
        Ok(())
    }

    fn names(&mut self, parent: i64, dir: TreeId, entries: Vec<TreeEntry>) -> Result<()> {
        let mut named = Vec::with_capacity(entries.len());
        for entry in entries {
            let (shown, other) = shown_name(self.store, dir, &entry.name)?;
            named.push((shown, other, entry));
        }
        named.sort_by(|a, b| a.0.cmp(&b.0));
        for (shown, other, entry) in named {
            let raw = other.then(|| entry.name.clone());
            let ino = self.entry(entry)?;
            let name = Row::Name {
                parent,
                ino,
                shown,
                raw,
            };
            self.push(name, 0)?;
        }
        Ok(())
    }

    /// The inode of an entry, made where it was not met yet.
    fn entry(&mut self, entry: TreeEntry) -> Result<i64> {
        let group = entry.meta.link_group;
        if let Some(ino) = self.groups.get(&group) {
            return Ok(*ino);
        }
        let ino = self.next;
        self.next += 1;
        let mut nlink = 1;
        if group != 0 {
            self.groups.insert(group, ino);
            nlink = self.survey.groups.get(&group).copied().unwrap_or(1);
        }
        match entry.body {
            Body::None => self.inode(ino, nlink, 0, entry.meta)?,
            Body::Dir(id) => {
                self.inode(ino, 2, 0, entry.meta)?;
                self.dirs.push_back((ino, id));
            }
            Body::Symlink(target) => {
                self.inode(ino, nlink, target.len() as i64, entry.meta)?;
                let (shown, other) = shown_target(&target);
                let raw = other.then_some(target);
                self.push(Row::Target { ino, shown, raw }, 0)?;
            }
            Body::File(content) => {
                self.inode(ino, nlink, content.len() as i64, entry.meta)?;
                self.content(ino, &content)?;
            }
        }
        Ok(ino)
    }

    fn inode(&mut self, ino: i64, nlink: i64, size: i64, meta: Meta) -> Result<()> {
        let bytes = meta.xattrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        let row = Row::Inode {
            ino,
            nlink,
            size,
            meta,
        };
        self.push(row, bytes)
    }

    fn content(&mut self, ino: i64, content: &FileContent) -> Result<()> {
        if let FileContent::Chunk { id, len } = content {
            let bytes = self.chunk(id, *len)?;
            self.is_canonical &= !has_block_of_zeros(&bytes);
            return self.data(ino, 0, bytes);
        }
        if let FileContent::Manifest { id, .. } = content {
            let root: Manifest = self.store.get_object(id)?;
            self.is_canonical &= root.form == Form::Canonical;
        }
        let mut block = Block {
            ino,
            first: 0,
            bytes: Vec::new(),
        };
        let store = self.store;
        each_part(store, content, &mut |start, part| match part {
            Part::Data { len, id } => {
                let chunk = self.chunk(&id, len)?;
                block.bytes.extend_from_slice(&chunk);
                self.full(&mut block)
            }
            Part::Hole { len } => {
                let (start, length) = (start as i64, len as i64);
                self.push(Row::Hole { ino, start, length }, 0)?;
                self.zeros(&mut block, len)
            }
        })?;
        let bytes = Arc::new(block.bytes);
        self.data(ino, block.first, bytes)
    }

    fn zeros(&mut self, block: &mut Block, mut len: u64) -> Result<()> {
        while len > 0 {
            let take = len.min((BLOCK_BYTES - block.bytes.len()) as u64);
            block.bytes.resize(block.bytes.len() + take as usize, 0);
            len -= take;
            self.full(block)?;
        }
        Ok(())
    }

    /// Sends what is full of a block.
    fn full(&mut self, block: &mut Block) -> Result<()> {
        while block.bytes.len() >= BLOCK_BYTES {
            let rest = block.bytes.split_off(BLOCK_BYTES);
            let bytes = Arc::new(std::mem::replace(&mut block.bytes, rest));
            self.data(block.ino, block.first, bytes)?;
            block.first += (BLOCK_BYTES / CHUNK_BYTES) as i64;
        }
        Ok(())
    }

    fn chunk(&self, id: &ChunkId, len: u32) -> Result<Arc<Vec<u8>>> {
        let bytes = self.store.get_chunk(id)?;
        if bytes.len() != len as usize {
            return Err(Error::Engine(engine::Error::Damaged {
                what: format!("chunk {id}"),
                why: "its length differs from what refers to it".to_owned(),
            }));
        }
        Ok(bytes)
    }

    fn data(&mut self, ino: i64, first: i64, bytes: Arc<Vec<u8>>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.len();
        self.push(Row::Data { ino, first, bytes }, len)
    }

    fn push(&mut self, row: Row, bytes: usize) -> Result<()> {
        self.batch.push(row);
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH_ROWS || self.batch_bytes >= BATCH_BYTES {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        // Who writes has failed, and says why.
        self.out.send(batch).map_err(|_| Error::Stopped)
    }
}

/// Data of a file that is not on its way yet; its length is below [`BLOCK_BYTES`] between calls.
struct Block {
    ino: i64,
    first: i64,
    bytes: Vec<u8>,
}
