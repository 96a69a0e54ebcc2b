//! Making, removing, moving and changing names of the live tree by path, and having the mount show it.
//!
//! Each step is the same mutation as a request of the kernel would be: validated, journaled, applied.
//! Paths count from the root; symbolic links on the way are followed as long as they stay in the
//! workspace, the last name never is. Invariant: when one of these has answered, also with an error, no
//! lookup or listing through the mount shows what was there before.

use super::state_reader::known_dir;
use super::write::Made;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::ops;
use crate::types::{By, Caller, Happened, Kind, Nid, RenameFlags, SetAttr, Wait};
use crate::verbs::announce;
use crate::verbs::write;
use crate::workspace::Workspace;

/// Names of a directory that are taken in hand at once while it is emptied.
const BATCH: usize = 256;

/// A directory and a name in it.
type NameIn = (Nid, Vec<u8>);

/// Makes a directory; with `parents` also those above it, and one that exists is no error.
pub(crate) fn make_dir_in(branch: &Branch, who: &Caller, path: &[u8], parents: bool) -> Result<()> {
    let mut made = Vec::new();
    let done = make_dir_noting(branch, who, path, parents, &mut made);
    show_made(branch, &made);
    done
}

fn make_dir_noting(
    branch: &Branch,
    who: &Caller,
    path: &[u8],
    parents: bool,
    made: &mut Vec<Made>,
) -> Result<()> {
    if parents {
        return write::open_dir(branch, who, path, true, made).map(|_| ());
    }
    let (dir, name) = split(path).ok_or(Error::Exists)?;
    let parent = write::open_dir(branch, who, dir, false, made)?;
    write::make_one_dir(branch, who, parent, name, made).map(|_| ())
}

/// What is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything but a directory.
    File,
    /// A directory.
    Dir,
}

/// Removes what has that path; a directory with entries only if `recursive`, and nothing that is not as expected.
pub(crate) fn remove_path_in(
    branch: &Branch,
    path: &[u8],
    recursive: bool,
    expect: Option<Expect>,
) -> Result<()> {
    let (parent, name) = place(branch, path)?;
    let (nid, kind) = entry(branch, parent, &name)?;
    match expect {
        Some(Expect::File) if kind == Kind::Dir => return Err(Error::IsDir),
        Some(Expect::Dir) if kind != Kind::Dir => return Err(Error::NotDir),
        _ => {}
    }
    if kind == Kind::Dir && recursive {
        empty(branch, nid)?;
    }
    remove_one(branch, &(parent, name.clone()), nid, kind)?;
    announce::announce_names(branch, &[(parent, name, Happened::Removed(kind))]);
    Ok(())
}

/// Moves a name as rename(2) does: what has the new one is replaced, a directory only if empty.
pub(crate) fn rename_path_in(branch: &Branch, from: &[u8], to: &[u8]) -> Result<()> {
    let (from, to) = (place(branch, from)?, place(branch, to)?);
    let (moved, kind) = entry(branch, from.0, &from.1)?;
    let replaced = entry(branch, to.0, &to.1).ok();
    let flags = RenameFlags::default();
    ops::names::rename(
        branch,
        (from.0, &from.1),
        (to.0, &to.1),
        flags,
        By::Daemon,
        Wait::Allowed,
    )?;
    hide(branch, &from);
    hide(branch, &to);
    refresh(branch, moved);
    if let Some((nid, _)) = replaced {
        refresh(branch, nid);
    }
    let gone = (from.0, from.1, Happened::Removed(kind));
    announce::announce_names(branch, &[gone, (to.0, to.1, Happened::Made(kind))]);
    Ok(())
}

/// Makes a symbolic link.
fn make_link_in(branch: &Branch, who: &Caller, path: &[u8], target: &[u8]) -> Result<()> {
    let (parent, name) = place(branch, path)?;
    let attr = ops::names::symlink(branch, who, parent, &name, target, Wait::Allowed)?;
    ops::names::forget(branch, attr.node.nid(), 1);
    let kind = Kind::Symlink;
    show_made(branch, &[Made { parent, name, kind }]);
    Ok(())
}

/// Changes the permission bits of what a path leads to.
fn set_perm_in(branch: &Branch, who: &Caller, path: &[u8], perm: u32) -> Result<()> {
    let (nid, _) = write::look(branch, path)?;
    let set = SetAttr {
        perm: Some(perm),
        ..SetAttr::default()
    };
    ops::attr::setattr(branch, who, nid, &set, Wait::Allowed)?;
    refresh(branch, nid);
    announce::announce_changed(branch, nid);
    Ok(())
}

/// Gives the file that a path leads to another length.
fn set_size_in(branch: &Branch, who: &Caller, path: &[u8], size: u64) -> Result<()> {
    branch.cache().flush_dirty();
    let (nid, _) = write::look(branch, path)?;
    write::resize(branch, who, nid, size)?;
    announce::announce_changed(branch, nid);
    Ok(())
}

/// The directory that a path lies in, and its last name. The root has none.
fn place(branch: &Branch, path: &[u8]) -> Result<NameIn> {
    let (dir, name) = split(path).ok_or(Error::NotPermitted)?;
    match write::look(branch, dir)? {
        (nid, Kind::Dir) => Ok((nid, name.to_vec())),
        _ => Err(Error::NotDir),
    }
}

/// What a name stands for, a symbolic link for itself.
fn entry(branch: &Branch, dir: Nid, name: &[u8]) -> Result<(Nid, Kind)> {
    branch.request(Wait::Allowed, |inner| {
        let entry = known_dir(&inner.live, dir)?.map.get(name);
        entry.map(|e| (e.nid, e.kind)).ok_or(Error::NotFound)
    })
}

