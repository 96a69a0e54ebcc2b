//! Who needs an object: paths of commits and of live trees, found by going down from their roots.
//!
//! A directory below which all is well is looked into once; one with damage is looked into for each commit
//! that has it, so that all are named. Nested however deep, it takes no stack.

use super::{Affected, Key};
use crate::cancel::Cancel;
use objstore::content::FileContent;
use objstore::{
    Body, ChunkId, Commit, CommitId, Kind, Manifest, ManifestId, Node, ObjectStore, Part, TreeId,
    TreeNode,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Directories that a commit may have below one another, and parts that one may have.
const VISITS_MAX: usize = 50_000_000;
/// Names that are kept for one object.
const NAMES_MAX: usize = 10_000;

/// Where the key-value state of a commit is said to be.
const KV_PATH: &[u8] = b".agentvfs/kv";

/// Looks for what is needed and cannot be read.
pub(super) struct Namer<'a> {
    store: &'a ObjectStore,
    /// Once it is cancelled nothing more is looked at.
    cancel: &'a Cancel,
    found: BTreeMap<Key, Vec<Affected>>,
    clean: HashSet<TreeId>,
    contents: HashMap<FileContent, bool>,
}

/// A directory on the way down.
struct Visit {
    id: TreeId,
    path: Vec<u8>,
    /// Where its parent stands in the list of visits.
    parent: Option<usize>,
}

impl<'a> Namer<'a> {
    pub fn new(store: &'a ObjectStore, cancel: &'a Cancel) -> Namer<'a> {
        Namer {
            store,
            cancel,
            found: BTreeMap::new(),
            clean: HashSet::new(),
            contents: HashMap::new(),
        }
    }

    /// Nobody waits for what is found any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Objects that cannot be read, and who needs them.
    pub fn into_found(self) -> BTreeMap<Key, Vec<Affected>> {
        self.found
    }

    fn blame(&mut self, key: Key, who: &Affected, path: &[u8]) {
        let names = self.found.entry(key).or_default();
        if names.len() < NAMES_MAX {
            names.push(Affected {
                path: path.to_vec(),
                ..who.clone()
            });
        }
    }

    /// Goes through a commit.
    pub fn commit(&mut self, id: &CommitId, who: &Affected) {
        match self.store.get_object::<Commit>(id) {
            Err(_) => self.blame((Kind::Commit, *id.as_bytes()), who, b""),
            Ok(commit) => {
                if let Some(root) = commit.root {
                    self.tree(root, who);
                }
                if let Some(kv) = commit.kv {
                    self.content(&kv, KV_PATH, who);
                }
            }
        }
    }

    /// Goes through a directory and all below it.
    pub fn tree(&mut self, root: TreeId, who: &Affected) {
        let mut visits = vec![Visit {
            id: root,
            path: Vec::new(),
            parent: None,
        }];
        let mut bad = HashSet::new();
        let mut next = 0;
        while next < visits.len() && next < VISITS_MAX && !self.cancel.is_cancelled() {
            let (id, path) = (visits[next].id, visits[next].path.clone());
            if !self.clean.contains(&id) && !self.visit(&id, &path, next, &mut visits, who) {
                let mut at = Some(next);
                while let Some(i) = at.filter(|i| bad.insert(*i)) {
                    at = visits[i].parent;
                }
            }
            next += 1;
        }
        let bad: HashSet<TreeId> = bad.into_iter().map(|i: usize| visits[i].id).collect();
        let clean = visits.iter().map(|v| v.id).filter(|id| !bad.contains(id));
        self.clean.extend(clean);
    }

    /// Looks at one node of a directory; false where something in it cannot be read.
    fn visit(
        &mut self,
        id: &TreeId,
        path: &[u8],
        at: usize,
        visits: &mut Vec<Visit>,
        who: &Affected,
    ) -> bool {
        let Ok(node) = self.store.get_object::<TreeNode>(id) else {
            self.blame((Kind::Tree, *id.as_bytes()), who, path);
            return false;
        };
        let entries = match node {
            TreeNode::Inner(children) => {
                visits.extend(children.iter().map(|c| Visit {
                    id: c.id,
                    path: path.to_vec(),
                    parent: Some(at),
                }));
                return true;
            }
            TreeNode::Leaf(entries) => entries,
        };
        let mut well = true;
        for entry in entries {
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            match entry.body {
                Body::Dir(Some(id)) => visits.push(Visit {
                    id,
                    path: below,
                    parent: Some(at),
                }),
                Body::File(content) => well &= self.content(&content, &below, who),
                _ => {}
            }
        }
        well
    }

    /// Looks at the content of a file; false where some of it cannot be read.
    pub fn content(&mut self, content: &FileContent, path: &[u8], who: &Affected) -> bool {
        if self.contents.get(content) == Some(&true) {
            return true;
        }
        let well = match *content {
            FileContent::Empty => true,
            FileContent::Chunk { id, .. } => self.chunk(&id, path, who),
            FileContent::Manifest { id, .. } => self.manifest(id, path, who),
        };
        self.contents.insert(*content, well);
        well
    }

    fn chunk(&mut self, id: &ChunkId, path: &[u8], who: &Affected) -> bool {
        let there = self.store.contains(Kind::Chunk, id.as_bytes());
        if !there {
            self.blame((Kind::Chunk, *id.as_bytes()), who, path);
        }
        there
    }

    fn manifest(&mut self, root: ManifestId, path: &[u8], who: &Affected) -> bool {
        let mut nodes = vec![root];
        let (mut well, mut visits) = (true, 0);
        while let Some(id) = nodes.pop() {
            visits += 1;
            let found = self.store.get_object::<Manifest>(&id);
            match found.map(|manifest| manifest.node) {
                Ok(Node::Inner { children, .. }) if visits < VISITS_MAX => {
                    nodes.extend(children.iter().map(|c| c.id));
                }
                Ok(Node::Leaf(parts)) => {
                    for part in parts {
                        if let Part::Data { id, .. } = part {
                            well &= self.chunk(&id, path, who);
                        }
                    }
                }
                _ => {
                    self.blame((Kind::Manifest, *id.as_bytes()), who, path);
                    well = false;
                }
            }
        }
        well
    }
}
