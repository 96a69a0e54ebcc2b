//! Lazy workspaces: of which a part is only in a remote, from where it comes when it is read.
//!
//! The ref `lazy/WORKSPACE` names the remote. As long as it is there, an object that the workspace needs and that is not in
//! the store is no damage. It is written before the workspace is made, and goes once all that the workspace needs is here,
//! or with the workspace. Who brings the objects is told to the store ([`objstore::elsewhere`]).

use super::Workspace;
use super::branch_refs::{LAZY_DIR, lazy_ref};
use super::remotes::{RemoteConfig, remotes_of};
use crate::error::{Error, Result};
use crate::record::{decode, encode};
use objstore::refs::RefStore;
use std::collections::HashSet;

const VERSION: u16 = 1;

#[derive(bincode::Encode, bincode::Decode)]
struct Mark {
    version: u16,
    remote: String,
}

/// From now on what a workspace lacks is in this remote. Durable after `Ok`.
pub(crate) fn mark(refs: &RefStore, workspace: &str, remote: &str) -> Result<()> {
    let mark = Mark {
        version: VERSION,
        remote: remote.to_owned(),
    };
    Ok(refs.set(&lazy_ref(workspace), &encode(&mark))?)
}

fn read(bytes: &[u8]) -> std::result::Result<Mark, String> {
    let mark: Mark = decode(bytes)?;
    match mark.version {
        VERSION => Ok(mark),
        version => Err(format!("its version is {version}")),
    }
}

/// Looks whether the ref of a lazy workspace holds what it must.
pub(crate) fn check_mark(bytes: &[u8]) -> std::result::Result<(), String> {
    read(bytes).map(|_| ())
}

/// Names of all lazy workspaces.
pub(crate) fn lazy_names(refs: &RefStore) -> Result<HashSet<String>> {
    let names = refs.list(LAZY_DIR.trim_end_matches('/'))?;
    let names = names.iter().filter_map(|name| name.strip_prefix(LAZY_DIR));
    Ok(names.map(str::to_owned).collect())
}

fn remote_of(refs: &RefStore, workspace: &str) -> Result<Option<String>> {
    let name = lazy_ref(workspace);
    let Some(bytes) = refs.get(&name)? else {
        return Ok(None);
    };
    let mark = read(&bytes).map_err(|why| Error::Damaged {
        what: format!("the record {name}"),
        why,
    })?;
    Ok(Some(mark.remote))
}

/// The remotes that lazy workspaces need, with the workspaces' names.
pub(crate) fn needed_remotes(refs: &RefStore) -> Result<Vec<(String, RemoteConfig)>> {
    let mut found = Vec::new();
    for workspace in lazy_names(refs)? {
        let Some(remote) = remote_of(refs, &workspace)? else {
            continue;
        };
        let all = remotes_of(refs, &workspace)?;
        let config = all.into_iter().find(|config| config.name == remote);
        found.extend(config.map(|config| (workspace, config)));
    }
    Ok(found)
}

/// Lazy workspaces that have no remote of the name that they need, with that name: their clones were cut off.
pub(crate) fn cut_off(refs: &RefStore) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for workspace in lazy_names(refs)? {
        let all = remotes_of(refs, &workspace)?;
        let remote = remote_of(refs, &workspace)?;
        let remote = remote.filter(|name| all.iter().all(|config| config.name != *name));
        found.extend(remote.map(|remote| (workspace, remote)));
    }
    Ok(found)
}

/// The remote that a workspace needs, where it is lazy.
pub fn lazy_remote(ws: &Workspace) -> Result<Option<String>> {
    remote_of(&ws.views.shared().refs, ws.name())
}

/// All that a workspace needs is in the store now: it needs its remote no more. Durable after `Ok`; the caller has synced
/// the store.
pub fn end_lazy(ws: &Workspace) -> Result<()> {
    ws.views.shared().refs.delete(&lazy_ref(ws.name()))?;
    Ok(())
}
