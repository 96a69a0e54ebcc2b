//! Bringing single objects as somebody reads them, with what lies near them in their pack (docs/remote.md, 9).
//!
//! A push puts what a directory has in one place, so whoever reads a file goes on nearby. A reading that goes on where the
//! last one ended brings twice as much each time. What comes is checked as in a fetch; a neighbour that is damaged is left
//! out, the object itself is requested alone then. Who wants what is on its way with another object waits for that.
//!
//! Invariant: unlike a fetch this appends objects to the local packs whose references are not here. Only a store that
//! says where they are may be given one ([`objstore::elsewhere`]).
//!
//! Tests: `remote/tests/near.rs`, `tests/tests/lazy.rs`.

mod held;
pub mod lacking;

use crate::bucket::Bucket;
use crate::error::{Error, Result};
use crate::layout::index::{Index, Place};
use crate::layout::{Hash, pack_name};
use crate::limits::{LOOK_AGAIN_SEC, NEAR_BYTES, RANGE_BYTES, READS_MAX};
use crate::remote::{Found, Generation, Remote};
use objstore::exchange::Record;
use objstore::{Key, ObjectStore};
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A remote whose objects are brought as they are read. All methods may be called from several threads.
#[derive(Debug)]
pub struct Near {
    remote: Remote,
    known: Mutex<Option<Known>>,
    last: Mutex<Option<Last>>,
    coming: Mutex<Vec<Coming>>,
    came: Condvar,
}

/// A pack, and bytes of it that are on their way.
type Coming = (Hash, Range<u64>);

/// Bytes that are on their way as long as this lives.
struct Turn<'a> {
    near: &'a Near,
    coming: Coming,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut coming = self.near.coming.lock();
        if let Some(at) = coming.iter().position(|c| *c == self.coming) {
            coming.swap_remove(at);
        }
        self.near.came.notify_all();
    }
}

/// What the remote has, and when that was looked at.
#[derive(Clone, Debug)]
struct Known {
    present: Arc<Present>,
    time: i64,
}

/// One generation, and for each of its indexes the order in which objects lie.
#[derive(Debug)]
struct Present {
    generation: Generation,
    orders: Vec<OnceLock<Vec<u32>>>,
}

/// The last range that came.
#[derive(Clone, Debug)]
struct Last {
    pack: Hash,
    range: Range<u64>,
    bytes: u64,
}

/// What came with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Objects that were not here.
    pub objects: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

/// Where an object is, and in which index that stands.
struct Located {
    index: usize,
    found: Found,
}

impl Present {
    fn new(generation: Generation) -> Present {
        let orders = generation.indexes.iter().map(|_| OnceLock::new());
        Present {
            orders: orders.collect(),
            generation,
        }
    }

    fn locate(&self, key: &Key) -> Option<Located> {
        let indexes = self.generation.indexes.iter().enumerate();
        let mut found = indexes.filter_map(|(number, index)| {
            let place = index.find(key)?;
            let pack = *index.packs().get(place.pack as usize)?;
            Some(Located {
                index: number,
                found: Found { pack, place },
            })
        });
        found.next()
    }

    /// Objects of a range of a pack, in their order.
    fn within(&self, number: usize, pack: u32, range: &Range<u64>) -> Vec<(Key, Place)> {
        let index: &Index = &self.generation.indexes[number];
        let order = self.orders[number].get_or_init(|| index.by_place());
        let before = |number: &u32| {
            let (_, place) = index.object(*number);
            (place.pack, u64::from(place.offset)) < (pack, range.start)
        };
        let first = order.partition_point(before);
        let from = order[first..].iter().map(|number| index.object(*number));
        from.take_while(|(_, place)| place.pack == pack && place.range().end <= range.end)
            .collect()
    }
}

impl Near {
    /// Brings objects of a remote. Nothing is requested yet.
    pub fn new(remote: Remote) -> Near {
        Near {
            remote,
            known: Mutex::default(),
            last: Mutex::default(),
            coming: Mutex::default(),
            came: Condvar::new(),
        }
    }

    /// The remote.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Whether the remote had the object when it was looked at last; false where it never was.
    pub fn has(&self, key: &Key) -> bool {
        let known = self.known.lock().clone();
        known.is_some_and(|known| known.present.locate(key).is_some())
    }

    /// What is present in the remote, as it was looked at last, or as it is now.
    ///
    /// # Errors
    ///
    /// The remote cannot be read.
    pub fn generation(&self) -> Result<Generation> {
        Ok(self.known(None)?.present.generation.clone())
    }

