//! A persistent map from dense numbers to shared values.
//!
//! Cloning is O(1); a change copies the nodes on its path that are shared. Two maps that grew out of
//! one another are compared in time proportional to what differs, because shared nodes are skipped.
//!
//! Fanout 16: a node is 152 bytes, so an entry costs about 10 bytes here.
//!
//! Values of a block of neighbouring keys may be made only when one of them is needed ([`Radix::set_later`]); but for the
//! time that takes, and for what says that it does not do so, no caller sees a difference.

#[cfg(test)]
pub(crate) mod late_tests;
pub mod later;

use later::Later;
use std::sync::Arc;

const BITS: u32 = 4;
const FANOUT: usize = 1 << BITS;
/// Levels that 64-bit keys can need.
const LEVELS_MAX: u32 = 64 / BITS;

#[derive(Debug)]
enum Node<T> {
    Inner([Option<Arc<Node<T>>>; FANOUT]),
    Leaf([Option<Arc<T>>; FANOUT]),
    Later(Later<T>),
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        match self {
            Node::Later(later) => Node::clone(later.open()),
            Node::Inner(c) => Node::Inner(c.clone()),
            Node::Leaf(v) => Node::Leaf(v.clone()),
        }
    }
}

/// The map. Keys may be any `u64`; memory and speed are best when they are dense.
#[derive(Debug)]
pub struct Radix<T> {
    root: Option<Arc<Node<T>>>,
    /// Levels of the tree: 0 when empty, 1 for keys below 16, and so on.
    levels: u32,
    len: usize,
}

impl<T> Clone for Radix<T> {
    fn clone(&self) -> Self {
        Radix {
            root: self.root.clone(),
            levels: self.levels,
            len: self.len,
        }
    }
}

impl<T> Default for Radix<T> {
    fn default() -> Self {
        Radix {
            root: None,
            levels: 0,
            len: 0,
        }
    }
}

/// What a node that may be changed consists of.
enum Parts<'a, T> {
    Children(&'a mut [Option<Arc<Node<T>>>; FANOUT]),
    Values(&'a mut [Option<Arc<T>>; FANOUT]),
}

/// A node, where there is one.
type Place<'a, T> = Option<&'a Arc<Node<T>>>;

/// What a walk visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    All,
    /// Nothing that is still to be made.
    Open,
}

/// Takes a key with its values in both maps.
pub type EachDiffering<'e, 'a, T> = dyn FnMut(u64, Option<&'a Arc<T>>, Option<&'a Arc<T>>) + 'e;

fn slot(key: u64, level: u32) -> usize {
    ((key >> (BITS * level)) & (FANOUT as u64 - 1)) as usize
}

fn levels_for(key: u64) -> u32 {
    let bits = 64 - key.leading_zeros();
    bits.div_ceil(BITS).max(1)
}

fn empty<T>(level: u32) -> Node<T> {
    if level == 0 {
        Node::Leaf(Default::default())
    } else {
        Node::Inner(Default::default())
    }
}

