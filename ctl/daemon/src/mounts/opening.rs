//! Opening workspaces. They are opened with their policy in force, or not at all.

use super::Mounts;
use crate::policies::Policies;
use crate::{audit, faults};
use agentvfs_client::protocol::Fault;
use agentvfs_client::record::Record;
use engine::{CloseMode, Workspace, verbs};
use std::sync::Arc;

impl Mounts {
    /// The policies in force.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Opens a workspace that is to be mounted.
    fn open_judged(&self, name: &str) -> Result<Arc<Workspace>, Fault> {
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

    /// Opens a workspace that is to run as `record` says.
    pub(super) fn open_told(
        &self,
        name: &str,
        record: &Record,
        goes_on: bool,
    ) -> Result<(Arc<Workspace>, Option<audit::Begun>), Fault> {
        let workspace = self.open_judged(name)?;
        let audit = self.make_ready(&workspace, record, goes_on);
        Ok((workspace, audit))
    }

    /// What an open workspace needs before requests reach it; `goes_on` where a daemon ended without stopping it.
    pub(super) fn make_ready(
        &self,
        workspace: &Workspace,
        record: &Record,
        goes_on: bool,
    ) -> Option<audit::Begun> {
        self.show_views(workspace);
        self.callers.take_up(workspace);
        Mounts::begin_audit(workspace, record, goes_on)
    }

    /// Has `.agentvfs/view` lead each process to the branch that its cgroup is registered for.
    fn show_views(&self, workspace: &Workspace) {
        let (sessions, name) = (self.sessions.clone(), workspace.name().to_owned());
        let branches = verbs::list_branches(workspace);
        sessions.settle(&name, |branch| branches.iter().any(|b| b.name == branch));
        workspace.set_seen_by(Box::new(move |pid, exists| {
            sessions.seen(&name, pid, exists)
        }));
    }
}
