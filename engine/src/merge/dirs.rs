//! Renamed directories: where most of a removed directory's files went, files that the other side adds
//! to it are put too, as a conflict that says so (git's `merge.directoryRenames=conflict`).

use super::merger::Merger;
use super::walk::{Pair, SideRenames, bit, join, split};
use super::{ConflictKind, OURS, THEIRS};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// A pair, and the side that has it.
pub(super) struct Rename {
    pub pair: Pair,
    pub side: usize,
}

/// New path → the paths that directory renames would put there.
type Collisions = BTreeMap<Vec<u8>, Collision>;

#[derive(Default)]
struct Collision {
    from: BTreeSet<Vec<u8>>,
    reported: bool,
}

/// Finds directory renames, moves what they apply to, and returns all renames by old path.
pub(super) fn collect(merger: &mut Merger<'_>) -> Result<Vec<Rename>> {
    // Inside a virtual ancestor directories are not followed, as in git.
    if merger.ctx.depth == 0 {
        for side in [OURS, THEIRS] {
            decide(merger, side);
        }
        let both: Vec<Vec<u8>> = {
            let theirs = &merger.sides[THEIRS].dir_renames;
            let ours = merger.sides[OURS].dir_renames.keys();
            ours.filter(|dir| theirs.contains_key(*dir))
                .cloned()
                .collect()
        };
        for side in [OURS, THEIRS] {
            merger.sides[side]
                .dir_renames
                .retain(|dir, _| !both.contains(dir));
        }
    }
    let mut collisions = [OURS, THEIRS].map(|side| {
        let renames = &merger.sides[other(side)].dir_renames;
        collisions_of(&merger.sides[side], renames)
    });
    let mut all = Vec::new();
    for side in [OURS, THEIRS] {
        for mut pair in std::mem::take(&mut merger.sides[side].pairs) {
            let Some((path, _)) = &pair.new else { continue };
            let moved = target(merger, path.clone(), side, &mut collisions)?;
            if let Some(to) = &moved {
                move_addition(merger, path, to);
                if let Some(new) = &mut pair.new {
                    new.0 = to.clone();
                }
            }
            if pair.old.is_some() {
                all.push(Rename { pair, side });
            }
        }
    }
    all.sort_by_cached_key(|r| r.pair.old.as_ref().map(|(path, _)| path.clone()));
    Ok(all)
}

fn other(side: usize) -> usize {
    OURS + THEIRS - side
}

/// Chooses the directory that most files of each removed one went to; where two have as many, nothing
/// is chosen and that is a conflict.
fn decide(merger: &mut Merger<'_>, side: usize) {
    let counts = std::mem::take(&mut merger.sides[side].counts);
    for (old, counts) in counts {
        let most = counts.values().copied().max().unwrap_or(0);
        let mut best = counts.iter().filter(|(_, count)| **count == most);
        match (best.next(), best.next()) {
            _ if most == 0 => {}
            (Some((new, _)), None) => {
                let renames = &mut merger.sides[side].dir_renames;
                renames.insert(old, new.clone());
            }
            (Some(_), Some(_)) => merger.note(&old, ConflictKind::DirectoryRename),
            _ => {}
        }
    }
}

/// The renamed directory that a path is in, the innermost one, with its new path.
fn renamed<'a>(
    path: &[u8],
    renames: &'a BTreeMap<Vec<u8>, Vec<u8>>,
) -> Option<(&'a Vec<u8>, &'a Vec<u8>)> {
    let mut dir = split(path).0;
    while !dir.is_empty() {
        if let Some(found) = renames.get_key_value(dir) {
            return Some(found);
        }
        dir = split(dir).0;
    }
    None
}

/// A path below `old` as one below `new`.
fn moved_path(path: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    join(new, &path[old.len() + 1..])
}

/// Where directory renames put a path, whatever is there.
pub(super) fn follow(path: &[u8], renames: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<Vec<u8>> {
    let (old, new) = renamed(path, renames)?;
    Some(moved_path(path, old, new))
}

fn collisions_of(side: &SideRenames, renames: &BTreeMap<Vec<u8>, Vec<u8>>) -> Collisions {
    let mut found = Collisions::new();
    for (path, _) in side.pairs.iter().filter_map(|pair| pair.new.as_ref()) {
        if let Some(to) = follow(path, renames) {
            found.entry(to).or_default().from.insert(path.clone());
        }
    }
    found
}

/// Where a file that `side` added (or renamed) goes because the other side renamed its directory.
fn target(
    merger: &mut Merger<'_>,
    path: Vec<u8>,
    side: usize,
    collisions: &mut [Collisions; 2],
) -> Result<Option<Vec<u8>>> {
    let renames = &merger.sides[other(side)].dir_renames;
    if renames.is_empty() || collisions[other(side) - OURS].contains_key(&path) {
        return Ok(None);
    }
    let Some((old, new)) = renamed(&path, renames) else {
        return Ok(None);
    };
    // Not into a directory that this side renamed itself.
    if merger.sides[side].dir_renames.contains_key(new) {
        return Ok(None);
    }
    let to = moved_path(&path, old, new);
    let in_way = merger.is_in_way(&to, side)? || merger.is_below_file(&to)?;
    let Some(collision) = collisions[side - OURS].get_mut(&to) else {
        return Ok(None);
    };
    if collision.reported {
        return Ok(None);
    }
    if in_way || collision.from.len() > 1 {
        collision.reported = true;
        merger.note(&to, ConflictKind::DirectoryRename);
        return Ok(None);
    }
    let adds = merger.nodes.get(&path).map(|node| node.filemask);
    Ok((adds == Some(bit(side))).then_some(to))
}

/// Moves the node of an added file to its new path.
fn move_addition(merger: &mut Merger<'_>, from: &[u8], to: &[u8]) {
    let Some(mut node) = merger.nodes.remove(from) else {
        return;
    };
    merger.moved.push(from.to_vec());
    for name in &mut node.names {
        name.get_or_insert_with(|| from.to_vec());
    }
    // A directory of the same name stays where it is.
    let mut stays = super::walk::PathSides::default();
    std::mem::swap(&mut stays.dirs, &mut node.dirs);
    if stays.dirs.iter().any(Option::is_some) {
        merger.nodes.insert(from.to_vec(), stays);
    }
    let path_conflict = Some(ConflictKind::DirectoryRename);
    match merger.nodes.get_mut(to) {
        Some(there) => {
            there.filemask |= node.filemask;
            there.df_conflict |= there.dirmask != 0;
            there.path_conflict = path_conflict;
            for side in [OURS, THEIRS] {
                if node.filemask & bit(side) != 0 {
                    there.names[side] = node.names[side].take();
                    there.stages[side] = node.stages[side].take();
                }
            }
        }
        None => {
            node.path_conflict = path_conflict;
            merger.nodes.insert(to.to_vec(), node);
        }
    }
}
