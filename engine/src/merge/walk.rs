//! Finding what differs between base, ours and theirs, and which of it matters for renames.
//!
//! Only directories that differ are read. What is the same in all three has no [`PathSides`]. Directories in
//! which there is no file at all do not exist for git; here they are kept in `dirs` but not in `dirmask`,
//! so that they take no part in its decisions.

use super::Context;
use super::content::merge_versions;
use super::version::{Version, same};
use crate::error::Result;
use objstore::object::tree::TreeNode;
use objstore::{Body, Meta, ObjectStore, TreeEntry, TreeId, diff_trees};
use std::collections::{BTreeMap, HashMap};

/// Index and bit numbers of the three trees.
pub(super) const BASE: usize = 0;
pub(super) const OURS: usize = 1;
pub(super) const THEIRS: usize = 2;

/// Bit of a tree in a mask.
pub(super) fn bit(side: usize) -> u8 {
    1 << side
}

/// A directory as one tree has it.
#[derive(Clone, Debug)]
pub(super) struct DirSide {
    pub meta: Meta,
    pub tree: Option<TreeId>,
}

/// A path that is not the same in all three trees.
#[derive(Clone, Debug, Default)]
pub(super) struct PathSides {
    /// The file of each tree.
    pub stages: [Option<Version>; 3],
    /// The directory of each tree.
    pub dirs: [Option<DirSide>; 3],
    /// Trees in which it is a file. Renames add to it.
    pub filemask: u8,
    /// Trees in which it is a directory with files in it.
    pub dirmask: u8,
    /// Trees that have the same.
    pub match_mask: u8,
    /// A file here and a directory there.
    pub df_conflict: bool,
    /// A rename that is in conflict with something.
    pub path_conflict: Option<super::ConflictKind>,
    /// Paths from which the stages came, where those are others.
    pub names: [Option<Vec<u8>>; 3],
    /// The outcome, where it is known: a version, or nothing.
    pub done: Option<Option<Version>>,
}

impl PathSides {
    /// The path that a stage came from.
    pub fn name<'a>(&'a self, side: usize, path: &'a [u8]) -> &'a [u8] {
        self.names[side].as_deref().unwrap_or(path)
    }
}

pub(super) type Paths = BTreeMap<Vec<u8>, PathSides>;

/// Why a deleted file's new place is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relevance {
    /// The other side changed it.
    Content,
    /// It tells where its directory went.
    Location,
}

/// What is wanted of a directory that a side does not have any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirRelevance {
    /// Nothing.
    Not,
    /// Something above it was added to.
    Ancestor,
    /// It was added to itself.
    Own,
}

/// A file that a side added, deleted or renamed.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub old: Option<(Vec<u8>, Version)>,
    pub new: Option<(Vec<u8>, Version)>,
}

/// What there is to know of one side's renames.
#[derive(Debug, Default)]
pub(super) struct SideRenames {
    /// Additions, deletions and (once detected) renames, by path.
    pub pairs: Vec<Pair>,
    pub relevant: HashMap<Vec<u8>, Relevance>,
    pub dirs_removed: HashMap<Vec<u8>, DirRelevance>,
    /// Old directory → new directory → files that went there.
    pub counts: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, usize>>,
    /// Old directory → new directory.
    pub dir_renames: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What differs.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub nodes: Paths,
    /// Renames of ours (1) and theirs (2).
    pub sides: [SideRenames; 3],
}

/// All of a directory's bits: its renames matter on both sides.
const ALL: u8 = 7;

/// A directory to be read: its path, its objects, and the side that added to what the other removed
/// (0 where nothing is known yet, [`ALL`] where that is certain).
struct Work {
    path: Vec<u8>,
    trees: [Option<TreeId>; 3],
    mask: u8,
}

type Three = [Option<TreeEntry>; 3];

