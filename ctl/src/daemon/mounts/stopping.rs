//! Stopping, deleting, and what happens when a mount goes away by itself.

use super::{Mounts, Slot};
use crate::daemon::{faults, mountpoint};
use crate::protocol::{Bytes, Fault, Named, Stop, StopAnswer};
use engine::{CloseMode, Closed, WorkspaceConfig};
use fuse_front::{Holder, MountError, Mounted};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a forced stop flushes dirty pages.
const FLUSH_WAIT: Duration = Duration::from_secs(5);

/// Hears how far the work is: done, total.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

impl Mounts {
    /// Stops a workspace: unmounts it, keeps its last state, closes it.
    pub fn stop(&self, ask: &Stop, progress: Progress<'_>) -> Result<StopAnswer, Fault> {
        let name = &ask.workspace;
        let config = self.config(name)?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        let mount = self.get(name)?.mount;
        if slot.live().is_some() {
            self.unmount(name, &slot, ask.force)?;
        } else {
            self.open_stale(&config)?;
        }
        let mode = if ask.checkpoint {
            CloseMode::Checkpoint
        } else {
            CloseMode::NoCheckpoint
        };
        let commit = self.close(&config, &slot, mode, progress)?;
        Ok(StopAnswer {
            name: name.clone(),
            mount,
            commit: commit.filter(|_| ask.checkpoint),
        })
    }

    /// Opens a workspace whose daemon died without mounting it, so that it can be closed in order.
    fn open_stale(&self, config: &WorkspaceConfig) -> Result<(), Fault> {
        if self.config(&config.name)?.running.is_none() {
            return Err(faults::not_running(&config.name));
        }
        if let Some(record) = self.records.running(&config.name) {
            mountpoint::detach_dead(record.place())?;
        }
        self.engine
            .open_workspace(&config.name)
            .map(drop)
            .map_err(|e| faults::of_engine(&e, &config.name))
    }

    /// Takes the mount away; where that fails it stays as it was.
    pub(super) fn unmount(&self, name: &str, slot: &Slot, force: bool) -> Result<(), Fault> {
        let (place, mounted) = {
            let mut running = slot.running.lock();
            let running = running.as_mut().ok_or_else(|| faults::not_running(name))?;
            (running.place.clone(), running.mounted.take())
        };
        let Some(mounted) = mounted else {
            return Ok(());
        };
        let result = if force {
            abort(&place, mounted)
        } else {
            take_away(name, &place, mounted)
        };
        result.map_err(|(mounted, fault)| {
            if let Some(running) = slot.running.lock().as_mut() {
                running.mounted = mounted.map(|mounted| *mounted);
            }
            fault
        })
    }

    /// Closes an unmounted workspace and notes that it is stopped. Gives the commit that holds its
    /// last state. Where closing fails the workspace is stale, so nothing is lost.
    fn close(
        &self,
        config: &WorkspaceConfig,
        slot: &Slot,
        mode: CloseMode,
        progress: Progress<'_>,
    ) -> Result<Option<String>, Fault> {
        let closed = self.close_engine(&config.name, mode, progress);
        let noted = closed.and_then(|closed| self.note_stopped(config).map(|()| closed));
        // Ending a mount may take a while; nobody who asks for the state waits for that.
        let ended = slot.running.lock().take();
        drop(ended);
        let closed = noted?;
        tracing::info!(workspace = config.name, "stopped");
        Ok(closed.commit.map(|id| id.to_string()))
    }

    /// Closes what the engine has open, which nothing has mounted any more.
    pub(super) fn close_engine(
        &self,
        name: &str,
        mode: CloseMode,
        progress: Progress<'_>,
    ) -> Result<Closed, Fault> {
        self.engine
            .close_workspace(name, mode, progress)
            .map_err(|e| faults::of_engine(&e, name))
    }

    fn note_stopped(&self, config: &WorkspaceConfig) -> Result<(), Fault> {
        let made = self.records.running(&config.name).map(|record| record.made);
        self.note(config, None)?;
        mountpoint::remove(&made.unwrap_or_default());
        Ok(())
    }

    /// Deletes a workspace that is not running.
    pub fn delete(&self, ask: &Named) -> Result<(), Fault> {
        let name = &ask.workspace;
        self.config(name)?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        if slot.live().is_some() {
            return Err(faults::of_engine(
                &engine::Error::WorkspaceBusy(name.clone()),
                name,
            ));
        }
        self.close_read(name, &slot);
        self.clear_remains(name)?;
        self.engine
            .delete(name)
            .map_err(|e| faults::of_engine(&e, name))?;
        self.records.remove(name);
        self.sessions.forget_workspace(name)?;
        self.slots.lock().remove(name);
        Ok(())
    }

