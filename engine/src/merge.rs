//! Three-way merge of trees in the store.
//!
//! Knows stored objects only: no live tree, no branch, no journal. [`merge_commits`] finds the common
//! history of two commits and merges them; [`merge_roots`] merges two trees made from a given third one.
//! Decisions are those of git's `ort` strategy with the Myers algorithm and `diff3` markers; what git
//! does not keep (owners, extended attributes, times, hard links, empty directories, special files) is
//! merged field by field. Where this differs from git on purpose is said in `docs/semantics.md`.
//!
//! Key-value state is merged beside that ([`merge_keys`]).
//!
//! Steps: [`walk`] finds what differs, reading no directory that is the same on all sides; [`renames`]
//! and [`dirs`] find what was moved; [`pairing`] brings versions together; [`entries`] decides each path;
//! [`write`] makes the tree. The modules from `walk` to `write` are one algorithm and private.
//!
//! Invariants: equal input gives equal output. With [`OnConflict::Abort`] a merge in conflict returns no
//! tree. Objects that a merge stores are not synced; who keeps the result syncs.
//!
//! Tests: `tests/merges/lines.rs` (line merges against git), `tests/merges/git.rs` (histories against git),
//! `tests/merges/rules.rs` (what git does not have, hostile trees).

mod base;
mod content;
mod dirs;
mod entries;
mod keys;
mod limits;
mod links;
mod merger;
mod moves;
mod pairing;
mod renames;
mod similarity;
pub mod text;
mod version;
mod walk;
mod write;

use crate::error::Result;
pub use crate::record::conflict::{Conflict, ConflictKind, ConflictSide};
use base::nothing_in_common;
pub use base::{History, merge_bases};
pub use keys::{BASE_LINE, KeysMerged, merge_keys, merge_maps};
use merger::Merger;
pub(crate) use moves::Moves;
use objstore::content::FileContent;
use objstore::{CommitId, Meta, ObjectStore, TreeId, store_content};
use std::cell::Cell;
use std::sync::Arc;
use version::Content;
use walk::{BASE, OURS, THEIRS};

/// A root directory in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its attributes.
    pub meta: Meta,
    /// Its entries; `None` where it is empty.
    pub tree: Option<TreeId>,
}

/// What stands behind conflict markers, and in the names of files that had to make way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Common ancestor; empty: the first 12 digits of its id.
    pub base: String,
    /// The side that is merged into.
    pub ours: String,
    /// The side that is merged.
    pub theirs: String,
}

/// What to do with conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Make no tree.
    Abort,
    /// Make a tree that shows them.
    Keep,
}

/// How to merge.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// Names of the sides.
    pub labels: Labels,
    /// What to do with conflicts.
    pub on_conflict: OnConflict,
    /// Modification time of files whose content the merge makes: seconds since 1970 and nanoseconds.
    pub now: (i64, u32),
}

/// How a merge went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides had changes, and they fit.
    Merged,
    /// Ours had none: the result is theirs.
    FastForward,
    /// Theirs had none: the result is ours.
    UpToDate,
    /// Some changes do not fit.
    Conflicts,
}

impl Outcome {
    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Merged => "merged",
            Outcome::FastForward => "fast-forward",
            Outcome::UpToDate => "up-to-date",
            Outcome::Conflicts => "conflicts",
        }
    }
}

/// Result of a merge.
#[derive(Clone, Debug)]
pub struct MergeResult {
    /// How it went.
    pub outcome: Outcome,
    /// The merged tree; `None` with conflicts that were not to be kept.
    pub root: Option<Root>,
    /// What could not be settled, by path.
    pub conflicts: Vec<Conflict>,
}

/// Merges the commit `theirs` into the commit `ours`.
///
/// # Errors
/// [`crate::Error::NoCommonHistory`] where nothing comes before both; store errors where an object is
/// missing or damaged.
pub fn merge_commits(
    store: &ObjectStore,
    history: &dyn History,
    ours: &CommitId,
    theirs: &CommitId,
    options: &MergeOptions,
) -> Result<MergeResult> {
    let bases = merge_bases(history, ours, theirs)?;
    let done = |outcome, root| MergeResult {
        outcome,
        root: Some(root),
        conflicts: Vec::new(),
    };
    if bases.contains(theirs) {
        return Ok(done(Outcome::UpToDate, root_of(history, ours)?));
    }
    if bases.contains(ours) {
        return Ok(done(Outcome::FastForward, root_of(history, theirs)?));
    }
    if bases.is_empty() {
        return Err(nothing_in_common(ours, theirs));
    }
    let (base, label) = ancestor(store, history, &bases, 0)?;
    let mut options = options.clone();
    if options.labels.base.is_empty() {
        options.labels.base = label;
    }
    let (ours, theirs) = (root_of(history, ours)?, root_of(history, theirs)?);
    merge_roots(store, &base, &ours, &theirs, &options)
}

