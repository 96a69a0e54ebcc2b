//! Workspaces are opened with their policy in force, or not at all.

use super::Mounts;
use crate::faults;
use crate::policies::Policies;
use agentvfs_client::protocol::Fault;
use engine::{CloseMode, Workspace};
use std::sync::Arc;

impl Mounts {
    /// The policies in force.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Opens a workspace that is to be mounted.
    pub(super) fn open_judged(&self, name: &str) -> Result<Arc<Workspace>, Fault> {
        let opened = self.engine.open_workspace(name);
        let workspace = opened.map_err(|e| faults::of_engine(&e, name))?;
        self.judged(workspace)
    }

    /// The same for one that was opened just now; it is closed where its policy cannot be read.
    pub(super) fn judged(&self, workspace: Arc<Workspace>) -> Result<Arc<Workspace>, Fault> {
        let Err(fault) = self.policies.take_up(&self.engine, &workspace) else {
            return Ok(workspace);
        };
        let name = workspace.name().to_owned();
        drop(workspace);
        if let Err(fault) = self.close_engine(&name, CloseMode::NoCheckpoint, &|_, _| {}) {
            tracing::error!(workspace = name, "cannot close it again: {}", fault.message);
        }
        Err(fault)
    }
}
