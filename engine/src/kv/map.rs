//! A persistent ordered map from keys to entries.
//!
//! A treap whose ranks are hashes of the keys: its shape depends on the keys alone, not on the order in
//! which they came. So cloning is O(1), a change copies the O(log n) nodes above it, and two maps that
//! grew out of one another are compared in time proportional to what differs, shared nodes being
//! skipped. Depth is logarithmic but for keys whose hashes somebody searched for, at twice the work for
//! each further level.

use super::KvEntry;
use std::cmp::Ordering;
use std::sync::Arc;

/// What an entry counts beside its key and value, in bytes: at least what its encoding takes.
const ENTRY_BYTES: u64 = 64;

type Link = Option<Arc<Node>>;

#[derive(Debug, Clone)]
struct Node {
    key: Arc<str>,
    entry: Arc<KvEntry>,
    rank: u64,
    left: Link,
    right: Link,
    len: usize,
    bytes: u64,
}

/// What differs under one key: the key, and the entry in either map.
pub type Differing<'a> = (&'a str, Option<&'a Arc<KvEntry>>, Option<&'a Arc<KvEntry>>);

/// The map. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub struct KvMap {
    root: Link,
}

fn rank_of(key: &str) -> u64 {
    let mut first = [0; 8];
    let hash = blake3::hash(key.as_bytes());
    first
        .iter_mut()
        .zip(hash.as_bytes())
        .for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(first)
}

fn len(link: &Link) -> usize {
    link.as_ref().map_or(0, |n| n.len)
}

fn bytes(link: &Link) -> u64 {
    link.as_ref().map_or(0, |n| n.bytes)
}

fn own_bytes(key: &str, entry: &KvEntry) -> u64 {
    ENTRY_BYTES + key.len() as u64 + entry.value.len() as u64
}

fn same(a: &Link, b: &Link) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

impl Node {
    /// This node's key and entry over other subtrees.
    fn over(&self, left: Link, right: Link) -> Link {
        node(
            self.key.clone(),
            self.entry.clone(),
            self.rank,
            (left, right),
        )
    }

    /// Which of two nodes stands higher.
    fn outranks(&self, rank: u64, key: &str) -> bool {
        (self.rank, &*self.key) > (rank, key)
    }
}

fn node(key: Arc<str>, entry: Arc<KvEntry>, rank: u64, (left, right): (Link, Link)) -> Link {
    Some(Arc::new(Node {
        len: 1 + len(&left) + len(&right),
        bytes: own_bytes(&key, &entry) + bytes(&left) + bytes(&right),
        key,
        entry,
        rank,
        left,
        right,
    }))
}

/// What comes before and after `key`, which is left out.
fn split(link: &Link, key: &str) -> (Link, Link) {
    let Some(n) = link else {
        return (None, None);
    };
    match key.cmp(&n.key) {
        Ordering::Less => {
            let (before, after) = split(&n.left, key);
            (before, n.over(after, n.right.clone()))
        }
        Ordering::Greater => {
            let (before, after) = split(&n.right, key);
            (n.over(n.left.clone(), before), after)
        }
        Ordering::Equal => (n.left.clone(), n.right.clone()),
    }
}

/// Both maps, all keys of `a` being before those of `b`.
fn join(a: &Link, b: &Link) -> Link {
    match (a, b) {
        (None, other) | (other, None) => other.clone(),
        (Some(x), Some(y)) if x.outranks(y.rank, &y.key) => {
            x.over(x.left.clone(), join(&x.right, b))
        }
        (Some(_), Some(y)) => y.over(join(a, &y.left), y.right.clone()),
    }
}

fn put(link: &Link, key: &str, entry: &Arc<KvEntry>, rank: u64) -> Link {
    match link {
        Some(n) if *n.key == *key => {
            let below = (n.left.clone(), n.right.clone());
            node(n.key.clone(), entry.clone(), rank, below)
        }
        Some(n) if n.outranks(rank, key) => match *key < *n.key {
            true => n.over(put(&n.left, key, entry, rank), n.right.clone()),
            false => n.over(n.left.clone(), put(&n.right, key, entry, rank)),
        },
        other => node(key.into(), entry.clone(), rank, split(other, key)),
    }
}

fn take(link: &Link, key: &str) -> Link {
    let n = link.as_ref()?;
    match key.cmp(&n.key) {
        Ordering::Less => n.over(take(&n.left, key), n.right.clone()),
        Ordering::Greater => n.over(n.left.clone(), take(&n.right, key)),
        Ordering::Equal => join(&n.left, &n.right),
    }
}

