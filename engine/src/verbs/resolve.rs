//! Settling the conflicts that a merge kept.

use super::RolledBack;
use super::switch::To;
use crate::book::history::Turn;
use crate::branch::events;
use crate::branch::states;
use crate::branch::{Branch, away};
use crate::change::transition::{differs, transition};
use crate::clock;
use crate::error::{Error, Result};
use crate::kv::{KV_CONFLICTS, KvEntry, check_bytes, checked_value};
use crate::limits::KV_VALUE_BYTES_MAX;
use crate::merge::{Conflict, ConflictSide};
use crate::record::{Event, Mutation, SwitchKind};
use crate::stored::load::{Numbers, load_tree};
use crate::stored::store::meta_of;
use crate::tree::Tree;
use crate::tree::dirmap::{Dentry, name_hash};
use crate::types::{Kind, Nid, Time};
use crate::verbs::switch;
use crate::workspace::Workspace;
use objstore::{Body, Edit, TreeEntry, edit_tree, read_content};
use std::sync::Arc;

/// Which version of a path in conflict shall stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// That of the branch that was merged into.
    Ours,
    /// That of the branch that was merged.
    Theirs,
    /// That of the common ancestor.
    Base,
    /// What is there now.
    Working,
}

/// Settles the conflict at a path; where that changes the live tree, what was there becomes an
/// automatic commit. Returns how many conflicts are left, and what was changed.
pub fn resolve_conflict(
    ws: &Workspace,
    branch: &str,
    path: &[u8],
    how: Resolution,
) -> Result<(usize, Option<RolledBack>)> {
    let b = ws.branch(branch)?;
    let _one = b.control.lock();
    let found: Vec<Conflict> = {
        let inner = b.lock();
        let all = inner.book.history.conflicts.iter();
        all.filter(|c| c.path == path).cloned().collect()
    };
    let Some(first) = found.first() else {
        return Err(Error::NoConflict(path.to_vec()));
    };
    let wanted = |pick: fn(&Conflict) -> &Option<ConflictSide>| {
        let sides = found.iter().find_map(|c| pick(c).as_ref());
        sides.or(pick(first).as_ref()).map(|s| s.entry.clone())
    };
    let entry = match how {
        Resolution::Working => None,
        Resolution::Ours => Some(wanted(|c| &c.ours)),
        Resolution::Theirs => Some(wanted(|c| &c.theirs)),
        Resolution::Base => Some(wanted(|c| &c.base)),
    };
    ws.untrusted.shows_again(branch, false)?;
    let back = match (entry, path.strip_prefix(KV_CONFLICTS)) {
        (None, _) => None,
        (Some(value), Some(key)) => show_value(&b, ws.author(), key, value)?,
        (Some(entry), None) => show_entry(&b, ws.author(), path, entry)?,
    };
    let left = {
        let mut inner = b.lock();
        let path = path.to_vec();
        b.carry_out(&mut inner, Event::Resolved { path }, &[])?;
        inner.book.history.conflicts.len()
    };
    b.sync()?;
    Ok((left, back))
}

/// Shows this version of a path, or nothing there.
fn show_entry(
    branch: &Branch,
    author: &str,
    path: &[u8],
    entry: Option<TreeEntry>,
) -> Result<Option<RolledBack>> {
    let _pin = branch.places.store.pin();
    let new = entry.map(|e| loaded_entry(branch, e)).transpose()?;
    show_changed(branch, author, &|live| with_entry(live, path, new.as_ref()))
}

/// Lets a key have this value, or goes without it.
fn show_value(
    branch: &Branch,
    author: &str,
    key: &[u8],
    value: Option<TreeEntry>,
) -> Result<Option<RolledBack>> {
    let _pin = branch.places.store.pin();
    let key = String::from_utf8_lossy(key);
    let value = value.map(|e| loaded_value(branch, &e)).transpose()?;
    show_changed(branch, author, &|live| {
        let (mut tree, before) = (live.clone(), live.kv().get(&key));
        let entry = value.as_ref().map(|(value, updated)| KvEntry {
            value: value.clone(),
            created: before.map_or(*updated, |b| b.created),
            updated: *updated,
        });
        tree.kv_mut().set(&key, entry.map(Arc::new));
        check_bytes(tree.kv())?;
        Ok(tree)
    })
}

