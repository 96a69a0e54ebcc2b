//! What a call itself changed, where others ran at the same time and it is known whose each change was.
//!
//! The timeline tells which paths others changed while a call ran ([`What::Others`]). Everything else that differs
//! between its beginning and its end is its own. So what the branch would have been before it, with what the others did,
//! is what it left, with all but those paths as the call found them ([`without_own`]).
//!
//! Invariant: what both changed is never parted. A call runs alone for some of its time; what was changed then is its
//! own too, and is looked at in the states at both ends of that time.
//!
//! Tests: `engine/tests/timeline/beside.rs`, `engine/tests/timeline/beside_model.rs`.

use crate::branch::whose::key_path;
use crate::error::Result;
use crate::kv::{self, KvMap};
use crate::merge::Root;
use crate::record::call::StateRef;
use crate::verbs::blame::different;
use crate::verbs::timeline::read::TimelineItem;
use objstore::{Body, Commit, Edit, Meta, ObjectStore, TreeEntry, TreeId, diff_trees, edit_tree};
use std::collections::BTreeMap;

#[cfg(doc)]
use crate::record::call::What;

/// What others changed while a call ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// The calls that it is known of.
    pub of: Vec<u64>,
    /// Paths, ascending; with a slash at the end, with all below; with one at the beginning, keys.
    pub paths: Vec<Vec<u8>>,
    /// Why it is not known.
    pub doubt: Option<String>,
}

impl Others {
    /// Whether they changed what has this path, or may have.
    pub fn changed(&self, path: &[u8]) -> bool {
        let has = |path: &[u8]| self.paths.binary_search_by(|p| p[..].cmp(path)).is_ok();
        if has(path) || path.starts_with(b"/") {
            return has(path);
        }
        let mut ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        ends.any(|(end, _)| has(&path[..=end])) || has(&[path, b"/"].concat())
    }

    /// Whether they changed something below a directory.
    pub fn changed_below(&self, dir: &[u8]) -> bool {
        let top = match dir {
            b"" => Vec::new(),
            dir => [dir, b"/"].concat(),
        };
        let first = self.paths.partition_point(|p| p[..] < top[..]);
        let below = |p: &Vec<u8>| p.starts_with(&top) && !p.starts_with(b"/") && !p.is_empty();
        self.paths
            .get(first..)
            .unwrap_or_default()
            .iter()
            .any(below)
    }
}

/// A branch at one moment.
pub(crate) struct Whole {
    pub root: Root,
    pub kv: KvMap,
}

impl Whole {
    pub fn of(store: &ObjectStore, commit: &Commit) -> Result<Whole> {
        Ok(Whole {
            root: Root {
                meta: commit.root_meta.clone(),
                tree: commit.root,
            },
            kv: kv::stored::load(store, commit.kv.as_ref())?,
        })
    }

    fn entry(&self) -> TreeEntry {
        TreeEntry {
            name: Vec::new(),
            meta: self.root.meta.clone(),
            body: Body::Dir(self.root.tree),
        }
    }
}

/// The times in which a call ran without any of these, each with the states at its ends; `None` where they are not
/// known. The entries tell the order.
pub(crate) fn alone<'a>(
    item: &TimelineItem,
    others: impl Iterator<Item = &'a TimelineItem>,
) -> Option<Vec<(StateRef, StateRef)>> {
    let (from, to, end) = (item.before?, item.after?, item.ended?);
    let (mut running, mut marks) = (0, Vec::new());
    for other in others {
        match other.entry < item.entry {
            true => running += 1,
            false => marks.push((other.entry, 1, other.before?)),
        }
        if let Some(ended) = other.ended.filter(|ended| *ended < end) {
            marks.push((ended, -1, other.after?));
        } else if other.ended.is_none() && other.completed.is_some() {
            return None;
        }
    }
    marks.sort_by_key(|(entry, ..)| *entry);
    let mut found = Vec::new();
    let mut since = (running == 0).then_some(from);
    for (_, step, state) in marks {
        running += step;
        match since.take() {
            Some(since) => found.push((since, state)),
            None => since = (running == 0).then_some(state),
        }
    }
    found.extend(since.map(|since| (since, to)));
    Some(found)
}

/// The first path that differs between two moments and that others changed.
pub(crate) fn shared(
    store: &ObjectStore,
    (a, b): (&Whole, &Whole),
    others: &Others,
) -> Result<Option<Vec<u8>>> {
    let mut keys = Vec::new();
    KvMap::diff(&a.kv, &b.kv, &mut |(key, ..)| keys.push(key_path(key)));
    if let Some(key) = keys.into_iter().find(|key| others.changed(key)) {
        return Ok(Some(key));
    }
    let mut work = vec![(Vec::new(), Some(a.entry()), Some(b.entry()))];
    while let Some((path, a, b)) = work.pop() {
        let (x, y) = (dir_of(a.as_ref()), dir_of(b.as_ref()));
        let is_dir = x.is_some() && y.is_some();
        if !(is_dir && same_dir(&a, &b)) && others.changed(&path) {
            return Ok(Some(path));
        }
        if x.is_some() || y.is_some() {
            for (name, a, b) in children(store, x.flatten(), y.flatten())? {
                work.push((join(&path, &name), a, b));
            }
        }
    }
    Ok(None)
}

