//! Roots: everything of the store that a branch needs, in memory and by its files.

use crate::book::Book;
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
    /// Content of which some may be missing.
    pub loose: Vec<FileContent>,
    /// What is missing of all this is in a remote.
    is_lazy: bool,
}

impl Roots {
    /// The roots of a branch: live tree (with what the kernel still holds of unlinked files), what is being
    /// stored, what somebody reads, and what its book keeps.
    ///
    /// All fields are named: a new one compiles only once it is said here what it keeps.
    pub fn of(inner: &Inner) -> Roots {
        let Inner {
            live,
            book,
            reference,
            storing,
            pins,
            // The state file names the same tree, of which `anchors` has all that is stored.
            tree_file: _,
            lookups: _,
            accessed: _,
            fence: _,
            held_until: _,
            scan_done: _,
            base_inodes: _,
            // Trees and files refer to what lies above it, which refers to that.
            brought: _,
            whose: _,
            // What it keeps is pinned.
            judging: _,
            outcomes: _,
            cut_off: _,
        } = inner;
        let mut roots = Roots::default();
        roots.trees.push(live.clone());
        roots.add_book(book);
        if let Some(reference) = reference {
            roots.directories.extend(reference.root);
            roots.contents.extend(reference.kv);
            roots.trees.push(reference.tree.clone());
        }
        roots.trees.extend(storing.clone());
        roots.trees.extend(pins.trees().cloned());
        roots
    }

    /// The same; where the workspace is lazy, what is missing is in its remote.
    pub fn lazy(self, is_lazy: bool) -> Roots {
        Roots { is_lazy, ..self }
    }

    /// States, what conflicts can be settled with, the timeline, and what the branch's files refer to.
    fn add_book(&mut self, book: &Book) {
        let Book {
            history,
            timeline,
            anchors,
            counters: _,
            base_changed: _,
            unreadable: _,
        } = book;
        for state in history.states.values() {
            let list = if history.states.is_stored(state.info.number) {
                &mut self.commits
            } else {
                &mut self.maybe
            };
            list.extend(state.info.id);
        }
        // Of a stored state nothing is needed beside its commit: its tree in memory may still have
        // unlinked files of the tree that it was made from.
        let pending = history.states.pending();
        let pending = pending.filter_map(|n| history.states.tree(n));
        self.trees.extend(pending.cloned());
        self.trees.extend(anchors.trees().cloned());
        self.directories.extend(anchors.root);
        self.contents.extend(anchors.contents().copied());
        self.contents.push(timeline.stored);
        let conflicts = history.conflicts.iter();
        let sides = conflicts.flat_map(|c| [&c.base, &c.ours, &c.theirs]);
        for side in sides.flatten() {
            match &side.entry.body {
                objstore::Body::File(content) => self.contents.push(*content),
                objstore::Body::Dir(id) => self.directories.extend(id),
                _ => {}
            }
        }
    }

    /// Of all this, what a lazy workspace needs without its remote: contents beside those of files, and of files that
    /// have changes over what is stored, that somebody has open, or of which that is said by their numbers.
    pub fn in_use(
        &self,
        inner: &Inner,
        slot: u16,
        is_held: &dyn Fn(u64) -> bool,
    ) -> Vec<FileContent> {
        let mut found = self.contents.clone();
        let none = Tree::default();
        let mut before = &none;
        for tree in &self.trees {
            Tree::diff(before, tree, &mut |nid, _, now| {
                let Some((inode, file)) = now.and_then(|i| Some((i, i.file()?))) else {
                    return;
                };
                let is_open = inode.nlink == 0 || inner.lookups.is_open(nid);
                if !file.is_plain() || is_open || is_held(inode.shown_ino(slot)) {
                    found.extend(stored_in(file));
                }
            });
            before = tree;
        }
        found
    }

    /// Marks all that must be there.
    pub fn walk(&self, walk: &mut Walk<'_>) -> Result<()> {
        let strict = match self.is_lazy {
            true => Strictness::WhatIsHere,
            false => Strictness::All,
        };
        for id in &self.commits {
            walk.commit(*id, strict)?;
        }
        for id in &self.directories {
            walk.tree(*id, strict)?;
        }
        for content in &self.contents {
            walk.content(content, b"", strict)?;
        }
        let none = Tree::default();
        let mut before = &none;
        let mut failed = None;
        for tree in &self.trees {
            Tree::diff(before, tree, &mut |_, _, now| {
                let file = now.and_then(|i| i.file()).filter(|_| failed.is_none());
                for content in file.into_iter().flat_map(stored_in) {
                    let walked = walk.content(&content, b"", strict);
                    failed = failed.take().or(walked.err());
                }
            });
            if let Some(e) = failed {
                return Err(e.into());
            }
            tree.check_whole()?;
            before = tree;
        }
        for content in &self.loose {
            walk.content(content, b"", Strictness::WhatIsThere)?;
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
