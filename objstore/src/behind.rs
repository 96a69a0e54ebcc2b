//! Objects that were put and are in no pack yet.
//!
//! Whoever makes a commit waits for its id, which needs hashes only. Compressing and appending what
//! was put can follow ([`ObjectStore::put_behind`]): until then it waits here, and is read from here.
//!
//! Objects reach the packs in the order in which they were put, whether they waited or not, so that an
//! object is never there without what it refers to. A process that dies loses what waits, as a power
//! cut does: before a sync nothing is durable.

use crate::error::Result;
use crate::limits::{FREE_CHECK_BYTES, WAITING_BYTES_MAX};
use crate::pack::Key;
use crate::store::ObjectStore;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Memory that an object takes beside its bytes.
const OBJECT_OVERHEAD_BYTES: usize = 160;

/// The objects that wait.
///
/// Lock order: the lock of gc, `flushing`, `queue`.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    queue: Mutex<Queue>,
    /// Held by whoever appends what waits.
    flushing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<Key>,
    objects: HashMap<Key, Arc<Vec<u8>>>,
    bytes: usize,
    /// Bytes since free space was looked at.
    unchecked_bytes: usize,
    /// Guards of [`ObjectStore::put_behind`] that live.
    guards: usize,
    /// More came than may wait or the disk takes, since there were guards.
    overflowed: bool,
}

/// While it lives, what is put may wait. Given out by [`ObjectStore::put_behind`].
#[derive(Debug)]
pub struct PutBehind<'a>(&'a Behind);

impl Drop for PutBehind<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.guards -= 1;
        queue.overflowed &= queue.guards > 0;
    }
}

impl Behind {
    /// Lets objects wait as long as the guard lives.
    pub fn guard(&self) -> PutBehind<'_> {
        self.queue.lock().guards += 1;
        PutBehind(self)
    }

    /// Takes an object where it may wait; false where its putter is to append it. `has_space` says
    /// whether the disk surely takes all that may wait; it is asked now and then.
    pub fn push(&self, key: Key, bytes: &[u8], has_space: impl FnOnce() -> bool) -> bool {
        let mut queue = self.queue.lock();
        if queue.guards == 0 || queue.overflowed {
            return false;
        }
        let size = bytes.len() + OBJECT_OVERHEAD_BYTES;
        if queue.objects.contains_key(&key) {
            return true;
        }
        let asks = queue.order.is_empty() || queue.unchecked_bytes >= FREE_CHECK_BYTES as usize;
        if queue.bytes + size > WAITING_BYTES_MAX || (asks && !has_space()) {
            queue.overflowed = true;
            return false;
        }
        queue.unchecked_bytes = if asks {
            0
        } else {
            queue.unchecked_bytes + size
        };
        queue.bytes += size;
        queue.order.push_back(key);
        queue.objects.insert(key, Arc::new(bytes.to_vec()));
        true
    }

    /// The bytes of an object that waits.
    pub fn get(&self, key: &Key) -> Option<Arc<Vec<u8>>> {
        self.queue.lock().objects.get(key).cloned()
    }

    /// True for an object that waits.
    pub fn contains(&self, key: &Key) -> bool {
        self.queue.lock().objects.contains_key(key)
    }

    /// The keys of what waits.
    pub fn keys(&self) -> Vec<Key> {
        self.queue.lock().order.iter().copied().collect()
    }

    /// Hands what waits to `append`, the oldest first. An object goes on waiting, and is found here,
    /// until it was appended; after an error the rest does.
    pub fn flush(&self, mut append: impl FnMut(Key, &Arc<Vec<u8>>) -> Result<()>) -> Result<()> {
        let _one = self.flushing.lock();
        while let Some((key, bytes)) = self.oldest() {
            append(key, &bytes)?;
            self.queue.lock().pop();
        }
        Ok(())
    }

    fn oldest(&self) -> Option<(Key, Arc<Vec<u8>>)> {
        let queue = self.queue.lock();
        let key = queue.order.front()?;
        Some((*key, queue.objects.get(key)?.clone()))
    }
}

impl Queue {
    /// Drops the oldest object.
    fn pop(&mut self) {
        let oldest = self.order.pop_front();
        if let Some(bytes) = oldest.and_then(|key| self.objects.remove(&key)) {
            self.bytes -= bytes.len() + OBJECT_OVERHEAD_BYTES;
        }
        if self.order.is_empty() {
            // Where many waited once their table is not kept.
            self.objects.shrink_to_fit();
            self.order.shrink_to_fit();
        }
    }
}

impl ObjectStore {
    /// While the guard lives, what is put by whichever thread may wait in memory for
    /// [`ObjectStore::flush`] or [`ObjectStore::sync`], 8 MiB at most.
    pub fn put_behind(&self) -> PutBehind<'_> {
        self.behind.guard()
    }
}
