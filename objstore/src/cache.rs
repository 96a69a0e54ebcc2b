//! A cache of shared values, bounded in bytes, that forgets what was not used for longest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    inner: Mutex<Inner<K, V>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Inner<K, V> {
    slots: HashMap<K, Slot<V>>,
    by_age: BTreeMap<u64, K>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: Arc<V>,
    age: u64,
    bytes: usize,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty cache for at most `bytes_max`.
    pub fn new(bytes_max: usize) -> Cache<K, V> {
        let inner = Inner {
            slots: HashMap::new(),
            by_age: BTreeMap::new(),
            clock: 0,
            bytes: 0,
        };
        Cache {
            inner: Mutex::new(inner),
            bytes_max,
        }
    }

    /// The value, which thereby is the youngest.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let slot = inner.slots.get_mut(key)?;
        let old = std::mem::replace(&mut slot.age, clock);
        let value = slot.value.clone();
        inner.by_age.remove(&old);
        inner.by_age.insert(clock, *key);
        Some(value)
    }

    /// Keeps a value that takes `bytes`; one larger than a quarter of the cache is not worth the rest.
    pub fn put(&self, key: K, value: Arc<V>, bytes: usize) {
        if bytes > self.bytes_max / 4 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.remove(&key);
        inner.clock += 1;
        let age = inner.clock;
        inner.bytes += bytes;
        inner.by_age.insert(age, key);
        inner.slots.insert(key, Slot { value, age, bytes });
        while inner.bytes > self.bytes_max
            && let Some((_, oldest)) = inner.by_age.first_key_value().map(|(a, k)| (*a, *k))
        {
            inner.remove(&oldest);
        }
    }
}

impl<K: Copy + Eq + Hash, V> Inner<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(slot) = self.slots.remove(key) {
            self.by_age.remove(&slot.age);
            self.bytes -= slot.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_longest_goes_first() {
        let cache = Cache::new(100);
        for key in 0..5 {
            cache.put(key, Arc::new(key), 20);
        }
        assert!(cache.get(&0).is_some());
        cache.put(5, Arc::new(5), 20);
        assert!(cache.get(&1).is_none() && cache.get(&0).is_some() && cache.get(&5).is_some());
        assert!(cache.inner.lock().bytes <= 100);
    }

    #[test]
    fn giants_and_repeats_do_not_break_the_bound() {
        let cache = Cache::new(100);
        cache.put(1, Arc::new(()), 26);
        assert!(cache.get(&1).is_none());
        for _ in 0..10 {
            cache.put(2, Arc::new(()), 25);
        }
        assert_eq!(cache.inner.lock().bytes, 25);
    }
}