    /// Brings an object, and objects near it that are not here; `None` where the remote does not have it.
    ///
    /// # Errors
    ///
    /// It cannot be had now, or is damaged in the remote.
    pub fn bring(&self, store: &ObjectStore, key: &Key) -> Result<Option<Brought>> {
        let mut reads = 0;
        let mut known = self.known(None)?;
        loop {
            let Some(located) = known.present.locate(key) else {
                let now = self.remote.clock.now();
                if now.saturating_sub(known.time) < LOOK_AGAIN_SEC && reads == 0 {
                    return Ok(None);
                }
                let newer = self.known(Some(&known))?;
                if newer.present.locate(key).is_none() {
                    return Ok(None);
                }
                known = newer;
                continue;
            };
            match self.bring_near(store, key, &known.present, &located)? {
                Some(brought) => return Ok(Some(brought)),
                // gc has put what is needed into another pack.
                None if reads < READS_MAX => {
                    reads += 1;
                    known = self.known(Some(&known))?;
                }
                None => {
                    return Err(Error::Missing {
                        name: pack_name(&located.found.pack.hash),
                    });
                }
            }
        }
    }

    /// What the remote has; it is looked at anew where nothing, or only this, is known.
    fn known(&self, old: Option<&Known>) -> Result<Known> {
        let mut known = self.known.lock();
        if let Some(known) = &*known
            && old.is_none_or(|old| !Arc::ptr_eq(&old.present, &known.present))
        {
            return Ok(known.clone());
        }
        let present = Arc::new(Present::new(self.remote.generation()?));
        let time = self.remote.clock.now();
        Ok(known.insert(Known { present, time }).clone())
    }

    /// `None` where the pack is gone.
    fn bring_near(
        &self,
        store: &ObjectStore,
        key: &Key,
        present: &Present,
        at: &Located,
    ) -> Result<Option<Brought>> {
        let Located { index, found } = at;
        let own = found.place.range();
        let turn = self.turn(&found.pack.hash, &own);
        if store.contains(key.0, &key.1) {
            return Ok(Some(Brought::default()));
        }
        let wide = &turn.coming.1;
        let near = present.within(*index, found.place.pack, wide);
        let is_missing = |key: &Key| !store.contains(key.0, &key.1);
        let mut wanted: Vec<(Key, Place)> = near
            .into_iter()
            .filter(|(near, _)| near == key || is_missing(near))
            .collect();
        if !wanted.iter().any(|(near, _)| near == key) {
            wanted.push((*key, found.place));
        }
        let start = wanted.iter().map(|(_, place)| place.range().start).min();
        let end = wanted.iter().map(|(_, place)| place.range().end).max();
        let range = start.unwrap_or(own.start)..end.unwrap_or(own.end);
        let name = pack_name(&found.pack.hash);
        let Some(bytes) = self.remote.bucket().get_range(&name, range.clone())? else {
            return Ok(None);
        };
        let mut brought = Brought::default();
        for (near, place) in wanted {
            let part = place.range();
            let part =
                bytes.get((part.start - range.start) as usize..(part.end - range.start) as usize);
            let record = match part.map(|part| Record::parse(&near, part.to_vec())) {
                Some(Ok(record)) => record,
                _ if near == *key => self.remote.record(key, found)?,
                _ => continue,
            };
            store.put_record(&record)?;
            brought.objects += 1;
            brought.bytes += record.stored_len();
        }
        let bytes = wide.end - wide.start;
        let pack = found.pack.hash;
        *self.last.lock() = Some(Last { pack, range, bytes });
        Ok(Some(brought))
    }

    /// Waits while a record is on its way with others; the bytes that are brought with it then.
    fn turn(&self, pack: &Hash, own: &Range<u64>) -> Turn<'_> {
        let mut coming = self.coming.lock();
        let has =
            |(of, range): &Coming| of == pack && range.start <= own.start && own.end <= range.end;
        while coming.iter().any(has) {
            self.came.wait(&mut coming);
        }
        let next = (*pack, self.around(pack, own));
        coming.push(next.clone());
        Turn {
            near: self,
            coming: next,
        }
    }

    /// The bytes around a record in which neighbours are looked for: on the side to which reading goes on.
    fn around(&self, pack: &Hash, own: &Range<u64>) -> Range<u64> {
        let last = self.last.lock().clone().filter(|last| last.pack == *pack);
        let half = NEAR_BYTES / 2;
        let Some(last) = last else {
            return own.start.saturating_sub(half)..own.end + half;
        };
        let bytes = (last.bytes * 2).min(RANGE_BYTES);
        let goes_on = own.start >= last.range.end && own.start < last.range.end + NEAR_BYTES;
        let goes_back = own.end <= last.range.start && own.end + NEAR_BYTES > last.range.start;
        match (goes_on, goes_back) {
            (true, _) => own.start..own.end.max(own.start + bytes),
            (_, true) => own.start.min(own.end.saturating_sub(bytes))..own.end,
            _ => own.start.saturating_sub(half)..own.end + half,
        }
    }
}
