//! Hard-link groups in a merge.
//!
//! Their numbers belong to one tree, and branches of one base give the same numbers to different groups.
//! Rules: a group that the base has keeps its number. A number that both sides gave anew means two
//! groups: theirs gets another one. After the merge, entries of one group that do not agree any more (one
//! side edited the file, the other replaced one of its names) are told apart: the largest set of equal
//! ones stays the group, other equal ones become groups of their own, single ones plain files.

use super::merger::Merger;
use super::version::{Version, same};
use super::walk::PathSides;
use super::{BASE, OURS, THEIRS};
use crate::error::Result;
use objstore::{Body, ObjectStore, TreeId, read_tree};
use std::collections::{BTreeMap, HashSet};

/// Numbers given here have this bit, which counting from the start never reaches.
const MADE_HERE: u64 = 1 << 62;

/// Renumbers groups that both sides made under one number.
pub(super) fn tell_apart(merger: &mut Merger<'_>) -> Result<()> {
    let joined = |side: usize| -> HashSet<u64> {
        let new = merger.nodes.values().filter_map(|node| {
            let group = |i: usize| node.stages[i].as_ref().map_or(0, |v| v.meta.link_group);
            (group(side) != group(BASE)).then_some(group(side))
        });
        new.filter(|group| *group != 0).collect()
    };
    let ours = joined(OURS);
    let mut shared: HashSet<u64> = joined(THEIRS);
    shared.retain(|group| ours.contains(group));
    if shared.is_empty() {
        return Ok(());
    }
    forget_groups_of(merger.ctx.store, merger.roots[BASE].tree, &mut shared)?;
    let salt = merger.roots[THEIRS].tree;
    for node in merger.nodes.values_mut() {
        let Some(version) = &mut node.stages[THEIRS] else {
            continue;
        };
        let group = version.meta.link_group;
        if shared.contains(&group) {
            version.meta.link_group = fresh(group, salt, 0);
            redo(node);
        }
    }
    Ok(())
}

/// A settled file gets the new number where it was theirs that was taken.
fn redo(node: &mut PathSides) {
    let [_, ours, Some(theirs)] = &node.stages else {
        return;
    };
    let was_ours = ours.as_ref().map_or(0, |v| v.meta.link_group);
    if let Some(Some(done)) = &mut node.done
        && (was_ours == 0 || done.meta.link_group != was_ours)
    {
        done.meta.link_group = theirs.meta.link_group;
    }
}

/// A number that no tree has.
fn fresh(group: u64, salt: Option<TreeId>, part: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&group.to_le_bytes());
    hasher.update(&part.to_le_bytes());
    if let Some(salt) = salt {
        hasher.update(salt.as_bytes());
    }
    let mut eight = [0; 8];
    eight.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    MADE_HERE | (u64::from_le_bytes(eight) >> 2)
}

/// Takes out the numbers that a tree has. Reads all of it, so it is done only where numbers are in
/// question.
fn forget_groups_of(
    store: &ObjectStore,
    root: Option<TreeId>,
    groups: &mut HashSet<u64>,
) -> Result<()> {
    let mut work: Vec<TreeId> = root.into_iter().collect();
    while let Some(tree) = work.pop() {
        read_tree(store, Some(tree), &mut |entry| {
            groups.remove(&entry.meta.link_group);
            if let Body::Dir(below) = entry.body {
                work.extend(below);
            }
            Ok(())
        })?;
        if groups.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Splits groups whose entries do not agree.
pub(super) fn keep_consistent(merger: &mut Merger<'_>) -> Result<()> {
    let mut groups: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    for (path, version) in &merger.results {
        if let Some(version) = version.as_ref().filter(|v| v.meta.link_group != 0) {
            let group = groups.entry(version.meta.link_group).or_default();
            group.push(path.clone());
        }
    }
    for (group, paths) in groups {
        let mut sets: Vec<Vec<&Vec<u8>>> = Vec::new();
        for path in &paths {
            let mut found = None;
            for (i, set) in sets.iter().enumerate() {
                if is_one_inode(merger, set[0], path)? {
                    found = Some(i);
                    break;
                }
            }
            match found {
                Some(i) => sets[i].push(path),
                None => sets.push(vec![path]),
            }
        }
        // Stable: of sets of one size the one with the first path stays.
        sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
        let salt = merger.roots[THEIRS].tree;
        for (i, set) in sets.iter().enumerate().skip(1) {
            let number = match set.len() {
                1 => 0,
                _ => fresh(group, salt, i as u64),
            };
            for path in set {
                if let Some(Some(version)) = merger.results.get_mut(*path) {
                    version.meta.link_group = number;
                }
            }
        }
    }
    Ok(())
}

fn is_one_inode(merger: &Merger<'_>, a: &[u8], b: &[u8]) -> Result<bool> {
    let version =
        |path: &[u8]| -> Option<&Version> { merger.results.get(path).and_then(Option::as_ref) };
    let (a, b) = (version(a), version(b));
    let time = |v: Option<&Version>| v.map(|v| (v.meta.mtime_sec, v.meta.mtime_nsec));
    Ok(time(a) == time(b) && same(merger.ctx.store, a, b)?)
}
