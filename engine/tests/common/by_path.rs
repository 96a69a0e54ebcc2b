//! Requests by path, for tests that say what they do rather than draw it.

use super::world::World;
use engine::verbs;
use engine::{
    Caller, CheckpointRequest, CommitId, GcRequest, MAIN, MergeReport, MergeRequest, NodeId,
    Result, SetAttr, Target, Wait, Workspace, WriteFlags, mode,
};
use std::time::Duration;

const W: Wait = Wait::Allowed;

/// Root of a branch, as the mount finds it.
pub fn root(w: &Workspace, branch: &str) -> NodeId {
    match branch {
        MAIN => NodeId::ROOT,
        _ => below(w, NodeId::ROOT, &format!(".agentvfs/branches/{branch}")).unwrap(),
    }
}

fn below(w: &Workspace, from: NodeId, path: &str) -> Result<NodeId> {
    let mut at = from;
    for part in path.split('/').filter(|p| !p.is_empty()) {
        at = w.lookup(at, part.as_bytes(), W)?.node;
    }
    Ok(at)
}

/// The inode at a path of a branch.
pub fn find(w: &Workspace, branch: &str, path: &str) -> Result<NodeId> {
    below(w, root(w, branch), path)
}

fn parent<'p>(w: &Workspace, branch: &str, path: &'p str) -> (NodeId, &'p [u8]) {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    (find(w, branch, dir).unwrap(), name.as_bytes())
}

/// Makes a directory.
pub fn mkdir(w: &Workspace, branch: &str, path: &str) -> NodeId {
    let (dir, name) = parent(w, branch, path);
    let made = w.mkdir(&Caller::default(), dir, name, 0o755, W);
    made.unwrap().node
}

/// Makes a file or replaces what is in it.
pub fn write(w: &Workspace, branch: &str, path: &str, data: &[u8]) -> NodeId {
    let who = Caller::default();
    let (dir, name) = parent(w, branch, path);
    let node = match w.lookup(dir, name, W) {
        Ok(a) => a.node,
        Err(_) => {
            let made = w.mknod(&who, dir, name, mode::REG | 0o644, 0, W);
            made.unwrap().node
        }
    };
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    w.setattr(&who, node, &empty, W).unwrap();
    w.write(node, 0, data, WriteFlags::default(), W).unwrap();
    node
}

/// All of a file.
pub fn read(w: &Workspace, branch: &str, path: &str) -> Result<Vec<u8>> {
    w.read(find(w, branch, path)?, 0, 64 << 20, W)
}

/// As [`read`], as text.
pub fn text(w: &Workspace, branch: &str, path: &str) -> String {
    String::from_utf8_lossy(&read(w, branch, path).unwrap()).into_owned()
}

/// Makes a checkpoint and waits for its commit.
pub fn checkpoint(w: &Workspace, branch: &str, label: &str) -> CommitId {
    let req = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..Default::default()
    };
    let done = verbs::checkpoint(w, branch, req, &|_, _| ()).unwrap();
    done.commit.unwrap()
}

/// Merges, conflicts with markers.
pub fn merge(w: &Workspace, from: &str, into: &str) -> MergeReport {
    let req = MergeRequest {
        from: from.into(),
        into: into.into(),
        keep_conflicts: true,
        ..MergeRequest::default()
    };
    verbs::merge_branch(w, &req, &|_, _| ()).unwrap()
}

/// The state that a label names.
pub fn at(label: &str) -> Target {
    Target::Ref(label.into())
}

/// Collects all that can be, in every pack.
pub fn gc(world: &World) {
    let req = GcRequest {
        grace: Some(Duration::ZERO),
        dead_percent: Some(0),
        dry_run: false,
    };
    world.engine.gc(req, &|_, _| ()).unwrap();
}
