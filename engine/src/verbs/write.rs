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
    if doubts_size(branch, nid) {
        branch.cache().inval_inode(branch.node(nid));
        branch.refresh_sizes(&[nid]);
        branch.mend();
    }
    if w.last {
        announce::announce_changed(branch, nid);
        branch.sync()?;
    }
    Ok(size)
}

/// Notes that a file's size changes behind the kernel's back; false where it does not know the file.
fn doubts_size(branch: &Branch, nid: Nid) -> bool {
    let lookups = &mut branch.lock().lookups;
    lookups.doubt_size(nid);
    lookups.is_doubted(nid)
}

fn write_part(branch: &Branch, who: &Caller, nid: Nid, w: &WriteFile) -> Result<u64> {
    let flags = WriteFlags {
        kill_suidgid: who.uid != 0,
        ..WriteFlags::default()
    };
    let size = ops::attr::getattr(branch, nid)?.size;
    let offset = w.offset.unwrap_or(size);
    let end = offset.checked_add(w.data.len() as u64);
    let end = end.filter(|e| *e <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::FileTooLarge)?;
    ops::data::write(branch, nid, offset, &w.data, flags, Wait::Allowed)?;
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

/// The file of that path; made where it is missing.
fn open_file(branch: &Branch, who: &Caller, w: &WriteFile, made: &mut Vec<Made>) -> Result<Nid> {
    match look(branch, &w.path) {
        Err(Error::NotFound) => {}
        Ok((nid, Kind::File)) => return Ok(nid),
        Ok((_, Kind::Dir)) => return Err(Error::IsDir),
        Ok(_) => return Err(Error::Invalid),
        Err(e) => return Err(e),
    }
    let (dir, name) = match w.path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&w.path[..at], &w.path[at + 1..]),
        None => (&b""[..], &w.path[..]),
    };
    let parent = open_dir(branch, who, dir, w.parents, made)?;
    let attr = ops::names::mknod(
        branch,
        who,
        parent,
        name,
        mode::REG | w.perm,
        0,
        Wait::Allowed,
    )?;
    made.push(Made {
        parent,
        name: name.to_vec(),
        kind: Kind::File,
    });
    // That counted a lookup, which nobody but this thread knows of.
    let nid = attr.node.nid();
    ops::names::forget(branch, nid, 1);
    Ok(nid)
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
