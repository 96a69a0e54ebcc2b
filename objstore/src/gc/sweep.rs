//! Giving space back: packs that hold much of what nothing needs are rewritten or removed.

use super::Collection;
use super::marks::PackMarks;
use crate::error::{AtPath, Result};
use crate::pack::open::record_len;
use crate::pack::{Key, Location};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What sweeping would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Packs to rewrite or remove, those with the least to copy first.
    pub packs: Vec<PlannedPack>,
    /// Bytes in all packs.
    pub total_bytes: u64,
    /// Bytes of all records that are needed.
    pub needed_bytes: u64,
    /// Bytes that nothing needs, but too young or too spread out to be worth it now.
    pub left_bytes: u64,
}

impl Plan {
    /// Bytes that carrying it out gives back.
    pub fn freed_bytes(&self) -> u64 {
        self.packs.iter().map(|p| p.bytes - p.needed_bytes).sum()
    }
}

/// A pack that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPack {
    /// Its number.
    pub number: u32,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of records in it that are to be copied.
    pub needed_bytes: u64,
    /// Records that are to be copied.
    pub needed: u64,
    /// Records that go.
    pub unneeded: u64,
}

/// What sweeping did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Packs that are gone.
    pub packs: u64,
    /// Bytes that the disk got back, copies subtracted.
    pub freed_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Objects that are gone.
    pub objects: u64,
    /// Packs that stay because a record that is needed could not be read.
    pub damaged_packs: u64,
}

impl Collection<'_> {
    /// What there is to sweep, once all roots were walked. Packs that grew less than `grace` ago stay.
    /// A pack is worth rewriting where nothing needs `dead_percent` of it.
    pub fn plan(&self, grace: Duration, dead_percent: u64) -> Result<Plan> {
        let mut plan = Plan::default();
        for marks in self.marks.packs() {
            let found = self.look_at(marks);
            plan.total_bytes += found.bytes;
            plan.needed_bytes += found.needed_bytes;
            let dead = found.bytes - found.needed_bytes;
            let worth = found.unneeded > 0
                && (found.needed == 0 || dead * 100 >= found.bytes * dead_percent);
            let path = &marks.pack.path;
            if worth && self.store.storage.age(path).at(path)? >= grace {
                plan.packs.push(found);
            } else if found.unneeded > 0 {
                plan.left_bytes += dead;
            }
        }
        plan.packs.sort_by_key(|p| p.needed_bytes);
        Ok(plan)
    }

    fn look_at(&self, marks: &PackMarks) -> PlannedPack {
        let bytes = marks.pack.segment.len();
        let mut found = PlannedPack {
            number: marks.pack.number,
            bytes,
            needed_bytes: 0,
            needed: 0,
            unneeded: 0,
        };
        for (key, at) in marks.index.entries() {
            if marks.is_needed(&key, at) {
                found.needed_bytes += record_len(&at);
                found.needed += 1;
            } else {
                found.unneeded += 1;
            }
        }
        // What was put since the run began is needed, and its index is not yet known.
        found.needed_bytes += bytes.saturating_sub(marks.index.covered_bytes());
        found.needed_bytes = found.needed_bytes.min(bytes);
        found
    }

    /// Carries out a plan; `progress` hears how many bytes are done. May be cut off at any moment.
    pub fn sweep(&self, plan: &Plan, progress: &dyn Fn(u64)) -> Result<Swept> {
        assert!(self.sweeps, "what is put was not followed");
        // Who began to read something before it stopped being a root may go on to the end.
        self.wait_for_pins()?;
        let mut swept = Swept::default();
        let mut done = 0;
        for planned in &plan.packs {
            let marks = self.marks.packs().iter();
            let found = marks.clone().find(|m| m.pack.number == planned.number);
            if let Some(marks) = found {
                self.sweep_pack(marks, &mut swept)?;
            }
            done += planned.bytes;
            progress(done);
        }
        self.store.packs.sync_names()?;
        Ok(swept)
    }

    fn sweep_pack(&self, marks: &PackMarks, swept: &mut Swept) -> Result<()> {
        let packs = &self.store.packs;
        packs.retire(&marks.pack)?;
        let mut copied = HashSet::new();
        let bytes = match self.copy_needed(marks, &mut copied) {
            Err(e) if e.is_damage() => {
                tracing::error!("{} stays: {e}", marks.pack.path);
                swept.damaged_packs += 1;
                return Ok(());
            }
            copied => copied?,
        };
        packs.sync()?;
        let index = marks.pack.records.read().index.clone();
        let late = {
            // Puts wait: nobody can find an object here that is about to go.
            let _alone = self.store.gc.write();
            let late = self.copy_needed(marks, &mut copied)?;
            if late > 0 {
                packs.sync()?;
            }
            packs.forget(marks.pack.number);
            late
        };
        packs.delete(marks.pack.number)?;
        swept.packs += 1;
        swept.copied_bytes += bytes + late;
        swept.freed_bytes += marks.pack.segment.len().saturating_sub(bytes + late);
        swept.objects += (index.len() - copied.len()) as u64;
        Ok(())
    }

    /// Copies the records that are needed and were not copied yet; returns their bytes.
    fn copy_needed(&self, marks: &PackMarks, copied: &mut HashSet<Key>) -> Result<u64> {
        let index = Arc::clone(&marks.pack.records.read().index);
        let mut bytes = 0;
        for (key, at) in index.entries() {
            if copied.contains(&key) || !marks.is_needed(&key, at) {
                continue;
            }
            self.check_stop()?;
            bytes += self.copy(marks, &key, at)?;
            copied.insert(key);
        }
        Ok(bytes)
    }

    fn copy(&self, marks: &PackMarks, key: &Key, at: Location) -> Result<u64> {
        let packs = &self.store.packs;
        // It was stored anew because this one was found damaged.
        if packs.is_bad(marks.pack.number, at.offset) && packs.contains(key) {
            return Ok(0);
        }
        let (header, data) = marks.pack.read_stored(key, at)?;
        packs.append_copy(*key, &header, &data)?;
        Ok(record_len(&at))
    }
}
