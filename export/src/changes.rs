//! What differs between two stored trees, by path.
//!
//! Directories are named where they are empty, or where more than their time changed: else what is in
//! them says it, as in `agentvfs workspace diff`. A file that went and one that came with the same
//! content are one that was renamed.

use crate::error::Result;
use objstore::{
    Body, FileContent, ManifestId, Meta, ObjectStore, TreeEntry, TreeId, diff_trees, read_tree,
};
use std::collections::HashMap;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Path from the root.
    pub path: Vec<u8>,
    /// `A`dded, `M`odified, `D`eleted, `R`enamed, `T`ype changed.
    pub kind: char,
    /// Path before a rename.
    pub old_path: Option<Vec<u8>>,
    /// What names the content before.
    pub old_id: Option<String>,
    /// What names the content after.
    pub new_id: Option<String>,
}

/// The differences from one root directory to another, sorted by path.
pub(crate) fn changes(
    store: &ObjectStore,
    old: Option<TreeId>,
    new: Option<TreeId>,
) -> Result<Vec<Change>> {
    let mut found = Vec::new();
    pairs(store, old, new, &mut |path, a, b| {
        if let Some(kind) = kind(a, b) {
            found.push(Change {
                path: path.to_vec(),
                kind,
                old_path: None,
                old_id: a.and_then(|entry| id_of(&entry.body)),
                new_id: b.and_then(|entry| id_of(&entry.body)),
            });
        }
    })?;
    let mut changes = joined(found);
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

/// Told of a path, and what either side has there.
type Each<'a> = &'a mut dyn FnMut(&[u8], Option<&TreeEntry>, Option<&TreeEntry>);

/// Calls `each` for every path at which the entries of two trees differ, those of directories too.
pub(crate) fn pairs(
    store: &ObjectStore,
    old: Option<TreeId>,
    new: Option<TreeId>,
    each: Each<'_>,
) -> Result<()> {
    // Directories that are still to be compared.
    let mut dirs = vec![(Vec::new(), old, new)];
    while let Some((path, old, new)) = dirs.pop() {
        for (a, b) in differing(store, old, new)? {
            let Some(entry) = b.as_ref().or(a.as_ref()) else {
                continue;
            };
            let path = match &path[..] {
                [] => entry.name.clone(),
                dir => [dir, b"/", &entry.name].concat(),
            };
            let (below_a, below_b) = (tree_of(a.as_ref()), tree_of(b.as_ref()));
            each(&path, a.as_ref(), b.as_ref());
            if below_a != below_b {
                dirs.push((path, below_a, below_b));
            }
        }
    }
    Ok(())
}

/// The entries that differ between two directories.
fn differing(
    store: &ObjectStore,
    old: Option<TreeId>,
    new: Option<TreeId>,
) -> Result<Vec<(Option<TreeEntry>, Option<TreeEntry>)>> {
    let mut found = Vec::new();
    match (old, new) {
        // One side is all there is: nothing to compare.
        (None, Some(_)) => read_tree(store, new, &mut |entry| {
            found.push((None, Some(entry)));
            Ok(())
        })?,
        _ => diff_trees(store, old, new, &mut |a, b| {
            found.push((a.cloned(), b.cloned()));
            Ok(())
        })?,
    }
    Ok(found)
}

fn tree_of(entry: Option<&TreeEntry>) -> Option<TreeId> {
    match entry.map(|e| &e.body) {
        Some(Body::Dir(id)) => *id,
        _ => None,
    }
}

/// How a name changed; `None` where what is below it says so.
fn kind(a: Option<&TreeEntry>, b: Option<&TreeEntry>) -> Option<char> {
    let full = |entry: &TreeEntry| matches!(entry.body, Body::Dir(Some(_)));
    match (a, b) {
        (None, None) => None,
        (None, Some(b)) => (!full(b)).then_some('A'),
        (Some(a), None) => (!full(a)).then_some('D'),
        (Some(a), Some(b)) if type_of(&a.meta) != type_of(&b.meta) => Some('T'),
        (Some(a), Some(b)) if matches!(b.body, Body::Dir(_)) => {
            (timeless(&a.meta) != timeless(&b.meta)).then_some('M')
        }
        (Some(a), Some(b)) => (a != b).then_some('M'),
    }
}

fn type_of(meta: &Meta) -> u32 {
    meta.mode & 0o170000
}

fn timeless(meta: &Meta) -> Meta {
    Meta {
        mtime_sec: 0,
        mtime_nsec: 0,
        ..meta.clone()
    }
}

/// What names a content: the id of a chunk, a manifest or a directory; for a link the hash of its target.
pub(crate) fn id_of(body: &Body) -> Option<String> {
    match body {
        Body::File(FileContent::Chunk { id, .. }) => Some(id.to_string()),
        Body::File(FileContent::Manifest { id, .. }) => Some(ManifestId::to_string(id)),
        Body::Symlink(target) => Some(blake3::hash(target).to_hex().to_string()),
        Body::Dir(Some(id)) => Some(id.to_string()),
        Body::File(FileContent::Empty) | Body::Dir(None) | Body::None => None,
    }
}

/// Joins what went and what came with the same content.
fn joined(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| b.path.cmp(&a.path));
    let mut gone: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        if let ('D', Some(id)) = (change.kind, &change.old_id) {
            gone.entry(id.clone()).or_default().push(at);
        }
    }
    let mut joined = vec![false; changes.len()];
    for at in (0..changes.len()).rev() {
        let id = match (&changes[at].kind, &changes[at].new_id) {
            ('A', Some(id)) => id,
            _ => continue,
        };
        let Some(from) = gone.get_mut(id).and_then(Vec::pop) else {
            continue;
        };
        let old = changes[from].clone();
        let change = &mut changes[at];
        (change.kind, change.old_path, change.old_id) = ('R', Some(old.path), old.old_id);
        joined[from] = true;
    }
    let mut place = joined.into_iter();
    changes.retain(|_| !place.next().unwrap_or(false));
    changes
}
