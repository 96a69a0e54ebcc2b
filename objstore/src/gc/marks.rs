//! Which objects are needed: a bit for each entry of each pack's index as it was when gc began.
//!
//! An object that is in no such index was put since, so it is needed; it is noted only to be looked
//! into once. 1,000,000 objects take 125 KB.

use crate::pack::index::PackIndex;
use crate::pack::set::PackSet;
use crate::pack::{Key, Pack};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of marking an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// It was not marked before; its record takes so many bytes.
    Now(u64),
    /// It was marked already.
    Before,
    /// There is no such object.
    Missing,
}

/// The marks of one run of gc.
#[derive(Debug)]
pub(crate) struct Marks {
    /// By pack number, ascending.
    packs: Vec<PackMarks>,
    others: Mutex<HashSet<Key>>,
}

/// The marks of one pack.
#[derive(Debug)]
pub(crate) struct PackMarks {
    pub pack: Arc<Pack>,
    /// The index when gc began; what it does not have was put later.
    pub index: Arc<PackIndex>,
    bits: Vec<AtomicU64>,
}

impl PackMarks {
    fn new(pack: Arc<Pack>) -> PackMarks {
        let index = pack.records.read().index.clone();
        let words = index.len().div_ceil(64);
        PackMarks {
            pack,
            index,
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// True where the entry was not marked before.
    fn set(&self, i: usize) -> bool {
        let bit = 1 << (i % 64);
        self.bits[i / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// True for a marked entry, and for one that was put since.
    pub fn is_needed(&self, key: &Key) -> bool {
        self.index.position(key).is_none_or(|i| {
            let word = self.bits[i / 64].load(Ordering::Acquire);
            word & (1 << (i % 64)) != 0
        })
    }
}

impl Marks {
    /// No marks yet on what the packs hold now.
    pub fn new(packs: &PackSet) -> Marks {
        Marks {
            packs: packs.packs().into_iter().map(PackMarks::new).collect(),
            others: Mutex::default(),
        }
    }

    /// The marks of each pack.
    pub fn packs(&self) -> &[PackMarks] {
        &self.packs
    }

    /// Marks an object: the newest of its records that is not known to be bad.
    pub fn mark(&self, set: &PackSet, key: &Key) -> Marked {
        for marks in self.packs.iter().rev() {
            if let Some(i) = marks.index.position(key) {
                let at = marks.index.location(i);
                if set.is_bad(marks.pack.number, at.offset) {
                    continue;
                }
                return if marks.set(i) {
                    Marked::Now(crate::pack::open::record_len(&at))
                } else {
                    Marked::Before
                };
            }
        }
        match set.find(key) {
            None => Marked::Missing,
            Some(at) if self.others.lock().insert(*key) => {
                Marked::Now(crate::pack::open::record_len(&at))
            }
            Some(_) => Marked::Before,
        }
    }
}
