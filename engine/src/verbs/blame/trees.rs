//! What commits have at a path, and where that was in other commits.
//!
//! A [`Trail`] goes from newer commits to older ones and keeps in mind what the followed file or directory is
//! called. Stored trees are looked at along the path alone; only where it comes to an end are two of them
//! compared as a whole, to find the name that it had.

use crate::error::{Error, Result};
use crate::merge::{Moves, Root};
use crate::types::Kind;
use objstore::{Body, Commit, CommitId, Meta, ObjectStore, TreeEntry, diff_trees, tree_entry};
use std::rc::Rc;

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlameChange {
    /// It came.
    Added,
    /// Its content or attributes changed, or something below it did.
    Modified,
    /// It got this name, and may have changed besides.
    Renamed,
    /// It became something of another type.
    TypeChanged,
    /// It went.
    Deleted,
}

impl BlameChange {
    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            BlameChange::Added => "added",
            BlameChange::Modified => "modified",
            BlameChange::Renamed => "renamed",
            BlameChange::TypeChanged => "type-changed",
            BlameChange::Deleted => "deleted",
        }
    }
}

/// What a commit has under the name that is followed.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub commit: CommitId,
    pub name: Vec<u8>,
    pub entry: Option<TreeEntry>,
}

/// How one moment became another.
pub(crate) struct Difference {
    pub change: BlameChange,
    pub path: Vec<u8>,
    pub old_path: Option<Vec<u8>>,
}

/// A commit that was read lately.
struct Known {
    id: CommitId,
    commit: Rc<Commit>,
}

/// Renames between two commits.
struct Compared {
    old: CommitId,
    new: CommitId,
    moves: Moves,
}

/// Looks into commits.
pub(crate) struct Trees<'a> {
    pub store: &'a ObjectStore,
    /// Look for the name that a path had.
    follow: bool,
    known: Option<Known>,
    compared: Option<Compared>,
}

/// The value, or nothing where an object is missing: the commit has expired.
fn there<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Error::Store(objstore::Error::ObjectMissing { .. })) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(crate) fn is_dir(entry: &TreeEntry) -> bool {
    matches!(entry.body, Body::Dir(_))
}

impl<'a> Trees<'a> {
    pub fn new(store: &'a ObjectStore, follow: bool) -> Trees<'a> {
        Trees {
            store,
            follow,
            known: None,
            compared: None,
        }
    }

    /// A commit; `None` where it is not kept.
    pub fn commit(&mut self, id: CommitId) -> Result<Option<Rc<Commit>>> {
        if let Some(known) = self.known.as_ref().filter(|k| k.id == id) {
            return Ok(Some(known.commit.clone()));
        }
        let kept = self.store.contains(objstore::Kind::Commit, id.as_bytes());
        if !kept {
            return Ok(None);
        }
        let commit: Option<Commit> = there(self.store.get_object(&id).map_err(Error::Store))?;
        let Some(commit) = commit.map(Rc::new) else {
            return Ok(None);
        };
        let known = Known {
            id,
            commit: commit.clone(),
        };
        self.known = Some(known);
        Ok(Some(commit))
    }

    fn root(&mut self, id: CommitId) -> Result<Option<Root>> {
        Ok(self.commit(id)?.map(|commit| Root {
            meta: commit.root_meta.clone(),
            tree: commit.root,
        }))
    }

    /// What a commit has at a path; the outer `None` where it is not kept.
    pub fn entry(&mut self, id: CommitId, path: &[u8]) -> Result<Option<Option<TreeEntry>>> {
        let Some(commit) = self.commit(id)? else {
            return Ok(None);
        };
        there(entry_at(self.store, &commit, path))
    }

    /// What the `path` of the commit `new`, which `old` does not have, was called in `old`; it is not in `new`
    /// under that name.
    fn name_in(
        &mut self,
        old: CommitId,
        (new, path, entry): (CommitId, &[u8], &TreeEntry),
    ) -> Result<Option<Vec<u8>>> {
        if !self.follow || !self.compare(old, new)? {
            return Ok(None);
        }
        let moves = self.compared.as_ref().map(|c| &c.moves);
        if let Some(name) = moves.and_then(|m| m.file(path)).filter(|_| !is_dir(entry)) {
            return Ok(Some(name.clone()));
        }
        // It went with the nearest directory that was moved.
        let mut end = match is_dir(entry) {
            true => Some(path.len()),
            false => path.iter().rposition(|b| *b == b'/'),
        };
        while let Some(at) = end.filter(|at| *at > 0) {
            let (dir, rest) = path.split_at(at);
            if !matches!(self.entry(old, dir)?, Some(None)) {
                return Ok(None);
            }
            let moves = self.compared.as_ref().map(|c| &c.moves);
            if let Some(was) = moves.and_then(|m| m.directory(dir)) {
                let name = [&was[..], rest].concat();
                let old = self.entry(old, &name)?.flatten();
                let fits = old.is_some_and(|old| is_dir(&old) == is_dir(entry));
                let went = matches!(self.entry(new, &name)?, Some(None));
                return Ok((fits && went).then_some(name));
            }
            end = dir.iter().rposition(|b| *b == b'/');
        }
        Ok(None)
    }

    /// Compares two commits as a whole; false where one of them is not kept.
    fn compare(&mut self, old: CommitId, new: CommitId) -> Result<bool> {
        let is_last = |c: &Compared| (c.old, c.new) == (old, new);
        if self.compared.as_ref().is_some_and(is_last) {
            return Ok(true);
        }
        let (Some(a), Some(b)) = (self.root(old)?, self.root(new)?) else {
            return Ok(false);
        };
        let Some(moves) = there(Moves::between(self.store, &a, &b))? else {
            return Ok(false);
        };
        self.compared = Some(Compared { old, new, moves });
        Ok(true)
    }

    /// What another commit has of what is followed; `None` where it is not kept.
    pub fn look(&mut self, from: &Moment, commit: CommitId) -> Result<Option<Moment>> {
        if from.commit == commit {
            return Ok(Some(from.clone()));
        }
        let Some(mut entry) = self.entry(commit, &from.name)? else {
            return Ok(None);
        };
        let mut name = from.name.clone();
        if let (None, Some(was)) = (&entry, &from.entry)
            && let Some(old) = self.name_in(commit, (from.commit, &from.name, was))?
        {
            entry = self.entry(commit, &old)?.flatten();
            name = old;
        }
        Ok(Some(Moment {
            commit,
            name,
            entry,
        }))
    }

    /// How one moment became another; `None` where nothing differs.
    pub fn difference(&mut self, before: &Moment, after: &Moment) -> Result<Option<Difference>> {
        let (a, b) = (before.entry.as_ref(), after.entry.as_ref());
        let mut path = after.name.clone();
        let mut old_path = (before.name != after.name).then(|| before.name.clone());
        let change = match (a, b) {
            (None, None) => return Ok(None),
            (None, Some(_)) => BlameChange::Added,
            (Some(entry), None) => {
                let from = (before.commit, &before.name[..], entry);
                match self.name_in(after.commit, from)? {
                    Some(name) => {
                        (old_path, path) = (Some(before.name.clone()), name);
                        BlameChange::Renamed
                    }
                    None => BlameChange::Deleted,
                }
            }
            (Some(_), Some(_)) if old_path.is_some() => BlameChange::Renamed,
            (Some(x), Some(y)) => {
                if there(different(self.store, a, b, true))? != Some(true) {
                    return Ok(None);
                }
                match Kind::of_mode(x.meta.mode) == Kind::of_mode(y.meta.mode) {
                    true => BlameChange::Modified,
                    false => BlameChange::TypeChanged,
                }
            }
        };
        Ok(Some(Difference {
            change,
            path,
            old_path: old_path.filter(|_| change == BlameChange::Renamed),
        }))
    }
}

fn entry_at(store: &ObjectStore, commit: &Commit, path: &[u8]) -> Result<Option<TreeEntry>> {
    let mut entry = TreeEntry {
        name: Vec::new(),
        meta: commit.root_meta.clone(),
        body: Body::Dir(commit.root),
    };
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        let Body::Dir(Some(dir)) = entry.body else {
            return Ok(None);
        };
        match tree_entry(store, dir, name)? {
            Some(below) => entry = below,
            None => return Ok(None),
        }
    }
    Ok(Some(entry))
}

