//! Directories as objects: the same entries give the same id, whatever the edits that led to them.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::mem_store;
use objstore::{
    Body, Edit, FileContent, Meta, ObjectStore, Result, TreeEntry, TreeId, diff_trees, edit_tree,
    name_hash, read_tree, tree_entry,
};
use proptest::prelude::*;

fn entry(name: &str, mode: u32) -> TreeEntry {
    let meta = Meta {
        mode,
        mtime_sec: 1,
        ..Meta::default()
    };
    TreeEntry {
        name: name.into(),
        meta,
        body: Body::File(FileContent::Empty),
    }
}

fn name(i: u32) -> String {
    format!("file-{i}.rs")
}

fn all(store: &ObjectStore, tree: Option<TreeId>) -> Vec<TreeEntry> {
    let mut entries = Vec::new();
    read_tree(store, tree, &mut |entry| {
        entries.push(entry);
        Ok(())
    })
    .unwrap();
    entries
}

type Model = BTreeMap<String, u32>;

fn build(store: &ObjectStore, model: &Model) -> Option<TreeId> {
    let edits = model
        .iter()
        .map(|(name, mode)| Edit::Put(entry(name, *mode)));
    edit_tree(store, None, edits.collect()).unwrap()
}

/// Names that differ, by comparing models.
fn model_diff(a: &Model, b: &Model) -> Vec<String> {
    let names = a
        .keys()
        .chain(b.keys().filter(|name| !a.contains_key(*name)));
    let mut names: Vec<String> = names
        .filter(|name| a.get(*name) != b.get(*name))
        .cloned()
        .collect();
    names.sort_by_key(|name| (name_hash(name.as_bytes()), name.clone()));
    names
}

fn tree_diff(store: &ObjectStore, a: Option<TreeId>, b: Option<TreeId>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    diff_trees(store, a, b, &mut |a, b| {
        let name = a.or(b).map(|entry| entry.name.clone()).unwrap_or_default();
        names.push(String::from_utf8(name).unwrap());
        assert_ne!(a, b);
        Ok(())
    })?;
    Ok(names)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn edits_lead_to_the_tree_of_their_result(
        start in 0u32..400,
        rounds in prop::collection::vec(
            prop::collection::vec((0u32..500, 0u32..4), 1..120), 1..6),
    ) {
        let store = mem_store();
        let mut model: Model = (0..start).map(|i| (name(i), 0)).collect();
        let mut tree = build(&store, &model);
        for edits in rounds {
            let before = model.clone();
            let old = tree;
            let mut list = Vec::new();
            for (i, mode) in edits {
                // Mode 0 and 1 remove, so that large directories become small again.
                if mode < 2 {
                    model.remove(&name(i));
                    list.push(Edit::Remove(name(i).into()));
                } else {
                    model.insert(name(i), mode);
                    list.push(Edit::Put(entry(&name(i), mode)));
                }
            }
            tree = edit_tree(&store, tree, list).unwrap();
            prop_assert_eq!(tree, build(&store, &model));
            prop_assert_eq!(tree_diff(&store, old, tree).unwrap(), model_diff(&before, &model));
            prop_assert_eq!(all(&store, tree).len(), model.len());
        }
    }
}

#[test]
fn entries_are_found_by_name() {
    let store = mem_store();
    let model: Model = (0..2000).map(|i| (name(i), i)).collect();
    let tree = build(&store, &model).unwrap();
    for i in (0..2000).step_by(97) {
        let found = tree_entry(&store, tree, name(i).as_bytes()).unwrap();
        assert_eq!(found, Some(entry(&name(i), i)));
    }
    assert_eq!(tree_entry(&store, tree, b"nobody").unwrap(), None);
    let entries = all(&store, Some(tree));
    assert!(entries.is_sorted_by_key(|entry| (name_hash(&entry.name), entry.name.clone())));
}

#[test]
fn directories_split_above_64_entries_and_join_again() {
    let store = mem_store();
    let small: Model = (0..64).map(|i| (name(i), 0)).collect();
    let tree = build(&store, &small);
    let objects = store.stats().objects;
    assert_eq!(objects, 1, "64 entries are one object");
    let larger = edit_tree(&store, tree, vec![Edit::Put(entry("one more", 0))]).unwrap();
    assert!(store.stats().objects > objects + 2);
    let back = edit_tree(&store, larger, vec![Edit::Remove(b"one more".to_vec())]).unwrap();
    assert_eq!(back, tree);
    let none = edit_tree(
        &store,
        back,
        small
            .keys()
            .map(|n| Edit::Remove(n.clone().into()))
            .collect(),
    );
    assert_eq!(none.unwrap(), None);
    assert_eq!(
        edit_tree(&store, None, vec![Edit::Remove(b"x".to_vec())]).unwrap(),
        None
    );
}

#[test]
fn one_change_in_100_000_entries_stores_a_few_kilobytes() {
    let store = mem_store();
    let model: Model = (0..100_000).map(|i| (name(i), 0)).collect();
    let tree = build(&store, &model);
    let before = store.stats();
    let edited = edit_tree(&store, tree, vec![Edit::Put(entry(&name(77), 1))]).unwrap();
    let after = store.stats();
    assert!(
        after.bytes - before.bytes < 10_000,
        "{}",
        after.bytes - before.bytes
    );
    assert!(after.objects - before.objects <= 5);
    assert_eq!(tree_diff(&store, tree, edited).unwrap(), [name(77)]);
}

#[test]
fn malformed_entries_are_refused() {
    let store = mem_store();
    for bad in ["", ".", "..", "a/b", "a\0b"] {
        let edits = vec![Edit::Put(entry(bad, 0))];
        assert!(edit_tree(&store, None, edits).is_err(), "{bad:?}");
    }
    let mut twice = entry("a", 0);
    twice.meta.xattrs = vec![(b"user.a".to_vec(), vec![]), (b"user.a".to_vec(), vec![])];
    assert!(edit_tree(&store, None, vec![Edit::Put(twice)]).is_err());
}
