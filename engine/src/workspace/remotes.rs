//! The remotes of a workspace, and which commits their branches had when they were fetched or pushed last.
//!
//! The ref `remotes/WORKSPACE` lists the remotes; `tracking/WORKSPACE/REMOTE/BRANCH` keeps the commit and labels of a
//! branch of a remote, which is named `REMOTE/BRANCH`. No branch and no label has a slash in its name. Moving bytes is
//! the crate `remote`'s, and what is done with them [`crate::verbs::remotes`]'s. Invariant: a tracking ref names only
//! commits that are here as a whole, with their ancestors as far as the remote had them.

use super::Workspace;
use super::branch_refs::TRACKING_DIR;
use super::branch_refs::{remotes_ref, tracking_dir};
use super::lazy::lazy_remote;
use super::views::{remote_node, remotes_node, snapshots_node};
use crate::error::{Error, Result};
use crate::limits::REMOTES_MAX;
use crate::names::{check_remote_name, check_workspace_name};
use crate::record::{decode, encode};
use crate::types::Time;
use objstore::refs::RefStore;
use objstore::{Commit, CommitId, Kind, ObjectStore};
use std::collections::{BTreeMap, HashSet};

pub(crate) const VERSION: u16 = 1;

/// A remote of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct RemoteConfig {
    /// Its name here.
    pub name: String,
    /// Where it is: `file:///DIR`. Never with a password.
    pub url: String,
    /// Name of the project in it.
    pub project: String,
    /// Further options, such as the endpoint of a service.
    pub options: BTreeMap<String, String>,
}

#[derive(bincode::Encode, bincode::Decode)]
struct Remotes {
    version: u16,
    remotes: Vec<RemoteConfig>,
}

/// A branch of a remote, as it was when it was fetched or pushed last.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Tracking {
    pub(crate) version: u16,
    /// Its commit.
    pub commit: CommitId,
    /// Its labels.
    pub labels: BTreeMap<String, CommitId>,
    /// When that was.
    pub time: Time,
}

/// The remotes of a workspace, by name.
pub fn remotes(ws: &Workspace) -> Result<Vec<RemoteConfig>> {
    remotes_of(&ws.views.shared().refs, ws.name())
}

/// The remotes of the workspace of a name.
pub(crate) fn remotes_of(refs: &RefStore, workspace: &str) -> Result<Vec<RemoteConfig>> {
    let name = remotes_ref(workspace);
    let Some(bytes) = refs.get(&name)? else {
        return Ok(Vec::new());
    };
    let damaged = |why| Error::Damaged {
        what: format!("the record {name}"),
        why,
    };
    let found: Remotes = decode(&bytes).map_err(damaged)?;
    match found.version == VERSION {
        true => Ok(found.remotes),
        false => Err(damaged(format!("version {}", found.version))),
    }
}

/// One of them.
pub fn remote(ws: &Workspace, name: &str) -> Result<RemoteConfig> {
    let found = remotes(ws)?.into_iter().find(|r| r.name == name);
    found.ok_or_else(|| Error::NoSuchRemote(name.to_owned()))
}

/// Whether a remote may be added; gives those that there are.
pub fn check_new_remote(ws: &Workspace, new: &RemoteConfig) -> Result<Vec<RemoteConfig>> {
    check_remote_name(&new.name)?;
    check_workspace_name(&new.project)?;
    let all = remotes(ws)?;
    if all.iter().any(|r| r.name == new.name) {
        return Err(Error::RemoteExists(new.name.clone()));
    }
    if all.len() >= REMOTES_MAX {
        return Err(Error::TooManyRemotes);
    }
    Ok(all)
}

/// Adds a remote. Durable after `Ok`.
pub fn add_remote(ws: &Workspace, new: RemoteConfig) -> Result<()> {
    let _one = ws.views.changing();
    let mut all = check_new_remote(ws, &new)?;
    all.push(new);
    all.sort_by(|a, b| a.name.cmp(&b.name));
    set_remotes(ws, all)
}

/// Forgets a remote and what is known of its branches; nothing of it is changed. Durable after `Ok`.
pub fn remove_remote(ws: &Workspace, name: &str) -> Result<()> {
    let _one = ws.views.changing();
    if lazy_remote(ws)?.is_some_and(|needed| needed == name) {
        return Err(Error::RemoteNeeded(name.to_owned()));
    }
    let mut all = remotes(ws)?;
    let before = all.len();
    all.retain(|r| r.name != name);
    if all.len() == before {
        return Err(Error::NoSuchRemote(name.to_owned()));
    }
    set_remotes(ws, all)?;
    let refs = &ws.views.shared().refs;
    for tracking in refs.list(&format!("{}/{name}", tracking_dir(ws.name())))? {
        refs.delete(&tracking)?;
    }
    ws.main.cache().inval_inode(remote_node(name));
    Ok(())
}

