//! Workspaces whose mounts outlived the daemon before.
//!
//! Invariant: until requests are answered again, nothing here touches a path that may lead into a mount: the one who
//! would have to answer is this process.

use super::running::Running;
use super::{Mounts, Slot};
use crate::keeping::Held;
use agentvfs_client::keeper::KeptMount;
use engine::descent::seen;
use engine::{CloseMode, Process, Workspace};
use fuse_front::wire::Layout;
use fuse_front::{Agreed, Kept, Mounted};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a successor must know of a mount beside the record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Note {
    /// Major and minor number of its device.
    dev: (u32, u32),
    /// Number of the connection.
    connection: u64,
    long_setxattr: bool,
    /// The kernel checks permissions.
    permissions: bool,
    /// Id of the daemon that served it.
    process: u32,
    /// When that was started, in clock ticks since the machine was; 0 in notes of older daemons.
    #[serde(default)]
    started: u64,
}

impl Note {
    /// The daemon that served the mount, if it is still there.
    fn before(&self) -> Option<Process> {
        let is_it = |process: &Process| [0, process.started].contains(&self.started);
        let found = seen(self.process).map(|seen| seen.process);
        found.filter(is_it)
    }
}

/// Why a mount cannot be gone on with.
type Why = String;

impl Mounts {
    /// Goes on with the mounts that the keeper held. One with which that fails ends; the next command that needs it
    /// mounts it again.
    pub fn resume(&self, kept: Vec<KeptMount>) {
        for mount in kept {
            let name = mount.workspace.clone();
            match self.resume_one(mount) {
                Ok(()) => tracing::info!(workspace = name, "serving the mount again"),
                Err(why) => {
                    tracing::error!(workspace = name, "the mount is lost: {why}");
                    self.keeping.release(&name);
                }
            }
        }
    }

    fn resume_one(&self, mount: KeptMount) -> Result<(), Why> {
        let slot = self.slot(&mount.workspace);
        let _lifecycle = slot.lifecycle.lock();
        self.resume_in(&slot, mount)
    }

    /// Goes on with a mount whose requests are refused, because daemons ended again and again. Where that fails it ends,
    /// and the workspace is as stale as without a keeper. The lifecycle lock must be held.
    pub(super) fn take_refused(&self, name: &str, slot: &Slot) {
        let Some(mount) = self.keeping.take(name) else {
            return;
        };
        match self.resume_in(slot, mount) {
            Ok(()) => tracing::info!(workspace = name, "serving the mount that was refused"),
            Err(why) => {
                tracing::error!(workspace = name, "the mount is lost: {why}");
                self.keeping.let_go(name);
            }
        }
    }

    fn resume_in(&self, slot: &Slot, mount: KeptMount) -> Result<(), Why> {
        let name = mount.workspace;
        let note: Note = serde_json::from_str(&mount.note).map_err(|e| e.to_string())?;
        let mut descriptors = mount.descriptors.into_iter();
        let device = descriptors.next().ok_or("its device is missing")?;
        let record = self.records.running(&name).ok_or("it has no record")?;
        let opened = self
            .engine
            .open_kept(&name, note.connection, descriptors.next());
        let workspace = opened.map_err(|e| e.to_string())?;
        let workspace = self.judged(workspace).map_err(|fault| fault.message)?;
        let audit = self.make_ready(&workspace, &record, true);
        let layout = Layout {
            long_setxattr: note.long_setxattr,
        };
        let kept = Kept {
            device,
            dev: note.dev,
            agreed: Agreed {
                number: note.connection,
                layout,
            },
            process: note.before(),
            was_refused: mount.was_refused,
        };
        let gate = self.gate.clone();
        let woken = move || gate.wake();
        let resumed = Running::resume(workspace, &record, note.permissions, kept, woken);
        let mut running = resumed.map_err(|e| {
            if let Err(fault) = self.close_engine(&name, CloseMode::NoCheckpoint, &|_, _| {}) {
                tracing::error!(workspace = name, "cannot close it again: {}", fault.message);
            }
            e.to_string()
        })?;
        running.held = self.hold(
            &running.workspace,
            running.mounted.as_ref(),
            note.permissions,
        );
        self.begin_telling(&mut running, audit);
        *slot.running.lock() = Some(running);
        Ok(())
    }

    /// Has the keeper hold a mount, if it can be kept.
    pub(super) fn hold(
        &self,
        workspace: &Arc<Workspace>,
        mounted: Option<&Mounted>,
        permissions: bool,
    ) -> Option<Held> {
        let kept = mounted?.kept()?;
        let note = Note {
            dev: kept.dev,
            connection: kept.agreed.number,
            long_setxattr: kept.agreed.layout.long_setxattr,
            permissions,
            process: kept.process?.pid,
            started: kept.process?.started,
        };
        let text = serde_json::to_string(&note).ok()?;
        let base = workspace.base_directory();
        let descriptors = std::iter::once(kept.device).chain(base).collect();
        let place = mounted?.mountpoint();
        Some(
            self.keeping
                .hold(workspace.name(), place, text, descriptors),
        )
    }
}
