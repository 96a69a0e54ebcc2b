//! Workspaces that are open without a mount, because somebody looks into them though they are stopped.
//!
//! Opening one takes a while, and whoever reads a file asks more than once, so it stays open for some
//! seconds after the last request. Invariant: it is not marked as running, so whatever happens to this
//! process it is found stopped.

use super::{Mounts, Slot};
use crate::faults;
use agentvfs_client::protocol::Fault;
use engine::{CloseMode, Workspace};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a stopped workspace stays open after it was last looked into.
const LINGER: Duration = Duration::from_secs(5);

impl Mounts {
    /// The workspace to look into, whether it runs or not; one whose daemon died is brought back first.
    pub fn to_read(&self, name: &str) -> Result<Arc<Workspace>, Fault> {
        let known = self.slots.lock().get(name).cloned();
        if let Some(workspace) = known.and_then(|slot| slot.live()) {
            return Ok(workspace);
        }
        if self.config(name)?.running.is_some() {
            return self.workspace(name);
        }
        let slot = self.slot(name);
        let lifecycle = slot.lifecycle.lock();
        if slot.live().is_some() || self.config(name)?.running.is_some() {
            drop(lifecycle);
            return self.workspace(name);
        }
        let opened = self
            .engine
            .open_workspace(name)
            .map_err(|e| faults::of_engine(&e, name))?;
        *slot.looked_at.lock() = Some(Instant::now());
        Ok(opened)
    }

    /// Closes a workspace that was opened to be looked into. The lifecycle lock must be held.
    pub(super) fn close_read(&self, name: &str, slot: &Slot) {
        if slot.looked_at.lock().take().is_none() {
            return;
        }
        if let Err(fault) = self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {}) {
            tracing::error!(workspace = name, "cannot close it: {}", fault.message);
        }
    }

    /// The same once nobody has looked into it for a while. The lifecycle lock must be held.
    pub(super) fn close_unread(&self, name: &str, slot: &Slot) {
        let last = *slot.looked_at.lock();
        let rested = last.is_some_and(|last| last.elapsed() >= LINGER);
        // The engine's own reference, and this one.
        let unused = || {
            let opened = self.engine.opened(name);
            opened.is_none_or(|workspace| Arc::strong_count(&workspace) <= 2)
        };
        if rested && unused() {
            self.close_read(name, slot);
        }
    }
}
