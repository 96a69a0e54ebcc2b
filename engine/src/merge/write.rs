//! The merged tree: which directories there are, with which attributes, and their objects.
//!
//! A directory with something in it stays. An empty one stays where both sides kept it or one made it
//! empty; where a side deleted it, it goes with its last file. What a directory rename applies to goes
//! along, empty directories too. No directory stands below a file.

use super::content::{later, merge_meta};
use super::merger::{Merger, lookup};
use super::version::{Content, Matter, Version};
use super::walk::{PathSides, bit, split};
use super::{BASE, OURS, THEIRS, dirs, store_bytes};
use crate::error::{Error, Result};
use crate::record::conflict::ConflictKind;
use objstore::{Body, Edit, Meta, TreeEntry, TreeId, edit_tree};
use std::collections::{BTreeMap, BTreeSet};

/// What the directories of the result are to look like, before anything is written.
pub(super) struct Plan {
    /// Attributes of directories that both sides have.
    metas: BTreeMap<Vec<u8>, Meta>,
    /// Empty directories that stay, and what a directory rename makes of others.
    kept: BTreeMap<Vec<u8>, Meta>,
}

/// Decides about directories; what cannot be settled joins the conflicts.
pub(super) fn plan(merger: &mut Merger<'_>) -> Plan {
    let mut plan = Plan {
        metas: BTreeMap::new(),
        kept: BTreeMap::new(),
    };
    let mut troubles = Vec::new();
    for (path, node) in &merger.nodes {
        let metas = [BASE, OURS, THEIRS].map(|i| node.dirs[i].as_ref().map(|d| &d.meta));
        let [base, Some(ours), Some(theirs)] = metas else {
            if let Some((path, meta)) = alone(merger, path, node) {
                plan.kept.insert(path, meta);
            }
            continue;
        };
        let (meta, trouble) = merge_dir_meta(base, ours, theirs);
        troubles.extend(trouble.map(|kind| (path.clone(), kind, node.clone())));
        let stays = base.is_some() || node.dirmask == 0;
        if stays {
            plan.kept.insert(path.clone(), meta.clone());
        }
        plan.metas.insert(path.clone(), meta);
    }
    for (path, kind, node) in troubles {
        if !merger.conflicts.iter().any(|c| c.path == path) {
            merger.conflict(path, kind, &node);
        }
    }
    give_way_to_files(merger, &mut plan);
    plan
}

/// An empty directory is not seen by what decides about paths: one that a side made where the other side put a file
/// instead of a directory above it goes, in conflict.
fn give_way_to_files(merger: &mut Merger<'_>, plan: &mut Plan) {
    let file_above = |path: &[u8]| {
        let mut at = split(path).0;
        while !at.is_empty() && !matches!(merger.results.get(at), Some(Some(_))) {
            at = split(at).0;
        }
        (!at.is_empty()).then(|| at.to_vec())
    };
    let in_the_way = plan.kept.keys();
    let in_the_way = in_the_way.filter_map(|dir| Some((dir.clone(), file_above(dir)?)));
    let in_the_way: Vec<(Vec<u8>, Vec<u8>)> = in_the_way.collect();
    for (dir, file) in in_the_way {
        plan.kept.remove(&dir);
        let nodes = &merger.nodes;
        let node = nodes.get(&file).or_else(|| nodes.get(&dir)).cloned();
        let known = merger.conflicts.iter().any(|c| c.path == file);
        if let (Some(node), false) = (node, known) {
            merger.conflict(file, ConflictKind::DirectoryFile, &node);
        }
    }
}

/// An empty directory that one side made, where it belongs now.
fn alone(merger: &Merger<'_>, path: &[u8], node: &PathSides) -> Option<(Vec<u8>, Meta)> {
    let side = match [&node.dirs[OURS], &node.dirs[THEIRS]] {
        [Some(_), None] => OURS,
        [None, Some(_)] => THEIRS,
        _ => return None,
    };
    let dir = node.dirs[side].as_ref()?;
    if node.dirs[BASE].is_some() || node.dirmask & bit(side) != 0 {
        return None;
    }
    let renames = &merger.sides[OURS + THEIRS - side].dir_renames;
    let to = dirs::follow(path, renames).unwrap_or_else(|| path.to_vec());
    Some((to, dir.meta.clone()))
}

/// Attributes of a directory, with the time of the last change in it.
pub(super) fn merge_dir_meta(
    base: Option<&Meta>,
    ours: &Meta,
    theirs: &Meta,
) -> (Meta, Option<ConflictKind>) {
    let (mut meta, trouble) = merge_meta(base, ours, theirs);
    let time = later(base, ours, theirs);
    (meta.mtime_sec, meta.mtime_nsec) = (time.mtime_sec, time.mtime_nsec);
    (meta, trouble)
}

/// Stores what the merge made and returns the root directory's object.
pub(super) fn write(merger: &Merger<'_>, plan: &Plan) -> Result<Option<TreeId>> {
    let mut writer = Writer {
        merger,
        plan,
        edits: BTreeMap::new(),
    };
    for (path, version) in &merger.results {
        let (dir, name) = split(path);
        let edit = match version {
            Some(version) => Edit::Put(writer.entry(name, version)?),
            None => Edit::Remove(name.to_vec()),
        };
        writer.edit(dir, name, edit);
    }
    writer.directories()
}

