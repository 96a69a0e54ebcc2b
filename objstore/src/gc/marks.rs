//! Which objects are needed: a bit for each entry of each pack's index as it was when gc began.
//!
//! An object that is in no such index was put since, so it is needed; it is noted only to be looked
//! into once. 1,000,000 objects take 125 KB.

use crate::pack::index::PackIndex;
use crate::pack::open::record_len;
use crate::pack::set::PackSet;
use crate::pack::{Key, Location, Pack};
use parking_lot::Mutex;
use std::collections::HashMap;
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
    /// What was met in no pack of these, with the bytes that its record takes.
    others: Mutex<HashMap<Key, u64>>,
}

/// The marks of one pack.
#[derive(Debug)]
pub(crate) struct PackMarks {
    pub pack: Arc<Pack>,
    /// The index when gc began; what it does not have was put later.
    pub index: Arc<PackIndex>,
    /// What a walk met, and looked into.
    met: Bits,
    /// What a put found. It was not looked into: that is why these are two.
    found: Bits,
    /// What goes though a walk met it, unless a put finds it.
    shed: Bits,
}

/// A bit for each entry.
#[derive(Debug)]
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(len: usize) -> Bits {
        let words = len.div_ceil(64);
        Bits((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// True where it was not set before.
    fn set(&self, i: usize) -> bool {
        let bit = 1 << (i % 64);
        self.0[i / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    fn get(&self, i: usize) -> bool {
        self.0[i / 64].load(Ordering::Acquire) & (1 << (i % 64)) != 0
    }

    fn clear(&self) {
        self.0
            .iter()
            .for_each(|word| word.store(0, Ordering::Release));
    }
}

impl PackMarks {
    fn new(pack: Arc<Pack>) -> PackMarks {
        let index = pack.records.read().index.clone();
        PackMarks {
            pack,
            met: Bits::new(index.len()),
            found: Bits::new(index.len()),
            shed: Bits::new(index.len()),
            index,
        }
    }

    /// True for a marked record that is not to be shed, and for one that was put since: also where an older one of the
    /// same object, which was found damaged, stands in this pack.
    pub fn is_needed(&self, key: &Key, at: Location) -> bool {
        let is_met = |i: usize| self.met.get(i) && !self.shed.get(i);
        let marked = |i: usize| self.found.get(i) || is_met(i);
        let entry = self.index.position(key);
        entry.is_none_or(|i| self.index.location(i) != at || marked(i))
    }

    /// The entries that a walk met and no put found, with their numbers.
    pub fn only_met(&self) -> impl Iterator<Item = (usize, Key, Location)> + '_ {
        let all = (0..).zip(self.index.entries());
        let met = all.filter(|(i, _)| self.met.get(*i) && !self.found.get(*i));
        met.map(|(i, (key, at))| (i, key, at))
    }

    /// The entry of this number goes, unless a put finds it.
    pub fn shed(&self, i: usize) {
        self.shed.set(i);
    }

    /// The entries that go though a walk met them.
    pub fn to_shed(&self) -> impl Iterator<Item = (Key, Location)> + '_ {
        let all = (0..).zip(self.index.entries());
        let shed = all.filter(|(i, (key, at))| self.shed.get(*i) && !self.is_needed(key, *at));
        shed.map(|(_, entry)| entry)
    }

    /// No entry goes that a walk met.
    pub fn shed_none(&self) {
        self.shed.clear();
    }

    /// True for an entry that a walk met.
    pub fn is_met(&self, key: &Key) -> bool {
        self.index.position(key).is_some_and(|i| self.met.get(i))
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

    /// True where a walk met the object.
    pub fn has_met(&self, key: &Key) -> bool {
        self.packs.iter().any(|p| p.is_met(key)) || self.others.lock().contains_key(key)
    }

    /// Calls `each` for every object that a walk met, with the bytes that its record takes.
    pub fn each_met(&self, each: &mut dyn FnMut(&Key, u64)) {
        for marks in &self.packs {
            for (key, at) in marks.index.entries() {
                if marks.is_met(&key) {
                    each(&key, record_len(&at));
                }
            }
        }
        let others = self.others.lock();
        others.iter().for_each(|(key, len)| each(key, *len));
    }

    /// Where the mark of an object is: of the newest of its records that is not known to be bad, in a
    /// pack that is still there.
    fn place(&self, number: u32, key: &Key) -> Option<(&PackMarks, usize)> {
        let at = self.packs.binary_search_by_key(&number, |p| p.pack.number);
        let marks = &self.packs[at.ok()?];
        Some((marks, marks.index.position(key)?))
    }

    /// A walk meets an object.
    pub fn meet(&self, set: &PackSet, key: &Key) -> Marked {
        let Some((number, at)) = set.find(key) else {
            return Marked::Missing;
        };
        let first = match self.place(number, key) {
            Some((marks, i)) => marks.met.set(i),
            // It was put since, or moved: then it may have been met where it was.
            None if self.has_met(key) => false,
            None => self.others.lock().insert(*key, record_len(&at)).is_none(),
        };
        if first {
            Marked::Now(record_len(&at))
        } else {
            Marked::Before
        }
    }

    /// A put, or whoever asks, finds an object, which is therefore kept. False where there is none.
    pub fn find(&self, set: &PackSet, key: &Key) -> bool {
        let Some((number, _)) = set.find(key) else {
            return false;
        };
        if let Some((marks, i)) = self.place(number, key) {
            marks.found.set(i);
        }
        true
    }
}
