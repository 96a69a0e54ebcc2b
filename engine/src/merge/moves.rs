//! Which files of one tree are those of another one under a new name, as a merge would see it.

use super::Context;
use super::renames::detect;
use super::version::Version;
use super::walk::{Pair, Relevance, SideRenames, join};
use super::{Labels, Root};
use crate::error::Result;
use objstore::{Body, ObjectStore, TreeEntry, TreeId, diff_trees};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Files that were moved between two trees: by their new path, the old one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    files: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Moves {
    /// Looks for files that `old` has and `new` does not, and the other way round, and pairs them.
    pub fn between(store: &ObjectStore, old: &Root, new: &Root) -> Result<Moves> {
        let ctx = Context {
            store,
            labels: Labels {
                base: String::new(),
                ours: String::new(),
                theirs: String::new(),
            },
            now: (0, 0),
            depth: 0,
            held: Cell::new(0),
        };
        let mut side = differing(store, old.tree, new.tree)?;
        detect(&ctx, &mut side)?;
        let moved = side.pairs.into_iter().filter_map(|pair| {
            let (old, new) = (pair.old?.0, pair.new?.0);
            Some((new, old))
        });
        Ok(Moves {
            files: moved.collect(),
        })
    }

    /// Where a file was before.
    pub fn file(&self, new: &[u8]) -> Option<&Vec<u8>> {
        self.files.get(new)
    }

    /// Where most of the files below a directory were before, at the same places below it.
    pub fn directory(&self, new: &[u8]) -> Option<Vec<u8>> {
        let below = join(new, b"");
        let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
        let files = self.files.range(below.clone()..);
        for (path, old) in files.take_while(|(path, _)| path.starts_with(&below)) {
            let place = &path[new.len()..];
            if let Some(dir) = old.strip_suffix(place).filter(|dir| !dir.is_empty()) {
                *counts.entry(dir).or_default() += 1;
            }
        }
        let mut best: Option<(&[u8], usize)> = None;
        for (dir, count) in counts {
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((dir, count));
            }
        }
        best.map(|(dir, _)| dir.to_vec())
    }
}

/// Files that only one of two trees has; where they went is wanted of all.
fn differing(store: &ObjectStore, old: Option<TreeId>, new: Option<TreeId>) -> Result<SideRenames> {
    let mut side = SideRenames::default();
    let mut work = vec![(Vec::new(), old, new)];
    while let Some((dir, old, new)) = work.pop() {
        let mut failed = None;
        diff_trees(store, old, new, &mut |a, b| {
            let one = a.or(b).map(|e| join(&dir, &e.name)).unwrap_or_default();
            let (old_dir, new_dir) = (below(a), below(b));
            if old_dir.is_some() || new_dir.is_some() {
                work.push((one.clone(), old_dir.flatten(), new_dir.flatten()));
            }
            if failed.is_none() {
                failed = add(&mut side, &one, a, b).err();
            }
            Ok(())
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
    }
    Ok(side)
}

/// The entries of a directory; the outer `None` for anything else.
fn below(entry: Option<&TreeEntry>) -> Option<Option<TreeId>> {
    match entry?.body {
        Body::Dir(id) => Some(id),
        _ => None,
    }
}

fn add(
    side: &mut SideRenames,
    path: &[u8],
    old: Option<&TreeEntry>,
    new: Option<&TreeEntry>,
) -> Result<()> {
    let version = |e: Option<&TreeEntry>| match e {
        Some(entry) => Version::of(path, entry),
        None => Ok(None),
    };
    let (old, new) = (version(old)?, version(new)?);
    if old.is_some() == new.is_some() {
        return Ok(());
    }
    if old.is_some() {
        side.relevant.insert(path.to_vec(), Relevance::Content);
    }
    let named = |v: Option<Version>| v.map(|v| (path.to_vec(), v));
    side.pairs.push(Pair {
        old: named(old),
        new: named(new),
    });
    Ok(())
}