    /// Looks after all mounts: notices those that somebody else has taken away.
    pub fn look_after(&self) {
        let slots: Vec<_> = self
            .slots
            .lock()
            .iter()
            .map(|(n, s)| (n.clone(), s.clone()))
            .collect();
        for (name, slot) in slots {
            // A workspace that is being started or stopped is looked after already.
            if let Some(_lifecycle) = slot.lifecycle.try_lock() {
                self.reap(&name, &slot);
                self.close_unread(&name, &slot);
            }
        }
    }

    /// Closes the workspace if its mount is gone. The lifecycle lock must be held.
    ///
    /// One that was unmounted is stopped then. One whose connection was cut is stale: its mount is
    /// still there and answers nothing, and the next command brings it back.
    pub(super) fn reap(&self, name: &str, slot: &Slot) {
        let Some(place) = lost(slot) else {
            return;
        };
        tracing::warn!(workspace = name, "somebody else has taken the mount away");
        let cut = fuse_front::is_dead_mount(&place);
        let closed = if cut {
            self.close_cut(name, slot)
        } else {
            self.close_lost(name, slot)
        };
        if let Err(fault) = closed {
            tracing::error!(workspace = name, "cannot close it: {}", fault.message);
        }
    }

    fn close_lost(&self, name: &str, slot: &Slot) -> Result<(), Fault> {
        let config = self.config(name)?;
        self.close(&config, slot, CloseMode::Checkpoint, &|_, _| {})
            .map(drop)
    }

    /// Closes a workspace whose connection was cut, leaving it marked as running.
    fn close_cut(&self, name: &str, slot: &Slot) -> Result<(), Fault> {
        let closed = self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {});
        let ended = slot.running.lock().take();
        drop(ended);
        closed.map(drop)
    }

    /// Stops everything, because the daemon ends; whoever still uses a mount loses it.
    pub fn stop_all(&self) {
        let names: Vec<String> = self.slots.lock().keys().cloned().collect();
        for name in names {
            let ask = |force| Stop {
                workspace: name.clone(),
                force,
                checkpoint: true,
                progress: false,
            };
            let slot = self.slot(&name);
            if slot.running.lock().is_none() {
                let _lifecycle = slot.lifecycle.lock();
                self.close_read(&name, &slot);
                continue;
            }
            let stopped = self
                .stop(&ask(false), &|_, _| {})
                .or_else(|_| self.stop(&ask(true), &|_, _| {}));
            if let Err(fault) = stopped {
                tracing::error!(workspace = name, "cannot stop it: {}", fault.message);
            }
        }
    }
}

/// Where the workspace was mounted, if its mount is gone; it is marked then, so that nobody begins
/// anything with it.
fn lost(slot: &Slot) -> Option<PathBuf> {
    let mut running = slot.running.lock();
    let running = running.as_mut().filter(|running| !running.works())?;
    running.gone = true;
    Some(running.place.clone())
}

/// A failure, with the mount where it still works.
type Kept = (Option<Box<Mounted>>, Fault);

/// Unmounts unless somebody uses the mount.
fn take_away(name: &str, place: &Path, mounted: Mounted) -> Result<(), Kept> {
    let holders = fuse_front::holders(place);
    if !holders.is_empty() {
        return Err((Some(Box::new(mounted)), in_use(name, &holders)));
    }
    mounted.unmount().map_err(|error| {
        let fault = faults::of_mount(&error, name);
        match error {
            MountError::Busy(mounted) | MountError::Unmount { mounted, .. } => {
                (Some(mounted), fault)
            }
            _ => (None, fault),
        }
    })
}

pub(super) fn in_use(name: &str, holders: &[Holder]) -> Fault {
    let users: Vec<String> = holders
        .iter()
        .map(|holder| format!("{} ({})", holder.pid, holder.command))
        .collect();
    let message = format!("processes use it: {}", users.join(", "));
    Fault::failed("in-use", message).hint(format!(
        "end them, or agentvfs workspace stop {name} --force"
    ))
}

/// Writes dirty pages back, as far as that goes in time, then takes the mount away from whoever
/// uses it.
fn abort(place: &Path, mounted: Mounted) -> Result<(), Kept> {
    flush(place);
    mounted.abort();
    Ok(())
}

/// `syncfs` in a thread of its own: it may hang where a program holds a page for ever.
fn flush(place: &Path) {
    let (done, wait) = mpsc::channel();
    let place = Bytes::from(place);
    let spawned = std::thread::Builder::new()
        .name("flush".into())
        .spawn(move || {
            // Where the kernel cannot do that a kill at this moment is a risk.
            let _ = fuse_front::leave_files();
            let flushed =
                std::fs::File::open(place.path()).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
            // Nobody waits any more if it took too long.
            let _ = done.send(flushed);
        });
    let flushed = spawned.map_err(|e| e.to_string()).and_then(|_| {
        wait.recv_timeout(FLUSH_WAIT)
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())
    });
    if let Err(error) = flushed {
        tracing::warn!(error, "not all dirty pages could be written back");
    }
}