/// Compares three trees.
pub(super) fn find(ctx: &Context<'_>, trees: [Option<TreeId>; 3]) -> Result<Found> {
    let mut walk = Walk {
        ctx,
        found: Found::default(),
        work: Vec::new(),
    };
    walk.work.push(Work {
        path: Vec::new(),
        trees,
        mask: 0,
    });
    while let Some(work) = walk.work.pop() {
        walk.directory(&work)?;
    }
    for side in &mut walk.found.sides {
        let key = |pair: &Pair| match (&pair.old, &pair.new) {
            (_, Some((path, _))) | (Some((path, _)), None) => path.clone(),
            (None, None) => Vec::new(),
        };
        side.pairs.sort_by_cached_key(key);
    }
    Ok(walk.found)
}

struct Walk<'a> {
    ctx: &'a Context<'a>,
    found: Found,
    work: Vec<Work>,
}

impl Walk<'_> {
    fn directory(&mut self, work: &Work) -> Result<()> {
        let entries = differing(self.ctx.store, work.trees)?;
        let mut mask = work.mask;
        if mask == bit(OURS) || mask == bit(THEIRS) {
            let filemask = |e: &Three| {
                let is_file = |i: usize| {
                    e[i].as_ref()
                        .is_some_and(|e| !matches!(e.body, Body::Dir(_)))
                };
                (0..3).filter(|i| is_file(*i)).fold(0, |m, i| m | bit(i))
            };
            if entries.values().any(|e| filemask(e) == mask) {
                mask = ALL;
            }
        }
        for (name, three) in entries {
            self.entry(&work.path, name, three, mask)?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: &[u8], name: Vec<u8>, three: Three, mut mask: u8) -> Result<()> {
        let path = join(dir, &name);
        let mut node = PathSides::default();
        for (i, entry) in three.iter().enumerate() {
            let Some(entry) = entry else { continue };
            node.stages[i] = Version::of(&path, entry)?;
            if node.stages[i].is_some() {
                node.filemask |= bit(i);
            }
            if let Body::Dir(tree) = entry.body {
                let meta = entry.meta.clone();
                node.dirs[i] = Some(DirSide { meta, tree });
                if has_files(self.ctx.store, tree)? {
                    node.dirmask |= bit(i);
                }
            }
        }
        node.match_mask = self.match_mask(&node)?;
        if node.filemask == ALL && node.match_mask != 0 {
            return self.settled(path, node);
        }
        self.dir_relevance(dir, &path, &node, &mut mask);
        self.pairs(&path, &node, mask);
        node.df_conflict = node.filemask != 0 && node.dirmask != 0;
        self.descend(&path, &node, mask);
        node.match_mask &= match node.dirmask {
            0 => ALL,
            _ => node.filemask,
        };
        self.found.nodes.insert(path, node);
        Ok(())
    }

    /// Which trees have the same here.
    fn match_mask(&self, node: &PathSides) -> Result<u8> {
        let equal = |a: usize, b: usize| -> Result<bool> {
            if node.dirmask & bit(a) != 0 && node.dirmask & bit(b) != 0 {
                let tree = |i: usize| node.dirs[i].as_ref().map(|d| d.tree);
                return Ok(tree(a) == tree(b));
            }
            same(
                self.ctx.store,
                node.stages[a].as_ref(),
                node.stages[b].as_ref(),
            )
        };
        Ok(match (equal(BASE, OURS)?, equal(BASE, THEIRS)?) {
            (true, true) => ALL,
            (true, false) => 3,
            (false, true) => 5,
            (false, false) if equal(OURS, THEIRS)? => 6,
            _ => 0,
        })
    }

    /// A file in all three that at most one side changed, or both alike.
    fn settled(&mut self, path: Vec<u8>, mut node: PathSides) -> Result<()> {
        if let [base, Some(ours), Some(theirs)] = &node.stages {
            let paths = [&path[..]; 3];
            let merged = merge_versions(self.ctx, base.as_ref(), ours, theirs, paths, 0)?;
            node.done = Some(merged.version);
        }
        self.found.nodes.insert(path, node);
        Ok(())
    }

    /// Notes removed directories, and whether it matters where they went: it does where the other side
    /// added a file to them.
    fn dir_relevance(&mut self, dir: &[u8], path: &[u8], node: &PathSides, mask: &mut u8) {
        if *mask != ALL && (node.dirmask == 3 || node.dirmask == 5) {
            *mask = node.dirmask & !bit(BASE);
        }
        if [1, 3, 5].contains(&node.dirmask) {
            let relevance = match *mask {
                ALL => DirRelevance::Ancestor,
                _ => DirRelevance::Not,
            };
            for side in [OURS, THEIRS] {
                if node.dirmask & bit(side) == 0 {
                    let removed = &mut self.found.sides[side].dirs_removed;
                    removed.insert(path.to_vec(), relevance);
                }
            }
        }
        if *mask == ALL && (node.filemask == bit(OURS) || node.filemask == bit(THEIRS)) {
            let other = if node.filemask == bit(OURS) {
                THEIRS
            } else {
                OURS
            };
            let removed = &mut self.found.sides[other].dirs_removed;
            removed.insert(dir.to_vec(), DirRelevance::Own);
        }
    }

    /// Notes what each side added and deleted.
    fn pairs(&mut self, path: &[u8], node: &PathSides, mask: u8) {
        let named = |v: &Option<Version>| {
            let version = v.as_ref().filter(|v| v.is_file() || v.is_symlink())?;
            Some((path.to_vec(), version.clone()))
        };
        for side in [OURS, THEIRS] {
            let renames = &mut self.found.sides[side];
            let (was, is) = (
                node.filemask & bit(BASE) != 0,
                node.filemask & bit(side) != 0,
            );
            let pair = match (was, is) {
                (true, false) => Pair {
                    old: named(&node.stages[BASE]),
                    new: None,
                },
                (false, true) => Pair {
                    old: None,
                    new: named(&node.stages[side]),
                },
                _ => continue,
            };
            if was && pair.old.is_some() {
                if node.match_mask & node.filemask == 0 {
                    renames.relevant.insert(path.to_vec(), Relevance::Content);
                } else if mask == ALL {
                    renames.relevant.insert(path.to_vec(), Relevance::Location);
                }
            }
            if pair.old.is_some() || pair.new.is_some() {
                renames.pairs.push(pair);
            }
        }
    }

    fn descend(&mut self, path: &[u8], node: &PathSides, mask: u8) {
        let there = node.dirs.iter().flatten().count();
        let trees = [BASE, OURS, THEIRS].map(|i| node.dirs[i].as_ref().and_then(|d| d.tree));
        let equal = there == 3 && trees[0] == trees[1] && trees[1] == trees[2];
        if there > 0 && !equal {
            let path = path.to_vec();
            self.work.push(Work { path, trees, mask });
        }
    }
}

