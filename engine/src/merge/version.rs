//! What one side of a merge has at a path: a file, a symbolic link or a special file with its
//! attributes, and where in that side's tree it came from.
//!
//! Two versions are *the same* where content, permissions, owner, device number and extended attributes
//! agree. Modification times and the numbers of hard-link groups are not looked at: a file that was only
//! touched was not changed.

use crate::error::{Error, Result};
use objstore::content::FileContent;
use objstore::{Body, Meta, ObjectStore, TreeEntry, read_content};
use std::sync::Arc;

/// Bits of a mode that say the type.
const TYPE_BITS: u32 = 0o170000;
const TYPE_FILE: u32 = 0o100000;
const TYPE_SYMLINK: u32 = 0o120000;
const TYPE_DIR: u32 = 0o040000;

/// Where a version stands in the tree of its side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub path: Vec<u8>,
    pub entry: TreeEntry,
}

/// Content of a regular file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// In the store.
    Stored(FileContent),
    /// Made by the merge, not stored yet.
    Text(Arc<Vec<u8>>),
}

impl Content {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Stored(content) => content.len(),
            Content::Text(text) => text.len() as u64,
        }
    }
}

/// What there is.
#[derive(Clone, Debug)]
pub(super) enum Matter {
    File(Content),
    Symlink(Vec<u8>),
    /// Fifo, socket, device.
    Special,
}

/// One side's version of a path.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub meta: Meta,
    pub matter: Matter,
    pub origin: Option<Arc<Origin>>,
}

impl Version {
    /// The version that an entry is; `None` for a directory.
    pub fn of(path: &[u8], entry: &TreeEntry) -> Result<Option<Version>> {
        let kind = entry.meta.mode & TYPE_BITS;
        let (matter, agrees) = match &entry.body {
            Body::Dir(_) if kind == TYPE_DIR => return Ok(None),
            Body::Dir(_) => (Matter::Special, false),
            Body::File(c) => (Matter::File(Content::Stored(*c)), kind == TYPE_FILE),
            Body::Symlink(t) => (Matter::Symlink(t.clone()), kind == TYPE_SYMLINK),
            Body::None => {
                let special = ![TYPE_DIR, TYPE_FILE, TYPE_SYMLINK].contains(&kind);
                (Matter::Special, special)
            }
        };
        if !agrees {
            return Err(Error::Damaged {
                what: format!("the directory entry of {}", String::from_utf8_lossy(path)),
                why: "its type is not what its mode says".into(),
            });
        }
        let origin = Origin {
            path: path.to_vec(),
            entry: entry.clone(),
        };
        Ok(Some(Version {
            meta: entry.meta.clone(),
            matter,
            origin: Some(Arc::new(origin)),
        }))
    }

    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.meta.mode & TYPE_BITS
    }

    pub fn is_file(&self) -> bool {
        matches!(self.matter, Matter::File(_))
    }

    pub fn is_symlink(&self) -> bool {
        matches!(self.matter, Matter::Symlink(_))
    }

    /// Length of a regular file.
    pub fn len(&self) -> u64 {
        match &self.matter {
            Matter::File(content) => content.len(),
            Matter::Symlink(t) => t.len() as u64,
            Matter::Special => 0,
        }
    }
}

/// True where both are there and the same.
pub(super) fn same(store: &ObjectStore, a: Option<&Version>, b: Option<&Version>) -> Result<bool> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(same_meta(&a.meta, &b.meta) && same_matter(store, a, b)?),
        _ => Ok(false),
    }
}

/// Everything but times and hard-link groups.
pub(super) fn same_meta(a: &Meta, b: &Meta) -> bool {
    (a.mode, a.uid, a.gid, a.rdev) == (b.mode, b.uid, b.gid, b.rdev) && a.xattrs == b.xattrs
}

/// Content, target or device alone.
pub(super) fn same_matter(store: &ObjectStore, a: &Version, b: &Version) -> Result<bool> {
    match (&a.matter, &b.matter) {
        (Matter::File(x), Matter::File(y)) => same_bytes(store, x, y),
        (Matter::Symlink(x), Matter::Symlink(y)) => Ok(x == y),
        (Matter::Special, Matter::Special) => {
            Ok(a.kind() == b.kind() && a.meta.rdev == b.meta.rdev)
        }
        _ => Ok(false),
    }
}

/// Whether two files have the same bytes, in whatever form they are stored; reads up to the first difference.
fn same_bytes(store: &ObjectStore, a: &Content, b: &Content) -> Result<bool> {
    if let (Content::Stored(a), Content::Stored(b)) = (a, b) {
        return Ok(objstore::same_bytes(store, a, b)?);
    }
    let (len, mut at) = (a.len(), 0);
    if len != b.len() {
        return Ok(false);
    }
    let mut parts = [Vec::new(), Vec::new()];
    while at < len {
        let step = (len - at).min(READ_STEP_BYTES);
        for (part, content) in parts.iter_mut().zip([a, b]) {
            part.resize(step as usize, 0);
            match content {
                Content::Stored(content) => {
                    read_content(store, content, at, part)?;
                }
                Content::Text(text) => {
                    part.copy_from_slice(&text[at as usize..(at + step) as usize]);
                }
            }
        }
        if parts[0] != parts[1] {
            return Ok(false);
        }
        at += step;
    }
    Ok(true)
}

/// All bytes of a file. The caller has looked at its length.
pub(super) fn bytes_of(store: &ObjectStore, content: &Content) -> Result<Arc<Vec<u8>>> {
    let content = match content {
        Content::Text(text) => return Ok(text.clone()),
        Content::Stored(content) => content,
    };
    // No buffer of a claimed length is made before the content proved to have so many bytes.
    let len = content.len();
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let at = bytes.len();
        let step = (len - at as u64).min(READ_STEP_BYTES) as usize;
        bytes.resize(at + step, 0);
        read_content(store, content, at as u64, &mut bytes[at..])?;
    }
    Ok(Arc::new(bytes))
}

/// The first bytes of a file.
pub(super) fn head_of(store: &ObjectStore, content: &Content, max: usize) -> Result<Vec<u8>> {
    match content {
        Content::Text(text) => Ok(text[..text.len().min(max)].to_vec()),
        Content::Stored(content) => {
            let mut bytes = vec![0; content.len().min(max as u64) as usize];
            read_content(store, content, 0, &mut bytes)?;
            Ok(bytes)
        }
    }
}

/// Bytes read at a time.
const READ_STEP_BYTES: u64 = 1 << 20;
/// Bytes in which git looks for a NUL.
const BINARY_HEAD_BYTES: usize = 8000;

/// Git's rule: a NUL among the first 8000 bytes.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(BINARY_HEAD_BYTES).any(|byte| *byte == 0)
}

/// As [`is_binary`], reading no more than is looked at.
pub(super) fn is_binary_content(store: &ObjectStore, content: &Content) -> Result<bool> {
    Ok(is_binary(&head_of(store, content, BINARY_HEAD_BYTES)?))
}