struct Writer<'a, 'm> {
    merger: &'a Merger<'m>,
    plan: &'a Plan,
    /// Directory → name → what becomes of it.
    edits: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Edit>>,
}

impl Writer<'_, '_> {
    fn edit(&mut self, dir: &[u8], name: &[u8], edit: Edit) {
        let dir = self.edits.entry(dir.to_vec()).or_default();
        dir.insert(name.to_vec(), edit);
    }

    fn entry(&self, name: &[u8], version: &Version) -> Result<TreeEntry> {
        let body = match &version.matter {
            Matter::File(Content::Stored(content)) => Body::File(*content),
            Matter::File(Content::Text(text)) => {
                Body::File(store_bytes(self.merger.ctx.store, text)?)
            }
            Matter::Symlink(target) => Body::Symlink(target.clone()),
            Matter::Special => Body::None,
        };
        Ok(TreeEntry {
            name: name.to_vec(),
            meta: version.meta.clone(),
            body,
        })
    }

    /// Writes all touched directories, the deepest first.
    fn directories(mut self) -> Result<Option<TreeId>> {
        let mut all: BTreeSet<Vec<u8>> = BTreeSet::new();
        let nodes = self.merger.nodes.iter();
        let in_nodes = nodes.filter(|(_, node)| node.dirs.iter().any(Option::is_some));
        let touched = in_nodes.map(|(path, _)| path);
        for path in touched
            .chain(self.plan.kept.keys())
            .chain(self.edits.keys())
        {
            let mut at = &path[..];
            while !at.is_empty() && all.insert(at.to_vec()) {
                at = split(at).0;
            }
        }
        // By bytes a directory comes before what is in it.
        while let Some(path) = all.pop_last() {
            self.directory(&path)?;
        }
        let edits = self.edits.remove(&b""[..]).unwrap_or_default();
        let root = self.merger.roots[OURS].tree;
        Ok(edit_tree(
            self.merger.ctx.store,
            root,
            edits.into_values().collect(),
        )?)
    }

    fn directory(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name) = split(path);
        let edits = self.edits.remove(path).unwrap_or_default();
        let ours = match self.merger.nodes.get(path) {
            Some(node) => node.dirs[OURS].as_ref().map(|d| (d.meta.clone(), d.tree)),
            None => self.unchanged(path)?,
        };
        let before = ours.as_ref().and_then(|(_, tree)| *tree);
        let edits: Vec<Edit> = edits.into_values().collect();
        let tree = edit_tree(self.merger.ctx.store, before, edits)?;
        let is_file = matches!(self.merger.results.get(path), Some(Some(_)));
        let stays = match self.merger.nodes.get(path) {
            Some(_) => self.plan.kept.contains_key(path),
            None => ours.is_some() || self.plan.kept.contains_key(path),
        };
        match (tree.is_some(), is_file) {
            (true, true) => Err(Error::Damaged {
                what: format!("the merge of {}", String::from_utf8_lossy(path)),
                why: "it would be a file and a directory".into(),
            }),
            (false, true) => Ok(()),
            (false, false) if !stays => {
                self.edit(dir, name, Edit::Remove(name.to_vec()));
                Ok(())
            }
            _ => {
                let entry = TreeEntry {
                    name: name.to_vec(),
                    meta: self.dir_meta(path)?,
                    body: Body::Dir(tree),
                };
                self.edit(dir, name, Edit::Put(entry));
                Ok(())
            }
        }
    }

    /// A directory that is the same in all three trees.
    fn unchanged(&self, path: &[u8]) -> Result<Option<(Meta, Option<TreeId>)>> {
        let entry = lookup(self.merger.ctx, self.merger.roots[OURS].tree, path)?;
        Ok(entry.and_then(|entry| match entry.body {
            Body::Dir(tree) => Some((entry.meta, tree)),
            _ => None,
        }))
    }

    /// Attributes of a directory of the result: merged, or of the side that has it, or, for one that
    /// only a rename made, those of the directory that it is in.
    fn dir_meta(&self, path: &[u8]) -> Result<Meta> {
        let mut at = path;
        loop {
            if let Some(meta) = self.plan.metas.get(at).or_else(|| self.plan.kept.get(at)) {
                return Ok(meta.clone());
            }
            let node = self.merger.nodes.get(at);
            let side = node.and_then(|node| {
                [OURS, THEIRS, BASE]
                    .into_iter()
                    .find_map(|i| node.dirs[i].as_ref())
            });
            if let Some(dir) = side {
                return Ok(dir.meta.clone());
            }
            if let (None, Some((meta, _))) = (node, self.unchanged(at)?) {
                return Ok(meta);
            }
            if at.is_empty() {
                return Ok(self.merger.roots[OURS].meta.clone());
            }
            at = split(at).0;
        }
    }
}
