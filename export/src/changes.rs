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
    let mut found = Found {
        store,
        changes: Vec::new(),
        dirs: vec![(Vec::new(), old, new)],
    };
    while let Some((path, old, new)) = found.dirs.pop() {
        found.directory(&path, old, new)?;
    }
    let mut changes = joined(found.changes);
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

struct Found<'a> {
    store: &'a ObjectStore,
    changes: Vec<Change>,
    /// Directories that are still to be compared.
    dirs: Vec<(Vec<u8>, Option<TreeId>, Option<TreeId>)>,
}

impl Found<'_> {
    fn directory(&mut self, path: &[u8], old: Option<TreeId>, new: Option<TreeId>) -> Result<()> {
        let mut pairs: Vec<(Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
        match (old, new) {
            // One side is all there is: nothing to compare.
            (None, Some(_)) => read_tree(self.store, new, &mut |entry| {
                pairs.push((None, Some(entry)));
                Ok(())
            })?,
            _ => diff_trees(self.store, old, new, &mut |a, b| {
                pairs.push((a.cloned(), b.cloned()));
                Ok(())
            })?,
        }
        for (a, b) in pairs {
            self.pair(path, a.as_ref(), b.as_ref());
        }
        Ok(())
    }

    fn pair(&mut self, dir: &[u8], a: Option<&TreeEntry>, b: Option<&TreeEntry>) {
        let Some(name) = a.or(b).map(|entry| &entry.name) else {
            return;
        };
        let path = match dir {
            [] => name.clone(),
            dir => [dir, b"/", name].concat(),
        };
        let tree = |entry: Option<&TreeEntry>| match entry.map(|e| &e.body) {
            Some(Body::Dir(id)) => *id,
            _ => None,
        };
        let (below_a, below_b) = (tree(a), tree(b));
        if below_a != below_b {
            self.dirs.push((path.clone(), below_a, below_b));
        }
        if let Some(kind) = kind(a, b) {
            self.changes.push(Change {
                path,
                kind,
                old_path: None,
                old_id: a.and_then(|entry| id_of(&entry.body)),
                new_id: b.and_then(|entry| id_of(&entry.body)),
            });
        }
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
fn id_of(body: &Body) -> Option<String> {
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
