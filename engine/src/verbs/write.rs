//! Writing a file of the live tree from outside the mount, and having the mount show it.

use super::state_reader::find;
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::limits::FILE_BYTES_MAX;
use crate::ops;
use crate::types::{Caller, Kind, Nid, SetAttr, Wait, WriteFlags, mode};
use crate::verbs::announce;
use crate::verbs::names;
use crate::workspace::Workspace;

/// A part of a file to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteFile {
    /// The file; it is made where it does not exist.
    pub path: Vec<u8>,
    /// Where the data goes; `None`: at the end.
    pub offset: Option<u64>,
    /// The data.
    pub data: Vec<u8>,
    /// The file ends with the data, and is on stable storage when this is answered.
    pub last: bool,
    /// Do not wait for stable storage: it is there with whatever is brought there next.
    pub unsynced: bool,
    /// Permission bits of a file that is made.
    pub perm: u32,
    /// Make missing directories.
    pub parents: bool,
}

/// A name that came into being, of which the kernel must forget that it did not exist.
pub(super) struct Made {
    pub parent: Nid,
    pub name: Vec<u8>,
    pub kind: Kind,
}

/// Writes a part of a file; gives the length of the file afterwards.
pub(crate) fn write_file_in(branch: &Branch, who: &Caller, w: &WriteFile) -> Result<u64> {
    branch.cache().flush_dirty();
    let mut made = Vec::new();
    let written = open_file(branch, who, w, &mut made).and_then(|nid| {
        // Before: an append that is under way must not go over what is written here.
        doubts_size(branch, nid);
        let size = write_part(branch, who, nid, w)?;
        Ok((nid, size))
    });
    names::show_made(branch, &made);
    let (nid, size) = written?;
    show_size(branch, nid);
    if w.last {
        announce::announce_changed(branch, nid);
        if !w.unsynced {
            branch.sync()?;
        }
    }
    Ok(size)
}

/// Has the mount show a file that was written behind the kernel's back.
pub(super) fn show_size(branch: &Branch, nid: Nid) {
    let is_doubted = doubts_size(branch, nid);
    if is_doubted || branch.lock().lookups.may_know(nid) {
        branch.cache().inval_inode(branch.node(nid));
    }
    if is_doubted {
        branch.refresh_sizes(&[nid]);
        branch.mend();
    }
}

/// Gives a file another length, and has the mount show it.
pub(super) fn resize(branch: &Branch, who: &Caller, nid: Nid, size: u64) -> Result<()> {
    doubts_size(branch, nid);
    let set = SetAttr {
        size: Some(size),
        kill_suidgid: who.uid != 0,
        ..SetAttr::default()
    };
    ops::attr::setattr(branch, who, nid, &set, Wait::Allowed)?;
    show_size(branch, nid);
    Ok(())
}

/// Notes that a file's size changes behind the kernel's back; false where it does not know the file.
pub(super) fn doubts_size(branch: &Branch, nid: Nid) -> bool {
    let lookups = &mut branch.lock().lookups;
    lookups.doubt_size(nid);
    lookups.is_doubted(nid)
}

fn write_part(branch: &Branch, who: &Caller, nid: Nid, w: &WriteFile) -> Result<u64> {
    let end = write_at(branch, who, nid, w.offset, &w.data)?;
    if w.last && w.offset.is_some() {
        let set = SetAttr {
            size: Some(end),
            kill_suidgid: who.uid != 0,
            ..SetAttr::default()
        };
        ops::attr::setattr(branch, who, nid, &set, Wait::Allowed)?;
    }
    Ok(ops::attr::getattr(branch, nid)?.size)
}

/// Writes at an offset, or at the end; gives where the data ends.
pub(super) fn write_at(
    branch: &Branch,
    who: &Caller,
    nid: Nid,
    offset: Option<u64>,
    data: &[u8],
) -> Result<u64> {
    let flags = WriteFlags {
        kill_suidgid: who.uid != 0,
        ..WriteFlags::default()
    };
    let Some(offset) = offset else {
        return ops::data::append(branch, nid, data, flags, Wait::Allowed);
    };
    let end = offset.checked_add(data.len() as u64);
    let end = end.filter(|e| *e <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::FileTooLarge)?;
    ops::data::write(branch, nid, offset, data, flags, Wait::Allowed)?;
    Ok(end)
}

/// The file of that path; made where it is missing.
fn open_file(branch: &Branch, who: &Caller, w: &WriteFile, made: &mut Vec<Made>) -> Result<Nid> {
    match look(branch, &w.path) {
        Err(Error::NotFound) => {}
        Ok((nid, Kind::File)) => return Ok(nid),
        Ok((_, Kind::Dir)) => return Err(Error::IsDir),
        Ok(_) => return Err(Error::Invalid),
        Err(e) => return Err(e),
    }
    let nid = make_file(branch, who, (&w.path, w.perm), w.parents, made)?;
    // That counted a lookup, which nobody but this thread knows of.
    ops::names::forget(branch, nid, 1);
    Ok(nid)
}

/// Makes a file; it counts a lookup, which is the caller's to give back.
pub(super) fn make_file(
    branch: &Branch,
    who: &Caller,
    (path, perm): (&[u8], u32),
    parents: bool,
    made: &mut Vec<Made>,
) -> Result<Nid> {
    let (dir, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    let parent = open_dir(branch, who, dir, parents, made)?;
    let mode = mode::REG | perm;
    let attr = ops::names::mknod(branch, who, parent, name, mode, 0, Wait::Allowed)?;
    made.push(Made {
        parent,
        name: name.to_vec(),
        kind: Kind::File,
    });
    Ok(attr.node.nid())
}

/// The directory of that path; with `make` it is made where it is missing.
pub(super) fn open_dir(
    branch: &Branch,
    who: &Caller,
    path: &[u8],
    make: bool,
    made: &mut Vec<Made>,
) -> Result<Nid> {
    let mut walked: Vec<u8> = Vec::new();
    let mut dir = Nid::ROOT;
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        if !walked.is_empty() {
            walked.push(b'/');
        }
        walked.extend_from_slice(name);
        dir = match look(branch, &walked) {
            Ok((nid, Kind::Dir)) => nid,
            Ok(_) => return Err(Error::NotDir),
            Err(Error::NotFound) if make => make_one_dir(branch, who, dir, name, made)?,
            Err(e) => return Err(e),
        };
    }
    Ok(dir)
}

/// Makes a directory in a directory.
pub(super) fn make_one_dir(
    branch: &Branch,
    who: &Caller,
    parent: Nid,
    name: &[u8],
    made: &mut Vec<Made>,
) -> Result<Nid> {
    let attr = ops::names::mkdir(branch, who, parent, name, 0o777 & !who.umask, Wait::Allowed)?;
    made.push(Made {
        parent,
        name: name.to_vec(),
        kind: Kind::Dir,
    });
    ops::names::forget(branch, attr.node.nid(), 1);
    Ok(attr.node.nid())
}

/// What a path of the live tree leads to, links followed.
pub(super) fn look(branch: &Branch, path: &[u8]) -> Result<(Nid, Kind)> {
    branch.request(Wait::Allowed, |inner| {
        let nid = find(&inner.live, path, true)?;
        Ok((nid, inner.live.inode(nid)?.kind()))
    })
}

/// Writes a part of a file of the live tree; gives the file's length afterwards.
pub fn write_file(ws: &Workspace, branch: &str, who: &Caller, part: &WriteFile) -> Result<u64> {
    write_file_in(ws.branch(branch)?.as_ref(), who, part)
}
