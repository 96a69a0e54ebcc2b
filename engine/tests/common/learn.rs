//! Reading whole trees from the engine: what branches, snapshots and merges show, which the model takes
//! over where it cannot foresee it.

use super::by_path::root;
use super::check::list;
use super::content::{BLOCK, Content};
use super::keys::all;
use super::model::{Body, Node, ROOT, Tree, When};
use engine::verbs;
use engine::{Caller, CommitId, DiffSide, Kind, MAIN, NodeId, Wait, Workspace};
use std::collections::BTreeMap;
use std::sync::Arc;

const W: Wait = Wait::Allowed;
/// Entries of a listing that are asked for at a time.
const ROOM: usize = 50;

/// The tree below a directory; its own number is the root's, the others are the engine's.
pub fn tree(w: &Workspace, top: NodeId) -> Result<Tree, String> {
    let mut out = Tree::default();
    let mut work = vec![(ROOT, top)];
    while let Some((number, node)) = work.pop() {
        if out.nodes.contains_key(&number) {
            continue;
        }
        let at = |e: String| format!("reading inode {}: {e}", node.0);
        let (inode, children) = inode(w, node).map_err(at)?;
        work.extend(children.into_iter().map(|c| (c, NodeId(c))));
        out.nodes.insert(number, inode);
    }
    Ok(out)
}

fn inode(w: &Workspace, node: NodeId) -> Result<(Node, Vec<u64>), String> {
    let a = w.getattr(node).map_err(|e| format!("getattr: {e}"))?;
    let mut children = Vec::new();
    let body = match a.kind {
        Kind::File => Body::File(Arc::new(content(w, node, a.size)?)),
        Kind::Dir => {
            let entries = list(w, node.0, ROOM, false).map_err(|e| format!("listing: {e}"))?;
            children.extend(entries.iter().map(|e| e.node));
            Body::Dir(entries.into_iter().map(|e| (e.name, e.node)).collect())
        }
        Kind::Symlink => {
            let target = w.readlink(&Caller::default(), node);
            Body::Link(target.map_err(|e| format!("readlink: {e}"))?)
        }
        _ => Body::Special,
    };
    let inode = Node {
        kind: a.kind,
        perm: u32::from(a.perm),
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        mtime: When::At(a.mtime),
        ctime: When::At(a.ctime),
        ino: Some(a.ino),
        xattrs: xattrs(w, node)?,
        body,
    };
    Ok((inode, children))
}

/// A hole that is seen may be zeros that were written and are stored by now: after a crash they are data again, until
/// they are stored the second time.
fn content(w: &Workspace, node: NodeId, size: u64) -> Result<Content, String> {
    let bytes = w.read(node, 0, 16 << 20, W);
    let mut out = Content {
        bytes: bytes.map_err(|e| format!("read: {e}"))?,
        ..Content::default()
    };
    out.may.insert(0..size.next_multiple_of(BLOCK));
    Ok(out)
}

fn xattrs(w: &Workspace, node: NodeId) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let names = w.listxattr(node);
    let names = names.map_err(|e| format!("listxattr: {e}"))?;
    let names = names.split(|b| *b == 0).filter(|n| !n.is_empty());
    let value = |n: &[u8]| {
        let value = w.getxattr(node, n);
        Ok((n.to_vec(), value.map_err(|e| format!("getxattr: {e}"))?))
    };
    names.map(value).collect()
}

/// What a branch shows, with its keys.
pub fn branch(w: &Workspace, name: &str) -> Result<Tree, String> {
    let mut out = tree(w, root(w, name))?;
    out.kv = all(&verbs::kv(w, name).map_err(|e| format!("keys of {name}: {e}"))?);
    Ok(out)
}

/// What the snapshot of a commit shows, with its keys. Numbers are no part of it.
pub fn commit(w: &Workspace, id: &CommitId) -> Result<Tree, String> {
    let mut at = NodeId::ROOT;
    for name in [".agentvfs", "snapshots", &id.to_string()] {
        let found = w.lookup(at, name.as_bytes(), W);
        at = found.map_err(|e| format!("{name}: {e}"))?.node;
    }
    let out = tree(w, at);
    w.forget(at, 1);
    let mut out = out.map_err(|e| format!("snapshot {id}: {e}"))?;
    let side = DiffSide::Ref(id.to_string());
    out.kv = all(&verbs::kv_of(w, MAIN, &side).map_err(|e| format!("keys of {id}: {e}"))?);
    for node in out.nodes.values_mut() {
        (node.ino, node.ctime) = (None, When::Any);
    }
    Ok(out)
}
