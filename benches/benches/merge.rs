//! Merging stored trees: 10 and 1,000 changed files on each side of a tree of 100,000, a fifth of them
//! changed on both sides.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use engine::merge::{Labels, MergeOptions, OnConflict, Outcome, Root, merge_roots};
use objstore::content::FileContent;
use objstore::file_storage::FileStorage;
use objstore::{Body, Edit, Meta, ObjectStore, StoreConfig, TreeEntry, edit_tree, store_content};
use std::hint::black_box;
use std::sync::Arc;

const DIRS: usize = 1000;
const FILES: usize = 100;

fn text(number: usize, changed: &[usize]) -> String {
    let line = |i: usize| match changed.contains(&i) {
        true => format!("line {i} of {number}, changed\n"),
        false => format!("line {i} of {number}\n"),
    };
    (0..60).map(line).collect()
}

fn store_text(store: &ObjectStore, text: &str) -> FileContent {
    let bytes = text.as_bytes().to_vec();
    let len = bytes.len() as u64;
    let all = std::iter::once(0..len).collect::<Vec<_>>();
    store_content(store, None, &[], &all, len, &bytes).unwrap()
}

fn meta(mode: u32) -> Meta {
    Meta {
        mode,
        ..Meta::default()
    }
}

/// The tree in which these files (numbers over all directories) have these lines changed.
fn tree(store: &ObjectStore, base: Option<&Root>, changed: &[(usize, usize)]) -> Root {
    let mut by_dir: Vec<Vec<Edit>> = vec![Vec::new(); DIRS];
    let all = (0..DIRS * FILES).map(|number| (number, None));
    let some = changed.iter().map(|(number, line)| (*number, Some(*line)));
    let files: Vec<_> = match base {
        None => all.collect(),
        Some(_) => some.collect(),
    };
    for (number, line) in files {
        let lines: Vec<usize> = line.into_iter().collect();
        by_dir[number % DIRS].push(Edit::Put(TreeEntry {
            name: format!("file-{number}").into_bytes(),
            meta: meta(0o100644),
            body: Body::File(store_text(store, &text(number, &lines))),
        }));
    }
    let mut edits = Vec::new();
    for (dir, files) in by_dir
        .into_iter()
        .enumerate()
        .filter(|(_, f)| !f.is_empty())
    {
        let name = format!("dir-{dir}").into_bytes();
        let before = base.and_then(|root| objstore::tree_entry(store, root.tree?, &name).unwrap());
        let before = match before.map(|entry| entry.body) {
            Some(Body::Dir(tree)) => tree,
            _ => None,
        };
        let tree = edit_tree(store, before, files).unwrap();
        edits.push(Edit::Put(TreeEntry {
            name,
            meta: meta(0o040755),
            body: Body::Dir(tree),
        }));
    }
    Root {
        meta: meta(0o040755),
        tree: edit_tree(store, base.and_then(|root| root.tree), edits).unwrap(),
    }
}

fn merges(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(FileStorage::open(dir.path()).unwrap());
    let store = ObjectStore::open(storage, StoreConfig::default()).unwrap();
    let base = tree(&store, None, &[]);
    let options = MergeOptions {
        labels: Labels {
            base: "base".into(),
            ours: "ours".into(),
            theirs: "theirs".into(),
        },
        on_conflict: OnConflict::Abort,
        now: (0, 0),
    };
    for count in [10, 1000] {
        // Spread over the tree; every fifth is changed on both sides, in different lines.
        let step = DIRS * FILES / count;
        let ours: Vec<_> = (0..count).map(|i| (i * step, 3)).collect();
        let theirs: Vec<_> = (0..count)
            .map(|i| (i * step + usize::from(i % 5 != 0), 50))
            .collect();
        let (ours, theirs) = (
            tree(&store, Some(&base), &ours),
            tree(&store, Some(&base), &theirs),
        );
        c.bench_function(&format!("merge {count} changed files of 100,000"), |b| {
            b.iter_batched(
                || (),
                |()| {
                    let result = merge_roots(&store, &base, &ours, &theirs, &options).unwrap();
                    assert_eq!(result.outcome, Outcome::Merged);
                    black_box(result)
                },
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, merges);
criterion_main!(benches);
