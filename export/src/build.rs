//! Directories of a plan becoming stored trees, the deepest first.

use crate::error::{Error, Result};
use crate::inodes::Kind;
use crate::overlay::{BaseNode, Overlay};
use crate::plan::{Groups, Plan, Reader, Target};
use engine::Cancel;
use objstore::{
    Body, Edit, FileContent, Meta, ObjectStore, TreeEntry, TreeId, edit_tree, store_content,
};
use std::collections::HashMap;

/// Builds what a plan says, of file contents that are stored.
pub(crate) struct Builder<'a> {
    pub reader: &'a Reader<'a>,
    pub store: &'a ObjectStore,
    pub cancel: &'a Cancel,
    pub plan: &'a Plan,
    /// Of [`Plan::files`].
    pub contents: &'a [FileContent],
    pub groups: Groups,
    /// Groups of files of a base that have several names.
    pub base_groups: HashMap<(u64, u64), u64>,
}

impl Builder<'_> {
    /// Attributes and directory of the root.
    pub fn build(mut self) -> Result<(Meta, Option<TreeId>)> {
        let mut ids: Vec<Option<TreeId>> = vec![None; self.plan.dirs.len()];
        for at in (0..self.plan.dirs.len()).rev() {
            self.cancel.check()?;
            let plan = self.plan;
            let mut edits = Vec::with_capacity(plan.dirs[at].entries.len());
            for (name, node) in &plan.dirs[at].entries {
                let (meta, body) = match node {
                    Target::Dir(dir) => (self.dir_meta(*dir)?, Body::Dir(ids[*dir])),
                    Target::Inode(place) => self.inode(*place)?,
                    Target::Base(base) => self.base(base)?,
                };
                let name = name.clone();
                edits.push(Edit::Put(TreeEntry { name, meta, body }));
            }
            ids[at] = edit_tree(self.store, None, edits)?;
        }
        Ok((self.dir_meta(0)?, ids[0]))
    }

    fn dir_meta(&self, dir: usize) -> Result<Meta> {
        let dir = &self.plan.dirs[dir];
        match (dir.inode, &dir.below) {
            (Some(place), _) => self.meta(place),
            (None, Some(path)) => self.overlay()?.dir_meta(path),
            (None, None) => Err(Error::Stopped),
        }
    }

    fn overlay(&self) -> Result<&Overlay> {
        self.reader.overlay.ok_or(Error::Stopped)
    }

    fn meta(&self, place: usize) -> Result<Meta> {
        let inode = self.reader.inodes.at(place);
        let mut meta = inode.meta();
        meta.xattrs = self.reader.facts.xattrs(inode.ino)?;
        Ok(meta)
    }

    fn inode(&mut self, place: usize) -> Result<(Meta, Body)> {
        let (facts, inode) = (self.reader.facts, self.reader.inodes.at(place));
        let mut meta = self.meta(place)?;
        let recorded = facts.group(inode.ino)?;
        if recorded.is_some() || self.plan.linked.contains(&inode.ino) {
            meta.link_group = self.groups.of(inode.ino, recorded);
        }
        let body = match inode.kind() {
            Kind::File => Body::File(self.content(place)),
            Kind::Symlink => Body::Symlink(facts.target(inode.ino)?.unwrap_or_default()),
            Kind::Special | Kind::Dir => Body::None,
        };
        Ok((meta, body))
    }

    fn content(&self, place: usize) -> FileContent {
        match self.plan.files.binary_search(&place) {
            Ok(at) => self.contents[at],
            Err(_) => FileContent::Empty,
        }
    }

    /// A name that shows through; its file is stored now.
    fn base(&mut self, node: &BaseNode) -> Result<(Meta, Body)> {
        let mut meta = node.meta.clone();
        if self.overlay()?.is_linked(node.identity) {
            let groups = &mut self.groups;
            let group = self.base_groups.entry(node.identity);
            meta.link_group = *group.or_insert_with(|| groups.fresh());
        }
        let body = match (&node.target, meta.mode & 0o170000) {
            (Some(target), _) => Body::Symlink(target.clone()),
            (None, 0o100000) => {
                let file = self.overlay()?.open_file(&node.path)?;
                let data = 0..node.size;
                let data = std::slice::from_ref(&data);
                let stored = store_content(self.store, None, &[], data, node.size, &file);
                Body::File(stored?)
            }
            _ => Body::None,
        };
        Ok((meta, body))
    }
}