/// The entries of a directory that are not the same in all three trees.
fn differing(
    store: &ObjectStore,
    [base, ours, theirs]: [Option<TreeId>; 3],
) -> Result<BTreeMap<Vec<u8>, Three>> {
    let mut found: BTreeMap<Vec<u8>, Three> = BTreeMap::new();
    let name_of = |a: Option<&TreeEntry>, b: Option<&TreeEntry>| {
        a.or(b).map(|e| e.name.clone()).unwrap_or_default()
    };
    diff_trees(store, base, ours, &mut |a, b| {
        let three = [a.cloned(), b.cloned(), a.cloned()];
        found.insert(name_of(a, b), three);
        Ok(())
    })?;
    diff_trees(store, base, theirs, &mut |a, b| {
        let three = found
            .entry(name_of(a, b))
            .or_insert_with(|| [a.cloned(), a.cloned(), None]);
        three[THEIRS] = b.cloned();
        Ok(())
    })?;
    Ok(found)
}

/// True where there is a file in the directory or below it.
pub(super) fn has_files(store: &ObjectStore, tree: Option<TreeId>) -> Result<bool> {
    let mut work: Vec<TreeId> = tree.into_iter().collect();
    while let Some(id) = work.pop() {
        match store.get_object::<TreeNode>(&id)? {
            TreeNode::Inner(children) => work.extend(children.iter().map(|child| child.id)),
            TreeNode::Leaf(entries) => {
                for entry in entries {
                    match entry.body {
                        Body::Dir(tree) => work.extend(tree),
                        _ => return Ok(true),
                    }
                }
            }
        }
    }
    Ok(false)
}

/// A name in a directory, as a path.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

/// Directory and name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
