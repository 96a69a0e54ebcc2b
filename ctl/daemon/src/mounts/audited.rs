//! Workspaces whose events are appended to a file.

use super::Mounts;
use super::running::Running;
use crate::audit;
use agentvfs_client::protocol::{Bytes, Fault, Start};
use agentvfs_client::record::Record;
use engine::Workspace;
use std::path::{Path, PathBuf};

impl Mounts {
    /// Refuses a file that cannot be appended to, and one in a mount or a project: each event that is written there would be a
    /// change, and the next event.
    pub(super) fn check_audit(&self, ask: &Start, base: &Path, place: &Path) -> Result<(), Fault> {
        let Some(path) = ask.options.audit.as_ref().map(Bytes::path) else {
            return Ok(());
        };
        self.check_outside(path)?;
        for inside in [base, place] {
            if path.starts_with(inside) {
                let why = format!(
                    "{} is in the workspace: {}",
                    path.display(),
                    inside.display()
                );
                return Err(Fault::failed("bad-target", why)
                    .hint("name a file outside of it: --audit FILE"));
            }
        }
        audit::check(path)
    }

    /// What a start of a running workspace did not do about the file of its events.
    pub(super) fn audit_warning(&self, ask: &Start) -> Option<String> {
        let asked = ask.options.audit.as_ref()?.path();
        let name = &ask.workspace;
        match self.audit(name) {
            Some((path, _)) if path == asked => None,
            Some((path, _)) => Some(format!(
                "{name} is already running and appends its events to {}",
                path.display()
            )),
            None => Some(format!(
                "{name} is already running without --audit; stop it first"
            )),
        }
    }

    /// Begins to keep the events of a workspace, where they are appended to a file; `goes_on` where a daemon that did
    /// so has ended without stopping it.
    pub(super) fn begin_audit(
        workspace: &Workspace,
        record: &Record,
        goes_on: bool,
    ) -> Option<audit::Begun> {
        let path = record.options.audit.as_ref()?.path();
        Some(audit::begin(workspace, path, goes_on))
    }

    /// The file to which the events of a running workspace are appended, and why that fails.
    pub fn audit(&self, name: &str) -> Option<(PathBuf, Option<String>)> {
        let slot = self.slots.lock().get(name).cloned()?;
        let running = slot.running.lock();
        let audit = running.as_ref()?.audit.as_ref()?;
        Some((audit.path.clone(), audit.trouble()))
    }

    /// Writes what is left of events, before this process ends without stopping the workspaces.
    pub fn end_audits(&self) {
        let slots: Vec<_> = self.slots.lock().values().cloned().collect();
        let audits = slots
            .iter()
            .filter_map(|slot| slot.running.lock().as_mut()?.audit.take());
        drop(audits.collect::<Vec<_>>());
    }
}

impl Running {
    /// Appends the workspace's events to a file from now on.
    pub(super) fn run_audit(&mut self, begun: Option<audit::Begun>) {
        let device = self.device();
        let started = begun.map(|begun| begun.run(self.workspace.name(), device));
        self.audit = started.and_then(|started| {
            started
                .inspect_err(|error| tracing::error!(%error, "events are not appended to a file"))
                .ok()
        });
    }
}
