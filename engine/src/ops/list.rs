//! Directory listings.

use super::dir_in;
use crate::branch::Branch;
use crate::error::Result;
use crate::types::{DirEntry, Kind, Nid, Wait};

/// Positions before the entries: 1 after `.`, 2 after `..`; an entry's is its hash + this.
const FIRST: u64 = 3;

/// Lists a directory from `cookie` on; `plus` gives attributes and counts lookups.
pub(crate) fn readdir(
    branch: &Branch,
    nid: Nid,
    cookie: u64,
    plus: bool,
    wait: Wait,
    emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
) -> Result<()> {
    branch.look(wait, |inner| {
        let dir = dir_in(inner, nid)?;
        let inode = inner.live.inode(nid)?;
        let up = if nid == Nid::ROOT { nid } else { inode.parent };
        for (at, name, node) in [(0, &b"."[..], nid), (1, &b".."[..], up)] {
            let ino = inner.live.get(node).map_or(1, |i| i.shown_ino(branch.slot));
            let entry = DirEntry {
                name,
                cookie: at + 1,
                node: branch.node(node),
                ino,
                kind: Kind::Dir,
                attr: None,
            };
            if cookie <= at && !emit(&entry) {
                return Ok(());
            }
        }
        let mut handed = Vec::new();
        dir.map.scan(cookie.saturating_sub(FIRST - 1), &mut |e| {
            let Some(child) = inner.live.get(e.entry.nid) else {
                return true;
            };
            let entry = DirEntry {
                name: e.name,
                cookie: e.hash + FIRST,
                node: branch.node(e.entry.nid),
                ino: child.shown_ino(branch.slot),
                kind: e.entry.kind,
                attr: plus.then(|| inner.attr(child, branch.slot, e.entry.nid)),
            };
            let taken = emit(&entry);
            if taken && plus {
                handed.push(e.entry.nid);
            }
            taken
        });
        handed.into_iter().for_each(|n| inner.lookups.add(n));
        Ok(())
    })
}