/// The way from newer commits to older ones.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    /// Where it stands.
    pub at: Rc<Moment>,
}

impl Trail {
    /// Goes on to an older commit; `None` where it is not kept, then the trail stays where it is.
    pub fn step(&mut self, trees: &mut Trees<'_>, commit: CommitId) -> Result<Option<Rc<Moment>>> {
        if self.at.commit != commit {
            let Some(moment) = trees.look(&self.at, commit)? else {
                return Ok(None);
            };
            self.at = Rc::new(moment);
        }
        Ok(Some(self.at.clone()))
    }
}

/// Whether two trees differ in more than times.
pub(crate) fn differ_in_content(store: &ObjectStore, a: &Root, b: &Root) -> Result<bool> {
    let entry = |root: &Root| TreeEntry {
        name: Vec::new(),
        meta: root.meta.clone(),
        body: Body::Dir(root.tree),
    };
    different(store, Some(&entry(a)), Some(&entry(b)), false)
}

/// Whether a diff would show something at or below an entry; `times`: also where only the time of a file
/// is another.
pub(crate) fn different(
    store: &ObjectStore,
    a: Option<&TreeEntry>,
    b: Option<&TreeEntry>,
    times: bool,
) -> Result<bool> {
    let (Some(a), Some(b)) = (a, b) else {
        return Ok(a.is_some() != b.is_some());
    };
    let (Body::Dir(x), Body::Dir(y)) = (&a.body, &b.body) else {
        let mut meta = b.meta.clone();
        if !times {
            (meta.mtime_sec, meta.mtime_nsec) = (a.meta.mtime_sec, a.meta.mtime_nsec);
        }
        let same = match (&a.body, &b.body) {
            (Body::File(x), Body::File(y)) => objstore::same_bytes(store, x, y)?,
            (x, y) => x == y,
        };
        return Ok(a.meta != meta || !same);
    };
    // The time of a directory only says that a name came or went.
    let owner = |m: &Meta| (m.mode, m.uid, m.gid, m.xattrs.clone());
    if owner(&a.meta) != owner(&b.meta) || Kind::of_mode(a.meta.mode) != Kind::of_mode(b.meta.mode)
    {
        return Ok(true);
    }
    let mut found = false;
    let mut failed = None;
    diff_trees(store, *x, *y, &mut |a, b| {
        if !found {
            match different(store, a, b, times) {
                Ok(differ) => found = differ,
                Err(e) => failed = Some(e),
            }
        }
        Ok(())
    })?;
    failed.map_or(Ok(found), Err)
}
