//! Three-way merge of one file: each attribute for itself, then the content.

use super::text::{LineLabels, MARKER_SIZE, merge_lines};
use super::version::{
    Content, Matter, Version, bytes_of, is_binary, is_binary_content, same_matter,
};
use super::{Context, limits};
use crate::error::Result;
use crate::record::conflict::ConflictKind;
use objstore::Meta;
use std::sync::Arc;

/// A merged version.
pub(super) struct Merged {
    /// `None` where there is nothing to show (inside a virtual ancestor only).
    pub version: Option<Version>,
    /// What could not be settled.
    pub trouble: Option<ConflictKind>,
}

/// Merges two versions of the same type; `paths` are those of base, ours and theirs.
pub(super) fn merge_versions(
    ctx: &Context<'_>,
    base: Option<&Version>,
    ours: &Version,
    theirs: &Version,
    paths: [&[u8]; 3],
    more_markers: usize,
) -> Result<Merged> {
    let kin = base.filter(|base| base.kind() == ours.kind());
    let (mut meta, mut trouble) = merge_meta(kin.map(|base| &base.meta), &ours.meta, &theirs.meta);
    let same_as_base = |side: &Version| match base {
        Some(base) => same_matter(ctx.store, base, side),
        None => Ok(false),
    };
    let times = |meta: &mut Meta, from: &Meta| {
        (meta.mtime_sec, meta.mtime_nsec) = (from.mtime_sec, from.mtime_nsec);
    };
    let matter = if same_matter(ctx.store, ours, theirs)? {
        times(
            &mut meta,
            later(kin.map(|b| &b.meta), &ours.meta, &theirs.meta),
        );
        theirs.matter.clone()
    } else if same_as_base(ours)? {
        times(&mut meta, &theirs.meta);
        theirs.matter.clone()
    } else if same_as_base(theirs)? {
        times(&mut meta, &ours.meta);
        ours.matter.clone()
    } else {
        times(&mut meta, &ours.meta);
        let (matter, why) = match (&ours.matter, &theirs.matter) {
            (Matter::File(a), Matter::File(b)) => {
                let (matter, why) = merge_files(ctx, base, a, b, paths, more_markers)?;
                // Of what one side has as it is nothing was written.
                let sides = [ours, theirs].into_iter();
                let taken = sides
                    .filter(|_| why.is_none())
                    .find(|s| is_stored_as(s, &matter));
                match taken {
                    Some(side) => times(&mut meta, &side.meta),
                    None => (meta.mtime_sec, meta.mtime_nsec) = ctx.now,
                }
                (matter, why)
            }
            _ if ctx.depth > 0 => return Ok(of_base(base)),
            (Matter::Symlink(_), _) => (ours.matter.clone(), Some(ConflictKind::Symlink)),
            _ => (ours.matter.clone(), Some(ConflictKind::Content)),
        };
        trouble = why.or(trouble);
        matter
    };
    let version = Some(Version {
        meta,
        matter,
        origin: None,
    });
    Ok(Merged { version, trouble })
}

fn of_base(base: Option<&Version>) -> Merged {
    Merged {
        version: base.cloned(),
        trouble: Some(ConflictKind::Content),
    }
}

/// Merges the content of two files that differ from each other and from the base.
fn merge_files(
    ctx: &Context<'_>,
    base: Option<&Version>,
    ours: &Content,
    theirs: &Content,
    paths: [&[u8]; 3],
    more_markers: usize,
) -> Result<(Matter, Option<ConflictKind>)> {
    let nothing = Content::Text(Arc::new(Vec::new()));
    let known = match base.map(|base| &base.matter) {
        Some(Matter::File(content)) => Some(content),
        _ => None,
    };
    let base = known.unwrap_or(&nothing);
    for content in [base, ours, theirs] {
        if is_too_long(content) || is_binary_content(ctx.store, content)? {
            return Ok(opaque(ctx, known, ours));
        }
    }
    let bytes = |content: &Content| bytes_of(ctx.store, content);
    let (base, ours, theirs) = (bytes(base)?, bytes(ours)?, bytes(theirs)?);
    debug_assert!(!is_binary(&base));
    let label = |name: &[u8], path: &[u8]| match paths[0] == paths[1] && paths[1] == paths[2] {
        true => name.to_vec(),
        false => [name, b":", path].concat(),
    };
    let labels = [
        label(ctx.labels.base.as_bytes(), paths[0]),
        label(ctx.labels.ours.as_bytes(), paths[1]),
        label(ctx.labels.theirs.as_bytes(), paths[2]),
    ];
    let labels = LineLabels {
        base: &labels[0],
        ours: &labels[1],
        theirs: &labels[2],
    };
    let merged = merge_lines(&base, &ours, &theirs, &labels, MARKER_SIZE + more_markers);
    let trouble = (merged.conflicts > 0).then_some(ConflictKind::Content);
    Ok((Matter::File(ctx.hold(merged.bytes)?), trouble))
}

