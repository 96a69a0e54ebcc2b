//! Copying a file of the live tree: the copy shares what is stored of it.

use super::write::{self, Made};
use super::{announce, names};
use crate::branch::Branch;
use crate::error::{Error, Result};
use crate::ops;
use crate::types::{Caller, Kind, Nid, Wait};
use crate::workspace::Workspace;

/// Copies a file; gives its length. What has the other path gets the content, unless it must not exist; a new
/// file gets the permission bits, too. While it runs others may see a part, as of cp(1).
pub fn copy_file(
    ws: &Workspace,
    branch: &str,
    who: &Caller,
    (from, to): (&[u8], &[u8]),
    overwrite: bool,
) -> Result<u64> {
    let branch = ws.branch(branch)?;
    branch.cache().flush_dirty();
    let mut made = Vec::new();
    let copied = copy_noting(&branch, who, (from, to), overwrite, &mut made);
    names::show_made(&branch, &made);
    copied
}

fn copy_noting(
    branch: &Branch,
    who: &Caller,
    (from, to): (&[u8], &[u8]),
    overwrite: bool,
    made: &mut Vec<Made>,
) -> Result<u64> {
    let source = file_at(branch, from)?;
    let (target, is_new) = match file_at(branch, to) {
        Err(Error::NotFound) => {
            let perm = u32::from(ops::attr::getattr(branch, source)?.perm) & 0o777;
            (
                write::make_file(branch, who, (to, perm), false, made)?,
                true,
            )
        }
        Ok(_) if !overwrite => return Err(Error::Exists),
        Ok(target) if target == source => return Err(Error::Invalid),
        found => (found?, false),
    };
    let copied = fill(branch, who, source, target);
    if is_new {
        // Making it counted a lookup, which nobody but this thread knows of.
        ops::names::forget(branch, target, 1);
    }
    let size = copied?;
    if !is_new {
        announce::announce_changed(branch, target);
    }
    Ok(size)
}

/// Gives a file the content of another one.
fn fill(branch: &Branch, who: &Caller, source: Nid, target: Nid) -> Result<u64> {
    write::doubts_size(branch, target);
    let (from, to) = ((source, 0), (target, 0));
    let size = ops::data::copy_range(branch, from, to, u64::MAX, Wait::Allowed)?;
    // What the file had behind that goes, and set-id bits with it.
    write::resize(branch, who, target, size)?;
    Ok(size)
}

fn file_at(branch: &Branch, path: &[u8]) -> Result<Nid> {
    match write::look(branch, path)? {
        (nid, Kind::File) => Ok(nid),
        (_, Kind::Dir) => Err(Error::IsDir),
        _ => Err(Error::Invalid),
    }
}