/// A value that a conflict holds, and when it was set.
fn loaded_value(branch: &Branch, entry: &TreeEntry) -> Result<(String, Time)> {
    let damaged = |why: &str| Error::Damaged {
        what: "a value in conflict".into(),
        why: why.into(),
    };
    let content = match &entry.body {
        Body::File(content) if content.len() <= KV_VALUE_BYTES_MAX as u64 => content,
        _ => return Err(damaged("it is not a value")),
    };
    let mut bytes = vec![0; content.len() as usize];
    read_content(&branch.places.store, content, 0, &mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let updated = Time {
        sec: entry.meta.mtime_sec,
        nsec: entry.meta.mtime_nsec,
    };
    Ok((checked_value(&text)?, updated))
}

/// Shows what `change` makes of the live tree; what was there becomes an automatic commit.
fn show_changed(
    branch: &Branch,
    author: &str,
    change: &dyn Fn(&Tree) -> Result<Tree>,
) -> Result<Option<RolledBack>> {
    events::check_journal(branch)?;
    branch.cache().flush_dirty();
    let (shown, replaced, changes, before, head) = loop {
        let mut inner = branch.lock_synced()?;
        let target = change(&inner.live)?;
        if !differs(&inner.live, &target) {
            return Ok(None);
        }
        let (shown, head) = (inner.book.history.shown, inner.book.history.head);
        let mut counters = inner.book.counters;
        let changes = transition(&inner.live, &target, &mut counters, &inner.lookups);
        if inner.needs_links(&changes) {
            drop(inner);
            away::bring_all(branch)?;
            continue;
        }
        let to = To::State(SwitchKind::Restore, Turn { state: head, head });
        let before = inner.live.clone();
        let replaced = switch::swap(branch, &mut inner, author, to, &changes, counters)?;
        break (shown, replaced, changes, before, head);
    };
    switch::after_swap(
        branch,
        (&before, &changes),
        (replaced, shown),
        head,
        &|_, _| (),
    )
    .map(Some)
}

/// A tree of a root directory that has this entry alone, and the entry's inode.
fn loaded_entry(branch: &Branch, entry: TreeEntry) -> Result<(Tree, Nid)> {
    let (store, name) = (&branch.places.store, entry.name.clone());
    let meta = meta_of(branch.lock().live.inode(Nid::ROOT)?);
    let tree = edit_tree(store, None, vec![Edit::Put(entry)])?;
    let empty = states::empty_reference(branch)?;
    let numbers: &mut dyn Numbers = &mut branch.numbers();
    let loaded = load_tree(store, &empty, (tree, &meta), numbers, clock::now(), true)?;
    let nid = loaded.tree.lookup(Nid::ROOT, &name)?.nid;
    Ok((loaded.tree, nid))
}

/// `live` with `new` (an inode of another tree, whose numbers are not in use) under a path.
fn with_entry(live: &Tree, path: &[u8], new: Option<&(Tree, Nid)>) -> Result<Tree> {
    let (dir, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    let no_dir = |_| Error::InTheWay(dir.to_vec());
    let parent = live.resolve(dir).map_err(no_dir)?;
    let mut tree = live.clone();
    let now = clock::now();
    if let Ok(there) = live.lookup(parent, name) {
        if there.kind == Kind::Dir {
            return Err(Error::InTheWay(path.to_vec()));
        }
        let gone = Mutation::Unlink {
            parent: parent.0,
            name: name.to_vec(),
            now,
        };
        let broken = |e: crate::tree::Broken| Error::Damaged {
            what: "the live tree".into(),
            why: e.to_string(),
        };
        tree.apply(&gone, None).map_err(broken)?;
        if tree.get(there.nid).is_some_and(|i| i.nlink == 0) {
            tree.remove(there.nid);
        }
    }
    let Some((from, nid)) = new else {
        return Ok(tree);
    };
    for below in from.subtree(*nid) {
        if let Some(inode) = from.get(below) {
            tree.set(below, inode.clone());
        }
    }
    let kind = tree.update(*nid, |i| {
        (i.parent, i.hash, i.links) = (parent, name_hash(name), None);
        i.kind()
    });
    let kind = kind.unwrap_or(Kind::File);
    tree.update(parent, |i| {
        (i.mtime, i.ctime) = (now, now);
        if let Some(d) = i.dir_mut() {
            d.map.insert(name, Dentry { nid: *nid, kind });
            d.subdirs += u32::from(kind == Kind::Dir);
        }
    });
    Ok(tree)
}
