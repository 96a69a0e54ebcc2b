//! How much of what a remote has is not here, for who asks how a workspace is: without a request, and without waiting
//! for long.
//!
//! Counting takes a while where there are many objects, so a thread does it, not again before it is worth its time;
//! who asks gets what was counted last.
//!
//! Tests: here, `tests/tests/lazy.rs`.

use super::{Near, Present};
use objstore::ObjectStore;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long who asks waits for a count that is not known yet, or not any more.
const PATIENCE: Duration = Duration::from_millis(200);
/// Counting takes one of so many parts of the time at most.
const SHARE: u32 = 20;

/// Objects that a remote has and that are not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// How many.
    pub objects: u64,
    /// Bytes of their records in the remote.
    pub bytes: u64,
}

/// What was counted last.
#[derive(Debug, Default)]
pub struct Counter {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    counted: Option<Counted>,
    is_counting: bool,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    found: Lacking,
    /// What it is the count of: the generation, and how many objects were here.
    of: (u64, usize),
    /// When that was over, and how long it took.
    ended: Instant,
    took: Duration,
}

impl Counter {
    /// How much is lacking; `None` where it is not known yet what the remote has.
    pub fn ask(
        self: &Arc<Counter>,
        near: Option<Arc<Near>>,
        store: &Arc<ObjectStore>,
    ) -> Option<Lacking> {
        let present = near.and_then(|near| near.present());
        let mut state = self.state.lock();
        if let Some(present) = present {
            let of = (present.generation.catalog.generation, store.stats().objects);
            let is_fresh = |last: &Counted| {
                last.of == of || last.ended.elapsed() < last.took.saturating_mul(SHARE)
            };
            if !state.counted.as_ref().is_some_and(is_fresh) && !state.is_counting {
                state.is_counting = self.begin(present, store.clone(), of);
            }
            let until = Instant::now() + PATIENCE;
            while state.is_counting && !self.ended.wait_until(&mut state, until).timed_out() {}
        }
        state.counted.map(|counted| counted.found)
    }

    /// Counts in a thread; false where there is none to be had.
    fn begin(
        self: &Arc<Counter>,
        present: Arc<Present>,
        store: Arc<ObjectStore>,
        of: (u64, usize),
    ) -> bool {
        let counter = self.clone();
        let work = move || {
            let began = Instant::now();
            let counted = Counted {
                found: present.lacking(&store),
                of,
                ended: Instant::now(),
                took: began.elapsed(),
            };
            let mut state = counter.state.lock();
            (state.counted, state.is_counting) = (Some(counted), false);
            counter.ended.notify_all();
        };
        let thread = std::thread::Builder::new().name("count".into());
        thread.spawn(work).is_ok()
    }
}

impl Near {
    /// What the remote had when it was looked at last.
    fn present(&self) -> Option<Arc<Present>> {
        let known = self.known.lock();
        known.as_ref().map(|known| known.present.clone())
    }
}

impl Present {
    fn lacking(&self, store: &ObjectStore) -> Lacking {
        let mut found = Lacking::default();
        let indexes = &self.generation.indexes;
        for (number, index) in indexes.iter().enumerate() {
            for (key, place) in index.objects() {
                // Two indexes may have one object.
                let is_first = || indexes[..number].iter().all(|i| i.find(&key).is_none());
                if !store.holds(&key) && is_first() {
                    let range = place.range();
                    found.objects += 1;
                    found.bytes += range.end - range.start;
                }
            }
        }
        found
    }
}
