//! Collecting what nothing needs any more, beside all other work.
//!
//! A run has three parts. *Begin*: from now on each put that finds its object there marks it, and
//! work that was in progress ([`ObjectStore::pin`]) is waited for. *Mark*: the caller walks all its
//! roots. *Sweep*: packs with much that is not marked are rewritten: what is needed is copied into the
//! newest pack and synced, then the old pack is removed. In the others holes are punched where
//! records are that are not marked (`punch`).
//!
//! Why nothing needed goes: whoever makes something refer to an object has put it (then it is marked,
//! or newer than the run), or took it from something that was a root when the run began, or is
//! pinned. Killed or cut off at any moment: a pack is removed only after its copies are on stable
//! storage, and an object that is there twice is no harm. Where something needed is missing or
//! damaged, marking fails and nothing is removed. Nothing is asked for elsewhere: who walks holds [`crate::elsewhere::only_here`].

pub(crate) mod marks;
pub(crate) mod pins;
mod punch;
mod shed;
mod sweep;
mod walk;

use crate::error::{Error, Result};
use crate::pack::Key;
use crate::store::ObjectStore;
use marks::{Marked, Marks};
use parking_lot::Mutex;
pub use pins::Pin;
pub use punch::PlannedHoles;
pub use shed::Shed;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
pub use sweep::{Plan, PlannedPack, Swept};
pub use walk::{Met, Strictness, Walk};

/// A run of gc. Dropping it ends the run.
#[derive(Debug)]
pub struct Collection<'a> {
    pub(crate) store: &'a ObjectStore,
    pub(crate) marks: Arc<Marks>,
    stop: &'a AtomicBool,
    /// It was begun so that puts mark what they find.
    sweeps: bool,
    /// What was passed over as it is elsewhere.
    missing: Mutex<BTreeSet<Key>>,
}

impl ObjectStore {
    /// While the pin lives, gc takes nothing that was put, found to be there, or the root's since. To be
    /// held by whoever puts objects until a root refers to them, and by whoever reads what may stop
    /// being needed meanwhile.
    pub fn pin(&self) -> Pin<'_> {
        self.pins.pin()
    }

    /// A run that only looks: what is put meanwhile is not followed, nothing can be swept. The caller
    /// sees to it that no other run sweeps, or has a pin since before it learnt its roots.
    pub fn look<'a>(&'a self, stop: &'a AtomicBool) -> Collection<'a> {
        Collection {
            store: self,
            marks: Arc::new(Marks::new(&self.packs)),
            stop,
            sweeps: false,
            missing: Mutex::default(),
        }
    }

    /// Begins a run: all that is put or found from now on is kept, and work that was in progress has
    /// ended. [`Error::Busy`] while there is another run, [`Error::Stopped`] once `stop` is set.
    pub fn collect<'a>(&'a self, stop: &'a AtomicBool) -> Result<Collection<'a>> {
        // Every record is in an index then, so that a bit can stand for it.
        self.close()?;
        let collection = {
            let mut gc = self.gc.write();
            if gc.is_some() {
                return Err(Error::Busy);
            }
            // What was put since waits no longer: marks are for what is in packs.
            self.flush_in_order()?;
            let marks = Arc::new(Marks::new(&self.packs));
            *gc = Some(marks.clone());
            Collection {
                store: self,
                marks,
                stop,
                sweeps: true,
                missing: Mutex::default(),
            }
        };
        collection.wait_for_pins()?;
        Ok(collection)
    }
}

impl Collection<'_> {
    fn wait_for_pins(&self) -> Result<()> {
        let stopped = || self.stop.load(Ordering::Relaxed);
        self.store.pins.wait_for_older(&stopped);
        self.check_stop()
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(Error::Stopped)
        } else {
            Ok(())
        }
    }

    /// Bytes of records that are marked here and in none of `others`.
    pub fn bytes_of_none(&self, others: &[&Collection<'_>]) -> u64 {
        let mut bytes = 0;
        self.marks.each_met(&mut |key, len| {
            if !others.iter().any(|o| o.marks.has_met(key)) {
                bytes += len;
            }
        });
        bytes
    }

    /// What walks with [`Strictness::WhatIsHere`] passed over; forgotten with that.
    pub fn take_missing(&self) -> BTreeSet<Key> {
        std::mem::take(&mut *self.missing.lock())
    }

    fn mark(&self, key: &Key) -> Result<Marked> {
        let meet = || self.marks.meet(&self.store.packs, key);
        match meet() {
            // A run that only looks goes on beside puts that may wait.
            Marked::Missing => {
                self.store.flush()?;
                Ok(meet())
            }
            marked => Ok(marked),
        }
    }
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        if self.sweeps {
            *self.store.gc.write() = None;
        }
    }
}
