//! One merge of three trees, from what differs to an outcome for each path.

use super::version::Version;
use super::walk::{DirSide, Found, PathSides, Paths, SideRenames, bit, split};
use super::{BASE, Context, OURS, Root, THEIRS, dirs, entries, links, pairing, renames, walk};
use crate::error::Result;
use crate::record::conflict::{Conflict, ConflictKind, ConflictSide};
use objstore::{Body, TreeEntry, TreeId, tree_entry};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The state of a merge.
pub(super) struct Merger<'a> {
    pub ctx: &'a Context<'a>,
    pub roots: [&'a Root; 3],
    pub nodes: Paths,
    pub sides: [SideRenames; 3],
    /// Paths whose files a directory rename moved elsewhere.
    pub moved: Vec<Vec<u8>>,
    /// What each path becomes: a version or nothing.
    pub results: BTreeMap<Vec<u8>, Option<Version>>,
    /// Directories that have files in the result (of those that were looked at).
    pub occupied: HashSet<Vec<u8>>,
    pub conflicts: Vec<Conflict>,
    /// Further paths that cannot be settled, which no file stands for.
    notes: BTreeSet<(Vec<u8>, ConflictKind)>,
}

impl<'a> Merger<'a> {
    /// Decides everything; nothing is written but virtual ancestors' files and what is too much to hold.
    pub fn run(ctx: &'a Context<'a>, roots: [&'a Root; 3]) -> Result<Merger<'a>> {
        let Found { nodes, sides } = walk::find(ctx, roots.map(|root| root.tree))?;
        let mut merger = Merger {
            ctx,
            roots,
            nodes,
            sides,
            moved: Vec::new(),
            results: BTreeMap::new(),
            occupied: HashSet::new(),
            conflicts: Vec::new(),
            notes: BTreeSet::new(),
        };
        links::tell_apart(&mut merger)?;
        for side in [OURS, THEIRS] {
            renames::detect(ctx, &mut merger.sides[side])?;
        }
        let all = dirs::collect(&mut merger)?;
        pairing::apply(&mut merger, &all)?;
        entries::process(&mut merger)?;
        links::keep_consistent(&mut merger)?;
        for path in std::mem::take(&mut merger.moved) {
            merger.results.entry(path).or_insert(None);
        }
        for (path, kind) in std::mem::take(&mut merger.notes) {
            if !merger
                .conflicts
                .iter()
                .any(|conflict| conflict.path == path)
            {
                let node = merger.nodes.get(&path).cloned().unwrap_or_default();
                merger.conflict(path, kind, &node);
            }
        }
        Ok(merger)
    }

    /// Notes a path that cannot be settled.
    pub fn note(&mut self, path: &[u8], kind: ConflictKind) {
        self.notes.insert((path.to_vec(), kind));
    }

    /// Records a conflict with what each side has.
    pub fn conflict(&mut self, path: Vec<u8>, kind: ConflictKind, node: &PathSides) {
        let side = |i: usize| match (&node.stages[i], &node.dirs[i]) {
            (Some(version), _) if node.filemask & bit(i) != 0 => {
                version.origin.as_ref().map(|origin| ConflictSide {
                    path: origin.path.clone(),
                    entry: origin.entry.clone(),
                })
            }
            (None, Some(dir)) if node.filemask == 0 => Some(ConflictSide {
                path: path.clone(),
                entry: TreeEntry {
                    name: split(&path).1.to_vec(),
                    meta: dir.meta.clone(),
                    body: Body::Dir(dir.tree),
                },
            }),
            _ => None,
        };
        let (base, ours, theirs) = (side(BASE), side(OURS), side(THEIRS));
        self.conflicts.push(Conflict {
            path,
            kind,
            base,
            ours,
            theirs,
        });
    }

    /// Records that the attributes of the root directory could not be settled.
    pub fn root_conflict(&mut self, kind: ConflictKind) {
        let mut node = PathSides::default();
        for (i, root) in self.roots.iter().enumerate() {
            node.dirs[i] = Some(DirSide {
                meta: root.meta.clone(),
                tree: root.tree,
            });
        }
        self.conflict(Vec::new(), kind, &node);
    }

    /// Says what becomes of a path.
    pub fn settle(&mut self, path: Vec<u8>, version: Option<Version>) {
        if version.is_some() {
            let mut dir = split(&path).0;
            while !dir.is_empty() && self.occupied.insert(dir.to_vec()) {
                dir = split(dir).0;
            }
        }
        self.results.insert(path, version);
    }

    /// Replaces a stage, which keeps its origin.
    pub fn set_stage(&mut self, path: &[u8], side: usize, version: Option<Version>) {
        if let Some(node) = self.nodes.get_mut(path)
            && let Some(mut version) = version
        {
            let before = node.stages[side].as_ref();
            version.origin = before.and_then(|before| before.origin.clone());
            node.stages[side] = Some(version);
        }
    }

    /// True where something stands at a path on a side, or in all three trees alike.
    pub fn is_in_way(&self, path: &[u8], side: usize) -> Result<bool> {
        match self.nodes.get(path) {
            Some(node) if node.done.is_some() => Ok(true),
            Some(node) => Ok((node.filemask | node.dirmask) & bit(side) != 0),
            None => self.is_unchanged_path(path),
        }
    }

    /// True where a file stands where a path wants a directory, and no tree has that directory. (Git
    /// puts both there, and loses one of them.)
    pub fn is_below_file(&self, path: &[u8]) -> Result<bool> {
        let mut dir = split(path).0;
        while !dir.is_empty() {
            let file = match self.nodes.get(dir) {
                Some(node) => node.filemask != 0 && node.dirmask == 0,
                None => match lookup(self.ctx, self.roots[BASE].tree, dir)? {
                    Some(entry) => !matches!(entry.body, Body::Dir(_)),
                    None => false,
                },
            };
            if file {
                return Ok(true);
            }
            dir = split(dir).0;
        }
        Ok(false)
    }

    /// True where all three trees have the same at a path.
    fn is_unchanged_path(&self, path: &[u8]) -> Result<bool> {
        Ok(match lookup(self.ctx, self.roots[BASE].tree, path)? {
            Some(entry) => match entry.body {
                Body::Dir(tree) => walk::has_files(self.ctx.store, tree)?,
                _ => !self.moved.iter().any(|moved| moved == path),
            },
            None => false,
        })
    }

    /// A path that nothing has, made of a path and a side's label.
    pub fn unique_path(&mut self, path: &[u8], side: usize) -> Result<Vec<u8>> {
        let label = match side {
            OURS => &self.ctx.labels.ours,
            _ => &self.ctx.labels.theirs,
        };
        let stem = [path, b"~", label.replace('/', "_").as_bytes()].concat();
        let mut unique = stem.clone();
        let mut number = 0;
        while self.nodes.contains_key(&unique) || self.is_unchanged_path(&unique)? {
            unique = [&stem, format!("_{number}").as_bytes()].concat();
            number += 1;
        }
        self.nodes.insert(unique.clone(), PathSides::default());
        Ok(unique)
    }
}

/// The entry at a path of a tree.
pub(super) fn lookup(
    ctx: &Context<'_>,
    root: Option<TreeId>,
    path: &[u8],
) -> Result<Option<TreeEntry>> {
    let mut tree = root;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let (Some(id), Some(name)) = (tree, names.next()) {
        let Some(entry) = tree_entry(ctx.store, id, name)? else {
            return Ok(None);
        };
        if names.peek().is_none() {
            return Ok(Some(entry));
        }
        tree = match entry.body {
            Body::Dir(tree) => tree,
            _ => None,
        };
    }
    Ok(None)
}
