//! Roots: everything of the store that a branch needs, in memory and by its files.

use crate::branch::Inner;
use crate::error::Result;
use crate::tree::Tree;
use crate::tree::file::{Body, FileData, Src};
use objstore::content::FileContent;
use objstore::gc::{Strictness, Walk};
use objstore::{CommitId, TreeId};

/// The roots of one branch at one moment. Taking them is O(states); trees are shared.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    /// Commits that are stored as a whole.
    pub commits: Vec<CommitId>,
    /// Commits of which some may be missing: they were never stored as a whole, or have expired.
    pub maybe: Vec<CommitId>,
    /// Directories.
    directories: Vec<TreeId>,
    /// Trees whose files are needed, the live one first.
    trees: Vec<Tree>,
    contents: Vec<FileContent>,
}

impl Roots {
    /// The roots of a branch: live tree (with what the kernel still holds of unlinked files), states,
    /// what is being stored, what somebody reads, what conflicts can be settled with, the timeline, and what
    /// its files on disk refer to.
    pub fn of(inner: &Inner) -> Roots {
        let mut roots = Roots::default();
        roots.trees.push(inner.live.clone());
        for state in inner.book.history.states.values() {
            let list = if state.in_store {
                &mut roots.commits
            } else {
                &mut roots.maybe
            };
            list.extend(state.info.id);
            // Of a stored state nothing is needed beside its commit: its tree in memory may still have
            // unlinked files of the tree that it was made from.
            let pending = state.tree.iter().filter(|_| !state.in_store);
            roots.trees.extend(pending.cloned());
        }
        if let Some(reference) = &inner.reference {
            roots.directories.extend(reference.root);
            roots.contents.extend(reference.kv);
            roots.trees.push(reference.tree.clone());
        }
        roots.trees.extend(inner.storing.clone());
        roots.trees.extend(inner.book.anchors.trees().cloned());
        roots.directories.extend(inner.book.anchors.root);
        roots
            .contents
            .extend(inner.book.anchors.contents().copied());
        roots.contents.push(inner.book.timeline.stored);
        roots.trees.extend(inner.pins.trees().cloned());
        let conflicts = inner.book.history.conflicts.iter();
        let sides = conflicts.flat_map(|c| [&c.base, &c.ours, &c.theirs]);
        for side in sides.flatten() {
            match &side.entry.body {
                objstore::Body::File(content) => roots.contents.push(*content),
                objstore::Body::Dir(id) => roots.directories.extend(id),
                _ => {}
            }
        }
        roots
    }

    /// Marks all that must be there.
    pub fn walk(&self, walk: &mut Walk<'_>) -> Result<()> {
        for id in &self.commits {
            walk.commit(*id, Strictness::All)?;
        }
        for id in &self.directories {
            walk.tree(*id, Strictness::All)?;
        }
        for content in &self.contents {
            walk.content(content, b"", Strictness::All)?;
        }
        let none = Tree::default();
        let mut before = &none;
        let mut failed = None;
        for tree in &self.trees {
            Tree::diff(before, tree, &mut |_, _, now| {
                let file = now.and_then(|i| i.file()).filter(|_| failed.is_none());
                for content in file.into_iter().flat_map(stored_in) {
                    failed = failed
                        .take()
                        .or(walk.content(&content, b"", Strictness::All).err());
                }
            });
            if let Some(e) = failed {
                return Err(e.into());
            }
            before = tree;
        }
        Ok(())
    }

    /// Marks what is there of the rest.
    pub fn walk_rest(commits: &[CommitId], walk: &mut Walk<'_>) -> Result<()> {
        for id in commits {
            walk.commit(*id, Strictness::WhatIsThere)?;
        }
        Ok(())
    }
}

/// Stored content that a file refers to.
fn stored_in(file: &FileData) -> Vec<FileContent> {
    let of = |body: &Body| match body {
        Body::Stored(c) => Some(*c),
        Body::Base(f) => f.stored(),
        _ => None,
    };
    let shared = file.extents().filter_map(|piece| match piece.src {
        Src::Shared { body, .. } => of(&body),
        _ => None,
    });
    of(file.body().0).into_iter().chain(shared).collect()
}