/// Merges two trees that were made from `base`.
///
/// The outcome is [`Outcome::UpToDate`] or [`Outcome::FastForward`] where one of them is the base.
pub fn merge_roots(
    store: &ObjectStore,
    base: &Root,
    ours: &Root,
    theirs: &Root,
    options: &MergeOptions,
) -> Result<MergeResult> {
    let ctx = Context {
        store,
        labels: options.labels.clone(),
        now: options.now,
        depth: 0,
        held: Cell::new(0),
    };
    let outcome = if theirs == base {
        Outcome::UpToDate
    } else if ours == base {
        Outcome::FastForward
    } else {
        Outcome::Merged
    };
    let settled = match outcome {
        Outcome::FastForward => Some(theirs),
        _ if theirs == base || ours == theirs => Some(ours),
        _ => None,
    };
    match settled {
        Some(root) => Ok(MergeResult {
            outcome,
            root: Some(root.clone()),
            conflicts: Vec::new(),
        }),
        None => merge_three(&ctx, [base, ours, theirs], options.on_conflict),
    }
}

fn merge_three(
    ctx: &Context<'_>,
    roots: [&Root; 3],
    on_conflict: OnConflict,
) -> Result<MergeResult> {
    let mut merger = Merger::run(ctx, roots)?;
    let plan = write::plan(&mut merger);
    let metas = roots.map(|root| &root.meta);
    let (meta, trouble) = write::merge_dir_meta(Some(metas[BASE]), metas[OURS], metas[THEIRS]);
    if let Some(kind) = trouble {
        merger.root_conflict(kind);
    }
    let mut conflicts = std::mem::take(&mut merger.conflicts);
    conflicts.sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
    let outcome = match conflicts.is_empty() {
        true => Outcome::Merged,
        false => Outcome::Conflicts,
    };
    let root = match (outcome, on_conflict) {
        (Outcome::Conflicts, OnConflict::Abort) => None,
        _ => Some(Root {
            meta,
            tree: write::write(&merger, &plan)?,
        }),
    };
    Ok(MergeResult {
        outcome,
        root,
        conflicts,
    })
}

fn root_of(history: &dyn History, id: &CommitId) -> Result<Root> {
    let commit = history.commit(id)?;
    Ok(Root {
        meta: commit.root_meta.clone(),
        tree: commit.root,
    })
}

/// The common ancestor that several merge bases make together, and its label: they are merged two by
/// two, the oldest first, conflicts and all, over their own ancestors.
fn ancestor(
    store: &ObjectStore,
    history: &dyn History,
    bases: &[CommitId],
    depth: u32,
) -> Result<(Root, String)> {
    let Some((first, rest)) = bases.split_first() else {
        let empty = Root {
            meta: Meta::default(),
            tree: None,
        };
        return Ok((empty, "empty tree".into()));
    };
    let mut merged = Virtual {
        root: root_of(history, first)?,
        made_of: vec![*first],
    };
    if rest.is_empty() || depth >= limits::DEPTH_MAX {
        let digits = match depth {
            0 => LABEL_DIGITS,
            _ => INNER_LABEL_DIGITS,
        };
        return Ok((merged.root, first.to_string()[..digits].to_string()));
    }
    for next in rest {
        let next_root = root_of(history, next)?;
        let bases = base::merge_bases_of(history, &merged.made_of, next)?;
        let (base, label) = ancestor(store, history, &bases, depth + 1)?;
        let ctx = Context {
            store,
            labels: Labels {
                base: label,
                ours: "Temporary merge branch 1".into(),
                theirs: "Temporary merge branch 2".into(),
            },
            now: (0, 0),
            depth: depth + 1,
            held: Cell::new(0),
        };
        let result = merge_three(&ctx, [&base, &merged.root, &next_root], OnConflict::Keep)?;
        merged.root = result.root.unwrap_or(merged.root);
        merged.made_of.push(*next);
    }
    Ok((merged.root, "merged common ancestors".into()))
}

/// Digits of an id in a label.
const LABEL_DIGITS: usize = 12;
/// The same inside virtual ancestors, whose markers nobody sees but which count when files are compared:
/// as many as git gives.
const INNER_LABEL_DIGITS: usize = 7;

/// A commit that exists only while merging: its tree, and the commits that it is made of.
struct Virtual {
    root: Root,
    made_of: Vec<CommitId>,
}

/// What all steps of a merge share.
struct Context<'a> {
    store: &'a ObjectStore,
    labels: Labels,
    now: (i64, u32),
    /// 0, or how deep within virtual ancestors.
    depth: u32,
    /// Bytes of merged texts in memory.
    held: Cell<usize>,
}

impl Context<'_> {
    /// Keeps a merged text until it is known whether it is wanted. Very many are stored at once, and so
    /// are those of virtual ancestors, whose trees must be read like others.
    fn hold(&self, bytes: Vec<u8>) -> Result<Content> {
        let held = self.held.get() + bytes.len();
        if self.depth == 0 && held <= limits::HELD_BYTES_MAX {
            self.held.set(held);
            return Ok(Content::Text(Arc::new(bytes)));
        }
        Ok(Content::Stored(store_bytes(self.store, &bytes)?))
    }
}

/// Stores a text.
fn store_bytes(store: &ObjectStore, bytes: &[u8]) -> Result<FileContent> {
    let len = bytes.len() as u64;
    let source = bytes.to_vec();
    let all = std::iter::once(0..len).collect::<Vec<_>>();
    Ok(store_content(store, None, &[], &all, len, &source)?)
}
