//! What carrying out requests shares: the workspace that is meant, and values of the wire and of the engine.

use super::faults;
use super::handles::Handles;
use super::mounts::{Mounts, Progress};
use agentvfs_client::protocol::{Bytes, Changed, Fault, Side};
use engine::{Cancel, DiffSide, Error, Workspace};
use std::sync::Arc;

/// Takes a part of a long result; false where nobody reads it.
pub type Data<'a> = &'a dyn Fn(&[u8]) -> bool;

/// What goes between a request that is worked on and whoever asked.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Hears how far it is.
    pub progress: Progress<'a>,
    /// Takes what comes before the answer.
    pub data: Data<'a>,
    /// Cancels it, where it can be cancelled.
    pub cancel: &'a Cancel,
    /// Id of the process that asks, where that is known.
    pub caller: Option<u32>,
    /// It is in a sandbox.
    pub is_inside: bool,
    /// Files that the connection has open.
    pub handles: &'a Handles,
    /// How many requests it may have in flight.
    pub in_flight: u32,
}

/// Something done with a running workspace.
pub fn on<R>(
    mounts: &Mounts,
    name: &str,
    work: impl FnOnce(&Arc<Workspace>) -> Result<R, Error>,
) -> Result<R, Fault> {
    let workspace = mounts.workspace(name)?;
    work(&workspace).map_err(|e| faults::of_engine(&e, name))
}

/// Something looked up in a workspace, whether it runs or not.
pub fn looking_into<R>(
    mounts: &Mounts,
    name: &str,
    work: impl FnOnce(&Arc<Workspace>) -> Result<R, Error>,
) -> Result<R, Fault> {
    let workspace = mounts.to_read(name)?;
    work(&workspace).map_err(|e| faults::of_engine(&e, name))
}

/// Paths as the engine takes them.
pub fn bare(paths: &[Bytes]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| path.0.clone()).collect()
}

/// A change as it is told.
pub fn of_change(change: engine::Change) -> Changed {
    Changed {
        status: change.status,
        path: Bytes(change.path),
        old_path: change.old_path.map(Bytes),
        lines: None,
    }
}

/// A side of a comparison as the engine takes it.
pub fn side(side: &Side) -> DiffSide {
    match side {
        Side::Live => DiffSide::Live,
        Side::Base => DiffSide::Base,
        Side::Ref(name) => DiffSide::Ref(name.clone()),
    }
}
