//! A cache of shared values, bounded in bytes, that forgets what was not used for longest.

use std::fmt::{self, Debug, Formatter};
use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

/// The cache.
pub(crate) struct Cache<K: Eq + Hash, V> {
    inner: Mutex<Inner<K, V>>,
    bytes_max: usize,
}

struct Inner<K: Eq + Hash, V> {
    /// Each value with the bytes that it takes.
    slots: LruCache<K, (Arc<V>, usize)>,
    bytes: usize,
}

impl<K: Eq + Hash, V> Debug for Cache<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bytes = self.inner.lock().bytes;
        write!(f, "Cache({bytes} of {} bytes)", self.bytes_max)
    }
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty cache for at most `bytes_max`.
    pub fn new(bytes_max: usize) -> Cache<K, V> {
        let inner = Inner {
            slots: LruCache::unbounded(),
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
        inner.slots.get(key).map(|(value, _)| value.clone())
    }

    /// Keeps a value that takes `bytes`; one larger than a quarter of the cache is not worth the rest.
    pub fn put(&self, key: K, value: Arc<V>, bytes: usize) {
        if bytes > self.bytes_max / 4 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.bytes += bytes;
        if let Some((_, before)) = inner.slots.put(key, (value, bytes)) {
            inner.bytes -= before;
        }
        while inner.bytes > self.bytes_max
            && let Some((_, (_, oldest))) = inner.slots.pop_lru()
        {
            inner.bytes -= oldest;
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