impl<T> Radix<T> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when both are the same value, found without looking at entries.
    pub fn same(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The value at `key`.
    pub fn get(&self, key: u64) -> Option<&Arc<T>> {
        if self.levels < LEVELS_MAX && key >> (BITS * self.levels) != 0 {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut level = self.levels;
        loop {
            match node {
                Node::Leaf(values) => return values[slot(key, 0)].as_ref(),
                Node::Inner(children) => {
                    level -= 1;
                    node = children[slot(key, level)].as_deref()?;
                }
                Node::Later(later) => node = later.open(),
            }
        }
    }

    /// Sets the value at `key`; returns the one that was there.
    pub fn insert(&mut self, key: u64, value: Arc<T>) -> Option<Arc<T>> {
        self.grow(levels_for(key));
        let level = self.levels - 1;
        let root = self.root.get_or_insert_with(|| Arc::new(empty(level)));
        let old = Self::put(root, level, key, value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes the value at `key`.
    pub fn remove(&mut self, key: u64) -> Option<Arc<T>> {
        self.get(key)?;
        let level = self.levels - 1;
        let old = Self::take(self.root.as_mut()?, level, key);
        self.len -= usize::from(old.is_some());
        if self.len == 0 {
            *self = Radix::default();
        }
        old
    }

    /// Sets the values of neighbouring keys, `at` being what they have in common but the last four bits.
    fn put_leaf(&mut self, at: u64, leaf: [Option<Arc<T>>; FANOUT]) {
        if leaf.iter().all(Option::is_none) {
            return;
        }
        self.grow(levels_for(at << BITS));
        let level = self.levels - 1;
        let root = self.root.get_or_insert_with(|| Arc::new(empty(level)));
        let values = Self::leaf_of(root, level, at << BITS);
        for (place, value) in values.iter_mut().zip(leaf) {
            if let Some(value) = value {
                self.len += usize::from(place.replace(value).is_none());
            }
        }
    }

    /// The values of the keys that only differ from `key` in the last four bits.
    fn leaf_of(node: &mut Arc<Node<T>>, level: u32, key: u64) -> &mut [Option<Arc<T>>; FANOUT] {
        match Self::own(node) {
            Parts::Values(values) => values,
            Parts::Children(children) => {
                let child =
                    children[slot(key, level)].get_or_insert_with(|| Arc::new(empty(level - 1)));
                Self::leaf_of(child, level - 1, key)
            }
        }
    }

    fn grow(&mut self, levels: u32) {
        while self.levels < levels {
            if let Some(old) = self.root.take() {
                let mut children: [Option<Arc<Node<T>>>; FANOUT] = Default::default();
                children[0] = Some(old);
                self.root = Some(Arc::new(Node::Inner(children)));
            }
            self.levels += 1;
        }
    }

    fn put(node: &mut Arc<Node<T>>, level: u32, key: u64, value: Arc<T>) -> Option<Arc<T>> {
        match Self::own(node) {
            Parts::Values(values) => values[slot(key, 0)].replace(value),
            Parts::Children(children) => {
                let child =
                    children[slot(key, level)].get_or_insert_with(|| Arc::new(empty(level - 1)));
                Self::put(child, level - 1, key, value)
            }
        }
    }

    fn take(node: &mut Arc<Node<T>>, level: u32, key: u64) -> Option<Arc<T>> {
        match Self::own(node) {
            Parts::Values(values) => values[slot(key, 0)].take(),
            Parts::Children(children) => {
                let place = &mut children[slot(key, level)];
                let old = Self::take(place.as_mut()?, level - 1, key);
                if place.as_ref().is_some_and(|c| c.is_vacant()) {
                    *place = None;
                }
                old
            }
        }
    }

    /// Calls `each` for every entry in ascending order of keys.
    pub fn for_each(&self, each: &mut dyn FnMut(u64, &Arc<T>)) {
        if let Some(root) = &self.root {
            Self::walk(root, 0, Reach::All, each);
        }
    }

    /// As [`Radix::for_each`], without those that are still to be made.
    pub fn for_each_open(&self, each: &mut dyn FnMut(u64, &Arc<T>)) {
        if let Some(root) = &self.root {
            Self::walk(root, 0, Reach::Open, each);
        }
    }

    fn walk(node: &Node<T>, prefix: u64, reach: Reach, each: &mut dyn FnMut(u64, &Arc<T>)) {
        if reach == Reach::Open && node.is_closed() {
            return;
        }
        match node.opened() {
            Node::Leaf(values) => {
                for (i, v) in values.iter().enumerate() {
                    if let Some(v) = v {
                        each((prefix << BITS) | i as u64, v);
                    }
                }
            }
            Node::Inner(children) => {
                for (i, c) in children.iter().enumerate() {
                    if let Some(c) = c {
                        Self::walk(c, (prefix << BITS) | i as u64, reach, each);
                    }
                }
            }
            Node::Later(_) => {}
        }
    }

    /// Calls `each` for every key whose value is not the same shared value in both maps, in ascending
    /// order, with both values. O(what differs × depth).
    pub fn diff<'a>(a: &'a Self, b: &'a Self, each: &mut EachDiffering<'_, 'a, T>) {
        Self::diff_within(Reach::All, a, b, each);
    }

    /// As [`Radix::diff`], without the blocks of `b` that are still to be made.
    pub fn diff_open<'a>(a: &'a Self, b: &'a Self, each: &mut EachDiffering<'_, 'a, T>) {
        Self::diff_within(Reach::Open, a, b, each);
    }

    fn diff_within<'a>(
        reach: Reach,
        a: &'a Self,
        b: &'a Self,
        each: &mut EachDiffering<'_, 'a, T>,
    ) {
        let levels = a.levels.max(b.levels);
        if levels == 0 {
            return;
        }
        if a.levels == b.levels {
            let (x, y) = (a.root.as_ref(), b.root.as_ref());
            return Self::diff_nodes(reach, (x, y), levels - 1, 0, each);
        }
        // The lower one stands in child 0 of (what would be) its missing levels.
        let a_lower = a.levels < b.levels;
        let (low, high) = if a_lower { (a, b) } else { (b, a) };
        let mut path = high.root.as_ref();
        let mut level = high.levels;
        while level > low.levels.max(1) {
            level -= 1;
            path = path.and_then(|n| n.children()?[0].as_ref());
        }
        let (x, y) = if a_lower {
            (low.root.as_ref(), path)
        } else {
            (path, low.root.as_ref())
        };
        Self::diff_nodes(reach, (x, y), level - 1, 0, each);
        Self::rest(reach, high, level, a_lower, each);
    }

    /// Entries of `high` beyond its first child chain down to `level` levels.
    fn rest<'a>(
        reach: Reach,
        high: &'a Self,
        level: u32,
        high_is_b: bool,
        each: &mut EachDiffering<'_, 'a, T>,
    ) {
        let mut chain = Vec::new();
        let mut node = high.root.as_ref();
        let mut l = high.levels;
        while l > level {
            l -= 1;
            let Some(c) = node.and_then(|n| n.children()) else {
                break;
            };
            chain.push((l, c));
            node = c[0].as_ref();
        }
        for (l, children) in chain.into_iter().rev() {
            for (i, c) in children.iter().enumerate().skip(1) {
                let (x, y) = if high_is_b {
                    (None, c.as_ref())
                } else {
                    (c.as_ref(), None)
                };
                Self::diff_nodes(reach, (x, y), l - 1, i as u64, each);
            }
        }
    }

    fn diff_nodes<'a>(
        reach: Reach,
        (a, b): (Place<'a, T>, Place<'a, T>),
        level: u32,
        prefix: u64,
        each: &mut EachDiffering<'_, 'a, T>,
    ) {
        match (a, b) {
            (None, None) => return,
            (Some(x), Some(y)) if Arc::ptr_eq(x, y) => return,
            (_, Some(y)) if reach == Reach::Open && y.is_closed() => return,
            _ => {}
        }
        for i in 0..FANOUT {
            let key = (prefix << BITS) | i as u64;
            if level == 0 {
                let (x, y) = (value_at(a, i), value_at(b, i));
                match (x, y) {
                    (None, None) => {}
                    (Some(p), Some(q)) if Arc::ptr_eq(p, q) => {}
                    _ => each(key, x, y),
                }
            } else {
                let children = (child_at(a, i), child_at(b, i));
                Self::diff_nodes(reach, children, level - 1, key, each);
            }
        }
    }
}

