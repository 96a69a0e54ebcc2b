//! The outcome of each path, once renames have brought together what belongs together.

use super::content::merge_versions;
use super::merger::Merger;
use super::version::{Version, same};
use super::walk::{PathSides, bit};
use super::{BASE, ConflictKind, OURS, THEIRS};
use crate::error::Result;

/// Decides all paths, those in a directory before the directory, so that it is known whether a
/// directory is in the way of a file.
pub(super) fn process(merger: &mut Merger<'_>) -> Result<()> {
    let mut paths: Vec<Vec<u8>> = merger.nodes.keys().cloned().collect();
    paths.sort_by_cached_key(|path| [&path[..], b"/"].concat());
    for path in paths.into_iter().rev() {
        let Some(node) = merger.nodes.get(&path) else {
            continue;
        };
        match &node.done {
            Some(version) => {
                let version = version.clone();
                merger.settle(path, version);
            }
            None if node.filemask != 0 => {
                let node = node.clone();
                entry(merger, path, node)?;
            }
            None => {}
        }
    }
    Ok(())
}

fn entry(merger: &mut Merger<'_>, mut path: Vec<u8>, mut node: PathSides) -> Result<()> {
    // A directory that only a directory rename made is not in the node; git then loses what is in it.
    if node.df_conflict || merger.occupied.contains(&path) {
        node.df_conflict = true;
        let dirmask = std::mem::take(&mut node.dirmask);
        node.match_mask &= !dirmask;
        let untouched = node.dirs.iter().flatten().count() == 3;
        if merger.occupied.contains(&path) || untouched {
            if node.filemask == bit(BASE) {
                // Deleted by both, as far as a file goes; the directory stands.
                return Ok(());
            }
            let side = match dirmask & bit(OURS) {
                0 => OURS,
                _ => THEIRS,
            };
            let elsewhere = merger.unique_path(&path, side)?;
            keep_names(&mut node, &path);
            merger.settle(path, None);
            path = elsewhere;
        } else {
            node.df_conflict = false;
        }
    }
    // A rename may have put something else in the place of what both sides have alike. Git takes ours
    // then, and what theirs changed in the renamed file is gone.
    let [_, ours, theirs] = &node.stages;
    if node.match_mask == 6 && !same(merger.ctx.store, ours.as_ref(), theirs.as_ref())? {
        node.match_mask = 0;
    }
    if node.match_mask != 0 {
        unchanged_side(merger, path, node)
    } else if node.filemask >= 6 {
        match (&node.stages[OURS], &node.stages[THEIRS]) {
            (Some(a), Some(b)) if a.kind() != b.kind() => distinct_types(merger, path, node),
            (Some(_), Some(_)) => both(merger, path, node),
            _ => Ok(()),
        }
    } else if node.filemask == 3 || node.filemask == 5 {
        modify_delete(merger, path, node)
    } else if node.filemask == bit(BASE) {
        deleted_by_both(merger, path, node)
    } else {
        added(merger, path, node)
    }
}

/// Stages keep the path that they came from.
fn keep_names(node: &mut PathSides, path: &[u8]) {
    for name in &mut node.names {
        name.get_or_insert_with(|| path.to_vec());
    }
}

/// Settles a path, in conflict where `kind` says so.
fn finish(
    merger: &mut Merger<'_>,
    path: Vec<u8>,
    node: &PathSides,
    version: Option<Version>,
    kind: Option<ConflictKind>,
) {
    let df = node.df_conflict.then_some(ConflictKind::DirectoryFile);
    if let Some(kind) = node.path_conflict.or(df).or(kind) {
        merger.conflict(path.clone(), kind, node);
    }
    merger.settle(path, version);
}

/// One side has what the base has, or both have the same.
fn unchanged_side(merger: &mut Merger<'_>, path: Vec<u8>, node: PathSides) -> Result<()> {
    let side = match node.match_mask {
        6 => OURS,
        3 => THEIRS,
        _ => OURS,
    };
    let mut version = node.stages[side].clone();
    if node.match_mask == 6
        && let [_, Some(ours), Some(theirs)] = &node.stages
    {
        // Times and hard-link groups may differ still.
        version = merge_versions(merger.ctx, None, ours, theirs, [&path; 3], 0)?.version;
    }
    match version {
        Some(version) => finish(merger, path, &node, Some(version), None),
        None => merger.settle(path, None),
    }
    Ok(())
}

