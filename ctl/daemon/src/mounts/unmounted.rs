//! Workspaces that run without a mount: only requests of the protocol reach them. For programs that need no paths, and
//! for machines without FUSE.
//!
//! They are recorded as running, like the others: after a crash of the daemon the next request opens them again. Their
//! record names the place where a later start mounts them; nothing is made or looked for there.

use super::running::Running;
use super::{Mounts, Slot};
use crate::faults;
use agentvfs_client::protocol::{Bytes, Fault, MountChoice, Source, Start};
use agentvfs_client::record::Record;
use engine::{CloseMode, WorkspaceConfig};
use std::path::Path;

impl Mounts {
    /// Whether a workspace runs without a mount.
    pub fn is_unmounted(&self, name: &str) -> bool {
        let slot = self.slots.lock().get(name).cloned();
        slot.is_some_and(|slot| {
            slot.running
                .lock()
                .as_ref()
                .is_some_and(Running::is_unmounted)
        })
    }

    /// The record of a mount that is, or was when its daemon died.
    pub(super) fn record_of_mount(&self, name: &str) -> Option<Record> {
        let record = self.records.running(name);
        record.filter(|record| !record.options.is_unmounted())
    }

    /// Runs a workspace that does not run, without a mount. A dead mount of it is taken away.
    pub(super) fn run_unmounted(
        &self,
        config: &WorkspaceConfig,
        slot: &Slot,
        place: &Path,
        options: &MountChoice,
    ) -> Result<Vec<String>, Fault> {
        self.clear_remains(&config.name)?;
        let goes_on = self.records.running(&config.name).is_some();
        let record = Record {
            mountpoint: Bytes::from(place),
            made: Vec::new(),
            options: options.clone(),
        };
        let opened = self
            .note(config, Some(&record))
            .and_then(|()| self.open_told(&config.name, &record, goes_on));
        let (workspace, audit) = opened.inspect_err(|_| self.note_failure(config))?;
        let mut running = Running::unmounted(workspace, &record);
        self.begin_telling(&mut running, audit);
        slot.looked_at.lock().take();
        *slot.running.lock() = Some(running);
        Ok(Vec::new())
    }

    /// Mounts a workspace that runs without a mount. It is closed and opened again, without a commit. Where mounting
    /// fails, it runs as before.
    pub(super) fn mount_running(
        &self,
        ask: &Start,
        config: WorkspaceConfig,
        slot: &Slot,
    ) -> Result<Vec<String>, Fault> {
        let name = &config.name;
        let before = self.records.running(name);
        self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {})?;
        let ended = slot.running.lock().take();
        drop(ended);
        let started = self.start_stopped(ask, config.clone(), slot);
        started.inspect_err(|_| {
            let back = before
                .ok_or_else(|| faults::not_running(name))
                .and_then(|record| {
                    self.run_unmounted(&config, slot, record.place(), &record.options)
                });
            if let Err(fault) = back {
                tracing::error!(
                    workspace = name,
                    "it does not run any more: {}",
                    fault.message
                );
            }
        })
    }

    /// What a start without a mount did not do about the mount of a running workspace.
    pub(super) fn mounted_warning(&self, ask: &Start) -> Option<String> {
        let name = &ask.workspace;
        let place = self.mounted_at(name)?;
        let stays = ask.options.is_unmounted() && !self.is_unmounted(name);
        stays.then(|| {
            format!(
                "{name} is already running at {}; stop it first",
                place.display()
            )
        })
    }

    /// Refuses what needs a mount.
    pub(super) fn check_unmounted(ask: &Start) -> Result<(), Fault> {
        let options = &ask.options;
        let needs = |source| options.telemetry.needs(source);
        let hears = needs(Source::Fanotify) || needs(Source::Ebpf);
        let needs_mount = ask.mount.is_some() || options.opens || hears;
        match options.is_unmounted() && needs_mount {
            false => Ok(()),
            true => Err(Fault::failed(
                "bad-request",
                "a mount point, opens, fanotify and ebpf need a mount, which --no-mount leaves out",
            )
            .hint("leave out one of them: agentvfs start --no-mount")),
        }
    }
}