/// Removes everything in a directory, deepest first.
fn empty(branch: &Branch, top: Nid) -> Result<()> {
    let mut open: Vec<(NameIn, Nid)> = Vec::new();
    loop {
        let dir = open.last().map_or(top, |(_, nid)| *nid);
        let entries = some_entries(branch, dir)?;
        if entries.is_empty() {
            let Some((place, nid)) = open.pop() else {
                return Ok(());
            };
            remove_one(branch, &place, nid, Kind::Dir)?;
        }
        for (name, nid, kind) in entries {
            let place = (dir, name);
            match remove_one(branch, &place, nid, kind) {
                // Somebody else was faster.
                Ok(()) | Err(Error::NotFound) => {}
                Err(Error::NotEmpty) => {
                    open.push((place, nid));
                    break;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

fn some_entries(branch: &Branch, dir: Nid) -> Result<Vec<(Vec<u8>, Nid, Kind)>> {
    branch.request(Wait::Allowed, |inner| {
        let mut some = Vec::new();
        known_dir(&inner.live, dir)?.map.scan(0, &mut |e| {
            some.push((e.name.to_vec(), e.entry.nid, e.entry.kind));
            some.len() < BATCH
        });
        Ok(some)
    })
}

fn remove_one(branch: &Branch, place: &NameIn, nid: Nid, kind: Kind) -> Result<()> {
    match kind {
        Kind::Dir => ops::names::rmdir(branch, place.0, &place.1, By::Daemon, Wait::Allowed)?,
        _ => ops::names::unlink(branch, place.0, &place.1, Wait::Allowed)?,
    }
    hide(branch, place);
    refresh(branch, nid);
    Ok(())
}

/// Has the kernel ask again for a name and for the listing that it stood in.
fn hide(branch: &Branch, (dir, name): &NameIn) {
    if *dir == Nid::ROOT || branch.lock().lookups.may_know(*dir) {
        branch.cache().inval_entry(branch.node(*dir), name);
        branch.cache().inval_inode(branch.node(*dir));
    }
}

/// Has the kernel ask again for an inode's attributes.
fn refresh(branch: &Branch, nid: Nid) {
    if branch.lock().lookups.may_know(nid) {
        branch.cache().inval_inode(branch.node(nid));
    }
}

/// Has the mount show names that came into being, and tells watchers.
pub(super) fn show_made(branch: &Branch, made: &[Made]) {
    for m in made {
        hide(branch, &(m.parent, m.name.clone()));
    }
    let told = made
        .iter()
        .map(|m| (m.parent, m.name.clone(), Happened::Made(m.kind)));
    announce::announce_names(branch, &told.collect::<Vec<_>>());
}

/// A path's directory and last name; none for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|b| *b != b'/')? + 1;
    let path = &path[..end];
    Some(match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    })
}

/// Makes a directory of the live tree; with `parents` also those above it.
pub fn make_dir(
    ws: &Workspace,
    branch: &str,
    who: &Caller,
    path: &[u8],
    parents: bool,
) -> Result<()> {
    make_dir_in(ws.branch(branch)?.as_ref(), who, path, parents)
}

/// Removes a path of the live tree; a directory with entries only if `recursive`.
pub fn remove_path(ws: &Workspace, branch: &str, path: &[u8], recursive: bool) -> Result<()> {
    remove_path_in(ws.branch(branch)?.as_ref(), path, recursive, None)
}

/// The same for a path that must be what is expected: [`Error::IsDir`], [`Error::NotDir`].
pub fn remove_expected(
    ws: &Workspace,
    branch: &str,
    path: &[u8],
    recursive: bool,
    expect: Expect,
) -> Result<()> {
    remove_path_in(ws.branch(branch)?.as_ref(), path, recursive, Some(expect))
}

/// Makes a symbolic link in the live tree.
pub fn make_link(
    ws: &Workspace,
    branch: &str,
    who: &Caller,
    path: &[u8],
    target: &[u8],
) -> Result<()> {
    make_link_in(ws.branch(branch)?.as_ref(), who, path, target)
}

/// Changes the permission bits of what a path of the live tree leads to.
pub fn set_perm(ws: &Workspace, branch: &str, who: &Caller, path: &[u8], perm: u32) -> Result<()> {
    set_perm_in(ws.branch(branch)?.as_ref(), who, path, perm)
}

/// Gives a file of the live tree another length.
pub fn set_size(ws: &Workspace, branch: &str, who: &Caller, path: &[u8], size: u64) -> Result<()> {
    set_size_in(ws.branch(branch)?.as_ref(), who, path, size)
}

/// Gives what has a path of the live tree another one.
pub fn rename_path(ws: &Workspace, branch: &str, from: &[u8], to: &[u8]) -> Result<()> {
    rename_path_in(ws.branch(branch)?.as_ref(), from, to)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn path_ends_with_its_last_name() {
        let parts = |path: &'static str| {
            let text = |b| std::str::from_utf8(b).unwrap();
            split(path.as_bytes()).map(|(dir, name)| (text(dir), text(name)))
        };
        assert_eq!(parts("a"), Some(("", "a")));
        assert_eq!(parts("a/b/c"), Some(("a/b", "c")));
        assert_eq!(parts("/a//b//"), Some(("/a/", "b")));
        assert_eq!((parts(""), parts("//")), (None, None));
    }
}