/// Of two contents that cannot be merged by line.
fn opaque(
    ctx: &Context<'_>,
    base: Option<&Content>,
    ours: &Content,
) -> (Matter, Option<ConflictKind>) {
    if ctx.depth == 0 {
        return (Matter::File(ours.clone()), Some(ConflictKind::Binary));
    }
    // Inside a virtual ancestor git takes the base of what cannot be merged.
    let nothing = || Content::Text(Arc::default());
    (Matter::File(base.cloned().unwrap_or_else(nothing)), None)
}

fn is_stored_as(side: &Version, matter: &Matter) -> bool {
    match (&side.matter, matter) {
        (Matter::File(Content::Stored(a)), Matter::File(Content::Stored(b))) => a == b,
        _ => false,
    }
}

fn is_too_long(content: &Content) -> bool {
    content.len() > limits::TEXT_BYTES_MAX
}

/// Attributes, field by field; of what both changed in different ways ours is taken, with the reason.
/// Times are left to the caller.
pub(super) fn merge_meta(
    base: Option<&Meta>,
    ours: &Meta,
    theirs: &Meta,
) -> (Meta, Option<ConflictKind>) {
    let mut trouble = None;
    let mode = three_way(base.map(|m| m.mode), ours.mode, theirs.mode);
    let uid = three_way(base.map(|m| m.uid), ours.uid, theirs.uid);
    let gid = three_way(base.map(|m| m.gid), ours.gid, theirs.gid);
    let rdev = three_way(base.map(|m| m.rdev), ours.rdev, theirs.rdev);
    let xattrs = merge_xattrs(
        base.map_or(&[][..], |m| &m.xattrs),
        &ours.xattrs,
        &theirs.xattrs,
    );
    if xattrs.is_none() {
        trouble = Some(ConflictKind::Xattr);
    }
    if mode.is_none() || uid.is_none() || gid.is_none() {
        trouble = Some(ConflictKind::Mode);
    }
    let meta = Meta {
        mode: mode.unwrap_or(ours.mode),
        uid: uid.unwrap_or(ours.uid),
        gid: gid.unwrap_or(ours.gid),
        mtime_sec: ours.mtime_sec,
        mtime_nsec: ours.mtime_nsec,
        rdev: rdev.unwrap_or(ours.rdev),
        link_group: merge_group(
            base.map(|m| m.link_group),
            ours.link_group,
            theirs.link_group,
        ),
        xattrs: xattrs.unwrap_or_else(|| ours.xattrs.clone()),
    };
    (meta, trouble)
}

/// Of two values the changed one; `None` where both were changed in different ways.
fn three_way<T: PartialEq>(base: Option<T>, ours: T, theirs: T) -> Option<T> {
    if ours == theirs || base.as_ref() == Some(&ours) {
        Some(theirs)
    } else if base.as_ref() == Some(&theirs) {
        Some(ours)
    } else {
        None
    }
}

/// A group that somebody made or left; where both did, ours.
fn merge_group(base: Option<u64>, ours: u64, theirs: u64) -> u64 {
    three_way(base, ours, theirs).unwrap_or(if ours == 0 { theirs } else { ours })
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Extended attributes, each for itself; `None` where one was changed in different ways.
fn merge_xattrs(
    base: &[(Vec<u8>, Vec<u8>)],
    ours: &[(Vec<u8>, Vec<u8>)],
    theirs: &[(Vec<u8>, Vec<u8>)],
) -> Option<Xattrs> {
    let mut names: Vec<&Vec<u8>> = ours.iter().chain(theirs).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let value = |list: &[(Vec<u8>, Vec<u8>)], name: &Vec<u8>| {
        list.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    };
    let mut merged = Vec::new();
    for name in names {
        let (o, a, b) = (value(base, name), value(ours, name), value(theirs, name));
        if let Some(value) = three_way(Some(o), a, b)? {
            merged.push((name.clone(), value));
        }
    }
    Some(merged)
}

/// Whose modification time counts where the content is the same: that of who touched it, the later one
/// where both did.
pub(super) fn later<'a>(base: Option<&Meta>, ours: &'a Meta, theirs: &'a Meta) -> &'a Meta {
    let time = |m: &Meta| (m.mtime_sec, m.mtime_nsec);
    let base = base.map(time);
    if base == Some(time(ours)) {
        theirs
    } else if base == Some(time(theirs)) || time(ours) >= time(theirs) {
        ours
    } else {
        theirs
    }
}
