//! Random histories: branches that edit, rename and delete real files, and merge each other.

use super::edits;
use super::rng::Rng;
use super::tree::{Leaf, Tree, What, file_meta};

const WORDS: [&str; 10] = [
    "alpha", "beta", "gamma", "delta", "lib", "core", "util", "main", "notes", "data",
];

/// A project to start from.
pub fn project(rng: &mut Rng, texts: &[Vec<u8>]) -> Tree {
    let mut tree = Tree::default();
    let count = 6 + rng.below(14);
    for _ in 0..count {
        let path = new_path(rng, &tree);
        let leaf = new_leaf(rng, texts);
        put(&mut tree, path, leaf);
    }
    tree
}

fn new_leaf(rng: &mut Rng, texts: &[Vec<u8>]) -> Leaf {
    match rng.below(12) {
        0 => Leaf::link(new_target(rng)),
        1 => {
            let mut bytes = edits::excerpt(rng, texts);
            bytes.insert(bytes.len() / 2, 0);
            Leaf::file(bytes)
        }
        2 => Leaf::file(""),
        3 => {
            let mut leaf = Leaf::file(edits::excerpt(rng, texts));
            leaf.meta = file_meta(true);
            leaf
        }
        _ => Leaf::file(edits::excerpt(rng, texts)),
    }
}

/// Targets differ: which of several equal links was renamed to another is anybody's guess.
fn new_target(rng: &mut Rng) -> Vec<u8> {
    format!("../{}{}", rng.pick(&WORDS), rng.below(1 << 40)).into_bytes()
}

fn new_dir(rng: &mut Rng, tree: &Tree) -> Vec<u8> {
    let dirs: Vec<Vec<u8>> = tree.all_dirs().into_iter().collect();
    let dir = rng.pick(&dirs).clone();
    match rng.below(3) {
        0 if dir.iter().filter(|b| **b == b'/').count() < 3 => {
            join(&dir, rng.pick(&WORDS).as_bytes())
        }
        _ => dir,
    }
}

fn new_path(rng: &mut Rng, tree: &Tree) -> Vec<u8> {
    let dir = new_dir(rng, tree);
    let mut name = rng.pick(&WORDS).to_string();
    if rng.one_in(3) {
        name.push_str(&rng.below(9).to_string());
    }
    let ends: [&str; 4] = [".rs", ".md", ".txt", ""];
    name.push_str(ends[rng.below(4) as usize]);
    join(&dir, name.as_bytes())
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

/// Puts a file at a path; whatever is in the way goes.
pub fn put(tree: &mut Tree, path: Vec<u8>, leaf: Leaf) {
    let below = [&path[..], b"/"].concat();
    tree.leaves.retain(|other, _| {
        let above = [&other[..], b"/"].concat();
        !other.starts_with(&below) && !path.starts_with(&above)
    });
    tree.leaves.insert(path, leaf);
}

/// Changes a tree as somebody who works in it.
pub fn work(rng: &mut Rng, tree: &mut Tree, texts: &[Vec<u8>]) {
    for _ in 0..1 + rng.below(4) {
        if tree.leaves.is_empty() {
            *tree = project(rng, texts);
        }
        step(rng, tree, texts);
    }
}

fn step(rng: &mut Rng, tree: &mut Tree, texts: &[Vec<u8>]) {
    let paths: Vec<Vec<u8>> = tree.leaves.keys().cloned().collect();
    let path = rng.pick(&paths).clone();
    let Some(leaf) = tree.leaves.get(&path).cloned() else {
        return;
    };
    match rng.below(20) {
        0..=5 => {
            let leaf = edited(rng, leaf);
            tree.leaves.insert(path, leaf);
        }
        6 | 7 => {
            tree.leaves.remove(&path);
            let to = new_path(rng, tree);
            let leaf = match rng.below(2) {
                0 => edited(rng, leaf),
                _ => leaf,
            };
            put(tree, to, leaf);
        }
        8 => {
            // Into another directory, under the same name.
            tree.leaves.remove(&path);
            let name = path.rsplit(|b| *b == b'/').next().unwrap().to_vec();
            let to = join(&new_dir(rng, tree), &name);
            let leaf = edited(rng, leaf);
            put(tree, to, leaf);
        }
        9..=11 => rename_dir(rng, tree),
        12 => drop(tree.leaves.remove(&path)),
        13 => {
            let dirs: Vec<Vec<u8>> = tree.all_dirs().into_iter().collect();
            let gone = [&rng.pick(&dirs)[..], b"/"].concat();
            tree.leaves.retain(|path, _| !path.starts_with(&gone));
        }
        14 | 15 => {
            let to = new_path(rng, tree);
            let leaf = new_leaf(rng, texts);
            put(tree, to, leaf);
        }
        16 => {
            // A copy.
            let to = new_path(rng, tree);
            let leaf = edited(rng, leaf);
            put(tree, to, leaf);
        }
        17 => {
            let mut leaf = leaf;
            if let What::File(_) = leaf.what {
                leaf.meta = file_meta(leaf.meta.mode == 0o100644);
            }
            tree.leaves.insert(path, leaf);
        }
        18 => {
            let leaf = new_leaf(rng, texts);
            tree.leaves.insert(path, leaf);
        }
        _ => {
            // A file becomes a directory.
            tree.leaves.remove(&path);
            put(tree, join(&path, b"main.rs"), leaf);
        }
    }
}

fn edited(rng: &mut Rng, leaf: Leaf) -> Leaf {
    let count = 1 + rng.below(4);
    let what = match leaf.what {
        What::File(bytes) => What::File(edits::edited(rng, &bytes, count)),
        What::Link(_) => What::Link(new_target(rng)),
        What::Special => What::Special,
    };
    Leaf { what, ..leaf }
}

fn rename_dir(rng: &mut Rng, tree: &mut Tree) {
    let dirs: Vec<Vec<u8>> = tree
        .all_dirs()
        .into_iter()
        .filter(|d| !d.is_empty())
        .collect();
    if dirs.is_empty() {
        return;
    }
    let old = [&rng.pick(&dirs)[..], b"/"].concat();
    let base = new_dir(rng, tree);
    let new = match rng.below(3) {
        0 => base,
        _ => join(&base, rng.pick(&WORDS).as_bytes()),
    };
    let inside: Vec<Vec<u8>> = tree
        .leaves
        .keys()
        .filter(|path| path.starts_with(&old))
        .cloned()
        .collect();
    let split = rng.one_in(5);
    for path in inside {
        let Some(leaf) = tree.leaves.remove(&path) else {
            continue;
        };
        if split && rng.one_in(3) {
            tree.leaves.insert(path, leaf);
            continue;
        }
        let leaf = match rng.below(5) {
            0 => edited(rng, leaf),
            _ => leaf,
        };
        put(tree, join(&new, &path[old.len()..]), leaf);
    }
}
