//! Trees of tests as plain maps, and the way into a store and back.

use engine::merge::Root;
use objstore::content::FileContent;
use objstore::crash_storage::CrashStorage;
use objstore::{
    Body, Edit, Meta, ObjectStore, StoreConfig, TreeEntry, TreeId, edit_tree, read_content,
    read_tree, store_content,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    File(Vec<u8>),
    Link(Vec<u8>),
    Special,
}

/// A file, symbolic link or special file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub meta: Meta,
    pub what: What,
}

/// A tree: files by path, and attributes of directories (the root's under the empty path).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub leaves: BTreeMap<Vec<u8>, Leaf>,
    pub dirs: BTreeMap<Vec<u8>, Meta>,
}

/// Attributes of a plain file.
pub fn file_meta(executable: bool) -> Meta {
    Meta {
        mode: if executable { 0o100755 } else { 0o100644 },
        ..Meta::default()
    }
}

/// Attributes of a plain directory.
pub fn dir_meta() -> Meta {
    Meta {
        mode: 0o040755,
        ..Meta::default()
    }
}

impl Leaf {
    pub fn file(bytes: impl AsRef<[u8]>) -> Leaf {
        Leaf {
            meta: file_meta(false),
            what: What::File(bytes.as_ref().to_vec()),
        }
    }

    pub fn link(target: impl AsRef<[u8]>) -> Leaf {
        Leaf {
            meta: Meta {
                mode: 0o120777,
                ..Meta::default()
            },
            what: What::Link(target.as_ref().to_vec()),
        }
    }

    pub fn fifo() -> Leaf {
        Leaf {
            meta: Meta {
                mode: 0o010644,
                ..Meta::default()
            },
            what: What::Special,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.what {
            What::File(bytes) | What::Link(bytes) => bytes,
            What::Special => b"",
        }
    }
}

impl Tree {
    /// A tree of plain files.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.put(path, Leaf::file(text));
        }
        tree
    }

    pub fn put(&mut self, path: impl AsRef<[u8]>, leaf: Leaf) {
        self.leaves.insert(path.as_ref().to_vec(), leaf);
    }

    pub fn text(&self, path: &str) -> String {
        let leaf = self.leaves.get(path.as_bytes());
        let leaf = leaf.unwrap_or_else(|| panic!("no {path}"));
        String::from_utf8(leaf.bytes().to_vec()).unwrap()
    }

    /// All paths that are directories.
    pub fn all_dirs(&self) -> BTreeSet<Vec<u8>> {
        let mut dirs: BTreeSet<Vec<u8>> = BTreeSet::from([Vec::new()]);
        for path in self.leaves.keys().chain(self.dirs.keys()) {
            let own = self.dirs.contains_key(path).then_some(path.len());
            let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
            for end in slashes.map(|(i, _)| i).chain(own) {
                dirs.insert(path[..end].to_vec());
            }
        }
        dirs
    }

    fn meta_of_dir(&self, path: &[u8]) -> Meta {
        self.dirs.get(path).cloned().unwrap_or_else(dir_meta)
    }
}

/// A store in memory.
pub fn store() -> ObjectStore {
    let disk = CrashStorage::without_log();
    ObjectStore::open(Arc::new(disk), StoreConfig::default()).unwrap()
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Stores a tree.
pub fn save(store: &ObjectStore, tree: &Tree) -> Root {
    let mut edits: BTreeMap<Vec<u8>, Vec<Edit>> = BTreeMap::new();
    for (path, leaf) in &tree.leaves {
        let (dir, name) = split(path);
        let body = match &leaf.what {
            What::File(bytes) => Body::File(save_bytes(store, bytes)),
            What::Link(target) => Body::Symlink(target.clone()),
            What::Special => Body::None,
        };
        let entry = TreeEntry {
            name: name.to_vec(),
            meta: leaf.meta.clone(),
            body,
        };
        edits
            .entry(dir.to_vec())
            .or_default()
            .push(Edit::Put(entry));
    }
    let mut root = None;
    for dir in tree.all_dirs().into_iter().rev() {
        let id = edit_tree(store, None, edits.remove(&dir).unwrap_or_default()).unwrap();
        if dir.is_empty() {
            root = id;
            break;
        }
        let (parent, name) = split(&dir);
        let entry = TreeEntry {
            name: name.to_vec(),
            meta: tree.meta_of_dir(&dir),
            body: Body::Dir(id),
        };
        edits
            .entry(parent.to_vec())
            .or_default()
            .push(Edit::Put(entry));
    }
    Root {
        meta: tree.meta_of_dir(b""),
        tree: root,
    }
}

/// Stores the bytes of a file.
pub fn save_bytes(store: &ObjectStore, bytes: &[u8]) -> FileContent {
    let len = bytes.len() as u64;
    let all = std::iter::once(0..len).collect::<Vec<_>>();
    store_content(store, None, &[], &all, len, &bytes.to_vec()).unwrap()
}

/// Reads a tree back.
pub fn load(store: &ObjectStore, root: &Root) -> Tree {
    let mut tree = Tree::default();
    tree.dirs.insert(Vec::new(), root.meta.clone());
    load_dir(store, root.tree, b"", &mut tree);
    tree
}

fn load_dir(store: &ObjectStore, id: Option<TreeId>, dir: &[u8], tree: &mut Tree) {
    let mut entries = Vec::new();
    let mut take = |entry| {
        entries.push(entry);
        Ok(())
    };
    read_tree(store, id, &mut take).unwrap();
    for entry in entries {
        let path = match dir {
            b"" => entry.name.clone(),
            dir => [dir, b"/", &entry.name[..]].concat(),
        };
        let what = match &entry.body {
            Body::Dir(id) => {
                tree.dirs.insert(path.clone(), entry.meta.clone());
                load_dir(store, *id, &path, tree);
                continue;
            }
            Body::File(content) => What::File(load_bytes(store, content)),
            Body::Symlink(target) => What::Link(target.clone()),
            Body::None => What::Special,
        };
        let meta = entry.meta;
        tree.leaves.insert(path, Leaf { meta, what });
    }
}

/// Reads the bytes of a file.
pub fn load_bytes(store: &ObjectStore, content: &FileContent) -> Vec<u8> {
    let mut bytes = vec![0; content.len() as usize];
    read_content(store, content, 0, &mut bytes).unwrap();
    bytes
}
