//! Giving space back: packs that hold much of what nothing needs are rewritten or removed, in others holes
//! are punched.

use super::Collection;
use super::marks::PackMarks;
use super::punch::PlannedHoles;
use crate::error::{AtPath, Result};
use crate::limits::REWRITE_SPARSE_PERCENT;
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
    /// Packs in which holes are to be punched.
    pub holes: Vec<PlannedHoles>,
    /// Bytes that all packs take on the disk.
    pub total_bytes: u64,
    /// Bytes of all records that are needed.
    pub needed_bytes: u64,
    /// Bytes that nothing needs, but too young or too spread out to be worth it now.
    pub left_bytes: u64,
}

impl Plan {
    /// Bytes that carrying it out gives back.
    pub fn freed_bytes(&self) -> u64 {
        let packs = self.packs.iter().map(|p| p.bytes - p.needed_bytes);
        packs.sum::<u64>() + self.holes.iter().map(|h| h.bytes).sum::<u64>()
    }

    /// Bytes that [`Collection::sweep`] goes through.
    pub fn work_bytes(&self) -> u64 {
        let packs = self.packs.iter().map(|p| p.bytes);
        packs.sum::<u64>() + self.holes.iter().map(|h| h.bytes).sum::<u64>()
    }
}

/// A pack that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPack {
    /// Its number.
    pub number: u32,
    /// Bytes that it takes on the disk.
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
    /// Of these, bytes that holes gave back in packs that stay.
    pub punched_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Objects that are gone.
    pub objects: u64,
    /// Packs that stay because a record that is needed could not be read.
    pub damaged_packs: u64,
}

impl PlannedPack {
    /// True where too little of what it takes on the disk is needed, or of its length of `len`: holes
    /// cost nothing, but a pack that is nearly all holes is one more to look into.
    fn is_worth_rewriting(&self, len: u64, dead_percent: u64) -> bool {
        let is_dead = |of: u64, percent: u64| (of - self.needed_bytes) * 100 >= of * percent;
        let sparse_percent = REWRITE_SPARSE_PERCENT.max(dead_percent);
        self.needed == 0 || is_dead(self.bytes, dead_percent) || is_dead(len, sparse_percent)
    }
}

impl Collection<'_> {
    /// What there is to sweep, once all roots were walked. Packs that grew less than `grace` ago stay.
    /// A pack is worth rewriting where nothing needs `dead_percent` of what it takes on the disk: of
    /// others, what of that can be punched is.
    pub fn plan(&self, grace: Duration, dead_percent: u64) -> Result<Plan> {
        let mut plan = Plan::default();
        for marks in self.marks.packs() {
            let found = self.look_at(marks);
            plan.total_bytes += found.bytes;
            plan.needed_bytes += found.needed_bytes;
            let len = marks.pack.segment.len();
            if found.unneeded == 0 && found.bytes == len {
                continue;
            }
            let path = &marks.pack.path;
            let old = self.store.storage.age(path).at(path)? >= grace;
            if old && found.is_worth_rewriting(len, dead_percent) {
                plan.packs.push(found);
                continue;
            }
            plan.left_bytes += found.bytes - found.needed_bytes;
            if let Some(holes) = old.then(|| self.plan_holes(marks)).flatten() {
                plan.left_bytes = plan.left_bytes.saturating_sub(holes.bytes);
                plan.holes.push(holes);
            }
        }
        plan.packs.sort_by_key(|p| p.needed_bytes);
        Ok(plan)
    }

    fn look_at(&self, marks: &PackMarks) -> PlannedPack {
        let bytes = marks.pack.disk_bytes();
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
        let len = marks.pack.segment.len();
        found.needed_bytes += len.saturating_sub(marks.index.covered_bytes());
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
        let marks_of = |number| self.marks.packs().iter().find(|m| m.pack.number == number);
        for planned in &plan.packs {
            if let Some(marks) = marks_of(planned.number) {
                self.sweep_or_punch(marks, planned, &mut swept)?;
            }
            done += planned.bytes;
            progress(done);
        }
        self.store.packs.sync_names()?;
        for planned in &plan.holes {
            if let Some(marks) = marks_of(planned.number) {
                self.punch(marks, &mut swept)?;
            }
            done += planned.bytes;
            progress(done);
        }
        Ok(swept)
    }

    /// Rewrites a pack; where the disk has no room for the copies, holes are punched in it.
    fn sweep_or_punch(
        &self,
        marks: &PackMarks,
        planned: &PlannedPack,
        swept: &mut Swept,
    ) -> Result<()> {
        let packs = &self.store.packs;
        if packs.has_room_for_copies(planned.needed_bytes) {
            match self.sweep_pack(marks, swept) {
                Err(e) if e.is_no_space() => {
                    tracing::info!("{} is not rewritten: {e}", marks.pack.path)
                }
                done => return done,
            }
        }
        match marks.pack.segment.can_punch() {
            true => self.punch(marks, swept),
            false => Ok(()),
        }
    }

    fn sweep_pack(&self, marks: &PackMarks, swept: &mut Swept) -> Result<()> {
        let packs = &self.store.packs;
        packs.retire(&marks.pack)?;
        let mut copied = HashSet::new();
        let index = marks.pack.records.read().index.clone();
        let dead = index.entries();
        let last = self.last_whole(marks, dead.filter(|(key, at)| !marks.is_needed(key, *at)));
        let bytes = match self.copy_needed(marks, &last, &mut copied) {
            Err(e) if e.is_damage() => {
                tracing::error!("{} stays: {e}", marks.pack.path);
                swept.damaged_packs += 1;
                return Ok(());
            }
            copied => copied?,
        };
        packs.sync()?;
        let late = {
            // Puts wait: nobody can find an object here that is about to go.
            let _alone = self.store.gc.write();
            let late = self.copy_needed(marks, &last, &mut copied)?;
            if late > 0 {
                packs.sync()?;
            }
            packs.forget(marks.pack.number);
            late
        };
        packs.delete(marks.pack.number)?;
        swept.packs += 1;
        swept.copied_bytes += bytes + late;
        swept.freed_bytes += marks.pack.disk_bytes().saturating_sub(bytes + late);
        swept.objects += (index.len() - copied.len()) as u64;
        Ok(())
    }

    /// Copies the records that are needed, or at the offsets `last`, and were not copied yet; returns
    /// their bytes.
    fn copy_needed(
        &self,
        marks: &PackMarks,
        last: &HashSet<u32>,
        copied: &mut HashSet<Key>,
    ) -> Result<u64> {
        let index = Arc::clone(&marks.pack.records.read().index);
        let mut bytes = 0;
        for (key, at) in index.entries() {
            let needed = last.contains(&at.offset) || marks.is_needed(&key, at);
            if copied.contains(&key) || !needed {
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
