//! What renames do to the paths that take part: versions of the old path join those of the new one.

use super::content::merge_versions;
use super::dirs::Rename;
use super::merger::Merger;
use super::version::{Version, same};
use super::walk::{PathSides, bit};
use super::{BASE, ConflictKind, OURS, THEIRS};
use crate::error::Result;

/// Applies all renames, which are sorted by old path (ours before theirs).
pub(super) fn apply(merger: &mut Merger<'_>, renames: &[Rename]) -> Result<()> {
    let mut rest = renames.iter().peekable();
    while let Some(rename) = rest.next() {
        let (Some(old), Some(new)) = (path(&rename.pair.old), path(&rename.pair.new)) else {
            continue;
        };
        // Where the old path is settled, the other side did not change it and has nothing to add.
        match merger.nodes.get(old) {
            Some(node) if node.done.is_none() => {}
            _ => continue,
        }
        let twin = rest.next_if(|next| path(&next.pair.old) == Some(old));
        match twin.and_then(|twin| path(&twin.pair.new)) {
            Some(theirs) if theirs == new => same_rename(merger, old, new),
            Some(theirs) => two_renames(merger, old, new, theirs)?,
            None => one_rename(merger, old, new, rename.side)?,
        }
    }
    Ok(())
}

fn path(end: &Option<(Vec<u8>, Version)>) -> Option<&Vec<u8>> {
    end.as_ref().map(|(path, _)| path)
}

/// Both renamed it to the same path.
fn same_rename(merger: &mut Merger<'_>, old: &[u8], new: &[u8]) {
    let base = merger.nodes.get(old).and_then(|n| n.stages[BASE].clone());
    if let Some(node) = merger.nodes.get_mut(new) {
        node.stages[BASE] = base;
        node.filemask |= bit(BASE);
    }
    settle_old(merger, old);
}

/// The old path goes, unless a conflict keeps it.
fn settle_old(merger: &mut Merger<'_>, old: &[u8]) {
    if let Some(node) = merger.nodes.get_mut(old) {
        node.done = Some(None);
    }
}

/// Both renamed it, to different paths: the merged content stands at both, and all three paths are in
/// conflict.
fn two_renames(merger: &mut Merger<'_>, old: &[u8], ours: &[u8], theirs: &[u8]) -> Result<()> {
    let stage = |path: &[u8], i: usize| merger.nodes.get(path).and_then(|n| n.stages[i].clone());
    let (base, a, b) = (stage(old, BASE), stage(ours, OURS), stage(theirs, THEIRS));
    if let (Some(a), Some(b)) = (&a, &b)
        && a.kind() == b.kind()
    {
        let more = 1 + 2 * merger.ctx.depth as usize;
        let paths = [old, ours, theirs];
        let merged = merge_versions(merger.ctx, base.as_ref(), a, b, paths, more)?;
        let unmerged =
            merged.trouble.is_some() && same(merger.ctx.store, merged.version.as_ref(), Some(a))?;
        // What cannot be merged (a binary, say) stays at each path what its side has.
        let at_theirs = match unmerged {
            true => Some(b.clone()),
            false => merged.version.clone(),
        };
        merger.set_stage(ours, OURS, merged.version);
        merger.set_stage(theirs, THEIRS, at_theirs);
    }
    for path in [old, ours, theirs] {
        if let Some(node) = merger.nodes.get_mut(path) {
            node.path_conflict = Some(ConflictKind::RenameRename);
        }
    }
    Ok(())
}

/// One side renamed it; the other kept, changed or deleted it, and may have something at the new path.
fn one_rename(merger: &mut Merger<'_>, old: &[u8], new: &[u8], side: usize) -> Result<()> {
    let other = OURS + THEIRS - side;
    let (Some(old_node), Some(new_node)) = (merger.nodes.get(old), merger.nodes.get(new)) else {
        return Ok(());
    };
    let deleted = old_node.filemask == bit(BASE);
    let is_file =
        |node: &PathSides, i: usize| node.stages[i].as_ref().is_some_and(Version::is_file);
    let type_changed = !deleted && is_file(old_node, other) != is_file(new_node, side);
    // Where the types differ, what is at the new path is the other half of a rename that was not seen.
    let collision = new_node.filemask & bit(other) != 0 && !type_changed;
    match (collision, deleted) {
        (true, false) => merge_into_collision(merger, old, new, side)?,
        (true, true) => set_path_conflict(merger, new),
        (false, _) => {
            let (base, kept) = (
                old_node.stages[BASE].clone(),
                old_node.stages[other].clone(),
            );
            if let Some(node) = merger.nodes.get_mut(new) {
                node.stages[BASE] = base;
                node.filemask |= bit(BASE);
                node.names[BASE] = Some(old.to_vec());
                if !type_changed && !deleted {
                    node.stages[other] = kept;
                    node.filemask |= bit(other);
                    node.names[other] = Some(old.to_vec());
                }
            }
            if deleted {
                set_path_conflict(merger, new);
            }
            if type_changed && let Some(node) = merger.nodes.get_mut(old) {
                node.stages[BASE] = None;
                node.filemask &= !bit(BASE);
            }
        }
    }
    if !type_changed {
        settle_old(merger, old);
    }
    Ok(())
}

fn set_path_conflict(merger: &mut Merger<'_>, path: &[u8]) {
    if let Some(node) = merger.nodes.get_mut(path) {
        node.path_conflict = Some(ConflictKind::RenameDelete);
    }
}

/// The other side has a file at the new path, too: what the rename and the other side's edits of the old
/// path make is then merged with that.
fn merge_into_collision(
    merger: &mut Merger<'_>,
    old: &[u8],
    new: &[u8],
    side: usize,
) -> Result<()> {
    let mut paths = [old; 3];
    paths[side] = new;
    let stage = |i: usize| merger.nodes.get(paths[i]).and_then(|n| n.stages[i].clone());
    let (base, Some(a), Some(b)) = (stage(BASE), stage(OURS), stage(THEIRS)) else {
        return Ok(());
    };
    let more = 1 + 2 * merger.ctx.depth as usize;
    let merged = merge_versions(merger.ctx, base.as_ref(), &a, &b, paths, more)?;
    if merged.trouble.is_some_and(|why| !is_about_content(why)) {
        // Markers do not show it, so it has to be said.
        set_kind(merger, new, merged.trouble);
    }
    merger.set_stage(new, side, merged.version);
    Ok(())
}

fn is_about_content(kind: ConflictKind) -> bool {
    matches!(
        kind,
        ConflictKind::Content | ConflictKind::Binary | ConflictKind::Symlink
    )
}

fn set_kind(merger: &mut Merger<'_>, path: &[u8], kind: Option<ConflictKind>) {
    if let Some(node) = merger.nodes.get_mut(path) {
        node.path_conflict = kind;
    }
}