/// What there would have been before a call, had the others done all they did by then. An error names a path at which
/// that cannot be parted.
pub(crate) fn without_own(
    store: &ObjectStore,
    before: &Whole,
    after: &Whole,
    others: &Others,
) -> Result<Result<Whole, Vec<u8>>> {
    let mut parting = Parting {
        store,
        others,
        unfit: None,
    };
    let (a, b) = (before.entry(), after.entry());
    let root = parting.entry(b"", Some(&a), Some(&b))?;
    if let Some(path) = parting.unfit {
        return Ok(Err(path));
    }
    let mut kv = after.kv.clone();
    KvMap::diff(&before.kv, &after.kv, &mut |(key, was, _)| {
        if !others.changed(&key_path(key)) {
            kv.set(key, was.cloned());
        }
    });
    let root = root.unwrap_or(b);
    let tree = dir_of(Some(&root)).flatten();
    let root = Root {
        meta: root.meta,
        tree,
    };
    Ok(Ok(Whole { root, kv }))
}

/// Whether two moments differ at all in what a diff shows.
pub(crate) fn differ(store: &ObjectStore, a: &Whole, b: &Whole) -> Result<bool> {
    let differ = different(store, Some(&a.entry()), Some(&b.entry()), true)?;
    Ok(differ || !a.kv.equals(&b.kv))
}

struct Parting<'a> {
    store: &'a ObjectStore,
    others: &'a Others,
    unfit: Option<Vec<u8>>,
}

impl Parting<'_> {
    /// What is at a path that had `a` before and has `b` after.
    fn entry(
        &mut self,
        path: &[u8],
        a: Option<&TreeEntry>,
        b: Option<&TreeEntry>,
    ) -> Result<Option<TreeEntry>> {
        let own = !self.others.changed(path);
        let (x, y) = (dir_of(a), dir_of(b));
        let other_type = (x.is_some() && b.is_some() && y.is_none())
            || (y.is_some() && a.is_some() && x.is_none());
        if other_type && own && self.others.changed_below(path) {
            self.unfit.get_or_insert_with(|| path.to_vec());
        }
        if other_type || x.is_none() && y.is_none() {
            return Ok(if own { a } else { b }.cloned());
        }
        let mut edits = Vec::new();
        for (name, a, b) in children(self.store, x.flatten(), y.flatten())? {
            match self.entry(&join(path, &name), a.as_ref(), b.as_ref())? {
                Some(entry) if Some(&entry) != b.as_ref() => edits.push(Edit::Put(entry)),
                None if b.is_some() => edits.push(Edit::Remove(name)),
                _ => {}
            }
        }
        let tree = edit_tree(self.store, y.flatten(), edits)?;
        let stays = match (a, b) {
            (Some(_), Some(_)) => true,
            // What others put into it keeps it.
            (None, _) => !own || tree.is_some(),
            (_, None) => own || tree.is_some(),
        };
        let same = same_dir(&a.cloned(), &b.cloned());
        let of = match (a, b) {
            (Some(a), Some(_)) if own && !same => Some(a),
            (a, b) => b.or(a),
        };
        Ok(of.filter(|_| stays).map(|of| TreeEntry {
            body: Body::Dir(tree),
            ..of.clone()
        }))
    }
}

/// A name in a directory, with what it stands for before and after.
type Child = (Vec<u8>, Option<TreeEntry>, Option<TreeEntry>);

/// Names that differ.
fn children(store: &ObjectStore, a: Option<TreeId>, b: Option<TreeId>) -> Result<Vec<Child>> {
    let mut found = Vec::new();
    diff_trees(store, a, b, &mut |a, b| {
        let name = a.or(b).map(|e| e.name.clone()).unwrap_or_default();
        found.push((name, a.cloned(), b.cloned()));
        Ok(())
    })?;
    Ok(found)
}

/// The entries of a directory; the outer `None` for anything else.
fn dir_of(entry: Option<&TreeEntry>) -> Option<Option<TreeId>> {
    match entry?.body {
        Body::Dir(tree) => Some(tree),
        _ => None,
    }
}

/// Whether two directories differ in no more than their times and what is in them.
fn same_dir(a: &Option<TreeEntry>, b: &Option<TreeEntry>) -> bool {
    let owner = |e: &TreeEntry| {
        let Meta { mode, uid, gid, .. } = e.meta;
        (mode, uid, gid, e.meta.xattrs.clone())
    };
    match (a, b) {
        (Some(a), Some(b)) => owner(a) == owner(b),
        _ => false,
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

/// Calls by their ids.
pub(crate) type Calls = BTreeMap<u64, TimelineItem>;