fn value_at<T>(node: Option<&Arc<Node<T>>>, i: usize) -> Option<&Arc<T>> {
    match &**node? {
        Node::Leaf(values) => values[i].as_ref(),
        Node::Inner(_) | Node::Later(_) => None,
    }
}

fn child_at<T>(node: Option<&Arc<Node<T>>>, i: usize) -> Option<&Arc<Node<T>>> {
    node?.children()?[i].as_ref()
}

/// Of equal keys the last counts. Fastest where keys ascend.
impl<T> FromIterator<(u64, Arc<T>)> for Radix<T> {
    fn from_iter<I: IntoIterator<Item = (u64, Arc<T>)>>(entries: I) -> Radix<T> {
        let mut map = Radix::default();
        let (mut at, mut leaf) = (0, [const { None }; FANOUT]);
        for (key, value) in entries {
            if key >> BITS != at {
                map.put_leaf(at, std::mem::take(&mut leaf));
                at = key >> BITS;
            }
            leaf[slot(key, 0)] = Some(value);
        }
        map.put_leaf(at, leaf);
        map
    }
}

impl<T> Node<T> {
    fn is_vacant(&self) -> bool {
        match self {
            Node::Inner(c) => c.iter().all(Option::is_none),
            Node::Leaf(v) => v.iter().all(Option::is_none),
            // None is made of no values.
            Node::Later(_) => false,
        }
    }
}

