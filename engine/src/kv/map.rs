//! A persistent ordered map from keys to entries, which knows what they count.
//!
//! Cloning is O(1), a change copies O(log n) nodes, and two maps that grew out of one another are compared without
//! looking at what they share.

use super::KvEntry;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::ops::Bound;
use std::sync::Arc;

/// What an entry counts beside its key and value, in bytes: at least what its encoding takes.
const ENTRY_BYTES: u64 = 64;

/// What differs under one key: the key, and the entry in either map.
pub type Differing<'a> = (&'a str, Option<&'a Arc<KvEntry>>, Option<&'a Arc<KvEntry>>);

/// The map. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub struct KvMap {
    entries: OrdMap<Arc<str>, Arc<KvEntry>>,
    bytes: u64,
}

fn own_bytes(key: &str, entry: &KvEntry) -> u64 {
    ENTRY_BYTES + key.len() as u64 + entry.value.len() as u64
}

impl KvMap {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True where there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that all keys and values count.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when both are the same value, found without looking at entries.
    pub fn same(&self, other: &KvMap) -> bool {
        (self.is_empty() && other.is_empty()) || self.entries.ptr_eq(&other.entries)
    }

    /// True where both have the same keys with the same entries.
    pub fn equals(&self, other: &KvMap) -> bool {
        let alike = self.len() == other.len() && self.bytes == other.bytes;
        alike && (self.same(other) || self.entries.diff(&other.entries).next().is_none())
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<KvEntry>> {
        self.entries.get(key)
    }

    /// Sets a key.
    pub fn insert(&mut self, key: &str, entry: Arc<KvEntry>) {
        self.bytes += own_bytes(key, &entry);
        if let Some(before) = self.entries.insert(key.into(), entry) {
            self.bytes -= own_bytes(key, &before);
        }
    }

    /// Removes a key; true where it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.entries.remove(key);
        if let Some(before) = &before {
            self.bytes -= own_bytes(key, before);
        }
        before.is_some()
    }

    /// Sets or removes a key.
    pub fn set(&mut self, key: &str, entry: Option<Arc<KvEntry>>) {
        match entry {
            Some(entry) => self.insert(key, entry),
            None => drop(self.remove(key)),
        }
    }

    /// Calls `each` for the keys from `from` on, ascending by bytes, until it returns false.
    pub fn scan(&self, from: &str, each: &mut dyn FnMut(&str, &Arc<KvEntry>) -> bool) {
        let from = (Bound::Included(from), Bound::Unbounded);
        for (key, entry) in self.entries.range::<_, str>(from) {
            if !each(key, entry) {
                return;
            }
        }
    }

    /// Calls `each` for every key whose entries differ, ascending.
    pub fn diff(a: &KvMap, b: &KvMap, each: &mut dyn FnMut(Differing<'_>)) {
        if a.same(b) {
            return;
        }
        for item in a.entries.diff(&b.entries) {
            each(match item {
                DiffItem::Add(key, new) => (key, None, Some(new)),
                DiffItem::Update { old, new } => (old.0, Some(old.1), Some(new.1)),
                DiffItem::Remove(key, old) => (key, Some(old), None),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;
    use std::collections::BTreeMap;

    fn entry(value: u64) -> Arc<KvEntry> {
        Arc::new(KvEntry {
            value: value.to_string(),
            created: Time::default(),
            updated: Time::default(),
        })
    }

    fn all(map: &KvMap) -> Vec<(String, String)> {
        let mut out = Vec::new();
        map.scan("", &mut |key, e| {
            out.push((key.to_owned(), e.value.clone()));
            true
        });
        out
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) % n
        }
    }

    type Model = BTreeMap<String, String>;

    fn step(map: &mut KvMap, model: &mut Model, random: &mut Random) {
        let key = format!("key {}", random.below(300));
        if random.below(3) == 0 {
            assert_eq!(map.remove(&key), model.remove(&key).is_some());
        } else {
            let value = random.below(20);
            map.insert(&key, entry(value));
            model.insert(key, value.to_string());
        }
    }

    #[test]
    fn it_is_what_a_sorted_map_is() {
        let mut random = Random(1);
        let (mut map, mut model) = (KvMap::default(), Model::new());
        for _ in 0..4000 {
            step(&mut map, &mut model, &mut random);
            assert_eq!(map.len(), model.len());
        }
        let wanted: Vec<_> = model.clone().into_iter().collect();
        assert_eq!(all(&map), wanted);
        let bytes = model.iter().map(|(k, v)| (k.len() + v.len()) as u64);
        assert_eq!(
            map.bytes(),
            bytes.sum::<u64>() + ENTRY_BYTES * map.len() as u64
        );
        for (key, value) in &model {
            assert_eq!(map.get(key).map(|e| &e.value), Some(value));
        }
        assert!(map.get("no such key").is_none());
    }

    #[test]
    fn differences_are_all_found_and_nothing_else() {
        let mut random = Random(2);
        for _ in 0..40 {
            let (mut a, mut m) = (KvMap::default(), Model::new());
            for _ in 0..random.below(400) {
                step(&mut a, &mut m, &mut random);
            }
            let (mut b, mut n) = (a.clone(), m.clone());
            for _ in 0..random.below(60) {
                step(&mut b, &mut n, &mut random);
            }
            let mut found = Vec::new();
            KvMap::diff(&a, &b, &mut |(key, x, y)| {
                let value = |e: Option<&Arc<KvEntry>>| e.map(|e| e.value.clone());
                found.push((key.to_owned(), value(x), value(y)));
            });
            let keys: std::collections::BTreeSet<_> = m.keys().chain(n.keys()).collect();
            let wanted = keys.into_iter().filter(|k| m.get(*k) != n.get(*k));
            let wanted: Vec<_> = wanted
                .map(|k| (k.clone(), m.get(k).cloned(), n.get(k).cloned()))
                .collect();
            assert_eq!(found, wanted);
            assert_eq!(a.equals(&b), m == n);
        }
    }

    #[test]
    fn a_change_leaves_clones_alone_and_shares_the_rest() {
        let mut map = KvMap::default();
        for n in 0..1000 {
            map.insert(&format!("{n}"), entry(n));
        }
        let before = map.clone();
        assert!(map.same(&before));
        map.insert("500", entry(7));
        map.remove("501");
        assert!(!map.same(&before) && map.bytes() != before.bytes());
        assert_eq!(before.get("500").unwrap().value, "500");
        assert!(before.get("501").is_some());
        let mut looked = 0;
        KvMap::diff(&before, &map, &mut |_| looked += 1);
        assert_eq!(looked, 2);
    }
}
