//! Giving space back without copying: holes where records are that nothing needs, in packs that are not
//! worth rewriting.
//!
//! Such a record first leaves the index in memory, while puts wait as they do when a pack goes: from then
//! on nobody finds it. Then the index file is written without it, durably, and only then is it punched.
//! Cut off in between, the pack has a whole record that no index knows, which is no harm: what is put
//! again is stored again, and the space comes back when the pack is rewritten.

use super::Collection;
use super::marks::PackMarks;
use super::sweep::Swept;
use crate::error::Result;
use crate::pack::hole::block_bytes;
use crate::pack::{Key, Location};
use std::collections::HashSet;

/// A pack in which holes are to be punched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedHoles {
    /// Its number.
    pub number: u32,
    /// Bytes that the disk gets back.
    pub bytes: u64,
    /// Records that go.
    pub records: u64,
}

impl Collection<'_> {
    /// The holes that are worth being punched in a pack.
    pub(super) fn plan_holes(&self, marks: &PackMarks) -> Option<PlannedHoles> {
        let mut holes = PlannedHoles {
            number: marks.pack.number,
            ..PlannedHoles::default()
        };
        for (_, at) in dead_of(marks) {
            holes.bytes += block_bytes(&at);
            holes.records += 1;
        }
        // The index is written anew for them.
        let index_bytes = marks.index.file_bytes();
        let worth = holes.bytes >= self.store.punch_bytes_min.max(index_bytes);
        (worth && marks.pack.segment.can_punch()).then_some(holes)
    }

    /// Punches the records of a pack that nothing needs. The pack may be the one that is written to: all
    /// that goes is covered by its index, so it is neither where appends go nor in a tail that is
    /// cut at open.
    pub(super) fn punch(&self, marks: &PackMarks, swept: &mut Swept) -> Result<()> {
        let packs = &self.store.packs;
        self.check_stop()?;
        let last = self.last_whole(marks, dead_of(marks));
        let dead: Vec<Location> = {
            // Puts wait: nobody can find a record here that is about to go.
            let _alone = self.store.gc.write();
            let dead = dead_of(marks).map(|(_, at)| at);
            let dead: Vec<Location> = dead.filter(|at| !last.contains(&at.offset)).collect();
            let offsets = dead.iter().map(|at| at.offset).collect();
            marks.pack.unlist(&offsets);
            dead
        };
        if dead.is_empty() {
            return Ok(());
        }
        // Whatever the file says now: what is on the disk may be older.
        packs.reindex(&marks.pack)?;
        let punched = marks.pack.punch(&dead)?;
        swept.freed_bytes += punched;
        swept.punched_bytes += punched;
        swept.objects += dead.len() as u64;
        Ok(())
    }

    /// Where those of `dead` stand that are of an object whose newer record cannot be read: the mark is
    /// at the newer one, if there is any. To be called before puts are made to wait.
    pub(super) fn last_whole(
        &self,
        marks: &PackMarks,
        dead: impl Iterator<Item = (Key, Location)>,
    ) -> HashSet<u32> {
        let last = dead.filter(|(key, at)| self.is_last_whole(marks, key, *at));
        last.map(|(_, at)| at.offset).collect()
    }

    fn is_last_whole(&self, marks: &PackMarks, key: &Key, at: Location) -> bool {
        let packs = &self.store.packs;
        let here = Some((marks.pack.number, at));
        if packs.find(key) == here {
            return false;
        }
        // Reading notes each record that is damaged, and goes on to older ones.
        match packs.read(key, true) {
            Ok(_) => packs.find(key) == here,
            Err(error) => !error.is_damage(),
        }
    }
}

/// The records in the index of a pack that nothing needs and that are large enough to be punched.
fn dead_of(marks: &PackMarks) -> impl Iterator<Item = (Key, Location)> {
    let index = marks.pack.records.read().index.clone();
    let dead = index.entries().filter(|(key, at)| {
        let large = block_bytes(at) > 0;
        large && !marks.is_needed(key, *at)
    });
    dead.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use crate::crash_storage::CrashStorage;
    use crate::id::Kind;
    use crate::{ChunkId, ObjectStore, StoreConfig};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    fn put_noise(store: &ObjectStore, seed: &[u8]) -> ChunkId {
        let mut bytes = vec![0; 20_000];
        let mut hasher = blake3::Hasher::new();
        hasher.update(seed).finalize_xof().fill(&mut bytes);
        store.put_chunk(&bytes).unwrap()
    }

    #[test]
    fn a_record_stays_as_long_as_a_put_is_under_way() {
        let config = StoreConfig {
            punch_bytes_min: 4096,
            ..StoreConfig::default()
        };
        let disk = Arc::new(CrashStorage::without_log());
        let store = ObjectStore::open(disk, config).unwrap();
        let (kept, gone) = (put_noise(&store, b"kept"), put_noise(&store, b"gone"));
        let stop = AtomicBool::new(false);
        let run = store.collect(&stop).unwrap();
        assert!(store.contains(Kind::Chunk, kept.as_bytes()));
        let plan = run.plan(Duration::ZERO, 101).unwrap();
        assert_eq!((plan.packs.len(), plan.holes.len()), (0, 1));
        let is_there = || store.packs.contains(&(Kind::Chunk, *gone.as_bytes()));
        let put = store.gc.read();
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| run.sweep(&plan, &|_| ()));
            // Nobody else gets the lock once somebody waits for it alone.
            while store.gc.try_read().is_some() && !sweeper.is_finished() {
                std::thread::yield_now();
            }
            assert!(is_there());
            drop(put);
            assert!(sweeper.join().unwrap().unwrap().punched_bytes > 0);
        });
        assert!(!is_there());
        drop(run);
        assert!(store.get_chunk(&kept).is_ok());
    }
}