impl<T: Clone> Radix<T> {
    /// Changes the value at `key` in place, copying it first where it is shared.
    /// Returns what `change` returns, or `None` where there is no value.
    pub fn update<R>(&mut self, key: u64, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.get(key)?;
        let mut level = self.levels;
        let mut node = self.root.as_mut()?;
        loop {
            level -= 1;
            match Self::own(node) {
                Parts::Values(values) => {
                    return values[slot(key, 0)]
                        .as_mut()
                        .map(|v| change(Arc::make_mut(v)));
                }
                Parts::Children(children) => node = children[slot(key, level)].as_mut()?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entries(r: &Radix<u32>) -> BTreeMap<u64, u32> {
        let mut out = BTreeMap::new();
        r.for_each(&mut |k, v| {
            out.insert(k, **v);
        });
        out
    }

    #[test]
    fn keeps_what_is_inserted_over_growth_and_removal() {
        let mut r = Radix::default();
        let mut model = BTreeMap::new();
        let mut x = 1u64;
        for i in 0..20_000u32 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let key = (x >> 33) % [10, 300, 70_000, u64::MAX][(i % 4) as usize];
            if x.is_multiple_of(3) {
                assert_eq!(r.remove(key).map(|v| *v), model.remove(&key));
            } else {
                assert_eq!(r.insert(key, Arc::new(i)).map(|v| *v), model.insert(key, i));
            }
            assert_eq!(r.len(), model.len());
        }
        assert_eq!(entries(&r), model);
        for k in model.keys() {
            assert_eq!(r.get(*k).map(|v| **v), model.get(k).copied());
        }
    }

    #[test]
    fn made_of_entries_in_any_order_it_is_as_if_they_had_been_inserted() {
        let (mut x, mut keys) = (1u64, Vec::new());
        for i in 0..3_000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(7);
            keys.push([i, 20_000 + 3 * i, x >> 40, x][(i / 750) as usize]);
        }
        keys.extend([5, 17, 5]);
        let values = || keys.iter().zip(0u32..).map(|(k, v)| (*k, Arc::new(v)));
        let (made, mut inserted) = (values().collect::<Radix<u32>>(), Radix::default());
        values().for_each(|(k, v)| drop(inserted.insert(k, v)));
        assert_eq!((made.len(), made.levels), (inserted.len(), inserted.levels));
        assert_eq!(entries(&made), entries(&inserted));
        for end in [0, 1, 15, 16, 17, 300] {
            let made: Radix<u32> = values().take(end).collect();
            assert_eq!((made.len(), entries(&made).len()), (end, end));
            assert_eq!(made.is_empty(), made.root.is_none());
        }
    }

    #[test]
    fn diff_finds_exactly_what_differs_also_between_heights() {
        let mut a = Radix::default();
        for i in 0..200 {
            a.insert(i, Arc::new(i as u32));
        }
        let mut b = a.clone();
        b.remove(7);
        b.insert(9, Arc::new(1));
        b.insert(100_000, Arc::new(2));
        b.insert(5_000, Arc::new(3));
        let mut seen = Vec::new();
        Radix::diff(&a, &b, &mut |k, x, y| {
            seen.push((k, x.map(|v| **v), y.map(|v| **v)))
        });
        let want = vec![
            (7, Some(7), None),
            (9, Some(9), Some(1)),
            (5_000, None, Some(3)),
            (100_000, None, Some(2)),
        ];
        assert_eq!(seen, want);
        seen.clear();
        Radix::diff(&b, &a, &mut |k, x, y| {
            seen.push((k, y.map(|v| **v), x.map(|v| **v)))
        });
        assert_eq!(seen, want);
        let empty = Radix::default();
        let mut n = 0;
        Radix::diff(&empty, &a, &mut |_, x, y| {
            assert!(x.is_none() && y.is_some());
            n += 1;
        });
        assert_eq!(n, 200);
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut a = Radix::default();
        a.insert(3, Arc::new(1u32));
        let b = a.clone();
        a.update(3, |v| *v = 2);
        assert_eq!((**a.get(3).unwrap(), **b.get(3).unwrap()), (2, 1));
    }
}