/// Both have something of the same type: merged line by line, attribute by attribute.
fn both(merger: &mut Merger<'_>, path: Vec<u8>, mut node: PathSides) -> Result<()> {
    let (Some(ours), Some(theirs)) = (&node.stages[OURS], &node.stages[THEIRS]) else {
        return Ok(());
    };
    let paths = [BASE, OURS, THEIRS].map(|i| node.name(i, &path));
    let more = 2 * merger.ctx.depth as usize;
    let base = node.stages[BASE].as_ref();
    let merged = merge_versions(merger.ctx, base, ours, theirs, paths, more)?;
    let kind = merged.trouble.map(|kind| match kind {
        ConflictKind::Content if node.filemask == 6 => ConflictKind::AddAdd,
        kind => kind,
    });
    if kind.is_none() && node.df_conflict {
        // Merged, but not where it belongs: it is one side's file against the other's directory.
        node.filemask &= !bit(BASE);
    }
    finish(merger, path, &node, merged.version, kind);
    Ok(())
}

/// A file against a symbolic link or a special file: each gets a path of its own.
fn distinct_types(merger: &mut Merger<'_>, path: Vec<u8>, node: PathSides) -> Result<()> {
    if merger.ctx.depth > 0 {
        let base = node.stages[BASE].clone();
        finish(merger, path, &node, base, Some(ConflictKind::Content));
        return Ok(());
    }
    let is_file = |i: usize| node.stages[i].as_ref().is_some_and(Version::is_file);
    let is_link = |i: usize| node.stages[i].as_ref().is_some_and(Version::is_symlink);
    // The file makes way; where there is none, both do.
    let moves = [is_file(OURS) || !is_file(THEIRS), !is_file(OURS)];
    let kind = match is_link(OURS) || is_link(THEIRS) {
        true => ConflictKind::Symlink,
        false => ConflictKind::Content,
    };
    if moves == [true, true] {
        merger.settle(path.clone(), None);
    }
    for (side, moves) in [(OURS, moves[0]), (THEIRS, moves[1])] {
        let mut part = node.clone();
        let other = OURS + THEIRS - side;
        part.stages[other] = None;
        part.filemask &= !bit(other);
        let kind_of = |i: usize| node.stages[i].as_ref().map(Version::kind);
        if kind_of(BASE) != kind_of(side) {
            part.stages[BASE] = None;
            part.filemask &= !bit(BASE);
        }
        let at = match moves {
            true => merger.unique_path(&path, side)?,
            false => path.clone(),
        };
        let version = part.stages[side].clone();
        finish(merger, at, &part, version, Some(kind));
    }
    Ok(())
}

/// Changed on one side, deleted on the other: the changed version stays.
fn modify_delete(merger: &mut Merger<'_>, path: Vec<u8>, node: PathSides) -> Result<()> {
    let side = match node.filemask {
        5 => THEIRS,
        _ => OURS,
    };
    let shown = match merger.ctx.depth {
        0 => side,
        _ => BASE,
    };
    let version = node.stages[shown].clone();
    finish(
        merger,
        path,
        &node,
        version,
        Some(ConflictKind::ModifyDelete),
    );
    Ok(())
}

fn deleted_by_both(merger: &mut Merger<'_>, path: Vec<u8>, node: PathSides) -> Result<()> {
    finish(merger, path, &node, None, None);
    Ok(())
}

/// Added on one side. An empty directory that the other side put there makes it a conflict, which git
/// does not see.
fn added(merger: &mut Merger<'_>, path: Vec<u8>, mut node: PathSides) -> Result<()> {
    let side = match node.filemask & bit(OURS) {
        0 => THEIRS,
        _ => OURS,
    };
    let other = OURS + THEIRS - side;
    let new_dir = node.dirs[other].is_some() && node.dirs[BASE].is_none();
    node.df_conflict |= new_dir;
    let version = node.stages[side].clone();
    finish(merger, path, &node, version, None);
    Ok(())
}
