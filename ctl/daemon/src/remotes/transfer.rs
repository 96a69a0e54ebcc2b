//! What pushes, fetches, clones and gc of remotes share.

use super::super::faults;
use super::faults::no_remote;
use super::open::{self, At};
use agentvfs_client::protocol::{Access, Fault};
use engine::verbs::remotes::{self, RemoteConfig};
use engine::{Cancel, Engine, Workspace};
use remote::{Error, Remote};

/// The remote that is meant where none is named, if it exists.
pub const ORIGIN: &str = "origin";

/// The remote that is meant: the one of this name, else `origin`, else the only one.
pub fn chosen(workspace: &Workspace, name: Option<&str>) -> Result<RemoteConfig, Fault> {
    let of_engine = |e: engine::Error| faults::of_engine(&e, workspace.name());
    if let Some(name) = name {
        return remotes::remote(workspace, name).map_err(of_engine);
    }
    let mut all = remotes::remotes(workspace).map_err(of_engine)?;
    let origin = all.iter().position(|remote| remote.name == ORIGIN);
    match (origin, all.len()) {
        (Some(at), _) => Ok(all.swap_remove(at)),
        (None, 1) => Ok(all.swap_remove(0)),
        (None, count) => Err(no_remote(workspace.name(), count)),
    }
}

/// Ends the work once it is cancelled.
pub fn check(cancel: &Cancel) -> remote::Result<()> {
    cancel.check().map_err(|_| Error::Stopped)
}

/// Passes the point of no return, unless it is cancelled.
pub fn decide(cancel: &Cancel) -> remote::Result<()> {
    cancel.decide().map_err(|_| Error::Stopped)
}

/// The remote, open.
pub fn opened(
    mounts: &super::super::mounts::Mounts,
    config: &RemoteConfig,
    access: &Access,
) -> Result<Remote, Fault> {
    open::open_at(mounts, At::of(config, access))
}

/// Whether what comes from a remote has room on the disk.
pub fn check_room(engine: &Engine, bytes: u64) -> remote::Result<()> {
    let room = engine.check_room(bytes);
    room.map_err(|e| Error::NoRoom {
        bytes,
        why: e.to_string(),
    })
}