/// Visits entries from `from` on; false once `each` wants no more.
fn visit(link: &Link, from: &str, each: &mut dyn FnMut(&str, &Arc<KvEntry>) -> bool) -> bool {
    let Some(n) = link else { return true };
    if &*n.key < from {
        return visit(&n.right, from, each);
    }
    visit(&n.left, from, each) && each(&n.key, &n.entry) && visit(&n.right, from, each)
}

fn compare(a: &Link, b: &Link, each: &mut dyn FnMut(Differing<'_>)) {
    if same(a, b) {
        return;
    }
    match (a, b) {
        (None, None) => {}
        (Some(x), Some(y)) if x.key == y.key => {
            compare(&x.left, &y.left, each);
            if !Arc::ptr_eq(&x.entry, &y.entry) && x.entry != y.entry {
                each((&x.key, Some(&x.entry), Some(&y.entry)));
            }
            compare(&x.right, &y.right, each);
        }
        // What stands higher than all of the other map is not in it.
        (Some(x), y) if y.as_ref().is_none_or(|y| x.outranks(y.rank, &y.key)) => {
            let (before, after) = split(b, &x.key);
            compare(&x.left, &before, each);
            each((&x.key, Some(&x.entry), None));
            compare(&x.right, &after, each);
        }
        (_, Some(y)) => {
            let (before, after) = split(a, &y.key);
            compare(&before, &y.left, each);
            each((&y.key, None, Some(&y.entry)));
            compare(&after, &y.right, each);
        }
        (Some(_), None) => {}
    }
}

impl KvMap {
    /// Number of keys.
    pub fn len(&self) -> usize {
        len(&self.root)
    }

    /// True where there is no key.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Bytes that all keys and values count.
    pub fn bytes(&self) -> u64 {
        bytes(&self.root)
    }

    /// True when both are the same value, found without looking at entries.
    pub fn same(&self, other: &KvMap) -> bool {
        same(&self.root, &other.root)
    }

    /// True where both have the same keys with the same entries.
    pub fn equals(&self, other: &KvMap) -> bool {
        let mut found = self.len() != other.len();
        if !found {
            KvMap::diff(self, other, &mut |_| found = true);
        }
        !found
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<KvEntry>> {
        let mut at = self.root.as_deref()?;
        loop {
            at = match key.cmp(&at.key) {
                Ordering::Less => at.left.as_deref()?,
                Ordering::Greater => at.right.as_deref()?,
                Ordering::Equal => return Some(&at.entry),
            };
        }
    }

    /// Sets a key.
    pub fn insert(&mut self, key: &str, entry: Arc<KvEntry>) {
        self.root = put(&self.root, key, &entry, rank_of(key));
    }

    /// Removes a key; true where it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let there = self.get(key).is_some();
        if there {
            self.root = take(&self.root, key);
        }
        there
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
        visit(&self.root, from, each);
    }

    /// Calls `each` for every key whose entries differ, ascending.
    pub fn diff(a: &KvMap, b: &KvMap, each: &mut dyn FnMut(Differing<'_>)) {
        compare(&a.root, &b.root, each);
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
    fn its_shape_depends_on_the_keys_alone_and_is_shallow() {
        fn depth(link: &Link) -> usize {
            link.as_ref()
                .map_or(0, |n| 1 + depth(&n.left).max(depth(&n.right)))
        }
        fn shape(link: &Link) -> String {
            link.as_ref().map_or(String::new(), |n| {
                format!("({}{}{})", shape(&n.left), n.key, shape(&n.right))
            })
        }
        let (mut up, mut down) = (KvMap::default(), KvMap::default());
        for n in 0..20_000 {
            up.insert(&format!("{n:06}"), entry(n));
            down.insert(&format!("{:06}", 19_999 - n), entry(19_999 - n));
        }
        assert!(depth(&up.root) < 60);
        assert_eq!(shape(&up.root), shape(&down.root));
        assert!(up.equals(&down));
        for n in 0..19_900 {
            down.remove(&format!("{n:06}"));
        }
        let mut few = KvMap::default();
        (19_900..20_000).for_each(|n| few.insert(&format!("{n:06}"), entry(n)));
        assert_eq!(shape(&few.root), shape(&down.root));
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
        assert!(!map.same(&before));
        assert_eq!(before.get("500").unwrap().value, "500");
        assert!(before.get("501").is_some());
        let mut looked = 0;
        KvMap::diff(&before, &map, &mut |_| looked += 1);
        assert_eq!(looked, 2);
    }
}