fn set_remotes(ws: &Workspace, remotes: Vec<RemoteConfig>) -> Result<()> {
    let record = Remotes {
        version: VERSION,
        remotes,
    };
    let refs = &ws.views.shared().refs;
    refs.set(&remotes_ref(ws.name()), &encode(&record))?;
    // The kernel's lists are not right any more.
    let cache = ws.main.cache();
    cache.inval_inode(remotes_node());
    cache.inval_inode(snapshots_node(ws.main.slot));
    Ok(())
}

/// What is known of a branch of a remote, named `REMOTE/BRANCH`.
pub fn tracking(ws: &Workspace, name: &str) -> Result<Option<Tracking>> {
    let shared = ws.views.shared();
    let name = format!("{}/{name}", tracking_dir(ws.name()));
    let bytes = shared.refs.get(&name)?;
    bytes.map(|bytes| read_tracking(&name, &bytes)).transpose()
}

/// Reads the ref of a branch of a remote.
pub(crate) fn read_tracking(name: &str, bytes: &[u8]) -> Result<Tracking> {
    let damaged = |why| Error::Damaged {
        what: format!("the record {name}"),
        why,
    };
    let found: Tracking = decode(bytes).map_err(damaged)?;
    match found.version == VERSION {
        true => Ok(found),
        false => Err(damaged(format!("version {}", found.version))),
    }
}

/// All branches of remotes that are known, with their names `REMOTE/BRANCH`.
pub fn all_tracking(ws: &Workspace) -> Result<Vec<(String, Tracking)>> {
    let dir = tracking_dir(ws.name());
    let mut all = Vec::new();
    for name in ws.views.shared().refs.list(&dir)? {
        let bare = name
            .strip_prefix(&dir)
            .and_then(|rest| rest.strip_prefix('/'));
        if let Some(bare) = bare
            && let Some(found) = tracking(ws, bare)?
        {
            all.push((bare.to_owned(), found));
        }
    }
    Ok(all)
}

/// Keeps what a branch of a remote has. Durable after `Ok`. The caller orders it with what removes remotes.
pub(crate) fn put_tracking(
    ws: &Workspace,
    remote: &str,
    branch: &str,
    found: &Tracking,
) -> Result<()> {
    let name = format!("{}/{remote}/{branch}", tracking_dir(ws.name()));
    ws.views.shared().refs.set(&name, &encode(found))?;
    ws.main.cache().inval_inode(remote_node(remote));
    Ok(())
}

/// Commits and labels of all branches of remotes, of one workspace or of all: roots of gc.
pub(crate) fn tracked_commits(refs: &RefStore, workspace: Option<&str>) -> Result<Vec<CommitId>> {
    let dir = workspace.map_or(TRACKING_DIR.to_owned(), tracking_dir);
    let mut found = Vec::new();
    for name in refs.list(&dir)? {
        if let Some(bytes) = refs.get(&name)? {
            let tracking = read_tracking(&name, &bytes)?;
            found.push(tracking.commit);
            found.extend(tracking.labels.into_values());
        }
    }
    Ok(found)
}

/// Branches of a remote of a workspace that are known.
pub(crate) fn tracked_branches(
    refs: &RefStore,
    workspace: &str,
    remote: &str,
) -> Result<Vec<String>> {
    let dir = format!("{}/{remote}/", tracking_dir(workspace));
    let names = refs.list(dir.trim_end_matches('/'))?;
    let bare = names.iter().filter_map(|name| name.strip_prefix(&dir));
    Ok(bare.map(str::to_owned).collect())
}

/// Commits, and all their ancestors that are here.
pub(crate) fn with_ancestors(
    store: &ObjectStore,
    mut work: Vec<CommitId>,
) -> Result<HashSet<CommitId>> {
    let mut found = HashSet::new();
    while let Some(id) = work.pop() {
        if store.contains(Kind::Commit, id.as_bytes()) && found.insert(id) {
            work.extend(store.get_object::<Commit>(&id)?.parents);
        }
    }
    Ok(found)
}
