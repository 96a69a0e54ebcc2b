//! What a rollback changed, in the words that watchers of the mount are told.

use crate::branch::Branch;
use crate::change::transition::Transition;
use crate::tree::Tree;
use crate::types::{Announcement, Happened, Kind, Nid};

/// Tells watchers how `before` became the tree of `changes`.
pub(crate) fn announce(branch: &Branch, before: &Tree, changes: &Transition) {
    tell_watchers(branch, announcements(before, changes));
}

/// Tells watchers of names that came or went.
pub(crate) fn announce_names(branch: &Branch, names: &[(Nid, Vec<u8>, Happened)]) {
    let live = branch.lock().live.clone();
    let list = names
        .iter()
        .filter_map(|(dir, name, what)| told(&live, *dir, name, *what));
    tell_watchers(branch, list.collect());
}

/// Tells watchers that a file's content is another one.
pub(crate) fn announce_changed(branch: &Branch, nid: Nid) {
    let live = branch.lock().live.clone();
    tell_watchers(branch, changed(&live, &live, nid));
}

fn tell_watchers(branch: &Branch, mut list: Vec<Announcement>) {
    if let Some(view) = branch.view_path() {
        for a in &mut list {
            let below = std::mem::take(&mut a.dir);
            a.dir = view.clone();
            if !below.is_empty() {
                a.dir.push(b'/');
                a.dir.extend(below);
            }
        }
    }
    if !list.is_empty() {
        branch.cache().announce(list);
    }
}

/// Names that went come first, so that one that came in another type's place is told last.
fn announcements(before: &Tree, changes: &Transition) -> Vec<Announcement> {
    let (mut gone, mut rest) = (Vec::new(), Vec::new());
    for (dir, name) in &changes.names {
        let (was, is) = (kind(before, *dir, name), kind(&changes.tree, *dir, name));
        if let Some(kind) = was.filter(|_| was != is) {
            gone.extend(told(&changes.tree, *dir, name, Happened::Removed(kind)));
        }
        if let Some(kind) = is.filter(|_| was != is) {
            rest.extend(told(&changes.tree, *dir, name, Happened::Made(kind)));
        } else if is.is_some() {
            rest.extend(told(&changes.tree, *dir, name, Happened::Changed));
        }
    }
    for nid in &changes.inodes {
        rest.extend(changed(before, &changes.tree, *nid));
    }
    gone.append(&mut rest);
    gone.dedup();
    gone
}

fn kind(tree: &Tree, dir: Nid, name: &[u8]) -> Option<Kind> {
    tree.lookup(dir, name).ok().map(|entry| entry.kind)
}

fn told(tree: &Tree, dir: Nid, name: &[u8], what: Happened) -> Option<Announcement> {
    let (dir, name) = (tree.path(dir)?, name.to_vec());
    Some(Announcement { dir, name, what })
}

/// A file or link by each of its names. Directories change with their names, which are told.
fn changed(before: &Tree, after: &Tree, nid: Nid) -> Vec<Announcement> {
    let Some(inode) = after.get(nid).filter(|inode| inode.dir().is_none()) else {
        return Vec::new();
    };
    let names = inode.names().into_iter().filter_map(|(dir, hash)| {
        let name = after.get(dir)?.dir()?.map.name_of(hash, nid)?;
        // A new name was told as such.
        before.lookup(dir, name).ok()?;
        told(after, dir, name, Happened::Changed)
    });
    names.collect()
}
