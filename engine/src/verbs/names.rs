//! Making, removing and moving names of the live tree by path, and having the mount show it.
//!
//! Each step is the same mutation as a request of the kernel would be: validated, journaled, applied.
//! Paths count from the root; symbolic links on the way are followed as long as they stay in the
//! workspace, the last name never is. Invariant: when one of these has answered, also with an error, no
//! lookup or listing through the mount shows what was there before.

use super::view::known_dir;
use super::write::Made;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::types::{By, Caller, Happened, Kind, Nid, RenameFlags, Wait};
use crate::workspace::Workspace;

/// Names of a directory that are taken in hand at once while it is emptied.
const BATCH: usize = 256;

/// A directory and a name in it.
type Place = (Nid, Vec<u8>);

impl Branch {
    /// Makes a directory; with `parents` also those above it, and one that exists is no error.
    pub fn make_dir(&self, who: &Caller, path: &[u8], parents: bool) -> Result<()> {
        let mut made = Vec::new();
        let done = self.make_dir_noting(who, path, parents, &mut made);
        self.show_made(&made);
        done
    }

    fn make_dir_noting(
        &self,
        who: &Caller,
        path: &[u8],
        parents: bool,
        made: &mut Vec<Made>,
    ) -> Result<()> {
        if parents {
            return self.open_dir(who, path, true, made).map(|_| ());
        }
        let (dir, name) = split(path).ok_or(Error::Exists)?;
        let parent = self.open_dir(who, dir, false, made)?;
        self.make_one_dir(who, parent, name, made).map(|_| ())
    }

    /// Removes what has that path; a directory with entries only if `recursive`.
    pub fn remove_path(&self, path: &[u8], recursive: bool) -> Result<()> {
        let (parent, name) = self.place(path)?;
        let (nid, kind) = self.entry(parent, &name)?;
        if kind == Kind::Dir && recursive {
            self.empty(nid)?;
        }
        self.remove_one(&(parent, name.clone()), nid, kind)?;
        self.announce_names(&[(parent, name, Happened::Removed(kind))]);
        Ok(())
    }

    /// Moves a name as rename(2) does: what has the new one is replaced, a directory only if empty.
    pub fn rename_path(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let (moved, kind) = self.entry(from.0, &from.1)?;
        let replaced = self.entry(to.0, &to.1).ok();
        let flags = RenameFlags::default();
        self.rename(
            (from.0, &from.1),
            (to.0, &to.1),
            flags,
            By::Daemon,
            Wait::Allowed,
        )?;
        self.hide(&from);
        self.hide(&to);
        self.refresh(moved);
        if let Some((nid, _)) = replaced {
            self.refresh(nid);
        }
        let gone = (from.0, from.1, Happened::Removed(kind));
        self.announce_names(&[gone, (to.0, to.1, Happened::Made(kind))]);
        Ok(())
    }

    /// The directory that a path lies in, and its last name. The root has none.
    fn place(&self, path: &[u8]) -> Result<Place> {
        let (dir, name) = split(path).ok_or(Error::NotPermitted)?;
        match self.look(dir)? {
            (nid, Kind::Dir) => Ok((nid, name.to_vec())),
            _ => Err(Error::NotDir),
        }
    }

    /// What a name stands for, a symbolic link for itself.
    fn entry(&self, dir: Nid, name: &[u8]) -> Result<(Nid, Kind)> {
        self.request(Wait::Allowed, |inner| {
            let entry = known_dir(&inner.live, dir)?.map.get(name);
            entry.map(|e| (e.nid, e.kind)).ok_or(Error::NotFound)
        })
    }

    /// Removes everything in a directory, deepest first.
    fn empty(&self, top: Nid) -> Result<()> {
        let mut open: Vec<(Place, Nid)> = Vec::new();
        loop {
            let dir = open.last().map_or(top, |(_, nid)| *nid);
            let entries = self.some_entries(dir)?;
            if entries.is_empty() {
                let Some((place, nid)) = open.pop() else {
                    return Ok(());
                };
                self.remove_one(&place, nid, Kind::Dir)?;
            }
            for (name, nid, kind) in entries {
                let place = (dir, name);
                match self.remove_one(&place, nid, kind) {
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

    fn some_entries(&self, dir: Nid) -> Result<Vec<(Vec<u8>, Nid, Kind)>> {
        self.request(Wait::Allowed, |inner| {
            let mut some = Vec::new();
            known_dir(&inner.live, dir)?.map.scan(0, &mut |e| {
                some.push((e.name.to_vec(), e.entry.nid, e.entry.kind));
                some.len() < BATCH
            });
            Ok(some)
        })
    }

    fn remove_one(&self, place: &Place, nid: Nid, kind: Kind) -> Result<()> {
        match kind {
            Kind::Dir => self.rmdir(place.0, &place.1, By::Daemon, Wait::Allowed)?,
            _ => self.unlink(place.0, &place.1, Wait::Allowed)?,
        }
        self.hide(place);
        self.refresh(nid);
        Ok(())
    }

    /// Has the kernel ask again for a name and for the listing that it stood in.
    fn hide(&self, (dir, name): &Place) {
        if *dir == Nid::ROOT || self.lock().lookups.get(*dir) > 0 {
            self.cache().inval_entry(self.node(*dir), name);
            self.cache().inval_inode(self.node(*dir));
        }
    }

    /// Has the kernel ask again for an inode's attributes.
    fn refresh(&self, nid: Nid) {
        if self.lock().lookups.get(nid) > 0 {
            self.cache().inval_inode(self.node(nid));
        }
    }

    /// Has the mount show names that came into being, and tells watchers.
    pub(super) fn show_made(&self, made: &[Made]) {
        for m in made {
            self.hide(&(m.parent, m.name.clone()));
        }
        let told = made
            .iter()
            .map(|m| (m.parent, m.name.clone(), Happened::Made(m.kind)));
        self.announce_names(&told.collect::<Vec<_>>());
    }
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

impl Workspace {
    /// Makes a directory of the live tree; with `parents` also those above it.
    pub fn make_dir(&self, branch: &str, who: &Caller, path: &[u8], parents: bool) -> Result<()> {
        self.branch(branch)?.make_dir(who, path, parents)
    }

    /// Removes a path of the live tree; a directory with entries only if `recursive`.
    pub fn remove_path(&self, branch: &str, path: &[u8], recursive: bool) -> Result<()> {
        self.branch(branch)?.remove_path(path, recursive)
    }

    /// Gives what has a path of the live tree another one.
    pub fn rename_path(&self, branch: &str, from: &[u8], to: &[u8]) -> Result<()> {
        self.branch(branch)?.rename_path(from, to)
    }
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
